"""What a batch of records has changed, so that a node does what follows from it and nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from moldau.metadata.image.resources import QuotaEntity, Resource
from moldau.metadata.image.topics import Partition, Topic
from moldau.model.ids import NodeId, PartitionIndex, TopicId, TopicName, TopicPartition, Uuid


class PartitionChanged(NamedTuple):
    """A partition of a topic that was there before; `before` is None for an added one."""

    topic: TopicName
    topic_id: TopicId
    partition: PartitionIndex
    before: Partition | None
    after: Partition


class LocalPartition(NamedTuple):
    """A partition of which a node has a replica."""

    topic_partition: TopicPartition
    topic_id: TopicId
    partition: Partition


@dataclass(frozen=True, slots=True)
class LocalChanges:
    """What one node has to do: close some replicas, then lead or follow in others."""

    closed: tuple[LocalPartition, ...]
    # Only those whose leader or leader epoch has changed, or that are new here.
    led: tuple[LocalPartition, ...]
    followed: tuple[LocalPartition, ...]
    # The leader is the same; the in-sync set or the replicas are not.
    updated: tuple[LocalPartition, ...]


@dataclass(frozen=True, slots=True)
class Delta:
    """What has changed between two images. A topic created anew is both deleted and created."""

    topics_created: tuple[Topic, ...] = ()
    topics_deleted: tuple[Topic, ...] = ()
    partitions_changed: tuple[PartitionChanged, ...] = ()
    brokers: tuple[NodeId, ...] = ()
    controllers: tuple[NodeId, ...] = ()
    configs: tuple[Resource, ...] = ()
    features: tuple[str, ...] = ()
    quotas: tuple[QuotaEntity, ...] = ()
    has_new_producer_ids: bool = False
    acls: tuple[Uuid, ...] = ()
    scram_users: tuple[str, ...] = ()
    tokens: tuple[str, ...] = ()

    def local_changes(self, node_id: NodeId) -> LocalChanges:
        """What the changes mean for the replicas of one node."""
        closed: list[LocalPartition] = []
        led: list[LocalPartition] = []
        followed: list[LocalPartition] = []
        updated: list[LocalPartition] = []
        for topic in self.topics_deleted:
            closed += (each for each in _partitions(topic) if node_id in each.partition.replicas)
        changes: list[tuple[Partition | None, LocalPartition]] = [
            (None, each) for topic in self.topics_created for each in _partitions(topic)
        ]
        for name, topic_id, index, before, after in self.partitions_changed:
            at = TopicPartition(name, index)
            if before is not None and node_id in before.replicas and node_id not in after.replicas:
                closed.append(LocalPartition(at, topic_id, before))
            was_here = before is not None and node_id in before.replicas
            changes.append((before if was_here else None, LocalPartition(at, topic_id, after)))
        for before, local in changes:
            after = local.partition
            if node_id not in after.replicas:
                continue
            if before is not None and before.leader_epoch == after.leader_epoch:
                updated.append(local)
            elif after.leader == node_id:
                led.append(local)
            else:
                followed.append(local)
        return LocalChanges(tuple(closed), tuple(led), tuple(followed), tuple(updated))


def _partitions(topic: Topic) -> list[LocalPartition]:
    return [
        LocalPartition(TopicPartition(topic.name, PartitionIndex(index)), topic.id, partition)
        for index, partition in enumerate(topic.partitions)
    ]
