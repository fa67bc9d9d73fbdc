"""Settings are read strictly, and refuse with a sentence that helps."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.model.errors import ErrorCode
from moldau.model.settings.resolve import find
from moldau.model.settings.setting import InvalidSetting, Scope, Synonym
from moldau.model.settings.table import (
    CLEANUP_POLICY,
    COMPRESSION_TYPE,
    HONOURED,
    MIN_CLEANABLE_DIRTY_RATIO,
    RETENTION_MS,
    CleanupPolicy,
    CompressionChoice,
)
from moldau.model.settings.types import FLOAT64, INT64, LIST, Password, text_of


@pytest.mark.parametrize(
    ("scope", "name", "text", "message"),
    [
        (Scope.TOPIC, "retention.ms", "-2", "Invalid value '-2' for retention.ms: must be at least -1."),
        (
            Scope.TOPIC,
            "retention.ms",
            "a week",
            "Invalid value 'a week' for retention.ms: must be a whole number of 64 bits.",
        ),
        (
            Scope.TOPIC,
            "compression.gzip.level",
            "0",
            "Invalid value '0' for compression.gzip.level: must be between 1 and 9, or -1.",
        ),
        (
            Scope.TOPIC,
            "message.timestamp.type",
            "now",
            "Invalid value 'now' for message.timestamp.type: must be one of CreateTime, LogAppendTime.",
        ),
        (
            Scope.TOPIC,
            "cleanup.policy",
            "delete,delete",
            "Invalid value 'delete,delete' for cleanup.policy: an item is repeated.",
        ),
        (
            Scope.BROKER,
            "process.roles",
            "king",
            "Invalid value 'king' for process.roles: every item must be one of broker, controller.",
        ),
        (Scope.BROKER, "listeners", "", "Invalid value '' for listeners: must not be empty."),
    ],
)
def test_a_refusal_names_the_setting_the_value_and_what_is_allowed(
    scope: Scope, name: str, text: str, message: str
) -> None:
    with pytest.raises(InvalidSetting) as refused:
        find(scope, name).parse(text)
    assert refused.value.message == message
    assert refused.value.code is ErrorCode.INVALID_CONFIG


@pytest.mark.parametrize("text", ["NaN", "1e999", "0x1p-1"])
def test_a_number_that_no_range_could_judge_is_refused(text: str) -> None:
    with pytest.raises(InvalidSetting):
        MIN_CLEANABLE_DIRTY_RATIO.parse(text)


def test_a_number_in_other_digits_than_ascii_is_refused() -> None:
    # Java reads it as 3. Nobody types it, and what is not typed by anybody had better be refused.
    with pytest.raises(InvalidSetting):
        RETENTION_MS.parse("٣")


def test_choices_become_members_of_their_enum() -> None:
    assert COMPRESSION_TYPE.parse("zstd") is CompressionChoice.ZSTD
    assert CLEANUP_POLICY.parse("compact, delete") == (CleanupPolicy.COMPACT, CleanupPolicy.DELETE)


def test_a_password_is_shown_neither_in_settings_nor_in_a_traceback() -> None:
    password = find(Scope.BROKER, "ssl.key.password").parse(" hunter2 ")
    assert password == Password("hunter2")
    assert "hunter2" not in repr(password)
    assert text_of(password) is None


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_number_is_read_back_from_its_text(number: float) -> None:
    text = text_of(number)
    assert text is not None
    assert FLOAT64.parse(text) == number


@given(st.integers(-(2**63), 2**63 - 1))
def test_a_whole_number_is_read_back_from_its_text(number: int) -> None:
    assert INT64.parse(str(text_of(number))) == number


@given(st.lists(st.text("abc:/.", min_size=1), max_size=4).map(tuple))
def test_a_list_is_read_back_from_its_text(items: tuple[str, ...]) -> None:
    assert LIST.parse(str(text_of(items))) == items


def test_a_coarser_unit_is_converted_and_no_limit_stays_no_limit() -> None:
    hours = Synonym("log.retention.hours", 3_600_000)
    assert hours.convert(2) == 7_200_000
    assert hours.convert(-1) == -1


def test_every_honoured_setting_has_a_line_of_documentation() -> None:
    assert [row.name for row in HONOURED if not row.doc.endswith(".") or "\n" in row.doc] == []
    assert find(Scope.BROKER, "log.retention.hours").doc == "The default of a topic's retention.ms."


def test_defaults_obey_their_own_rules() -> None:
    for row in HONOURED:
        text = text_of(row.default)
        assert text is None or row.parse(text) == row.default
    assert RETENTION_MS.default == 7 * 24 * 3_600_000
