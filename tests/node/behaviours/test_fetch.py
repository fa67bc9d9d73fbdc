"""What consumers depend on when they fetch: whole batches, sizes, waiting, sessions and epochs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
from node.broker import (
    TOPIC,
    Broker,
    OtherBroker,
    Wire,
    answer,
    batch,
    batches,
    fetched,
    headers,
)

from moldau.model.errors import ErrorCode
from moldau.model.ids import ZERO_UUID, Uuid
from moldau.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
)


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


def fetch(
    *positions: tuple[int, int],
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 1 << 24,
    partition_max_bytes: int = 1 << 20,
    session: tuple[int, int] = (0, -1),
    forgotten: Sequence[int] = (),
    topic_id: Uuid = ZERO_UUID,
) -> FetchRequest:
    """A fetch from partitions of one topic, each given as (partition, offset)."""
    asked = [
        FetchPartition(partition=at, fetch_offset=offset, partition_max_bytes=partition_max_bytes)
        for at, offset in positions
    ]
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        session_id=session[0],
        session_epoch=session[1],
        topics=[FetchTopic(topic=TOPIC, topic_id=topic_id, partitions=asked)] if asked else [],
        forgotten_topics_data=[ForgottenTopic(topic=TOPIC, topic_id=topic_id, partitions=[*forgotten])]
        if forgotten
        else [],
    )


def ask(broker: Broker, request: FetchRequest, version: int = 12) -> FetchResponse:
    return answer(broker.ask(request, version), FetchResponse)


def sizes(response: FetchResponse) -> dict[int, int]:
    """How many bytes came of each partition."""
    return {
        each.partition_index: len(each.records or b"")
        for topic in response.responses
        for each in topic.partitions
    }


# ---------------------------------------------------------------- which batches


@pytest.mark.behaviour(39)
@pytest.mark.parametrize("offset", [0, 1, 4])
def test_a_fetch_from_the_middle_of_a_batch_gets_the_whole_batch(broker: Broker, offset: int) -> None:
    broker.create_topic()
    broker.append([b"%d" % at for at in range(5)])
    broker.append([b"next"])
    first, second = batches(broker.fetch(offset))
    assert [record.offset for record in first] == [0, 1, 2, 3, 4]
    assert [record.offset for record in second] == [5]


@pytest.mark.behaviour(40)
def test_a_batch_that_is_larger_than_all_limits_comes_if_it_is_the_first(broker: Broker) -> None:
    broker.create_topic()
    broker.append([b"x" * 10_000])
    broker.append([b"y" * 10_000])
    request = fetch((0, 0), max_bytes=1, partition_max_bytes=1)
    for version in (4, 12):
        data = fetched(broker.ask(request, version))
        assert [header.base_offset for header in headers(data)] == [0]


@pytest.mark.behaviour(40)
def test_later_partitions_get_nothing_when_the_room_is_gone(broker: Broker) -> None:
    broker.create_topic(partitions=4)
    for partition in (1, 2, 3):
        broker.append([b"x" * 1_000], partition=partition)
    positions = [(0, 0), (1, 0), (2, 0), (3, 0)]
    size = sizes(ask(broker, fetch(*positions)))[1]
    # The first partition has nothing, so that the second may exceed the limit.
    assert sizes(ask(broker, fetch(*positions, max_bytes=1))) == {0: 0, 1: size, 2: 0, 3: 0}
    assert sizes(ask(broker, fetch(*positions, max_bytes=2 * size))) == {0: 0, 1: size, 2: size, 3: 0}
    # No part of a batch is sent.
    assert sizes(ask(broker, fetch(*positions, max_bytes=3 * size - 1))) == {0: 0, 1: size, 2: size, 3: 0}
    # The limit of a partition counts for the first batch only if another came before it.
    assert sizes(ask(broker, fetch(*positions, partition_max_bytes=1))) == {0: 0, 1: size, 2: 0, 3: 0}


@pytest.mark.behaviour(40)
def test_a_session_turns_its_partitions_round_so_that_none_starves(broker: Broker) -> None:
    broker.create_topic(partitions=3)
    for partition in range(3):
        broker.append([b"x" * 1_000], partition=partition)
    first = ask(broker, fetch((0, 0), (1, 0), (2, 0), max_bytes=1, session=(0, 0)))
    served = [at for at, size in sizes(first).items() if size]
    for epoch in (1, 2):
        more = ask(broker, fetch(max_bytes=1, session=(first.session_id, epoch)))
        served += [at for at, size in sizes(more).items() if size]
    assert sorted(served) == [0, 1, 2]


@pytest.mark.behaviour(40)
@pytest.mark.honours("fetch.max.bytes")
def test_the_broker_has_a_limit_of_its_own() -> None:
    with Broker({"fetch.max.bytes": "2048"}) as broker:
        broker.create_topic(partitions=3)
        for partition in range(3):
            broker.append([b"x" * 900], partition=partition)
        found = sizes(ask(broker, fetch((0, 0), (1, 0), (2, 0))))
        assert [size > 0 for size in found.values()] == [True, True, False]


# ---------------------------------------------------------------- waiting


def waited_ms(broker: Broker, wire: Wire, request: FetchRequest) -> int:
    began_ms = broker.now_ms
    wire.ask(request, 12)
    return broker.now_ms - began_ms


@pytest.mark.behaviour(41)
def test_a_fetch_waits_for_enough_bytes(broker: Broker) -> None:
    broker.create_topic()
    waiting = broker.connect()
    waiting.send(fetch((0, 0), max_wait_ms=30_000, min_bytes=300), 12)
    for _ in range(3):
        broker.run_for(500)
        assert not waiting.answers
        broker.append([b"x" * 60])
    began_ms = broker.now_ms
    data = fetched(waiting.receive())
    assert broker.now_ms - began_ms < 100
    assert len(data.records or b"") >= 300


@pytest.mark.behaviour(41)
def test_a_fetch_gives_up_when_its_time_is_over_and_brings_what_there_is(broker: Broker) -> None:
    broker.create_topic()
    broker.append([b"x"])
    began_ms = broker.now_ms
    data = broker.fetch(max_wait_ms=2_000, min_bytes=1_000_000)
    assert 2_000 <= broker.now_ms - began_ms < 2_100
    assert [len(each) for each in batches(data)] == [1]


@pytest.mark.behaviour(41)
def test_what_makes_a_fetch_answer_at_once(broker: Broker) -> None:
    broker.create_topic()
    broker.append([b"x"])

    def patient(*positions: tuple[int, int]) -> FetchRequest:
        return fetch(*positions, max_wait_ms=10_000, min_bytes=1_000_000)

    assert waited_ms(broker, broker.wire, fetch((0, 1), max_wait_ms=0, min_bytes=1_000_000)) < 100
    assert waited_ms(broker, broker.wire, fetch((0, 1), max_wait_ms=10_000, min_bytes=0)) < 100
    # An error of one partition.
    assert waited_ms(broker, broker.wire, patient((0, 1), (7, 0))) < 100
    assert waited_ms(broker, broker.wire, patient((0, 99))) < 100
    # Nothing to wait for.
    assert waited_ms(broker, broker.wire, patient()) < 100
    assert waited_ms(broker, broker.wire, patient((0, 1))) >= 10_000


@pytest.mark.behaviour(41)
def test_a_reader_that_is_behind_does_not_wait(broker: Broker) -> None:
    broker.create_topic(settings={"segment.ms": "1000"})
    broker.append([b"old"])
    broker.run_for(2_000)
    broker.append([b"new"])
    broker.append([b"newer"])
    request = fetch((0, 0), max_wait_ms=10_000, min_bytes=1_000_000)
    assert waited_ms(broker, broker.wire, request) < 100


@pytest.mark.behaviour(41, 42)
def test_nothing_beyond_the_high_watermark_is_read_and_asking_there_is_no_error(broker: Broker) -> None:
    OtherBroker(broker).heartbeat()
    broker.create_topic(brokers=[1, 2])
    assert broker.produce(batch([b"x", b"y"]), acks=1).error_code == ErrorCode.NONE
    for offset in (0, 1, 2):
        data = broker.fetch(offset)
        assert (ErrorCode(data.error_code), data.high_watermark) == (ErrorCode.NONE, 0)
        assert not data.records
    # Once its follower is given up, what it wrote is committed, and who waits for it is woken.
    data = broker.fetch(0, max_wait_ms=60_000)
    assert data.high_watermark == 2
    assert len(batches(data)[0]) == 2


@pytest.mark.behaviour(42)
def test_offsets_before_the_start_and_after_the_end_are_out_of_range(broker: Broker) -> None:
    broker.create_topic(settings={"segment.ms": "1000"})
    broker.append([b"a", b"b"])
    broker.run_for(2_000)
    broker.append([b"c"])
    broker.log().advance_log_start(2)
    for offset, code in [
        (-1, ErrorCode.OFFSET_OUT_OF_RANGE),
        (0, ErrorCode.OFFSET_OUT_OF_RANGE),
        (1, ErrorCode.OFFSET_OUT_OF_RANGE),
        (2, ErrorCode.NONE),
        (3, ErrorCode.NONE),
        (4, ErrorCode.OFFSET_OUT_OF_RANGE),
    ]:
        data = broker.fetch(offset)
        assert ErrorCode(data.error_code) is code, offset
    assert broker.fetch(2).log_start_offset == 2


# ---------------------------------------------------------------- sessions


@pytest.mark.behaviour(43)
def test_a_session_tells_only_what_is_new(broker: Broker) -> None:
    broker.create_topic(partitions=3)
    first = ask(broker, fetch((0, 0), (1, 0), (2, 0), session=(0, 0)))
    assert first.session_id != 0
    assert sizes(first) == {0: 0, 1: 0, 2: 0}
    session = first.session_id
    assert sizes(ask(broker, fetch(session=(session, 1)))) == {}
    broker.append([b"x"], partition=1)
    news = ask(broker, fetch(session=(session, 2)))
    assert news.session_id == session
    assert list(sizes(news)) == [1]
    # The records come until the client moves on.
    assert list(sizes(ask(broker, fetch(session=(session, 3))))) == [1]
    assert sizes(ask(broker, fetch((1, 1), session=(session, 4)))) == {}


@pytest.mark.behaviour(43)
def test_partitions_join_and_leave_a_session(broker: Broker) -> None:
    broker.create_topic(partitions=3)
    for partition in range(3):
        broker.append([b"x"], partition=partition)
    session = ask(broker, fetch((0, 0), session=(0, 0))).session_id
    assert sorted(sizes(ask(broker, fetch((1, 0), session=(session, 1))))) == [0, 1]
    assert sorted(sizes(ask(broker, fetch((2, 0), session=(session, 2), forgotten=[0])))) == [1, 2]


@pytest.mark.behaviour(43)
def test_who_is_not_in_step_with_its_session_is_told_so(broker: Broker) -> None:
    broker.create_topic()
    session = ask(broker, fetch((0, 0), session=(0, 0))).session_id
    unknown = ask(broker, fetch(session=(session + 1, 1)))
    assert ErrorCode(unknown.error_code) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    early = ask(broker, fetch(session=(session, 2)))
    assert ErrorCode(early.error_code) is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    # It begins anew, and the old session is gone.
    again = ask(broker, fetch((0, 0), session=(session, 0)))
    assert again.session_id not in (0, session)
    gone = ask(broker, fetch(session=(session, 1)))
    assert ErrorCode(gone.error_code) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    # The final epoch closes it.
    closed = ask(broker, fetch((0, 0), session=(again.session_id, -1)))
    assert closed.session_id == 0
    gone = ask(broker, fetch(session=(again.session_id, 1)))
    assert ErrorCode(gone.error_code) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


@pytest.mark.behaviour(43)
def test_no_session_outlives_its_broker(broker: Broker) -> None:
    broker.create_topic()
    session = ask(broker, fetch((0, 0), session=(0, 0))).session_id
    broker.crash()
    gone = ask(broker, fetch(session=(session, 1)))
    assert ErrorCode(gone.error_code) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


@pytest.mark.behaviour(15, 43)
def test_names_and_ids_do_not_mix_in_a_session(broker: Broker) -> None:
    topic_id = broker.create_topic()
    session = ask(broker, fetch((0, 0), session=(0, 0), topic_id=topic_id), 13).session_id
    mixed = ask(broker, fetch((0, 0), session=(session, 1)), 12)
    assert ErrorCode(mixed.error_code) is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


@pytest.mark.behaviour(43)
@pytest.mark.honours("max.incremental.fetch.session.cache.slots")
def test_without_room_for_another_session_a_fetch_has_none() -> None:
    with Broker({"max.incremental.fetch.session.cache.slots": "2"}) as broker:
        broker.create_topic()
        made = [ask(broker, fetch((0, 0), session=(0, 0))).session_id for _ in range(3)]
        assert [each != 0 for each in made] == [True, True, False]
        # After two minutes one that is idle gives way.
        broker.run_for(120_000)
        assert ask(broker, fetch((0, 0), session=(0, 0))).session_id != 0


@pytest.mark.behaviour(46)
@pytest.mark.parametrize("by_id", [True, False])
def test_a_session_is_told_of_a_topic_that_is_gone_until_it_forgets_it(broker: Broker, by_id: bool) -> None:
    topic_id = broker.create_topic()
    version, named = (13, topic_id) if by_id else (12, ZERO_UUID)
    session = ask(broker, fetch((0, 0), session=(0, 0), topic_id=named), version).session_id
    broker.delete_topic()
    expected = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    for epoch in (1, 2):
        response = ask(broker, fetch(session=(session, epoch), max_wait_ms=10_000), version)
        (topic,) = response.responses
        assert [ErrorCode(each.error_code) for each in topic.partitions] == [expected]
    assert broker.now_ms < 5_000, "an error is not waited with"


# ---------------------------------------------------------------- epochs


@pytest.mark.behaviour(44)
def test_a_client_that_knows_another_leader_epoch_is_told_so(broker: Broker) -> None:
    broker.create_topic()
    broker.append([b"x"])
    broker.crash()
    # A new leader does not tell the end before it has committed what it found.
    broker.run_until(lambda: broker.log().high_watermark == 1)
    epoch = broker.topic().partitions[0].leader_epoch
    for asked, code in [
        (-1, ErrorCode.NONE),
        (epoch, ErrorCode.NONE),
        (epoch - 1, ErrorCode.FENCED_LEADER_EPOCH),
        (epoch + 1, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ]:
        assert ErrorCode(broker.fetch(epoch=asked).error_code) is code
        assert ErrorCode(broker.list_offset(-1, epoch=asked).error_code) is code


@pytest.mark.behaviour(44)
def test_a_client_whose_log_has_diverged_is_told_where(broker: Broker) -> None:
    broker.create_topic()
    broker.append([b"a", b"b", b"c"])
    first = broker.topic().partitions[0].leader_epoch
    broker.restart()
    broker.append([b"d"])
    second = broker.topic().partitions[0].leader_epoch
    agrees = broker.fetch(3, last_epoch=first)
    assert agrees.diverging_epoch.epoch == -1
    assert agrees.records
    # It claims records of the first epoch that this log does not have.
    diverged = broker.fetch(4, last_epoch=first)
    assert (diverged.diverging_epoch.epoch, diverged.diverging_epoch.end_offset) == (first, 3)
    assert not diverged.records
    # It knows an epoch that never was here: the largest before it counts.
    between = broker.fetch(4, last_epoch=second - 1)
    assert (between.diverging_epoch.epoch, between.diverging_epoch.end_offset) == (first, 3)
