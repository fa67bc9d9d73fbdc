"""Opening a log's directory: what was begun is finished or undone, and what may be torn is verified.

Below the recovery point everything was flushed, so a batch that is bad there is damage: it is reported and
kept, and the rest is served. From the recovery point on, the first bad batch is where a crash tore the log,
and it ends there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from moldau.log.checkpoints import TEMPORARY_SUFFIX, read_text
from moldau.log.config import LogConfig
from moldau.log.epochs import FILE_NAME as EPOCHS_NAME
from moldau.log.epochs import LeaderEpochs
from moldau.log.index import RELATIVE_OFFSET_MAX
from moldau.log.segment import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    SWAP_SUFFIX,
    Damage,
    PlacedBatch,
    Segment,
    file_name,
)
from moldau.model.errors import KafkaError, MalformedMessage
from moldau.wire.records.header import (
    HEADER_BYTES,
    MAGIC,
    MAGIC_AT,
    BatchHeader,
    check_crc,
    check_framing,
    read_header,
)
from moldau.world.ports import Disk, File, Flush

_SNAPSHOT_SUFFIX: Final = ".snapshot"
_READ_BYTES: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class RecoveryReport:
    """What opening a log had to do, for whoever tells the operator."""

    batches_verified: int = 0
    bytes_cut: int = 0
    segments_removed: int = 0
    swaps_finished: int = 0


@dataclass(slots=True)
class Opened:
    """The segments of a directory, fit for use."""

    segments: list[Segment]
    epochs: LeaderEpochs
    snapshots: list[int]
    log_end: int
    report: RecoveryReport
    verified_from: int | None = None
    """Base offset of the first segment whose indexes were emptied; None if none was looked at."""
    is_changed: bool = False


def open_segments(
    disk: Disk, path: str, config: LogConfig, *, recovery_point: int, is_clean: bool, log_start: int
) -> Opened:
    """Bring a directory into order, and its last segments into agreement with what was flushed."""
    swaps = _tidy(disk, path)
    names = disk.list(path)
    bases = [int(name.removesuffix(LOG_SUFFIX)) for name in names if _is_of(name, LOG_SUFFIX)]
    _remove_orphans(disk, path, names, bases)
    segments = [Segment(disk, path, base) for base in bases]
    if not segments:
        segments.append(Segment(disk, path, log_start, is_new=True))
    for segment in segments[:-1]:
        segment.is_sealed = True
    opened = Opened(
        segments=segments,
        epochs=_read_epochs(disk, path),
        snapshots=[
            int(name.removesuffix(_SNAPSHOT_SUFFIX)) for name in names if _is_of(name, _SNAPSHOT_SUFFIX)
        ],
        log_end=0,
        report=RecoveryReport(swaps_finished=swaps),
        is_changed=swaps > 0,
    )
    clean_end = _end_of_last_batch(segments[-1]) if is_clean else None
    # What was closed was flushed to its end; there is no recovery point where no checkpoint names the log.
    if clean_end is not None and recovery_point in (0, clean_end):
        opened.log_end = clean_end
    else:
        # It was not closed, or has rotted since.
        _verify_tail(disk, path, opened, config, recovery_point)
    opened.epochs.truncate_end(opened.log_end)
    return opened


def _end_of_last_batch(segment: Segment) -> int | None:
    """The offset after a segment's last batch; None if the batches cannot be gone through."""
    try:
        last = segment.last_batch()
    except KafkaError:
        return None
    return segment.base_offset if last is None else last.header.next_offset


# ---------------------------------------------------------------- unfinished business


def finish_swap(disk: Disk, path: str, base: int) -> None:
    """Give a compacted segment's files their names, the batches last: until then this is repeated."""
    name = f"{path}/{file_name(base, '')}"
    for suffix in SEGMENT_SUFFIXES[1:]:
        if disk.exists(f"{name}{suffix}{CLEANED_SUFFIX}"):
            disk.rename(f"{name}{suffix}{CLEANED_SUFFIX}", f"{name}{suffix}")
    disk.rename(f"{name}{LOG_SUFFIX}{SWAP_SUFFIX}", f"{name}{LOG_SUFFIX}")


def _tidy(disk: Disk, path: str) -> int:
    """Finish the replacements that were committed, undo those that were not; how many were finished."""
    names = disk.list(path)
    swap_suffix = f"{LOG_SUFFIX}{SWAP_SUFFIX}"
    swaps = [int(name.removesuffix(swap_suffix)) for name in names if _is_of(name, swap_suffix)]
    for base in swaps:
        _remove_replaced(disk, path, base, names)
    if swaps:
        # The old segments must be gone before the new one has a name, or both would count.
        disk.flush_blocking(Flush(directories=(path,)))
    for base in swaps:
        finish_swap(disk, path, base)
    for name in disk.list(path):
        if name.endswith((CLEANED_SUFFIX, DELETED_SUFFIX, TEMPORARY_SUFFIX, SWAP_SUFFIX)):
            disk.remove(f"{path}/{name}")
    return len(swaps)


def _remove_replaced(disk: Disk, path: str, base: int, names: Sequence[str]) -> None:
    """Remove the segments that a compacted one replaces: up to its last batch, which is theirs."""
    swap = Segment(disk, path, base, suffix=SWAP_SUFFIX)
    last_offset = max((batch.header.last_offset for batch in swap.batches_from()), default=base)
    for name in names:
        if _is_of(name, LOG_SUFFIX) and base <= (old := int(name.removesuffix(LOG_SUFFIX))) <= last_offset:
            suffixes = SEGMENT_SUFFIXES if old == base else (*SEGMENT_SUFFIXES, _SNAPSHOT_SUFFIX)
            for suffix in suffixes:
                disk.remove(f"{path}/{file_name(old, suffix)}")


def _remove_orphans(disk: Disk, path: str, names: Sequence[str], bases: Sequence[int]) -> None:
    """Indexes of segments that are gone would be taken for those of later ones with the same name."""
    known = frozenset(bases)
    for suffix in SEGMENT_SUFFIXES[1:]:
        for name in names:
            if _is_of(name, suffix) and int(name.removesuffix(suffix)) not in known:
                disk.remove(f"{path}/{name}")


def _is_of(name: str, suffix: str) -> bool:
    stem = name.removesuffix(suffix)
    return stem != name and len(stem) == len(file_name(0, "")) and stem.isdigit()


def _read_epochs(disk: Disk, path: str) -> LeaderEpochs:
    text = read_text(disk, f"{path}/{EPOCHS_NAME}")
    return LeaderEpochs() if text is None else LeaderEpochs.from_text(text)


# ---------------------------------------------------------------- what may be torn


def _verify_tail(disk: Disk, path: str, opened: Opened, config: LogConfig, recovery_point: int) -> None:
    """Verify the segment that holds the recovery point, and all after it; rebuild their indexes."""
    segments = opened.segments
    # A recovery point at the very start of a segment may be from before the roll: then the indexes of the
    # segment before it, and the snapshot at its end, were never flushed.
    first = max(sum(segment.base_offset < recovery_point for segment in segments) - 1, 0)
    opened.verified_from = segments[first].base_offset
    opened.is_changed = True
    verified = cut = removed = 0
    number = first
    while number < len(segments):
        segment = segments[number]
        is_last = number == len(segments) - 1
        scan = Scan(
            segment.file,
            segment.size,
            base_offset=segment.base_offset,
            limit=None if is_last else segments[number + 1].base_offset,
            recovery_point=recovery_point,
            has_holes=config.is_compacted,
        )
        in_doubt_from: int | None = None
        segment.reset_indexes(transactions_too=True)
        for found in scan:
            if isinstance(found, Damage):
                segment.damages.append(found)
                continue
            verified += 1
            position, header = found
            if in_doubt_from is None and header.last_offset >= recovery_point:
                in_doubt_from = position
            segment.note_batch(position, header, config.index_interval_bytes)
            if header.leader_epoch >= 0 and header.leader_epoch != opened.epochs.latest:
                _note_epoch(opened.epochs, header)
        if scan.position_end < segment.size:
            cut += segment.size - scan.position_end
            segment.cut_bytes(scan.position_end)
        if in_doubt_from is not None:
            _write_again(segment, in_doubt_from)
        segment.is_verified = True
        opened.log_end = scan.end_offset
        number += 1
        # What follows a tear was never flushed; a segment that begins after a gap is such a tear, too.
        is_torn = not is_last and segments[number].base_offset != scan.end_offset
        if is_torn:
            removed = len(segments) - number
            for torn in segments[number:]:
                torn.remove()
            del segments[number:]
        segment.is_sealed = False
    if segments[-1].damages and segments[-1].damages[-1].position_end == segments[-1].size:
        # What is damaged stays as it is; the log goes on in another file.
        segments.append(Segment(disk, path, opened.log_end, is_new=True))
    opened.report = RecoveryReport(verified, cut, removed, opened.report.swaps_finished)


class Scan:
    """A walk over the batches of one segment that believes nothing it has not checked, and changes nothing.

    What is damaged below the recovery point is passed over; what is bad from there on is where it ends.
    `limit` is the base offset of the next segment, if there is one. `has_holes` says that batches may have
    been compacted away, also those on both sides of a recovery point that is older than that.
    """

    def __init__(
        self,
        file: File,
        size: int,
        *,
        base_offset: int,
        limit: int | None,
        recovery_point: int,
        has_holes: bool = False,
    ) -> None:
        self.end_offset = base_offset
        self.position_end = 0
        """Up to where the segment is sound, or was flushed and is damaged."""
        self._file = file
        self._size = size
        self._base_offset = base_offset
        self._limit = limit
        self._recovery_point = recovery_point
        self._has_holes = has_holes
        self._chunk = b""
        self._chunk_at = 0

    def __iter__(self) -> Iterator[PlacedBatch | Damage]:
        while self.position_end < self._size:
            position = self.position_end
            header = self._good_batch_at(position)
            if header is not None and not self._has_holes and self._is_missed_by(header):
                header = None
            if header is not None:
                self.end_offset = header.next_offset
                self.position_end += header.size_bytes
                yield PlacedBatch(position, header)
            elif self.end_offset < self._recovery_point:
                yield self._damage_at(position)
            else:
                return
        if self.end_offset < self._recovery_point and (self._limit is None or self.end_offset < self._limit):
            # Bytes that were flushed are missing.
            yield self._damage_at(self._size)

    def damages(self) -> list[Damage]:
        """All damage of a segment that was flushed as a whole."""
        return [each for each in self if isinstance(each, Damage)]

    def _is_missed_by(self, header: BatchHeader) -> bool:
        """Whether a batch leaves out the recovery point, up to which all was flushed."""
        return self.end_offset < self._recovery_point <= header.base_offset

    def _good_batch_at(self, position: int) -> BatchHeader | None:
        try:
            header = read_header(self._bytes_at(position, HEADER_BYTES))
            check_framing(header)
            if header.size_bytes > self._size - position:
                return None
            if header.base_offset < self.end_offset or header.last_offset_delta < 0:
                return None
            # No CRC covers its offset, so bounds must do. A flush ends with a batch.
            if header.last_offset >= self._offset_limit():
                return None
            if header.base_offset < self._recovery_point <= header.last_offset:
                return None
            check_crc(self._bytes_at(position, header.size_bytes), 0, header)
        except (MalformedMessage, KafkaError):
            return None
        return header

    def _offset_limit(self) -> int:
        """The first offset that no batch of the segment can reach."""
        limit = self._base_offset + RELATIVE_OFFSET_MAX + 1
        return limit if self._limit is None else min(limit, self._limit)

    def _damage_at(self, position: int) -> Damage:
        """A stretch without batches up to the next good one, where the walk goes on."""
        following = self._next_good_after(position)
        if following is None:
            ends = [self._recovery_point] if self._limit is None else [self._recovery_point, self._limit]
            damage = Damage(position, self._size, self.end_offset, min(ends))
        else:
            damage = Damage(position, following.position, self.end_offset, following.header.base_offset)
        self.position_end, self.end_offset = damage.position_end, damage.offset_end
        return damage

    def _next_good_after(self, position: int) -> PlacedBatch | None:
        """The next good batch; every byte that could be the magic of one is tried.

        It may lie beyond the recovery point, which the damage may reach up to.
        """
        data = self._file.read(position, self._size - position)
        magic = bytes([MAGIC])
        at = data.find(magic, MAGIC_AT + 1)
        while at >= 0:
            start = position + at - MAGIC_AT
            header = self._good_batch_at(start)
            if header is not None:
                return PlacedBatch(start, header)
            at = data.find(magic, at + 1)
        return None

    def _bytes_at(self, position: int, size: int) -> memoryview:
        if not self._chunk_at <= position <= position + size <= self._chunk_at + len(self._chunk):
            self._chunk = self._file.read(position, max(size, _READ_BYTES))
            self._chunk_at = position
        start = position - self._chunk_at
        return memoryview(self._chunk)[start : start + size]


def _write_again(segment: Segment, position_first: int) -> None:
    """Have written by the next flush what may be in the page cache alone.

    After a flush that failed the kernel takes pages for clean that never reached the disk; another process
    reads them, and its flush passes over them. In place, since what did reach the disk must not be at risk.
    """
    for position in range(position_first, segment.size, _READ_BYTES):
        size = min(_READ_BYTES, segment.size - position)
        segment.file.write_at(position, segment.file.read(position, size))


def _note_epoch(epochs: LeaderEpochs, header: BatchHeader) -> None:
    """Take the epoch of a batch over, unless the checkpoint knows it already."""
    if epochs.epoch_at(header.base_offset) != header.leader_epoch:
        epochs.assign(epoch=header.leader_epoch, start_offset=header.base_offset)
