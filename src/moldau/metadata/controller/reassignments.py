"""Moving replicas to other brokers: how a move begins, is called off, and is told of."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from moldau.metadata.controller.decisions import ControllerDecision, decided
from moldau.metadata.controller.elections import Target, change, terms_for, without
from moldau.metadata.controller.topics import check_replicas
from moldau.metadata.image import Partition, Topic
from moldau.metadata.view import ClusterView
from moldau.model.errors import ErrorCode, KafkaError
from moldau.model.ids import PartitionIndex, TopicName
from moldau.wire.messages.metadata_records import PartitionChangeRecord
from moldau.wire.messages.topics import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)


def alter_reassignments(
    view: ClusterView, request: AlterPartitionReassignmentsRequest
) -> ControllerDecision[AlterPartitionReassignmentsResponse]:
    """Begin moves of replicas, or call them off; a move ends when all that are to stay are in sync."""
    records: list[PartitionChangeRecord] = []
    responses = []
    for asked_topic in request.topics:
        outcomes = []
        for asked in asked_topic.partitions:
            code, message = ErrorCode.NONE, None
            try:
                record = _reassign(
                    view,
                    TopicName(asked_topic.name),
                    asked,
                    may_change_factor=request.allow_replication_factor_change,
                )
                if record is not None:
                    records.append(record)
            except KafkaError as refused:
                code, message = refused.code, refused.message
            outcomes.append(
                ReassignablePartitionResponse(
                    partition_index=asked.partition_index, error_code=code, error_message=message
                )
            )
        responses.append(ReassignableTopicResponse(name=asked_topic.name, partitions=outcomes))
    reply = AlterPartitionReassignmentsResponse(
        throttle_time_ms=0,
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_code=ErrorCode.NONE,
        error_message=None,
        responses=responses,
    )
    return decided(reply, records)


def _reassign(
    view: ClusterView, name: TopicName, asked: ReassignablePartition, *, may_change_factor: bool
) -> PartitionChangeRecord | None:
    topic = view.image.topics.get(name)
    partition = None if topic is None else topic.partition(asked.partition_index)
    if topic is None or partition is None:
        raise KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no partition {name}-{asked.partition_index}."
        )
    if asked.replicas is None:
        target = _called_off(view, topic, partition)
    else:
        target = _begun(view, partition, asked.replicas, may_change_factor=may_change_factor)
    index = PartitionIndex(asked.partition_index)
    return change(topic, index, target, terms_for(view, topic, partition))


def _begun(view: ClusterView, partition: Partition, asked: list[int], *, may_change_factor: bool) -> Target:
    wanted = check_replicas(view, asked)
    # A move that is under way is replaced by the new one; those it was adding are not of the original.
    original = without(partition.replicas, partition.adding)
    if not may_change_factor and len(wanted) != len(original):
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"The replication factor would change from {len(original)} to {len(wanted)}.",
        )
    removing = tuple(sorted(without(partition.replicas, wanted)))
    replicas = (*wanted, *removing)
    return replace(
        Target.of(partition),
        replicas=replicas,
        adding=tuple(sorted(without(replicas, original))),
        removing=removing,
    )


def _called_off(view: ClusterView, topic: Topic, partition: Partition) -> Target:
    if not partition.is_being_reassigned:
        raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
    replicas = without(partition.replicas, partition.adding)
    isr = without(partition.isr, partition.adding)
    if not isr and not view.allows_unclean_election(topic):
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"The move cannot be called off: none of the replicas {list(replicas)} is in sync.",
        )
    return replace(Target.of(partition), replicas=replicas, isr=isr or replicas[:1], adding=(), removing=())


def list_reassignments(
    view: ClusterView, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    """The moves that are under way, of the partitions named or of all."""
    if request.topics is None:
        wanted: list[tuple[TopicName, Iterable[int]]] = [
            (topic.name, range(len(topic.partitions))) for topic in view.image.topics.values()
        ]
    else:
        wanted = [(TopicName(each.name), each.partition_indexes) for each in request.topics]
    topics = []
    for name, indexes in wanted:
        topic = view.image.topics.get(name)
        ongoing = []
        for index in indexes:
            partition = None if topic is None else topic.partition(index)
            if partition is not None and partition.is_being_reassigned:
                ongoing.append(
                    OngoingPartitionReassignment(
                        partition_index=index,
                        replicas=list(partition.replicas),
                        adding_replicas=list(partition.adding),
                        removing_replicas=list(partition.removing),
                    )
                )
        if ongoing:
            topics.append(OngoingTopicReassignment(name=name, partitions=ongoing))
    return ListPartitionReassignmentsResponse(
        throttle_time_ms=0, error_code=ErrorCode.NONE, error_message=None, topics=topics
    )
