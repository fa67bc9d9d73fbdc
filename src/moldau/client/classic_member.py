"""A member of a classic group: all join, one of them assigns, and heartbeats tell when to join again."""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import Enum, auto
from typing import Final

from moldau.client.assignors import ASSIGNORS, Assignor, PartitionCounts, Subscription, assignors_named
from moldau.client.embedded import read_assignment, read_subscription, write_assignment, write_subscription
from moldau.client.errors import ClientError, code_of
from moldau.client.member import LOST, Learn, Send, Step, Topics, Wait, Wanted
from moldau.client.metadata import Metadata
from moldau.client.settings import ClientSettings
from moldau.model.errors import ErrorCode
from moldau.model.ids import TopicPartition
from moldau.wire.message import Response
from moldau.wire.messages.groups import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)

_PROTOCOL_TYPE: Final = "consumer"
_NOT_A_MEMBER: Final = -1
# A join waits as long as the slowest member may take to poll, and its reply still has to travel.
_JOIN_SLACK_MS: Final = 5_000


class _Phase(Enum):
    TO_JOIN = auto()
    TO_SYNC = auto()
    STABLE = auto()
    TO_LEAVE = auto()
    STALLED = auto()


class ClassicMember:
    """Joins, syncs, beats; as the leader it divides the partitions."""

    def __init__(self, group_id: str, topics: Topics, settings: ClientSettings, metadata: Metadata) -> None:
        self.member_id = ""
        self.epoch = _NOT_A_MEMBER
        self.error: Exception | None = None
        self.wanted: Wanted | None = None
        self._group_id = group_id
        self._topics = topics
        self._settings = settings
        self._metadata = metadata
        self._assignors = assignors_named(settings.partition_assignment_strategy)
        # As in all clients: with an assignor that is not cooperative among them, everything is given up.
        self._is_cooperative = all(assignor.is_cooperative for assignor in self._assignors)
        self._owned: tuple[TopicPartition, ...] = ()
        self._owned_since = _NOT_A_MEMBER
        self._phase = _Phase.TO_JOIN
        self._not_before_ms = 0
        self._reason = "joining"
        self._joined: JoinGroupResponse | None = None
        # What the leader knew when it assigned; other numbers are a reason to assign again.
        self._counts: PartitionCounts | None = None
        self._knows_topics = False

    # ---------------------------------------------------------------- what to do next

    def step(self, now_ms: int) -> Step:
        """What to do next."""
        if self.error is not None or self._phase is _Phase.STALLED:
            return Wait()
        if self._phase is _Phase.TO_LEAVE:
            return self._leaving()
        if self.wanted is not None and self.wanted.is_lost:
            return Wait()
        if self._phase is _Phase.STABLE and self._has_outdated_counts():
            self._join_again("topics have changed")
        if now_ms < self._not_before_ms:
            return Wait(self._not_before_ms)
        match self._phase:
            case _Phase.TO_JOIN:
                return self._step_to_join()
            case _Phase.TO_SYNC:
                return self._step_to_sync()
        return self._heartbeat()

    def _step_to_join(self) -> Step:
        if not self._is_cooperative and self._owned:
            # Nobody joins with partitions in hand. Until the application polls, heartbeats go on.
            self.wanted = Wanted(())
            return Wait() if self.epoch == _NOT_A_MEMBER else self._heartbeat()
        if not self._knows_topics:
            return Learn(None if self._topics.pattern is not None else self._topics.names)
        return Send(
            self._join(), JoinGroupResponse, timeout_ms=self._settings.max_poll_interval_ms + _JOIN_SLACK_MS
        )

    def _step_to_sync(self) -> Step:
        joined = self._joined
        assert joined is not None
        assignments: list[SyncGroupRequestAssignment] = []
        if joined.leader == self.member_id and not joined.skip_assignment:
            members = {
                row.member_id: read_subscription(bytes(row.metadata), instance_id=row.group_instance_id)
                for row in joined.members
            }
            topics = sorted({topic for member in members.values() for topic in member.topics})
            if not all(self._metadata.has_heard_of(topic) for topic in topics):
                return Learn(tuple(topics))
            self._counts = self._counts_of(topics)
            assigned = self._assignor(joined.protocol_name).assign(members, self._counts)
            assignments = [
                SyncGroupRequestAssignment(member_id=member, assignment=write_assignment(places))
                for member, places in assigned.items()
            ]
        request = SyncGroupRequest(
            group_id=self._group_id,
            generation_id=joined.generation_id,
            member_id=self.member_id,
            group_instance_id=self._instance_id,
            protocol_type=_PROTOCOL_TYPE,
            protocol_name=joined.protocol_name,
            assignments=assignments,
        )
        return Send(
            request, SyncGroupResponse, timeout_ms=self._settings.max_poll_interval_ms + _JOIN_SLACK_MS
        )

    # ---------------------------------------------------------------- what has happened

    def answered(self, response: Response, now_ms: int) -> None:
        """Take the reply to what was sent last."""
        match response:
            case JoinGroupResponse() if self._phase in (_Phase.TO_LEAVE, _Phase.STALLED):
                # The member has decided to leave while it joined.
                self.member_id = response.member_id or self.member_id
                self._phase = _Phase.TO_LEAVE if self.member_id else _Phase.STALLED
            case JoinGroupResponse():
                self._took_join(response)
            case SyncGroupResponse():
                self._took_sync(response, now_ms)
            case HeartbeatResponse():
                self._took_heartbeat(response, now_ms)
            case LeaveGroupResponse():
                self._has_left()
            case _:
                raise AssertionError(f"{type(response).__name__} answers nothing that was sent")

    def failed(self, now_ms: int, backoff_ms: int) -> None:
        """Try again a little later; what has to be synced is joined again, as the group may have moved on."""
        if self._phase is _Phase.TO_LEAVE:
            self._has_left()
        elif self._phase is _Phase.TO_SYNC:
            self._join_again("the coordinator was lost")
        self._not_before_ms = now_ms + backoff_ms

    def learned(self, now_ms: int, backoff_ms: int) -> None:
        """The topics are known now, as far as they exist."""
        self._knows_topics = True

    def own(self, partitions: Iterable[TopicPartition]) -> None:
        """The application has handed over."""
        wanted, self.wanted = self.wanted, None
        before, self._owned = self._owned, tuple(partitions)
        self._owned_since = self.epoch
        self._not_before_ms = 0
        if wanted is not None and wanted.is_lost:
            if self._phase is _Phase.STALLED:
                self._phase = _Phase.TO_JOIN
        elif self._phase is _Phase.STABLE and self._is_cooperative and set(before) - set(self._owned):
            # What was given up can be given to others only when all have joined once more (KIP-429).
            self._join_again("partitions were given up")

    def subscribe(self, topics: Topics) -> None:
        """Want other topics from now on."""
        self._topics = topics
        self._knows_topics = False
        self._join_again("the subscription has changed")

    def stall(self) -> None:
        """Leave, and join again when the application has noticed."""
        if self._phase not in (_Phase.TO_LEAVE, _Phase.STALLED) and self.error is None:
            is_member = bool(self.member_id)
            self._phase = _Phase.TO_LEAVE if is_member else _Phase.STALLED
            self.wanted = Wanted((), is_lost=True)

    def farewell(self) -> Send | None:
        """Leave the group; a static member stays until its session is over."""
        return None if not self.member_id or self._instance_id is not None else self._leaving()

    # ---------------------------------------------------------------- replies

    def _took_join(self, response: JoinGroupResponse) -> None:
        code = code_of(response.error_code)
        if code is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = response.member_id
        elif code is ErrorCode.REBALANCE_IN_PROGRESS:
            pass
        elif code is not ErrorCode.NONE:
            self._refused(code)
        else:
            self.member_id = response.member_id
            self.epoch = response.generation_id
            self._joined = response
            self._counts = None
            self._phase = _Phase.TO_SYNC

    def _took_sync(self, response: SyncGroupResponse, now_ms: int) -> None:
        code = code_of(response.error_code)
        if self._phase is not _Phase.TO_SYNC:
            return
        if code is ErrorCode.REBALANCE_IN_PROGRESS:
            self._join_again("the group is rebalancing")
        elif code is not ErrorCode.NONE:
            self._refused(code)
        else:
            self._phase = _Phase.STABLE
            self._not_before_ms = now_ms + self._settings.heartbeat_interval_ms
            given = tuple(sorted(read_assignment(bytes(response.assignment))))
            self._owned_since = self.epoch
            self.wanted = Wanted(given) if given != tuple(sorted(self._owned)) else None

    def _took_heartbeat(self, response: HeartbeatResponse, now_ms: int) -> None:
        code = code_of(response.error_code)
        if self._phase is _Phase.STABLE or (self._owned and not self._is_cooperative):
            self._not_before_ms = now_ms + self._settings.heartbeat_interval_ms
        if self._phase in (_Phase.TO_LEAVE, _Phase.STALLED):
            return
        if code is ErrorCode.REBALANCE_IN_PROGRESS:
            if self._phase is _Phase.STABLE:
                self._join_again("the group is rebalancing")
        elif code is not ErrorCode.NONE:
            self._refused(code)

    def _has_left(self) -> None:
        self.member_id = ""
        self.epoch = _NOT_A_MEMBER
        self._phase = _Phase.STALLED if self.wanted is not None else _Phase.TO_JOIN

    def _refused(self, code: ErrorCode) -> None:
        if code not in LOST:
            self.error = ClientError(code, where=self._group_id)
            return
        if code is ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id = ""
        self.epoch = self._owned_since = _NOT_A_MEMBER
        self._join_again("the group did not know the member")
        self._not_before_ms = 0
        if self._owned or self.wanted is not None:
            self.wanted = Wanted((), is_lost=True)

    def _join_again(self, reason: str) -> None:
        if self._phase in (_Phase.STABLE, _Phase.TO_SYNC, _Phase.TO_JOIN):
            self._phase = _Phase.TO_JOIN
            self._reason = reason
            # An assignment that the application has not taken yet is outdated; a loss stays one.
            if self.wanted is not None and not self.wanted.is_lost:
                self.wanted = None
            self._not_before_ms = 0

    # ---------------------------------------------------------------- requests

    @property
    def _instance_id(self) -> str | None:
        return self._settings.group_instance_id or None

    def _join(self) -> JoinGroupRequest:
        subscription = Subscription(self._subscribed(), self._owned, self._owned_since)
        metadata = write_subscription(subscription, rack_id=self._settings.client_rack or None)
        return JoinGroupRequest(
            group_id=self._group_id,
            session_timeout_ms=self._settings.session_timeout_ms,
            rebalance_timeout_ms=self._settings.max_poll_interval_ms,
            member_id=self.member_id,
            group_instance_id=self._instance_id,
            protocol_type=_PROTOCOL_TYPE,
            protocols=[
                JoinGroupRequestProtocol(name=assignor.name, metadata=metadata)
                for assignor in self._assignors
            ],
            reason=self._reason,
        )

    def _heartbeat(self) -> Send:
        return Send(
            HeartbeatRequest(
                group_id=self._group_id,
                generation_id=self.epoch,
                member_id=self.member_id,
                group_instance_id=self._instance_id,
            ),
            HeartbeatResponse,
        )

    def _leaving(self) -> Send:
        identity = MemberIdentity(
            member_id=self.member_id,
            group_instance_id=self._instance_id,
            reason="the consumer does not poll"
            if self._phase is _Phase.TO_LEAVE
            else "the consumer is closed",
        )
        request = LeaveGroupRequest(group_id=self._group_id, members=[identity])
        return Send(request, LeaveGroupResponse)

    def _assignor(self, name: str | None) -> Assignor:
        assert name in ASSIGNORS, f"the coordinator chose {name}, which was not offered"
        return ASSIGNORS[name]

    # ---------------------------------------------------------------- topics

    def _subscribed(self) -> tuple[str, ...]:
        if self._topics.pattern is None:
            return self._topics.names
        return matching_topics(self._topics.pattern, self._metadata)

    def _counts_of(self, topics: Iterable[str]) -> dict[str, int]:
        known = self._metadata.topics
        return {topic: len(known[topic].partitions) for topic in topics if topic in known}

    def _has_outdated_counts(self) -> bool:
        """Whether the leader would assign otherwise now, or a pattern matches other topics."""
        if self._joined is None or self._joined.leader != self.member_id or self._counts is None:
            return False
        topics = {*self._counts, *self._subscribed()}
        return self._counts_of(sorted(topics)) != self._counts


def matching_topics(pattern: str, metadata: Metadata) -> tuple[str, ...]:
    """The topics that a pattern matches as a whole, without those that brokers keep for themselves."""
    expression = re.compile(pattern)
    return tuple(
        name
        for name, view in sorted(metadata.topics.items())
        if not view.is_internal and expression.fullmatch(name)
    )
