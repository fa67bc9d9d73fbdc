"""A member of a group whose assignment the coordinator makes (KIP-848): one heartbeat says everything."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from moldau.client.errors import ClientError, code_of
from moldau.client.member import LOST, Learn, Send, Step, Topics, Wait, Wanted
from moldau.client.metadata import Metadata
from moldau.client.offsets import place_of
from moldau.client.settings import ClientSettings
from moldau.model.errors import ErrorCode
from moldau.model.ids import ZERO_UUID, TopicPartition, Uuid
from moldau.wire.message import Response
from moldau.wire.messages.consumer_groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupHeartbeatTopicPartitions,
)

# Epochs by which a member says what it is about to do.
_JOIN: Final = 0
_LEAVE: Final = -1
_LEAVE_FOR_A_WHILE: Final = -2

_NOT_A_MEMBER: Final = -1


class ConsumerMember:
    """Says what changed with each heartbeat, and owns what it is told once others have let go of it."""

    def __init__(
        self,
        group_id: str,
        topics: Topics,
        settings: ClientSettings,
        metadata: Metadata,
        *,
        member_id: str,
    ) -> None:
        self.member_id = member_id
        self.epoch = _NOT_A_MEMBER
        self.error: Exception | None = None
        self.wanted: Wanted | None = None
        self._group_id = group_id
        self._topics = topics
        self._settings = settings
        self._metadata = metadata
        self._owned: tuple[TopicPartition, ...] = ()
        # What the coordinator last assigned; None: nothing since the member joined.
        self._target: dict[Uuid, list[int]] | None = None
        self._heartbeat_at_ms = 0
        self._learn_at_ms = 0
        # What the next heartbeat has to say besides that the member lives.
        self._tells_all = True
        self._tells_owned = False
        self._tells_topics = False
        # An empty pattern takes back an earlier one.
        self._had_pattern = False
        # The member has left because nobody polls; it joins again when somebody does.
        self._is_stalled = False
        self._must_leave = False

    def step(self, now_ms: int) -> Step:
        """What to do next."""
        if self._must_leave:
            return self._leaving()
        if self.error is not None or self._is_stalled or (self.wanted is not None and self.wanted.is_lost):
            return Wait()
        has_unknown_ids = bool(self._unknown_ids())
        if has_unknown_ids and now_ms >= self._learn_at_ms:
            return Learn(self._topics.names or None)
        if now_ms < self._heartbeat_at_ms:
            return Wait(
                min(self._heartbeat_at_ms, self._learn_at_ms) if has_unknown_ids else self._heartbeat_at_ms
            )
        return Send(self._heartbeat(), ConsumerGroupHeartbeatResponse)

    def answered(self, response: Response, now_ms: int) -> None:
        """Take over the epoch, and what is assigned if that has changed."""
        assert isinstance(response, ConsumerGroupHeartbeatResponse)
        if self._must_leave:
            # A heartbeat may have been under way when the member decided to leave.
            self._must_leave = response.error_code == ErrorCode.NONE and response.member_epoch >= 0
            return
        if response.error_code != ErrorCode.NONE:
            self._refused(code_of(response.error_code), response.error_message)
            return
        self.member_id = response.member_id or self.member_id
        self.epoch = response.member_epoch
        self._heartbeat_at_ms = now_ms + response.heartbeat_interval_ms
        if self._tells_owned or self._tells_topics:
            # Something happened while the heartbeat was under way.
            self._heartbeat_at_ms = now_ms
        if response.assignment is not None:
            self._target = {
                row.topic_id: list(row.partitions) for row in response.assignment.topic_partitions
            }
            self._learn_at_ms = 0
        self._want()

    def failed(self, now_ms: int, backoff_ms: int) -> None:
        """Nobody knows whether the coordinator has heard the last heartbeat: tell everything again."""
        if self._must_leave:
            self._must_leave = False
            return
        self._tells_all = True
        self._heartbeat_at_ms = now_ms + backoff_ms

    def learned(self, now_ms: int, backoff_ms: int) -> None:
        """Names of topics may be known now; those that are not are asked for again later."""
        self._learn_at_ms = now_ms + backoff_ms
        self._want()

    def own(self, partitions: Iterable[TopicPartition]) -> None:
        """Tell the coordinator at once, because others may wait for what was given up."""
        is_lost = self.wanted is not None and self.wanted.is_lost
        self._owned = tuple(partitions)
        self.wanted = None
        self._heartbeat_at_ms = 0
        if is_lost:
            self._is_stalled = False
            self._tells_all = True
        else:
            self._tells_owned = True
            self._want()

    def subscribe(self, topics: Topics) -> None:
        """Want other topics from now on."""
        self._had_pattern = self._had_pattern or self._topics.pattern is not None
        self._topics = topics
        self._tells_topics = True
        self._heartbeat_at_ms = 0

    def stall(self) -> None:
        """Leave, and join again when the application has noticed."""
        if not self._is_stalled and self.error is None:
            self._is_stalled = self._must_leave = True
            self._lose()

    def farewell(self) -> Send | None:
        """Leave the group, a static member only for a while."""
        return None if self.epoch == _NOT_A_MEMBER else self._leaving()

    def _leaving(self) -> Send:
        is_static = bool(self._settings.group_instance_id)
        request = ConsumerGroupHeartbeatRequest(
            group_id=self._group_id,
            member_id=self.member_id,
            member_epoch=_LEAVE_FOR_A_WHILE if is_static else _LEAVE,
            instance_id=self._settings.group_instance_id or None,
        )
        return Send(request, ConsumerGroupHeartbeatResponse)

    def _heartbeat(self) -> ConsumerGroupHeartbeatRequest:
        settings = self._settings
        is_joining = self.epoch == _NOT_A_MEMBER
        request = ConsumerGroupHeartbeatRequest(
            group_id=self._group_id,
            member_id=self.member_id,
            member_epoch=_JOIN if is_joining else self.epoch,
            instance_id=settings.group_instance_id or None,
        )
        if self._tells_all:
            request.rack_id = settings.client_rack or None
            request.rebalance_timeout_ms = settings.max_poll_interval_ms
            request.server_assignor = settings.group_remote_assignor or None
        if self._tells_all or self._tells_topics:
            request.subscribed_topic_names = sorted(self._topics.names)
            if self._topics.pattern is not None or self._had_pattern:
                request.subscribed_topic_regex = self._topics.pattern or ""
        if self._tells_all or self._tells_owned:
            request.topic_partitions = [] if is_joining else self._owned_by_id()
        self._tells_all = self._tells_owned = self._tells_topics = False
        return request

    def _owned_by_id(self) -> list[ConsumerGroupHeartbeatTopicPartitions]:
        topics: dict[Uuid, list[int]] = {}
        for place in sorted(self._owned):
            # A topic that was deleted meanwhile has no id to name it by.
            if (topic_id := self._metadata.topic_id(place.topic)) != ZERO_UUID:
                topics.setdefault(topic_id, []).append(place.partition)
        return [
            ConsumerGroupHeartbeatTopicPartitions(topic_id=topic_id, partitions=indexes)
            for topic_id, indexes in topics.items()
        ]

    def _refused(self, code: ErrorCode, message: str | None) -> None:
        # While it was away, the members that were left have become a classic group, or the group was deleted.
        was_forgotten = code is ErrorCode.GROUP_ID_NOT_FOUND and self.epoch > _JOIN
        if code in LOST or was_forgotten:
            self._lose()
        else:
            self.error = ClientError(code, message, where=self._group_id)

    def _lose(self) -> None:
        self.epoch = _NOT_A_MEMBER
        self._target = None
        self.wanted = Wanted((), is_lost=True)

    def _unknown_ids(self) -> list[Uuid]:
        return [topic_id for topic_id in self._target or () if not self._metadata.name_of(topic_id)]

    def _want(self) -> None:
        if self._target is None or (self.wanted is not None and self.wanted.is_lost):
            return
        known = {topic_id: self._metadata.name_of(topic_id) for topic_id in self._target}
        places = tuple(
            sorted(
                place_of((name, index))
                for topic_id, name in known.items()
                if name
                for index in self._target[topic_id]
            )
        )
        self.wanted = Wanted(places) if places != tuple(sorted(self._owned)) else None
