"""Ids are spelt, checked, counted and hashed as Kafka does it."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.model.errors import ErrorCode, KafkaError
from moldau.model.ids import (
    DIRECTORY_LOST,
    METADATA_TOPIC_ID,
    SEQUENCE_MAX,
    ZERO_UUID,
    PartitionIndex,
    Sequence,
    TopicName,
    TopicPartition,
    Uuid,
    check_topic_name,
    is_reserved,
    partition_for_coordinator,
    sequence_after,
    topic_collision_key,
    uuid_from_random,
    uuid_from_text,
    uuid_to_text,
)

ANSWER_IDS = Path(__file__).parent.parent / "kafka" / "AnswerIds.java"

# The next to last hashes to the smallest int that Java has.
GROUPS = (
    "",
    "a",
    "group",
    "orders-service",
    "größe",
    "日本",
    "😀 smile",
    "\ud800",
    "polygenelubricants",
    "x" * 500,
)
TOPIC_NAMES = ("a", "A.b_c-9", "...", ".", "..", "a b", "é", "a/b", "a\u0660", "x" * 249, "x" * 250)
UUID_TEXTS = (
    "AAAAAAAAAAAAAAAAAAAAAA",
    "AAAAAAAAAAAAAAAAAAAAAQ",
    "AAAAAAAAAAAAAAAAAAAAAB",
    "AAAAAAAAAAAAAAAAAAAAAA==",
    "AAAAAAAAAAAAAAAAAAAAAA=",
    "-_-_AAAAAAAAAAAAAAAAAA",
    "AAAAAAAAAA+AAAAAAAAAAA",
    "AAAAAAAAAA/AAAAAAAAAAA",
    "AAAAAAAAAA AAAAAAAAAAA",
    "AAAAAAAAAAéAAAAAAAAAAA",
    "AAAAAAAAAA=AAAAAAAAAAA",
    "AAAAAAAAAAAAAAAAAAAAA",
    "AAAAAAAAAAAAAAAAAAAAAAA",
    "AAAAAAAAAAAAAAAAAAAAAAAA",
)
TOPIC_PAIRS = (("a.b", "a_b"), ("a.b", "a.b"), ("a.b", "a-b"), ("a.b_c", "a_b.c"), ("ab", "a.b"))


@pytest.mark.behaviour(29)
def test_kafka_agrees_on_coordinators_uuids_and_topic_names(run_java: Callable[..., str]) -> None:
    ours = {
        **{f"coordinator {_utf16(group)}": str(partition_for_coordinator(group, 50)) for group in GROUPS},
        **{f"uuid {text}": _uuid_or_invalid(text) for text in UUID_TEXTS},
        **{f"topic {name}": str(_is_topic_name(name)).lower() for name in TOPIC_NAMES},
        **{f"collision {a} {b}": str(_collide(a, b)).lower() for a, b in TOPIC_PAIRS},
    }
    answers = run_java(ANSWER_IDS.read_text(), stdin="\n".join(ours)).splitlines()
    assert dict(zip(ours, answers, strict=True)) == ours


@pytest.mark.behaviour(29)
def test_the_smallest_hash_goes_to_partition_0() -> None:
    # 31-based over UTF-16, this text gives exactly -2**31, which has no absolute value in 32 bits.
    assert partition_for_coordinator("polygenelubricants", 50) == 0


@given(st.binary(min_size=16, max_size=16))
def test_a_uuid_is_read_back_from_its_text(raw: bytes) -> None:
    text = uuid_to_text(Uuid(raw))
    assert len(text) == 22
    assert uuid_from_text(text) == uuid_from_text(f"{text}==") == raw


@given(st.binary(min_size=16, max_size=16))
def test_random_bytes_become_a_version_4_uuid_that_is_no_option_and_not_reserved(random: bytes) -> None:
    uuid = uuid_from_random(random)
    assert uuid[6] >> 4 == 4
    assert uuid[8] >> 6 == 0b10
    assert not uuid_to_text(uuid).startswith("-")
    assert not is_reserved(uuid)
    assert uuid_from_random(uuid) == uuid


def test_an_id_that_would_start_with_a_dash_is_changed() -> None:
    dashed = uuid_from_text("-AAAAAAAQACAAAAAAAAAAA")
    assert uuid_to_text(uuid_from_random(dashed)) == "eAAAAAAAQACAAAAAAAAAAA"


@pytest.mark.parametrize(
    "uuid", [ZERO_UUID, METADATA_TOPIC_ID, DIRECTORY_LOST, Uuid((99).to_bytes(16, "big"))]
)
def test_the_first_hundred_uuids_are_reserved(uuid: Uuid) -> None:
    assert is_reserved(uuid)
    assert not is_reserved(Uuid((100).to_bytes(16, "big")))


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("", "it is empty"),
        (".", "'.' and '..' are reserved"),
        ("..", "'.' and '..' are reserved"),
        ("x" * 250, "it has 250 characters, and 249 are allowed"),
        ("a b", "only ASCII letters, digits, '.', '_' and '-' are allowed"),
        ("a\n", "only ASCII letters, digits, '.', '_' and '-' are allowed"),
    ],
)
def test_a_bad_topic_name_is_refused_with_the_reason(name: str, wrong: str) -> None:
    with pytest.raises(KafkaError) as refused:
        check_topic_name(name)
    assert refused.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert refused.value.message == f"Topic name {name!r} is invalid: {wrong}."


@pytest.mark.parametrize(
    ("sequence", "count", "after"),
    [
        (0, 1, 1),
        (SEQUENCE_MAX, 1, 0),
        (SEQUENCE_MAX - 1, 3, 1),
        (5, 0, 5),
        (SEQUENCE_MAX, SEQUENCE_MAX, SEQUENCE_MAX - 1),
    ],
)
def test_sequences_wrap_around_to_0(sequence: int, count: int, after: int) -> None:
    assert sequence_after(Sequence(sequence), count) == after


@given(st.integers(0, SEQUENCE_MAX), st.integers(0, SEQUENCE_MAX), st.integers(0, SEQUENCE_MAX))
def test_two_steps_are_one_long_step(start: int, one: int, two: int) -> None:
    halfway = sequence_after(Sequence(start), one)
    assert 0 <= halfway <= SEQUENCE_MAX
    assert sequence_after(halfway, two) == sequence_after(Sequence(start), one + two)


def test_partitions_sort_by_topic_and_then_by_number() -> None:
    names = [("b", 0), ("a", 10), ("a", 9)]
    partitions = sorted(TopicPartition(TopicName(name), PartitionIndex(index)) for name, index in names)
    assert [str(partition) for partition in partitions] == ["a-9", "a-10", "b-0"]


def _utf16(text: str) -> str:
    return text.encode("utf-16-be", "surrogatepass").hex()


def _uuid_or_invalid(text: str) -> str:
    try:
        return uuid_from_text(text).hex()
    except ValueError:
        return "invalid"


def _is_topic_name(name: str) -> bool:
    try:
        check_topic_name(name)
    except KafkaError:
        return False
    return True


def _collide(one: str, other: str) -> bool:
    return topic_collision_key(TopicName(one)) == topic_collision_key(TopicName(other))
