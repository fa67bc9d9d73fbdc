"""The header of a batch, read and changed in place."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.model.errors import ErrorCode, KafkaError, MalformedMessage
from moldau.wire.records import header as fields
from moldau.wire.records.batch import decode_batch, encode_batch
from moldau.wire.records.header import BatchHeader, iter_headers, read_header
from moldau.wire.records.record import Record

# One record {key: "k", value: "v", header a=None} at 1000 ms by producer 7, written by hand.
GOLDEN = bytes.fromhex(
    "00000000 0000002a"  # base offset 42
    "0000003d"  # 61 bytes follow: 49 of header, 12 of records
    "00000005"  # leader epoch 5
    "02"  # magic
    "{crc}"
    "0010"  # attributes: transactional
    "00000000"  # last offset delta 0
    "00000000 000003e8"  # base timestamp 1000
    "00000000 000003e8"  # max timestamp 1000
    "00000000 00000007"  # producer id 7
    "0003"  # producer epoch 3
    "0000000b"  # base sequence 11
    "00000001"  # one record
    "16"  # of 11 bytes
    "00 00 00"  # attributes, timestamp delta, offset delta
    "02 6b"  # key "k"
    "02 76"  # value "v"
    "02 02 61 01".format(crc="57f08acd")  # one header: key "a", value null
)


def test_every_field_of_a_batch_written_by_hand_is_where_it_belongs() -> None:
    header, records = decode_batch(GOLDEN)
    assert header == BatchHeader(
        base_offset=42,
        batch_length=61,
        leader_epoch=5,
        magic=2,
        crc=0x57F08ACD,
        attributes=0x10,
        last_offset_delta=0,
        base_timestamp=1000,
        max_timestamp=1000,
        producer_id=7,
        producer_epoch=3,
        base_sequence=11,
        count=1,
    )
    assert records == [Record(42, 1000, b"k", b"v", (("a", None),))]
    assert header.size_bytes == len(GOLDEN) == 73
    assert header.is_transactional and not header.is_control
    assert (header.last_offset, header.next_offset, header.last_sequence) == (42, 43, 11)


def test_encoding_gives_the_batch_written_by_hand() -> None:
    assert (
        encode_batch(
            [Record(42, 1000, b"k", b"v", (("a", None),))],
            base_offset=42,
            leader_epoch=5,
            producer_id=7,
            producer_epoch=3,
            base_sequence=11,
            is_transactional=True,
        )
        == GOLDEN
    )


@pytest.mark.parametrize(
    ("base_sequence", "last_offset_delta", "last_sequence"),
    [(0, 0, 0), (5, 9, 14), (2**31 - 1, 0, 2**31 - 1), (2**31 - 1, 1, 0), (2**31 - 3, 5, 2), (-1, 5, -1)],
)
def test_sequences_wrap_after_the_greatest_int32(
    base_sequence: int, last_offset_delta: int, last_sequence: int
) -> None:
    header = read_header(GOLDEN)._replace(base_sequence=base_sequence, last_offset_delta=last_offset_delta)
    assert header.last_sequence == last_sequence


@pytest.mark.parametrize(
    ("attributes", "truths"),
    [
        (0x00, ""),
        (0x08, "is_log_append_time"),
        (0x10, "is_transactional"),
        (0x20, "is_control"),
        (0x40, "has_delete_horizon"),
    ],
)
def test_each_attribute_bit_is_one_truth(attributes: int, truths: str) -> None:
    header = read_header(GOLDEN)._replace(attributes=attributes)
    names = ("is_log_append_time", "is_transactional", "is_control", "has_delete_horizon")
    assert " ".join(name for name in names if getattr(header, name)) == truths


def test_stamping_a_place_in_the_log_keeps_the_crc_valid() -> None:
    batch = bytearray(b"xx" + GOLDEN)
    fields.stamp(batch, 2, base_offset=2**40, leader_epoch=9)
    header = read_header(batch, 2)
    assert (header.base_offset, header.leader_epoch) == (2**40, 9)
    fields.check_crc(batch, 2, header)
    assert batch[2 + 16 :] == GOLDEN[16:]


def test_log_append_time_dates_every_record_and_renews_the_crc() -> None:
    batch = bytearray(GOLDEN)
    fields.stamp_log_append_time(batch, 0, 5000)
    header, records = decode_batch(batch)
    assert header.is_log_append_time and header.max_timestamp == 5000
    assert [record.timestamp for record in records] == [5000]


def test_a_delete_horizon_takes_the_place_of_the_base_timestamp() -> None:
    batch = bytearray(GOLDEN)
    assert read_header(batch).delete_horizon_ms is None
    fields.set_delete_horizon(batch, 0, 777)
    header = read_header(batch)
    assert header.delete_horizon_ms == 777
    fields.check_crc(batch, 0, header)


def test_a_flipped_bit_anywhere_under_the_crc_is_noticed() -> None:
    for position in range(21, len(GOLDEN)):
        damaged = bytearray(GOLDEN)
        damaged[position] ^= 0x04
        with pytest.raises(KafkaError) as error:
            decode_batch(damaged)
        assert error.value.code is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("size", [0, 1, 60])
def test_a_header_that_is_cut_off_is_malformed(size: int) -> None:
    with pytest.raises(MalformedMessage, match=f"needs 61 bytes, {size} are left"):
        read_header(GOLDEN[:size])


def test_headers_of_batches_back_to_back_are_found_up_to_one_that_is_cut_off() -> None:
    buffer = memoryview(GOLDEN * 3 + GOLDEN[:-1])
    assert [position for position, _ in iter_headers(buffer)] == [0, 73, 146]
    assert list(iter_headers(b"")) == []


@pytest.mark.parametrize(("field", "value"), [("batch_length", 48), ("batch_length", -1), ("magic", 1)])
def test_a_length_or_magic_that_no_batch_has_is_malformed(field: str, value: int) -> None:
    header = read_header(GOLDEN)._replace(**{field: value})
    with pytest.raises(MalformedMessage):
        list(iter_headers(fields.HEADER.pack(*header)))


@given(st.binary(max_size=200))
def test_arbitrary_bytes_have_headers_or_are_malformed(data: bytes) -> None:
    try:
        positions = [position for position, _ in iter_headers(data)]
    except MalformedMessage:
        return
    assert positions == sorted(positions)
