"""The 61-byte header of a version 2 record batch: reading it, and what a broker changes in place."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple, TypeAlias

from moldau.model.errors import ErrorCode, KafkaError, MalformedMessage
from moldau.model.ids import SEQUENCE_MAX
from moldau.wire.crc import crc32c

Buffer: TypeAlias = bytes | bytearray | memoryview
WritableBuffer: TypeAlias = bytearray | memoryview

HEADER_BYTES: Final = 61
LOG_OVERHEAD_BYTES: Final = 12
"""Base offset and batch length: the two fields that `batch_length` does not count."""
BATCH_LENGTH_MIN: Final = HEADER_BYTES - LOG_OVERHEAD_BYTES
MAGIC: Final = 2

CODEC_MASK: Final = 0x07
LOG_APPEND_TIME_FLAG: Final = 0x08
TRANSACTIONAL_FLAG: Final = 0x10
CONTROL_FLAG: Final = 0x20
DELETE_HORIZON_FLAG: Final = 0x40

NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
NO_SEQUENCE: Final = -1
NO_TIMESTAMP: Final = -1
NO_LEADER_EPOCH: Final = -1

HEADER: Final = struct.Struct(">qiibIhiqqqhii")
assert HEADER.size == HEADER_BYTES

_BATCH_LENGTH_AT: Final = 8
_LEADER_EPOCH_AT: Final = 12
MAGIC_AT: Final = 16
CRC_AT: Final = 17
ATTRIBUTES_AT: Final = 21
_BASE_TIMESTAMP_AT: Final = 27
_MAX_TIMESTAMP_AT: Final = 35

_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_UINT32: Final = struct.Struct(">I")
_INT64: Final = struct.Struct(">q")


class BatchHeader(NamedTuple):
    """What a batch says about itself before its (possibly compressed) records."""

    base_offset: int
    batch_length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    # Named as in Kafka; it hides tuple.count, which nobody needs on a header.
    count: int  # type: ignore[assignment]

    @property
    def size_bytes(self) -> int:
        """The whole batch, from its base offset to its last record."""
        return LOG_OVERHEAD_BYTES + self.batch_length

    @property
    def last_offset(self) -> int:
        """Offset of the last record that the batch was written with; compaction keeps it."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """The first offset after this batch."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec(self) -> int:
        """Number of the compression codec; see `compression.Codec`."""
        return self.attributes & CODEC_MASK

    @property
    def is_transactional(self) -> bool:
        """Whether the batch belongs to a transaction."""
        return self.attributes & TRANSACTIONAL_FLAG != 0

    @property
    def is_control(self) -> bool:
        """Whether the records are control records, which consumers skip."""
        return self.attributes & CONTROL_FLAG != 0

    @property
    def is_log_append_time(self) -> bool:
        """Whether every record has the broker's time `max_timestamp` in place of its own."""
        return self.attributes & LOG_APPEND_TIME_FLAG != 0

    @property
    def has_delete_horizon(self) -> bool:
        """Whether `base_timestamp` says when tombstones and markers in this batch may go (KIP-534)."""
        return self.attributes & DELETE_HORIZON_FLAG != 0

    @property
    def delete_horizon_ms(self) -> int | None:
        """When tombstones and markers in this batch may be removed, once the cleaner has decided it."""
        return self.base_timestamp if self.has_delete_horizon else None

    @property
    def has_producer_id(self) -> bool:
        """Whether an idempotent or transactional producer wrote the batch."""
        return self.producer_id > NO_PRODUCER_ID

    @property
    def last_sequence(self) -> int:
        """Sequence number of the last record; numbers wrap from 2^31-1 to 0."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & SEQUENCE_MAX


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """The header at `position`, taken at its word: length, magic and CRC are the caller's to check."""
    try:
        # As `_make` does, without a call of its own: this is done for every batch.
        return tuple.__new__(BatchHeader, HEADER.unpack_from(buffer, position))
    except struct.error:
        raise MalformedMessage(
            f"a batch header needs {HEADER_BYTES} bytes, {max(len(buffer) - position, 0)} are left"
        ) from None


def placed(header: BatchHeader, *, base_offset: int, leader_epoch: int) -> BatchHeader:
    """The header as it is once its batch has its place in a log; see `stamp`."""
    return tuple.__new__(BatchHeader, (base_offset, header[1], leader_epoch, *header[3:]))


def iter_headers(buffer: Buffer) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of each whole batch; a batch that is cut off at the end is left out.

    A fetch may end within a batch, and so may a segment after a crash, so that is no error; a length or magic
    that no batch can have is one.
    """
    position, end = 0, len(buffer)
    while end - position >= HEADER_BYTES:
        header: BatchHeader = tuple.__new__(BatchHeader, HEADER.unpack_from(buffer, position))
        check_framing(header)
        size = LOG_OVERHEAD_BYTES + header.batch_length
        if size > end - position:
            return
        yield position, header
        position += size


def check_framing(header: BatchHeader) -> None:
    """Raise unless length and magic are those of a version 2 batch."""
    if header.batch_length < BATCH_LENGTH_MIN:
        raise MalformedMessage(f"batch length {header.batch_length} is below the minimum {BATCH_LENGTH_MIN}")
    if header.magic != MAGIC:
        raise MalformedMessage(f"batch magic is {header.magic}, not {MAGIC}")


def crc_of(buffer: Buffer, position: int, size: int) -> int:
    """CRC-32C of the batch of `size` bytes at `position`, from its attributes to its end."""
    return crc32c(memoryview(buffer)[position + ATTRIBUTES_AT : position + size])


def check_crc(buffer: Buffer, position: int, header: BatchHeader) -> None:
    """Raise CORRUPT_MESSAGE unless the bytes of the batch agree with the CRC in its header."""
    size = header.size_bytes
    if len(buffer) - position < size:
        raise MalformedMessage(f"a batch of {size} bytes is cut off after {len(buffer) - position}")
    actual = crc_of(buffer, position, size)
    if actual != header.crc:
        raise KafkaError(
            ErrorCode.CORRUPT_MESSAGE,
            f"the batch at offset {header.base_offset} says CRC {header.crc:#010x}, its bytes {actual:#010x}",
        )


def stamp(buffer: WritableBuffer, position: int, *, base_offset: int, leader_epoch: int) -> None:
    """Give a batch its place in the log; both fields are outside the CRC, so nothing else changes."""
    _INT64.pack_into(buffer, position, base_offset)
    _INT32.pack_into(buffer, position + _LEADER_EPOCH_AT, leader_epoch)


def stamp_log_append_time(buffer: WritableBuffer, position: int, timestamp_ms: int) -> None:
    """Replace the producer's timestamps by the broker's; records keep their deltas, readers ignore them."""
    _set_attributes(buffer, position, LOG_APPEND_TIME_FLAG)
    _INT64.pack_into(buffer, position + _MAX_TIMESTAMP_AT, timestamp_ms)
    stamp_crc(buffer, position)


def stamp_create_time(buffer: WritableBuffer, position: int, max_timestamp_ms: int) -> None:
    """Leave records their own timestamps, and correct the greatest, which lookups by time rely on."""
    (attributes,) = _INT16.unpack_from(buffer, position + ATTRIBUTES_AT)
    _INT16.pack_into(buffer, position + ATTRIBUTES_AT, attributes & ~LOG_APPEND_TIME_FLAG)
    _INT64.pack_into(buffer, position + _MAX_TIMESTAMP_AT, max_timestamp_ms)
    stamp_crc(buffer, position)


def set_delete_horizon(buffer: WritableBuffer, position: int, horizon_ms: int) -> None:
    """Note when tombstones may go, in place of the base timestamp.

    Record deltas are relative to that: rewrite them with `kernel.rebase_timestamps` first.
    """
    _set_attributes(buffer, position, DELETE_HORIZON_FLAG)
    _INT64.pack_into(buffer, position + _BASE_TIMESTAMP_AT, horizon_ms)
    stamp_crc(buffer, position)


def stamp_crc(buffer: WritableBuffer, position: int) -> None:
    """Compute the CRC again after a change to what it covers."""
    (batch_length,) = _INT32.unpack_from(buffer, position + _BATCH_LENGTH_AT)
    crc = crc_of(buffer, position, LOG_OVERHEAD_BYTES + batch_length)
    _UINT32.pack_into(buffer, position + CRC_AT, crc)


def _set_attributes(buffer: WritableBuffer, position: int, flag: int) -> None:
    (attributes,) = _INT16.unpack_from(buffer, position + ATTRIBUTES_AT)
    _INT16.pack_into(buffer, position + ATTRIBUTES_AT, attributes | flag)
