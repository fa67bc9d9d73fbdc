"""Every image that a crash could leave of a log, opened again and held against what the log had promised.

`HISTORIES` are scripts that use the log as a broker does, on the simulated disk. While one runs, a `Promise`
keeps what a crash may not take back (what was flushed, where a truncation ended) and what may go.
Before every change of the disk `enumerate_crashes` takes the images that the three persistence models allow,
and `check` opens each.

The tests leave some out, to be done in time. All changes of all histories, with more chance:

    PYTHONPATH=src:tests python tests/log/crash_points.py [--seeds 10] [--recovery-stride 20] [history ...]
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise

from moldau.log import checkpoints
from moldau.log.compaction import Compaction, survey
from moldau.log.config import LogConfig
from moldau.log.log import FlushWork, Log
from moldau.log.producers import Origin
from moldau.log.segment import Segment
from moldau.model.ids import PartitionIndex, TopicName, TopicPartition
from moldau.sim.disk import Operation, SimDisk, Survives
from moldau.sim.randomness import Seeded
from moldau.wire.records.batch import (
    ControlType,
    control_type,
    coordinator_epoch_of,
    decode_batch,
    encode_batch,
    encode_end_transaction_marker,
)
from moldau.wire.records.header import BatchHeader, iter_headers, read_header
from moldau.wire.records.record import Record
from moldau.world.ports import Flush

PARTITION = TopicPartition(TopicName("orders"), PartitionIndex(0))
PATH = "orders-0"
START_MS = 1_700_000_000_000
CHECKPOINTS = (
    checkpoints.RECOVERY_POINTS,
    checkpoints.HIGH_WATERMARKS,
    checkpoints.LOG_STARTS,
    checkpoints.CLEANED_ENDS,
)
# Small enough that a few dozen batches roll several times and have several index entries in each segment.
CONFIG = LogConfig(
    segment_bytes=1500,
    index_interval_bytes=200,
    file_delete_delay_ms=1000,
    retention_ms=-1,
    retention_bytes=-1,
)


class CrashFound(AssertionError):
    """A crash that breaks a promise; says at which change of which history, and what is wrong."""


# ---------------------------------------------------------------- what was promised


@dataclass(frozen=True)
class Batch:
    """A batch as it is in the log."""

    data: bytes

    @cached_property
    def header(self) -> BatchHeader:
        """Its header."""
        return read_header(self.data)

    @cached_property
    def records(self) -> list[Record]:
        """Its records; decoding checks the CRC."""
        return decode_batch(self.data)[1]


@dataclass
class Promise:
    """What a log has said so far, as its caller understands it."""

    batches: list[Batch] = field(default_factory=list)
    """Everything ever appended and not truncated, whether or not it was deleted or compacted since."""
    durable_end: int = 0
    """Below it everything was acknowledged as flushed."""
    committed_end: int = 0
    """Below it everything was committed, whatever the checkpoint of the high watermark says."""
    start_min: int = 0
    """The log starts here or later: that much was deleted, and the deletion was flushed."""
    start_max: int = 0
    """Nothing at or after it may be deleted."""
    thinned_end: int = 0
    """Below it compaction may have removed records that a later one replaces."""
    tombstones_may_go: bool = False
    restart: int | None = None
    """Where the log goes on, empty, if all of it is being dropped."""
    cut: int | None = None
    """Where a truncation ends the log that is not yet flushed."""
    truncations: int = 0

    @property
    def end(self) -> int:
        """The log's end, if nothing is lost."""
        return self.batches[-1].header.next_offset if self.batches else self.restart or 0

    def boundary(self, offset: int) -> int:
        """The end of the last batch that ends at `offset` or before."""
        return max((b.header.next_offset for b in self.batches if b.header.next_offset <= offset), default=0)

    def begin_truncation(self, offset: int) -> None:
        """From now on the log may end at `offset`, and may still not."""
        self.truncations += 1
        self.cut = self.boundary(offset)
        self.durable_end = min(self.durable_end, self.cut)

    def begin_restart(self, offset: int) -> None:
        """From now on everything may be gone, and may still be there."""
        self.truncations += 1
        self.restart, self.durable_end, self.start_max = offset, 0, max(self.end, offset)

    def flushed(self, end: int) -> None:
        """What is below `end` stays, and what was cut off stays away."""
        self.durable_end = end
        if self.cut is not None:
            cut, self.cut = self.cut, None
            self.batches = [batch for batch in self.batches if batch.header.next_offset <= cut]
        if self.restart is not None and not any(b.header.base_offset >= self.restart for b in self.batches):
            self.batches, self.start_min = [], self.restart


# ---------------------------------------------------------------- a broker's use of a log


def open_log(disk: SimDisk) -> Log:
    """Open the log as a starting broker does: with what the data directory's own files say of it."""
    # A checkpoint that is believed now must not change back if the power goes during recovery.
    disk.flush_blocking(Flush(directories=("",)))
    recovery_point, high_watermark, log_start, cleaned_end = (
        checkpoints.read_offsets(disk, name).get(PARTITION, 0) for name in CHECKPOINTS
    )
    log = Log.open(
        disk,
        PATH,
        CONFIG,
        recovery_point=recovery_point,
        is_clean=checkpoints.read_clean_shutdown(disk) is not None,
        now_ms=START_MS,
        log_start_offset=log_start,
        high_watermark=high_watermark,
        cleaned_end_offset=cleaned_end,
    )
    disk.flush_blocking(checkpoints.remove_clean_shutdown(disk))
    return log


class Broker:
    """Does with one log what a broker does, and keeps the promise; the script says when to flush."""

    def __init__(self, disk: SimDisk, promise: Promise) -> None:
        self.promise = promise
        self._disk = disk
        self._count = 0
        self._epoch = 0
        self._sequences: dict[int, int] = {}
        self.log = open_log(disk)

    def append(
        self, *keys: str, value_bytes: int = 20, producer: int = -1, is_transactional: bool = False
    ) -> None:
        """Write a batch of one record for each key; a key that ends with "!" is a tombstone."""
        records = [self._record(key, index, value_bytes) for index, key in enumerate(keys)]
        sequence = self._sequences.get(producer, 0)
        self._sequences[producer] = sequence + len(keys)
        self._write(
            encode_batch(
                records,
                producer_id=producer,
                producer_epoch=0 if producer >= 0 else -1,
                base_sequence=sequence if producer >= 0 else -1,
                is_transactional=is_transactional,
            ),
            Origin.CLIENT,
        )

    def end_transaction(self, producer: int, *, is_commit: bool) -> None:
        """Write the marker that ends a producer's transaction."""
        marker = encode_end_transaction_marker(
            is_commit=is_commit,
            coordinator_epoch=3,
            timestamp=self._now_ms(),
            producer_id=producer,
            producer_epoch=0,
        )
        self._write(marker, Origin.COORDINATOR)

    def lead(self) -> None:
        """Begin a new leader epoch."""
        self._epoch += 1
        self.log.begin_epoch(self._epoch)

    def flush(self) -> None:
        """Make all of the log durable."""
        self.finish_flush(*self.begin_flush())
        assert self.log.flushed_end_offset == self.log.log_end_offset
        assert not self.log.is_dirty

    def begin_flush(self) -> tuple[FlushWork, int]:
        """Begin a flush, during which the log may change."""
        return self.log.begin_flush(), self.promise.truncations

    def finish_flush(self, work: FlushWork, truncations: int) -> None:
        """Carry the flush out."""
        self._disk.flush_blocking(work.flush)
        self.log.flushed(work)
        if truncations == self.promise.truncations:
            self.promise.flushed(self.log.flushed_end_offset)
        self.promise.durable_end = self.log.flushed_end_offset

    def commit(self) -> None:
        """Count what is flushed as committed."""
        self.log.advance_high_watermark(self.log.flushed_end_offset)
        self.promise.committed_end = self.log.high_watermark

    def checkpoint(self) -> None:
        """Write the data directory's checkpoints."""
        log = self.log
        offsets = (log.recovery_point, log.high_watermark, log.log_start_offset, log.cleaned_end_offset)
        for name, offset in zip(CHECKPOINTS, offsets, strict=True):
            self._disk.flush_blocking(checkpoints.write_offsets(self._disk, name, {PARTITION: offset}))
        self.promise.start_min = max(self.promise.start_min, log.log_start_offset)

    def truncate(self, offset: int) -> None:
        """Cut the log at `offset`, and flush that before anything else is written."""
        # A batch that `offset` would split goes as a whole, and the checkpoint may not claim half of it.
        self._lower_recovery_point(self.log.end_after_truncation(offset))
        self.promise.begin_truncation(offset)
        self.log.truncate_to(offset)
        assert self.log.log_end_offset == self.promise.cut
        self._sequences.clear()

    def restart_at(self, offset: int) -> None:
        """Drop everything and go on at `offset`, as a follower does that is too far behind."""
        self._lower_recovery_point(0)
        self.promise.begin_restart(offset)
        self.log.truncate_fully(offset)
        self._sequences.clear()

    def delete_records(self, offset: int) -> None:
        """Move the log's start, as DeleteRecords does."""
        self.promise.start_max = max(self.promise.start_max, offset)
        self._begin_at(offset)

    def _begin_at(self, offset: int) -> None:
        """Let the log begin later, durably first."""
        self._disk.flush_blocking(
            checkpoints.write_offsets(self._disk, checkpoints.LOG_STARTS, {PARTITION: offset})
        )
        self.promise.start_min = max(self.promise.start_min, offset)
        self.log.advance_log_start(offset)

    def retain(self, *, bytes_max: int) -> None:
        """Delete the oldest segments until at most `bytes_max` are left."""
        self.promise.start_max = self.log.high_watermark
        self.log.config = replace(CONFIG, retention_bytes=bytes_max)
        self._begin_at(self.log.start_after_retention(self._now_ms()))
        self.log.delete_segments(self._now_ms())
        self.log.config = CONFIG
        self.promise.start_max = self.log.log_start_offset

    def remove_deleted(self) -> None:
        """Remove the files that were put aside."""
        self.log.remove_deleted(self._now_ms() + CONFIG.file_delete_delay_ms)

    def compact(self, *meanwhile: Callable[[], None], is_much_later: bool = False) -> None:
        """Compact in small steps, and do something between them; much later, tombstones may go."""
        now_ms = self._now_ms() + (2 * CONFIG.delete_retention_ms if is_much_later else 0)
        self.promise.thinned_end = max(self.promise.thinned_end, survey(self.log, now_ms).end_offset)
        self.promise.tombstones_may_go |= is_much_later
        between = iter(meanwhile)
        compaction = Compaction(self.log, now_ms=now_ms, keys_max=100, secret=bytes(16))
        while not compaction.is_done:
            self._disk.flush_blocking(compaction.step(bytes_max=400) or Flush())
            next(between, lambda: None)()
        assert next(between, None) is None, "the compaction took enough steps"

    def close(self) -> None:
        """Shut down cleanly."""
        work = self.log.close()
        self.finish_flush(work, self.promise.truncations)
        self.checkpoint()
        self._disk.flush_blocking(checkpoints.write_clean_shutdown(self._disk, 1))

    def reopen(self) -> None:
        """Start again."""
        self.log = open_log(self._disk)
        assert self.log.log_end_offset == self.promise.end

    def _lower_recovery_point(self, offset: int) -> None:
        point = min(self.log.recovery_point, offset)
        self._disk.flush_blocking(
            checkpoints.write_offsets(self._disk, checkpoints.RECOVERY_POINTS, {PARTITION: point})
        )

    def _record(self, key: str, index: int, value_bytes: int) -> Record:
        value = None if key.endswith("!") else f"{self._count}/".encode().ljust(value_bytes, b".")
        return Record(index, self._now_ms(), key.rstrip("!").encode(), value)

    def _now_ms(self) -> int:
        # Now and then a record is older than the one before it.
        self._count += 1
        return START_MS + self._count * 1000 - self._count % 3 * 1700

    def _write(self, batch: bytes, origin: Origin) -> None:
        data = bytearray(batch)
        expected = _placed(batch, offset=self.promise.end, epoch=self._epoch)
        self.promise.batches.append(expected)
        self.log.append_as_leader(data, leader_epoch=self._epoch, now_ms=START_MS, origin=origin)
        assert data == expected.data


def _placed(batch: bytes, *, offset: int, epoch: int) -> Batch:
    return Batch(offset.to_bytes(8, "big") + batch[8:12] + epoch.to_bytes(4, "big") + batch[16:])


# ---------------------------------------------------------------- histories


def appends_and_rolls(broker: Broker) -> None:
    """Batches of many sizes, flushed now and then, with checkpoints between."""
    for number in range(14):
        broker.append(
            *(f"key-{index}" for index in range(number % 3 + 1)), value_bytes=30 + number * 23 % 190
        )
        if number % 3 == 2:
            broker.flush()
            broker.commit()
        if number % 4 == 3:
            broker.checkpoint()
    broker.flush()
    broker.checkpoint()


def flushes_that_overlap(broker: Broker) -> None:
    """The log grows and rolls while a flush is under way, which then covers only what was there before."""
    for number in range(5):
        broker.append("before", value_bytes=300)
        work = broker.begin_flush()
        broker.append("during", "during", value_bytes=40 * number)
        broker.append("during", value_bytes=600)
        broker.finish_flush(*work)
        broker.commit()
        broker.checkpoint()
    broker.flush()


def new_leaders(broker: Broker) -> None:
    """Epochs that begin with and without records of their own, and a checkpoint of them in between."""
    for number in range(7):
        broker.lead()
        if number % 3 != 1:
            broker.append("a", "b", value_bytes=100 + 60 * number)
        if number % 2:
            broker.flush()
            broker.commit()
            broker.checkpoint()
        broker.append("c", value_bytes=90)
    broker.flush()


def truncations(broker: Broker) -> None:
    """A follower that diverged: within a segment, across segments, twice in a row, and during a flush."""
    for number in range(8):
        broker.append("same", "size", value_bytes=60)
        if number % 3 == 1:
            broker.flush()
            broker.checkpoint()
    broker.lead()
    broker.truncate(13)
    broker.flush()
    for _ in range(5):
        broker.append("same", "size", value_bytes=60)
    broker.flush()
    broker.checkpoint()
    broker.lead()
    broker.truncate(5)
    broker.truncate(4)
    broker.flush()
    broker.append("same", "size", value_bytes=60)
    work = broker.begin_flush()
    broker.truncate(4)
    broker.finish_flush(*work)
    broker.flush()
    for number in range(4):
        broker.append("more", value_bytes=150 + number)
    broker.flush()


def dropped_and_begun_again(broker: Broker) -> None:
    """A follower that fell behind its leader's start drops everything, and goes on far ahead."""
    for number in range(7):
        broker.append("old", "old", value_bytes=100 + number)
    broker.flush()
    broker.commit()
    broker.checkpoint()
    broker.lead()
    broker.restart_at(100)
    broker.flush()
    broker.checkpoint()
    for number in range(4):
        broker.append("new", value_bytes=200 + number)
    broker.flush()


def deletions(broker: Broker) -> None:
    """Retention by size and DeleteRecords, with the files removed later."""
    for number in range(12):
        broker.append("a", "b", value_bytes=150 + 10 * number, producer=7)
    broker.flush()
    broker.commit()
    broker.checkpoint()
    broker.retain(bytes_max=4000)
    broker.append("c", value_bytes=100)
    broker.flush()
    broker.remove_deleted()
    broker.commit()
    broker.delete_records(broker.log.log_end_offset - 3)
    broker.checkpoint()
    broker.retain(bytes_max=-1)
    broker.append("d", value_bytes=100)
    broker.flush()
    broker.commit()
    # Everything goes, the segment that is being written too.
    broker.retain(bytes_max=0)
    broker.flush()
    broker.checkpoint()
    broker.append("e", value_bytes=100)
    broker.remove_deleted()
    broker.flush()


def producers_and_transactions(broker: Broker) -> None:
    """Idempotent producers with more than five batches, transactions of both ends, one left open."""
    for number in range(4):
        broker.append("x", producer=1, is_transactional=True, value_bytes=120)
        broker.append("y", "z", producer=2, value_bytes=90)
        broker.append("x", producer=3, is_transactional=True, value_bytes=70)
        broker.end_transaction(1, is_commit=number % 2 == 0)
        if number % 2:
            broker.flush()
            broker.commit()
            broker.checkpoint()
        broker.append("y", producer=2, value_bytes=300)
        if number != 3:
            broker.end_transaction(3, is_commit=number % 3 == 1)
    broker.flush()


def clean_restarts(broker: Broker) -> None:
    """Closed and opened again, at once, after a roll, and with an open transaction."""
    for number in range(3):
        broker.append("a", producer=1, is_transactional=True, value_bytes=150)
        broker.append("b", "c", value_bytes=250 * number, producer=2)
        broker.close()
        broker.reopen()
        broker.append("d", value_bytes=200, producer=2)
        if number == 1:
            broker.end_transaction(1, is_commit=False)
        broker.commit()
    broker.close()
    broker.reopen()
    broker.lead()
    broker.truncate(broker.log.log_end_offset - 1)
    broker.flush()
    broker.close()


def _fill(broker: Broker, rounds: int) -> None:
    """Several segments in which the same few keys are written again and again, and some deleted."""
    for number in range(rounds):
        broker.append("a", f"key-{number % 4}", value_bytes=110 + 7 * number)
        broker.append("b", f"key-{number % 3}!" if number % 5 == 4 else "c", f"only-{number}", value_bytes=80)
    broker.flush()
    broker.commit()
    broker.checkpoint()


def compactions(broker: Broker) -> None:
    """Two rounds, of which the second removes tombstones, with a clean restart after them."""
    _fill(broker, 9)
    broker.compact()
    broker.checkpoint()
    broker.remove_deleted()
    _fill(broker, 4)
    broker.compact(is_much_later=True)
    broker.flush()
    broker.checkpoint()
    broker.close()
    broker.reopen()
    broker.append("a", value_bytes=50)
    broker.flush()


def compaction_amid_work(broker: Broker) -> None:
    """Between the steps of a compaction the log grows, rolls, is flushed, truncated, and its start moves."""
    _fill(broker, 6)
    end = broker.log.log_end_offset

    def grow() -> None:
        broker.append("b", "a", value_bytes=350)
        broker.append("b", value_bytes=120)

    def truncate() -> None:
        broker.truncate(end + 1)
        broker.flush()

    broker.compact(grow, broker.flush, grow, broker.checkpoint, grow, broker.flush, truncate, grow)
    broker.flush()
    broker.commit()
    broker.compact(grow, broker.flush, broker.remove_deleted, broker.commit, broker.checkpoint)
    # Segments that a round was to compact are deleted under it.
    broker.compact(lambda: broker.retain(bytes_max=2500))
    broker.delete_records(end)
    broker.checkpoint()
    broker.compact(grow, lambda: broker.retain(bytes_max=-1))
    broker.flush()


def compaction_of_transactions(broker: Broker) -> None:
    """Records of aborted transactions and old markers go; what is known of producers stays."""
    for number in range(6):
        broker.append("a", f"key-{number}", producer=1, is_transactional=True, value_bytes=150)
        broker.append("b", "a", producer=2, is_transactional=True, value_bytes=150)
        broker.end_transaction(1, is_commit=number % 2 == 0)
        broker.append("c", "a", producer=3, value_bytes=100)
        broker.end_transaction(2, is_commit=number % 3 != 0)
    broker.flush()
    broker.commit()
    broker.checkpoint()
    broker.compact()
    broker.flush()
    broker.checkpoint()
    broker.append("c", "a", producer=3, value_bytes=100)
    broker.append("b", "a", producer=2, is_transactional=True, value_bytes=150)
    broker.flush()
    broker.commit()
    broker.compact(is_much_later=True)
    broker.flush()


def compaction_ahead_of_the_flush(broker: Broker) -> None:
    """Replicas have committed what is not flushed here: it may not replace what is."""
    for number in range(4):
        broker.append("a", f"key-{number}", value_bytes=300)
    broker.flush()
    broker.commit()
    broker.checkpoint()
    for number in range(6):
        broker.append("a", f"key-{number}", value_bytes=300)
    broker.log.advance_high_watermark(broker.log.log_end_offset)
    broker.compact()
    broker.flush()


HISTORIES: dict[str, Callable[[Broker], None]] = {
    history.__name__: history
    for history in (
        appends_and_rolls,
        flushes_that_overlap,
        new_leaders,
        truncations,
        dropped_and_begun_again,
        deletions,
        producers_and_transactions,
        clean_restarts,
        compactions,
        compaction_amid_work,
        compaction_of_transactions,
        compaction_ahead_of_the_flush,
    )
}


# ---------------------------------------------------------------- crashes


@dataclass(frozen=True)
class Thoroughness:
    """How many of the possible images are tried."""

    seeds: int
    """Images with chance in them, at each change of the disk."""
    stride: int = 1
    """At every so manieth change."""
    recovery_stride: int = 0
    """Of every so manieth image the recovery is cut off too, at each of its own changes; 0: of none."""


def enumerate_crashes(name: str, thoroughness: Thoroughness) -> int:
    """Try the images that crashes of a history can leave; how many those were. One that is wrong raises."""
    disk, promise = SimDisk(Seeded(name)), Promise()
    images = 0

    def crash(operation: Operation) -> None:
        nonlocal images
        if operation.number % thoroughness.stride == 0:
            for label, image in crash_images(disk, f"{name}/{operation.number}", thoroughness.seeds):
                images += 1
                stride = thoroughness.recovery_stride
                if stride and images % stride == 0:
                    images += _crash_recovery(image, promise, f"{label}, before {operation}")
                else:
                    check_or_tell(image, promise, f"{label}, before {operation}")

    disk.on_operation = crash
    broker = Broker(disk, promise)
    HISTORIES[name](broker)
    crash(Operation(0, "fsync", "the end"))
    return images


def crash_images(disk: SimDisk, place: str, seeds: int) -> Iterator[tuple[str, SimDisk]]:
    """What the next process may find, under each persistence model."""
    draws = [
        (Survives.NOTHING, 0),
        (Survives.EVERYTHING, 0),
        *((Survives.SOME, seed) for seed in range(seeds)),
    ]
    for survives, seed in draws:
        image = disk.crash(survives, Seeded(f"{place}/{seed}"))
        image.on_operation = None
        yield f"{place}, {survives.value} survives (seed {seed})", image


def _crash_recovery(image: SimDisk, promise: Promise, label: str) -> int:
    """Let the power go again at every change that opening the image makes."""
    images = 0

    def crash(operation: Operation) -> None:
        nonlocal images
        for again, second in crash_images(image, f"{label}/{operation.number}", 1):
            images += 1
            check_or_tell(second, promise, f"{again}, in recovery before {operation}")

    image.on_operation = crash
    open_log(image)
    return images


def check_or_tell(image: SimDisk, promise: Promise, label: str) -> None:
    """Check an image, and say which it was if it is wrong."""
    try:
        check(image, promise)
    except Exception as error:
        raise CrashFound(f"{label}: {type(error).__name__}: {error}") from error


# ---------------------------------------------------------------- what must hold of an image


def check(image: SimDisk, promise: Promise) -> None:
    """Open what a crash has left: it must keep the promise, agree with itself, and go on."""
    log = open_log(image)
    contents = read_all(log)
    check_promise(log, contents, promise)
    check_indexes(log, contents)
    check_look_ups(log, contents)
    check_producers(log, contents, promise)
    check_epochs(log, contents, promise)
    check_it_goes_on(image, log, contents)


def read_all(log: Log) -> list[Batch]:
    """All batches, as consumers fetch them."""
    contents: list[Batch] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        fetched = log.read(offset, bytes_max=700, end_limit=log.log_end_offset)
        if fetched.records is None:
            break
        data = fetched.records.read()
        contents += (Batch(data[at : at + header.size_bytes]) for at, header in iter_headers(data))
        assert fetched.end_offset > offset, "a fetch makes progress"
        offset = fetched.end_offset
    return contents


def check_promise(log: Log, contents: Sequence[Batch], promise: Promise) -> None:
    """Nothing flushed is missing, nothing is there that was not written, and it is in order."""
    start, end = log.log_start_offset, log.log_end_offset
    assert log.corrupt_ranges == [], "a crash does not look like damage"
    assert end >= promise.durable_end, f"the log ends at {end}, flushed was {promise.durable_end}"
    assert promise.start_min <= start, f"the log starts at {start}, deleted was {promise.start_min}"
    assert start <= promise.start_max, f"the log starts at {start}, deletable was {promise.start_max}"
    if not contents and end in (promise.restart, 0):
        return
    expected = [b for b in promise.batches if b.header.last_offset >= start and b.header.next_offset <= end]
    assert end == (expected[-1].header.next_offset if expected else start), "the log ends with a batch"
    if promise.thinned_end:
        check_thinned(contents, expected, promise)
    else:
        assert [batch.data for batch in contents] == [batch.data for batch in expected]


def check_thinned(contents: Sequence[Batch], written: Sequence[Batch], promise: Promise) -> None:
    """Compaction has taken only what it may: of every key the latest committed value is still there."""
    _, ended = replay(promise.batches)
    aborted = [transaction for transaction in ended if transaction.is_aborted]
    latest: dict[bytes | None, Record] = {}
    before: dict[int, Record] = {}
    for batch in written:
        before.update((record.offset, record) for record in batch.records)
        if not batch.header.is_control and not any(
            transaction.holds(batch.header) for transaction in aborted
        ):
            latest.update((record.key, record) for record in batch.records)
    left = {record.offset: record for batch in contents for record in batch.records}
    assert all(before.get(offset) == record for offset, record in left.items()), "no record has changed"
    assert all(offset in left for offset in before if offset >= promise.thinned_end), (
        "only what is old has gone"
    )
    for record in latest.values():
        may_be_gone = record.value is None and promise.tombstones_may_go
        assert record.offset in left or may_be_gone, (
            f"the latest of key {record.key!r}, {record.offset}, is gone"
        )
    headers = [batch.header for batch in contents]
    assert all(one.next_offset <= other.base_offset for one, other in pairwise(headers)), "offsets rise"


def check_indexes(log: Log, contents: Sequence[Batch]) -> None:
    """Every index entry says something that the batches say too."""
    for segment in log.segments:
        ends, newest = {}, {}
        greatest = -1
        for position, header in segment.batches_from():
            greatest = max(greatest, header.max_timestamp)
            ends[position] = header.last_offset
            newest[header.last_offset] = header.max_timestamp
        entries = segment.offset_index.items()
        assert all(ends.get(position) == offset for offset, position in entries), (segment, entries, ends)
        assert entries == sorted(entries)
        times = segment.time_index.items()
        assert all(newest.get(offset) == timestamp for timestamp, offset in times), (segment, times, newest)
        assert all(early < late for early, late in pairwise(times))
        assert segment.max_timestamp == greatest, segment
    assert _is_indexed(log.segments) or len(contents) < 8


def _is_indexed(segments: Sequence[Segment]) -> bool:
    return any(len(segment.offset_index) for segment in segments)


def check_look_ups(log: Log, contents: Sequence[Batch]) -> None:
    """Looking up by offset and by time finds what reading everything finds."""
    for batch in contents:
        offset = max(batch.header.last_offset, log.log_start_offset)
        found = log.read(offset, bytes_max=1, end_limit=log.log_end_offset).records
        assert found is not None and found.read() == batch.data, f"look-up of offset {offset}"
    records = [record for batch in contents for record in batch.records]
    records = [record for record in records if record.offset >= log.log_start_offset]
    for sample in records[::3]:
        for timestamp in (sample.timestamp, sample.timestamp + 1):
            scanned = next((record.offset for record in records if record.timestamp >= timestamp), None)
            looked_up = log.offset_for_timestamp(timestamp)
            assert (looked_up.offset if looked_up else None) == scanned, f"look-up of time {timestamp}"


@dataclass
class Replayed:
    """What follows for one producer from the batches of a log."""

    epoch: int = -1
    coordinator_epoch: int = -1
    open_from: int | None = None
    batches: list[tuple[int, int]] = field(default_factory=list)
    """Last sequence number and last offset of the last five."""


@dataclass(frozen=True)
class Transaction:
    """A transaction that has ended."""

    producer_id: int
    first_offset: int
    last_offset: int
    is_aborted: bool

    @property
    def span(self) -> tuple[int, int, int]:
        """Its producer, first and last offset."""
        return self.producer_id, self.first_offset, self.last_offset

    def holds(self, header: BatchHeader) -> bool:
        """Whether a batch is part of it."""
        is_its_producer = header.is_transactional and header.producer_id == self.producer_id
        return is_its_producer and self.first_offset <= header.base_offset <= self.last_offset


def replay(contents: Sequence[Batch]) -> tuple[dict[int, Replayed], list[Transaction]]:
    """Producers and ended transactions, by the plainest reading of the batches."""
    producers: dict[int, Replayed] = {}
    ended = []
    for batch in contents:
        header = batch.header
        if not header.has_producer_id:
            continue
        producer = producers.setdefault(header.producer_id, Replayed())
        if producer.epoch != header.producer_epoch:
            producer.epoch, producer.batches = header.producer_epoch, []
        if header.is_control:
            if not batch.records:  # compaction has left only its epoch
                continue
            [record] = batch.records
            is_aborted = control_type(record.key) is ControlType.ABORT
            if producer.open_from is not None:
                ended.append(
                    Transaction(header.producer_id, producer.open_from, header.last_offset, is_aborted)
                )
            producer.open_from = None
            producer.coordinator_epoch = coordinator_epoch_of(record.value)
            continue
        producer.batches = [*producer.batches, (header.last_sequence, header.last_offset)][-5:]
        if header.is_transactional and producer.open_from is None:
            producer.open_from = header.base_offset
    return producers, ended


def check_producers(log: Log, contents: Sequence[Batch], promise: Promise) -> None:
    """What the log knows of its producers follows from its batches, or from those that were deleted since."""
    history = [batch for batch in promise.batches if batch.header.next_offset <= log.log_end_offset]
    from_history, ended = replay(history)
    from_contents, _ = replay(contents)
    known = {
        producer.producer_id: Replayed(
            producer.epoch,
            producer.coordinator_epoch,
            producer.transaction_first_offset,
            [(batch.last_sequence, batch.last_offset) for batch in producer.batches],
        )
        for producer in log.producers
    }
    if contents or not promise.restart:
        assert known.keys() >= from_contents.keys()
        for producer_id, producer in known.items():
            possible = [from_history.get(producer_id), from_contents.get(producer_id)]
            if promise.thinned_end or promise.start_max:
                # Compaction spares only the last of five; of what was deleted, only snapshots know.
                possible = [replace(one, batches=one.batches[-1:]) for one in possible if one]
                found = replace(producer, batches=producer.batches[-1:])
            else:
                found = producer
            assert found in possible, f"producer {producer_id} is {producer}, not one of {possible}"
    watermark = log.high_watermark
    opened = [p.open_from for p in known.values() if p.open_from is not None]
    # A marker above the checkpointed watermark holds back what is stable, unless it is known as committed.
    stable = [
        max(
            min([*opened, *(t.first_offset for t in ended if t.last_offset >= end), watermark]),
            log.log_start_offset,
        )
        for end in (watermark, max(watermark, promise.committed_end))
    ]
    assert log.last_stable_offset in stable, f"stable up to {log.last_stable_offset}, not {stable}"
    aborted = [t for t in ended if t.is_aborted and t.first_offset >= log.log_start_offset]
    named = [t[:3] for t in log.aborted_transactions(log.log_start_offset, log.log_end_offset)]
    if promise.thinned_end:
        # Those of which nothing is left may be named or not.
        held = [batch.header for batch in contents if batch.records and not batch.header.is_control]
        aborted = [t for t in aborted if any(t.holds(header) for header in held)]
        named = [t for t in named if t in [a.span for a in aborted]]
    assert named == [t.span for t in sorted(aborted, key=lambda t: t.first_offset)]


def check_epochs(log: Log, contents: Sequence[Batch], promise: Promise) -> None:
    """The leader epochs are those of the batches."""
    starts = list(log.epochs)
    assert all(a.epoch < b.epoch and a.start_offset < b.start_offset for a, b in pairwise(starts)), starts
    assert all(start.start_offset <= log.log_end_offset for start in starts), starts
    for batch in contents:
        offset = max(batch.header.base_offset, log.log_start_offset)
        assert log.epochs.epoch_at(offset) == batch.header.leader_epoch, (starts, offset)
    if not promise.thinned_end:
        written = {batch.header.leader_epoch for batch in contents}
        assert {start.epoch for start in starts if start.start_offset < log.log_end_offset} <= written


def check_it_goes_on(image: SimDisk, log: Log, contents: Sequence[Batch]) -> None:
    """The log takes another batch, and after another crash all is there that was there after the first."""
    epoch = (log.epochs.latest or 0) + 1
    log.begin_epoch(epoch)
    batch = encode_batch([Record(0, START_MS, b"after", b"the crash")])
    placed = _placed(batch, offset=log.log_end_offset, epoch=epoch)
    log.append_as_leader(bytearray(batch), leader_epoch=epoch, now_ms=START_MS)
    work = log.begin_flush()
    image.flush_blocking(work.flush)
    log.flushed(work)
    again = open_log(image.crash(Survives.NOTHING))
    assert again.log_end_offset == log.log_end_offset
    assert again.corrupt_ranges == []
    found = [b.data for b in read_all(again) if b.header.last_offset >= log.log_start_offset]
    assert found == [b.data for b in contents] + [placed.data], "what was there stays, and the new batch"
    if log.log_start_offset == 0 and contents and contents[0].header.base_offset == 0:
        # Of a producer whose batches were all deleted only a snapshot knows, which may not count now.
        assert list(again.producers) == list(log.producers), "the second recovery finds the same producers"


def main() -> None:
    """Try every change of the histories that are named, or of all."""
    arguments = argparse.ArgumentParser(description=(__doc__ or "").partition(":")[0])
    arguments.add_argument(
        "histories", nargs="*", metavar="history", default=[*HISTORIES], help=", ".join(HISTORIES)
    )
    arguments.add_argument("--seeds", type=int, default=10)
    arguments.add_argument("--recovery-stride", type=int, default=20)
    asked = arguments.parse_args()
    for name in asked.histories:
        images = enumerate_crashes(name, Thoroughness(asked.seeds, recovery_stride=asked.recovery_stride))
        sys.stdout.write(f"{name}: {images} images\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
