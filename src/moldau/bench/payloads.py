"""Records whose bytes say which they are, so that what is read back can be checked byte for byte."""

from __future__ import annotations

import hashlib
import struct
import time
from dataclasses import dataclass

from moldau.wire.records.batch import encode_batch
from moldau.wire.records.header import HEADER_BYTES, Buffer, iter_headers
from moldau.wire.records.record import Record

NUMBER = struct.Struct(">Q")
VALUE_BYTES_MIN = NUMBER.size
# A batch may be stamped by the broker up to here: base offset, length (which stays), leader epoch, magic.
_STAMPED_BYTES = 17
_RECORD_OVERHEAD_BYTES = 10


class WrongPayload(Exception):
    """What was read is not what was written."""


def filler(size: int) -> bytes:
    """Bytes that do not compress, the same in every run."""
    return hashlib.shake_256(b"moldau").digest(size)


def value(number: int, size: int) -> bytes:
    """The value of the record with a number: the number, and filler up to the size."""
    assert size >= VALUE_BYTES_MIN, size
    return NUMBER.pack(number) + filler(size - NUMBER.size)


@dataclass(frozen=True, slots=True)
class Batches:
    """Different batches of one size, to be sent over and over in their order."""

    each: tuple[bytes, ...]
    records_per_batch: int
    value_bytes: int

    def nth(self, number: int) -> bytes:
        """The batch that is sent as the `number`th."""
        return self.each[number % len(self.each)]


def batches(*, value_bytes: int, records_per_batch: int, different: int = 16) -> Batches:
    """Prepared batches without compression, all of the same length, dated now."""
    now_ms = time.time_ns() // 1_000_000
    made = []
    for index in range(different):
        first = index * records_per_batch
        records = [
            Record(offset, now_ms, None, value(first + offset, value_bytes))
            for offset in range(records_per_batch)
        ]
        made.append(encode_batch(records))
    assert len({len(batch) for batch in made}) == 1, "batches of one size"
    return Batches(tuple(made), records_per_batch, value_bytes)


def batches_of_bytes(batch_bytes: int, *, value_bytes: int, different: int = 16) -> Batches:
    """The same, with as many records as fit into a size."""
    records = max(1, (batch_bytes - HEADER_BYTES) // (value_bytes + _RECORD_OVERHEAD_BYTES))
    return batches(value_bytes=value_bytes, records_per_batch=records, different=different)


def check_batches(read: Buffer, sent: Batches, *, first: int) -> int:
    """Compare what was read with what was sent from the `first` batch on; gives the next batch's number.

    A batch that is cut off at the end is left out, as a fetch may end within one.
    """
    number = first
    for position, header in iter_headers(read):
        expected = sent.nth(number)
        end = position + header.size_bytes
        # As bytes, because views are compared element by element.
        if bytes(read[position + _STAMPED_BYTES : end]) != expected[_STAMPED_BYTES:]:
            raise WrongPayload(f"batch {number} is not what was sent")
        if header.base_offset != number * sent.records_per_batch:
            raise WrongPayload(f"batch {number} is at offset {header.base_offset}")
        number += 1
    return number
