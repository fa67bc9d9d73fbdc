"""Whole batches: records and header together, from objects to bytes and back."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum, unique
from operator import itemgetter
from typing import Final

from moldau.model.errors import MalformedMessage
from moldau.wire.crc import crc32c
from moldau.wire.records import header as fields
from moldau.wire.records import kernel
from moldau.wire.records.compression import DECOMPRESSED_BYTES_MAX, Codec, compress, decompress
from moldau.wire.records.header import (
    ATTRIBUTES_AT,
    BATCH_LENGTH_MIN,
    CODEC_MASK,
    CONTROL_FLAG,
    CRC_AT,
    HEADER,
    HEADER_BYTES,
    LOG_APPEND_TIME_FLAG,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    Buffer,
    read_header,
)
from moldau.wire.records.record import Encoded, Record, Run

_CONTROL_KEY: Final = struct.Struct(">hh")
_END_TRANSACTION_MARKER: Final = struct.Struct(">hi")
_CRC: Final = struct.Struct(">I")


@unique
class ControlType(IntEnum):
    """What a control record says."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


def encode_batch(
    records: Sequence[Record],
    *,
    codec: Codec = Codec.NONE,
    level: int | None = None,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    is_transactional: bool = False,
    is_control: bool = False,
    log_append_time: int | None = None,
) -> bytes:
    """A batch of at least one record, in the order of their offsets, which are at or after `base_offset`."""
    assert records, "a batch has at least one record"
    base_timestamp = records[0].timestamp
    max_timestamp = max(map(itemgetter(1), records)) if log_append_time is None else log_append_time
    attributes = (
        (TRANSACTIONAL_FLAG if is_transactional else 0)
        | (CONTROL_FLAG if is_control else 0)
        | (LOG_APPEND_TIME_FLAG if log_append_time is not None else 0)
    )
    return seal(
        kernel.encode(records, base_offset, base_timestamp),
        BatchHeader(
            base_offset=base_offset,
            batch_length=0,
            leader_epoch=leader_epoch,
            magic=MAGIC,
            crc=0,
            attributes=attributes,
            last_offset_delta=records[-1].offset - base_offset,
            base_timestamp=base_timestamp,
            max_timestamp=max_timestamp,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
            count=len(records),
        ),
        codec=codec,
        level=level,
    )


def seal(payload: Buffer, header: BatchHeader, *, codec: Codec, level: int | None = None) -> bytes:
    """Compress a payload and put a header before it; length, magic, codec and CRC are made to agree."""
    return _with_header(compress(codec, payload, level), header, codec)


@dataclass(frozen=True, slots=True)
class Packed:
    """Records, encoded and compressed: a batch but for the header, which says who sends them."""

    body: Buffer
    codec: Codec
    count: int
    base_timestamp: int
    max_timestamp: int

    @property
    def size_bytes(self) -> int:
        """How large the batch will be."""
        return HEADER_BYTES + len(self.body)

    def sealed(self, *, producer_id: int, producer_epoch: int, base_sequence: int) -> bytes:
        """The batch as this producer sends it."""
        header = BatchHeader(
            base_offset=0,
            batch_length=0,
            leader_epoch=NO_LEADER_EPOCH,
            magic=MAGIC,
            crc=0,
            attributes=0,
            last_offset_delta=self.count - 1,
            base_timestamp=self.base_timestamp,
            max_timestamp=self.max_timestamp,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
            count=self.count,
        )
        return _with_header(self.body, header, self.codec)

    def records(self) -> list[Record]:
        """The records again, with offsets from 0 on."""
        return kernel.decode(decompress(self.codec, self.body), self.count, 0, self.base_timestamp, None)

    def halves(self) -> tuple[Packed, Packed]:
        """The first half of the records, and the others."""
        assert self.count > 1, "a single record has no halves"
        records = self.records()
        middle = self.count // 2
        return self._part(records[:middle]), self._part(records[middle:])

    def _part(self, records: list[Record]) -> Packed:
        timestamps = [record.timestamp for record in records]
        payload = kernel.encode(records, records[0].offset, timestamps[0])
        return pack(Encoded(payload, len(records), timestamps[0], max(timestamps)), codec=self.codec)


def pack(encoded: Encoded, *, codec: Codec, level: int | None = None) -> Packed:
    """Compress what `columns.from_arrow` made."""
    payload, count, base_timestamp, max_timestamp = encoded
    return Packed(compress(codec, payload, level), codec, count, base_timestamp, max_timestamp)


def _with_header(body: Buffer, header: BatchHeader, codec: Codec) -> bytes:
    sealed = header._replace(
        batch_length=BATCH_LENGTH_MIN + len(body),
        magic=MAGIC,
        crc=0,
        attributes=header.attributes & ~CODEC_MASK | codec,
    )
    head = bytearray(HEADER.pack(*sealed))
    # The CRC is taken in two steps, so that the body is copied once, into the result.
    _CRC.pack_into(head, CRC_AT, crc32c(body, crc32c(memoryview(head)[ATTRIBUTES_AT:])))
    return b"".join((head, body))


def decode_batch(
    buffer: Buffer, *, bytes_max: int = DECOMPRESSED_BYTES_MAX
) -> tuple[BatchHeader, list[Record]]:
    """The batch at the start of a buffer, after checking its CRC."""
    header = read_header(buffer)
    fields.check_framing(header)
    fields.check_crc(buffer, 0, header)
    return header, decode_records(header, payload_of(buffer, 0, header, bytes_max=bytes_max))


def decode_records(header: BatchHeader, payload: Buffer) -> list[Record]:
    """The records of a payload, with the offsets and timestamps that the header gives them."""
    log_append_time = header.max_timestamp if header.is_log_append_time else None
    return kernel.decode(payload, header.count, header.base_offset, header.base_timestamp, log_append_time)


def run_of(header: BatchHeader, payload: Buffer) -> Run:
    """A payload with the facts that `kernel.to_columns` needs of its header."""
    log_append_time = header.max_timestamp if header.is_log_append_time else None
    return payload, header.count, header.base_offset, header.base_timestamp, log_append_time


def payload_of(
    buffer: Buffer, position: int, header: BatchHeader, *, bytes_max: int = DECOMPRESSED_BYTES_MAX
) -> Buffer:
    """The records of the batch at `position`, decompressed; a view of the buffer if nothing is compressed."""
    size = LOG_OVERHEAD_BYTES + header.batch_length
    if header.batch_length < BATCH_LENGTH_MIN or len(buffer) - position < size:
        raise MalformedMessage(f"a batch of {size} bytes is cut off after {len(buffer) - position}")
    body = memoryview(buffer)[position + HEADER_BYTES : position + size]
    return decompress(header.codec, body, bytes_max) if header.codec else body


# ---------------------------------------------------------------- control records


def control_key(kind: ControlType, version: int = 0) -> bytes:
    """The key of a control record."""
    return _CONTROL_KEY.pack(version, kind)


def control_type(key: bytes | None) -> ControlType | None:
    """What a control record is; None for a type that this version does not know, which readers skip."""
    if key is None or len(key) < _CONTROL_KEY.size:
        raise MalformedMessage("the key of a control record is too short")
    version, kind = _CONTROL_KEY.unpack_from(key)
    if version < 0:
        raise MalformedMessage(f"the key of a control record has version {version}")
    return ControlType(kind) if kind in ControlType._value2member_map_ else None


def encode_control_batch(
    kind: ControlType,
    value: bytes,
    *,
    timestamp: int,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    is_transactional: bool = False,
) -> bytes:
    """A control batch of one record; the value is a message that the caller has encoded."""
    return encode_batch(
        [Record(base_offset, timestamp, control_key(kind), value)],
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_transactional=is_transactional,
        is_control=True,
    )


def encode_end_transaction_marker(
    *,
    is_commit: bool,
    coordinator_epoch: int,
    timestamp: int,
    producer_id: int,
    producer_epoch: int,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
) -> bytes:
    """The marker that ends a transaction in one partition."""
    return encode_control_batch(
        ControlType.COMMIT if is_commit else ControlType.ABORT,
        _END_TRANSACTION_MARKER.pack(0, coordinator_epoch),
        timestamp=timestamp,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_transactional=True,
    )


def coordinator_epoch_of(value: bytes | None) -> int:
    """The coordinator epoch in the value of an ABORT or COMMIT marker."""
    if value is None or len(value) < _END_TRANSACTION_MARKER.size:
        raise MalformedMessage("the value of an end-of-transaction marker is too short")
    epoch: int = _END_TRANSACTION_MARKER.unpack_from(value)[1]
    return epoch
