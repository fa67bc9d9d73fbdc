"""The image of the cluster: records make the next image of it, and it can be told as records again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, TypeVar

from moldau.metadata.image.delta import Delta, PartitionChanged
from moldau.metadata.image.invalid import InvalidMetadata
from moldau.metadata.image.nodes import Broker, RegisteredController
from moldau.metadata.image.resources import QuotaEntity, Resource, ResourceType, quota_entity, topic_resource
from moldau.metadata.image.topics import LEADER_UNCHANGED, Partition, Topic
from moldau.metadata.sorted_map import K, SortedMap, V
from moldau.model.ids import (
    BrokerEpoch,
    DirectoryId,
    Epoch,
    NodeId,
    Offset,
    PartitionIndex,
    ProducerId,
    TopicId,
    TopicName,
    Uuid,
    uuid_to_text,
)
from moldau.wire.message import MetadataRecord
from moldau.wire.messages import metadata_records as wire

# The feature that says which records may be written; a snapshot states it before anything else.
METADATA_VERSION: Final = "metadata.version"

_BEFORE_ALL: Final = Offset(-1)
_NO_EPOCH: Final = Epoch(0)
_FIRST_PRODUCER_ID: Final = ProducerId(0)

ScramKey = tuple[str, int]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Image:
    """All that the records up to `offset` say. Never changes: `apply` makes the next one."""

    # The last record that is in here, and the epoch of the leader who wrote it.
    offset: Offset = _BEFORE_ALL
    epoch: Epoch = _NO_EPOCH
    topics: SortedMap[TopicName, Topic] = field(default_factory=SortedMap)
    topic_names: SortedMap[TopicId, TopicName] = field(default_factory=SortedMap)
    brokers: SortedMap[NodeId, Broker] = field(default_factory=SortedMap)
    controllers: SortedMap[NodeId, RegisteredController] = field(default_factory=SortedMap)
    configs: SortedMap[Resource, Mapping[str, str]] = field(default_factory=SortedMap)
    # Finalised levels; a feature at level 0 is not here.
    features: SortedMap[str, int] = field(default_factory=SortedMap)
    quotas: SortedMap[QuotaEntity, Mapping[str, float]] = field(default_factory=SortedMap)
    # The first producer id that was never given out.
    next_producer_id: ProducerId = _FIRST_PRODUCER_ID
    # Kept as they were written, for those who will read them.
    acls: SortedMap[Uuid, wire.AccessControlEntryRecord] = field(default_factory=SortedMap)
    scram: SortedMap[ScramKey, wire.UserScramCredentialRecord] = field(default_factory=SortedMap)
    tokens: SortedMap[str, wire.DelegationTokenRecord] = field(default_factory=SortedMap)

    def topic_by_id(self, topic_id: TopicId) -> Topic | None:
        """The topic with this id."""
        name = self.topic_names.get(topic_id)
        return None if name is None else self.topics[name]

    def partition(self, topic_id: TopicId, index: int) -> Partition | None:
        """The partition of this number in the topic with this id."""
        topic = self.topic_by_id(topic_id)
        return None if topic is None else topic.partition(index)

    def texts(self, resource: Resource) -> Mapping[str, str]:
        """What is set for a resource itself."""
        return self.configs.get(resource, {})

    def feature_level(self, name: str) -> int:
        """The finalised level of a feature; 0 is off."""
        return self.features.get(name, 0)

    def apply(
        self, records: Iterable[MetadataRecord], *, offset: Offset, epoch: Epoch
    ) -> tuple[Image, Delta]:
        """The image after records of which the last is at `offset`, and what they have changed.

        Only what is touched is copied. Either all records fit or InvalidMetadata is raised and this image is
        still the one that holds.
        """
        draft = _Draft(self)
        for record in records:
            draft.apply(record)
        return draft.finish(offset, epoch)

    def records(self) -> Iterator[MetadataRecord]:
        """The fewest records that make this image out of an empty one: a snapshot."""
        for name, level in sorted(
            self.features.items(), key=lambda item: (item[0] != METADATA_VERSION, item)
        ):
            yield wire.FeatureLevelRecord(name=name, feature_level=level)
        yield from (controller.to_record() for controller in self.controllers.values())
        yield from (broker.to_record() for broker in self.brokers.values())
        for topic in self.topics.values():
            yield topic.to_record()
            for index, partition in enumerate(topic.partitions):
                yield partition.to_record(topic.id, PartitionIndex(index))
        for resource, texts in self.configs.items():
            for name, text in sorted(texts.items()):
                yield wire.ConfigRecord(
                    resource_type=resource.type, resource_name=resource.name, name=name, value=text
                )
        for entity, limits in self.quotas.items():
            for key, limit in sorted(limits.items()):
                yield quota_record(entity, key=key, value=limit)
        if self.next_producer_id != _FIRST_PRODUCER_ID:
            # Who got the latest block matters to nobody any more.
            yield wire.ProducerIdsRecord(broker_id=-1, next_producer_id=self.next_producer_id)
        yield from self.acls.values()
        yield from self.scram.values()
        yield from self.tokens.values()


def quota_record(entity: QuotaEntity, *, key: str, value: float | None) -> wire.ClientQuotaRecord:
    """The record that sets a quota, or removes it if the value is None."""
    return wire.ClientQuotaRecord(
        entity=[wire.EntityData(entity_type=part.type, entity_name=part.name_or_none) for part in entity],
        key=key,
        value=0.0 if value is None else value,
        remove=value is None,
    )


@dataclass(slots=True)
class _DraftTopic:
    """A topic while records are applied to it."""

    name: TopicName
    id: TopicId
    partitions: list[Partition]
    before: Topic | None

    def changes(self) -> Iterator[PartitionChanged]:
        old = () if self.before is None else self.before.partitions
        for index, after in enumerate(self.partitions):
            before = old[index] if index < len(old) else None
            if after is not before:
                yield PartitionChanged(self.name, self.id, PartitionIndex(index), before, after)


class _Overlay(dict[K, V | None]):
    """Changes on top of a map; None stands for what was taken away."""

    def __init__(self, base: SortedMap[K, V]) -> None:
        super().__init__()
        self.base = base

    def find(self, key: K) -> V | None:
        return self[key] if key in self else self.base.get(key)

    def finish(self) -> SortedMap[K, V]:
        return self.base.changed(self)


class _Draft:
    """An image in the making."""

    def __init__(self, base: Image) -> None:
        self._base = base
        # By name: a topic as drafted, or None if the name is free now. Untouched topics are not here.
        self._topics: dict[TopicName, _DraftTopic | None] = {}
        self._deleted: list[Topic] = []
        self._is_in_transaction = False
        self._topic_names = _Overlay(base.topic_names)
        self._brokers = _Overlay(base.brokers)
        self._controllers = _Overlay(base.controllers)
        self._configs = _Overlay(base.configs)
        self._features = _Overlay(base.features)
        self._quotas = _Overlay(base.quotas)
        self._next_producer_id = base.next_producer_id
        self._acls = _Overlay(base.acls)
        self._scram = _Overlay(base.scram)
        self._tokens = _Overlay(base.tokens)

    def apply(self, record: MetadataRecord) -> None:
        """Take one record in. The frequent ones stand first."""
        match record:
            case wire.PartitionChangeRecord():
                self._change_partition(record)
            case wire.PartitionRecord():
                self._add_partition(record)
            case wire.TopicRecord():
                self._add_topic(record)
            case wire.ConfigRecord():
                self._set_config(record)
            case wire.RemoveTopicRecord():
                self._remove_topic(record)
            case wire.BrokerRegistrationChangeRecord():
                self._change_broker(record)
            case wire.RegisterBrokerRecord():
                self._brokers[NodeId(record.broker_id)] = Broker.from_record(record)
            case wire.UnregisterBrokerRecord():
                broker = self._registered(record.broker_id, record.broker_epoch, record)
                self._brokers[broker.id] = None
            case wire.FenceBrokerRecord() | wire.UnfenceBrokerRecord():
                broker = self._registered(record.id, record.epoch, record)
                is_fenced = isinstance(record, wire.FenceBrokerRecord)
                self._brokers[broker.id] = replace(broker, is_fenced=is_fenced)
            case wire.RegisterControllerRecord():
                self._controllers[NodeId(record.controller_id)] = RegisteredController.from_record(record)
            case wire.FeatureLevelRecord():
                self._features[record.name] = record.feature_level or None
            case wire.ClientQuotaRecord():
                self._set_quota(record)
            case wire.ProducerIdsRecord():
                self._give_producer_ids(record)
            case wire.ClearElrRecord():
                self._clear_elr(record)
            case wire.AccessControlEntryRecord():
                self._acls[record.id] = record
            case wire.RemoveAccessControlEntryRecord():
                _remove(self._acls, record.id, record)
            case wire.UserScramCredentialRecord():
                self._scram[record.name, record.mechanism] = record
            case wire.RemoveUserScramCredentialRecord():
                _remove(self._scram, (record.name, record.mechanism), record)
            case wire.DelegationTokenRecord():
                self._tokens[record.token_id] = record
            case wire.RemoveDelegationTokenRecord():
                _remove(self._tokens, record.token_id, record)
            case wire.NoOpRecord():
                pass
            case wire.BeginTransactionRecord() if not self._is_in_transaction:
                self._is_in_transaction = True
            case wire.EndTransactionRecord() if self._is_in_transaction:
                self._is_in_transaction = False
            case _:
                raise InvalidMetadata(f"{type(record).__name__} has no place in this log: {record}")

    def finish(self, offset: Offset, epoch: Epoch) -> tuple[Image, Delta]:
        """The image with all changes, and the changes."""
        # Kafka begins its logs with one. Batches are applied whole, so here it is only words around one.
        if self._is_in_transaction:
            raise InvalidMetadata("A transaction does not end in the batch in which it began")
        alive = [topic for topic in self._topics.values() if topic is not None]
        topics: dict[TopicName, Topic | None] = {
            name: None if topic is None else Topic(name, topic.id, tuple(topic.partitions))
            for name, topic in self._topics.items()
        }
        image = Image(
            offset=offset,
            epoch=epoch,
            topics=self._base.topics.changed(topics),
            topic_names=self._topic_names.finish(),
            brokers=self._brokers.finish(),
            controllers=self._controllers.finish(),
            configs=self._configs.finish(),
            features=self._features.finish(),
            quotas=self._quotas.finish(),
            next_producer_id=self._next_producer_id,
            acls=self._acls.finish(),
            scram=self._scram.finish(),
            tokens=self._tokens.finish(),
        )
        delta = Delta(
            topics_created=tuple(image.topics[topic.name] for topic in alive if topic.before is None),
            topics_deleted=tuple(self._deleted),
            partitions_changed=tuple(
                change for topic in alive if topic.before is not None for change in topic.changes()
            ),
            brokers=tuple(sorted(self._brokers)),
            controllers=tuple(sorted(self._controllers)),
            configs=tuple(sorted(self._configs)),
            features=tuple(sorted(self._features)),
            quotas=tuple(sorted(self._quotas)),
            has_new_producer_ids=self._next_producer_id != self._base.next_producer_id,
            acls=tuple(sorted(self._acls)),
            scram_users=tuple(sorted({name for name, _ in self._scram})),
            tokens=tuple(sorted(self._tokens)),
        )
        return image, delta

    # ------------------------------------------------------------------------------------------- topics

    def _draft_topic(self, name: TopicName) -> _DraftTopic | None:
        if name not in self._topics:
            before = self._base.topics.get(name)
            if before is None:
                return None
            self._topics[name] = _DraftTopic(name, before.id, list(before.partitions), before)
        return self._topics[name]

    def _topic_of(self, topic_id: Uuid, record: MetadataRecord) -> _DraftTopic:
        name = self._topic_names.find(TopicId(topic_id))
        topic = None if name is None else self._draft_topic(name)
        if topic is None:
            raise InvalidMetadata(f"There is no topic with the id {uuid_to_text(topic_id)}: {record}")
        return topic

    def _add_topic(self, record: wire.TopicRecord) -> None:
        name, topic_id = TopicName(record.name), TopicId(record.topic_id)
        if self._draft_topic(name) is not None:
            raise InvalidMetadata(f"The topic {name!r} exists already: {record}")
        if self._topic_names.find(topic_id) is not None:
            raise InvalidMetadata(f"The id {uuid_to_text(topic_id)} names another topic: {record}")
        self._topics[name] = _DraftTopic(name, topic_id, [], None)
        self._topic_names[topic_id] = name

    def _remove_topic(self, record: wire.RemoveTopicRecord) -> None:
        topic = self._topic_of(record.topic_id, record)
        if topic.before is not None:
            self._deleted.append(topic.before)
        self._topics[topic.name] = None
        self._topic_names[topic.id] = None
        resource = topic_resource(topic.name)
        if self._configs.find(resource) is not None:
            self._configs[resource] = None

    def _add_partition(self, record: wire.PartitionRecord) -> None:
        topic = self._topic_of(record.topic_id, record)
        if record.partition_id != len(topic.partitions):
            raise InvalidMetadata(
                f"The topic {topic.name!r} has {len(topic.partitions)} partitions, "
                f"so {record.partition_id} cannot be the next: {record}"
            )
        partition = Partition.from_record(record)
        partition.check(f"{topic.name}-{record.partition_id}")
        topic.partitions.append(partition)

    def _change_partition(self, record: wire.PartitionChangeRecord) -> None:
        topic = self._topic_of(record.topic_id, record)
        index = record.partition_id
        if not 0 <= index < len(topic.partitions):
            raise InvalidMetadata(f"The topic {topic.name!r} has no partition {index}: {record}")
        partition = topic.partitions[index].changed_by(record)
        partition.check(f"{topic.name}-{index}")
        topic.partitions[index] = partition

    def _clear_elr(self, record: wire.ClearElrRecord) -> None:
        names = [TopicName(record.topic_name)] if record.topic_name else self._topic_names_now()
        for name in names:
            topic = self._draft_topic(name)
            if topic is None:
                raise InvalidMetadata(f"There is no topic {name!r}: {record}")
            for index, partition in enumerate(topic.partitions):
                if partition.elr or partition.last_known_elr:
                    cleared = wire.PartitionChangeRecord(
                        partition_id=index,
                        topic_id=topic.id,
                        leader=LEADER_UNCHANGED,
                        eligible_leader_replicas=[],
                        last_known_elr=[],
                    )
                    topic.partitions[index] = partition.changed_by(cleared)

    def _topic_names_now(self) -> list[TopicName]:
        names = dict.fromkeys(self._base.topics, True)
        names.update((name, topic is not None) for name, topic in self._topics.items())
        return [name for name, is_there in names.items() if is_there]

    # ------------------------------------------------------------------------------------- everything else

    def _registered(self, broker_id: int, epoch: int, record: MetadataRecord) -> Broker:
        broker = self._brokers.find(NodeId(broker_id))
        if broker is None or broker.epoch != BrokerEpoch(epoch):
            known = "none" if broker is None else f"epoch {broker.epoch}"
            raise InvalidMetadata(
                f"No broker {broker_id} has registered with epoch {epoch} ({known}): {record}"
            )
        return broker

    def _change_broker(self, record: wire.BrokerRegistrationChangeRecord) -> None:
        broker = self._registered(record.broker_id, record.broker_epoch, record)
        # 1 fences and -1 unfences; 0 says nothing. A shutdown is never called off.
        if record.fenced:
            broker = replace(broker, is_fenced=record.fenced > 0)
        if record.in_controlled_shutdown:
            broker = replace(broker, in_controlled_shutdown=True)
        if record.log_dirs:
            broker = replace(broker, directories=tuple(DirectoryId(each) for each in record.log_dirs))
        if record.cordoned_log_dirs is not None:
            broker = replace(broker, cordoned=tuple(DirectoryId(each) for each in record.cordoned_log_dirs))
        self._brokers[broker.id] = broker

    def _set_config(self, record: wire.ConfigRecord) -> None:
        resource = Resource(record.resource_type, record.resource_name)
        if resource.type == ResourceType.TOPIC and self._draft_topic(TopicName(resource.name)) is None:
            raise InvalidMetadata(f"There is no topic {resource.name!r}: {record}")
        texts = _with_entry(self._configs.find(resource) or {}, record.name, record.value)
        self._configs[resource] = texts or None

    def _set_quota(self, record: wire.ClientQuotaRecord) -> None:
        entity = quota_entity(record.entity)
        value = None if record.remove else record.value
        self._quotas[entity] = _with_entry(self._quotas.find(entity) or {}, record.key, value) or None

    def _give_producer_ids(self, record: wire.ProducerIdsRecord) -> None:
        if record.next_producer_id <= self._next_producer_id:
            raise InvalidMetadata(f"Producer ids below {self._next_producer_id} are given out: {record}")
        self._next_producer_id = ProducerId(record.next_producer_id)


def _with_entry(entries: Mapping[str, T], name: str, value: T | None) -> Mapping[str, T]:
    """A copy with one entry set, or taken away if the value is None."""
    if value is None:
        return {each: entries[each] for each in entries if each != name}
    return {**entries, name: value}


def _remove(overlay: _Overlay[K, V], key: K, record: MetadataRecord) -> None:
    if overlay.find(key) is None:
        raise InvalidMetadata(f"There is nothing to remove: {record}")
    overlay[key] = None
