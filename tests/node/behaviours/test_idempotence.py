"""What idempotent producers depend on: repetitions are recognised, gaps refused, and nothing is forgotten."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from node.broker import Broker, answer, batch, batch_of

from moldau.model.errors import ErrorCode
from moldau.wire.messages.txn import InitProducerIdRequest, InitProducerIdResponse
from moldau.wire.records.record import Record

PRODUCER = 4_000
SEQUENCE_MAX = 2**31 - 1


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        broker.create_topic()
        yield broker


def send(
    broker: Broker, sequence: int, count: int = 1, *, epoch: int = 0, producer: int = PRODUCER
) -> tuple[ErrorCode, int]:
    """What became of a batch: its error and its offset."""
    values = [b"%d" % (sequence + at) for at in range(count)]
    done = broker.produce(batch(values, producer=(producer, epoch, sequence)))
    return ErrorCode(done.error_code), done.base_offset


def ok(offset: int) -> tuple[ErrorCode, int]:
    return ErrorCode.NONE, offset


OUT_OF_ORDER = (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
RESTARTS: list[Callable[[Broker], None]] = [Broker.restart, Broker.crash]


@pytest.mark.behaviour(24)
def test_the_last_five_batches_are_recognised_and_older_ones_refused(broker: Broker) -> None:
    for number in range(7):
        assert send(broker, 2 * number, 2) == ok(2 * number)
    for number in range(2, 7):
        assert send(broker, 2 * number, 2) == ok(2 * number), "the offset of the first time"
    for number in range(2):
        assert send(broker, 2 * number, 2) == OUT_OF_ORDER
    assert len(broker.values()) == 14


@pytest.mark.behaviour(24)
def test_only_a_whole_batch_is_a_repetition(broker: Broker) -> None:
    assert send(broker, 0, 4) == ok(0)
    for sequence, count in ((0, 3), (1, 3), (0, 5), (2, 2)):
        assert send(broker, sequence, count) == OUT_OF_ORDER
    assert send(broker, 4) == ok(4)


@pytest.mark.behaviour(25)
def test_sequences_have_no_gaps(broker: Broker) -> None:
    assert send(broker, 0) == ok(0)
    assert send(broker, 2) == OUT_OF_ORDER
    assert send(broker, 1) == ok(1)
    # Each partition counts for itself.
    broker.create_topic("another")
    done = broker.produce(batch([b"x"], producer=(PRODUCER, 0, 0)), "another")
    assert done.error_code == ErrorCode.NONE


@pytest.mark.behaviour(25)
def test_sequences_begin_again_after_the_largest(broker: Broker) -> None:
    assert send(broker, SEQUENCE_MAX - 2, 2) == ok(0)
    assert send(broker, SEQUENCE_MAX) == ok(2)
    assert send(broker, 1) == OUT_OF_ORDER
    assert send(broker, 0) == ok(3)
    other = 4_001
    # A batch may reach over the end too.
    assert send(broker, SEQUENCE_MAX - 1, producer=other) == ok(4)
    assert send(broker, SEQUENCE_MAX, 3, producer=other) == ok(5)
    assert send(broker, 2, producer=other) == ok(8)


@pytest.mark.behaviour(25, 27)
def test_epochs_never_fall_and_a_new_one_begins_at_sequence_0(broker: Broker) -> None:
    assert send(broker, 0, epoch=3) == ok(0)
    assert send(broker, 1, epoch=2) == (ErrorCode.INVALID_PRODUCER_EPOCH, -1)
    assert send(broker, 1, epoch=4) == OUT_OF_ORDER
    assert send(broker, 0, epoch=4) == ok(1)
    assert send(broker, 1, epoch=4) == ok(2)
    assert send(broker, 0, epoch=3) == (ErrorCode.INVALID_PRODUCER_EPOCH, -1)


@pytest.mark.behaviour(25)
def test_a_producer_of_whom_nothing_is_known_may_begin_anywhere(broker: Broker) -> None:
    assert send(broker, 1_000) == ok(0)
    assert send(broker, 1_001) == ok(1)
    assert send(broker, 1_003) == OUT_OF_ORDER


@pytest.mark.behaviour(25)
@pytest.mark.honours("producer.id.expiration.ms")
def test_a_producer_that_is_forgotten_may_begin_anywhere() -> None:
    settings = {"producer.id.expiration.ms": "5000", "log.retention.check.interval.ms": "1000"}
    with Broker(settings) as broker:
        broker.create_topic()
        assert send(broker, 0) == ok(0)
        broker.run_for(3_000)
        assert send(broker, 5) == OUT_OF_ORDER
        broker.run_for(5_000)
        assert send(broker, 5) == ok(1)


@pytest.mark.behaviour(26)
@pytest.mark.parametrize("restart", RESTARTS)
def test_a_restart_keeps_all_five_batches(broker: Broker, restart: Callable[[Broker], None]) -> None:
    for number in range(6):
        send(broker, number)
    restart(broker)
    for number in range(1, 6):
        assert send(broker, number) == ok(number)
    assert send(broker, 0) == OUT_OF_ORDER
    assert send(broker, 7) == OUT_OF_ORDER
    assert send(broker, 6) == ok(6)


@pytest.mark.behaviour(26)
@pytest.mark.parametrize("restart", RESTARTS)
def test_segments_come_and_go_and_the_sequences_stay(restart: Callable[[Broker], None]) -> None:
    with Broker({"log.retention.check.interval.ms": "1000"}) as broker:
        broker.create_topic(settings={"segment.ms": "1000", "retention.ms": "2000"})
        for number in range(5):
            assert send(broker, number) == ok(number)
            broker.run_for(2_000)
        # A record without a producer moves the log on.
        broker.append([b"another"])
        broker.run_until(lambda: broker.log().log_start_offset >= 4)
        restart(broker)
        assert send(broker, 4) == ok(4)
        assert send(broker, 5) == ok(6)
        assert send(broker, 7) == OUT_OF_ORDER


@pytest.mark.behaviour(26)
@pytest.mark.parametrize("restart", RESTARTS)
def test_compaction_keeps_the_last_sequence_of_each_producer(restart: Callable[[Broker], None]) -> None:
    with Broker({"log.cleaner.backoff.ms": "500"}) as broker:
        broker.create_topic(
            settings={"cleanup.policy": "compact", "segment.ms": "1000", "min.cleanable.dirty.ratio": "0.01"}
        )

        def write(value: bytes, producer: tuple[int, int, int] | None) -> int:
            record = Record(0, broker.wall_ms, b"the key", value)
            done = broker.produce(batch_of([record], producer=producer))
            assert done.error_code == ErrorCode.NONE, ErrorCode(done.error_code)
            return done.base_offset

        for number in range(3):
            write(b"mine", (PRODUCER, 0, number))
        write(b"not mine", None)
        broker.run_for(2_000)
        write(b"active", None)
        broker.run_until(lambda: broker.log().cleaned_end_offset >= 4)
        assert [record.offset for record in broker.records()] == [3, 4]
        restart(broker)
        assert write(b"mine", (PRODUCER, 0, 2)) == 2
        assert write(b"mine", (PRODUCER, 0, 3)) == 5


@pytest.mark.behaviour(27)
def test_every_producer_gets_an_id_of_its_own_also_after_restarts(broker: Broker) -> None:
    def initiated() -> InitProducerIdResponse:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        return answer(broker.ask(request, 4), InitProducerIdResponse)

    ids = []
    for restart in (*RESTARTS, Broker.restart):
        for _ in range(3):
            made = initiated()
            assert (made.error_code, made.producer_epoch) == (ErrorCode.NONE, 0)
            ids.append(made.producer_id)
        restart(broker)
    assert len(set(ids)) == len(ids)
    assert min(ids) >= 0
    # A block that was begun is not gone on with: another process may have given out the rest of it.
    assert [one // 1_000 for one in ids] == sorted(one // 1_000 for one in ids)


@pytest.mark.behaviour(27)
def test_who_has_an_id_already_gets_another(broker: Broker) -> None:
    first = answer(
        broker.ask(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1), 4),
        InitProducerIdResponse,
    )
    request = InitProducerIdRequest(
        transactional_id=None,
        transaction_timeout_ms=1,
        producer_id=first.producer_id,
        producer_epoch=first.producer_epoch,
    )
    second = answer(broker.ask(request, 4), InitProducerIdResponse)
    assert second.producer_id != first.producer_id
    assert second.producer_epoch == 0
