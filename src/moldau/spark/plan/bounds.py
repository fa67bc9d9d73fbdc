"""The ranges of a batch query: what was asked for, held against what the logs have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from moldau.model.ids import TopicPartition
from moldau.spark.plan.batches import Batch, Loss
from moldau.spark.plan.offsets import Offsets
from moldau.spark.plan.ranges import OffsetRange


class BackwardRange(ValueError):
    """A range that is to end before it begins."""


@dataclass(frozen=True, slots=True)
class Extent:
    """Where the log of a partition begins, and where what may be read of it ends."""

    earliest: int
    latest: int


def plan_query(starts: Offsets, ends: Offsets, logs: Mapping[TopicPartition, Extent]) -> Batch:
    """The ranges from starts to ends, cut down to what there is; what is missing at either side is a loss."""
    ranges: list[OffsetRange] = []
    losses: list[Loss] = []
    for place, start in starts.items():
        end, log = ends[place], logs[place]
        if start > end:
            raise BackwardRange(f"{place} is to be read from offset {start} to {end}, which is before it")
        if start < min(log.earliest, end):
            losses.append(Loss(place, f"offset {start} was asked for, and the log begins at {log.earliest}"))
        if end > log.latest:
            losses.append(
                Loss(place, f"offsets up to {end} were asked for, and what may be read ends at {log.latest}")
            )
        first = max(start, log.earliest)
        ranges.append(OffsetRange(place, first, max(min(end, log.latest), first)))
    return Batch(tuple(ranges), tuple(losses))
