"""Who leads a partition after a change, who stays in sync, and who could lead later (KIP-966)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Self

from moldau.metadata.image import NO_LEADER, LeaderRecovery, NodeIds, Partition, Topic
from moldau.metadata.view import ClusterView
from moldau.model.ids import DIRECTORY_UNASSIGNED, DirectoryId, NodeId, PartitionIndex
from moldau.wire.messages.metadata_records import PartitionChangeRecord


class Election(Enum):
    """What a change may do about the leader."""

    # Keep the leader if it may lead; otherwise elect one that has all that is committed.
    CLEAN = "clean"
    # The same, with the first replica before all others.
    PREFERRED = "preferred"
    # Rather a leader that has lost records than none.
    UNCLEAN = "unclean"


@dataclass(frozen=True, slots=True)
class Terms:
    """The rules under which one partition changes."""

    may_lead: Callable[[NodeId], bool]
    isr_size_min: int
    election: Election
    is_elr_on: bool
    default_directory: Callable[[NodeId], DirectoryId]


def terms_for(
    view: ClusterView,
    topic: Topic,
    partition: Partition,
    *,
    election: Election | None = None,
    leaving: NodeId | None = None,
    arriving: NodeId | None = None,
) -> Terms:
    """The terms of a partition: by its topic's settings, unless an election was asked for.

    A broker that is `leaving` may not lead any more although the image still has it active; one that is
    `arriving` may already.
    """
    brokers = view.image.brokers

    def may_lead(node_id: NodeId) -> bool:
        if node_id == leaving or not (node_id == arriving or view.is_active(node_id)):
            return False
        return node_id not in partition.replicas or brokers[node_id].has_online(partition.directory(node_id))

    def default_directory(node_id: NodeId) -> DirectoryId:
        broker = brokers.get(node_id)
        return DIRECTORY_UNASSIGNED if broker is None else broker.default_directory

    if election is None:
        election = Election.UNCLEAN if view.allows_unclean_election(topic) else Election.CLEAN
    return Terms(
        may_lead=may_lead,
        isr_size_min=view.isr_size_min(topic, partition),
        election=election,
        is_elr_on=view.is_elr_on,
        default_directory=default_directory,
    )


@dataclass(frozen=True, slots=True)
class Target:
    """What a partition is to become, as far as the change itself says."""

    isr: NodeIds
    replicas: NodeIds
    adding: NodeIds
    removing: NodeIds
    leader_recovery: LeaderRecovery
    # Replicas that moved to other directories.
    directories: tuple[tuple[NodeId, DirectoryId], ...] = ()
    # Replicas that must not be counted on to come back.
    ineligible: NodeIds = ()

    @classmethod
    def of(cls, partition: Partition) -> Self:
        """The target that changes nothing; `dataclasses.replace` says what is to change."""
        return cls(
            isr=partition.isr,
            replicas=partition.replicas,
            adding=partition.adding,
            removing=partition.removing,
            leader_recovery=partition.leader_recovery,
        )


def change(topic: Topic, index: PartitionIndex, target: Target, terms: Terms) -> PartitionChangeRecord | None:
    """The record that brings a partition to its target, electing if need be; None if nothing changes."""
    partition = topic.partitions[index]
    target = _with_finished_reassignment(target)
    elr = _eligible(partition, target, terms)
    leader, is_clean = _elect(partition, target, elr, terms)
    isr = target.isr
    if leader != partition.leader and leader in elr:
        # It has all that is committed, and nobody else is in sync.
        isr, elr = (leader,), without(elr, (leader,))
    elif not is_clean:
        isr, elr = (leader,), ()
    if not isr and not terms.is_elr_on:
        # The last in-sync replica stays in the set, so that it is known who has the records.
        isr = partition.isr
    after = replace(
        partition,
        replicas=target.replicas,
        directories=_directories(partition, target, terms),
        isr=isr,
        leader=leader,
        leader_recovery=target.leader_recovery if is_clean else LeaderRecovery.RECOVERING,
        elr=elr,
        last_known_elr=_last_known(partition, isr, leader, terms),
        adding=target.adding,
        removing=target.removing,
    )
    # A leader that was elected anew or that lost a replica to a reassignment begins a new epoch.
    is_new_epoch = leader != partition.leader or not set(partition.replicas) <= set(target.replicas)
    return _record_of(topic, index, partition, after, is_new_epoch=is_new_epoch)


def without(node_ids: NodeIds, gone: Iterable[NodeId]) -> NodeIds:
    """The nodes but for those that are gone."""
    gone = frozenset(gone)
    return tuple(node_id for node_id in node_ids if node_id not in gone)


def _with_finished_reassignment(target: Target) -> Target:
    """A reassignment is over once all replicas that are to stay are in sync."""
    if not (target.adding or target.removing):
        return target
    replicas = without(target.replicas, target.removing)
    isr = without(target.isr, target.removing)
    if not replicas or not isr or not set(replicas) <= set(isr):
        return target
    return replace(target, replicas=replicas, isr=isr, adding=(), removing=())


def _eligible(partition: Partition, target: Target, terms: Terms) -> NodeIds:
    """Who left the in-sync set with all that is committed: below its smallest size nothing commits."""
    if not terms.is_elr_on or len(target.isr) >= terms.isr_size_min:
        return ()
    candidates = sorted({*partition.elr, *partition.isr})
    gone = frozenset((*target.isr, *target.ineligible))
    return tuple(each for each in candidates if each not in gone and each in target.replicas)


def _elect(partition: Partition, target: Target, elr: NodeIds, terms: Terms) -> tuple[NodeId, bool]:
    """The leader, and whether it surely has all that is committed."""
    complete = target.isr or elr
    candidates = (partition.leader, *target.replicas)
    if terms.election is Election.PREFERRED:
        candidates = (target.replicas[0], *candidates)
    for node_id in candidates:
        if node_id in complete and terms.may_lead(node_id):
            return node_id, True
    if terms.is_elr_on and not complete and len(partition.last_known_elr) == 1:
        # Nobody is known to be complete; whoever led last is the likeliest to be.
        (last,) = partition.last_known_elr
        if last in target.replicas and terms.may_lead(last):
            return last, False
    if terms.election is Election.UNCLEAN:
        for node_id in target.replicas:
            if terms.may_lead(node_id):
                return node_id, False
    return NO_LEADER, True


def _last_known(partition: Partition, isr: NodeIds, leader: NodeId, terms: Terms) -> NodeIds:
    if not terms.is_elr_on or leader != NO_LEADER:
        return ()
    if not isr and partition.leader != NO_LEADER:
        return (partition.leader,)
    return partition.last_known_elr


def _directories(partition: Partition, target: Target, terms: Terms) -> tuple[DirectoryId, ...]:
    known = dict(zip(partition.replicas, partition.directories, strict=True))
    known.update(target.directories)
    return tuple(
        known[node_id] if node_id in known else terms.default_directory(node_id)
        for node_id in target.replicas
    )


def _record_of(
    topic: Topic, index: PartitionIndex, before: Partition, after: Partition, *, is_new_epoch: bool
) -> PartitionChangeRecord | None:
    """What differs between two states of a partition."""
    if before == after and not is_new_epoch:
        return None
    record = PartitionChangeRecord(partition_id=index, topic_id=topic.id)
    if is_new_epoch:
        record.leader = after.leader
    if after.replicas != before.replicas:
        record.replicas = list(after.replicas)
    if after.directories != before.directories:
        record.directories = list(after.directories)
    if after.isr != before.isr:
        record.isr = list(after.isr)
    if after.leader_recovery != before.leader_recovery:
        record.leader_recovery_state = after.leader_recovery
    if after.elr != before.elr:
        record.eligible_leader_replicas = list(after.elr)
    if after.last_known_elr != before.last_known_elr:
        record.last_known_elr = list(after.last_known_elr)
    if after.adding != before.adding:
        record.adding_replicas = list(after.adding)
    if after.removing != before.removing:
        record.removing_replicas = list(after.removing)
    return record
