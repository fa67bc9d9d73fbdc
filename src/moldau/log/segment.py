"""One stretch of a log: a file of batches with the indexes beside it.

Files are opened, and indexes read, when they are first needed: most segments of most partitions are never
looked at between two restarts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from moldau.log.config import LogConfig
from moldau.log.index import RELATIVE_OFFSET_MAX, OffsetIndex, TimeIndex, TransactionIndex
from moldau.model.errors import ErrorCode, KafkaError, MalformedMessage
from moldau.wire.crc import crc32c
from moldau.wire.records import kernel
from moldau.wire.records.batch import payload_of
from moldau.wire.records.header import (
    HEADER_BYTES,
    NO_TIMESTAMP,
    BatchHeader,
    Buffer,
    check_framing,
    read_header,
)
from moldau.world.ports import Disk, File, FileSlice

LOG_SUFFIX: Final = ".log"
OFFSET_INDEX_SUFFIX: Final = ".index"
TIME_INDEX_SUFFIX: Final = ".timeindex"
TRANSACTION_INDEX_SUFFIX: Final = ".txnindex"
SEGMENT_SUFFIXES: Final = (LOG_SUFFIX, OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)
DELETED_SUFFIX: Final = ".deleted"
CLEANED_SUFFIX: Final = ".cleaned"
SWAP_SUFFIX: Final = ".swap"

POSITION_MAX: Final = 2**31 - 1
# Enough to go from one index entry to the next at the usual interval, in one read.
# Places in a segment that are kept in mind, for readers who go on where they or a writer stopped.
_STARTS_MAX: Final = 256
_SCAN_BYTES: Final = 8 * 1024
_READ_BYTES: Final = 256 * 1024


def file_name(base_offset: int, suffix: str) -> str:
    """The name of a segment's file."""
    return f"{base_offset:020d}{suffix}"


class PlacedBatch(NamedTuple):
    """A batch's header, and where it begins in its file."""

    position: int
    header: BatchHeader


class TimedOffset(NamedTuple):
    """A record that was looked up by time."""

    offset: int
    timestamp: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes of a segment that are not batches any more, and the offsets that were in them."""

    position: int
    position_end: int
    offset: int
    offset_end: int


class Stretch(NamedTuple):
    """What a read found: whole batches, and the offset after them."""

    slice: FileSlice
    end_offset: int


class Segment:
    """A segment from its base offset up to that of the next."""

    def __init__(
        self, disk: Disk, directory: str, base_offset: int, *, is_new: bool = False, suffix: str = ""
    ) -> None:
        self.base_offset: Final = base_offset
        self.damages: list[Damage] = []
        self.is_sealed = False
        self.is_verified = is_new
        """Whether all of it has been looked at, or written, since the log was opened."""
        self._disk = disk
        self._directory = directory
        self._suffix = suffix
        self._file: File | None = disk.open(self._path(LOG_SUFFIX), create=True) if is_new else None
        self._size: int | None = 0 if is_new else None
        self.offset_index = OffsetIndex(disk, self._path(OFFSET_INDEX_SUFFIX), base_offset, is_new=is_new)
        self.time_index = TimeIndex(disk, self._path(TIME_INDEX_SUFFIX), base_offset, is_new=is_new)
        self.transaction_index = TransactionIndex(disk, self._path(TRANSACTION_INDEX_SUFFIX), is_new=is_new)
        self._first_timestamp: int | None = None
        self._newest: tuple[int, int] | None = (NO_TIMESTAMP, base_offset) if is_new else None
        self._bytes_since_entry = 0
        self._is_checked = is_new
        # For some offsets, where the first batch begins that ends there or later: where batches were appended
        # lately, and where readers stopped, which is where they go on.
        self._starts: dict[int, int] = {}

    def __repr__(self) -> str:
        return f"Segment({self._path(LOG_SUFFIX)!r})"

    # ------------------------------------------------------------ facts

    @property
    def file(self) -> File:
        """The file of batches."""
        if self._file is None:
            self._file = self._disk.open(self._path(LOG_SUFFIX))
        return self._file

    def open_apart(self) -> File:
        """The file of batches once more, for whoever reads it beside everybody else."""
        return self._disk.open(self._path(LOG_SUFFIX))

    @property
    def size(self) -> int:
        """Bytes of batches."""
        if self._size is None:
            file = self._file or self._disk.open(self._path(LOG_SUFFIX))
            self._size = file.size()
            if self._file is None:
                file.close()
        return self._size

    @property
    def max_timestamp(self) -> int:
        """The greatest timestamp in the segment; -1 if no record has one."""
        return self._newest_known()[0]

    @property
    def first_timestamp(self) -> int | None:
        """The greatest timestamp of the first batch, from which the segment's age counts; None if empty."""
        if self._first_timestamp is None and self.size >= HEADER_BYTES:
            self._first_timestamp = read_header(self.file.read(0, HEADER_BYTES)).max_timestamp
        return self._first_timestamp

    def has_room_for(self, size: int, last_offset: int, config: LogConfig) -> bool:
        """Whether batches of `size` bytes that end with `last_offset` may still go into this segment."""
        size_after = self.size + size
        return (
            size_after <= config.segment_bytes
            and size_after <= POSITION_MAX
            and last_offset - self.base_offset <= RELATIVE_OFFSET_MAX
            and (not self._may_get_entry(size, config.index_interval_bytes) or self._has_index_room(config))
        )

    def _may_get_entry(self, size: int, interval_bytes: int) -> bool:
        """Whether one of the batches, of `size` bytes in all, may be due for entries in the indexes."""
        return self._bytes_since_entry + size > interval_bytes or self._newest is None

    def _has_index_room(self, config: LogConfig) -> bool:
        bytes_max = config.index_bytes_max
        return not self.offset_index.is_full(bytes_max) and not self.time_index.is_full(bytes_max)

    def is_aged(self, timestamp: int, config: LogConfig) -> bool:
        """Whether a record of `timestamp` comes too long after the segment's first one to go into it."""
        first = self.first_timestamp
        if first is None or first < 0:
            return False
        age_ms = timestamp - first
        # Which share of the jitter is this segment's matters only near the end of its time.
        return age_ms > config.segment_ms_max - config.segment_jitter_ms and (
            age_ms > config.segment_ms_max - self._jitter_ms(config)
        )

    # ------------------------------------------------------------ writing

    def write(self, data: Buffer) -> int:
        """Write whole batches with one call; gives where they are, for `note`."""
        start = self.file.append((data,))
        assert start == self.size, (start, self.size)
        self._size = start + len(data)
        return start

    def note_batch(self, position: int, header: BatchHeader, interval_bytes: int) -> None:
        """`note` what a header says."""
        self.note(
            position,
            header.base_offset,
            header.last_offset,
            header.max_timestamp,
            header.size_bytes,
            interval_bytes,
        )

    def note(
        self, position: int, first: int, last: int, timestamp: int, size_bytes: int, interval_bytes: int
    ) -> None:
        """Take a batch that is in the file into the indexes, if it is time for an entry."""
        self._remember_start(first, position)
        if position == 0:
            self._first_timestamp = timestamp
        newest = self._newest or self._newest_known()
        if timestamp > newest[0]:
            self._newest = newest = timestamp, last
        if self._bytes_since_entry > interval_bytes:
            self.offset_index.append(first=first, offset=last, position=position)
            self.time_index.append_if_later(timestamp=newest[0], offset=newest[1])
            self._bytes_since_entry = 0
        self._bytes_since_entry += size_bytes

    def seal(self, *, with_empty_indexes: bool = False) -> list[File]:
        """Write the indexes out, complete up to the greatest timestamp; gives all files, to be flushed."""
        timestamp, offset = self._newest_known()
        self.time_index.append_if_later(timestamp=timestamp, offset=offset)
        saved = [
            self.offset_index.save(is_always=True),
            self.time_index.save(is_always=True),
            self.transaction_index.save(is_always=with_empty_indexes),
        ]
        self.is_sealed = True
        return [self.file, *(file for file in saved if file is not None)]

    def truncate(self, offset: int) -> int:
        """Cut off every batch that reaches `offset`; gives the offset after those that are left."""
        position, end_offset = self.place_to_cut(offset)
        self._starts.clear()
        if position < self.size:
            self.file.truncate(position)
            self._size = position
            self.damages = [damage for damage in self.damages if damage.position_end <= position]
            for index in self._indexes():
                index.truncate(end_offset)
        if position == 0:
            self._first_timestamp = None
        self.is_sealed = False
        self._newest = self._find_newest()
        self._bytes_since_entry = position - self.offset_index.last_position()
        return end_offset

    def place_to_cut(self, offset: int) -> tuple[int, int]:
        """Where the first batch begins that reaches `offset`, and the offset after those before it."""
        end_offset = self.base_offset
        for batch in self.batches_from(self._offsets().position_of(offset - 1)):
            if batch.header.last_offset >= offset:
                return batch.position, end_offset
            end_offset = batch.header.next_offset
        return self.size, end_offset

    def cut_bytes(self, size: int) -> None:
        """Cut the file to `size` bytes; the indexes are rebuilt by whoever calls this."""
        self._starts.clear()
        self.file.truncate(size)
        self._size = size

    def reset_indexes(self, *, transactions_too: bool) -> None:
        """Empty the indexes, to build them again with `note`."""
        self.offset_index.clear()
        self.time_index.clear()
        if transactions_too:
            self.transaction_index.clear()
        self._newest = NO_TIMESTAMP, self.base_offset
        self._first_timestamp = None
        self._bytes_since_entry = 0
        self._is_checked = True

    def note_damages(self, damages: list[Damage], *, interval_bytes: int) -> None:
        """Take over what was found damaged; the indexes are built again, as they may have come from it."""
        self.damages = damages
        self._starts.clear()
        self.rebuild_indexes(interval_bytes=interval_bytes)

    # ------------------------------------------------------------ reading

    def batches_from(self, position: int = 0, *, read_bytes: int = _SCAN_BYTES) -> Iterator[PlacedBatch]:
        """The headers of the batches from `position` on; CORRUPT_MESSAGE where there is none."""
        chunk, chunk_at = b"", position
        while position < self.size:
            if self.damages:
                damage = next((damage for damage in self.damages if damage.position == position), None)
                if damage is not None:
                    position = damage.position_end
                    continue
            if position + HEADER_BYTES > chunk_at + len(chunk):
                chunk, chunk_at = self.file.read(position, read_bytes), position
            try:
                header = read_header(chunk, position - chunk_at)
                check_framing(header)
                if header.size_bytes > self.size - position:
                    raise MalformedMessage(f"a batch of {header.size_bytes} bytes reaches beyond the file")
            except MalformedMessage as error:
                raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{self!r} at {position}: {error}") from None
            yield PlacedBatch(position, header)
            position += header.size_bytes

    def contents_from(self, position: int = 0) -> Iterator[tuple[PlacedBatch, memoryview]]:
        """The same with the batches' bytes, read in larger pieces."""
        chunk, chunk_at = memoryview(b""), position
        for batch in self.batches_from(position, read_bytes=_READ_BYTES):
            size = batch.header.size_bytes
            if batch.position + size > chunk_at + len(chunk):
                chunk = memoryview(self.file.read(batch.position, max(size, _READ_BYTES)))
                chunk_at = batch.position
            start = batch.position - chunk_at
            yield batch, chunk[start : start + size]

    def find(self, offset: int) -> PlacedBatch | None:
        """The first batch that ends at `offset` or later."""
        for batch in self.batches_from(self._offsets().position_of(offset)):
            if batch.header.last_offset >= offset:
                return batch
        return None

    def last_batch(self) -> PlacedBatch | None:
        """The last batch; None in an empty segment."""
        last = None
        for batch in self.batches_from(self._offsets().last_position()):
            last = batch
        return last

    def read(self, start: int, *, bytes_max: int, end_limit: int, segment_end: int) -> Stretch | None:
        """Whole batches from the one that holds `start`, or the next if none does.

        None if this segment has nothing there. At least one batch, however large; none that reaches
        `end_limit`. `segment_end` is the offset after the segment's last.
        """
        if any(damage.offset <= start < damage.offset_end for damage in self.damages):
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"the batch with offset {start} is damaged")
        position, _ = self._start_of(start)
        position_end, end_offset = self.size, segment_end
        if end_limit < segment_end:
            position_end, end_offset = self._start_of(end_limit)
        for damage in self.damages:
            if position < damage.position < position_end:
                position_end, end_offset = damage.position, damage.offset
                break
        if position >= position_end:
            return None
        if position_end - position > bytes_max:
            boundary, boundary_offset = self._last_boundary(position, position + bytes_max)
            # After a first batch that is too large, the next one may lie behind damage.
            if boundary < position_end:
                position_end, end_offset = boundary, boundary_offset
        self._remember_start(end_offset, position_end)
        return Stretch(FileSlice(self.file, position, position_end - position), end_offset)

    def _start_of(self, offset: int) -> tuple[int, int]:
        """Where the first batch begins that ends at `offset` or later, and up to which offset all is earlier.

        The position is the end of the file if no batch does.
        """
        position = self._starts.get(offset)
        if position is not None:
            return position, offset
        batch = self.find(offset)
        if batch is None:
            return self.size, offset
        return batch.position, min(offset, batch.header.base_offset)

    def _remember_start(self, offset: int, position: int) -> None:
        self._starts[offset] = position
        if len(self._starts) > _STARTS_MAX:
            del self._starts[next(iter(self._starts))]

    def _last_boundary(self, position: int, limit: int) -> tuple[int, int]:
        """A boundary of batches up to `limit`, and the offset there; the first one if that is beyond it.

        One that has an index entry will do: it is at most an interval away from the last one, and it costs no
        look into the file.
        """
        nearest, first = self._offsets().floor(limit)
        if nearest > position:
            if first is None:
                first = read_header(self.file.read(nearest, HEADER_BYTES)).base_offset
            return nearest, first
        boundary, end_offset = self.size, self.base_offset
        for batch in self.batches_from(position):
            if batch.position > position:
                boundary, end_offset = batch.position, batch.header.base_offset
            if batch.position > position and batch.position + batch.header.size_bytes > limit:
                return boundary, end_offset
            end_offset = batch.header.next_offset
        # The first batch alone is larger than the limit, and the last of the segment.
        return self.size, end_offset

    # ------------------------------------------------------------ time

    def find_timestamp(self, timestamp: int, *, offset_min: int) -> TimedOffset | None:
        """The first record at or after `offset_min` that is not older than `timestamp`."""
        offsets = self._offsets()
        start = max(self.time_index.offset_before(timestamp), offset_min)
        for batch in self.batches_from(offsets.position_of(start)):
            header = batch.header
            if header.max_timestamp >= timestamp and header.last_offset >= offset_min:
                found = self._record_at(batch, timestamp, offset_min)
                if found is not None:
                    return found
        return None

    def find_newest(self) -> TimedOffset | None:
        """The first record with the segment's greatest timestamp."""
        timestamp, last_offset = self._newest_known()
        batch = self.find(last_offset) if timestamp >= 0 else None
        return None if batch is None else self._record_at(batch, timestamp, self.base_offset)

    def _record_at(self, batch: PlacedBatch, timestamp: int, offset_min: int) -> TimedOffset | None:
        header = batch.header
        # A log-append time is that of all records, whatever their own deltas say.
        target = -(2**63) if header.is_log_append_time else timestamp
        data = self.file.read(batch.position, header.size_bytes)
        try:
            payload = payload_of(data, 0, header)
            delta_min = max(offset_min - header.base_offset, 0)
            found = kernel.find_timestamp(payload, header.count, header.base_timestamp, target, delta_min)
        except MalformedMessage as error:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from None
        if found is None:
            return None
        delta, time = found
        time = header.max_timestamp if header.is_log_append_time else time
        return TimedOffset(header.base_offset + delta, time, header.leader_epoch)

    # ------------------------------------------------------------ files

    def rename(self, suffix: str) -> None:
        """Give all files another suffix, the batches first: they are what makes a segment."""
        for kind in SEGMENT_SUFFIXES:
            old = self._path(kind)
            if self._disk.exists(old):
                self._disk.rename(old, f"{old.removesuffix(self._suffix)}{suffix}")
        self.take_names(suffix)

    def take_names(self, suffix: str) -> None:
        """Know the files by another suffix, which they have got or are about to get."""
        self._suffix = suffix
        for index, kind in zip(self._indexes(), SEGMENT_SUFFIXES[1:], strict=True):
            index.path = self._path(kind)

    def remove(self) -> None:
        """Remove all files; slices of them can still be read."""
        for kind in SEGMENT_SUFFIXES:
            self._disk.remove(self._path(kind))
        self.close()

    def release(self) -> None:
        """Let go of what can be had from the disk again."""
        self.close()
        for index in self._indexes():
            index.release()

    def close(self) -> None:
        """Let go of the file of batches."""
        if self._file is not None:
            self._file.close()
            self._file = None

    # ------------------------------------------------------------ within

    def _path(self, kind: str) -> str:
        return f"{self._directory}/{file_name(self.base_offset, kind)}{self._suffix}"

    def _indexes(self) -> tuple[OffsetIndex, TimeIndex, TransactionIndex]:
        return self.offset_index, self.time_index, self.transaction_index

    def _offsets(self) -> OffsetIndex:
        """The offset index, once it is known to fit the file; else both are built again."""
        if not self._is_checked:
            self._is_checked = True
            index = self.offset_index
            if not self._disk.exists(index.path) or (len(index) and index.last_position() >= self.size):
                self.rebuild_indexes(interval_bytes=_SCAN_BYTES // 2)
        return self.offset_index

    def rebuild_indexes(self, *, interval_bytes: int) -> None:
        """Build the offset and time indexes from the batches."""
        self.reset_indexes(transactions_too=False)
        for position, header in self.batches_from(read_bytes=_READ_BYTES):
            self.note_batch(position, header, interval_bytes)

    def _newest_known(self) -> tuple[int, int]:
        if self._newest is None:
            self._newest = self._find_newest()
            if not self.is_sealed:
                self._bytes_since_entry = self.size - self.offset_index.last_position()
        return self._newest

    def _find_newest(self) -> tuple[int, int]:
        """Greatest timestamp and last offset of its batch: the last index entry, or something after it."""
        offsets = self._offsets()
        newest = self.time_index.last() or (NO_TIMESTAMP, self.base_offset)
        if self.is_sealed:
            return newest
        try:
            for batch in self.batches_from(offsets.last_position()):
                if batch.header.max_timestamp > newest[0]:
                    newest = batch.header.max_timestamp, batch.header.last_offset
        except KafkaError:
            # It has rotted since it was opened, which must not keep anybody from writing on and closing it.
            pass
        return newest

    def _jitter_ms(self, config: LogConfig) -> int:
        """This segment's share of the jitter: any number will do, as long as partitions differ."""
        bound = min(config.segment_jitter_ms, config.segment_ms)
        return crc32c(self._path(LOG_SUFFIX).encode()) % bound if bound else 0
