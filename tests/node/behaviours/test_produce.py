"""What clients depend on when they produce: which batches are refused, and what an accepted one becomes."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pytest
from crc32c import crc32c
from node.broker import (
    NOW_MS,
    TOPIC,
    Broker,
    OtherBroker,
    answer,
    batch,
    batch_of,
    fetched,
    headers,
    produce_request,
    produced,
    raw_records,
)

from moldau.model.errors import ErrorCode
from moldau.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from moldau.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from moldau.wire.records.compression import Codec
from moldau.wire.records.record import Record

# Where the fields of a batch stand, and how they are packed.
FIELDS = {
    "base_offset": (0, ">q"),
    "length": (8, ">i"),
    "leader_epoch": (12, ">i"),
    "magic": (16, ">b"),
    "crc": (17, ">I"),
    "attributes": (21, ">h"),
    "last_offset_delta": (23, ">i"),
    "producer_id": (43, ">q"),
    "base_sequence": (53, ">i"),
    "count": (57, ">i"),
}
HOUR_MS = 3_600_000
# An election must leave time to flush a vote.
SLOW_DISK = {"controller.quorum.election.timeout.ms": "5000"}


def changed(data: bytes, field: str, value: int, *, is_sealed: bool = True) -> bytes:
    """The batch with another value in one field, and a CRC that agrees."""
    made = bytearray(data)
    at, form = FIELDS[field]
    struct.pack_into(form, made, at, value)
    if is_sealed:
        struct.pack_into(">I", made, 17, crc32c(bytes(made[21:])))
    return bytes(made)


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


# ---------------------------------------------------------------- soundness

SOUND = batch([b"one", b"two"])


@pytest.mark.behaviour(17)
@pytest.mark.parametrize(
    ("records", "code"),
    [
        (b"", ErrorCode.INVALID_RECORD),
        (None, ErrorCode.INVALID_RECORD),
        (SOUND + SOUND, ErrorCode.INVALID_RECORD),
        (SOUND[:-1], ErrorCode.CORRUPT_MESSAGE),
        (SOUND[:20], ErrorCode.CORRUPT_MESSAGE),
        (changed(SOUND, "length", 5), ErrorCode.CORRUPT_MESSAGE),
        (changed(SOUND, "length", -1), ErrorCode.CORRUPT_MESSAGE),
        (changed(SOUND, "crc", 1, is_sealed=False), ErrorCode.CORRUPT_MESSAGE),
        (SOUND[:-1] + b"\xff", ErrorCode.CORRUPT_MESSAGE),
        (changed(SOUND, "base_offset", 3), ErrorCode.INVALID_RECORD),
        (changed(SOUND, "magic", 1), ErrorCode.INVALID_RECORD),
        (changed(SOUND, "last_offset_delta", 0), ErrorCode.INVALID_RECORD),
        (changed(SOUND, "last_offset_delta", 7), ErrorCode.INVALID_RECORD),
        (changed(SOUND, "count", 0), ErrorCode.INVALID_RECORD),
        (changed(changed(SOUND, "count", 3), "last_offset_delta", 2), ErrorCode.INVALID_RECORD),
        (changed(SOUND, "attributes", 1 << 5), ErrorCode.INVALID_RECORD),
        (changed(SOUND, "attributes", 5), ErrorCode.INVALID_RECORD),
        (changed(SOUND, "producer_id", 7), ErrorCode.INVALID_RECORD),
    ],
)
def test_a_batch_that_is_not_sound_is_refused_and_leaves_nothing_behind(
    broker: Broker, records: bytes | None, code: ErrorCode
) -> None:
    broker.create_topic()
    done = produced(broker.ask(produce_request(records), 12))
    assert ErrorCode(done.error_code) is code
    assert done.base_offset == -1
    assert broker.values() == []
    # The connection and the partition go on.
    assert broker.append([b"x"]) == 0


@pytest.mark.behaviour(17)
@pytest.mark.parametrize("epoch", [-1, 0, 77])
def test_the_leader_epoch_of_a_client_is_not_looked_at(broker: Broker, epoch: int) -> None:
    broker.create_topic()
    assert broker.produce(changed(SOUND, "leader_epoch", epoch)).error_code == ErrorCode.NONE


@pytest.mark.behaviour(17)
def test_one_bad_batch_does_not_keep_the_others_of_its_request(broker: Broker) -> None:
    broker.create_topic(partitions=3)
    data = [
        PartitionProduceData(index=0, records=SOUND),
        PartitionProduceData(index=1, records=SOUND[:-1]),
        PartitionProduceData(index=2, records=SOUND),
        PartitionProduceData(index=3, records=SOUND),
    ]
    request = ProduceRequest(
        acks=-1, timeout_ms=30_000, topic_data=[TopicProduceData(name=TOPIC, partition_data=data)]
    )
    (topic,) = answer(broker.ask(request, 12), ProduceResponse).responses
    assert [(each.index, ErrorCode(each.error_code)) for each in topic.partition_responses] == [
        (0, ErrorCode.NONE),
        (1, ErrorCode.CORRUPT_MESSAGE),
        (2, ErrorCode.NONE),
        (3, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]


@pytest.mark.behaviour(18)
@pytest.mark.parametrize("codec", list(Codec))
def test_what_is_read_is_what_was_sent_but_for_the_offset_and_the_epoch(broker: Broker, codec: Codec) -> None:
    broker.create_topic()
    broker.append([b"before"])
    sent = batch([b"value %d" % at * 20 for at in range(10)], codec=codec)
    done = broker.produce(sent)
    assert (done.base_offset, done.log_append_time_ms) == (1, -1)
    read = raw_records(broker.fetch(1))
    assert struct.unpack_from(">q", read, 0) == (1,)
    assert struct.unpack_from(">i", read, 12) == (broker.topic().partitions[0].leader_epoch,)
    assert read[8:12] == sent[8:12]
    assert read[16:] == sent[16:]


@pytest.mark.behaviour(18)
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_log_append_time_is_stamped_told_and_covered_by_the_crc(broker: Broker, codec: Codec) -> None:
    broker.create_topic(settings={"message.timestamp.type": "LogAppendTime"})
    done = broker.produce(batch([b"a", b"b"], timestamp=5, codec=codec))
    assert NOW_MS <= done.log_append_time_ms <= broker.wall_ms
    data = broker.fetch()
    (header,) = headers(data)
    assert header.is_log_append_time
    assert header.max_timestamp == done.log_append_time_ms
    raw = raw_records(data)
    assert crc32c(raw[21:]) == header.crc
    assert [record.timestamp for record in broker.records()] == [done.log_append_time_ms] * 2


@pytest.mark.behaviour(18)
def test_a_repeated_batch_is_told_the_log_append_time_of_the_first(broker: Broker) -> None:
    broker.create_topic(settings={"message.timestamp.type": "LogAppendTime"})
    sent = batch([b"a"], producer=(5, 0, 0))
    first = broker.produce(sent)
    broker.run_for(1_000)
    again = broker.produce(sent)
    assert (again.base_offset, again.log_append_time_ms) == (first.base_offset, first.log_append_time_ms)


# ---------------------------------------------------------------- sizes


@pytest.mark.behaviour(19)
def test_batches_are_measured_as_they_come_compressed(broker: Broker) -> None:
    broker.create_topic(settings={"max.message.bytes": "1000"})
    large = [b"x" * 5_000]
    refused = broker.produce(batch(large))
    assert refused.error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert broker.produce(batch(large, codec=Codec.ZSTD)).error_code == ErrorCode.NONE
    overhead = len(batch([b"x" * 900])) - 900
    assert broker.produce(batch([b"x" * (1_000 - overhead)])).error_code == ErrorCode.NONE


@pytest.mark.behaviour(19)
def test_the_default_limit_is_that_of_kafka(broker: Broker) -> None:
    broker.create_topic()
    limit = 1_048_588
    overhead = len(batch([b"x" * 1_000_000])) - 1_000_000
    assert broker.produce(batch([b"x" * (limit - overhead)])).error_code == ErrorCode.NONE
    too_large = broker.produce(batch([b"x" * (limit - overhead + 1)]))
    assert too_large.error_code == ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.behaviour(19)
def test_a_batch_that_no_segment_can_hold_is_refused(broker: Broker) -> None:
    broker.create_topic(settings={"segment.bytes": str(1 << 20), "max.message.bytes": str(2 << 20)})
    refused = broker.produce(batch([b"x" * ((1 << 20) + 1)]))
    assert refused.error_code == ErrorCode.RECORD_LIST_TOO_LARGE
    assert broker.produce(batch([b"x" * 1_000_000])).error_code == ErrorCode.NONE


# ---------------------------------------------------------------- keys, codecs, timestamps


@pytest.mark.behaviour(20)
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_a_compacted_topic_says_which_records_have_no_key(broker: Broker, codec: Codec) -> None:
    broker.create_topic(settings={"cleanup.policy": "compact"})
    records = [Record(at, NOW_MS, None if at in (1, 3) else b"key", b"value") for at in range(5)]
    refused = broker.produce(batch_of(records, codec=codec), version=8)
    assert refused.error_code == ErrorCode.INVALID_RECORD
    assert refused.error_message
    assert [each.batch_index for each in refused.record_errors] == [1, 3]
    assert all(each.batch_index_error_message for each in refused.record_errors)
    assert broker.produce(batch_of(records[:1])).error_code == ErrorCode.NONE


@pytest.mark.behaviour(20)
def test_clients_before_version_8_get_the_code_alone(broker: Broker) -> None:
    broker.create_topic(settings={"cleanup.policy": "compact"})
    assert broker.produce(batch([b"no key"]), version=7).error_code == ErrorCode.INVALID_RECORD


@pytest.mark.behaviour(21)
def test_zstd_is_only_for_clients_whose_version_knows_it(broker: Broker) -> None:
    broker.create_topic()
    sent = batch([b"x" * 100], codec=Codec.ZSTD)
    refused = broker.produce(sent, version=6)
    assert refused.error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert broker.produce(batch([b"x" * 100], codec=Codec.LZ4), version=6).error_code == ErrorCode.NONE
    assert broker.produce(sent, version=7).error_code == ErrorCode.NONE


@pytest.mark.behaviour(21)
def test_zstd_is_not_sent_to_a_consumer_that_cannot_read_it(broker: Broker) -> None:
    broker.create_topic(settings={"compression.type": "zstd"})
    broker.append([b"x"])
    assert broker.fetch(version=10).error_code == ErrorCode.NONE
    refused = broker.fetch(version=9)
    assert ErrorCode(refused.error_code) is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert not refused.records


@pytest.mark.behaviour(23)
@pytest.mark.parametrize(
    ("distance_ms", "code"),
    [
        (HOUR_MS - 1_000, ErrorCode.NONE),
        (HOUR_MS + 1_000, ErrorCode.INVALID_TIMESTAMP),
        (-1_000 * HOUR_MS, ErrorCode.NONE),
    ],
)
def test_timestamps_lie_at_most_an_hour_in_the_future(
    broker: Broker, distance_ms: int, code: ErrorCode
) -> None:
    broker.create_topic()
    done = broker.produce(batch([b"x"], timestamp=broker.wall_ms + distance_ms))
    assert ErrorCode(done.error_code) is code


@pytest.mark.behaviour(23)
def test_a_topic_sets_how_far_timestamps_may_lie_away(broker: Broker) -> None:
    limits = {"message.timestamp.before.max.ms": "5000", "message.timestamp.after.max.ms": "5000"}
    broker.create_topic(settings=limits)
    records = [Record(at, broker.wall_ms + away, None, b"x") for at, away in enumerate((0, -9_000, 9_000))]
    refused = broker.produce(batch_of(records))
    assert refused.error_code == ErrorCode.INVALID_TIMESTAMP
    assert [each.batch_index for each in refused.record_errors] == [1, 2]
    assert broker.append([b"now"]) == 0
    broker.create_topic("stamped", settings=limits | {"message.timestamp.type": "LogAppendTime"})
    assert broker.produce(batch([b"x"], timestamp=1), "stamped").error_code == ErrorCode.NONE


# ---------------------------------------------------------------- replicas


@pytest.mark.behaviour(22)
@pytest.mark.honours("min.insync.replicas")
def test_acks_all_writes_nothing_while_too_few_replicas_are_in_sync(broker: Broker) -> None:
    other = OtherBroker(broker)
    other.heartbeat()
    broker.create_topic(brokers=[1, 2], settings={"min.insync.replicas": "2"})
    broker.run_for(10_000)
    assert broker.topic().partitions[0].isr_nodes == [1]
    refused = broker.produce(batch([b"x"]))
    assert ErrorCode(refused.error_code) is ErrorCode.NOT_ENOUGH_REPLICAS
    assert broker.log().log_end_offset == 0
    # Who asks for less gets less.
    assert broker.produce(batch([b"x"]), acks=1).error_code == ErrorCode.NONE
    assert broker.log().log_end_offset == 1
    assert broker.log().high_watermark == 0
    assert broker.alter(2, TOPIC, ("min.insync.replicas", 0, "1")) == ErrorCode.NONE
    broker.run_until(lambda: broker.log().high_watermark == 1)
    assert broker.append([b"y"]) == 1


@pytest.mark.behaviour(22)
def test_a_batch_that_is_not_committed_in_time_times_out_and_stays(broker: Broker) -> None:
    other = OtherBroker(broker)
    other.heartbeat()
    broker.create_topic(brokers=[1, 2])
    began_ms = broker.now_ms
    done = broker.produce(batch([b"x"]), timeout_ms=1_500)
    assert ErrorCode(done.error_code) is ErrorCode.REQUEST_TIMED_OUT
    assert done.base_offset == -1
    assert 1_500 <= broker.now_ms - began_ms < 2_000
    assert broker.values() == [], "nobody may read what is not committed"
    # Its follower is given up, and what it wrote is committed after all.
    broker.run_until(lambda: broker.log().high_watermark == 1)
    assert broker.topic().partitions[0].isr_nodes == [1]
    assert broker.values() == [b"x"]


@pytest.mark.behaviour(22)
def test_who_waits_for_a_commit_is_told_when_it_comes(broker: Broker) -> None:
    OtherBroker(broker).heartbeat()
    broker.create_topic(brokers=[1, 2])
    broker.wire.send(produce_request(batch([b"x"]), timeout_ms=60_000), 12)
    broker.run_for(3_000)
    assert not broker.wire.answers
    assert produced(broker.wire.receive()).error_code == ErrorCode.NONE
    assert broker.log().high_watermark == 1


@pytest.mark.behaviour(22)
def test_acks_all_is_answered_only_when_the_batch_is_committed() -> None:
    with Broker(flush_ms=(50, 50)) as broker:
        broker.create_topic()
        began_ms = broker.now_ms
        assert broker.append([b"x"]) == 0
        assert broker.now_ms - began_ms >= 50
        assert broker.log().high_watermark == 1


# ---------------------------------------------------------------- durability


@pytest.mark.honours("moldau.durability")
def test_flushed_records_are_visible_after_a_flush_and_replicated_ones_at_once() -> None:
    with Broker(SLOW_DISK, flush_ms=(400, 400)) as broker:
        for name in ("flushed", "replicated"):
            broker.create_topic(name, settings={"moldau.durability": name})
        # A flush of the new directories may be under way.
        broker.run_for(1_000)
        for name in ("flushed", "replicated"):
            assert broker.produce(batch([b"x"]), name, acks=1).error_code == ErrorCode.NONE
        assert broker.values("flushed") == []
        assert broker.values("replicated") == [b"x"]
        began_ms = broker.now_ms
        broker.run_until(lambda: broker.log("flushed").high_watermark == 1)
        assert broker.now_ms - began_ms > 300
        assert broker.values("flushed") == [b"x"]


@pytest.mark.honours("moldau.durability")
def test_a_running_topic_changes_its_durability() -> None:
    with Broker(SLOW_DISK, flush_ms=(400, 400)) as broker:
        broker.create_topic()
        broker.run_for(1_000)
        assert broker.produce(batch([b"x"]), acks=1).error_code == ErrorCode.NONE
        assert broker.values() == []
        assert broker.alter(2, TOPIC, ("moldau.durability", 0, "replicated")) == ErrorCode.NONE
        broker.produce(batch([b"y"]), acks=1)
        assert broker.values() == [b"x", b"y"]
        assert broker.log().flushed_end_offset < 2


def test_a_topic_that_is_deleted_tells_who_waits_for_it(broker: Broker) -> None:
    OtherBroker(broker).heartbeat()
    broker.create_topic(brokers=[1, 2])
    writer, reader = broker.connect(), broker.connect()
    writer.send(produce_request(batch([b"x"])), 12)
    asked = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    reader.send(
        FetchRequest(max_wait_ms=60_000, min_bytes=1, topics=[FetchTopic(topic=TOPIC, partitions=[asked])]),
        12,
    )
    broker.run_for(500)
    assert broker.delete_topic() == ErrorCode.NONE
    began_ms = broker.now_ms
    assert produced(writer.receive()).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    # The fetch may be woken before the metadata without the topic is published.
    assert fetched(reader.receive()).error_code in (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
    )
    assert broker.now_ms - began_ms < 1_000
