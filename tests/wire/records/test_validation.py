"""What a broker accepts from a producer, and what it changes before it appends."""

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest
from wire.records.fuzz import batch_for
from wire.records.samples import record

from moldau.model.errors import ErrorCode, KafkaError
from moldau.wire.records import header as fields
from moldau.wire.records.batch import decode_batch, encode_batch, seal
from moldau.wire.records.compression import Codec
from moldau.wire.records.header import Buffer, read_header
from moldau.wire.records.record import Record
from moldau.wire.records.validation import (
    Accepted,
    RecordsRejected,
    TimestampType,
    TopicRules,
    _accept_step_by_step,
    accept,
)

NOW = 1_700_000_000_000
RULES = TopicRules()
HOUR = 3_600_000

RECORDS = [record(index, NOW + index, value=b"some value %d" % index * 20) for index in range(20)]
COMPRESSED = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]


def changed(batch: bytes, **values: int) -> bytes:
    """The batch with other values in its header, and a CRC that agrees with them."""
    buffer = bytearray(batch)
    buffer[: fields.HEADER_BYTES] = fields.HEADER.pack(*read_header(batch)._replace(**values))
    fields.stamp_crc(buffer, 0)
    return bytes(buffer)


def rejection(batch: bytes, rules: TopicRules = RULES) -> KafkaError:
    with pytest.raises(KafkaError) as error:
        accept(batch, rules, now_ms=NOW)
    return error.value


@pytest.mark.parametrize("codec", list(Codec))
def test_a_sound_batch_is_appended_as_it_came(codec: Codec) -> None:
    batch = encode_batch(RECORDS, codec=codec, producer_id=5, producer_epoch=0, base_sequence=0)
    accepted = accept(batch, RULES, now_ms=NOW)
    assert accepted == Accepted(
        batch=bytearray(batch),
        header=read_header(batch),
        log_append_time=-1,
    )


def accept_at_once(batch: Buffer, rules: TopicRules, now_ms: int) -> Accepted:
    return accept(batch, rules, now_ms=now_ms)


def judged(judge: Callable[[Buffer, TopicRules, int], Accepted], batch: Buffer, rules: TopicRules) -> object:
    try:
        return judge(batch, rules, NOW)
    except KafkaError as error:
        return repr(error)


@pytest.mark.parametrize("limit_ms", [HOUR, 2**63 - 1])
@pytest.mark.parametrize("is_compacted", [False, True])
def test_a_batch_is_judged_at_once_as_it_is_step_by_step(limit_ms: int, *, is_compacted: bool) -> None:
    rules = TopicRules(
        message_bytes_max=3000,
        timestamp_before_ms_max=limit_ms,
        timestamp_after_ms_max=limit_ms,
        is_compacted=is_compacted,
    )
    rng, verdicts = random.Random(6), Counter[str]()
    for _ in range(3000):
        batch = bytearray(batch_for(rng))
        if len(batch) >= fields.HEADER_BYTES and rng.random() < 0.9:
            crc = fields.crc_of(batch, 0, len(batch))
            batch[fields.CRC_AT : fields.CRC_AT + 4] = crc.to_bytes(4, "big")
        twin = bytearray(batch)
        expected = judged(_accept_step_by_step, twin, rules)
        assert judged(accept_at_once, batch, rules) == expected, batch.hex()
        verdicts["accepted" if isinstance(expected, Accepted) else "rejected"] += 1
    assert min(verdicts["accepted"], verdicts["rejected"]) > 200, verdicts


def test_a_writable_buffer_is_passed_on_without_a_copy() -> None:
    buffer = bytearray(encode_batch(RECORDS))
    view = memoryview(buffer)
    assert accept(view, RULES, now_ms=NOW).batch is view


@pytest.mark.parametrize(
    ("values", "code"),
    [
        ({"base_offset": 1}, ErrorCode.INVALID_RECORD),
        ({"magic": 1}, ErrorCode.INVALID_RECORD),
        ({"count": 0}, ErrorCode.INVALID_RECORD),
        ({"count": -1}, ErrorCode.INVALID_RECORD),
        ({"count": 19}, ErrorCode.INVALID_RECORD),
        ({"last_offset_delta": 20}, ErrorCode.INVALID_RECORD),
        ({"last_offset_delta": -1}, ErrorCode.INVALID_RECORD),
        ({"attributes": fields.CONTROL_FLAG}, ErrorCode.INVALID_RECORD),
        ({"attributes": 5}, ErrorCode.INVALID_RECORD),
        ({"producer_id": 1, "base_sequence": -1}, ErrorCode.INVALID_RECORD),
        ({"count": 21, "last_offset_delta": 20}, ErrorCode.INVALID_RECORD),
        ({"count": 19, "last_offset_delta": 18}, ErrorCode.INVALID_RECORD),
        ({"count": 2**31 - 1, "last_offset_delta": 2**31 - 2}, ErrorCode.INVALID_RECORD),
    ],
)
def test_a_header_that_contradicts_itself_or_its_records_is_refused(
    values: dict[str, int], code: ErrorCode
) -> None:
    assert rejection(changed(encode_batch(RECORDS), **values)).code is code


def test_lengths_that_do_not_fit_and_wrong_crcs_are_refused() -> None:
    batch = encode_batch(RECORDS)
    assert rejection(b"").code is ErrorCode.CORRUPT_MESSAGE
    assert rejection(batch[:60]).code is ErrorCode.CORRUPT_MESSAGE
    assert rejection(batch[:-1]).code is ErrorCode.CORRUPT_MESSAGE
    assert rejection(batch + batch).code is ErrorCode.INVALID_RECORD
    assert rejection(batch[:-1] + bytes([batch[-1] ^ 1])).code is ErrorCode.CORRUPT_MESSAGE
    short = batch[:8] + (48).to_bytes(4, "big") + batch[12:]
    assert rejection(short).code is ErrorCode.CORRUPT_MESSAGE


def test_the_leader_epoch_that_a_client_sends_does_not_matter() -> None:
    for epoch in (-1, 0, 77):
        accept(encode_batch(RECORDS, leader_epoch=epoch), RULES, now_ms=NOW)


def test_offsets_that_are_not_in_sequence_are_refused_by_record() -> None:
    records = [*RECORDS[:3], record(7, NOW), record(4, NOW)]
    error = rejection(encode_batch(records))
    assert isinstance(error, RecordsRejected)
    assert error.code is ErrorCode.INVALID_RECORD
    assert [bad.index for bad in error.record_errors] == [3]


@pytest.mark.parametrize("codec", COMPRESSED)
def test_compressed_records_are_opened_only_where_something_must_be_known_of_them(codec: Codec) -> None:
    header = read_header(encode_batch(RECORDS))
    garbage = bytearray(seal(b"no records at all", header, codec=codec))
    accept(garbage, RULES, now_ms=NOW)
    for rules in (replace(RULES, is_compacted=True), replace(RULES, codec=Codec.NONE)):
        assert rejection(bytes(garbage), rules).code is ErrorCode.INVALID_RECORD
    undecodable = changed(encode_batch(RECORDS), attributes=codec)
    assert rejection(undecodable, replace(RULES, is_compacted=True)).code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("codec", list(Codec))
def test_a_compacted_topic_names_every_record_without_a_key(codec: Codec) -> None:
    records = [Record(index, NOW, None if index in (1, 4) else b"k", b"v") for index in range(6)]
    batch = encode_batch(records, codec=codec)
    accept(batch, RULES, now_ms=NOW)
    error = rejection(batch, replace(RULES, is_compacted=True))
    assert isinstance(error, RecordsRejected)
    assert error.code is ErrorCode.INVALID_RECORD
    assert [bad.index for bad in error.record_errors] == [1, 4]


@pytest.mark.honours("max.message.bytes")
@pytest.mark.honours("message.max.bytes")
def test_a_batch_may_be_as_large_as_the_topic_says_and_no_larger() -> None:
    batch = encode_batch(RECORDS)
    accept(batch, replace(RULES, message_bytes_max=len(batch)), now_ms=NOW)
    error = rejection(batch, replace(RULES, message_bytes_max=len(batch) - 1))
    assert error.code is ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.honours("max.message.bytes")
def test_the_size_counts_again_after_the_topic_has_changed_the_codec() -> None:
    batch = encode_batch(RECORDS, codec=Codec.ZSTD)
    rules = replace(RULES, codec=Codec.NONE, message_bytes_max=len(batch))
    assert rejection(batch, rules).code is ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.honours("message.timestamp.type")
@pytest.mark.parametrize("codec", list(Codec))
def test_log_append_time_replaces_the_timestamps_of_the_producer(codec: Codec) -> None:
    rules = replace(RULES, timestamp_type=TimestampType.LOG_APPEND_TIME)
    # Not even a timestamp out of range matters then.
    batch = encode_batch([record(0, 5), record(1, NOW * 2)], codec=codec)
    accepted = accept(batch, rules, now_ms=NOW)
    header, records = decode_batch(accepted.batch)
    assert [found.timestamp for found in records] == [NOW, NOW]
    assert (header.is_log_append_time, header.max_timestamp) == (True, NOW)
    assert accepted.log_append_time == NOW
    assert rejection(batch).code is ErrorCode.INVALID_TIMESTAMP


@pytest.mark.honours("message.timestamp.type")
@pytest.mark.parametrize("codec", list(Codec))
def test_a_client_that_claims_log_append_time_is_refused_or_ignored(codec: Codec) -> None:
    batch = changed(encode_batch(RECORDS, codec=codec), attributes=codec | fields.LOG_APPEND_TIME_FLAG)
    header, records = decode_batch(accept(batch, RULES, now_ms=NOW).batch)
    assert not header.is_log_append_time
    assert records == RECORDS
    error = rejection(batch, replace(RULES, timestamp_type=TimestampType.LOG_APPEND_TIME))
    assert isinstance(error, RecordsRejected)
    assert error.code is ErrorCode.INVALID_TIMESTAMP
    assert [bad.index for bad in error.record_errors] == list(range(20))


@pytest.mark.honours("message.timestamp.before.max.ms")
@pytest.mark.parametrize("codec", list(Codec))
def test_a_record_may_be_only_so_old(codec: Codec) -> None:
    batch = encode_batch([record(0, NOW - 1000), record(1, NOW)], codec=codec)
    accept(batch, replace(RULES, timestamp_before_ms_max=1000), now_ms=NOW)
    error = rejection(batch, replace(RULES, timestamp_before_ms_max=999))
    assert error.code is ErrorCode.INVALID_TIMESTAMP


@pytest.mark.honours("message.timestamp.after.max.ms")
@pytest.mark.parametrize("codec", list(Codec))
def test_a_record_may_be_only_so_far_ahead(codec: Codec) -> None:
    batch = encode_batch([record(0, NOW), record(1, NOW + HOUR)], codec=codec)
    accept(batch, RULES, now_ms=NOW)
    error = rejection(batch, replace(RULES, timestamp_after_ms_max=HOUR - 1))
    assert error.code is ErrorCode.INVALID_TIMESTAMP


def test_records_with_a_timestamp_out_of_range_are_named_and_no_timestamp_is_none() -> None:
    timestamps = [NOW, NOW - 5000, -1, NOW + 2 * HOUR]
    batch = encode_batch([record(index, timestamp) for index, timestamp in enumerate(timestamps)])
    error = rejection(batch, replace(RULES, timestamp_before_ms_max=1000))
    assert isinstance(error, RecordsRejected)
    assert [bad.index for bad in error.record_errors] == [1, 3]
    undated = encode_batch([record(0, -1), record(1, -1)])
    accept(undated, replace(RULES, timestamp_before_ms_max=1000), now_ms=NOW)


@pytest.mark.parametrize(("base", "timestamp"), [(2**63 - 1, 2**63), (-(2**63), -(2**63) - 1)])
def test_no_timestamp_is_beyond_64_bits_however_lenient_the_topic(base: int, timestamp: int) -> None:
    batch = changed(encode_batch([record(0, NOW), record(1, NOW + timestamp - base)]), base_timestamp=base)
    lenient = replace(RULES, timestamp_before_ms_max=2**63 - 1, timestamp_after_ms_max=2**63 - 1)
    assert rejection(batch, lenient).code is ErrorCode.INVALID_TIMESTAMP


def test_a_wrong_greatest_timestamp_is_corrected() -> None:
    batch = changed(encode_batch([record(0, NOW), record(1, NOW + 9), record(2, NOW)]), max_timestamp=5)
    accepted = accept(batch, RULES, now_ms=NOW)
    assert accepted.header.max_timestamp == NOW + 9
    header, _ = decode_batch(accepted.batch)
    assert header.max_timestamp == NOW + 9


@pytest.mark.honours("compression.type")
@pytest.mark.parametrize("source", list(Codec))
@pytest.mark.parametrize("target", list(Codec))
def test_the_topic_may_choose_the_codec(source: Codec, target: Codec) -> None:
    batch = encode_batch(RECORDS, codec=source, producer_id=5, producer_epoch=1, base_sequence=3)
    accepted = accept(batch, replace(RULES, codec=target), now_ms=NOW)
    header, records = decode_batch(accepted.batch)
    assert (header.codec, records) == (target, RECORDS)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (5, 1, 3)
    assert source != target or bytes(accepted.batch) == batch


WORDS = [record(0, NOW, value=b" ".join(b"%d" % (number * number % 7919) for number in range(4000)))]


@pytest.mark.parametrize(
    ("codec", "low", "high"),
    [
        pytest.param(
            Codec.GZIP,
            replace(RULES, gzip_level=1),
            replace(RULES, gzip_level=9),
            marks=pytest.mark.honours("compression.gzip.level"),
        ),
        pytest.param(
            Codec.LZ4,
            replace(RULES, lz4_level=9),  # the default, which is the fast compressor
            replace(RULES, lz4_level=17),
            marks=pytest.mark.honours("compression.lz4.level"),
        ),
        pytest.param(
            Codec.ZSTD,
            replace(RULES, zstd_level=-5),
            replace(RULES, zstd_level=19),
            marks=pytest.mark.honours("compression.zstd.level"),
        ),
    ],
)
def test_the_topic_may_choose_how_hard_to_compress(codec: Codec, low: TopicRules, high: TopicRules) -> None:
    batch = encode_batch(WORDS)
    sizes = [len(accept(batch, replace(rules, codec=codec), now_ms=NOW).batch) for rules in (low, high)]
    assert sizes[1] < sizes[0] < len(batch)


def test_a_batch_that_expands_beyond_the_limit_is_too_large() -> None:
    bomb = encode_batch([record(0, NOW, value=bytes(10**6))], codec=Codec.GZIP)
    rules = replace(RULES, is_compacted=True, decompressed_bytes_max=10**5)
    assert rejection(bomb, rules).code is ErrorCode.MESSAGE_TOO_LARGE
