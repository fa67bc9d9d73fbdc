"""Filters as restrictions: nothing that passes them is left out, and what is said to be kept is kept."""

import operator
from collections.abc import Callable
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.client.offsets import place_of
from moldau.spark.plan.filters import Condition, Operator, Restriction, restrict
from moldau.spark.plan.ranges import OffsetRange

MEANING: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    "<=>": operator.eq,
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
    "in": lambda actual, values: actual in values,
    "is null": lambda actual, _: actual is None,
    "is not null": lambda actual, _: actual is not None,
    "starts with": lambda actual, value: actual.startswith(value),
    "ends with": lambda actual, value: actual.endswith(value),
    "contains": lambda actual, value: value in actual,
}


def passes(condition: Condition, row: dict[str, Any]) -> bool:
    """What Spark would say."""
    return bool(MEANING[condition.operator](row[condition.column], condition.value)) != condition.is_negated


def test_every_operator_has_a_meaning_here() -> None:
    assert set(get_args(Operator)) == set(MEANING)


COMPARISONS: list[Operator] = ["=", "<=>", ">", ">=", "<", "<="]
NUMBERS = st.integers(-3, 12)


def conditions(column: str, values: st.SearchStrategy[Any], *, of_text: bool) -> st.SearchStrategy[Condition]:
    compared = st.builds(Condition, st.just(column), st.sampled_from(COMPARISONS), values, st.booleans())
    listed = st.builds(
        Condition, st.just(column), st.just("in"), st.lists(values, max_size=3).map(tuple), st.booleans()
    )
    nulls = st.builds(
        Condition, st.just(column), st.sampled_from(["is null", "is not null"]), st.none(), st.booleans()
    )
    texts = st.builds(
        Condition,
        st.just(column),
        st.sampled_from(["starts with", "ends with", "contains"]),
        values,
        st.booleans(),
    )
    return st.one_of(compared, listed, nulls, texts) if of_text else st.one_of(compared, listed, nulls)


NAMES = st.sampled_from(["", "a", "ab", "b", "ba"])
CONDITIONS = st.one_of(
    conditions("topic", NAMES, of_text=True),
    conditions("partition", NUMBERS, of_text=False),
    conditions("offset", NUMBERS, of_text=False),
    conditions("timestamp", st.integers(-2_500, 12_500), of_text=False),
)
ROWS: list[dict[str, Any]] = [
    {"topic": topic, "partition": partition, "offset": offset}
    for topic in ("a", "ab", "b")
    for partition in (0, 1)
    for offset in range(10)
]


@given(st.lists(CONDITIONS, max_size=4), st.permutations(range(10)))
def test_restrictions_lose_no_row_and_keep_what_they_say(given_: list[Condition], times: list[int]) -> None:
    restriction, kept = restrict(given_)
    # Times in any order, in milliseconds.
    rows = [{**row, "timestamp": times[row["offset"]] * 1_000} for row in ROWS]
    read = [row for row in rows if is_read(restriction, row, times)]
    wanted = [row for row in rows if all(passes(each, row) for each in given_)]
    assert all(row in read for row in wanted)
    exact = [each for each, is_kept in zip(given_, kept, strict=True) if is_kept]
    assert all(passes(each, row) for row in read for each in exact)


def is_read(restriction: Restriction, row: dict[str, Any], times: list[int]) -> bool:
    place = place_of((row["topic"], row["partition"]))
    if not restriction.has(place):
        return False
    first = None
    if restriction.time_min_ms is not None:
        first = next((offset for offset, ms in enumerate(times) if ms >= restriction.time_min_ms), 10)
    found = restriction.cut(OffsetRange(place, 0, 10), first_in_time=first)
    return bool(found.start <= row["offset"] < found.end)


@pytest.mark.parametrize(
    ("condition", "start", "end", "is_kept"),
    [
        (Condition("offset", "=", 5), 5, 6, True),
        (Condition("offset", ">", 5), 6, 10, True),
        (Condition("offset", ">=", 5), 5, 10, True),
        (Condition("offset", "<", 5), 0, 5, True),
        (Condition("offset", "<=", 5), 0, 6, True),
        (Condition("offset", "in", (3, 4, 5)), 3, 6, True),
        (Condition("offset", "in", (3, 7)), 3, 8, False),
        (Condition("offset", ">", 5, is_negated=True), 0, 6, True),
        (Condition("offset", "=", 5, is_negated=True), 0, 10, False),
        (Condition("offset", "=", 50), 50, 50, True),
        (Condition("offset", "is not null"), 0, 10, True),
        (Condition("value", "is not null"), 0, 10, False),
        (Condition("value", "=", b"x"), 0, 10, False),
        (Condition("offset", "=", "5"), 0, 10, False),
        (Condition("offset", "=", 5.0), 0, 10, False),
        (Condition("timestamp", "<", 5_000), 0, 10, False),
    ],
)
def test_offsets_are_cut(condition: Condition, start: int, end: int, is_kept: bool) -> None:
    restriction, kept = restrict([condition])
    found = restriction.cut(OffsetRange(place_of(("a", 0)), 0, 10))
    assert (found.start, found.end, kept) == (start, end, [is_kept])


@pytest.mark.parametrize(
    ("condition", "time_min_ms"),
    [
        (Condition("timestamp", ">=", 5_000_000), 5_000),
        (Condition("timestamp", ">=", 5_000_001), 5_001),
        (Condition("timestamp", ">", 5_000_000), 5_001),
        (Condition("timestamp", ">", 4_999_999), 5_000),
        (Condition("timestamp", "=", 5_000_000), 5_000),
        (Condition("timestamp", "in", (7_000_000, 6_000_000)), 6_000),
        (Condition("timestamp", "<", 5_000_000, is_negated=True), 5_000),
        # Times need not be in order, so there is no upper bound.
        (Condition("timestamp", "<", 5_000_000), None),
        (Condition("timestamp", ">=", -1), None),
        (Condition("timestamp", ">=", 0), None),
        (Condition("timestamp", "=", 5_000_000, is_negated=True), None),
    ],
)
def test_a_lower_bound_of_time_is_a_whole_millisecond(condition: Condition, time_min_ms: int | None) -> None:
    restriction, kept = restrict([condition])
    assert restriction.time_min_ms == time_min_ms
    assert kept == [False], "Spark must look at the rows behind the first one itself"
