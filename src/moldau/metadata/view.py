"""The image together with the settings that hold: what deciding and describing look at."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final, TypeVar

from moldau.metadata.features import ELR_VERSION
from moldau.metadata.image import (
    ALL_BROKERS,
    Broker,
    Image,
    Partition,
    Resource,
    ResourceType,
    Topic,
    broker_resource,
    topic_resource,
)
from moldau.model.ids import ClusterId, NodeId, TopicName
from moldau.model.settings.resolve import Layer, Settings, Source, find, resolve
from moldau.model.settings.setting import Scope, Setting
from moldau.model.settings.types import Value

T = TypeVar("T")

MIN_INSYNC_REPLICAS: Final = find(Scope.TOPIC, "min.insync.replicas")
UNCLEAN_ELECTION: Final = find(Scope.TOPIC, "unclean.leader.election.enable")
NUM_PARTITIONS: Final = find(Scope.BROKER, "num.partitions")
DEFAULT_REPLICATION_FACTOR: Final = find(Scope.BROKER, "default.replication.factor")
DELETE_TOPIC_ENABLE: Final = find(Scope.BROKER, "delete.topic.enable")
BROKER_SESSION_TIMEOUT_MS: Final = find(Scope.BROKER, "broker.session.timeout.ms")


@dataclass(frozen=True)
class ClusterView:
    """An image as one node sees it, with that node's own file of settings behind it."""

    image: Image
    cluster_id: ClusterId
    node_id: NodeId
    # What the node's file says, by the names of broker settings.
    static: Mapping[str, str]

    def next(self, image: Image) -> ClusterView:
        """The same node's view of the next image; settings that did not change are not decided again."""
        view = replace(self, image=image)
        resources = (broker_resource(self.node_id), ALL_BROKERS)
        if all(image.configs.get(each) is self.image.configs.get(each) for each in resources):
            for name in ("broker_layers", "broker_settings", "topic_defaults"):
                if name in self.__dict__:
                    view.__dict__[name] = self.__dict__[name]
        return view

    @cached_property
    def broker_layers(self) -> tuple[Layer, ...]:
        """What is said about this broker, by whoever says it."""
        return (
            Layer(Source.BROKER, self.image.texts(broker_resource(self.node_id))),
            Layer(Source.CLUSTER, self.image.texts(ALL_BROKERS)),
            Layer(Source.STATIC, self.static),
        )

    @cached_property
    def broker_settings(self) -> Settings:
        """The settings of this broker."""
        return resolve(Scope.BROKER, *self.broker_layers)

    @cached_property
    def topic_defaults(self) -> Settings:
        """The settings of a topic that sets nothing itself."""
        return resolve(Scope.TOPIC, *self.broker_layers)

    def topic_settings(self, texts: Mapping[str, str]) -> Settings:
        """The settings of a topic that sets these; InvalidSetting if it cannot."""
        return resolve(Scope.TOPIC, Layer(Source.TOPIC, texts), *self.broker_layers)

    def group_settings(self, texts: Mapping[str, str]) -> Settings:
        """The settings of a group that sets these; InvalidSetting if it cannot."""
        return resolve(Scope.GROUP, Layer(Source.GROUP, texts), *self.broker_layers)

    def topics_configured_by(self, resource: Resource) -> Iterable[Topic]:
        """The topics to whose settings a resource contributes: itself, or all if it is this broker."""
        if resource.type == ResourceType.TOPIC:
            topic = self.image.topics.get(TopicName(resource.name))
            return () if topic is None else (topic,)
        if resource in (broker_resource(self.node_id), ALL_BROKERS):
            return self.image.topics.values()
        return ()

    def of_topic(self, topic: Topic, setting: Setting[T]) -> T:
        """One setting of a topic, found without deciding all the others."""
        text = self.image.texts(topic_resource(topic.name)).get(setting.name)
        return self.topic_defaults[setting] if text is None else setting.parse(text)

    def number(self, setting: Setting[Value]) -> int:
        """A setting of this broker that is a whole number."""
        value = self.broker_settings[setting]
        assert isinstance(value, int), (setting.name, value)
        return value

    def isr_size_min(self, topic: Topic, partition: Partition) -> int:
        """How many replicas must be in sync for a commit; never more than there are."""
        size = self.of_topic(topic, MIN_INSYNC_REPLICAS)
        assert isinstance(size, int), size
        return min(size, len(partition.replicas))

    def allows_unclean_election(self, topic: Topic) -> bool:
        """Whether the topic prefers any leader over none."""
        return bool(self.of_topic(topic, UNCLEAN_ELECTION))

    @property
    def is_elr_on(self) -> bool:
        """Whether replicas that left the in-sync set with all that is committed are remembered (KIP-966)."""
        return self.image.feature_level(ELR_VERSION) > 0

    def is_active(self, node_id: NodeId) -> bool:
        """Whether a broker is there, unfenced, and not about to leave."""
        broker = self.image.brokers.get(node_id)
        return broker is not None and broker.is_active

    def active_brokers(self) -> list[Broker]:
        """The brokers that may lead."""
        return [broker for broker in self.image.brokers.values() if broker.is_active]
