"""Places in the log: whether two logs agree up to one, and where fetched batches end."""

from __future__ import annotations

from moldau.model.errors import MalformedMessage
from moldau.model.ids import Offset
from moldau.raft.log_view import LogView, OffsetAndEpoch
from moldau.wire.records.header import check_crc, iter_headers


def needs_snapshot(log: LogView, position: OffsetAndEpoch) -> bool:
    """Whether a replica whose log ends at `position` needs what only a snapshot holds any more."""
    start, snapshot = log.start_offset, log.latest_snapshot
    if position.offset < start:
        return True
    if position.offset == start:
        # Nothing here tells the epoch of the record before the start, except a snapshot that ends there.
        return start > 0 and position != snapshot
    # A log that agrees with the snapshot and goes beyond it ends in an epoch that is no older.
    return snapshot.offset <= position.offset and position.epoch < snapshot.epoch


def divergence(log: LogView, position: OffsetAndEpoch) -> OffsetAndEpoch | None:
    """Where a replica whose log ends at `position` should look for the point at which it parts from `log`."""
    if position.offset == log.start_offset:
        return None
    end = log.end_of_epoch(position.epoch)
    return end if end.epoch != position.epoch or end.offset < position.offset else None


def end_of_batches(records: bytes, *, start: Offset) -> Offset:
    """The offset after these batches; an error unless they are sound and in sequence from `start` on."""
    end, size = start, 0
    for position, header in iter_headers(records):
        if header.base_offset != end or header.last_offset_delta < 0:
            raise MalformedMessage(f"a batch at offset {header.base_offset} where {end} was due")
        check_crc(records, position, header)
        end = Offset(header.next_offset)
        size = position + header.size_bytes
    if size != len(records):
        raise MalformedMessage("the last batch is cut off")
    return end
