"""What a fetch brought of one partition: which batches a consumer may see, and where it goes on after."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from moldau.wire.messages.fetch import AbortedTransaction
from moldau.wire.records.batch import ControlType, control_type, decode_records, payload_of, run_of
from moldau.wire.records.header import BatchHeader, Buffer, check_crc, iter_headers
from moldau.wire.records.record import Record, Run


class Visible(NamedTuple):
    """A batch with records for the consumer, still encoded."""

    buffer: Buffer
    position: int
    header: BatchHeader

    def records(self, offset_from: int) -> list[Record]:
        """Its records from an offset on."""
        payload = payload_of(self.buffer, self.position, self.header)
        records = decode_records(self.header, payload)
        # A fetch gives whole batches, so only the first can start before what was asked for.
        if self.header.base_offset >= offset_from:
            return records
        return [record for record in records if record.offset >= offset_from]

    def run(self) -> Run:
        """Its records as the kernel makes columns of them."""
        return run_of(self.header, payload_of(self.buffer, self.position, self.header))


@dataclass(frozen=True, slots=True)
class Fetched:
    """The batches to read, the offset behind all that came, and the epoch of the last batch (-1: nothing)."""

    batches: deque[Visible]
    next_offset: int
    last_epoch: int
    size_bytes: int


def read_fetched(
    buffer: Buffer, *, fetch_offset: int, aborted: Iterable[AbortedTransaction], check_crcs: bool
) -> Fetched:
    """Sort out a fetch: control batches and those of aborted transactions are passed over.

    A producer's batches are aborted from the first offset of an aborted transaction up to its ABORT marker.
    """
    upcoming = deque(sorted(aborted, key=lambda transaction: transaction.first_offset))
    aborting: dict[int, None] = {}
    batches: deque[Visible] = deque()
    next_offset, last_epoch = fetch_offset, -1
    for position, header in iter_headers(buffer):
        if check_crcs:
            check_crc(buffer, position, header)
        while upcoming and upcoming[0].first_offset <= header.last_offset:
            aborting[upcoming.popleft().producer_id] = None
        if header.is_control:
            if header.producer_id in aborting and _is_abort(buffer, position, header):
                del aborting[header.producer_id]
            is_hidden = True
        else:
            is_hidden = header.is_transactional and header.producer_id in aborting
        if not is_hidden and header.count and header.next_offset > fetch_offset:
            batches.append(Visible(buffer, position, header))
        next_offset, last_epoch = max(next_offset, header.next_offset), header.leader_epoch
    return Fetched(batches, next_offset, last_epoch, len(buffer))


def _is_abort(buffer: Buffer, position: int, header: BatchHeader) -> bool:
    records = decode_records(header, payload_of(buffer, position, header))
    return bool(records) and control_type(records[0].key) is ControlType.ABORT
