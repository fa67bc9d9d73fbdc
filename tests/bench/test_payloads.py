"""What is read back is compared byte for byte."""

from __future__ import annotations

import pytest

from moldau.bench.payloads import Batches, WrongPayload, batches, batches_of_bytes, check_batches, value
from moldau.wire.records.batch import decode_batch
from moldau.wire.records.header import read_header, stamp


def stored(sent: Batches, count: int) -> bytearray:
    """Batches as a broker gives them back: with their offsets, and an epoch."""
    data = bytearray()
    for number in range(count):
        batch = bytearray(sent.nth(number))
        stamp(batch, 0, base_offset=number * sent.records_per_batch, leader_epoch=3)
        data += batch
    return data


def test_a_value_says_which_it_is() -> None:
    assert value(7, 100) != value(8, 100)
    assert len(value(7, 100)) == 100
    assert value(7, 100)[8:] == value(8, 100)[8:]


def test_batches_differ_and_have_one_length() -> None:
    sent = batches(value_bytes=100, records_per_batch=3, different=4)
    assert len(set(sent.each)) == 4
    assert len({len(batch) for batch in sent.each}) == 1
    header, records = decode_batch(sent.nth(5))
    assert header.count == 3
    assert [record.value for record in records] == [value(number, 100) for number in (3, 4, 5)]


@pytest.mark.parametrize("batch_bytes", [1, 1_000, 65_536])
def test_a_batch_has_as_many_records_as_fit(batch_bytes: int) -> None:
    sent = batches_of_bytes(batch_bytes, value_bytes=100, different=1)
    assert sent.records_per_batch == 1 or len(sent.nth(0)) <= batch_bytes


def test_what_was_sent_is_recognised_wherever_a_fetch_begins_and_ends() -> None:
    sent = batches(value_bytes=100, records_per_batch=3, different=2)
    data, size = stored(sent, 5), len(sent.nth(0))
    assert check_batches(data, sent, first=0) == 5
    assert check_batches(data[2 * size : 4 * size + 10], sent, first=2) == 4


def test_every_byte_counts_but_those_that_the_broker_writes() -> None:
    sent = batches(value_bytes=20, records_per_batch=1, different=1)
    sound = stored(sent, 1)
    size = read_header(sound).size_bytes
    for position in range(17, size):
        broken = bytearray(sound)
        broken[position] ^= 1
        with pytest.raises(WrongPayload):
            check_batches(broken, sent, first=0)


def test_a_batch_at_another_offset_is_wrong() -> None:
    sent = batches(value_bytes=100, records_per_batch=3, different=1)
    with pytest.raises(WrongPayload, match="offset 0"):
        check_batches(stored(sent, 1), sent, first=1)
