"""How partitions change: what their leaders ask for, elections on demand, and brokers that come and go."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

from moldau.metadata.controller.decisions import ControllerDecision, check_broker_epoch, decided
from moldau.metadata.controller.elections import Election, Target, change, terms_for, without
from moldau.metadata.image import NO_LEADER, Broker, LeaderRecovery, Partition, Topic
from moldau.metadata.view import ClusterView
from moldau.model.decision import Decision
from moldau.model.errors import ErrorCode, KafkaError
from moldau.model.ids import DirectoryId, NodeId, PartitionIndex, TopicId, TopicName
from moldau.wire.messages.brokers import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionResponse,
    AlterPartitionResponsePartitionData,
    AlterPartitionResponseTopicData,
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    AssignReplicasToDirsResponseDirectoryData,
    AssignReplicasToDirsResponsePartitionData,
    AssignReplicasToDirsResponseTopicData,
    BrokerState,
)
from moldau.wire.messages.metadata_records import PartitionChangeRecord
from moldau.wire.messages.topics import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

_ELECTIONS: Final = {0: Election.PREFERRED, 1: Election.UNCLEAN}
_ANY_EPOCH: Final = -1

# --------------------------------------------------------------------------------------- the leader's request


def alter_partition(
    view: ClusterView, request: AlterPartitionRequest
) -> ControllerDecision[AlterPartitionResponse]:
    """Change in-sync sets as leaders ask for it, if they know the partition's newest state."""
    sender = check_broker_epoch(view.image, request.broker_id, request.broker_epoch).id
    records: list[PartitionChangeRecord] = []
    topics = []
    for asked_topic in request.topics:
        topic = view.image.topic_by_id(TopicId(asked_topic.topic_id))
        results = []
        for asked in asked_topic.partitions:
            if topic is None:
                results.append(_refused(asked, ErrorCode.UNKNOWN_TOPIC_ID))
                continue
            result, record = _alter(view, topic, asked, sender)
            results.append(result)
            if record is not None:
                records.append(record)
        topics.append(AlterPartitionResponseTopicData(topic_id=asked_topic.topic_id, partitions=results))
    return Decision(AlterPartitionResponse(throttle_time_ms=0, error_code=0, topics=topics), tuple(records))


def _alter(
    view: ClusterView, topic: Topic, asked: AlterPartitionRequestPartitionData, sender: NodeId
) -> tuple[AlterPartitionResponsePartitionData, PartitionChangeRecord | None]:
    partition = topic.partition(asked.partition_index)
    if partition is None:
        return _refused(asked, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), None
    # Up to version 2 the epochs of the brokers were not said.
    members = asked.new_isr_with_epochs or [
        BrokerState(broker_id=each, broker_epoch=_ANY_EPOCH) for each in asked.new_isr
    ]
    complaint = _complaint(view, partition, asked, members, sender)
    if complaint is not None:
        return _refused(asked, complaint), None
    target = replace(
        Target.of(partition),
        isr=tuple(NodeId(member.broker_id) for member in members),
        leader_recovery=LeaderRecovery(asked.leader_recovery_state),
    )
    index = PartitionIndex(asked.partition_index)
    record = change(topic, index, target, terms_for(view, topic, partition))
    after = partition if record is None else partition.changed_by(record)
    if after.leader != sender:
        # The change finished a reassignment that leaves the sender out.
        return _refused(asked, ErrorCode.NEW_LEADER_ELECTED), record
    accepted = AlterPartitionResponsePartitionData(
        partition_index=index,
        error_code=ErrorCode.NONE,
        leader_id=after.leader,
        leader_epoch=after.leader_epoch,
        isr=list(after.isr),
        leader_recovery_state=after.leader_recovery,
        partition_epoch=after.partition_epoch,
    )
    return accepted, record


def _complaint(
    view: ClusterView,
    partition: Partition,
    asked: AlterPartitionRequestPartitionData,
    members: list[BrokerState],
    sender: NodeId,
) -> ErrorCode | None:
    if asked.leader_epoch > partition.leader_epoch or asked.partition_epoch > partition.partition_epoch:
        # The leader has heard of a later state from a later controller.
        return ErrorCode.NOT_CONTROLLER
    if asked.leader_epoch < partition.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if sender != partition.leader:
        return ErrorCode.INVALID_REQUEST
    if asked.partition_epoch < partition.partition_epoch:
        return ErrorCode.INVALID_UPDATE_VERSION
    isr = [member.broker_id for member in members]
    if len(set(isr)) < len(isr) or not set(isr) <= set(partition.replicas) or sender not in isr:
        return ErrorCode.INVALID_REQUEST
    if asked.leader_recovery_state not in (LeaderRecovery.RECOVERED, LeaderRecovery.RECOVERING):
        return ErrorCode.INVALID_REQUEST
    if asked.leader_recovery_state == LeaderRecovery.RECOVERING and (
        len(isr) > 1 or partition.leader_recovery is LeaderRecovery.RECOVERED
    ):
        return ErrorCode.INVALID_REQUEST
    if not all(_may_be_in_sync(view, member) for member in members):
        return ErrorCode.INELIGIBLE_REPLICA
    return None


def _may_be_in_sync(view: ClusterView, member: BrokerState) -> bool:
    broker = view.image.brokers.get(NodeId(member.broker_id))
    if broker is None or not broker.is_active:
        return False
    return member.broker_epoch in (_ANY_EPOCH, broker.epoch)


def _refused(
    asked: AlterPartitionRequestPartitionData, code: ErrorCode
) -> AlterPartitionResponsePartitionData:
    return AlterPartitionResponsePartitionData(
        partition_index=asked.partition_index,
        error_code=code,
        leader_id=0,
        leader_epoch=0,
        isr=[],
        partition_epoch=0,
    )


# --------------------------------------------------------------------------------------- elections on demand


def elect_leaders(
    view: ClusterView, request: ElectLeadersRequest
) -> ControllerDecision[ElectLeadersResponse]:
    """Elect preferred leaders, or unclean ones, in the partitions named or in all."""
    election = _ELECTIONS.get(request.election_type)
    if election is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"There is no election type {request.election_type}.")
    if request.topic_partitions is None:
        wanted: list[tuple[TopicName, Iterable[int]]] = [
            (topic.name, range(len(topic.partitions))) for topic in view.image.topics.values()
        ]
    else:
        wanted = [(TopicName(each.topic), each.partitions) for each in request.topic_partitions]
    records: list[PartitionChangeRecord] = []
    results = []
    for name, indexes in wanted:
        outcomes = []
        for index in indexes:
            code, message = _elect_one(view, name, index, election, records)
            # Of all partitions only those are told of where something was to be done.
            if request.topic_partitions is not None or code is not ErrorCode.ELECTION_NOT_NEEDED:
                outcomes.append(PartitionResult(partition_id=index, error_code=code, error_message=message))
        if outcomes:
            results.append(ReplicaElectionResult(topic=name, partition_result=outcomes))
    return decided(
        ElectLeadersResponse(throttle_time_ms=0, error_code=0, replica_election_results=results), records
    )


def _elect_one(
    view: ClusterView, name: TopicName, index: int, election: Election, records: list[PartitionChangeRecord]
) -> tuple[ErrorCode, str | None]:
    topic = view.image.topics.get(name)
    partition = None if topic is None else topic.partition(index)
    if topic is None or partition is None:
        what = f"no topic {name!r}" if topic is None else f"no partition {index} of {name!r}"
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is {what}."
    wanted = partition.preferred_leader if election is Election.PREFERRED else partition.leader
    if partition.leader == wanted != NO_LEADER:
        return ErrorCode.ELECTION_NOT_NEEDED, ErrorCode.ELECTION_NOT_NEEDED.message
    terms = terms_for(view, topic, partition, election=election)
    record = change(topic, PartitionIndex(index), Target.of(partition), terms)
    if record is None:
        code = (
            ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
            if election is Election.PREFERRED
            else ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
        )
        return code, code.message
    records.append(record)
    return ErrorCode.NONE, None


def prefer_leaders(view: ClusterView, *, count_max: int) -> list[PartitionChangeRecord]:
    """Elections that give leadership back to the first replicas, for `auto.leader.rebalance.enable`."""
    records: list[PartitionChangeRecord] = []
    for topic in view.image.topics.values():
        for index, partition in enumerate(topic.partitions):
            if len(records) == count_max:
                return records
            # An election that ends with the leader there is, is none.
            if (
                partition.leader == partition.preferred_leader
                or partition.preferred_leader not in partition.isr
            ):
                continue
            terms = terms_for(view, topic, partition, election=Election.PREFERRED)
            record = change(topic, PartitionIndex(index), Target.of(partition), terms)
            if record is not None:
                records.append(record)
    return records


# --------------------------------------------------------------------------------- brokers that come and go


def leave_in_sync_sets(
    view: ClusterView, node_id: NodeId, *, is_gone: bool = False
) -> list[PartitionChangeRecord]:
    """What changes when a broker is fenced or shuts down: it leads nowhere and is in sync nowhere.

    It may still be eligible to lead when it comes back (KIP-966), unless it is gone for good.
    """
    records = []
    for topic, index, partition in _all_partitions(view):
        if node_id not in partition.isr and not (is_gone and node_id in partition.elr):
            continue
        target = replace(
            Target.of(partition),
            isr=without(partition.isr, (node_id,)),
            ineligible=(node_id,) if is_gone else (),
        )
        record = change(topic, index, target, terms_for(view, topic, partition, leaving=node_id))
        if record is not None:
            records.append(record)
    return records


def lead_what_has_no_leader(view: ClusterView, arriving: NodeId | None = None) -> list[PartitionChangeRecord]:
    """Elections in the partitions without a leader, now that a broker is there or a setting has changed."""
    records = []
    for topic, index, partition in _all_partitions(view):
        if partition.leader != NO_LEADER:
            continue
        terms = terms_for(view, topic, partition, arriving=arriving)
        record = change(topic, index, Target.of(partition), terms)
        if record is not None:
            records.append(record)
    return records


def leave_directories(
    view: ClusterView, node_id: NodeId, offline: Iterable[DirectoryId]
) -> list[PartitionChangeRecord]:
    """What changes when a broker loses directories: the replicas in them are in sync no more."""
    lost = frozenset(offline)
    records = []
    for topic, index, partition in _all_partitions(view):
        if node_id not in partition.isr or partition.directory(node_id) not in lost:
            continue
        target = replace(Target.of(partition), isr=without(partition.isr, (node_id,)))
        record = change(topic, index, target, terms_for(view, topic, partition, leaving=node_id))
        if record is not None:
            records.append(record)
    return records


def leads_any(view: ClusterView, node_id: NodeId) -> bool:
    """Whether the broker leads a partition."""
    return any(partition.leader == node_id for _, _, partition in _all_partitions(view))


def _all_partitions(view: ClusterView) -> Iterator[tuple[Topic, PartitionIndex, Partition]]:
    # A walk over all partitions spares an index that every change would have to keep.
    for topic in view.image.topics.values():
        for index, partition in enumerate(topic.partitions):
            yield topic, PartitionIndex(index), partition


# ---------------------------------------------------------------------------------------------- directories


def assign_replicas_to_directories(
    view: ClusterView, request: AssignReplicasToDirsRequest
) -> ControllerDecision[AssignReplicasToDirsResponse]:
    """Take down where a broker keeps its replicas; one in a directory that is lost is in sync no more."""
    broker = check_broker_epoch(view.image, request.broker_id, request.broker_epoch)
    records: list[PartitionChangeRecord] = []
    directories = []
    for asked_directory in request.directories:
        topics = []
        for asked_topic in asked_directory.topics:
            results = []
            for asked in asked_topic.partitions:
                at = (TopicId(asked_topic.topic_id), asked.partition_index)
                code, record = _assign(view, broker, DirectoryId(asked_directory.id), *at)
                if record is not None:
                    records.append(record)
                results.append(
                    AssignReplicasToDirsResponsePartitionData(
                        partition_index=asked.partition_index, error_code=code
                    )
                )
            topics.append(
                AssignReplicasToDirsResponseTopicData(topic_id=asked_topic.topic_id, partitions=results)
            )
        directories.append(AssignReplicasToDirsResponseDirectoryData(id=asked_directory.id, topics=topics))
    reply = AssignReplicasToDirsResponse(throttle_time_ms=0, error_code=0, directories=directories)
    return Decision(reply, tuple(records))


def _assign(
    view: ClusterView, broker: Broker, directory: DirectoryId, topic_id: TopicId, index: int
) -> tuple[ErrorCode, PartitionChangeRecord | None]:
    topic = view.image.topic_by_id(topic_id)
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_ID, None
    partition = topic.partition(index)
    if partition is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None
    if broker.id not in partition.replicas:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER, None
    is_online = broker.has_online(directory)
    target = replace(
        Target.of(partition),
        isr=partition.isr if is_online else without(partition.isr, (broker.id,)),
        directories=((broker.id, directory),),
    )
    terms = terms_for(view, topic, partition, leaving=None if is_online else broker.id)
    return ErrorCode.NONE, change(topic, PartitionIndex(index), target, terms)
