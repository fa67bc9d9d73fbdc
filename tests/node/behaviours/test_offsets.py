"""What clients depend on when they ask for offsets: by time, by what stands for one, and by leader epoch."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from node.broker import NOW_MS, TOPIC, Broker, OtherBroker, answer, batch, batch_of

from moldau.model.errors import ErrorCode
from moldau.wire.messages.offsets import (
    EpochEndOffset,
    ListOffsetsPartitionResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from moldau.wire.records.compression import Codec
from moldau.wire.records.record import Record

LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3
EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -4, -5, -6
READ_COMMITTED = 1
NOTHING = (ErrorCode.NONE, -1, -1)
# An election must leave time to flush a vote.
SLOW_DISK = {"controller.quorum.election.timeout.ms": "5000"}


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


def told(found: ListOffsetsPartitionResponse) -> tuple[ErrorCode, int, int]:
    """Whether an offset was found, which, and of what time."""
    return ErrorCode(found.error_code), found.offset, found.timestamp


def append_at(broker: Broker, *timestamps: int, codec: Codec = Codec.NONE) -> None:
    """Produce a batch with records of these times, counted from the simulation's beginning."""
    records = [Record(at, NOW_MS + timestamp, b"key", b"x") for at, timestamp in enumerate(timestamps)]
    assert broker.produce(batch_of(records, codec=codec)).error_code == ErrorCode.NONE


# ---------------------------------------------------------------- by time


@pytest.mark.behaviour(47)
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.ZSTD])
def test_the_first_record_that_is_not_older_is_found_inside_its_batch(broker: Broker, codec: Codec) -> None:
    broker.create_topic()
    append_at(broker, 10, 20, 30, codec=codec)
    # Producers' clocks differ: what comes later may be older.
    append_at(broker, 15, 50, 40, codec=codec)
    append_at(broker, 60, codec=codec)
    for asked, offset, timestamp in [
        (0, 0, 10),
        (10, 0, 10),
        (11, 1, 20),
        (30, 2, 30),
        (31, 4, 50),
        (45, 4, 50),
        (51, 6, 60),
        (60, 6, 60),
    ]:
        found = broker.list_offset(NOW_MS + asked)
        assert told(found) == (ErrorCode.NONE, offset, NOW_MS + timestamp), asked
    assert told(broker.list_offset(NOW_MS + 61)) == NOTHING
    assert told(broker.list_offset(NOW_MS + 61, isolation_level=READ_COMMITTED)) == NOTHING


@pytest.mark.behaviour(47)
def test_times_are_found_over_all_segments_from_the_start_of_the_log_on(broker: Broker) -> None:
    broker.create_topic(settings={"segment.ms": "1000"})
    for timestamp in (0, 5_000, 2_000, 10_000):
        append_at(broker, timestamp, timestamp + 1)
    assert len(broker.log().segments) > 2
    for asked, offset, timestamp in [(0, 0, 0), (2, 2, 5_000), (5_001, 3, 5_001), (5_002, 6, 10_000)]:
        assert told(broker.list_offset(NOW_MS + asked)) == (ErrorCode.NONE, offset, NOW_MS + timestamp)
    broker.log().advance_log_start(3)
    assert told(broker.list_offset(NOW_MS)) == (ErrorCode.NONE, 3, NOW_MS + 5_001)


@pytest.mark.behaviour(47)
def test_an_empty_log_has_ends_and_no_times(broker: Broker) -> None:
    broker.create_topic()
    assert told(broker.list_offset(NOW_MS)) == NOTHING
    assert told(broker.list_offset(MAX_TIMESTAMP)) == NOTHING
    for end in (LATEST, EARLIEST):
        assert told(broker.list_offset(end)) == (ErrorCode.NONE, 0, -1)


@pytest.mark.behaviour(47)
def test_which_record_is_the_newest(broker: Broker) -> None:
    broker.create_topic()
    append_at(broker, 10, 70, 70)
    append_at(broker, 20, 30)
    assert told(broker.list_offset(MAX_TIMESTAMP)) == (ErrorCode.NONE, 1, NOW_MS + 70)


@pytest.mark.behaviour(47)
def test_the_ends_of_a_log_are_where_it_starts_and_where_committed_records_end(broker: Broker) -> None:
    OtherBroker(broker).heartbeat()
    broker.create_topic(brokers=[1, 2])
    assert broker.produce(batch([b"a", b"b", b"c"]), acks=1).error_code == ErrorCode.NONE
    # Its follower has not fetched anything, so nothing is committed, and nothing may be seen.
    for isolation_level in (0, READ_COMMITTED):
        latest = broker.list_offset(LATEST, isolation_level=isolation_level)
        assert told(latest) == (ErrorCode.NONE, 0, -1)
    assert told(broker.list_offset(NOW_MS)) == NOTHING
    assert told(broker.list_offset(MAX_TIMESTAMP)) == NOTHING
    broker.run_until(lambda: broker.log().high_watermark == 3)
    for isolation_level in (0, READ_COMMITTED):
        latest = broker.list_offset(LATEST, isolation_level=isolation_level)
        assert told(latest) == (ErrorCode.NONE, 3, -1)
    broker.log().advance_log_start(2)
    for earliest in (EARLIEST, EARLIEST_LOCAL):
        assert told(broker.list_offset(earliest)) == (ErrorCode.NONE, 2, -1)
    assert told(broker.list_offset(LATEST)) == (ErrorCode.NONE, 3, -1)


@pytest.mark.behaviour(47)
@pytest.mark.parametrize(
    ("timestamp", "since"),
    [
        (LATEST, 1),
        (EARLIEST, 1),
        (MAX_TIMESTAMP, 7),
        (EARLIEST_LOCAL, 8),
        (LATEST_TIERED, 9),
        (EARLIEST_PENDING_UPLOAD, 11),
    ],
)
def test_what_stands_for_a_time_is_known_from_some_version_on(
    broker: Broker, timestamp: int, since: int
) -> None:
    broker.create_topic()
    append_at(broker, 5, 9)
    for version in range(1, 12):
        found = broker.list_offset(timestamp, version=version)
        is_known = version >= since
        assert ErrorCode(found.error_code) is (ErrorCode.NONE if is_known else ErrorCode.UNSUPPORTED_VERSION)
    offset, time = {
        LATEST: (2, -1),
        EARLIEST: (0, -1),
        EARLIEST_LOCAL: (0, -1),
        MAX_TIMESTAMP: (1, NOW_MS + 9),
    }.get(timestamp, (-1, -1))
    assert told(broker.list_offset(timestamp)) == (ErrorCode.NONE, offset, time)


@pytest.mark.behaviour(47)
def test_other_negative_numbers_stand_for_nothing(broker: Broker) -> None:
    broker.create_topic()
    for version in (1, 7, 11):
        found = broker.list_offset(-7, version=version)
        assert ErrorCode(found.error_code) is ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.behaviour(47)
def test_an_offset_comes_with_the_epoch_of_the_leader_that_wrote_it(broker: Broker) -> None:
    broker.create_topic()
    append_at(broker, 10)
    first = broker.topic().partitions[0].leader_epoch
    broker.restart()
    append_at(broker, 20)
    second = broker.topic().partitions[0].leader_epoch
    for timestamp, epoch in [(EARLIEST, first), (NOW_MS, first), (NOW_MS + 11, second), (LATEST, second)]:
        assert broker.list_offset(timestamp).leader_epoch == epoch, timestamp
        assert broker.list_offset(timestamp, version=3).leader_epoch == -1
    assert broker.list_offset(NOW_MS + 21).leader_epoch == -1


# ---------------------------------------------------------------- a new leader


@pytest.mark.behaviour(48)
def test_a_new_leader_tells_no_end_before_it_has_committed_what_it_found(broker: Broker) -> None:
    broker.create_topic()
    append_at(broker, 10, 20)
    append_at(broker, 30)
    replica = broker.node.partitions.find(TOPIC, 0)
    assert replica is not None and replica.leader is not None
    # As if its predecessor had left one record more, which is not committed yet.
    replica.leader.epoch_start = 4
    for timestamp in (LATEST, MAX_TIMESTAMP, NOW_MS + 35):
        for version, code in [(5, ErrorCode.OFFSET_NOT_AVAILABLE), (4, ErrorCode.LEADER_NOT_AVAILABLE)]:
            if timestamp != MAX_TIMESTAMP or version >= 7:
                found = broker.list_offset(timestamp, version=version)
                assert told(found) == (code, -1, -1), timestamp
    # What is known to be committed is told.
    assert told(broker.list_offset(EARLIEST)) == (ErrorCode.NONE, 0, -1)
    assert told(broker.list_offset(NOW_MS + 15)) == (ErrorCode.NONE, 1, NOW_MS + 20)
    append_at(broker, 40)
    assert told(broker.list_offset(LATEST)) == (ErrorCode.NONE, 4, -1)
    assert told(broker.list_offset(NOW_MS + 35)) == (ErrorCode.NONE, 3, NOW_MS + 40)


@pytest.mark.behaviour(48)
def test_no_end_of_the_log_goes_back_by_a_crash() -> None:
    settings = SLOW_DISK | {"replica.high.watermark.checkpoint.interval.ms": "1000"}
    with Broker(settings, flush_ms=(300, 300)) as broker:
        broker.create_topic()
        append_at(broker, 10, 20)
        # The high watermark is written down, and what comes then is committed after that.
        broker.run_for(3_000)
        append_at(broker, 30)
        broker.crash()
        assert told(broker.list_offset(LATEST)) == (ErrorCode.NONE, 3, -1)


# ---------------------------------------------------------------- by leader epoch


def epoch_end(
    broker: Broker, epoch: int, *, current: int = -1, version: int = 2, partition: int = 0, topic: str = TOPIC
) -> EpochEndOffset:
    asked = OffsetForLeaderPartition(partition=partition, current_leader_epoch=current, leader_epoch=epoch)
    request = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic=topic, partitions=[asked])])
    response = answer(broker.ask(request, version), OffsetForLeaderEpochResponse)
    return response.topics[0].partitions[0]


@pytest.mark.behaviour(49)
@pytest.mark.parametrize("version", [2, 3, 4])
def test_an_epoch_ends_where_the_next_one_wrote_first(broker: Broker, version: int) -> None:
    broker.create_topic()
    epochs = []
    for count in (3, 0, 2):
        epochs.append(broker.topic().partitions[0].leader_epoch)
        if count:
            append_at(broker, *range(count))
        broker.restart()
    first, silent, second = epochs
    present = broker.topic().partitions[0].leader_epoch
    append_at(broker, 1)
    for asked, epoch, end in [
        (first, first, 3),
        # Nobody wrote in it, so that the one before counts.
        (silent, first, 3),
        (second, second, 5),
        (present, present, 6),
        (present + 1, -1, -1),
        (-1, -1, -1),
    ]:
        found = epoch_end(broker, asked, version=version)
        assert (ErrorCode(found.error_code), found.leader_epoch, found.end_offset) == (
            ErrorCode.NONE,
            epoch,
            end,
        ), asked


@pytest.mark.behaviour(49)
def test_an_epoch_from_before_the_log_ended_where_the_log_starts(broker: Broker) -> None:
    broker.create_topic()
    append_at(broker, 1, 2, 3)
    first = broker.topic().partitions[0].leader_epoch
    broker.restart()
    append_at(broker, 4, 5)
    broker.log().advance_log_start(4)
    found = epoch_end(broker, first)
    assert (found.leader_epoch, found.end_offset) == (first, 4)


@pytest.mark.behaviour(49)
def test_who_asks_with_another_leader_epoch_or_elsewhere_gets_no_end(broker: Broker) -> None:
    broker.create_topic()
    append_at(broker, 1)
    broker.restart()
    present = broker.topic().partitions[0].leader_epoch
    for current, code in [
        (present, ErrorCode.NONE),
        (present - 1, ErrorCode.FENCED_LEADER_EPOCH),
        (present + 1, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ]:
        found = epoch_end(broker, present, current=current)
        assert ErrorCode(found.error_code) is code
        assert found.end_offset == (1 if code is ErrorCode.NONE else -1)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert ErrorCode(epoch_end(broker, present, partition=1).error_code) is unknown
    assert ErrorCode(epoch_end(broker, present, topic="missing").error_code) is unknown
