"""What clients are told about topics: where their partitions are and who leads them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from moldau.metadata.image import INTERNAL_TOPICS, NO_LEADER, Image, NodeIds, Partition, Topic
from moldau.metadata.view import ClusterView
from moldau.model.errors import ErrorCode, KafkaError
from moldau.model.ids import ZERO_UUID, NodeId, TopicId, TopicName, check_topic_name
from moldau.wire.messages.metadata import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

# From which versions of Metadata on a client can ask by id, and understands that a leader lacks its listener.
_ASKS_BY_ID: Final = 12
_KNOWS_LISTENERS: Final = 6


def describe_metadata(
    view: ClusterView, request: MetadataRequest, *, version: int, listener: str, controller_id: NodeId
) -> MetadataResponse:
    """Brokers, and the topics asked for: by name, by id, or all; one that is not there has an error.

    Creating what is missing is for the caller to decide, who knows whether it is allowed.
    """
    describer = _Describer(view.image, listener, version)
    asked = request.topics
    # In version 0 there was no null, so an empty list meant all.
    if asked is None or (version == 0 and not asked):
        topics = [describer.topic(topic) for topic in view.image.topics.values()]
    else:
        topics = [_asked_topic(view.image, describer, each, version) for each in _distinct(asked)]
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(
                node_id=broker.id, host=endpoint.host, port=endpoint.port, rack=broker.rack
            )
            for broker in view.image.brokers.values()
            if not broker.is_fenced and (endpoint := broker.endpoint(listener)) is not None
        ],
        cluster_id=view.cluster_id,
        controller_id=controller_id,
        topics=topics,
    )


def missing_topic_code(name: str) -> ErrorCode:
    """Why a topic is not there: it could be, or nothing could ever have this name."""
    try:
        check_topic_name(name)
    except KafkaError as impossible:
        return impossible.code
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _distinct(asked: list[MetadataRequestTopic]) -> Iterable[MetadataRequestTopic]:
    return {(each.name, each.topic_id): each for each in asked}.values()


def _asked_topic(
    image: Image, describer: _Describer, asked: MetadataRequestTopic, version: int
) -> MetadataResponseTopic:
    if version < _ASKS_BY_ID and (asked.name is None or asked.topic_id != ZERO_UUID):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Version {version} cannot ask for topics by id.")
    if asked.topic_id != ZERO_UUID:
        topic = image.topic_by_id(TopicId(asked.topic_id))
        if topic is None:
            return MetadataResponseTopic(
                error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=asked.topic_id, partitions=[]
            )
        return describer.topic(topic)
    if asked.name is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "A topic is asked for neither by name nor by id.")
    topic = image.topics.get(TopicName(asked.name))
    if topic is None:
        return MetadataResponseTopic(
            error_code=missing_topic_code(asked.name),
            name=asked.name,
            is_internal=asked.name in INTERNAL_TOPICS,
            partitions=[],
        )
    return describer.topic(topic)


class _Describer:
    """Describes topics to a client that came through one listener."""

    def __init__(self, image: Image, listener: str, version: int) -> None:
        self._version = version
        self._brokers = image.brokers
        # Found once for all partitions.
        self._reachable = {
            broker.id: broker
            for broker in image.brokers.values()
            if not broker.is_fenced and broker.endpoint(listener) is not None
        }

    def topic(self, topic: Topic) -> MetadataResponseTopic:
        return MetadataResponseTopic(
            error_code=ErrorCode.NONE,
            name=topic.name,
            topic_id=topic.id,
            is_internal=topic.is_internal,
            partitions=[self._partition(index, each) for index, each in enumerate(topic.partitions)],
        )

    def _partition(self, index: int, partition: Partition) -> MetadataResponsePartition:
        replicas, isr = self._known(partition.replicas), self._known(partition.isr)
        code = ErrorCode.NONE
        leader = self.leader(partition)
        if leader == NO_LEADER:
            code = self._why_no_leader(partition)
        elif len(replicas) < len(partition.replicas) or len(isr) < len(partition.isr):
            code = ErrorCode.REPLICA_NOT_AVAILABLE
        return MetadataResponsePartition(
            error_code=code,
            partition_index=index,
            leader_id=leader,
            leader_epoch=partition.leader_epoch,
            replica_nodes=replicas,
            isr_nodes=isr,
            offline_replicas=self.offline(partition),
        )

    def leader(self, partition: Partition) -> NodeId:
        """The leader, if the client can reach it."""
        return partition.leader if partition.leader in self._reachable else NO_LEADER

    def offline(self, partition: Partition) -> list[int]:
        """The replicas that cannot serve now."""
        return [
            node_id
            for node_id, directory in zip(partition.replicas, partition.directories, strict=True)
            if node_id not in self._reachable or not self._reachable[node_id].has_online(directory)
        ]

    def _known(self, node_ids: NodeIds) -> list[int]:
        # The clients of version 0 could not take brokers that the reply does not list.
        return [each for each in node_ids if self._version > 0 or each in self._reachable]

    def _why_no_leader(self, partition: Partition) -> ErrorCode:
        leader = self._brokers.get(partition.leader)
        if leader is None or leader.is_fenced or self._version < _KNOWS_LISTENERS:
            return ErrorCode.LEADER_NOT_AVAILABLE
        return ErrorCode.LISTENER_NOT_FOUND


# --------------------------------------------------------------------------------------- a page at a time


def describe_topic_partitions(
    view: ClusterView, request: DescribeTopicPartitionsRequest, *, listener: str, partition_count_max: int
) -> DescribeTopicPartitionsResponse:
    """One page of partitions, in the order of the topics' names, and where the next page starts."""
    # As in Kafka a page holds one partition at least, whatever was asked for.
    room = max(1, min(request.response_partition_limit, partition_count_max))
    cursor = request.cursor
    if cursor is not None and cursor.partition_index < 0:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"The cursor points to the partition {cursor.partition_index}."
        )
    first = TopicName("" if cursor is None else cursor.topic_name)
    if request.topics:
        names: Iterable[TopicName] = sorted({TopicName(each.name) for each in request.topics})
    else:
        names = view.image.topics.keys_from(first)
    describer = _Describer(view.image, listener, version=1)
    topics: list[DescribeTopicPartitionsResponseTopic] = []
    next_cursor = None
    for name in names:
        if name < first:
            continue
        if room == 0:
            next_cursor = Cursor(topic_name=name, partition_index=0)
            break
        topic = view.image.topics.get(name)
        if topic is None:
            topics.append(_missing(name))
            continue
        start = cursor.partition_index if cursor is not None and name == cursor.topic_name else 0
        end = min(start + room, len(topic.partitions))
        topics.append(_page(topic, range(start, end), describer))
        room -= max(end - start, 0)
        if end < len(topic.partitions):
            next_cursor = Cursor(topic_name=name, partition_index=end)
            break
    return DescribeTopicPartitionsResponse(throttle_time_ms=0, topics=topics, next_cursor=next_cursor)


def _page(topic: Topic, indexes: range, describer: _Describer) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        error_code=ErrorCode.NONE,
        name=topic.name,
        topic_id=topic.id,
        is_internal=topic.is_internal,
        partitions=[
            DescribeTopicPartitionsResponsePartition(
                error_code=ErrorCode.NONE,
                partition_index=index,
                leader_id=describer.leader(topic.partitions[index]),
                leader_epoch=topic.partitions[index].leader_epoch,
                replica_nodes=list(topic.partitions[index].replicas),
                isr_nodes=list(topic.partitions[index].isr),
                eligible_leader_replicas=list(topic.partitions[index].elr),
                last_known_elr=list(topic.partitions[index].last_known_elr),
                offline_replicas=describer.offline(topic.partitions[index]),
            )
            for index in indexes
        ],
    )


def _missing(name: TopicName) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        error_code=missing_topic_code(name),
        name=name,
        topic_id=ZERO_UUID,
        is_internal=name in INTERNAL_TOPICS,
        partitions=[],
    )
