"""The checks of the chaos runs find what they are there to find."""

import json
from collections.abc import Callable

import pytest
from spark.chaos.checks import (
    Record,
    Row,
    Sent,
    Verdict,
    check_copy,
    check_counts,
    check_input,
    check_lag,
    check_table,
    numbers_of,
)
from spark.chaos.inputs import KEYS, key_of, number_of, text_of, value_of

# Three inputs of each key.
INPUTS = [*range(3 * KEYS)]
SENT = Sent(len(INPUTS), frozenset(INPUTS))


def record(number: int) -> Record:
    return Record(key_of(number), value_of(number))


def row(number: int) -> Row:
    return Row(key_of(number), number, text_of(number))


def count(key: int, times: int) -> Record:
    """What is right when a key has had so many inputs."""
    had = [key + turn * KEYS for turn in range(times)]
    told = {"count": times, "last": had[-1], "sum": sum(had)}
    return Record(key_of(key), json.dumps(told, separators=(",", ":")))


RECORDS = [record(number) for number in INPUTS]
ROWS = [row(number) for number in INPUTS]
COUNTS = [count(key, times) for times in (1, 3) for key in range(KEYS)]


def found(verdict: Verdict) -> list[str]:
    return [each.what for each in verdict.findings]


def test_what_is_right_passes() -> None:
    for verdict in (
        check_input(RECORDS, SENT),
        check_table(ROWS, INPUTS),
        check_copy(RECORDS, INPUTS),
        check_counts(COUNTS, INPUTS),
        check_lag("readers", {0: 5, 1: 7}, {0: 5, 1: 7, 2: 0}),
    ):
        assert verdict == Verdict(())


def test_an_input_is_known_by_its_key_and_its_value() -> None:
    assert number_of(key_of(41), value_of(41)) == 41
    for key, value in (
        (key_of(42), value_of(41)),
        (None, value_of(41)),
        (key_of(41), value_of(41).replace(text_of(41), text_of(42))),
        (key_of(41), value_of(41)[:-1]),
        (key_of(41), None),
        (key_of(0), '{"number": false}'),
        (key_of(1), '["number"]'),
    ):
        assert number_of(key, value) is None
    assert numbers_of([record(3), Record(None, None), record(1)]) == [3, 1]


WRONG_INPUTS: dict[str, tuple[list[Record], str]] = {
    "one that was acknowledged is missing": (RECORDS[:50] + RECORDS[51:], "lost"),
    "the last is missing": (RECORDS[:-1], "lost"),
    "one is there twice": ([*RECORDS, RECORDS[-1]], "doubled"),
    "one was never sent": ([*RECORDS, record(len(INPUTS))], "records that nobody sent"),
    "one is damaged": ([*RECORDS, Record(key_of(0), "{")], "records that nobody sent"),
    "two of a key are exchanged": (
        [RECORDS[KEYS], *RECORDS[1:KEYS], RECORDS[0], *RECORDS[KEYS + 1 :]],
        "inputs behind a later one of their key",
    ),
}


@pytest.mark.parametrize("case", WRONG_INPUTS)
def test_a_wrong_input_topic_is_found(case: str) -> None:
    records, what = WRONG_INPUTS[case]
    assert found(check_input(records, SENT)) == [what]


def test_what_was_not_acknowledged_may_be_there_or_not() -> None:
    sent = Sent(SENT.count, SENT.acknowledged - {7})
    assert not check_input(RECORDS, sent).findings
    assert not check_input([each for each in RECORDS if each != record(7)], sent).findings


WRONG_ROWS: dict[str, tuple[list[Row], str]] = {
    "one is missing": (ROWS[1:], "lost"),
    "none is there": ([], "lost"),
    "one is there twice": ([*ROWS, ROWS[7]], "doubled"),
    "one is no input": ([*ROWS, row(len(INPUTS))], "rows that are no input"),
    "one has no number": ([*ROWS, Row(key_of(0), None, None)], "rows that are no input"),
}


@pytest.mark.parametrize("case", WRONG_ROWS)
def test_a_wrong_table_is_found(case: str) -> None:
    rows, what = WRONG_ROWS[case]
    assert found(check_table(rows, INPUTS)) == [what]


def test_a_row_with_the_text_of_another_is_no_input_and_its_own_is_lost() -> None:
    rows = [Row(key_of(3), 3, text_of(4)), *(each for each in ROWS if each.number != 3)]
    assert found(check_table(rows, INPUTS)) == ["rows that are no input", "lost"]


def test_rows_that_are_doubled_are_counted() -> None:
    verdict = check_table([*ROWS, ROWS[7], ROWS[7], ROWS[9]], INPUTS)
    assert verdict.duplicates == 3
    assert str(verdict.findings[0]) == "table: 2 doubled (7 is there 3 times, 9 is there 2 times)"


def test_a_copy_may_repeat_what_it_had_before_and_the_repetitions_are_counted() -> None:
    repeated = [*RECORDS[:60], *RECORDS[20:60], *RECORDS[20:]]
    assert check_copy(repeated, INPUTS) == Verdict((), duplicates=80)


WRONG_COPIES: dict[str, tuple[list[Record], str]] = {
    "an old one comes last": (
        [*RECORDS, *RECORDS[:1]],
        "keys whose last value is wrong",
    ),
    "one is damaged": ([*RECORDS, Record(key_of(0), None)], "records that are no input"),
    "one comes before an earlier one of its key": (
        [RECORDS[KEYS], *RECORDS],
        "inputs before an earlier one of their key",
    ),
}


@pytest.mark.parametrize("case", WRONG_COPIES)
def test_a_wrong_copy_is_found(case: str) -> None:
    records, what = WRONG_COPIES[case]
    assert found(check_copy(records, INPUTS)) == [what]


def test_an_input_that_a_copy_lacks_is_lost_even_if_a_later_one_is_there() -> None:
    verdict = check_copy([each for each in RECORDS if each != record(KEYS + 3)], INPUTS)
    assert found(verdict) == ["inputs before an earlier one of their key", "lost"]
    # The last of a key.
    verdict = check_copy(RECORDS[:-1], INPUTS)
    assert found(verdict) == ["lost", "keys whose last value is wrong"]


def test_counts_may_be_repeated_and_the_repetitions_are_counted() -> None:
    assert check_counts([*COUNTS[:KEYS], *COUNTS], INPUTS) == Verdict((), duplicates=KEYS)


def changed(change: Callable[[dict[str, int]], dict[str, int]]) -> list[Record]:
    """All counts, and one that is not as it should be."""
    told = change(json.loads(COUNTS[0].value or ""))
    return [Record(COUNTS[0].key, json.dumps(told)), *COUNTS]


WRONG_COUNTS: dict[str, tuple[list[Record], str]] = {
    "an input counted twice": (
        changed(lambda told: {**told, "count": told["count"] + 1}),
        "counts that never were right",
    ),
    "the sum of other inputs": (
        changed(lambda told: {**told, "sum": told["sum"] + 1}),
        "counts that never were right",
    ),
    "another last one": (
        changed(lambda told: {**told, "last": told["last"] + KEYS}),
        "counts that never were right",
    ),
    "more than there are": (
        [*COUNTS, Record(key_of(0), '{"count":4,"last":0,"sum":0}')],
        "counts that never were right",
    ),
    "nothing counted": (changed(lambda told: {**told, "count": 0}), "counts that never were right"),
    "no counts": ([*COUNTS, Record(key_of(0), "{}")], "records that are no counts"),
    "no JSON": ([*COUNTS, Record(key_of(0), "one")], "records that are no counts"),
    "no such key": ([*COUNTS, Record("key", COUNTS[0].value)], "records that are no counts"),
    "the end missing": (COUNTS[:-1], "keys whose last value is wrong"),
    "a whole key missing": (
        [each for each in COUNTS if each.key != key_of(5)],
        "keys whose last value is wrong",
    ),
}


@pytest.mark.parametrize("case", WRONG_COUNTS)
def test_wrong_counts_are_found(case: str) -> None:
    records, what = WRONG_COUNTS[case]
    assert found(check_counts(records, INPUTS)) == [what]


def test_counts_that_go_back_are_found() -> None:
    back = [*COUNTS, count(0, 1), count(0, 3)]
    assert found(check_counts(back, INPUTS)) == ["counts that go back"]
    assert found(check_counts([*COUNTS, count(0, 1)], INPUTS)) == [
        "counts that go back",
        "keys whose last value is wrong",
    ]


@pytest.mark.parametrize("committed", [{}, {0: 5}, {0: 5, 1: 6}, {0: 5, 1: 8}, {0: 5, 1: 7, 2: 1}])
def test_a_group_that_is_not_at_the_end_is_found(committed: dict[int, int]) -> None:
    ends = {0: 5, 1: 7, 2: 0}
    assert found(check_lag("readers", committed, ends)) == ["partitions at another offset"]
