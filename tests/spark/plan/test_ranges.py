"""How ranges become tasks."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.client.offsets import place_of
from moldau.spark.plan.ranges import OffsetRange, cut_into_tasks, pack, split


def a_range(index: int, start: int, end: int) -> OffsetRange:
    return OffsetRange(place_of(("t", index)), start, end)


def sizes(*counts: int) -> list[OffsetRange]:
    return [a_range(index, 10, 10 + count) for index, count in enumerate(counts)]


RANGES = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 5_000)), max_size=12).map(
    lambda rows: [a_range(index, start, start + size) for index, (start, size) in enumerate(rows)]
)
MAYBE = st.none() | st.integers(1, 40)


@pytest.mark.parametrize(
    ("counts", "tasks_min", "records_max", "expected"),
    [
        ([100, 100], None, None, [100, 100]),
        ([100, 0], None, None, [100]),
        ([], 5, 5, []),
        ([100], 4, None, [25, 25, 25, 25]),
        ([10], 4, None, [2, 3, 2, 3]),
        ([2], 4, None, [1, 1]),
        ([100, 100], 2, None, [100, 100]),
        # The small one stays whole, and the large one is cut for the rest.
        ([990, 10], 4, None, [330, 330, 330, 10]),
        ([100], None, 30, [25, 25, 25, 25]),
        ([100, 10], None, 30, [25, 25, 25, 25, 10]),
        ([100], 10, 30, [8, 8, 9] * 4),
    ],
)
def test_ranges_are_cut(
    counts: list[int], tasks_min: int | None, records_max: int | None, expected: list[int]
) -> None:
    pieces = split(sizes(*counts), tasks_min=tasks_min, records_max=records_max)
    assert sorted(piece.size for piece in pieces) == sorted(expected)


@given(RANGES, MAYBE, st.none() | st.integers(1, 3_000))
def test_pieces_cover_each_range_once_and_in_order(
    ranges: list[OffsetRange], tasks_min: int | None, records_max: int | None
) -> None:
    pieces = split(ranges, tasks_min=tasks_min, records_max=records_max)
    assert covered(pieces) == covered([each for each in ranges if each.size])
    assert all(piece.size > 0 for piece in pieces)
    if records_max is not None:
        assert all(piece.size <= records_max for piece in pieces)


@given(RANGES, st.integers(1, 3_000))
def test_packing_keeps_every_range_and_makes_no_task_that_is_too_small(
    ranges: list[OffsetRange], offsets_min: int
) -> None:
    filled = [each for each in ranges if each.size]
    tasks = pack(filled, offsets_min=offsets_min)
    assert sorted((each for task in tasks for each in task), key=str) == sorted(filled, key=str)
    small = [task for task in tasks if sum(each.size for each in task) < offsets_min]
    assert len(small) <= 1
    # Only what is small itself shares a task.
    assert all(len(task) == 1 or all(each.size < offsets_min for each in task) for task in tasks)


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ([5, 5, 5], [[5, 5, 5]]),
        ([5, 100, 5], [[5, 5], [100]]),
        ([60, 60, 60, 60, 60], [[60, 60, 60], [60, 60]]),
        ([100, 100], [[100], [100]]),
        ([], []),
    ],
)
def test_small_ranges_share_tasks(counts: list[int], expected: list[list[int]]) -> None:
    tasks = pack(sizes(*counts), offsets_min=100)
    assert sorted([each.size for each in task] for task in tasks) == sorted(expected)


@pytest.mark.parametrize(("tasks_min", "records_max"), [(1, None), (None, 1_000), (3, 1_000)])
def test_whoever_asks_for_tasks_of_a_size_gets_one_range_in_each(
    tasks_min: int | None, records_max: int | None
) -> None:
    tasks = cut_into_tasks(sizes(5, 5, 5), tasks_min=tasks_min, records_max=records_max, offsets_min=100)
    assert all(len(task) == 1 for task in tasks)
    assert len(tasks) == 3


def covered(pieces: Sequence[OffsetRange]) -> dict[str, list[tuple[int, int]]]:
    """By partition, what pieces cover, with those that touch joined; order counts."""
    found: dict[str, list[tuple[int, int]]] = {}
    for piece in pieces:
        spans = found.setdefault(str(piece.place), [])
        if spans and spans[-1][1] == piece.start:
            spans[-1] = (spans[-1][0], piece.end)
        else:
            spans.append((piece.start, piece.end))
    return found
