"""A consumer group as ConsumerGroupDescribe shows it."""

from __future__ import annotations

from typing import Final

from moldau.coordinator.group.assignors import Partitions
from moldau.coordinator.group.consumer.change import GroupChange
from moldau.coordinator.group.consumer.group import ConsumerGroup
from moldau.coordinator.group.consumer.member import Member as GroupMember
from moldau.coordinator.group.consumer.member import without_epochs
from moldau.coordinator.group.group import Group
from moldau.metadata.image import Image
from moldau.model.errors import ErrorCode
from moldau.wire.messages.consumer_groups import (
    ConsumerGroupDescribeAssignment,
    ConsumerGroupDescribeTopicPartitions,
    DescribedGroup,
    Member,
)

_CLASSIC: Final = 0
_CONSUMER: Final = 1


def described(group_id: str, group: Group | None, default_assignor: str, image: Image) -> DescribedGroup:
    """The group, its epochs and its members; GROUP_ID_NOT_FOUND if there is none of this kind."""
    if not isinstance(group, ConsumerGroup):
        what = "not found" if group is None else "is not a consumer group"
        return DescribedGroup(
            error_code=ErrorCode.GROUP_ID_NOT_FOUND,
            error_message=f"Group {group_id} {what}.",
            group_id=group_id,
            group_state="",
            group_epoch=0,
            assignment_epoch=0,
            assignor_name="",
            members=[],
        )
    return DescribedGroup(
        error_code=ErrorCode.NONE,
        group_id=group_id,
        group_state=group.state_name,
        group_epoch=group.epoch,
        assignment_epoch=group.target_epoch,
        assignor_name=GroupChange(group, image).preferred_assignor() or default_assignor,
        members=[
            _member(member, group.target.get(member.member_id, {}), image)
            for member in group.members.values()
        ],
    )


def _member(member: GroupMember, target: Partitions, image: Image) -> Member:
    said, current = member.subscription, member.current
    # What it is to give up it may still be reading.
    has = {topic_id: list(numbers) for topic_id, numbers in without_epochs(current.assigned).items()}
    for topic_id, numbers in without_epochs(current.revoking).items():
        has[topic_id] = sorted((*has.get(topic_id, ()), *numbers))
    return Member(
        member_id=member.member_id,
        instance_id=said.instance_id,
        rack_id=said.rack_id,
        member_epoch=current.epoch,
        client_id=said.client_id,
        client_host=said.client_host,
        subscribed_topic_names=list(said.interest.topics),
        subscribed_topic_regex=said.interest.regex,
        assignment=_assignment({topic_id: tuple(numbers) for topic_id, numbers in has.items()}, image),
        target_assignment=_assignment(target, image),
        member_type=_CLASSIC if member.is_classic else _CONSUMER,
    )


def _assignment(partitions: Partitions, image: Image) -> ConsumerGroupDescribeAssignment:
    return ConsumerGroupDescribeAssignment(
        topic_partitions=[
            ConsumerGroupDescribeTopicPartitions(
                topic_id=topic_id, topic_name=image.topic_names[topic_id], partitions=list(numbers)
            )
            for topic_id, numbers in partitions.items()
            # Of a topic that was deleted nobody knows the name.
            if topic_id in image.topic_names
        ]
    )
