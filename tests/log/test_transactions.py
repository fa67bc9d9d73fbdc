"""Open, committed and aborted transactions, and what holds back those who read committed data."""

from collections.abc import Callable

import pytest
from log.support import NOW_MS, Keeper, batch, marker

from moldau.log.config import LogConfig
from moldau.log.index import AbortedTransaction
from moldau.log.producers import Origin
from moldau.model.errors import ErrorCode, KafkaError
from moldau.sim.disk import Survives

A, B = 1, 2


def data(
    producer_id: int, sequence: int, *, epoch: int = 0, count: int = 1, is_transactional: bool = True
) -> bytearray:
    return batch(count, producer=(producer_id, epoch, sequence), is_transactional=is_transactional)


def end(
    keeper: Keeper, producer_id: int, epoch: int, *, coordinator_epoch: int = 0, version: int = 0
) -> None:
    keeper.log.append_as_leader(
        marker(producer_id, epoch, is_commit=True, coordinator_epoch=coordinator_epoch),
        leader_epoch=0,
        now_ms=NOW_MS,
        origin=Origin.COORDINATOR,
        transaction_version=version,
    )


def code_of(call: Callable[[], object]) -> ErrorCode:
    with pytest.raises(KafkaError) as refused:
        call()
    return refused.value.code


# ---------------------------------------------------------------- the last stable offset


def test_the_last_stable_offset_stops_at_the_first_open_transaction() -> None:
    keeper = Keeper()
    keeper.append(batch(2), data(A, 0), data(B, 0), data(A, 1))
    keeper.commit()
    assert keeper.log.last_stable_offset == 2
    keeper.end_transaction(A, 0, is_commit=True)
    keeper.commit()
    assert keeper.log.last_stable_offset == 3
    keeper.end_transaction(B, 0, is_commit=False)
    keeper.commit()
    assert keeper.log.last_stable_offset == keeper.log.log_end_offset == 7


def test_a_transaction_is_stable_only_when_its_marker_is_committed() -> None:
    keeper = Keeper()
    keeper.append(data(A, 0), data(A, 1))
    keeper.commit()
    keeper.end_transaction(A, 0, is_commit=True)
    assert keeper.log.last_stable_offset == 0
    keeper.commit()
    assert keeper.log.last_stable_offset == 3


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_restart_remembers_a_marker_that_is_not_committed(is_clean: bool) -> None:
    keeper = Keeper()
    keeper.append(data(A, 0), data(A, 1))
    keeper.commit()
    keeper.end_transaction(A, 0, is_commit=True)
    keeper.log.roll()
    keeper.flush()
    if is_clean:
        keeper.restart()
    else:
        keeper.crash()
    assert (keeper.log.high_watermark, keeper.log.last_stable_offset) == (2, 0)


def test_a_deleted_start_of_an_open_transaction_does_not_hold_the_offset_below_the_log() -> None:
    keeper = Keeper()
    keeper.append(data(A, 0), data(A, 1), data(A, 2))
    keeper.commit()
    keeper.log.advance_log_start(2)
    assert keeper.log.last_stable_offset == 2


# ---------------------------------------------------------------- aborted transactions


def aborted_log() -> Keeper:
    keeper = Keeper(LogConfig(segment_bytes=200))
    keeper.append(data(A, 0), data(B, 0), data(A, 1))
    keeper.end_transaction(A, 0, is_commit=False)
    keeper.append(data(A, 2), data(B, 1))
    keeper.end_transaction(B, 0, is_commit=False)
    keeper.end_transaction(A, 0, is_commit=True)
    keeper.append(batch(1))
    keeper.commit()
    return keeper


def test_only_what_was_committed_is_seen() -> None:
    assert [record.offset for record in aborted_log().committed()] == [4, 8]


@pytest.mark.parametrize(
    ("start", "end_offset", "expected"),
    [(0, 9, [0, 1]), (0, 1, [0]), (3, 9, [0, 1]), (4, 9, [1]), (4, 5, [1]), (7, 9, [])],
)
def test_the_aborted_transactions_that_overlap_a_range_are_named(
    start: int, end_offset: int, expected: list[int]
) -> None:
    found = aborted_log().log.aborted_transactions(start, end_offset)
    assert [transaction.first_offset for transaction in found] == expected


def test_a_read_names_aborted_transactions_only_when_asked() -> None:
    log = aborted_log().log
    assert log.read(0, bytes_max=1, end_limit=9).aborted == ()
    named = log.read(0, bytes_max=1, end_limit=9, with_aborted=True).aborted
    assert named == (AbortedTransaction(A, 0, 3, 1),)


@pytest.mark.parametrize("survives", [None, *Survives])
def test_aborted_transactions_are_known_after_a_restart_or_a_crash(survives: Survives | None) -> None:
    keeper = aborted_log()
    before = keeper.log.aborted_transactions(0, 9)
    if survives is None:
        keeper.restart()
    else:
        keeper.crash(survives)
    assert keeper.log.aborted_transactions(0, 9) == before
    assert [record.offset for record in keeper.committed()] == [4, 8]


def test_a_truncated_marker_leaves_its_transaction_open() -> None:
    keeper = Keeper()
    keeper.append(data(A, 0))
    keeper.end_transaction(A, 0, is_commit=False)
    keeper.truncate(1)
    assert keeper.log.aborted_transactions(0, 9) == []
    producer = keeper.log.producers.get(A)
    assert producer is not None
    assert producer.transaction_first_offset == 0


# ---------------------------------------------------------------- who may write


def test_nothing_is_written_outside_a_transaction_while_one_is_open() -> None:
    keeper = Keeper()
    keeper.append(data(A, 0))
    refused = code_of(lambda: keeper.append(data(A, 1, is_transactional=False)))
    assert refused is ErrorCode.INVALID_TXN_STATE
    keeper.end_transaction(A, 0, is_commit=True)
    keeper.append(data(A, 1, is_transactional=False))


@pytest.mark.parametrize(
    ("epoch", "version", "expected"),
    [
        (4, 0, ErrorCode.INVALID_PRODUCER_EPOCH),
        (5, 0, None),
        (6, 0, None),
        (5, 2, ErrorCode.INVALID_PRODUCER_EPOCH),  # late: since v2 a marker raises the epoch
        (6, 2, None),
    ],
)
def test_a_marker_needs_an_epoch_that_is_not_stale(
    epoch: int, version: int, expected: ErrorCode | None
) -> None:
    keeper = Keeper()
    keeper.append(data(A, 0, epoch=5))
    if expected is None:
        end(keeper, A, epoch, version=version)
    else:
        assert code_of(lambda: end(keeper, A, epoch, version=version)) is expected


def test_a_marker_that_is_sent_again_is_accepted() -> None:
    keeper = Keeper()
    keeper.append(data(A, 0, epoch=5))
    end(keeper, A, 6, version=2)
    end(keeper, A, 6, version=2)
    keeper.commit()
    assert keeper.log.last_stable_offset == 3


def test_after_a_marker_that_raised_the_epoch_sequence_numbers_start_at_0() -> None:
    keeper = Keeper()
    keeper.append(data(A, 0, epoch=5))
    end(keeper, A, 6, version=2)
    assert code_of(lambda: keeper.append(data(A, 1, epoch=6))) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert code_of(lambda: keeper.append(data(A, 1, epoch=5))) is ErrorCode.INVALID_PRODUCER_EPOCH
    keeper.append(data(A, 0, epoch=6))


def test_an_older_coordinator_is_fenced() -> None:
    keeper = Keeper()
    keeper.append(data(A, 0))
    end(keeper, A, 0, coordinator_epoch=3)
    keeper.restart()
    refused = code_of(lambda: end(keeper, A, 0, coordinator_epoch=2))
    assert refused is ErrorCode.TRANSACTION_COORDINATOR_FENCED


def test_a_new_epoch_over_an_open_transaction_goes_on_in_it() -> None:
    keeper = Keeper()
    keeper.append(data(A, 0, epoch=5), data(A, 0, epoch=6))
    producer = keeper.log.producers.get(A)
    assert producer is not None
    assert producer.transaction_first_offset == 0
