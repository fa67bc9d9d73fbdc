"""Groups as a whole: listed, described and deleted, wherever their shards are."""

from __future__ import annotations

from typing import Final

from moldau.model.errors import ErrorCode, KafkaError
from moldau.node.apis.call import Call, Parts
from moldau.node.apis.group_calls import Contributor, Gathered, ask_each
from moldau.node.apis.refusals import REFUSALS, consumers_not_described, not_described
from moldau.node.security import CLUSTER_NAME, Operation, ResourceType
from moldau.wire.message import Response
from moldau.wire.messages.consumer_groups import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
from moldau.wire.messages.consumer_groups import DescribedGroup as DescribedConsumerGroup
from moldau.wire.messages.consumer_groups import Member as ConsumerMember
from moldau.wire.messages.groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)

_DESCRIBE, _DELETE = Operation.DESCRIBE, Operation.DELETE
_GROUP_OPERATIONS: Final = (
    *(Operation.READ, Operation.DELETE, Operation.DESCRIBE),
    *(Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS),
)


def list_groups(parts: Parts, call: Call) -> Response | None:
    """ListGroups: those of all shards that are led here."""
    request = call.body
    assert isinstance(request, ListGroupsRequest)
    may_see_all = call.may(parts, _DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME)
    led = list(parts.groups)
    if not led:
        return ListGroupsResponse(error_code=ErrorCode.NONE, groups=[])

    def finish(replies: list[Response | KafkaError]) -> None:
        groups: list[ListedGroup] = []
        for reply in replies:
            if isinstance(reply, ListGroupsResponse):
                groups += reply.groups
            elif isinstance(reply, KafkaError) and reply.code is not ErrorCode.NOT_COORDINATOR:
                call.answer(REFUSALS[call.received.api_key](call, reply))
                return
        if not may_see_all:
            groups = [
                each for each in groups if call.may(parts, _DESCRIBE, ResourceType.GROUP, each.group_id)
            ]
        call.answer(ListGroupsResponse(error_code=ErrorCode.NONE, groups=groups))

    gathered = Gathered(len(led), finish)
    for number, each in enumerate(led):
        each.ask(request, Contributor(call, gathered, number))
    return None


def describe(parts: Parts, call: Call) -> None:
    """DescribeGroups: classic groups, each with an error of its own."""
    request = call.body
    assert isinstance(request, DescribeGroupsRequest)
    group_ids = request.groups

    def finish(replies: list[Response | KafkaError]) -> None:
        call.answer(
            DescribeGroupsResponse(groups=[described(*each) for each in zip(group_ids, replies, strict=True)])
        )

    def described(group_id: str, reply: Response | KafkaError) -> DescribedGroup:
        if isinstance(reply, KafkaError):
            return not_described(group_id, reply, version=call.version)
        assert isinstance(reply, DescribeGroupsResponse)
        (group,) = reply.groups
        if request.include_authorized_operations and group.error_code == ErrorCode.NONE:
            group.authorized_operations = _operations(parts, call, group_id)
        return group

    ask_each(
        parts, call, group_ids, _DESCRIBE, lambda group_id: DescribeGroupsRequest(groups=[group_id]), finish
    )


def describe_consumers(parts: Parts, call: Call) -> None:
    """ConsumerGroupDescribe: consumer groups, each with an error of its own."""
    request = call.body
    assert isinstance(request, ConsumerGroupDescribeRequest)
    group_ids = request.group_ids

    def finish(replies: list[Response | KafkaError]) -> None:
        groups = [described(*each) for each in zip(group_ids, replies, strict=True)]
        call.answer(ConsumerGroupDescribeResponse(throttle_time_ms=0, groups=groups))

    def described(group_id: str, reply: Response | KafkaError) -> DescribedConsumerGroup:
        if isinstance(reply, KafkaError):
            return consumers_not_described(group_id, reply)
        assert isinstance(reply, ConsumerGroupDescribeResponse)
        (group,) = reply.groups
        if not all(
            call.may(parts, _DESCRIBE, ResourceType.TOPIC, topic)
            for topic in dict.fromkeys(name for member in group.members for name in _topics_of(member))
        ):
            return consumers_not_described(group_id, KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED))
        if request.include_authorized_operations and group.error_code == ErrorCode.NONE:
            group.authorized_operations = _operations(parts, call, group_id)
        return group

    def asked(group_id: str) -> ConsumerGroupDescribeRequest:
        return ConsumerGroupDescribeRequest(group_ids=[group_id], include_authorized_operations=False)

    ask_each(parts, call, group_ids, _DESCRIBE, asked, finish)


def delete(parts: Parts, call: Call) -> None:
    """DeleteGroups, each with an error of its own."""
    request = call.body
    assert isinstance(request, DeleteGroupsRequest)
    group_ids = list(dict.fromkeys(request.groups_names))

    def finish(replies: list[Response | KafkaError]) -> None:
        results = [deleted(*each) for each in zip(group_ids, replies, strict=True)]
        call.answer(DeleteGroupsResponse(throttle_time_ms=0, results=results))

    def deleted(group_id: str, reply: Response | KafkaError) -> DeletableGroupResult:
        if isinstance(reply, KafkaError):
            return DeletableGroupResult(group_id=group_id, error_code=reply.code)
        assert isinstance(reply, DeleteGroupsResponse)
        return reply.results[0]

    ask_each(
        parts, call, group_ids, _DELETE, lambda group_id: DeleteGroupsRequest(groups_names=[group_id]), finish
    )


def _topics_of(member: ConsumerMember) -> list[str]:
    """The topics that a description of a member names."""
    assigned = (*member.assignment.topic_partitions, *member.target_assignment.topic_partitions)
    return [*member.subscribed_topic_names, *(row.topic_name for row in assigned)]


def _operations(parts: Parts, call: Call, group_id: str) -> int:
    """What the one who asks may do with a group, as bits."""
    return sum(
        1 << operation
        for operation in _GROUP_OPERATIONS
        if call.may(parts, operation, ResourceType.GROUP, group_id)
    )
