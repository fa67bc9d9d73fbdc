"""Offsets of groups: what must not be committed, read or deleted is answered beside what the shard says."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from moldau.metadata.image import Image, Topic
from moldau.model.errors import ErrorCode, KafkaError
from moldau.model.ids import ZERO_UUID, TopicId, TopicName
from moldau.node.apis.call import Call, Parts
from moldau.node.apis.group_calls import Caller, Gathered, check
from moldau.node.apis.refusals import not_read
from moldau.node.security import Operation, ResourceType
from moldau.wire.message import Response
from moldau.wire.messages.groups import (
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
)

_READ, _DESCRIBE, _DELETE = Operation.READ, Operation.DESCRIBE, Operation.DELETE
_COMMIT_TOPIC_IDS: Final = 10
_FETCH_GROUPS: Final = 8
_FETCH_ERROR: Final = 2
_FETCH_TOPIC_IDS: Final = 10
_NO_OFFSET: Final = -1


# ------------------------------------------------------------------------------------------ committing


def commit(parts: Parts, call: Call) -> Response | None:
    """OffsetCommit: what must not be committed is answered beside what the shard says."""
    request = call.body
    assert isinstance(request, OffsetCommitRequest)
    check(parts, call, _READ, request.group_id)
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

    gathered = Gathered[OffsetFetchResponseGroup](len(groups), finish)
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
        gathered: Gathered[OffsetFetchResponseGroup],
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
    check(parts, call, _DELETE, request.group_id)
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
