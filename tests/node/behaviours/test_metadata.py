"""What clients depend on in metadata: topics, their ids, leaders and epochs, and who is there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise

import pytest
from node.broker import (
    CLUSTER_ID,
    TOPIC,
    Broker,
    OtherBroker,
    answer,
    batch,
    fetched,
    headers,
    produce_request,
    produced,
)

from moldau.model.errors import ErrorCode
from moldau.model.ids import ZERO_UUID, Uuid
from moldau.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from moldau.wire.messages.metadata import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    TopicRequest,
)
from moldau.wire.messages.produce import ProduceResponse

UNKNOWN_ID = Uuid(b"nobody has this!")


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


def metadata(broker: Broker, topics: list[str] | None, *, version: int = 12) -> MetadataResponse:
    asked = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
    request = MetadataRequest(topics=asked, allow_auto_topic_creation=False)
    if version < 4:
        request.allow_auto_topic_creation = True
    return answer(broker.ask(request, version), MetadataResponse)


def names(response: MetadataResponse) -> list[str | None]:
    return [topic.name for topic in response.topics]


def fetch_by_id(topic_id: Uuid, *, offset: int = 0) -> FetchRequest:
    asked = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    return FetchRequest(
        max_wait_ms=0, min_bytes=1, topics=[FetchTopic(topic_id=topic_id, partitions=[asked])]
    )


# ---------------------------------------------------------------- what is asked for


@pytest.mark.behaviour(13)
def test_no_list_means_all_topics_and_an_empty_one_none_save_in_version_0(broker: Broker) -> None:
    broker.create_topic("a")
    broker.create_topic("b")
    for version in (1, 8, 12, 13):
        assert names(metadata(broker, None, version=version)) == ["a", "b"]
        assert names(metadata(broker, [], version=version)) == []
    assert names(metadata(broker, [], version=0)) == ["a", "b"]


@pytest.mark.behaviour(12, 13)
def test_metadata_names_the_cluster_and_a_broker_that_takes_what_is_for_the_controller(
    broker: Broker,
) -> None:
    response = metadata(broker, [])
    assert response.cluster_id == CLUSTER_ID
    assert response.controller_id in {each.node_id for each in response.brokers}
    assert [(each.node_id, each.host, each.port) for each in response.brokers] == [(1, "broker", 9092)]


@pytest.mark.behaviour(12)
def test_what_the_controller_decided_is_seen_in_the_very_next_answer(broker: Broker) -> None:
    for number in range(5):
        broker.create_topic(f"t{number}")
        assert broker.topic(f"t{number}").error_code == ErrorCode.NONE
        assert broker.append([b"x"], f"t{number}") == 0
        assert broker.delete_topic(f"t{number}") == ErrorCode.NONE
        assert broker.topic(f"t{number}").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.behaviour(13)
def test_leader_epochs_rise_over_restarts_and_never_fall(broker: Broker) -> None:
    broker.create_topic(partitions=2)
    seen = []
    for life in range(4):
        epochs = [each.leader_epoch for each in broker.topic().partitions]
        assert all(each.leader_id == 1 for each in broker.topic().partitions)
        seen.append(epochs)
        # What is written carries the epoch of its leader.
        offset = broker.append([b"%d" % life])
        assert headers(broker.fetch(offset))[0].leader_epoch == epochs[0]
        broker.restart() if life % 2 else broker.crash()
    assert all(before < after for before, after in pairwise(seen)), seen


@pytest.mark.behaviour(13)
def test_leader_epochs_are_told_from_version_7_on(broker: Broker) -> None:
    broker.create_topic()
    assert broker.topic(version=7).partitions[0].leader_epoch >= 0
    assert broker.topic(version=6).partitions[0].leader_epoch == -1


# ---------------------------------------------------------------- auto-creation


@pytest.mark.behaviour(14)
@pytest.mark.honours("auto.create.topics.enable")
@pytest.mark.parametrize("is_enabled", [True, False])
@pytest.mark.parametrize("may_create", [True, False])
def test_topics_are_created_by_asking_for_them_only_if_both_sides_want_it(
    is_enabled: bool, may_create: bool
) -> None:
    with Broker({"auto.create.topics.enable": str(is_enabled).lower()}) as broker:
        broker.topic("wanted", may_create=may_create)
        is_there = broker.topic("wanted").error_code == ErrorCode.NONE
        assert is_there == (is_enabled and may_create)


@pytest.mark.behaviour(14)
def test_clients_before_version_4_always_want_topics_to_be_created(broker: Broker) -> None:
    assert names(metadata(broker, ["wanted"], version=3)) == ["wanted"]
    assert broker.topic("wanted").error_code == ErrorCode.NONE


@pytest.mark.behaviour(14)
@pytest.mark.parametrize("name", ["", ".", "..", "a b", "a/b", "ä", "x" * 250])
def test_no_topic_is_created_under_an_invalid_name(broker: Broker, name: str) -> None:
    assert broker.topic(name, may_create=True).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert names(metadata(broker, None)) == []


@pytest.mark.behaviour(14)
@pytest.mark.honours("num.partitions")
def test_a_created_topic_has_the_default_number_of_partitions() -> None:
    with Broker({"num.partitions": "3"}) as broker:
        broker.topic("wanted", may_create=True)
        assert len(broker.topic("wanted").partitions) == 3


@pytest.mark.behaviour(14)
@pytest.mark.honours("default.replication.factor")
def test_a_created_topic_has_the_default_number_of_replicas() -> None:
    with Broker({"default.replication.factor": "2"}) as broker:
        broker.topic("too-early", may_create=True)
        assert broker.topic("too-early").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        other = OtherBroker(broker)
        other.heartbeat()
        broker.topic("wanted", may_create=True)
        assert sorted(broker.topic("wanted").partitions[0].replica_nodes) == [1, 2]


# ---------------------------------------------------------------- ids


@pytest.mark.behaviour(15)
@pytest.mark.parametrize("restart", [Broker.restart, Broker.crash])
def test_a_topic_that_was_created_again_keeps_its_id_and_its_records_over_a_restart(
    broker: Broker, restart: Callable[[Broker], None]
) -> None:
    broker.create_topic()
    broker.append([b"of the first"])
    assert broker.delete_topic() == ErrorCode.NONE
    topic_id = broker.create_topic()
    broker.append([b"of the second", b"too"])
    restart(broker)
    assert broker.topic().topic_id == topic_id
    broker.run_until(lambda: broker.log().high_watermark == 2)
    assert broker.values() == [b"of the second", b"too"]


@pytest.mark.behaviour(15)
def test_the_id_of_a_topic_stays_over_restarts_and_is_new_for_a_new_topic(broker: Broker) -> None:
    first = broker.create_topic()
    assert first != ZERO_UUID
    broker.restart()
    assert broker.topic().topic_id == first
    broker.crash()
    assert broker.topic().topic_id == first
    broker.append([b"of the first"])
    assert broker.delete_topic() == ErrorCode.NONE
    second = broker.create_topic()
    assert second != first
    assert broker.values() == []


@pytest.mark.behaviour(15)
def test_metadata_finds_a_topic_by_its_id(broker: Broker) -> None:
    topic_id = broker.create_topic()
    asked = [MetadataRequestTopic(name=None, topic_id=each) for each in (topic_id, UNKNOWN_ID)]
    found, missing = answer(broker.ask(MetadataRequest(topics=asked), 12), MetadataResponse).topics
    assert (found.error_code, found.name) == (ErrorCode.NONE, TOPIC)
    assert (missing.error_code, missing.name) == (ErrorCode.UNKNOWN_TOPIC_ID, None)


@pytest.mark.behaviour(15)
def test_produce_and_fetch_name_topics_by_their_ids_from_version_13_on(broker: Broker) -> None:
    topic_id = broker.create_topic()
    whole = answer(
        broker.ask(produce_request(batch([b"x"]), "", topic_id=topic_id), 13), ProduceResponse
    ).responses[0]
    assert (whole.topic_id, whole.partition_responses[0].error_code) == (topic_id, ErrorCode.NONE)
    for version in (13, 16, 18):
        read = answer(broker.ask(fetch_by_id(topic_id), version), FetchResponse).responses[0]
        assert read.topic_id == topic_id
        assert read.partitions[0].records


@pytest.mark.behaviour(15)
def test_an_unknown_id_is_said_to_be_unknown(broker: Broker) -> None:
    old_id = broker.create_topic()
    broker.delete_topic()
    broker.create_topic()
    for topic_id in (UNKNOWN_ID, old_id, ZERO_UUID):
        done = produced(broker.ask(produce_request(batch([b"x"]), "", topic_id=topic_id), 13))
        assert done.error_code == ErrorCode.UNKNOWN_TOPIC_ID
        assert fetched(broker.ask(fetch_by_id(topic_id), 13)).error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert broker.values() == []


# ---------------------------------------------------------------- other brokers


@pytest.mark.behaviour(16)
def test_who_does_not_lead_says_who_does(broker: Broker) -> None:
    OtherBroker(broker).heartbeat()
    topic_id = broker.create_topic(brokers=[2])
    epoch = broker.topic().partitions[0].leader_epoch
    for version in (9, 10):
        response = answer(broker.ask(produce_request(batch([b"x"])), version), ProduceResponse)
        done = produced(response)
        assert done.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        leader = (done.current_leader.leader_id, done.current_leader.leader_epoch)
        hosts = [(each.node_id, each.host, each.port) for each in response.node_endpoints]
        assert leader == ((2, epoch) if version == 10 else (-1, -1))
        assert hosts == ([(2, "broker-2", 9092)] if version == 10 else [])
    for version in (15, 16):
        read = answer(broker.ask(fetch_by_id(topic_id), version), FetchResponse)
        data = fetched(read)
        assert data.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert data.current_leader.leader_id == (2 if version == 16 else -1)
        assert [each.host for each in read.node_endpoints] == (["broker-2"] if version == 16 else [])


@pytest.mark.behaviour(73)
def test_clients_see_a_broker_from_its_first_heartbeat_until_they_stop(broker: Broker) -> None:
    def seen() -> list[int]:
        return [each.node_id for each in metadata(broker, []).brokers]

    other = OtherBroker(broker)
    assert seen() == [1]
    assert other.heartbeat(metadata_offset=0).is_fenced, "it must know of its registration first"
    assert seen() == [1]
    assert not other.heartbeat().is_fenced
    assert seen() == [1, 2]
    broker.run_for(8_000)
    other.heartbeat()
    broker.run_for(8_000)
    assert seen() == [1, 2]
    broker.run_for(2_000)
    assert seen() == [1]
    other.heartbeat()
    assert seen() == [1, 2]


@pytest.mark.honours("broker.session.timeout.ms")
def test_how_long_a_broker_may_be_silent_is_set() -> None:
    with Broker({"broker.session.timeout.ms": "1000", "broker.heartbeat.interval.ms": "300"}) as broker:
        OtherBroker(broker).heartbeat()
        broker.run_for(1_500)
        assert [each.node_id for each in metadata(broker, []).brokers] == [1]


@pytest.mark.honours("broker.heartbeat.interval.ms")
@pytest.mark.parametrize(("interval_ms", "is_fenced"), [(300, False), (5_000, True)])
def test_a_broker_whose_heartbeats_are_too_rare_is_fenced_again_and_again(
    interval_ms: int, is_fenced: bool
) -> None:
    settings = {"broker.session.timeout.ms": "1000", "broker.heartbeat.interval.ms": str(interval_ms)}
    with Broker(settings) as broker:
        broker.create_topic()
        before = broker.topic().partitions[0].leader_epoch
        broker.run_for(3_000)
        # Each time its partitions are led anew.
        assert (broker.topic().partitions[0].leader_epoch > before) == is_fenced


@pytest.mark.behaviour(73)
def test_one_broker_is_not_two(broker: Broker) -> None:
    other = OtherBroker(broker)
    other.heartbeat()
    assert other.register(b"another process!").error_code == ErrorCode.DUPLICATE_BROKER_REGISTRATION
    assert other.heartbeat(epoch=other.epoch - 1).error_code == ErrorCode.STALE_BROKER_EPOCH
    assert other.heartbeat(epoch=other.epoch + 1).error_code == ErrorCode.STALE_BROKER_EPOCH
    broker.run_for(10_000)
    again = other.register(b"another process!")
    assert again.error_code == ErrorCode.NONE
    assert again.broker_epoch > other.epoch


@pytest.mark.behaviour(73)
def test_a_broker_that_stops_is_not_shown_as_a_leader(broker: Broker) -> None:
    other = OtherBroker(broker)
    other.heartbeat()
    broker.create_topic(brokers=[2])
    assert broker.topic().partitions[0].leader_id == 2
    broker.run_for(10_000)
    partition = broker.topic().partitions[0]
    assert (partition.leader_id, partition.error_code) == (-1, ErrorCode.LEADER_NOT_AVAILABLE)
    assert partition.offline_replicas == [2]


@pytest.mark.honours("max.request.partition.size.limit")
def test_partitions_are_described_in_pages() -> None:
    with Broker({"max.request.partition.size.limit": "3"}) as broker:
        broker.create_topic(partitions=5)
        request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name=TOPIC)])
        first = answer(broker.ask(request), DescribeTopicPartitionsResponse)
        assert len(first.topics[0].partitions) == 3
        assert first.next_cursor is not None
        request.cursor = first.next_cursor
        second = answer(broker.ask(request), DescribeTopicPartitionsResponse)
        assert [each.partition_index for each in second.topics[0].partitions] == [3, 4]
        assert second.next_cursor is None
