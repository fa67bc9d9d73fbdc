"""Which of the fetched batches a consumer sees: not those of aborted transactions, nor any marker."""

from collections.abc import Sequence

import pytest

from moldau.client.fetched import Fetched, read_fetched
from moldau.model.errors import ErrorCode, KafkaError
from moldau.wire.messages.fetch import AbortedTransaction
from moldau.wire.records.batch import encode_batch, encode_end_transaction_marker
from moldau.wire.records.record import Record


def batch(*offsets: int, producer: int = -1, is_transactional: bool = False) -> bytes:
    records = [Record(offset, 1_000 + offset, b"k", b"v%d" % offset) for offset in offsets]
    return encode_batch(
        records,
        base_offset=offsets[0],
        leader_epoch=4,
        producer_id=producer,
        producer_epoch=0 if producer >= 0 else -1,
        base_sequence=0 if producer >= 0 else -1,
        is_transactional=is_transactional,
    )


def marker(offset: int, producer: int, *, is_commit: bool) -> bytes:
    return encode_end_transaction_marker(
        is_commit=is_commit,
        coordinator_epoch=0,
        timestamp=0,
        producer_id=producer,
        producer_epoch=0,
        base_offset=offset,
        leader_epoch=4,
    )


def read(*batches: bytes, start: int = 0, aborted: Sequence[tuple[int, int]] = ()) -> Fetched:
    transactions = [AbortedTransaction(producer_id=who, first_offset=first) for who, first in aborted]
    return read_fetched(b"".join(batches), fetch_offset=start, aborted=transactions, check_crcs=True)


def offsets(fetched: Fetched, start: int = 0) -> list[int]:
    return [record.offset for visible in fetched.batches for record in visible.records(start)]


def test_the_records_before_the_fetched_offset_are_left_out_though_their_batch_came() -> None:
    fetched = read(batch(0, 1, 2), batch(3, 4), start=2)
    assert offsets(fetched, 2) == [2, 3, 4]
    assert (fetched.next_offset, fetched.last_epoch) == (5, 4)


def test_a_batch_that_is_cut_off_at_the_end_is_fetched_again() -> None:
    fetched = read(batch(0, 1), batch(2, 3)[:-1])
    assert (offsets(fetched), fetched.next_offset) == ([0, 1], 2)


def test_aborted_records_are_passed_over_up_to_the_marker_and_no_further() -> None:
    fetched = read(
        batch(0, 1, producer=7, is_transactional=True),
        batch(2, producer=8, is_transactional=True),
        batch(3),
        marker(4, 7, is_commit=False),
        batch(5, producer=7, is_transactional=True),
        marker(6, 7, is_commit=True),
        marker(7, 8, is_commit=True),
        aborted=[(7, 0)],
    )
    assert offsets(fetched) == [2, 3, 5]
    assert fetched.next_offset == 8


def test_one_producer_may_abort_twice_with_a_commit_between() -> None:
    fetched = read(
        batch(0, producer=7, is_transactional=True),
        marker(1, 7, is_commit=False),
        batch(2, producer=7, is_transactional=True),
        marker(3, 7, is_commit=True),
        batch(4, producer=7, is_transactional=True),
        marker(5, 7, is_commit=False),
        aborted=[(7, 4), (7, 0)],
    )
    assert offsets(fetched) == [2]


def test_a_fetch_of_markers_alone_still_moves_on() -> None:
    fetched = read(marker(9, 7, is_commit=True), start=9)
    assert (offsets(fetched), fetched.next_offset) == ([], 10)


def test_damaged_bytes_are_found_unless_nobody_looks() -> None:
    damaged = bytearray(batch(0, 1))
    damaged[-1] ^= 1
    with pytest.raises(KafkaError) as error:
        read(bytes(damaged))
    assert error.value.code == ErrorCode.CORRUPT_MESSAGE
    unchecked = read_fetched(bytes(damaged), fetch_offset=0, aborted=(), check_crcs=False)
    assert unchecked.next_offset == 2
