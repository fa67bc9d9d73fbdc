"""Ranges of offsets, and how they are cut into tasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from moldau.model.ids import TopicPartition


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """The offsets of a partition from `start` up to, without, `end`."""

    place: TopicPartition
    start: int
    end: int

    @property
    def size(self) -> int:
        """How many offsets it spans; not all of them need be records."""
        return self.end - self.start

    def __str__(self) -> str:
        return f"{self.place} [{self.start}, {self.end})"


def cut_into_tasks(
    ranges: Sequence[OffsetRange], *, tasks_min: int | None, records_max: int | None, offsets_min: int
) -> list[tuple[OffsetRange, ...]]:
    """The ranges of each task; small ones share a task, unless a number or a size of tasks is asked for."""
    pieces = split(ranges, tasks_min=tasks_min, records_max=records_max)
    if tasks_min is not None or records_max is not None:
        return [(piece,) for piece in pieces]
    return pack(pieces, offsets_min=offsets_min)


def split(
    ranges: Sequence[OffsetRange], *, tasks_min: int | None = None, records_max: int | None = None
) -> list[OffsetRange]:
    """Cut ranges into pieces of at most `records_max` offsets, and into about `tasks_min` pieces or more.

    Ranges that are small already stay whole, and empty ones are left out.
    """
    filled = [each for each in ranges if each.size > 0]
    if records_max is not None:
        filled = [piece for each in filled for piece in _cut(each, -(-each.size // records_max))]
    if tasks_min is None or len(filled) >= tasks_min:
        return filled
    total = sum(each.size for each in filled)
    # What stays whole has its task; the rest is shared out among the others.
    whole = [each for each in filled if _share(each.size, total, tasks_min) == 1]
    left_size = total - sum(each.size for each in whole)
    left_tasks = max(tasks_min - len(whole), 1)
    pieces: list[OffsetRange] = []
    for each in filled:
        is_whole = _share(each.size, total, tasks_min) == 1
        pieces += [each] if is_whole else _cut(each, _share(each.size, left_size, left_tasks))
    return pieces


def pack(ranges: Sequence[OffsetRange], *, offsets_min: int) -> list[tuple[OffsetRange, ...]]:
    """Tasks of at least so many offsets, as far as there are as many: small ranges share a task.

    A task costs Spark more in its Python worker than the reading of a few hundred records.
    """
    tasks = [(each,) for each in ranges if each.size >= offsets_min]
    shared: list[list[OffsetRange]] = []
    size = offsets_min
    for each in ranges:
        if each.size < offsets_min:
            if size >= offsets_min:
                shared.append([])
                size = 0
            shared[-1].append(each)
            size += each.size
    if len(shared) > 1 and size < offsets_min:
        # What is left over is too small for a task of its own.
        shared[-2:] = [shared[-2] + shared[-1]]
    return [*tasks, *map(tuple, shared)]


def _share(size: int, total: int, tasks: int) -> int:
    """How many of so many tasks a part of the total deserves, at least one: the nearest whole number."""
    return max((2 * size * tasks + total) // (2 * total), 1)


def _cut(whole: OffsetRange, count: int) -> list[OffsetRange]:
    """As many pieces that follow each other and differ by at most one in size; fewer if there is less."""
    count = min(count, whole.size)
    bounds = [whole.start + whole.size * index // count for index in range(count + 1)]
    return [replace(whole, start=bounds[i], end=bounds[i + 1]) for i in range(count)]
