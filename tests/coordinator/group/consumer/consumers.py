"""A group shard in a cluster with topics, and members that speak to it as consumers do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from coordinator.group.live import GROUP, Asked, Live

from moldau.coordinator.group.assignors import Partitions
from moldau.coordinator.group.consumer.group import ConsumerGroup
from moldau.coordinator.group.consumer.member import Member, without_epochs
from moldau.coordinator.shard import Surroundings
from moldau.metadata.image import Image, ResourceType
from moldau.model.errors import ErrorCode, KafkaError
from moldau.model.ids import ZERO_UUID, Epoch, Offset, TopicId, TopicName, Uuid
from moldau.model.settings.resolve import Layer, Source, resolve
from moldau.model.settings.setting import Scope
from moldau.wire.message import MetadataRecord
from moldau.wire.messages.consumer_groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupHeartbeatTopicPartitions,
)
from moldau.wire.messages.metadata_records import (
    ConfigRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
)

# Every change is assigned at once, and nobody has to wait for the clock.
SETTINGS = {"group.consumer.assignment.interval.ms": "0", "group.initial.rebalance.delay.ms": "0"}

REBALANCE_TIMEOUT_MS = 60_000

Partition = tuple[str, int]


class Consumers(Live):
    """A shard and the metadata around it."""

    def __init__(self, topics: Mapping[str, int] | None = None, **texts: str) -> None:
        self._texts = SETTINGS | {name.replace("_", "."): text for name, text in texts.items()}
        self._made = 0
        super().__init__(self._texts)
        for rack in ("a", "b", "c"):
            node_id = ord(rack) - ord("a") + 1
            self.change(
                RegisterBrokerRecord(
                    broker_id=node_id,
                    incarnation_id=_uuid(node_id),
                    broker_epoch=node_id,
                    end_points=[],
                    features=[],
                    rack=rack,
                    fenced=False,
                )
            )
        for name, count in ({"t": 6} if topics is None else topics).items():
            self.create(name, count)

    # ------------------------------------------------------------ the metadata

    @property
    def image(self) -> Image:
        return self.around.image

    def change(self, *records: MetadataRecord) -> None:
        offset = Offset(self.image.offset + len(records))
        image, delta = self.image.apply(records, offset=offset, epoch=Epoch(1))
        layers = (Layer(Source.STATIC, self._texts),)
        self.around = Surroundings(image, resolve(Scope.BROKER, *layers), layers)
        self.metadata_changed(delta)

    def create(self, name: str, count: int = 1) -> None:
        self._made += 1
        topic_id = _uuid(1000 + self._made)
        self.change(
            TopicRecord(name=name, topic_id=topic_id), *(_partition(topic_id, each) for each in range(count))
        )

    def place(self, name: str, *replicas: Sequence[int]) -> None:
        """Put each partition of a topic on certain brokers: 1 is in rack a, 2 in b and 3 in c."""
        topic_id = self.topic_id(name)
        self.change(
            *(
                PartitionChangeRecord(
                    topic_id=topic_id,
                    partition_id=index,
                    replicas=[*nodes],
                    directories=[_uuid(500)] * len(nodes),
                    isr=[*nodes],
                    leader=nodes[0],
                )
                for index, nodes in enumerate(replicas)
            )
        )

    def grow(self, name: str, count: int) -> None:
        topic = self.image.topics[TopicName(name)]
        self.change(*(_partition(topic.id, each) for each in range(len(topic.partitions), count)))

    def delete(self, name: str) -> None:
        self.change(RemoveTopicRecord(topic_id=self.image.topics[TopicName(name)].id))

    def configure_group(self, name: str, text: str, group_id: str = GROUP) -> None:
        self.change(
            ConfigRecord(resource_type=ResourceType.GROUP, resource_name=group_id, name=name, value=text)
        )

    def partition_count(self, name: str) -> int:
        """How many partitions a topic has; 0 if it does not exist."""
        topic = self.image.topics.get(TopicName(name))
        return 0 if topic is None else len(topic.partitions)

    def topic_id(self, name: str) -> TopicId:
        return self.image.topics[TopicName(name)].id

    def name(self, topic_id: Uuid) -> str:
        return self.image.topic_names.get(TopicId(topic_id), TopicName("gone"))

    # ------------------------------------------------------------ the group

    @property
    def consumers(self) -> ConsumerGroup:
        group = self.shard.state.groups[GROUP]
        assert isinstance(group, ConsumerGroup)
        return group

    @property
    def state(self) -> str:
        return self.shard.state.groups[GROUP].state_name

    def member(self, member_id: str) -> Member:
        return self.consumers.members[member_id]

    def has(self, member_id: str) -> list[str]:
        """What a member may read, as `t0`."""
        return self._names(without_epochs(self.member(member_id).current.assigned))

    def is_to_have(self, member_id: str) -> list[str]:
        return self._names(self.consumers.target.get(member_id, {}))

    def _names(self, partitions: Partitions) -> list[str]:
        return sorted(
            f"{self.name(topic_id)}{each}" for topic_id, numbers in partitions.items() for each in numbers
        )

    def why(self) -> list[str]:
        """Why the group was assigned anew, as sentences."""
        return [
            " ".join(filter(None, (cause.member_id, cause.what.value)))
            for rebalance in self.shard.state.histories.of(GROUP)
            for cause in rebalance.causes
        ]

    # ------------------------------------------------------------ requests, as members send them

    def beat(
        self,
        member_id: str,
        epoch: int,
        *,
        topics: Iterable[str] | None = None,
        regex: str | None = None,
        owned: Iterable[tuple[str | Uuid, int]] | None = None,
        instance: str | None = None,
        rack: str | None = None,
        rebalance_timeout_ms: int = -1,
        assignor: str | None = None,
        version: int = 1,
        connection: int = 0,
        group_id: str = GROUP,
    ) -> Asked:
        return self.ask(
            ConsumerGroupHeartbeatRequest(
                group_id=group_id,
                member_id=member_id,
                member_epoch=epoch,
                instance_id=instance,
                rack_id=rack,
                rebalance_timeout_ms=rebalance_timeout_ms,
                subscribed_topic_names=None if topics is None else list(topics),
                subscribed_topic_regex=regex,
                server_assignor=assignor,
                topic_partitions=None if owned is None else self._by_topic(owned),
            ),
            version=version,
            connection=connection,
        )

    def enter(
        self,
        member_id: str,
        *,
        topics: Iterable[str] | None = ("t",),
        regex: str | None = None,
        instance: str | None = None,
        rack: str | None = None,
        assignor: str | None = None,
        version: int = 1,
        connection: int = 0,
        group_id: str = GROUP,
    ) -> Asked:
        """Join, and say all that has to be said."""
        return self.beat(
            member_id,
            0,
            topics=topics,
            regex=regex,
            owned=[],
            instance=instance,
            rack=rack,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
            assignor=assignor,
            version=version,
            connection=connection,
            group_id=group_id,
        )

    def _by_topic(
        self, owned: Iterable[tuple[str | Uuid, int]]
    ) -> list[ConsumerGroupHeartbeatTopicPartitions]:
        found: dict[Uuid, list[int]] = {}
        for topic, partition in owned:
            # Of a topic that was deleted a name does not say which one it was.
            topic_id = self.id_of(topic) if isinstance(topic, str) else topic
            if topic_id != ZERO_UUID:
                found.setdefault(topic_id, []).append(partition)
        return [
            ConsumerGroupHeartbeatTopicPartitions(topic_id=topic_id, partitions=partitions)
            for topic_id, partitions in found.items()
        ]


class Consumer:
    """A member that does what it is told: it gives up and takes as the replies say, unless it is to wait."""

    def __init__(
        self,
        group: Consumers,
        member_id: str,
        *topics: str,
        regex: str | None = None,
        instance: str | None = None,
        assignor: str | None = None,
        rack: str | None = None,
    ) -> None:
        self.group = group
        self.member_id = member_id
        self.topics: tuple[str, ...] | None = topics or (None if regex is not None else ())
        self.regex = regex
        self.instance = instance
        self.assignor = assignor
        self.rack = rack
        self.epoch = 0
        self.owned: list[Partition] = []
        self._said: list[Partition] | None = None

    def join(self) -> Consumer:
        """Begin from nothing."""
        self.epoch, self.owned, self._said = 0, [], []
        self.take(self.ask_full())
        return self

    def ask_full(self) -> Asked:
        return self.group.beat(
            self.member_id,
            self.epoch,
            topics=self.topics,
            regex=self.regex,
            owned=self.owned,
            instance=self.instance,
            assignor=self.assignor,
            rack=self.rack,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
        )

    def beat(self, *, gives_up: bool = True, full: bool = False) -> Consumer:
        """Send what has changed since the last heartbeat, and do what the reply says."""
        owned = None if self.owned == self._said else self.owned
        self._said = list(self.owned)
        if full:
            asked = self.ask_full()
        else:
            asked = self.group.beat(self.member_id, self.epoch, owned=owned, instance=self.instance)
        self.take(asked, gives_up=gives_up)
        return self

    def take(self, asked: Asked, *, gives_up: bool = True) -> None:
        reply = asked.reply(ConsumerGroupHeartbeatResponse)
        assert reply.error_code == ErrorCode.NONE
        self.epoch = reply.member_epoch
        if reply.assignment is not None and gives_up:
            before, self.owned = (
                self.owned,
                sorted(
                    (self.group.name(topic.topic_id), partition)
                    for topic in reply.assignment.topic_partitions
                    for partition in topic.partitions
                ),
            )
            if self.owned != before:
                self._said = None

    def subscribe(self, *topics: str) -> Consumer:
        """Want other topics from now on."""
        self.topics = topics
        self.take(
            self.group.beat(self.member_id, self.epoch, topics=topics, instance=self.instance), gives_up=True
        )
        return self

    def leave(self, epoch: int = -1) -> None:
        asked = self.group.beat(self.member_id, epoch, instance=self.instance)
        assert not isinstance(asked.answer, KafkaError), asked.answer
        self.owned = []

    @property
    def progress(self) -> object:
        return self.epoch, list(self.owned)

    @property
    def names(self) -> list[str]:
        """What it reads, as `t0`."""
        return [f"{topic}{partition}" for topic, partition in self.owned]


def settle(*consumers: Consumer) -> None:
    """Send heartbeats around until nothing changes any more."""
    for _ in range(10):
        before = [each.progress for each in consumers]
        for each in consumers:
            each.beat()
        if [each.progress for each in consumers] == before:
            return
    raise AssertionError("they do not come to rest")


def _uuid(number: int) -> Uuid:
    return Uuid(number.to_bytes(16, "big"))


def _partition(topic_id: Uuid, number: int) -> PartitionRecord:
    replicas = [number % 3 + 1, (number + 1) % 3 + 1]
    return PartitionRecord(
        partition_id=number,
        topic_id=topic_id,
        replicas=replicas,
        isr=replicas,
        removing_replicas=[],
        adding_replicas=[],
        leader=replicas[0],
        leader_epoch=0,
        partition_epoch=0,
        directories=[_uuid(500), _uuid(500)],
    )
