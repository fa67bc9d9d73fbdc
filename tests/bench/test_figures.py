"""Medians, spreads and percentiles."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.bench.figures import Spread, median, percentile, short, spread

VALUES = st.lists(st.floats(-1e9, 1e9), min_size=1)


def test_a_spread_is_the_middle_and_both_ends() -> None:
    assert spread([5.0, 1.0, 3.0]) == Spread(median=3.0, low=1.0, high=5.0, rounds=3)
    assert str(spread([5.0, 1.0, 3.0])) == "3.00 (1.00–5.00)"


def test_the_middle_of_two_is_their_mean() -> None:
    assert median([4.0, 1.0]) == 2.5


@given(VALUES)
def test_as_many_values_lie_below_a_median_as_above(values: list[float]) -> None:
    middle = median(values)
    assert sum(value < middle for value in values) <= len(values) / 2
    assert sum(value > middle for value in values) <= len(values) / 2


@pytest.mark.parametrize(
    ("percent", "expected"), [(0.1, 1), (50, 500), (99, 990), (99.9, 999), (99.91, 1000), (100, 1000)]
)
def test_a_percentile_is_the_nearest_rank(percent: float, expected: int) -> None:
    assert percentile(range(1000, 0, -1), percent) == expected


@given(VALUES, st.floats(0.1, 100))
def test_a_percentile_is_the_smallest_sample_that_enough_do_not_exceed(
    values: list[float], percent: float
) -> None:
    found = percentile(values, percent)
    needed = percent * len(values) / 100
    assert sum(value <= found for value in values) >= needed - 1e-6
    assert sum(value < found for value in values) < needed + 1e-6


@pytest.mark.parametrize(
    ("value", "text"),
    [
        *((0, "0"), (0.01234, "0.0123"), (0.9996, "1.00"), (1.234, "1.23"), (99.96, "100"), (123.4, "123")),
        *((12_345, "12,300"), (1_999_999, "2,000,000"), (-1.5, "-1.50")),
    ],
)
def test_three_digits_count(value: float, text: str) -> None:
    assert short(value) == text
