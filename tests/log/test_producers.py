"""Idempotence: repeated batches, sequence numbers and epochs, wherever the state comes from."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from log.support import NOW_MS, PATH, Keeper, batch, settings

from moldau.log.config import LogConfig
from moldau.log.producers import NO_COORDINATOR_EPOCH, Origin, Producer, Producers
from moldau.model.errors import ErrorCode, KafkaError, MalformedMessage
from moldau.model.ids import SEQUENCE_MAX
from moldau.sim.disk import Survives
from moldau.wire.records.header import read_header

PID = 9


def produced(sequence: int, count: int = 1, epoch: int = 0) -> bytearray:
    return batch(count, producer=(PID, epoch, sequence))


def with_batches(count: int, config: LogConfig | None = None) -> Keeper:
    """A log with `count` batches of two records each."""
    keeper = Keeper(config or LogConfig(segment_bytes=300))
    for number in range(count):
        keeper.append(produced(2 * number, 2))
    return keeper


def code_of(call: Callable[[], object]) -> ErrorCode:
    with pytest.raises(KafkaError) as refused:
        call()
    return refused.value.code


# ---------------------------------------------------------------- what is accepted


@pytest.mark.parametrize("back", [1, 2, 3, 4, 5])
def test_one_of_the_last_five_batches_is_answered_with_its_first_offset(back: int) -> None:
    keeper = with_batches(8)
    result = keeper.append(produced(16 - 2 * back, 2))
    assert (result.first_offset, result.last_offset, result.is_duplicate) == (
        16 - 2 * back,
        17 - 2 * back,
        True,
    )
    assert keeper.log.log_end_offset == 16


@pytest.mark.parametrize(
    ("sequence", "count", "epoch", "expected"),
    [
        (16, 2, 0, None),
        (4, 2, 0, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),  # older than the last five
        (14, 1, 0, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),  # a part of one
        (17, 1, 0, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
        (0, 1, 1, None),
        (16, 1, 1, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
    ],
)
def test_the_next_batch_must_carry_on(
    sequence: int, count: int, epoch: int, expected: ErrorCode | None
) -> None:
    keeper = with_batches(8)

    def append() -> object:
        return keeper.append(produced(sequence, count, epoch))

    if expected is None:
        append()
        assert keeper.log.log_end_offset == 16 + count
    else:
        assert code_of(append) is expected
        assert keeper.log.log_end_offset == 16


def test_an_older_epoch_is_refused_even_with_the_right_sequence_number() -> None:
    keeper = with_batches(1)
    keeper.append(produced(0, epoch=3))
    assert code_of(lambda: keeper.append(produced(1, epoch=2))) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_an_unknown_producer_may_start_anywhere() -> None:
    keeper = Keeper()
    assert keeper.append(produced(77)).first_offset == 0
    assert keeper.append(produced(78)).first_offset == 1


def test_a_transaction_of_an_unknown_producer_starts_at_0_with_transactions_v2() -> None:
    def append(sequence: int, version: int) -> object:
        data = batch(1, producer=(PID, 0, sequence), is_transactional=True)
        return Keeper().log.append_as_leader(data, leader_epoch=0, now_ms=NOW_MS, transaction_version=version)

    append(0, 2)
    append(5, 1)
    assert code_of(lambda: append(5, 2)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_sequence_numbers_wrap_within_and_between_batches() -> None:
    keeper = Keeper()
    keeper.append(produced(SEQUENCE_MAX - 1, 4))
    assert keeper.append(produced(2, 2)).first_offset == 4
    assert keeper.append(produced(SEQUENCE_MAX - 1, 4)).is_duplicate
    keeper = Keeper()
    keeper.append(produced(SEQUENCE_MAX))
    assert keeper.append(produced(0)).first_offset == 1


def test_coordinators_write_without_sequence_numbers() -> None:
    keeper = Keeper()
    for _ in range(2):
        keeper.append(batch(1, producer=(PID, 0, -1), is_transactional=True), origin=Origin.COORDINATOR)
    assert keeper.log.log_end_offset == 2


# ---------------------------------------------------------------- where the state comes from


def restarted(keeper: Keeper) -> None:
    keeper.restart()


def crashed(keeper: Keeper) -> None:
    keeper.flush()
    keeper.crash(Survives.NOTHING)


def killed(keeper: Keeper) -> None:
    keeper.crash(Survives.EVERYTHING)


def truncated(keeper: Keeper) -> None:
    end = keeper.log.log_end_offset
    keeper.append(produced(end), produced(end + 1), produced(end + 2))
    keeper.truncate(end)


def emptied(keeper: Keeper) -> None:
    """Every segment that the batches were in is gone: the state outlives them."""
    keeper.commit()
    keeper.log.advance_log_start(keeper.log.log_end_offset)
    keeper.log.roll()
    keeper.flush()
    assert keeper.apply_retention(NOW_MS) > 0
    keeper.flush()
    keeper.restart()


def emptied_and_crashed(keeper: Keeper) -> None:
    keeper.commit()
    keeper.log.advance_log_start(keeper.log.log_end_offset)
    keeper.log.roll()
    for _ in range(2):
        keeper.apply_retention(NOW_MS)
        keeper.log.remove_deleted(NOW_MS + (1 << 50))
        keeper.crash(Survives.SOME, seed=1)


def compacted(keeper: Keeper) -> None:
    keeper.commit()
    keeper.log.roll()
    keeper.compact()
    keeper.restart()


def compacted_and_crashed(keeper: Keeper) -> None:
    keeper.commit()
    keeper.log.roll()
    keeper.compact()
    keeper.flush()
    keeper.crash(Survives.NOTHING)


def without_sidecar_then_replayed(keeper: Keeper) -> None:
    keeper.flush()
    for name in keeper.names(".snapshot") + keeper.names(".producers"):
        keeper.disk.remove(f"{PATH}/{name}")
    keeper.crash(Survives.EVERYTHING)


def replicated(keeper: Keeper) -> None:
    follower = Keeper(keeper.config)
    for header in keeper.headers():
        found = keeper.log.read(header.base_offset, bytes_max=1, end_limit=1 << 60)
        assert found.records is not None
        follower.log.append_as_follower(found.records.read(), now_ms=NOW_MS)
    keeper.disk, keeper.log = follower.disk, follower.log


EVENTS = [
    restarted,
    crashed,
    killed,
    truncated,
    emptied,
    emptied_and_crashed,
    compacted,
    compacted_and_crashed,
    without_sidecar_then_replayed,
    replicated,
]


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.__name__)
def test_a_producer_is_known_as_before_after(event: Callable[[Keeper], None]) -> None:
    keeper = with_batches(8)
    before = keeper.log.producers.get(PID)
    assert before is not None
    event(keeper)
    assert keeper.log.producers.get(PID) == before
    for back in range(1, 6):
        assert keeper.append(produced(16 - 2 * back, 2)).first_offset == 16 - 2 * back
    assert code_of(lambda: keeper.append(produced(99))) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert keeper.append(produced(16)).first_offset == 16


def test_segments_stay_until_a_flushed_snapshot_remembers_their_producers() -> None:
    keeper = with_batches(8)
    keeper.commit()
    keeper.log.advance_log_start(16)
    keeper.log.roll()
    assert keeper.apply_retention(NOW_MS) == 0
    keeper.flush()
    assert keeper.apply_retention(NOW_MS) > 0


def test_a_truncated_batch_can_be_sent_again() -> None:
    keeper = with_batches(8)
    keeper.truncate(12)
    assert keeper.append(produced(12, 2)).is_duplicate is False
    assert keeper.append(produced(10, 2)).is_duplicate is True


def test_a_producer_whose_log_was_emptied_by_its_leader_is_unknown() -> None:
    keeper = with_batches(8)
    keeper.log.truncate_fully(100)
    keeper.flush()
    assert keeper.append(produced(55)).first_offset == 100


@pytest.mark.honours("producer.id.expiration.ms")
def test_a_silent_producer_is_forgotten_after_producer_id_expiration_ms() -> None:
    for text, is_known in (("1000", False), ("5000", True)):
        keeper = with_batches(1, settings(broker={"producer.id.expiration.ms": text}))
        keeper.log.expire_producers(NOW_MS + 999)
        assert keeper.log.producers.get(PID) is not None
        keeper.log.expire_producers(NOW_MS + 1000)
        assert (keeper.log.producers.get(PID) is not None) == is_known


def test_a_producer_with_an_open_transaction_is_not_forgotten() -> None:
    keeper = Keeper()
    keeper.append(batch(1, producer=(PID, 0, 0), is_transactional=True))
    keeper.log.expire_producers(NOW_MS + (1 << 50))
    assert keeper.log.producers.get(PID) is not None
    keeper.end_transaction(PID, 0, is_commit=True)
    keeper.log.expire_producers(NOW_MS + (1 << 50))
    assert keeper.log.producers.get(PID) is None


def test_a_producer_that_expired_while_the_broker_was_down_is_not_loaded() -> None:
    keeper = with_batches(1)
    keeper.now_ms += keeper.config.producer_expiration_ms
    assert keeper.restart().producers.get(PID) is None


# ---------------------------------------------------------------- the files


def snapshot_of(*batches: bytearray) -> tuple[Producers, bytes, bytes | None]:
    producers = Producers()
    for data in batches:
        update = producers.update(Origin.REPLICATION)
        update.add(read_header(data), None)
        producers.apply(update)
    return producers, *producers.to_snapshot(0)


def test_a_snapshot_without_its_sidecar_holds_the_last_batch() -> None:
    _, snapshot, recent = snapshot_of(*(produced(number) for number in range(3)))
    assert recent is not None
    (producer,) = Producers.from_snapshot(snapshot, None)
    assert [one.last_sequence for one in producer.batches] == [2]
    (producer,) = Producers.from_snapshot(snapshot, recent)
    assert [one.last_sequence for one in producer.batches] == [0, 1, 2]


def test_a_sidecar_of_another_snapshot_or_a_damaged_one_is_ignored() -> None:
    _, _, other = snapshot_of(*(produced(number) for number in range(5)))
    _, snapshot, recent = snapshot_of(*(produced(number) for number in range(3)))
    assert recent is not None
    for spoilt in (other, recent[:-1], b"", recent[:-1] + bytes([recent[-1] ^ 1])):
        (producer,) = Producers.from_snapshot(snapshot, spoilt)
        assert [one.last_sequence for one in producer.batches] == [2]


@given(position=st.integers(0, 200), bit=st.integers(0, 7))
def test_a_damaged_snapshot_is_refused(position: int, bit: int) -> None:
    _, snapshot, _ = snapshot_of(produced(1), batch(1, producer=(3, 1, 0), is_transactional=True))
    damaged = bytearray(snapshot)
    damaged[position % len(damaged)] ^= 1 << bit
    with pytest.raises(MalformedMessage):
        Producers.from_snapshot(bytes(damaged), None)


def test_a_damaged_snapshot_makes_the_log_replay_from_an_earlier_one() -> None:
    keeper = with_batches(8)
    before = keeper.log.producers.get(PID)
    keeper.restart()
    keeper.disk.flip_bit(f"{PATH}/{keeper.names('.snapshot')[-1]}", 20)
    keeper.log = keeper._open(is_clean=True)
    assert keeper.log.producers.get(PID) == before


def test_a_snapshot_that_lost_its_sidecar_in_a_crash_is_not_believed() -> None:
    keeper = with_batches(8)
    before = keeper.log.producers.get(PID)
    for name in keeper.names(".producers"):
        keeper.disk.remove(f"{PATH}/{name}")
    assert keeper.crash().producers.get(PID) == before


def test_a_snapshot_of_nothing_has_kafkas_ten_bytes() -> None:
    snapshot, recent = Producers().to_snapshot(0)
    assert (snapshot[:2], snapshot[6:], recent) == (b"\0\1", bytes(4), None)
    assert list(Producers.from_snapshot(snapshot, None)) == []


def test_a_producer_that_is_known_only_by_a_marker_survives_a_snapshot() -> None:
    keeper = Keeper()
    keeper.end_transaction(PID, 4, is_commit=True)
    expected = Producer(PID, 4, (), 0, NOW_MS, None)
    assert keeper.log.producers.get(PID) == expected
    assert keeper.restart().producers.get(PID) == expected
    assert expected.coordinator_epoch != NO_COORDINATOR_EPOCH
