"""Groups and their offsets: who may ask, which shard decides, and the replies of several as one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, Generic, TypeVar

from moldau.metadata.image import Image, Topic
from moldau.model.errors import ErrorCode, KafkaError
from moldau.model.ids import ZERO_UUID, TopicId, TopicName
from moldau.node.apis.call import Call, Parts
from moldau.node.apis.refusals import REFUSALS, consumers_not_described, not_described, not_read
from moldau.node.coordinators import Waiter
from moldau.node.security import CLUSTER_NAME, Operation, ResourceType
from moldau.wire.message import Request, Response
from moldau.wire.messages.consumer_groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatRequest,
)
from moldau.wire.messages.consumer_groups import DescribedGroup as DescribedConsumerGroup
from moldau.wire.messages.consumer_groups import Member as ConsumerMember
from moldau.wire.messages.groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
    SyncGroupRequest,
)

T = TypeVar("T")

_READ, _DESCRIBE, _DELETE = Operation.READ, Operation.DESCRIBE, Operation.DELETE
_PROTOCOL_IN_SYNC: Final = 5
_COMMIT_TOPIC_IDS: Final = 10
_FETCH_GROUPS: Final = 8
_FETCH_ERROR: Final = 2
_FETCH_TOPIC_IDS: Final = 10
_NO_OFFSET: Final = -1
_GROUP_OPERATIONS: Final = (
    *(Operation.READ, Operation.DELETE, Operation.DESCRIBE),
    *(Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS),
)


class Caller(Waiter):
    """A call whose reply is just what a shard says."""

    __slots__ = ("call",)

    def __init__(self, call: Call) -> None:
        # The address as Java writes it, which is how tools show it.
        super().__init__(version=call.version, client_id=call.client_id, client_host=f"/{call.host}")
        self.call = call

    def told(self, reply: Response | KafkaError) -> None:
        """Give the reply to the client."""
        self.call.answer(self.response(reply))

    def response(self, reply: Response | KafkaError) -> Response:
        """The reply, with the error in its place if it is one."""
        if isinstance(reply, KafkaError):
            return REFUSALS[self.call.received.api_key](self.call, reply)
        return reply


# ------------------------------------------------------------------------------------ the classic protocol


def join(parts: Parts, call: Call) -> None:
    """JoinGroup: the reply waits for the other members."""
    request = call.body
    assert isinstance(request, JoinGroupRequest)
    _ask(parts, call, request.group_id, request)


def sync(parts: Parts, call: Call) -> None:
    """SyncGroup: the reply waits for the leader."""
    request = call.body
    assert isinstance(request, SyncGroupRequest)
    if call.version >= _PROTOCOL_IN_SYNC and None in (request.protocol_type, request.protocol_name):
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    _ask(parts, call, request.group_id, request)


def heartbeat(parts: Parts, call: Call) -> None:
    """Heartbeat of a classic member."""
    request = call.body
    assert isinstance(request, HeartbeatRequest)
    _ask(parts, call, request.group_id, request)


def leave(parts: Parts, call: Call) -> None:
    """LeaveGroup, for one or several."""
    request = call.body
    assert isinstance(request, LeaveGroupRequest)
    _ask(parts, call, request.group_id, request)


def _ask(parts: Parts, call: Call, group_id: str, request: Request) -> None:
    _check(parts, call, _READ, group_id)
    parts.groups.ask(group_id, request, Caller(call))


def _check(parts: Parts, call: Call, operation: Operation, group_id: str) -> None:
    if not call.may(parts, operation, ResourceType.GROUP, group_id):
        raise KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED)


# ------------------------------------------------------------------------------------------ committing


def commit(parts: Parts, call: Call) -> Response | None:
    """OffsetCommit: what must not be committed is answered beside what the shard says."""
    request = call.body
    assert isinstance(request, OffsetCommitRequest)
    _check(parts, call, _READ, request.group_id)
    image = parts.view.image
    accepted: list[OffsetCommitRequestTopic] = []
    refused: list[OffsetCommitResponseTopic] = []
    for topic in request.topics:
        code = _resolve(parts, call, image, topic)
        if code is not ErrorCode.NONE:
            refused.append(_not_committed(topic, topic.partitions, code))
            continue
        partition_count = len(image.topics[TopicName(topic.name)].partitions)
        missing = [each for each in topic.partitions if not 0 <= each.partition_index < partition_count]
        if missing:
            refused.append(_not_committed(topic, missing, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
            topic.partitions = [
                each for each in topic.partitions if 0 <= each.partition_index < partition_count
            ]
        if topic.partitions:
            accepted.append(topic)
    if refused and not accepted:
        return OffsetCommitResponse(topics=refused)
    request.topics = accepted
    parts.groups.ask(request.group_id, request, _Committer(call, refused) if refused else Caller(call))
    return None


def _resolve(parts: Parts, call: Call, image: Image, topic: OffsetCommitRequestTopic) -> ErrorCode:
    """Give a topic both its name and its id, or say why nothing can be committed there."""
    found: Topic | None
    if call.version >= _COMMIT_TOPIC_IDS:
        found = image.topic_by_id(TopicId(topic.topic_id))
        if found is None:
            return ErrorCode.UNKNOWN_TOPIC_ID
        topic.name = found.name
    else:
        found = image.topics.get(TopicName(topic.name))
    if not call.may(parts, _READ, ResourceType.TOPIC, topic.name):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if found is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    topic.topic_id = found.id
    return ErrorCode.NONE


def _not_committed(
    topic: OffsetCommitRequestTopic, partitions: Iterable[OffsetCommitRequestPartition], code: ErrorCode
) -> OffsetCommitResponseTopic:
    return OffsetCommitResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            OffsetCommitResponsePartition(partition_index=each.partition_index, error_code=code)
            for each in partitions
        ],
    )


class _Committer(Caller):
    """A commit of which a part was refused before the shard saw it."""

    __slots__ = ("_refused",)

    def __init__(self, call: Call, refused: list[OffsetCommitResponseTopic]) -> None:
        super().__init__(call)
        self._refused = refused

    def told(self, reply: Response | KafkaError) -> None:
        """Give both parts to the client."""
        response = self.response(reply)
        assert isinstance(response, OffsetCommitResponse)
        response.topics += self._refused
        self.call.answer(response)


# --------------------------------------------------------------------------------------------- reading


def fetch(parts: Parts, call: Call) -> Response | None:
    """OffsetFetch, of one group or, since version 8, of several; each has an error of its own."""
    request = call.body
    assert isinstance(request, OffsetFetchRequest)
    groups = request.groups
    if call.version < _FETCH_GROUPS:
        topics = None
        if request.topics is not None:
            topics = [
                OffsetFetchRequestTopics(name=each.name, partition_indexes=each.partition_indexes)
                for each in request.topics
            ]
        groups = [OffsetFetchRequestGroup(group_id=request.group_id, topics=topics)]
    if not groups:
        return OffsetFetchResponse(groups=[])

    def finish(replies: list[OffsetFetchResponseGroup]) -> None:
        if call.version < _FETCH_GROUPS:
            call.answer(_of_one_group(replies[0], call.version))
        else:
            call.answer(OffsetFetchResponse(groups=replies))

    gathered = _Gathered[OffsetFetchResponseGroup](len(groups), finish)
    for number, group in enumerate(groups):
        reader = _Reader(parts, call, group, gathered, number)
        if not call.may(parts, _DESCRIBE, ResourceType.GROUP, group.group_id):
            reader.told(KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED))
            continue
        wanted = OffsetFetchRequestGroup(
            group_id=group.group_id,
            member_id=group.member_id,
            member_epoch=group.member_epoch,
            topics=reader.visible_topics(),
        )
        parts.groups.ask(
            group.group_id,
            OffsetFetchRequest(groups=[wanted], require_stable=request.require_stable),
            reader,
        )
    return None


class _Reader(Caller):
    """One group of an OffsetFetch: what may not be seen is answered beside what the shard says."""

    __slots__ = ("_gathered", "_group", "_hidden", "_number", "_parts")

    def __init__(
        self,
        parts: Parts,
        call: Call,
        group: OffsetFetchRequestGroup,
        gathered: _Gathered[OffsetFetchResponseGroup],
        number: int,
    ) -> None:
        super().__init__(call)
        self._parts = parts
        self._group = group
        self._gathered = gathered
        self._number = number
        self._hidden: list[OffsetFetchResponseTopics] = []

    def visible_topics(self) -> list[OffsetFetchRequestTopics] | None:
        """The topics to ask the shard for, with their names; None means all of them."""
        if self._group.topics is None:
            return None
        visible = []
        names = self._parts.view.image.topic_names
        for topic in self._group.topics:
            if self.call.version >= _FETCH_TOPIC_IDS:
                topic.name = names.get(TopicId(topic.topic_id), TopicName(""))
            if not topic.name:
                self._hidden.append(_not_fetched(topic, ErrorCode.UNKNOWN_TOPIC_ID))
            elif not self._may_see(topic.name):
                self._hidden.append(_not_fetched(topic, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
            else:
                visible.append(topic)
        return visible

    def _may_see(self, topic: str) -> bool:
        return self.call.may(self._parts, _DESCRIBE, ResourceType.TOPIC, topic)

    def told(self, reply: Response | KafkaError) -> None:
        """Put both parts in the place of the group."""
        if isinstance(reply, KafkaError):
            refused = not_read(self._group, reply, version=self.call.version)
            self._gathered.put(self._number, refused)
            return
        assert isinstance(reply, OffsetFetchResponse)
        (found,) = reply.groups
        if self._group.topics is None:
            found.topics = [topic for topic in found.topics if self._may_see(topic.name)]
            if self.call.version >= _FETCH_TOPIC_IDS:
                found.topics = self._with_ids(found.topics)
        found.topics += self._hidden
        self._gathered.put(self._number, found)

    def _with_ids(self, topics: list[OffsetFetchResponseTopics]) -> list[OffsetFetchResponseTopics]:
        """Those that still have an id, with it: the client is told no names."""
        image = self._parts.view.image
        for topic in topics:
            known = image.topics.get(TopicName(topic.name))
            topic.topic_id = ZERO_UUID if known is None else known.id
        return [topic for topic in topics if topic.topic_id != ZERO_UUID]


def _not_fetched(topic: OffsetFetchRequestTopics, code: ErrorCode) -> OffsetFetchResponseTopics:
    return OffsetFetchResponseTopics(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            OffsetFetchResponsePartitions(
                partition_index=index, committed_offset=_NO_OFFSET, metadata="", error_code=code
            )
            for index in topic.partition_indexes
        ],
    )


def _of_one_group(group: OffsetFetchResponseGroup, version: int) -> OffsetFetchResponse:
    """The reply in the form that it had when it was about one group only."""
    return OffsetFetchResponse(
        error_code=group.error_code if version >= _FETCH_ERROR else ErrorCode.NONE,
        topics=[
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=each.partition_index,
                        committed_offset=each.committed_offset,
                        committed_leader_epoch=each.committed_leader_epoch,
                        metadata=each.metadata,
                        error_code=each.error_code,
                    )
                    for each in topic.partitions
                ],
            )
            for topic in group.topics
        ],
    )


# -------------------------------------------------------------------------------------------- deleting


def delete_offsets(parts: Parts, call: Call) -> None:
    """OffsetDelete: what does not exist is answered beside what the shard says."""
    request = call.body
    assert isinstance(request, OffsetDeleteRequest)
    _check(parts, call, _DELETE, request.group_id)
    topics = parts.view.image.topics
    accepted: list[OffsetDeleteRequestTopic] = []
    refused: list[OffsetDeleteResponseTopic] = []
    for topic in request.topics:
        if not call.may(parts, _READ, ResourceType.TOPIC, topic.name):
            refused.append(_not_deleted(topic, topic.partitions, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
            continue
        known = topics.get(TopicName(topic.name))
        partition_count = 0 if known is None else len(known.partitions)
        missing = [each for each in topic.partitions if not 0 <= each.partition_index < partition_count]
        if missing:
            refused.append(_not_deleted(topic, missing, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        present = [each for each in topic.partitions if 0 <= each.partition_index < partition_count]
        if present:
            accepted.append(OffsetDeleteRequestTopic(name=topic.name, partitions=present))
    wanted = OffsetDeleteRequest(group_id=request.group_id, topics=accepted)
    parts.groups.ask(request.group_id, wanted, _OffsetDeleter(call, refused))


def _not_deleted(
    topic: OffsetDeleteRequestTopic, partitions: Iterable[OffsetDeleteRequestPartition], code: ErrorCode
) -> OffsetDeleteResponseTopic:
    return OffsetDeleteResponseTopic(
        name=topic.name,
        partitions=[
            OffsetDeleteResponsePartition(partition_index=each.partition_index, error_code=code)
            for each in partitions
        ],
    )


class _OffsetDeleter(Caller):
    """A deletion of offsets of which a part was refused before the shard saw it."""

    __slots__ = ("_refused",)

    def __init__(self, call: Call, refused: list[OffsetDeleteResponseTopic]) -> None:
        super().__init__(call)
        self._refused = refused

    def told(self, reply: Response | KafkaError) -> None:
        """Give both parts to the client."""
        response = self.response(reply)
        assert isinstance(response, OffsetDeleteResponse)
        if not response.error_code:
            response.topics += self._refused
        self.call.answer(response)


# ---------------------------------------------------------------------------------- groups as a whole


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

    gathered = _Gathered(len(led), finish)
    for number, each in enumerate(led):
        each.ask(request, _Contributor(call, gathered, number))
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

    _ask_each(
        parts, call, group_ids, _DESCRIBE, lambda group_id: DescribeGroupsRequest(groups=[group_id]), finish
    )


def consumer_heartbeat(parts: Parts, call: Call) -> None:
    """ConsumerGroupHeartbeat: who may not see a topic cannot subscribe to it (KIP-848)."""
    request = call.body
    assert isinstance(request, ConsumerGroupHeartbeatRequest)
    _check(parts, call, _READ, request.group_id)
    for topic in request.subscribed_topic_names or ():
        if not call.may(parts, _DESCRIBE, ResourceType.TOPIC, topic):
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    parts.groups.ask(request.group_id, request, Caller(call))


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

    _ask_each(parts, call, group_ids, _DESCRIBE, asked, finish)


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

    _ask_each(
        parts, call, group_ids, _DELETE, lambda group_id: DeleteGroupsRequest(groups_names=[group_id]), finish
    )


def _ask_each(
    parts: Parts,
    call: Call,
    group_ids: list[str],
    operation: Operation,
    request: Callable[[str], Request],
    finish: Callable[[list[Response | KafkaError]], None],
) -> None:
    """Ask the shard of each group, and finish when all have answered; they may all be of one shard."""
    if not group_ids:
        finish([])
        return
    gathered = _Gathered(len(group_ids), finish)
    for number, group_id in enumerate(group_ids):
        waiter = _Contributor(call, gathered, number)
        if call.may(parts, operation, ResourceType.GROUP, group_id):
            parts.groups.ask(group_id, request(group_id), waiter)
        else:
            waiter.told(KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED))


class _Gathered(Generic[T]):
    """Replies of several shards on their way into one."""

    __slots__ = ("_finish", "_missing", "_replies")

    def __init__(self, count: int, finish: Callable[[list[T]], None]) -> None:
        assert count > 0, "nobody would ever finish"
        self._replies: dict[int, T] = {}
        self._missing = count
        self._finish = finish

    def put(self, number: int, reply: T) -> None:
        """Take one reply in; with the last one all are there."""
        self._replies[number] = reply
        self._missing -= 1
        if not self._missing:
            self._finish([self._replies[each] for each in range(len(self._replies))])


class _Contributor(Caller):
    """One of several whose replies are gathered."""

    __slots__ = ("_gathered", "_number")

    def __init__(self, call: Call, gathered: _Gathered[Response | KafkaError], number: int) -> None:
        super().__init__(call)
        self._gathered = gathered
        self._number = number

    def told(self, reply: Response | KafkaError) -> None:
        """Put the reply in its place."""
        self._gathered.put(self._number, reply)
