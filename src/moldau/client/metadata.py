"""What a client knows about the cluster: brokers, topics, and who leads which partition."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from moldau.client.errors import code_of
from moldau.model.errors import ErrorCode
from moldau.model.ids import ZERO_UUID, PartitionIndex, TopicName, TopicPartition, Uuid
from moldau.wire.messages.metadata import MetadataResponse, MetadataResponseTopic
from moldau.world.ports import Address

NO_LEADER = -1
NO_EPOCH = -1


@dataclass(frozen=True, slots=True)
class Broker:
    """A broker and where it listens."""

    node_id: int
    address: Address
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class Leader:
    """Who leads a partition, and since which epoch; NO_EPOCH from brokers that do not say."""

    node_id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class PartitionView:
    """A partition as the cluster described it."""

    place: TopicPartition
    leader: Leader
    replicas: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()
    offline: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class TopicView:
    """A topic and its partitions."""

    name: str
    topic_id: Uuid
    is_internal: bool
    partitions: Mapping[int, PartitionView]
    # Those with a leader; kept because every record without a key asks for them.
    available: tuple[int, ...]


class Endpoint(Protocol):
    """Where a leader listens, as Produce and Fetch responses say it (KIP-951)."""

    node_id: int
    host: str
    port: int
    rack: str | None


class Metadata:
    """The newest that is known; of a partition's leader epochs only a higher one replaces another."""

    def __init__(self) -> None:
        self.brokers: dict[int, Broker] = {}
        self.topics: dict[str, TopicView] = {}
        self.errors: dict[str, ErrorCode] = {}
        self.cluster_id: str | None = None
        self.controller_id = -1
        self.revision = 0
        self._names: dict[Uuid, str] = {}

    def leader(self, partition: TopicPartition) -> Leader | None:
        """Who leads the partition, if anybody is known to."""
        topic = self.topics.get(partition.topic)
        view = topic.partitions.get(partition.partition) if topic else None
        return None if view is None or view.leader.node_id == NO_LEADER else view.leader

    def has_heard_of(self, topic: str) -> bool:
        """Whether the cluster was asked about a topic, and described it or said why not."""
        return topic in self.topics or topic in self.errors

    def topic_id(self, topic: str) -> Uuid:
        """The topic's id; zero where the broker gave none."""
        view = self.topics.get(topic)
        return ZERO_UUID if view is None else view.topic_id

    def name_of(self, topic_id: Uuid) -> str:
        """The name of the topic with this id; empty if there is none."""
        return self._names.get(topic_id, "")

    def apply(self, response: MetadataResponse, *, is_complete: bool = False) -> None:
        """Take over a response; after a complete one, what it does not name is gone."""
        self.revision += 1
        self.cluster_id = response.cluster_id or self.cluster_id
        self.controller_id = response.controller_id
        if response.brokers:
            self.brokers = {
                row.node_id: Broker(row.node_id, Address(row.host, row.port), row.rack)
                for row in response.brokers
            }
        described: dict[str, None] = {}
        for topic in response.topics:
            if topic.name is None:
                continue
            described[topic.name] = None
            if topic.error_code == ErrorCode.NONE:
                self._put(self._merged(topic.name, topic))
                self.errors.pop(topic.name, None)
            else:
                self.errors[topic.name] = code_of(topic.error_code)
                # While a topic is being created it has no leaders yet; that does not mean it is gone.
                if topic.error_code != ErrorCode.LEADER_NOT_AVAILABLE:
                    self._forget(topic.name)
        if is_complete:
            for name in [name for name in self.topics if name not in described]:
                self._forget(name)

    def apply_leader(self, partition: TopicPartition, leader: Leader, endpoints: Iterable[Endpoint]) -> bool:
        """Take a hint from a response about a new leader; tells whether it was news (KIP-951)."""
        topic = self.topics.get(partition.topic)
        view = topic.partitions.get(partition.partition) if topic else None
        if topic is None or view is None or leader.node_id == NO_LEADER or leader.epoch <= view.leader.epoch:
            return False
        for row in endpoints:
            self.brokers[row.node_id] = Broker(row.node_id, Address(row.host, row.port), row.rack)
        if leader.node_id not in self.brokers:
            return False
        partitions = {**topic.partitions, partition.partition: replace(view, leader=leader)}
        self._put(_topic_view(topic.name, topic.topic_id, topic.is_internal, partitions))
        self.revision += 1
        return True

    def _merged(self, name: str, topic: MetadataResponseTopic) -> TopicView:
        known = self.topics.get(name)
        # A topic that was deleted and created anew starts its epochs from the beginning.
        is_same = known is not None and known.topic_id == topic.topic_id
        partitions: dict[int, PartitionView] = {}
        for row in sorted(topic.partitions, key=lambda row: row.partition_index):
            leader = Leader(row.leader_id, row.leader_epoch)
            before = known.partitions.get(row.partition_index) if known and is_same else None
            if before is not None and NO_EPOCH < leader.epoch < before.leader.epoch:
                leader = before.leader
            partitions[row.partition_index] = PartitionView(
                TopicPartition(TopicName(name), PartitionIndex(row.partition_index)),
                leader,
                tuple(row.replica_nodes),
                tuple(row.isr_nodes),
                tuple(row.offline_replicas),
            )
        return _topic_view(name, topic.topic_id, topic.is_internal, partitions)

    def _put(self, view: TopicView) -> None:
        known = self.topics.get(view.name)
        if known is not None and known.topic_id != view.topic_id:
            self._names.pop(known.topic_id, None)
        self.topics[view.name] = view
        if view.topic_id != ZERO_UUID:
            self._names[view.topic_id] = view.name

    def _forget(self, name: str) -> None:
        known = self.topics.pop(name, None)
        if known is not None:
            self._names.pop(known.topic_id, None)


def _topic_view(
    name: str, topic_id: Uuid, is_internal: bool, partitions: Mapping[int, PartitionView]
) -> TopicView:
    led = tuple(index for index, view in partitions.items() if view.leader.node_id != NO_LEADER)
    return TopicView(name, topic_id, is_internal, partitions, led)
