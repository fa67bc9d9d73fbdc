"""What the log says of consumer groups: each value as its record, and back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, cast

from moldau.coordinator.group.assignors import Partitions
from moldau.coordinator.group.consumer.member import (
    ClassicMembership,
    ClassicProtocol,
    CurrentAssignment,
    Epochs,
    Interest,
    MemberState,
    Subscription,
)
from moldau.coordinator.group.consumer.regexes import ResolvedRegex
from moldau.coordinator.shard import CoordinatorRecord
from moldau.model.errors import ErrorCode, KafkaError
from moldau.model.ids import TopicId, TopicName
from moldau.wire.messages import group_records as wire

# What a record costs in its batch besides key and value, and a few bytes of doubt.
_OVERHEAD_BYTES: Final = 128


# -------------------------------------------------------------------------------------- values to records


def epoch_record(group_id: str, epoch: int, metadata_hash: int) -> CoordinatorRecord:
    """The epoch of the group, and what its topics looked like then."""
    return CoordinatorRecord(
        wire.ConsumerGroupMetadataKey(group_id=group_id),
        wire.ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash),
    )


def subscription_record(group_id: str, member_id: str, subscription: Subscription) -> CoordinatorRecord:
    """What a member has said of itself."""
    classic = subscription.classic
    return CoordinatorRecord(
        wire.ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id),
        wire.ConsumerGroupMemberMetadataValue(
            instance_id=subscription.instance_id,
            rack_id=subscription.rack_id,
            client_id=subscription.client_id,
            client_host=subscription.client_host,
            subscribed_topic_names=list(subscription.interest.topics),
            subscribed_topic_regex=subscription.interest.regex,
            rebalance_timeout_ms=subscription.rebalance_timeout_ms,
            server_assignor=subscription.assignor,
            classic_member_metadata=None
            if classic is None
            else wire.ClassicMemberMetadata(
                session_timeout_ms=classic.session_timeout_ms,
                supported_protocols=[
                    wire.ClassicProtocol(name=each.name, metadata=each.metadata) for each in classic.protocols
                ],
            ),
        ),
    )


def current_record(group_id: str, member_id: str, current: CurrentAssignment) -> CoordinatorRecord:
    """What a member has."""
    return CoordinatorRecord(
        wire.ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id),
        wire.ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=current.epoch,
            previous_member_epoch=current.previous_epoch,
            state=current.state,
            assigned_partitions=_epochs_to_wire(current.assigned),
            partitions_pending_revocation=_epochs_to_wire(current.revoking),
        ),
    )


def target_record(group_id: str, member_id: str, partitions: Partitions) -> CoordinatorRecord:
    """What a member is to have."""
    return CoordinatorRecord(
        wire.ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id),
        wire.ConsumerGroupTargetAssignmentMemberValue(
            topic_partitions=[
                wire.TopicPartition(topic_id=topic_id, partitions=list(numbers))
                for topic_id, numbers in partitions.items()
            ]
        ),
    )


def target_epoch_record(group_id: str, epoch: int, timestamp_ms: int) -> CoordinatorRecord:
    """The epoch of the group for which the targets were made; it comes after all of them."""
    return CoordinatorRecord(
        wire.ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id),
        wire.ConsumerGroupTargetAssignmentMetadataValue(
            assignment_epoch=epoch, assignment_timestamp=timestamp_ms
        ),
    )


def regex_record(group_id: str, regex: str, resolved: ResolvedRegex | None) -> CoordinatorRecord:
    """The topics that an expression stands for; None if nobody subscribes to it any more."""
    return CoordinatorRecord(
        wire.ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex),
        None
        if resolved is None
        else wire.ConsumerGroupRegularExpressionValue(
            topics=list(resolved.topics), version=resolved.version, timestamp=resolved.timestamp_ms
        ),
    )


def member_tombstones(group_id: str, member_id: str) -> list[CoordinatorRecord]:
    """The records after which nothing is left of a member: what it has goes first, as Kafka expects."""
    return [
        CoordinatorRecord(
            wire.ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), None
        ),
        CoordinatorRecord(
            wire.ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), None
        ),
        CoordinatorRecord(wire.ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id), None),
    ]


def group_tombstones(
    group_id: str, member_ids: Iterable[str], regexes: Iterable[str]
) -> list[CoordinatorRecord]:
    """The records after which nothing is left of a group, in Kafka's order."""
    of_members = [member_tombstones(group_id, member_id) for member_id in member_ids]
    return [
        *(current for current, _, _ in of_members),
        *(target for _, target, _ in of_members),
        CoordinatorRecord(wire.ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), None),
        *(subscription for _, _, subscription in of_members),
        *(regex_record(group_id, regex, None) for regex in regexes),
        partition_metadata_tombstone(group_id),
        CoordinatorRecord(wire.ConsumerGroupMetadataKey(group_id=group_id), None),
    ]


def partition_metadata_tombstone(group_id: str) -> CoordinatorRecord:
    """The end of what Kafka wrote before 4.1 in place of the metadata hash."""
    return CoordinatorRecord(wire.ConsumerGroupPartitionMetadataKey(group_id=group_id), None)


# -------------------------------------------------------------------------------------- records to values


def subscription_of(value: wire.ConsumerGroupMemberMetadataValue) -> Subscription:
    """What a member has said of itself."""
    classic = value.classic_member_metadata
    return Subscription(
        interest=Interest(_names(value.subscribed_topic_names), value.subscribed_topic_regex or ""),
        instance_id=value.instance_id,
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        assignor=value.server_assignor,
        classic=None
        if classic is None
        else ClassicMembership(
            session_timeout_ms=classic.session_timeout_ms,
            protocols=tuple(
                ClassicProtocol(each.name, each.metadata) for each in classic.supported_protocols
            ),
        ),
    )


def current_of(value: wire.ConsumerGroupCurrentMemberAssignmentValue) -> CurrentAssignment:
    """What a member has."""
    known = tuple(MemberState)
    return CurrentAssignment(
        epoch=value.member_epoch,
        previous_epoch=value.previous_member_epoch,
        state=MemberState(value.state) if value.state in known else MemberState.UNKNOWN,
        assigned=_epochs_from_wire(value.assigned_partitions, value.member_epoch),
        revoking=_epochs_from_wire(value.partitions_pending_revocation, value.member_epoch),
    )


def partitions_of(value: wire.ConsumerGroupTargetAssignmentMemberValue) -> Partitions:
    """What a member is to have; Kafka writes the numbers in no order."""
    return {
        TopicId(each.topic_id): tuple(sorted(each.partitions))
        for each in value.topic_partitions
        if each.partitions
    }


def regex_of(value: wire.ConsumerGroupRegularExpressionValue) -> ResolvedRegex:
    """The topics that an expression stands for."""
    return ResolvedRegex(_names(value.topics), value.version, value.timestamp)


def _names(topics: list[str]) -> tuple[TopicName, ...]:
    # A name is a text to everybody but the type checker, so none is copied.
    return cast(tuple[TopicName, ...], tuple(topics))


def _epochs_to_wire(partitions: Epochs) -> list[wire.ConsumerGroupCurrentMemberAssignmentTopicPartitions]:
    return [
        wire.ConsumerGroupCurrentMemberAssignmentTopicPartitions(
            topic_id=topic_id, partitions=list(epochs), assignment_epochs=list(epochs.values())
        )
        for topic_id, epochs in partitions.items()
    ]


def _epochs_from_wire(
    topics: list[wire.ConsumerGroupCurrentMemberAssignmentTopicPartitions], member_epoch: int
) -> Epochs:
    found: dict[TopicId, dict[int, int]] = {}
    for topic in topics:
        epochs = topic.assignment_epochs
        if epochs is None or len(epochs) != len(topic.partitions):
            # Before 4.3 nobody wrote them. A static member that is away has an epoch below zero.
            epochs = [max(0, member_epoch)] * len(topic.partitions)
        if topic.partitions:
            found[TopicId(topic.topic_id)] = dict(sorted(zip(topic.partitions, epochs, strict=True)))
    return found


# --------------------------------------------------------------------------------------------- their size


def check_sizes(records: Iterable[CoordinatorRecord], bytes_max: int) -> None:
    """INVALID_REQUEST if a record is too large for the log: its size follows from what clients ask for."""
    for record in records:
        if _size(record) > bytes_max:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"The group would need a record of more than {bytes_max} bytes."
            )


def _size(record: CoordinatorRecord) -> int:
    """How many bytes a record takes at most; cheap, because there may be one for every member."""
    match record.value:
        case wire.ConsumerGroupTargetAssignmentMemberValue(topic_partitions=topics):
            return _OVERHEAD_BYTES + sum(32 + 4 * len(topic.partitions) for topic in topics)
        case wire.ConsumerGroupCurrentMemberAssignmentValue(
            assigned_partitions=assigned, partitions_pending_revocation=revoking
        ):
            return _OVERHEAD_BYTES + sum(48 + 8 * len(topic.partitions) for topic in (*assigned, *revoking))
        case None:
            return 0
        case value:
            return _OVERHEAD_BYTES + len(record.key.encode(0)) + len(value.encode(0))
