"""Offsets in JSON: what options may say, and what a checkpoint gives back."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.client.offsets import place_of
from moldau.model.ids import TopicPartition
from moldau.spark.plan.offsets import (
    BadOffsets,
    Position,
    offsets_from_json,
    offsets_to_json,
    parse_offsets,
    parse_partitions,
    parse_timestamps,
)

NAMES = st.text("abcXYZ019._-", min_size=1, max_size=8)
PLACES = st.builds(lambda name, index: place_of((name, index)), NAMES, st.integers(0, 99))
OFFSETS = st.dictionaries(PLACES, st.integers(0, 2**63 - 1), max_size=8)


def places(offsets: dict[tuple[str, int], int]) -> dict[TopicPartition, int]:
    return {place_of(place): offset for place, offset in offsets.items()}


def test_offsets_are_read_as_sparks_connector_reads_them() -> None:
    told = '{"topicA": {"0": 23, "1": -1}, "topicB": {"0": -2}}'
    assert parse_offsets(told) == places({("topicA", 0): 23, ("topicA", 1): -1, ("topicB", 0): -2})


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("earliset", "no JSON"),
        ('{"a": {"0": 1}', "no JSON"),
        ("[1]", "no JSON object"),
        ('{"a": 5}', "'a' has 5 in place of offsets"),
        ('{"a": {"x": 5}}', "'x' of topic 'a' is no partition number"),
        ('{"a": {"-1": 5}}', "'-1' of topic 'a' is no partition number"),
        ('{"a": {"0": "5"}}', "'5' at a-0 is no whole number"),
        ('{"a": {"0": 1.5}}', "1.5 at a-0 is no whole number"),
        ('{"a": {"0": true}}', "True at a-0 is no whole number"),
        ('{"a": {"0": -3}}', "-3 at a-0 is no offset: -1 is latest, -2 earliest"),
    ],
)
def test_offsets_that_are_none_are_refused_with_the_reason(text: str, what: str) -> None:
    with pytest.raises(BadOffsets) as refused:
        parse_offsets(text)
    assert what in str(refused.value)


def test_timestamps_are_not_before_1970() -> None:
    assert parse_timestamps('{"a": {"0": 1000}}') == places({("a", 0): 1000})
    with pytest.raises(BadOffsets, match="before 1970"):
        parse_timestamps('{"a": {"0": -1}}')


def test_partitions_are_a_list_for_each_topic() -> None:
    assert parse_partitions('{"a": [0, 2], "b": [1]}') == (
        place_of(("a", 0)),
        place_of(("a", 2)),
        place_of(("b", 1)),
    )


@pytest.mark.parametrize("text", ["{}", '{"a": []}', '{"a": 0}', '{"a": ["0"]}', '{"a": [-1]}', "a", "[0]"])
def test_partitions_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(BadOffsets):
        parse_partitions(text)


@given(OFFSETS)
def test_offsets_come_back_from_json(offsets: dict[TopicPartition, int]) -> None:
    assert offsets_from_json(json.loads(json.dumps(offsets_to_json(offsets)))) == offsets


@given(
    st.builds(
        Position,
        OFFSETS,
        st.dictionaries(NAMES, st.text("AZaz09_-", min_size=22, max_size=22), max_size=3),
        st.text("0123456789abcdef", max_size=12),
        st.none() | OFFSETS,
        st.booleans(),
    )
)
def test_a_position_comes_back_from_its_checkpoint(position: Position) -> None:
    assert Position.from_json(json.loads(json.dumps(position.to_json()))) == position


@given(OFFSETS)
def test_the_order_in_which_offsets_were_found_does_not_show(offsets: dict[TopicPartition, int]) -> None:
    backwards = dict(reversed(offsets.items()))
    assert json.dumps(Position(offsets).to_json()) == json.dumps(Position(backwards).to_json())


def test_a_checkpoint_of_sparks_connector_for_kafka_can_be_continued() -> None:
    position = Position.from_json({"clicks": {"0": 12, "1": 9}})
    assert position == Position(places({("clicks", 0): 12, ("clicks", 1): 9}))


@pytest.mark.parametrize(
    "told", [{"clicks": 5}, {"@ids": 5}, {"@beginning": 5}, {"clicks": {"0": "x"}}, {"logOffset": 7}]
)
def test_a_checkpoint_of_something_else_is_refused(told: dict[str, Any]) -> None:
    with pytest.raises(BadOffsets):
        Position.from_json(told)


def test_a_repeated_first_batch_begins_where_the_query_began() -> None:
    began = places({("a", 0): 3})
    start = Position(places({("a", 0): 5}), query="one", beginning=began).beginning_of_query()
    assert (start.offsets, start.query, start.is_beginning) == (began, "one", True)
