"""What a micro-batch reads between two positions, and what of that is lost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from moldau.model.ids import TopicPartition
from moldau.spark.plan.offsets import Offsets, Position
from moldau.spark.plan.ranges import OffsetRange

_SHOWN_MAX = 5


@dataclass(frozen=True, slots=True)
class Loss:
    """Records that were, or may have been, to be read and are gone."""

    place: TopicPartition
    what: str

    def __str__(self) -> str:
        return f"{self.place}: {self.what}"


@dataclass(frozen=True, slots=True)
class Batch:
    """The ranges of a batch, and what is missing from it."""

    ranges: tuple[OffsetRange, ...]
    losses: tuple[Loss, ...]


@dataclass(frozen=True, slots=True)
class Logs:
    """What there is now: where logs begin, and the ids of their topics."""

    earliest: Offsets
    topic_ids: Mapping[str, str]


def plan_batch(start: Position, end: Position, now: Logs) -> Batch:
    """The ranges from one position to another, as far as they are there still."""
    ranges: list[OffsetRange] = []
    losses: list[Loss] = []
    for place, stop in end.offsets.items():
        first = now.earliest.get(place)
        begin = start.offsets.get(place)
        if first is None:
            losses.append(Loss(place, _gone(begin)))
        elif _differ(end.topic_ids, now.topic_ids, place.topic):
            losses.append(Loss(place, f"{_recreated(begin)} after this batch was planned"))
        elif begin is None:
            # A partition that came after the last batch is read from its beginning.
            if first > 0:
                losses.append(Loss(place, f"it is new, and begins at offset {first} already"))
            ranges.append(OffsetRange(place, min(first, stop), stop))
        elif _differ(start.topic_ids, end.topic_ids, place.topic):
            losses.append(Loss(place, _recreated(begin)))
            ranges.append(OffsetRange(place, min(first, stop), stop))
        elif begin > stop:
            losses.append(Loss(place, f"offset {begin} was to be read next, and the log ends at {stop}"))
        elif begin < first:
            text = f"offset {begin} was to be read next, and the log begins at {first}"
            losses.append(Loss(place, text))
            ranges.append(OffsetRange(place, min(first, stop), stop))
        else:
            ranges.append(OffsetRange(place, begin, stop))
    losses += [Loss(place, _gone(at)) for place, at in start.offsets.items() if place not in end.offsets]
    return Batch(tuple(each for each in ranges if each.size > 0), tuple(losses))


def starts_of(start: Position, latest: Position, earliest: Offsets) -> dict[TopicPartition, int]:
    """Where each partition goes on: where it was, or at its beginning if it is new or was created again."""
    return {
        place: earliest.get(place, end) if is_new(start, latest, place) else start.offsets[place]
        for place, end in latest.offsets.items()
    }


def is_new(start: Position, latest: Position, place: TopicPartition) -> bool:
    """Whether a partition has appeared since a position, perhaps in place of another of that name."""
    return place not in start.offsets or _differ(start.topic_ids, latest.topic_ids, place.topic)


def lacks(latest: Position, start: Position) -> bool:
    """Whether a log that was read seems to be gone, or to end before what was read of it."""
    return any(
        place not in latest.offsets or (latest.offsets[place] < offset and not is_new(start, latest, place))
        for place, offset in start.offsets.items()
    )


def capped(latest: Position, *, at: Position, start: Position) -> Position:
    """What both know, not beyond the end that `at` has, except where reading has come further already."""
    offsets = {
        place: min(end, max(at.offsets[place], start.offsets.get(place, 0)))
        for place, end in latest.offsets.items()
        if place in at.offsets
    }
    return replace(latest, offsets=offsets)


def told(losses: tuple[Loss, ...]) -> str:
    """The losses in one line, the first few of many."""
    shown = "; ".join(map(str, losses[:_SHOWN_MAX]))
    more = len(losses) - _SHOWN_MAX
    return f"{shown}; and {more} more" if more > 0 else shown


def _differ(before: Mapping[str, str], after: Mapping[str, str], topic: str) -> bool:
    """Whether both know the topic's id, and mean different topics."""
    return topic in before and topic in after and before[topic] != after[topic]


def _gone(begin: int | None) -> str:
    read = "nothing of it was read" if begin is None else f"it was read up to offset {begin}"
    return f"the partition is gone, or the query does not subscribe to it any more; {read}"


def _recreated(begin: int | None) -> str:
    read = "nothing of it was read" if begin is None else f"the old one was read up to offset {begin}"
    return f"the topic was deleted and created again; {read}"
