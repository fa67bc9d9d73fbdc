"""A topic and its partitions as the cluster knows them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Final, cast

from moldau.metadata.image.invalid import InvalidMetadata
from moldau.model.ids import (
    DIRECTORY_MIGRATING,
    DirectoryId,
    LeaderEpoch,
    NodeId,
    PartitionIndex,
    TopicId,
    TopicName,
    Uuid,
)
from moldau.wire.messages.metadata_records import PartitionChangeRecord, PartitionRecord, TopicRecord

NO_LEADER: Final = NodeId(-1)
# What a change record says when the leader stays and so does its epoch.
LEADER_UNCHANGED: Final = NodeId(-2)
RECOVERY_UNCHANGED: Final = -1

NodeIds = tuple[NodeId, ...]

# The topics that brokers keep their own state in; clients are told that they are internal.
INTERNAL_TOPICS: Final = ("__consumer_offsets", "__transaction_state", "__share_group_state")


class LeaderRecovery(IntEnum):
    """Whether a leader that was elected uncleanly still has to repair what it may have lost."""

    RECOVERED = 0
    RECOVERING = 1


@dataclass(frozen=True, slots=True)
class Partition:
    """One partition: who holds it, who is in sync, who leads."""

    replicas: NodeIds
    directories: tuple[DirectoryId, ...]
    isr: NodeIds
    leader: NodeId
    leader_epoch: LeaderEpoch
    # Rises with every change, so that a leader cannot overwrite what it has not seen.
    partition_epoch: int
    leader_recovery: LeaderRecovery = LeaderRecovery.RECOVERED
    # Out of sync, and still holding all that is committed (KIP-966).
    elr: NodeIds = ()
    last_known_elr: NodeIds = ()
    adding: NodeIds = ()
    removing: NodeIds = ()

    @property
    def is_being_reassigned(self) -> bool:
        """Whether replicas are on their way in or out."""
        return bool(self.adding or self.removing)

    @property
    def preferred_leader(self) -> NodeId:
        """The replica that leads when all are well."""
        return self.replicas[0]

    def directory(self, node_id: NodeId) -> DirectoryId:
        """Where the replica on this node is kept."""
        return self.directories[self.replicas.index(node_id)]

    def changed_by(self, record: PartitionChangeRecord) -> Partition:
        """This partition after the change."""
        has_new_leader = record.leader != LEADER_UNCHANGED
        return replace(
            self,
            replicas=_or_else(record.replicas, self.replicas),
            directories=self.directories
            if record.directories is None
            else _directory_ids(record.directories),
            isr=_or_else(record.isr, self.isr),
            leader=NodeId(record.leader) if has_new_leader else self.leader,
            leader_epoch=LeaderEpoch(self.leader_epoch + has_new_leader),
            partition_epoch=self.partition_epoch + 1,
            leader_recovery=self.leader_recovery
            if record.leader_recovery_state == RECOVERY_UNCHANGED
            else _recovery(record.leader_recovery_state),
            elr=_or_else(record.eligible_leader_replicas, self.elr),
            last_known_elr=_or_else(record.last_known_elr, self.last_known_elr),
            adding=_or_else(record.adding_replicas, self.adding),
            removing=_or_else(record.removing_replicas, self.removing),
        )

    def to_record(self, topic_id: TopicId, index: PartitionIndex) -> PartitionRecord:
        """The record that says all of this."""
        return PartitionRecord(
            partition_id=index,
            topic_id=topic_id,
            replicas=list(self.replicas),
            isr=list(self.isr),
            removing_replicas=list(self.removing),
            adding_replicas=list(self.adding),
            leader=self.leader,
            leader_recovery_state=self.leader_recovery,
            leader_epoch=self.leader_epoch,
            partition_epoch=self.partition_epoch,
            directories=list(self.directories),
            # Absent rather than empty, as Kafka writes it.
            eligible_leader_replicas=list(self.elr) or None,
            last_known_elr=list(self.last_known_elr) or None,
        )

    @classmethod
    def from_record(cls, record: PartitionRecord) -> Partition:
        """The partition that a record tells of."""
        return cls(
            replicas=_node_ids(record.replicas),
            # Before metadata.version 17 nobody said in which directory a replica is.
            directories=_directory_ids(record.directories) or (DIRECTORY_MIGRATING,) * len(record.replicas),
            isr=_node_ids(record.isr),
            leader=NodeId(record.leader),
            leader_epoch=LeaderEpoch(record.leader_epoch),
            partition_epoch=record.partition_epoch,
            leader_recovery=_recovery(record.leader_recovery_state),
            elr=_node_ids(record.eligible_leader_replicas or ()),
            last_known_elr=_node_ids(record.last_known_elr or ()),
            adding=_node_ids(record.adding_replicas),
            removing=_node_ids(record.removing_replicas),
        )

    def check(self, where: str) -> None:
        """InvalidMetadata if the partition contradicts itself."""
        wrong = self._contradiction()
        if wrong is not None:
            raise InvalidMetadata(f"{where}: {wrong}: {self}")

    def _contradiction(self) -> str | None:
        replicas = frozenset(self.replicas)
        if not replicas or len(replicas) < len(self.replicas):
            return "there are no replicas, or one is named twice"
        if len(self.directories) != len(self.replicas):
            return "there is not one directory for each replica"
        if len(frozenset(self.isr)) < len(self.isr) or not replicas.issuperset(self.isr):
            return "the in-sync replicas are not some of the replicas"
        if self.leader != NO_LEADER and self.leader not in self.isr:
            return "the leader is not in sync"
        if not replicas.isdisjoint(self.elr) and not frozenset(self.elr).isdisjoint(self.isr):
            return "a replica is in sync and eligible at once"
        if self.leader_epoch < 0 or self.partition_epoch < 0:
            return "an epoch is negative"
        return None


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic: its name, the id of this incarnation, and its partitions by number."""

    name: TopicName
    id: TopicId
    partitions: tuple[Partition, ...]

    @property
    def is_internal(self) -> bool:
        """Whether brokers keep their own state in it."""
        return self.name in INTERNAL_TOPICS

    def partition(self, index: int) -> Partition | None:
        """The partition of this number, if there is one."""
        return self.partitions[index] if 0 <= index < len(self.partitions) else None

    def to_record(self) -> TopicRecord:
        """The record that begins the topic; those of its partitions follow."""
        return TopicRecord(name=self.name, topic_id=self.id)


def _node_ids(numbers: Iterable[int]) -> NodeIds:
    # A node id is a number to everybody but the type checker, so none is copied.
    return cast(NodeIds, tuple(numbers))


def _recovery(number: int) -> LeaderRecovery:
    try:
        return LeaderRecovery(number)
    except ValueError:
        raise InvalidMetadata(f"There is no state of recovery {number}") from None


def _directory_ids(uuids: Iterable[Uuid]) -> tuple[DirectoryId, ...]:
    return cast(tuple[DirectoryId, ...], tuple(uuids))


def _or_else(changed: Iterable[int] | None, current: NodeIds) -> NodeIds:
    return current if changed is None else _node_ids(changed)
