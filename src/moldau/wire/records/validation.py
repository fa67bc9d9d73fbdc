"""What a broker checks of a batch that a client produced, and the changes it makes before it appends it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, unique
from functools import cached_property
from typing import Final, NamedTuple

from moldau.model.errors import ErrorCode, KafkaError, MalformedMessage
from moldau.wire.records import header as fields
from moldau.wire.records import kernel
from moldau.wire.records.batch import decode_records, payload_of, seal
from moldau.wire.records.compression import (
    DECOMPRESSED_BYTES_MAX,
    GZIP_LEVEL_DEFAULT,
    LZ4_LEVEL_DEFAULT,
    ZSTD_LEVEL_DEFAULT,
    Codec,
)
from moldau.wire.records.header import NO_TIMESTAMP, BatchHeader, Buffer, WritableBuffer
from moldau.wire.records.record import RULE_TEXTS, Rule, Walk

_INT64_MAX: Final = 2**63 - 1
_INT64_MIN: Final = -(2**63)
_HOUR_MS: Final = 60 * 60 * 1000
_CODEC_MAX: Final = max(Codec)


@unique
class TimestampType(Enum):
    """Whose clock dates the records of a topic."""

    CREATE_TIME = "CreateTime"
    LOG_APPEND_TIME = "LogAppendTime"


@dataclass(frozen=True)
class TopicRules:
    """The settings of a topic that bear on what may be appended to it."""

    message_bytes_max: int = 1024 * 1024 + 12
    timestamp_type: TimestampType = TimestampType.CREATE_TIME
    timestamp_before_ms_max: int = _INT64_MAX
    timestamp_after_ms_max: int = _HOUR_MS
    codec: Codec | None = None
    """None: whatever the producer chose."""
    gzip_level: int = GZIP_LEVEL_DEFAULT
    lz4_level: int = LZ4_LEVEL_DEFAULT
    zstd_level: int = ZSTD_LEVEL_DEFAULT
    is_compacted: bool = False
    decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX

    @cached_property
    def keeps_plain_batches(self) -> bool:
        """Whether a batch that is not compressed and dated by its producer is appended as it came."""
        return self.timestamp_type is TimestampType.CREATE_TIME and self.codec in (None, Codec.NONE)

    def level_of(self, codec: Codec) -> int | None:
        """The level at which the broker compresses with a codec."""
        return {Codec.GZIP: self.gzip_level, Codec.LZ4: self.lz4_level, Codec.ZSTD: self.zstd_level}.get(
            codec
        )


@dataclass(frozen=True, slots=True)
class RecordError:
    """Why one record of a batch was rejected, by its place in the batch."""

    index: int
    message: str


class RecordsRejected(KafkaError):
    """A batch rejected for some of its records, which Produce names from version 8 on (KIP-467)."""

    def __init__(self, code: ErrorCode, message: str, record_errors: tuple[RecordError, ...]) -> None:
        super().__init__(code, message)
        self.record_errors = record_errors


class Accepted(NamedTuple):
    """A batch as it is to be appended, once it is stamped with its place in the log."""

    batch: WritableBuffer
    header: BatchHeader
    log_append_time: int
    """What the producer is told: the broker's time, or -1 where records keep their own."""


def accept(batch: Buffer, rules: TopicRules, *, now_ms: int) -> Accepted:
    """Check a produced batch as Kafka's broker does, and make it fit the topic; raises KafkaError.

    A writable buffer is changed in place. Records of a compressed batch are not looked at unless the topic is
    compacted, whose keys must be there, or compresses differently; an uncompressed batch is always walked.
    """
    # All at once, as nearly every batch is sound; what is wrong with one that is not is found out below.
    if rules.keeps_plain_batches:
        header = kernel.plain_header(
            batch,
            rules.message_bytes_max,
            now_ms,
            rules.timestamp_before_ms_max,
            rules.timestamp_after_ms_max,
            rules.is_compacted,
        )
        if header is not None and fields.crc_of(batch, 0, len(batch)) == header.crc:
            return tuple.__new__(Accepted, (_writable(batch), header, NO_TIMESTAMP))
    return _accept_step_by_step(batch, rules, now_ms)


def _accept_step_by_step(batch: Buffer, rules: TopicRules, now_ms: int) -> Accepted:
    header = _checked_header(batch, rules)
    payload: Buffer | None
    if not header.attributes & fields.CODEC_MASK:
        payload = memoryview(batch)[fields.HEADER_BYTES :]
    else:
        payload = _opened(batch, header, rules) if _must_be_opened(header, rules) else None
    max_timestamp = header.max_timestamp
    if payload is None:
        _check_timestamps_of_header(header, rules, now_ms)
    else:
        walk = _checked_walk(header, payload, rules, now_ms)
        if not header.is_log_append_time:
            max_timestamp = header.base_timestamp + walk.timestamp_delta_max

    writable = _writable(batch)
    log_append_time = NO_TIMESTAMP
    if payload is not None and rules.codec is not None and rules.codec != header.codec:
        writable = bytearray(seal(payload, header, codec=rules.codec, level=rules.level_of(rules.codec)))
        # The producer kept to the limit; the topic's own codec may not.
        _check_size(len(writable), rules)
        header = fields.read_header(writable)
    if rules.timestamp_type is TimestampType.LOG_APPEND_TIME:
        log_append_time = now_ms
        fields.stamp_log_append_time(writable, 0, now_ms)
        header = fields.read_header(writable)
    elif max_timestamp != header.max_timestamp or header.is_log_append_time:
        fields.stamp_create_time(writable, 0, max_timestamp)
        header = fields.read_header(writable)
    return Accepted(writable, header, log_append_time)


def _checked_header(batch: Buffer, rules: TopicRules) -> BatchHeader:
    """The header of what must be exactly one batch, with the checks that need no record."""
    try:
        header = fields.read_header(batch)
    except MalformedMessage as error:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from None
    # All at once, as nearly every compressed batch is sound.
    offset, length, _, magic, crc, attributes, delta, _, _, producer_id, _, sequence, count = header
    size = fields.LOG_OVERHEAD_BYTES + length
    if (
        magic == fields.MAGIC
        and length >= fields.BATCH_LENGTH_MIN
        and size == len(batch)
        and offset == 0
        and size <= rules.message_bytes_max
        and 0 <= delta == count - 1
        and (sequence >= 0 or producer_id < 0)
        and not attributes & fields.CONTROL_FLAG
        and attributes & fields.CODEC_MASK <= _CODEC_MAX
        and fields.crc_of(batch, 0, size) == crc
    ):
        return header
    return _checked_step_by_step(batch, header, rules)


def _checked_step_by_step(batch: Buffer, header: BatchHeader, rules: TopicRules) -> BatchHeader:
    """The same checks in Kafka's order, each with its words."""
    try:
        size = header.size_bytes
        if header.magic != fields.MAGIC:
            raise _invalid(f"a batch has magic {fields.MAGIC}, not {header.magic}")
        fields.check_framing(header)
        if size > len(batch):
            raise MalformedMessage(f"a batch of {size} bytes is cut off after {len(batch)}")
    except MalformedMessage as error:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from None
    if size < len(batch):
        raise _invalid("a partition takes exactly one batch in a request")
    if header.base_offset != 0:
        raise _invalid(f"the base offset of a produced batch is 0, not {header.base_offset}")
    _check_size(size, rules)
    fields.check_crc(batch, 0, header)
    if header.last_offset_delta < 0:
        raise _invalid(f"the last offset delta is {header.last_offset_delta}")
    if header.count <= 0:
        raise _invalid(f"the record count is {header.count}")
    if header.last_offset_delta != header.count - 1:
        raise _invalid(f"{header.count} records do not end at offset delta {header.last_offset_delta}")
    if header.producer_id >= 0 and header.base_sequence < 0:
        raise _invalid(f"producer {header.producer_id} gives the sequence number {header.base_sequence}")
    if header.is_control:
        raise _invalid("clients do not write control records")
    if header.codec > _CODEC_MAX:
        raise _invalid(f"there is no compression codec {header.codec}")
    return header


def _must_be_opened(header: BatchHeader, rules: TopicRules) -> bool:
    is_recompressed = rules.codec is not None and rules.codec != header.codec
    return rules.is_compacted or is_recompressed or header.is_log_append_time


def _opened(batch: Buffer, header: BatchHeader, rules: TopicRules) -> Buffer:
    try:
        return payload_of(batch, 0, header, bytes_max=rules.decompressed_bytes_max)
    except MalformedMessage as error:
        raise _invalid(str(error)) from None


def _checked_walk(header: BatchHeader, payload: Buffer, rules: TopicRules, now_ms: int) -> Walk:
    walk = kernel.validate(payload, header.count)
    if walk.rule == Rule.SEQUENCE:
        raise _rejected(ErrorCode.INVALID_RECORD, [RecordError(walk.record_index, RULE_TEXTS[Rule.SEQUENCE])])
    if walk.rule != Rule.OK:
        # The CRC agrees, so this is what the producer meant to send; Kafka, too, has it not try again.
        raise _invalid(f"record {walk.record_index} {RULE_TEXTS[Rule(walk.rule)]}")
    if rules.is_compacted and walk.has_null_key:
        raise _rejected(
            ErrorCode.INVALID_RECORD,
            [
                RecordError(index, "a compacted topic takes no record without a key")
                for index, record in enumerate(kernel.keys(payload, header.count))
                if record.key is None
            ],
        )
    _check_timestamps(header, payload, walk, rules, now_ms)
    return walk


def _check_timestamps(
    header: BatchHeader, payload: Buffer, walk: Walk, rules: TopicRules, now_ms: int
) -> None:
    if rules.timestamp_type is TimestampType.LOG_APPEND_TIME:
        # As in Kafka: where the broker dates records, a client may not pretend that one already has; on
        # other topics the claim is merely dropped.
        if header.is_log_append_time:
            text = "a client cannot set log-append time"
            errors = [RecordError(index, text) for index in range(header.count)]
            raise _rejected(ErrorCode.INVALID_TIMESTAMP, errors)
        return
    # Only if one is out of range is it worth finding out which records are.
    if header.is_log_append_time:
        is_sound = _is_in_range(header.max_timestamp, rules, now_ms)
    else:
        earliest = header.base_timestamp + walk.timestamp_delta_min
        latest = header.base_timestamp + walk.timestamp_delta_max
        if earliest < _INT64_MIN or latest > _INT64_MAX:
            raise KafkaError(
                ErrorCode.INVALID_TIMESTAMP, f"timestamps from {earliest} to {latest} are beyond 64 bits"
            )
        is_sound = _is_in_range(earliest, rules, now_ms) and _is_in_range(latest, rules, now_ms)
    if not is_sound:
        _check_timestamps_of_records(header, payload, rules, now_ms)


def _check_timestamps_of_records(
    header: BatchHeader, payload: Buffer, rules: TopicRules, now_ms: int
) -> None:
    errors = [
        RecordError(index, f"timestamp {record.timestamp} is out of range, it is {now_ms}")
        for index, record in enumerate(decode_records(header, payload))
        if not _is_in_range(record.timestamp, rules, now_ms) and record.timestamp != NO_TIMESTAMP
    ]
    if errors:
        raise _rejected(ErrorCode.INVALID_TIMESTAMP, errors)


def _check_timestamps_of_header(header: BatchHeader, rules: TopicRules, now_ms: int) -> None:
    if rules.timestamp_type is TimestampType.LOG_APPEND_TIME:
        return
    for timestamp in (header.base_timestamp, header.max_timestamp):
        if not _is_in_range(timestamp, rules, now_ms) and timestamp != NO_TIMESTAMP:
            raise KafkaError(
                ErrorCode.INVALID_TIMESTAMP, f"timestamp {timestamp} is out of range, it is {now_ms}"
            )


def _is_in_range(timestamp: int, rules: TopicRules, now_ms: int) -> bool:
    age_ms = now_ms - timestamp
    return -rules.timestamp_after_ms_max <= age_ms <= rules.timestamp_before_ms_max


def _check_size(size: int, rules: TopicRules) -> None:
    if size > rules.message_bytes_max:
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"the batch has {size} bytes, the topic takes {rules.message_bytes_max}",
        )


def _writable(batch: Buffer) -> WritableBuffer:
    if isinstance(batch, bytearray) or (isinstance(batch, memoryview) and not batch.readonly):
        return batch
    return bytearray(batch)


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD, message)


def _rejected(code: ErrorCode, errors: list[RecordError]) -> RecordsRejected:
    first = errors[0]
    return RecordsRejected(
        code, f"{len(errors)} records rejected, first record {first.index}: {first.message}", tuple(errors)
    )
