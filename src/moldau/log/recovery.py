"""Opening a log's directory: what was begun is finished or undone, and what may be torn is verified.

Below the recovery point everything was flushed, so a batch that is bad there is damage: it is reported and
kept, and the rest is served. From the recovery point on, the first bad batch is where a crash tore the log,
and it ends there.
"""

from __future__ import annotations

from collections.abc import Sequence
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
from moldau.world.ports import Disk, Flush

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
    if is_clean:
        last = segments[-1].last_batch()
        opened.log_end = segments[-1].base_offset if last is None else last.header.next_offset
    else:
        _verify_tail(disk, path, opened, config, recovery_point)
    opened.epochs.truncate_end(opened.log_end)
    return opened


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
        scan = _Scan(segment, None if is_last else segments[number + 1].base_offset, recovery_point)
        scan.run(opened.epochs, config)
        verified += scan.batches
        cut += scan.bytes_cut
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


class _Scan:
    """A walk over one segment that believes nothing it has not checked."""

    def __init__(self, segment: Segment, limit: int | None, recovery_point: int) -> None:
        self.end_offset = segment.base_offset
        self.batches = 0
        self.bytes_cut = 0
        self._segment = segment
        self._limit = limit
        self._recovery_point = recovery_point
        self._chunk = b""
        self._chunk_at = 0
        self._in_doubt_from: int | None = None

    def run(self, epochs: LeaderEpochs, config: LogConfig) -> None:
        """Index every good batch; cut the file where it is torn, note where it is damaged."""
        segment, position = self._segment, 0
        segment.reset_indexes(transactions_too=True)
        while position < segment.size:
            header = self._good_batch_at(position)
            if header is not None:
                self.batches += 1
                if self._in_doubt_from is None and header.last_offset >= self._recovery_point:
                    self._in_doubt_from = position
                segment.note(position, header, interval_bytes=config.index_interval_bytes)
                if header.leader_epoch >= 0 and header.leader_epoch != epochs.latest:
                    _note_epoch(epochs, header)
                self.end_offset = header.next_offset
                position += header.size_bytes
            elif self.end_offset < self._recovery_point:
                position = self._note_damage(position)
            else:
                self.bytes_cut = segment.size - position
                segment.cut_bytes(position)
        if self.end_offset < self._recovery_point:
            # Bytes that were flushed are missing.
            self._note_damage(position)
        self._write_again()

    def _write_again(self) -> None:
        """Have written by the next flush what may be in the page cache alone.

        After a flush that failed the kernel takes pages for clean that never reached the disk; another
        process reads them, and its flush passes over them. In place, since what did reach the disk must not
        be at risk.
        """
        if self._in_doubt_from is None:
            return
        for position in range(self._in_doubt_from, self._segment.size, _READ_BYTES):
            size = min(_READ_BYTES, self._segment.size - position)
            self._segment.file.write_at(position, self._segment.file.read(position, size))

    def _good_batch_at(self, position: int) -> BatchHeader | None:
        try:
            header = read_header(self._bytes_at(position, HEADER_BYTES))
            check_framing(header)
            if header.size_bytes > self._segment.size - position:
                return None
            if header.base_offset < self.end_offset or header.last_offset_delta < 0:
                return None
            if header.last_offset >= self._offset_limit():
                return None
            check_crc(self._bytes_at(position, header.size_bytes), 0, header)
        except (MalformedMessage, KafkaError):
            return None
        return header

    def _offset_limit(self) -> int:
        """The first offset that the next batch cannot reach: no CRC covers its offset, so bounds must do."""
        limits = [self._segment.base_offset + RELATIVE_OFFSET_MAX + 1]
        if self._limit is not None:
            limits.append(self._limit)
        if self.end_offset < self._recovery_point:
            # A flush ends with a batch.
            limits.append(self._recovery_point)
        return min(limits)

    def _note_damage(self, position: int) -> int:
        """Remember a stretch without batches up to the next good one; gives the position of that one."""
        segment = self._segment
        following = self._next_good_position(position)
        header = None if following is None else self._good_batch_at(following)
        position_end = segment.size if following is None else following
        ends = [self._recovery_point] if self._limit is None else [self._recovery_point, self._limit]
        offset_end = min(ends) if header is None else header.base_offset
        segment.damages.append(Damage(position, position_end, self.end_offset, offset_end))
        self.end_offset = offset_end
        return position_end

    def _next_good_position(self, position: int) -> int | None:
        """Where the next good batch begins; every byte that could be the magic of one is tried."""
        data = self._segment.file.read(position, self._segment.size - position)
        magic = bytes([MAGIC])
        at = data.find(magic, MAGIC_AT + 1)
        while at >= 0:
            if self._good_batch_at(position + at - MAGIC_AT) is not None:
                return position + at - MAGIC_AT
            at = data.find(magic, at + 1)
        return None

    def _bytes_at(self, position: int, size: int) -> memoryview:
        if not self._chunk_at <= position <= position + size <= self._chunk_at + len(self._chunk):
            self._chunk = self._segment.file.read(position, max(size, _READ_BYTES))
            self._chunk_at = position
        start = position - self._chunk_at
        return memoryview(self._chunk)[start : start + size]


def _note_epoch(epochs: LeaderEpochs, header: BatchHeader) -> None:
    """Take the epoch of a batch over, unless the checkpoint knows it already."""
    if epochs.epoch_at(header.base_offset) != header.leader_epoch:
        epochs.assign(epoch=header.leader_epoch, start_offset=header.base_offset)
