"""What a crash must leave of a broker's logs: its disk opens as a prefix of them with all that was flushed.

What the logs hold and have promised is noted from a broker that runs or has just died; images of its disk are
then opened with the broker's own code, as the next process would.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from moldau.log import checkpoints
from moldau.log.config import LogConfig
from moldau.log.log import Log
from moldau.log.producers import Producer
from moldau.model.ids import NodeId, TopicId, TopicPartition
from moldau.node.metrics import Metrics
from moldau.node.partitions import Partitions, Replica
from moldau.sim.disk import SimDisk, Survives
from moldau.sim.run import Violation
from moldau.world.ports import World


class PlacedBytes(NamedTuple):
    """A batch, and the offset after it."""

    next_offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Promise:
    """What one log held at a moment, and how much of it no crash may take."""

    at: TopicPartition
    topic_id: TopicId
    config: LogConfig
    log_start: int
    flushed_end: int
    killed_end: int
    """Where the log ends if only its process ends, and the page cache stays."""
    log_end: int
    batches: Mapping[int, PlacedBytes]
    """Those of a log that is not compacted; the files of others may change at any moment."""
    producers: tuple[Producer, ...]

    @classmethod
    def of(cls, replica: Replica) -> Promise:
        """That of a replica, as it is now."""
        log = replica.log
        return cls(
            at=replica.at,
            topic_id=replica.topic_id,
            config=log.config,
            log_start=log.log_start_offset,
            flushed_end=log.flushed_end_offset,
            killed_end=log.log_end_offset,
            log_end=log.log_end_offset,
            batches={} if log.config.is_compacted else _batches(log),
            producers=tuple(log.producers),
        )

    def after_crash(self) -> Promise:
        """What is left of it for a process that has not opened the log yet."""
        return replace(self, killed_end=self.flushed_end)


def check_image(image: SimDisk, promises: Iterable[Promise], *, world: World, survives: Survives) -> None:
    """Open the logs on a disk, which is changed by that, and compare them with what was promised."""
    # What is tried here is no part of the run, and no fault of it reaches here.
    image.on_operation = None
    image.capacity_bytes = 1 << 40
    partitions = Partitions(
        replace(world, disk=image), NodeId(0), flush_seconds=Metrics().histogram("flush", "Nobody looks.")
    )
    partitions.load()
    for promise in promises:
        if promise.flushed_end == promise.log_start and not image.exists(str(promise.at)):
            # Not even its name was flushed.
            continue
        found = partitions.open(promise.at, promise.topic_id, promise.config).log
        _check(promise, found, is_all_there=survives is Survives.EVERYTHING)


def _check(promise: Promise, found: Log, *, is_all_there: bool) -> None:
    end_min = promise.killed_end if is_all_there else promise.flushed_end
    if not end_min <= found.log_end_offset <= promise.log_end:
        raise Violation(
            f"{promise.at} ended at {promise.log_end} and was flushed to {promise.flushed_end};"
            f" after a crash it ends at {found.log_end_offset}"
        )
    if found.log_start_offset < promise.log_start:
        raise Violation(
            f"{promise.at} started at {promise.log_start}, and after a crash at {found.log_start_offset}"
        )
    if found.corrupt_ranges:
        raise Violation(f"{promise.at} is damaged by a crash: {found.corrupt_ranges}")
    if not promise.config.is_compacted:
        _check_batches(promise, found)
    _check_producers(promise, found)


def _check_batches(promise: Promise, found: Log) -> None:
    expected = found.log_start_offset
    for base_offset, batch in sorted(_batches(found).items()):
        if base_offset > expected:
            raise Violation(f"{promise.at} has a hole from {expected} to {base_offset} after a crash")
        if promise.batches.get(base_offset) != batch:
            raise Violation(f"{promise.at} has another batch at {base_offset} after a crash")
        expected = batch.next_offset
    if expected < found.log_end_offset:
        raise Violation(f"{promise.at} has nothing from {expected} to its end after a crash")


def _check_producers(promise: Promise, found: Log) -> None:
    """Of every batch that is there the producer is known, as far as it was, or it could be written twice."""
    for producer in promise.producers:
        known = found.producers.get(producer.producer_id)
        for batch in producer.batches:
            if batch.last_offset >= found.log_end_offset:
                continue
            if known is None or known.epoch != producer.epoch or batch not in known.batches:
                raise Violation(
                    f"{promise.at} has forgotten that producer {producer.producer_id} wrote {batch}"
                )


def _batches(log: Log) -> dict[int, PlacedBytes]:
    """The batches of a log by their first offset, without those that lie before its start."""
    return {
        batch.header.base_offset: PlacedBytes(batch.header.next_offset, bytes(data))
        for segment in log.segments
        for batch, data in segment.contents_from()
        if batch.header.last_offset >= log.log_start_offset
    }


def read_topic_id(disk: SimDisk, at: TopicPartition) -> TopicId | None:
    """To which topic the directory of a partition belongs, if it is there and says so."""
    return checkpoints.read_topic_id(disk, str(at)) if disk.exists(str(at)) else None
