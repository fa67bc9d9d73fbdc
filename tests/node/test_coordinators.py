"""How a node keeps a coordinator's state in its log: written in batches, told once committed, loaded."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from node.broker import TOPIC, Broker, answer, headers
from node.members import (
    COMMIT_VERSION,
    GROUP,
    OFFSETS_TOPIC,
    Member,
    commit,
    commit_code,
    commit_request,
    committed,
    committed_group,
    find_coordinator,
    partition_of,
    stable,
    until,
)

from moldau.model.errors import ErrorCode
from moldau.model.settings.setting import InvalidSetting
from moldau.wire.messages.group_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from moldau.wire.messages.groups import HeartbeatRequest, HeartbeatResponse, OffsetCommitResponse
from moldau.wire.messages.internal_logs import GROUP_LOG
from moldau.wire.records.compression import Codec

NONE = ErrorCode.NONE
COUNT = 5
QUICK = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": str(COUNT)}
PARTITION = partition_of(GROUP, count=COUNT)


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(QUICK) as made:
        made.create_topic(partitions=10)
        find_coordinator(made)
        yield made


def log_end(broker: Broker) -> int:
    return broker.log(OFFSETS_TOPIC, partition=PARTITION).log_end_offset


# ------------------------------------------------------------------------------------------------- writing


def test_records_are_those_that_kafka_writes(broker: Broker) -> None:
    member = Member(broker)
    stable([member])
    member.commit({(TOPIC, 3): 7})
    records = broker.records(OFFSETS_TOPIC, partition=PARTITION)
    assert [record.key and record.key[:2] for record in records] == [b"\0\2", b"\0\1"]
    assert [record.value and record.value[:2] for record in records] == [b"\0\3", b"\0\4"]
    group, offset = (
        (key, GROUP_LOG.decode_value(key, record.value or b""))
        for record in records
        for key in [GROUP_LOG.decode_key(record.key or b"")]
    )
    assert group[0] == GroupMetadataKey(group=GROUP)
    assert isinstance(group[1], GroupMetadataValue)
    assert [each.member_id for each in group[1].members] == [member.member_id]
    assert offset[0] == OffsetCommitKey(group=GROUP, topic=TOPIC, partition=3)
    assert isinstance(offset[1], OffsetCommitValue)
    assert offset[1].offset == 7
    assert offset[1].topic_id == broker.topic().topic_id
    assert broker.wall_ms - 10_000 <= offset[1].commit_timestamp <= broker.wall_ms


def test_an_offset_with_a_time_of_its_own_is_written_as_kafka_2_0_did(broker: Broker) -> None:
    request = commit_request({(TOPIC, 0): 1})
    request.retention_time_ms = 60_000
    assert commit_code(answer(broker.ask(request, 4), OffsetCommitResponse)) is NONE
    (record,) = broker.records(OFFSETS_TOPIC, partition=PARTITION)
    assert record.value is not None
    assert record.value[:2] == b"\0\1"


def test_what_is_decided_in_one_tick_is_one_batch(broker: Broker) -> None:
    wire = broker.connect()
    wire.send_all([commit_request({(TOPIC, 0): offset}) for offset in range(20)], COMMIT_VERSION)
    for _ in range(20):
        wire.receive()
    assert log_end(broker) == 20
    data = broker.fetch(0, OFFSETS_TOPIC, partition=PARTITION)
    assert len(headers(data)) < 20


def test_a_decision_larger_than_a_batch_may_be_is_several(broker: Broker) -> None:
    broker.create_topic("wide", partitions=600)
    until(broker, lambda: commit(broker, {("wide", 0): 0}) is NONE)
    end = log_end(broker)
    offsets = {("wide", partition): partition for partition in range(600)}
    assert commit(broker, offsets, note="x" * 4096) is NONE
    assert log_end(broker) == end + 600
    sizes = []
    offset = end
    while offset < end + 600:
        (header, *_) = headers(broker.fetch(offset, OFFSETS_TOPIC, partition=PARTITION))
        sizes.append(header.size_bytes)
        offset = header.next_offset
    assert len(sizes) >= 3
    assert max(sizes) <= 1024 * 1024 + 12
    broker.crash()
    find_coordinator(broker)
    assert committed(broker) == offsets


@pytest.mark.honours("offsets.topic.compression.codec")
def test_batches_are_compressed_if_the_settings_want_it() -> None:
    with Broker(QUICK | {"offsets.topic.compression.codec": "4"}) as broker:
        broker.create_topic()
        find_coordinator(broker)
        commit(broker, {(TOPIC, 0): 1}, note="x" * 1000)
        (header,) = headers(broker.fetch(0, OFFSETS_TOPIC, partition=PARTITION))
        assert header.codec == Codec.ZSTD
        broker.crash()
        find_coordinator(broker)
        assert committed(broker) == {(TOPIC, 0): 1}


def test_a_codec_that_does_not_exist_is_not_taken_for_none() -> None:
    with pytest.raises(InvalidSetting, match="no codec 9"):
        Broker(QUICK | {"offsets.topic.compression.codec": "9"})


# ----------------------------------------------------------------------------------------------- committing

SLOW = {**QUICK, "controller.quorum.election.timeout.ms": "5000"}
# Until a slow disk has written down all that comes with new partitions.
_SETTLED_MS = 60_000


def test_nobody_is_told_of_what_is_not_flushed() -> None:
    with Broker(SLOW, flush_ms=(400, 400)) as broker:
        broker.create_topic()
        find_coordinator(broker)
        broker.run_for(_SETTLED_MS)
        began_ms = broker.now_ms
        writer, reader = broker.connect(), broker.connect()
        writer.send(commit_request({(TOPIC, 0): 5}), COMMIT_VERSION)
        broker.run_for(100)
        assert log_end(broker) == 1, "it is applied and written"
        assert not writer.answers
        assert committed(reader) == {(TOPIC, 0): 5}
        assert broker.now_ms - began_ms >= 400, "who reads it waits as long as who wrote it"
        assert writer.answers


@pytest.mark.honours("offsets.commit.timeout.ms")
def test_a_commit_that_takes_too_long_may_have_happened_or_not() -> None:
    with Broker(SLOW | {"offsets.commit.timeout.ms": "100"}, flush_ms=(400, 400)) as broker:
        broker.create_topic()
        find_coordinator(broker)
        broker.run_for(_SETTLED_MS)
        began_ms = broker.now_ms
        assert commit(broker, {(TOPIC, 0): 5}) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert 100 <= broker.now_ms - began_ms <= 390
        until(broker, lambda: committed_group(broker).error_code == NONE)
        assert committed(broker) == {(TOPIC, 0): 5}


def test_a_topic_s_settings_cannot_make_offsets_less_durable(broker: Broker) -> None:
    assert broker.alter(2, OFFSETS_TOPIC, ("moldau.durability", 0, "replicated")) is NONE
    broker.run_for(1_000)
    replica = broker.node.partitions.find(OFFSETS_TOPIC, PARTITION)
    assert replica is not None
    assert replica.leader is not None
    assert replica.leader.needs_flush_to_commit


# -------------------------------------------------------------------------------------------------- loading


def test_a_restart_and_a_crash_forget_nothing(broker: Broker) -> None:
    member = Member(broker)
    stable([member])
    member.commit({(TOPIC, 0): 1})
    for again in (broker.restart, broker.crash):
        again()
        find_coordinator(broker)
        assert committed(broker) == {(TOPIC, 0): 1}
        member.reconnect()
        assert member.heartbeat() is NONE
        assert member.sync().assignment == member.member_id.encode()


@pytest.mark.honours("offsets.load.buffer.size")
def test_while_a_shard_is_loaded_slice_by_slice_clients_are_asked_to_wait(broker: Broker) -> None:
    for offset in range(300):
        commit(broker, {(TOPIC, 0): offset})
    broker.restart({"offsets.load.buffer.size": "1"})
    began_ms = broker.now_ms
    assert commit(broker, {(TOPIC, 0): 1}) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert committed_group(broker).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    request = HeartbeatRequest(group_id=GROUP, generation_id=1, member_id="m")
    assert answer(broker.ask(request), HeartbeatResponse).error_code == NONE
    find_coordinator(broker)
    slow_ms = broker.now_ms - began_ms
    assert committed(broker) == {(TOPIC, 0): 299}
    broker.restart({"offsets.load.buffer.size": "5000000"})
    began_ms = broker.now_ms
    find_coordinator(broker)
    assert (broker.now_ms - began_ms) * 4 < slow_ms


@pytest.mark.behaviour(66)
def test_a_log_that_was_compacted_loads_to_the_same(broker: Broker) -> None:
    member = Member(broker)
    stable([member])
    for offset in range(50):
        member.commit({(TOPIC, 0): offset, (TOPIC, 1): offset})
    member.leave()
    replica = broker.node.partitions.find(OFFSETS_TOPIC, PARTITION)
    assert replica is not None
    changes = ("segment.ms", 0, "1000"), ("min.cleanable.dirty.ratio", 0, "0.01")
    assert broker.alter(2, OFFSETS_TOPIC, *changes) is NONE
    broker.run_for(2_000)
    commit(broker, {(TOPIC, 2): 1})
    broker.run_for(60_000)
    assert len(broker.records(OFFSETS_TOPIC, partition=PARTITION)) < 20
    expected = {(TOPIC, 0): 49, (TOPIC, 1): 49, (TOPIC, 2): 1}
    assert committed(broker) == expected
    broker.crash()
    find_coordinator(broker)
    assert committed(broker) == expected
    member.reconnect()
    member.member_id = ""
    assert member.join().generation_id == 3


def test_damaged_records_are_lost_and_no_others(broker: Broker) -> None:
    for partition in range(3):
        commit(broker, {(TOPIC, partition): 1})
    broker.stop()
    path = f"{OFFSETS_TOPIC}-{PARTITION}/{0:020}.log"
    disk = broker.disk
    first = broker_batch_size(disk.open(path).read(0, 12))
    disk.flip_bit(path, first + 70)
    disk.remove(".kafka_cleanshutdown")
    broker.start()
    find_coordinator(broker)
    assert committed(broker) == {(TOPIC, 0): 1, (TOPIC, 2): 1}


def broker_batch_size(start: bytes) -> int:
    return 12 + int.from_bytes(start[8:12], "big")


# ------------------------------------------------------------------------------------------------- dropping


def test_a_shard_whose_append_fails_forgets_what_it_had_decided(broker: Broker) -> None:
    assert commit(broker, {(TOPIC, 0): 1}) is NONE
    disk = broker.disk
    disk.fail("write", path=f"{OFFSETS_TOPIC}-{PARTITION}/{0:020}.log")
    assert commit(broker, {(TOPIC, 0): 2}) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    disk.forget_faults()
    until(broker, lambda: committed_group(broker).error_code == NONE)
    assert committed(broker) == {(TOPIC, 0): 1}
    assert commit(broker, {(TOPIC, 0): 3}) is NONE
    assert committed(broker) == {(TOPIC, 0): 3}


def test_who_waits_for_a_shard_that_is_dropped_is_sent_away(broker: Broker) -> None:
    first, second = Member(broker, "a"), Member(broker, "b")
    stable([first])
    second.begin_join()
    assert broker.delete_topic(OFFSETS_TOPIC) is NONE
    assert second.joined().error_code == ErrorCode.NOT_COORDINATOR
    assert first.heartbeat() is ErrorCode.NOT_COORDINATOR
    find_coordinator(broker)
    assert first.heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID
