"""Whole batches of every codec, and the control batches that end transactions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wire.records.samples import batches_of_records, records_of

from moldau.model.errors import KafkaError, MalformedMessage
from moldau.wire.records.batch import (
    ControlType,
    control_key,
    control_type,
    coordinator_epoch_of,
    decode_batch,
    encode_batch,
    encode_control_batch,
    encode_end_transaction_marker,
)
from moldau.wire.records.compression import Codec
from moldau.wire.records.record import Record


@given(batches_of_records().filter(bool), st.sampled_from(list(Codec)))
def test_a_batch_says_what_was_put_into_it(records: list[Record], codec: Codec) -> None:
    header, decoded = decode_batch(encode_batch(records, codec=codec, base_offset=100))
    assert decoded == records
    assert header.codec == codec
    assert header.count == len(records)
    assert header.last_offset == records[-1].offset
    assert header.base_timestamp == records[0].timestamp
    assert header.max_timestamp == max(record.timestamp for record in records)


def test_decoding_stops_at_the_limit_on_expanded_bytes() -> None:
    batch = encode_batch([Record(0, 0, None, bytes(10**6))], codec=Codec.ZSTD)
    assert len(batch) < 1000
    with pytest.raises(KafkaError, match="more than 5000 bytes"):
        decode_batch(batch, bytes_max=5000)


def test_a_batch_that_is_cut_off_is_malformed() -> None:
    with pytest.raises(MalformedMessage, match="cut off"):
        decode_batch(encode_batch(records_of(3))[:-1])


@pytest.mark.parametrize("is_commit", [True, False])
def test_a_marker_ends_a_transaction(is_commit: bool) -> None:
    marker = encode_end_transaction_marker(
        is_commit=is_commit,
        coordinator_epoch=12,
        timestamp=99,
        producer_id=7,
        producer_epoch=3,
        base_offset=40,
    )
    header, [record] = decode_batch(marker)
    assert header.is_control and header.is_transactional
    assert (header.base_offset, header.count, header.base_sequence) == (40, 1, -1)
    assert (header.producer_id, header.producer_epoch) == (7, 3)
    assert record.key == bytes([0, 0, 0, int(is_commit)])
    assert control_type(record.key) is (ControlType.COMMIT if is_commit else ControlType.ABORT)
    assert coordinator_epoch_of(record.value) == 12


@pytest.mark.parametrize("kind", list(ControlType))
def test_every_kind_of_control_record_is_known_by_its_key(kind: ControlType) -> None:
    header, [record] = decode_batch(encode_control_batch(kind, b"message", timestamp=5))
    assert header.is_control and not header.is_transactional
    assert control_type(record.key) is kind
    assert record.value == b"message"


def test_unknown_kinds_are_skipped_and_broken_keys_refused() -> None:
    assert control_type(b"\x00\x00\x00\x63") is None
    assert (
        control_type(control_key(ControlType.KRAFT_VOTERS) + b"later versions may add")
        is ControlType.KRAFT_VOTERS
    )
    for key in (None, b"", b"\x00\x00\x00", b"\xff\xff\x00\x00"):
        with pytest.raises(MalformedMessage):
            control_type(key)
    for value in (None, b"", b"\x00\x00\x00\x00\x00"):
        with pytest.raises(MalformedMessage):
            coordinator_epoch_of(value)
