"""One partition on disk: a row of segments, and what follows from them."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final, NamedTuple

from moldau.log import recovery, retention
from moldau.log.checkpoints import read_bytes, replace_text
from moldau.log.config import LogConfig
from moldau.log.epochs import FILE_NAME as EPOCHS_NAME
from moldau.log.epochs import EpochEnd, LeaderEpochs
from moldau.log.index import AbortedTransaction
from moldau.log.producers import Origin, Producers, Update, read_marker
from moldau.log.recovery import RecoveryReport
from moldau.log.segment import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    SWAP_SUFFIX,
    Damage,
    PlacedBatch,
    Segment,
    TimedOffset,
    file_name,
)
from moldau.model.errors import ErrorCode, KafkaError, MalformedMessage
from moldau.wire.records.header import (
    NO_PRODUCER_ID,
    BatchHeader,
    Buffer,
    WritableBuffer,
    check_crc,
    iter_headers,
    placed,
    stamp,
)
from moldau.world.ports import Disk, File, FileSlice, Flush

SNAPSHOT_SUFFIX: Final = ".snapshot"
RECENT_BATCHES_SUFFIX: Final = ".producers"
# Of the segments that are not being written, so many keep their file open and their indexes in memory.
_WARM_SEGMENTS_MAX: Final = 8


class AppendResult(NamedTuple):
    """Where batches are in the log."""

    first_offset: int
    last_offset: int
    max_timestamp: int
    is_duplicate: bool = False
    """Whether they had been appended before, so that nothing was written now."""


@dataclass(frozen=True, slots=True)
class FetchData:
    """Whole batches as they stand in a file, and the offset after them."""

    records: FileSlice | None
    end_offset: int
    aborted: tuple[AbortedTransaction, ...] = ()
    """The aborted transactions that overlap them, by first offset."""


@dataclass(frozen=True, slots=True)
class FlushWork:
    """What `Disk.flush` has to do before everything below `end_offset` is durable."""

    flush: Flush
    end_offset: int
    truncations: int
    snapshots: tuple[int, ...] = ()
    """The producers' snapshots that become durable with it, by offset."""


@dataclass(frozen=True, slots=True)
class CorruptRange:
    """Offsets that were durable and cannot be read any more."""

    offset: int
    offset_end: int


@dataclass(frozen=True, slots=True)
class Scrub:
    """One segment to be read from its beginning to its end, which takes its time and changes nothing."""

    segment: Segment
    file: File
    size_bytes: int
    end_offset: int

    def carry_out(self) -> list[Damage]:
        """All damage there is; to be called off the loop."""
        scan = recovery.Scan(
            self.file,
            self.size_bytes,
            base_offset=self.segment.base_offset,
            limit=self.end_offset,
            recovery_point=self.end_offset,
        )
        damages = scan.damages()
        self.file.close()
        return damages


class Log:
    """A partition's log; see the package's words for how a caller makes it durable."""

    def __init__(
        self,
        disk: Disk,
        path: str,
        config: LogConfig,
        *,
        segments: list[Segment],
        epochs: LeaderEpochs,
        snapshots: list[int],
        log_start_offset: int,
        log_end_offset: int,
    ) -> None:
        self.path: Final = path
        self.config = config
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset
        self.flushed_end_offset = log_start_offset
        self.high_watermark = log_start_offset
        self.cleaned_end_offset = 0
        self.epochs = epochs
        self.producers = Producers()
        self.recovery_report = RecoveryReport()
        self.is_swapping = False
        """Whether compaction is exchanging files, so that none may be removed."""
        self.removals = 0
        """How often segments were removed, by which a compaction sees that its plan no longer holds."""
        self._disk = disk
        self._segments = segments
        self._snapshots = snapshots
        self._unflushed_snapshots: dict[int, None] = {}
        self._warm: dict[int, Segment] = {}
        self._deleted: list[tuple[int, Segment]] = []
        self._truncations = 0
        self._epoch_writes = 0
        self._must_flush = False
        self._unflushed_files: list[File] = []
        self._unflushed_directories: dict[str, None] = {}
        self._flush_asked_end = log_end_offset
        self._unflushed_since_ms: int | None = None
        self._newest_key: tuple[int, ...] = ()
        self._newest: list[int] = []

    @classmethod
    def open(
        cls,
        disk: Disk,
        path: str,
        config: LogConfig,
        *,
        recovery_point: int,
        is_clean: bool,
        now_ms: int,
        log_start_offset: int = 0,
        high_watermark: int = 0,
        cleaned_end_offset: int = 0,
    ) -> Log:
        """The log in a directory, which is made if it is not there; what recovery has changed is durable.

        The offsets are those of the data directory's checkpoints. `is_clean` says that the log was closed and
        flushed; otherwise what is not below `recovery_point` is verified, and a torn end is cut off.
        """
        log = cls.open_unflushed(
            disk,
            path,
            config,
            recovery_point=recovery_point,
            is_clean=is_clean,
            now_ms=now_ms,
            log_start_offset=log_start_offset,
            high_watermark=high_watermark,
            cleaned_end_offset=cleaned_end_offset,
        )
        if log.must_flush:
            work = log.begin_flush()
            disk.flush_blocking(work.flush)
            log.flushed(work)
        return log

    @classmethod
    def open_unflushed(
        cls,
        disk: Disk,
        path: str,
        config: LogConfig,
        *,
        recovery_point: int,
        is_clean: bool,
        now_ms: int,
        log_start_offset: int = 0,
        high_watermark: int = 0,
        cleaned_end_offset: int = 0,
    ) -> Log:
        """The same for whoever opens many logs: those that `must_flush` can be flushed together."""
        is_new = not disk.exists(path)
        disk.make_directory(path)
        found = recovery.open_segments(
            disk, path, config, recovery_point=recovery_point, is_clean=is_clean, log_start=log_start_offset
        )
        log = cls(
            disk,
            path,
            config,
            segments=found.segments,
            epochs=found.epochs,
            snapshots=found.snapshots,
            log_start_offset=max(log_start_offset, found.segments[0].base_offset),
            log_end_offset=found.log_end,
        )
        log.recovery_report = found.report
        log.cleaned_end_offset = cleaned_end_offset
        log.high_watermark = min(max(high_watermark, log.log_start_offset), log.log_end_offset)
        log._load_producers(reindex_from=found.verified_from)
        log._forget_stray_snapshots()
        log.expire_producers(now_ms)
        log.epochs.truncate_start(log.log_start_offset)
        if log.log_start_offset > log.log_end_offset:
            log.truncate_fully(log.log_start_offset)
        log.flushed_end_offset = log.log_end_offset
        if is_new:
            log.flushed_end_offset = log.log_start_offset
            log._unflushed_directories = {path.rpartition("/")[0]: None, path: None}
        elif found.is_changed or log._must_flush:
            # What recovery has cut off must not come back under what is appended next.
            log._note_recovered(found.verified_from)
            log.flushed_end_offset = min(recovery_point, log.log_end_offset)
        return log

    def _note_recovered(self, verified_from: int | None) -> None:
        """Have all flushed that recovery has changed, and what the process before may not have come to."""
        self._take_snapshot(self.log_end_offset)
        if verified_from is not None:
            for segment in self._segments[self._number_of(verified_from) : -1]:
                self._unflushed_files += segment.seal()
            # The process before this one may have written them, and not come to flush them.
            names = [
                self._file(offset, suffix)
                for offset in self._snapshots[bisect_right(self._snapshots, verified_from) :]
                for suffix in (RECENT_BATCHES_SUFFIX, SNAPSHOT_SUFFIX)
            ]
            self._unflushed_files += (self._disk.open(name) for name in names if self._disk.exists(name))
        # Nobody knows whether the process before this one came to flush the directory's own name.
        self._unflushed_directories |= {self.path.rpartition("/")[0]: None, self.path: None}
        self._must_flush = True

    # ------------------------------------------------------------ facts

    @property
    def segments(self) -> Sequence[Segment]:
        """The segments, oldest first; the last one is being written."""
        return self._segments

    @property
    def active(self) -> Segment:
        """The segment that is being written."""
        return self._segments[-1]

    @property
    def oldest_offset(self) -> int:
        """The base offset of the oldest segment."""
        return self._segments[0].base_offset

    @property
    def size_bytes(self) -> int:
        """Bytes of all batches."""
        return sum(segment.size for segment in self._segments)

    @property
    def recovery_point(self) -> int:
        """For the checkpoint: everything below it is durable."""
        return self.flushed_end_offset

    @property
    def corrupt_ranges(self) -> list[CorruptRange]:
        """What recovery found damaged although it had been flushed; reading there raises CORRUPT_MESSAGE."""
        return [
            CorruptRange(damage.offset, damage.offset_end)
            for segment in self._segments
            for damage in segment.damages
        ]

    @property
    def last_stable_offset(self) -> int:
        """Up to where no transaction is undecided: the end for those who read committed data."""
        unstable = self.producers.first_unstable_offset(self.high_watermark)
        if unstable is None:
            return self.high_watermark
        return min(max(unstable, self.log_start_offset), self.high_watermark)

    def advance_high_watermark(self, offset: int) -> None:
        """Count everything below `offset` as committed; a lower one than before changes nothing."""
        self.high_watermark = max(self.high_watermark, min(offset, self.log_end_offset))

    def end_offset_for_epoch(self, epoch: int) -> EpochEnd:
        """Where a leader epoch ends in this log."""
        return self.epochs.end_of(epoch, log_end=self.log_end_offset)

    # ------------------------------------------------------------ appending

    def begin_epoch(self, epoch: int) -> None:
        """Note that a new leader writes from the end of the log on."""
        self.epochs.assign(epoch=epoch, start_offset=self.log_end_offset)

    def append_as_leader(
        self,
        data: WritableBuffer,
        *,
        leader_epoch: int,
        now_ms: int,
        origin: Origin = Origin.CLIENT,
        transaction_version: int = 0,
        header_of_all: BatchHeader | None = None,
    ) -> AppendResult:
        """Give validated batches their offsets and write them; a repetition is answered, not written.

        Whoever has read the header of a single batch may pass it on.
        """
        self._check_size(len(data))
        if header_of_all is not None and header_of_all.producer_id <= NO_PRODUCER_ID:
            return self._append_plain(data, header_of_all, leader_epoch, now_ms)
        batches: list[PlacedBatch] = []
        update: Update | None = None
        offset = self.log_end_offset
        for position, produced in iter_headers(data) if header_of_all is None else ((0, header_of_all),):
            header = placed(produced, base_offset=offset, leader_epoch=leader_epoch)
            if header.producer_id > NO_PRODUCER_ID:
                duplicate = self.producers.duplicate_of(produced) if origin is Origin.CLIENT else None
                if duplicate is not None:
                    return AppendResult(
                        duplicate.first_offset, duplicate.last_offset, duplicate.timestamp, is_duplicate=True
                    )
                if update is None:
                    update = self.producers.update(origin, transaction_version=transaction_version)
                update.add(header, read_marker(data, position, header))
            batches.append(PlacedBatch(position, header))
            offset = header.next_offset
        assert batches, "validated batches are whole"
        for position, header in batches:
            stamp(data, position, base_offset=header.base_offset, leader_epoch=leader_epoch)
        return self._write(data, batches, update, now_ms)

    def _append_plain(
        self, batch: WritableBuffer, produced: BatchHeader, leader_epoch: int, now_ms: int
    ) -> AppendResult:
        """Append one batch of a producer whom nobody has to remember.

        It is what a small request costs most for, so the steps are few and on plain numbers.
        """
        first_offset = self.log_end_offset
        last_offset, timestamp = first_offset + produced.last_offset_delta, produced.max_timestamp
        segment = self._room_for(len(batch), last_offset, timestamp)
        stamp(batch, 0, base_offset=first_offset, leader_epoch=leader_epoch)
        position = segment.write(batch)
        segment.note(
            position, first_offset, last_offset, timestamp, len(batch), self.config.index_interval_bytes
        )
        if leader_epoch != self.epochs.latest:
            self.epochs.assign(epoch=leader_epoch, start_offset=first_offset)
        self._wrote(last_offset, now_ms)
        return tuple.__new__(AppendResult, (first_offset, last_offset, timestamp, False))

    def append_as_follower(self, data: Buffer, *, now_ms: int) -> AppendResult | None:
        """Write the leader's batches as they are; None if `data` holds no whole one.

        What is wrong with them raises CORRUPT_MESSAGE before anything is written.
        """
        batches: list[PlacedBatch] = []
        update: Update | None = None
        expected = self.log_end_offset
        try:
            for position, header in iter_headers(data):
                check_crc(data, position, header)
                if header.base_offset < expected or header.last_offset_delta < 0:
                    raise MalformedMessage(f"a batch of {header.base_offset} follows, expected is {expected}")
                if header.has_producer_id:
                    update = update or self.producers.update(Origin.REPLICATION)
                    update.add(header, read_marker(data, position, header))
                batches.append(PlacedBatch(position, header))
                expected = header.next_offset
        except MalformedMessage as error:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from None
        if not batches:
            return None
        end = batches[-1].position + batches[-1].header.size_bytes
        first, last = batches[0].header, batches[-1].header
        if end <= self.config.segment_bytes and last.last_offset - first.base_offset < 2**31:
            return self._write(memoryview(data)[:end], batches, update, now_ms)
        # More than a segment takes: batch by batch, as if they had come so.
        view = memoryview(data)
        for position, header in batches:
            part = view[position : position + header.size_bytes]
            single = self.producers.update(Origin.REPLICATION) if header.has_producer_id else None
            if single is not None:
                single.add(header, read_marker(part, 0, header))
            self._write(part, [PlacedBatch(0, header)], single, now_ms)
        return AppendResult(
            first.base_offset, last.last_offset, max(batch.header.max_timestamp for batch in batches)
        )

    def _check_size(self, size: int) -> None:
        if size > self.config.segment_bytes:
            raise KafkaError(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"{size} bytes do not fit into a segment of {self.config.segment_bytes}",
            )

    def _write(
        self, data: Buffer, batches: list[PlacedBatch], update: Update | None, now_ms: int
    ) -> AppendResult:
        """Write batches that are known to be good; if the disk fails, the log is as before."""
        first, last = batches[0].header, batches[-1].header
        last_offset, max_timestamp = last.last_offset, last.max_timestamp
        if len(batches) > 1:
            max_timestamp = max(batch.header.max_timestamp for batch in batches)
        segment = self._room_for(len(data), last_offset, max_timestamp)
        start = segment.write(data)
        interval_bytes = self.config.index_interval_bytes
        for position, header in batches:
            segment.note_batch(start + position, header, interval_bytes)
            if header.leader_epoch != self.epochs.latest and header.leader_epoch >= 0:
                self.epochs.assign(epoch=header.leader_epoch, start_offset=header.base_offset)
        if update is not None:
            for aborted in self.producers.apply(update):
                segment.transaction_index.append(aborted)
        self._wrote(last_offset, now_ms)
        return AppendResult(first.base_offset, last_offset, max_timestamp)

    def _wrote(self, last_offset: int, now_ms: int) -> None:
        self.log_end_offset = last_offset + 1
        if self._unflushed_since_ms is None:
            self._unflushed_since_ms = now_ms

    # ------------------------------------------------------------ rolling

    def _room_for(self, size: int, last_offset: int, timestamp: int) -> Segment:
        """The segment that batches of `size` bytes go to, a new one if it is time for that."""
        # Else a crash could leave old bytes between new ones, and both would pass for sound.
        assert not self._must_flush, "a truncation is flushed before the log grows again"
        active, config = self._segments[-1], self.config
        if not active.has_room_for(size, last_offset, config):
            # A batch from far ahead, after a gap that compaction left, must be within reach of the base.
            self.roll(base_offset=max(self.log_end_offset, last_offset - (2**31 - 1)))
        elif active.is_aged(timestamp, config):
            self.roll()
        return self._segments[-1]

    def roll(self, *, base_offset: int | None = None) -> None:
        """Go on in a new segment; an empty one is replaced only if it starts elsewhere."""
        old = self.active
        base = self.log_end_offset if base_offset is None else base_offset
        if base == old.base_offset:
            return
        new = Segment(self._disk, self.path, base, is_new=True)
        self._unflushed_directories[self.path] = None
        try:
            sealed = old.seal() if old.size else []
            self._take_snapshot(base)
        except OSError:
            old.is_sealed = False
            new.remove()
            raise
        if not old.size:
            self._segments.pop()
            old.remove()
        self._unflushed_files += sealed
        self._segments.append(new)
        self._touch(old)

    def _take_snapshot(self, offset: int) -> None:
        """Keep the producers' state as of `offset`, so that nobody has to replay what is before it."""
        if offset in self._snapshots:
            return
        snapshot, recent = self.producers.to_snapshot(self.high_watermark)
        written: list[File] = []
        for suffix, data in ((RECENT_BATCHES_SUFFIX, recent), (SNAPSHOT_SUFFIX, snapshot)):
            name = self._file(offset, suffix)
            self._disk.remove(name)
            if data is not None:
                file = self._disk.open(name, create=True)
                file.append((data,))
                file.close()
                written.append(file)
        self._unflushed_files += written
        self._unflushed_directories[self.path] = None
        self._snapshots.append(offset)
        self._unflushed_snapshots[offset] = None

    # ------------------------------------------------------------ reading

    def read(self, start: int, *, bytes_max: int, end_limit: int, with_aborted: bool = False) -> FetchData:
        """Whole batches of one segment, from the one that holds `start`, up to `end_limit`.

        At least one even if larger than `bytes_max`, unless there is none before the limit. Where `start` is
        in a hole, from the next batch on. `with_aborted` names the aborted transactions that overlap them.
        """
        if not self.log_start_offset <= start <= self.log_end_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {start} is not between {self.log_start_offset} and {self.log_end_offset}",
            )
        end_limit = min(end_limit, self.log_end_offset)
        for number in range(self._number_of(start), len(self._segments)):
            segment = self._segments[number]
            if max(start, segment.base_offset) >= end_limit:
                break
            self._touch(segment)
            stretch = segment.read(
                start, bytes_max=bytes_max, end_limit=end_limit, segment_end=self._end_of(number)
            )
            if stretch is not None:
                aborted = self.aborted_transactions(start, stretch.end_offset) if with_aborted else []
                return FetchData(stretch.slice, stretch.end_offset, tuple(aborted))
        return FetchData(None, start)

    def aborted_transactions(self, start: int, end: int) -> list[AbortedTransaction]:
        """The aborted transactions with records in [start, end), by first offset."""
        found: list[AbortedTransaction] = []
        for segment in self._segments[self._number_of(start) :]:
            aborted = segment.transaction_index.items()
            found += (txn for txn in aborted if txn.last_offset >= start and txn.first_offset < end)
            if any(txn.last_stable_offset >= end for txn in aborted):
                break
        return sorted(found, key=lambda txn: txn.first_offset)

    def offset_for_timestamp(self, timestamp: int) -> TimedOffset | None:
        """The first record that is not older than `timestamp`."""
        for number in range(bisect_left(self._newest_until(), timestamp), len(self._segments)):
            segment = self._segments[number]
            if segment.max_timestamp >= timestamp:
                self._touch(segment)
                found = segment.find_timestamp(timestamp, offset_min=self.log_start_offset)
                if found is not None:
                    return found
        return None

    def _newest_until(self) -> list[int]:
        """For each segment but the last, the greatest timestamp up to its end, for look-ups by time.

        Compaction may lower a timestamp, which this does not notice: the look-up then starts a little early.
        """
        key = (self._truncations, self.oldest_offset, self.active.base_offset, len(self._segments))
        if self._newest_key != key:
            newest = (segment.max_timestamp for segment in self._segments[:-1])
            self._newest_key, self._newest = key, list(accumulate(newest, max))
        return self._newest

    def offset_of_max_timestamp(self) -> TimedOffset | None:
        """The first record with the greatest timestamp of the log."""
        newest = max(self._segments, key=lambda segment: segment.max_timestamp)
        self._touch(newest)
        return newest.find_newest()

    # ------------------------------------------------------------ making it durable

    def is_flush_due(self, now_ms: int) -> bool:
        """Whether flush.messages or flush.ms asks for a flush that has not been begun yet."""
        if self._unflushed_since_ms is None:
            return False
        return (
            self.log_end_offset - self._flush_asked_end >= self.config.flush_messages
            or now_ms - self._unflushed_since_ms >= self.config.flush_ms
        )

    @property
    def must_flush(self) -> bool:
        """Whether the log has to be flushed before it may grow."""
        return self._must_flush

    @property
    def is_dirty(self) -> bool:
        """Whether a flush would make anything durable that is not yet asked for."""
        return bool(
            self._flush_asked_end < self.log_end_offset
            or self._must_flush
            or self.epochs.is_changed
            or self._unflushed_files
            or self._unflushed_directories
        )

    def begin_flush(self) -> FlushWork:
        """What has to be flushed for all that is in the log now; tell `flushed` when that is done."""
        files = [*self._unflushed_files]
        if self._must_flush or self.flushed_end_offset < self.log_end_offset:
            files.append(self.active.file)
        renames: tuple[tuple[str, str], ...] = ()
        if self.epochs.is_changed:
            self._epoch_writes += 1
            name = f"{self.path}/{EPOCHS_NAME}"
            replacement = replace_text(self._disk, name, self.epochs.to_text(), number=self._epoch_writes)
            files += replacement.files
            renames = replacement.renames
            self.epochs.is_changed = False
        flush = Flush(tuple(files), renames, tuple(self._unflushed_directories))
        self._unflushed_files = []
        self._unflushed_directories = {}
        self._flush_asked_end = self.log_end_offset
        self._unflushed_since_ms = None
        return FlushWork(flush, self.log_end_offset, self._truncations, tuple(self._unflushed_snapshots))

    def flushed(self, work: FlushWork) -> None:
        """Note that `work` is done; one from before a truncation proves nothing any more."""
        if work.truncations == self._truncations:
            self.flushed_end_offset = max(self.flushed_end_offset, work.end_offset)
            self._must_flush = False
            for offset in work.snapshots:
                self._unflushed_snapshots.pop(offset, None)

    def close(self) -> FlushWork:
        """Write everything out, so that once the work is flushed the log can be opened as clean."""
        self._unflushed_files += self.active.seal()
        self._take_snapshot(self.log_end_offset)
        work = self.begin_flush()
        for segment in self._segments:
            segment.close()
        return work

    # ------------------------------------------------------------ truncating

    def truncate_to(self, offset: int) -> None:
        """Cut off everything from `offset` on; a batch that it would split goes as a whole.

        Before, a recovery-point checkpoint that is above `end_after_truncation(offset)` must be lowered to it
        and flushed, or a restart would take what was cut for damage; afterwards, the log must be flushed
        before it grows again.
        """
        if offset < self._segments[0].base_offset:
            self.truncate_fully(offset)
            return
        if offset < self.log_end_offset:
            while self.active.base_offset > offset and len(self._segments) > 1:
                self._segments.pop().remove()
            self._set_end(self.active.truncate(offset))
            self._load_producers()
        # Even where no batch goes, an epoch may have been begun here and never written to (KAFKA-10706).
        self.epochs.truncate_end(self.log_end_offset)

    def end_after_truncation(self, offset: int) -> int:
        """Where the log would end after `truncate_to(offset)`."""
        if offset < self._segments[0].base_offset:
            return offset
        if offset >= self.log_end_offset:
            return self.log_end_offset
        return self._segments[self._number_of(offset)].place_to_cut(offset)[1]

    def truncate_fully(self, offset: int) -> None:
        """Drop everything, and go on at `offset`; the duties are those of `truncate_to`."""
        for segment in self._segments:
            segment.remove()
        for name in self._disk.list(self.path):
            # A compaction that is under way must not bring anything back.
            if name.endswith((SWAP_SUFFIX, CLEANED_SUFFIX)):
                self._disk.remove(f"{self.path}/{name}")
        self._segments = [Segment(self._disk, self.path, offset, is_new=True)]
        self._warm.clear()
        self._forget_snapshots(self._snapshots)
        self.producers = Producers()
        self.epochs.clear()
        self._set_end(offset)
        self.log_start_offset = self.high_watermark = self.flushed_end_offset = offset

    def _set_end(self, offset: int) -> None:
        self.log_end_offset = offset
        self.high_watermark = min(self.high_watermark, offset)
        self.flushed_end_offset = min(self.flushed_end_offset, offset)
        self.cleaned_end_offset = min(self.cleaned_end_offset, offset)
        self._flush_asked_end = min(self._flush_asked_end, offset)
        self.log_start_offset = min(self.log_start_offset, offset)
        self._truncations += 1
        self.removals += 1
        self._must_flush = True
        self._warm.pop(self.active.base_offset, None)
        self._unflushed_directories[self.path] = None

    # ------------------------------------------------------------ removing what is old

    def advance_log_start(self, offset: int) -> None:
        """Let the log begin at `offset`; whole segments before it go with `delete_segments`.

        Whoever must not see deleted records again has a checkpoint of it flushed before.
        """
        if offset > self.high_watermark:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"records up to {offset} cannot be deleted, committed are {self.high_watermark}",
            )
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            self.epochs.truncate_start(offset)

    def start_after_retention(self, now_ms: int) -> int:
        """Where the log begins if what the topic's settings no longer keep is taken away."""
        doomed = self._deletable(now_ms)
        return max(self.log_start_offset, self._end_of(doomed - 1)) if doomed else self.log_start_offset

    def delete_segments(self, now_ms: int) -> int:
        """Delete the segments before the start of the log that nothing keeps; how many those were.

        Producers are remembered longer than what they wrote. So segments stay until a snapshot that outlives
        them is flushed and committed; where there is none, one is taken, and the next call deletes.
        """
        if self.is_swapping:
            return 0
        doomed = self._deletable(now_ms)
        while doomed and self._end_of(doomed - 1) > self.log_start_offset:
            doomed -= 1
        if doomed == len(self._segments):
            self.roll()
        if doomed and not self._remembers_producers_without(doomed):
            self._take_snapshot(self.log_end_offset)
            return 0
        if doomed:
            self.removals += 1
            self.discard(self._segments[:doomed], now_ms)
            self._segments = self._segments[doomed:]
            self._forget_snapshots([offset for offset in self._snapshots if offset < self.oldest_offset])
        return doomed

    def _deletable(self, now_ms: int) -> int:
        return retention.deletable(
            self._segments,
            config=self.config,
            now_ms=now_ms,
            log_start=self.log_start_offset,
            high_watermark=self.high_watermark,
            log_end=self.log_end_offset,
        )

    def _remembers_producers_without(self, doomed: int) -> bool:
        """Whether a snapshot that no crash or truncation can take holds what the oldest segments do."""
        oldest = self._segments[doomed].base_offset
        return not len(self.producers) or any(
            oldest <= offset <= self.high_watermark and offset not in self._unflushed_snapshots
            for offset in self._snapshots
        )

    def discard(self, segments: Iterable[Segment], now_ms: int) -> None:
        """Put files aside that are no longer part of the log; who reads them may finish."""
        for segment in segments:
            segment.rename(DELETED_SUFFIX)
            self._warm.pop(segment.base_offset, None)
            self._deleted.append((now_ms + self.config.file_delete_delay_ms, segment))
        self._unflushed_directories[self.path] = None

    def remove_deleted(self, now_ms: int) -> int:
        """Remove the files that have been put aside for long enough; how many segments those were."""
        due = [segment for due_ms, segment in self._deleted if due_ms <= now_ms]
        self._deleted = [entry for entry in self._deleted if entry[0] > now_ms]
        for segment in due:
            segment.remove()
        return len(due)

    def expire_producers(self, now_ms: int) -> None:
        """Forget the producers that have been silent for producer.id.expiration.ms."""
        self.producers.expire(now_ms=now_ms, expiration_ms=self.config.producer_expiration_ms)

    # ------------------------------------------------------------ looking for rot

    def begin_scrub(self) -> Scrub | None:
        """The oldest segment that is no longer written and that nobody has verified since the log was opened.

        Whoever has carried it out tells `scrubbed`.
        """
        for number, segment in enumerate(self._segments[:-1]):
            if not segment.is_verified and self._end_of(number) <= self.flushed_end_offset:
                return Scrub(segment, segment.open_apart(), segment.size, self._end_of(number))
        return None

    def scrubbed(self, scrub: Scrub, damages: list[Damage]) -> list[CorruptRange]:
        """Take over what a scrub has found, and give it by offset; from now on the rest is served again."""
        segment = scrub.segment
        segment.is_verified = True
        if segment not in self._segments or damages == segment.damages:
            return []
        segment.note_damages(damages, interval_bytes=self.config.index_interval_bytes)
        return [CorruptRange(damage.offset, damage.offset_end) for damage in damages]

    # ------------------------------------------------------------ compaction's part

    @property
    def disk(self) -> Disk:
        """Where the log is."""
        return self._disk

    def names_changed(self) -> None:
        """Let the next flush include the directory."""
        self._unflushed_directories[self.path] = None

    def replace_segments(self, old: Sequence[Segment], new: Segment, now_ms: int) -> None:
        """Put one segment in the place of several; their files go aside."""
        number = self._segments.index(old[0])
        assert self._segments[number : number + len(old)] == list(old), "nothing has come between"
        self._forget_snapshots([segment.base_offset for segment in old[1:]])
        self.discard(old, now_ms)
        self._segments[number : number + len(old)] = [new]

    # ------------------------------------------------------------ within

    def _number_of(self, offset: int) -> int:
        """Which segment would hold an offset."""
        return max(bisect_right(self._segments, offset, key=_base_offset) - 1, 0)

    def _end_of(self, number: int) -> int:
        """The offset after a segment's last."""
        following = number + 1
        return (
            self._segments[following].base_offset if following < len(self._segments) else self.log_end_offset
        )

    def _touch(self, segment: Segment) -> None:
        """Keep a segment warm that is used, and let the one go that was not used for longest."""
        if segment is self.active:
            return
        self._warm.pop(segment.base_offset, None)
        self._warm[segment.base_offset] = segment
        if len(self._warm) > _WARM_SEGMENTS_MAX and not self.is_swapping:
            self._warm.pop(next(iter(self._warm))).release()

    def _file(self, offset: int, suffix: str) -> str:
        return f"{self.path}/{file_name(offset, suffix)}"

    def _load_producers(self, *, reindex_from: int | None = None) -> None:
        """The producers' state as of the log's end: a good snapshot, and what was written since.

        From `reindex_from` on, the transaction indexes are empty and are filled again, for which everything
        there has to be gone through. The state itself still comes from the newest snapshot: it may know more
        than compaction has left in the log.
        """
        self._snapshots.sort()
        self._forget_snapshots(self._snapshots[bisect_right(self._snapshots, self.log_end_offset) :])
        flushed = self.log_end_offset if reindex_from is None else reindex_from
        start = self._load_and_replay(flushed, flushed, reindex_from)
        if any(offset > start for offset in self._snapshots):
            self._load_and_replay(self.log_end_offset, flushed, None)

    def _load_and_replay(self, offset_max: int, flushed: int, reindex_from: int | None) -> int:
        """Load the newest good snapshot up to an offset, and replay from there, which is returned.

        One without its sidecar is Kafka's if it was flushed; else a crash has taken the sidecar.
        """
        self.producers, start = Producers(), self.oldest_offset
        for offset in reversed(self._snapshots[: bisect_right(self._snapshots, offset_max)]):
            loaded = self._read_snapshot(offset)
            if loaded is not None and (loaded.is_complete or offset <= flushed):
                self.producers, start = loaded, offset
                break
            self._forget_snapshots([offset])
        for number in range(self._number_of(start), len(self._segments)):
            if self._end_of(number) > start:
                self._replay(self._segments[number], start, reindex_from)
        return start

    def _replay(self, segment: Segment, start: int, reindex_from: int | None) -> None:
        first = segment.find(max(start, segment.base_offset))
        if first is None:
            return
        for position, header in segment.batches_from(first.position):
            if not header.has_producer_id:
                continue
            data = segment.file.read(position, header.size_bytes) if header.is_control else b""
            update = self.producers.update(Origin.REPLICATION)
            update.add(header, read_marker(data, 0, header))
            for aborted in self.producers.apply(update):
                if reindex_from is not None and aborted.last_offset >= reindex_from:
                    segment.transaction_index.append(aborted)

    def _read_snapshot(self, offset: int) -> Producers | None:
        snapshot = read_bytes(self._disk, self._file(offset, SNAPSHOT_SUFFIX))
        if snapshot is None:
            return None
        try:
            return Producers.from_snapshot(
                snapshot, read_bytes(self._disk, self._file(offset, RECENT_BATCHES_SUFFIX))
            )
        except MalformedMessage:
            return None

    def _forget_stray_snapshots(self) -> None:
        """Keep those at the start of a segment, and the newest, which closing the log has left."""
        bases = [segment.base_offset for segment in self._segments]
        self._forget_snapshots(offset for offset in self._snapshots[:-1] if offset not in bases)

    def _forget_snapshots(self, offsets: Iterable[int]) -> None:
        for offset in list(offsets):
            if offset in self._snapshots:
                self._snapshots.remove(offset)
                self._unflushed_snapshots.pop(offset, None)
                self._disk.remove(self._file(offset, SNAPSHOT_SUFFIX))
                self._disk.remove(self._file(offset, RECENT_BATCHES_SUFFIX))
                self._unflushed_directories[self.path] = None


def _base_offset(segment: Segment) -> int:
    return segment.base_offset
