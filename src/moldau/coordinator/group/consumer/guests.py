"""Classic members of a consumer group: they join, sync and send heartbeats as ever, and the group assigns.

To such a member its epoch is a generation. It is told to join again whenever there is something for it to
give up or to get; joining says what it still has, and takes it one step further, at once and without waiting
for others; and syncing tells it what it has then.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from moldau.coordinator.group.classic.protocol import ClassicProtocol
from moldau.coordinator.group.consumer.change import GroupChange
from moldau.coordinator.group.consumer.embedded import (
    partitions_by_id,
    read_subscription,
    read_version,
    write_assignment,
)
from moldau.coordinator.group.consumer.group import CONSUMER_PROTOCOL, ConsumerGroup, unknown_member
from moldau.coordinator.group.consumer.member import (
    ClassicMembership,
    Interest,
    Member,
    MemberState,
    Subscription,
    without_epochs,
)
from moldau.coordinator.group.consumer.member import ClassicProtocol as Protocol
from moldau.coordinator.group.consumer.protocol import ConsumerProtocol, check_instance
from moldau.coordinator.group.consumer.sessions import JoinOver, SyncOver
from moldau.coordinator.group.history import What
from moldau.coordinator.group.migration import Migration
from moldau.coordinator.shard import Circumstances, Draft, ShardDecision, Ticket
from moldau.model.decision import Decision
from moldau.model.errors import ErrorCode, KafkaError, MalformedMessage
from moldau.model.ids import TopicName, uuid_to_text
from moldau.model.settings.table import GROUP_CONSUMER_MAX_SIZE
from moldau.wire.message import Response
from moldau.wire.messages.consumer_protocol import ConsumerProtocolSubscription
from moldau.wire.messages.groups import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)

# The versions that bring something along.
_REBALANCE_TIMEOUT: Final = 1
_LEAVE_SEVERAL: Final = 3
_MEMBER_ID_REQUIRED: Final = 4
_NULL_PROTOCOL: Final = 7
_NO_GENERATION: Final = -1

Decided = ShardDecision[Response | None]


class ConsumerGuests:
    """Speaks the classic protocol for consumer groups."""

    may_become_classic: Final = True

    def __init__(self, consumer: ConsumerProtocol, classic: ClassicProtocol, migration: Migration) -> None:
        self._roster = consumer.roster
        self._classic = classic
        self._migration = migration

    # ---------------------------------------------------------------------------------------------- joining

    def join(self, request: JoinGroupRequest, ticket: Ticket, circumstances: Circumstances) -> Decided:
        """Say what one wants and still has, and learn one's epoch."""
        group = self._roster.group(request.group_id)
        try:
            return self._join(group, request, ticket, circumstances)
        except KafkaError as refused:
            return Decision(_not_joined(refused.code, request.member_id, ticket))

    def _join(
        self, group: ConsumerGroup, request: JoinGroupRequest, ticket: Ticket, circumstances: Circumstances
    ) -> Decided:
        member_id = request.member_id or uuid_to_text(circumstances.draws.uuid())
        static = group.static_member(request.group_instance_id)
        size_max = circumstances.settings[GROUP_CONSUMER_MAX_SIZE]
        if len(group.members) >= size_max and member_id not in group.members and static is None:
            raise KafkaError(ErrorCode.GROUP_MAX_SIZE_REACHED)
        names = [protocol.name for protocol in request.protocols]
        if request.protocol_type != CONSUMER_PROTOCOL or not group.supports_classic(names):
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if self._roster.sessions.is_late(group.group_id, member_id, ticket.connection):
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        is_new = not request.member_id
        if is_new and request.group_instance_id is None and ticket.version >= _MEMBER_ID_REQUIRED:
            return Decision(_not_joined(ErrorCode.MEMBER_ID_REQUIRED, member_id, ticket))
        said = _read(request)

        draft = Draft()
        if is_new and static is not None:
            as_classic = _subscription(request, said, static.subscription, ticket)
            returning = replace(static, subscription=as_classic)
            if self._migration.downgrade_with(group, returning, draft, circumstances):
                # It is a classic group now, in which the member joins as any other.
                joined = self._classic.join(request, ticket, circumstances)
                draft.records += joined.records
                draft.effects += joined.effects
                return draft.decision(joined.reply)

        change = GroupChange(group, circumstances.image)
        before = _admit(change, request, member_id, has_partitions=bool(said.owned_partitions))
        subscription = _subscription(request, said, before.subscription, ticket)
        wants_other_topics = change.put_subscription(member_id, subscription)
        owned = partitions_by_id(said.owned_partitions, circumstances.image)
        member = self._roster.advance(
            change, member_id, owned, circumstances, wants_other_topics=wants_other_topics
        )
        self._roster.settle(change, draft, circumstances)
        sessions = self._roster.sessions
        sessions.heard_over(group.group_id, member_id, ticket.connection)
        sessions.expect_no_more(JoinOver, group.group_id, member_id)
        self._roster.heard_of(group.group_id, member, circumstances)
        deadline_ms = circumstances.now_ms + subscription.rebalance_timeout_ms
        sessions.expect(SyncOver, group.group_id, member_id, deadline_ms)
        return draft.decision(
            JoinGroupResponse(
                error_code=ErrorCode.NONE,
                generation_id=member.current.epoch,
                protocol_type=CONSUMER_PROTOCOL,
                protocol_name=names[0],
                # Nobody leads: the group assigns.
                leader="",
                member_id=member_id,
                members=[],
            )
        )

    # ---------------------------------------------------------------------------------------------- syncing

    def sync(self, request: SyncGroupRequest, ticket: Ticket, circumstances: Circumstances) -> Decided:
        """Learn what one has."""
        group = self._roster.group(request.group_id)
        member, classic = self._member(group, request.member_id, request.group_instance_id)
        _check_generation(member, request.generation_id)
        best = classic.protocols[0]
        if not (
            request.protocol_type in (None, CONSUMER_PROTOCOL) and request.protocol_name in (None, best.name)
        ):
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        is_giving_up = member.current.state is MemberState.UNREVOKED_PARTITIONS
        if group.target_epoch > member.current.epoch and not is_giving_up:
            self._expect_join(group, member, circumstances)
            return Decision(SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS, assignment=b""))
        self._roster.sessions.expect_no_more(SyncOver, group.group_id, member.member_id)
        self._roster.heard_of(group.group_id, member, circumstances)
        partitions = without_epochs(member.current.assigned)
        return Decision(
            SyncGroupResponse(
                error_code=ErrorCode.NONE,
                protocol_type=request.protocol_type,
                protocol_name=request.protocol_name,
                assignment=write_assignment(partitions, read_version(best.metadata), circumstances.image),
            )
        )

    # ---------------------------------------------------------------------------------- staying and leaving

    def heartbeat(self, request: HeartbeatRequest, ticket: Ticket, circumstances: Circumstances) -> Decided:
        """Stay; REBALANCE_IN_PROGRESS if there is something to give up or to get."""
        group = self._roster.group(request.group_id)
        member, _ = self._member(group, request.member_id, request.group_instance_id)
        _check_generation(member, request.generation_id)
        self._roster.heard_of(group.group_id, member, circumstances)
        code = ErrorCode.NONE
        if _has_to_join(group, member):
            self._expect_join(group, member, circumstances)
            code = ErrorCode.REBALANCE_IN_PROGRESS
        return Decision(HeartbeatResponse(error_code=code))

    def leave(self, request: LeaveGroupRequest, ticket: Ticket, circumstances: Circumstances) -> Decided:
        """Leave, or be made to leave by an admin who names the instance."""
        group = self._roster.group(request.group_id)
        asked = request.members
        if ticket.version < _LEAVE_SEVERAL:
            asked = [MemberIdentity(member_id=request.member_id)]
        leaving: dict[str, What] = {}
        codes = []
        for each in asked:
            try:
                leaving[_leaving(group, each).member_id] = What.LEFT
                codes.append(ErrorCode.NONE)
            except KafkaError as refused:
                codes.append(refused.code)
        draft = Draft()
        self._roster.remove(group, leaving, draft, circumstances)
        if ticket.version < _LEAVE_SEVERAL:
            return draft.decision(LeaveGroupResponse(error_code=codes[0]))
        return draft.decision(
            LeaveGroupResponse(
                error_code=ErrorCode.NONE,
                members=[
                    MemberResponse(
                        member_id=each.member_id, group_instance_id=each.group_instance_id, error_code=code
                    )
                    for each, code in zip(asked, codes, strict=True)
                ],
            )
        )

    # ------------------------------------------------------------------------------------------------ within

    def _member(
        self, group: ConsumerGroup, member_id: str, instance_id: str | None
    ) -> tuple[Member, ClassicMembership]:
        if instance_id is not None:
            check_instance(group, group.static_member(instance_id), member_id, instance_id)
        member = group.members.get(member_id)
        if member is None or member.subscription.classic is None:
            raise unknown_member(group.group_id, member_id)
        return member, member.subscription.classic

    def _expect_join(self, group: ConsumerGroup, member: Member, circumstances: Circumstances) -> None:
        sessions, group_id, member_id = self._roster.sessions, group.group_id, member.member_id
        if not sessions.is_expected(JoinOver, group_id, member_id):
            deadline_ms = circumstances.now_ms + member.subscription.rebalance_timeout_ms
            sessions.expect(JoinOver, group_id, member_id, deadline_ms)


def _admit(change: GroupChange, request: JoinGroupRequest, member_id: str, *, has_partitions: bool) -> Member:
    """Who joins, as known so far; KafkaError unless it may."""
    group, instance_id = change.group, request.group_instance_id
    static = group.static_member(instance_id)
    if instance_id is not None and request.member_id:
        return check_instance(group, static, member_id, instance_id)
    if static is not None:
        # Back after a restart, it takes the place of what is left of itself.
        change.succeed(static, member_id)
        return change.member(member_id)
    known = group.members.get(member_id)
    if known is None and has_partitions:
        # It was cast out, and reads what others may have got since.
        raise unknown_member(group.group_id, member_id)
    return known or Member(member_id)


def _has_to_join(group: ConsumerGroup, member: Member) -> bool:
    current = member.current
    # If the target is still to be made, somebody has to come for it to be made.
    if current.epoch < group.epoch or current.state is MemberState.UNREVOKED_PARTITIONS:
        return True
    if current.state is not MemberState.UNRELEASED_PARTITIONS:
        return False
    # It waits for what others have, and may come when all of it is free.
    return all(
        number in current.assigned.get(topic_id, ()) or group.holder(topic_id, number) is None
        for topic_id, numbers in group.target.get(member.member_id, {}).items()
        for number in numbers
    )


def _check_generation(member: Member, generation_id: int) -> None:
    if generation_id != member.current.epoch:
        raise KafkaError(ErrorCode.ILLEGAL_GENERATION)


def _leaving(group: ConsumerGroup, identity: MemberIdentity) -> Member:
    instance_id = identity.group_instance_id
    if instance_id is not None:
        static = group.static_member(instance_id)
        # An admin knows only the instance.
        return check_instance(group, static, identity.member_id or _id_of(static), instance_id)
    member = group.members.get(identity.member_id)
    if member is None:
        raise unknown_member(group.group_id, identity.member_id)
    return member


def _id_of(member: Member | None) -> str:
    return "" if member is None else member.member_id


def _not_joined(code: ErrorCode, member_id: str, ticket: Ticket) -> JoinGroupResponse:
    return JoinGroupResponse(
        error_code=code,
        generation_id=_NO_GENERATION,
        protocol_name=None if ticket.version >= _NULL_PROTOCOL else "",
        leader="",
        member_id=member_id,
        members=[],
    )


def _read(request: JoinGroupRequest) -> ConsumerProtocolSubscription:
    try:
        # All of them say the same of the consumer; the first is the one it likes best.
        return read_subscription(request.protocols[0].metadata)
    except MalformedMessage as malformed:
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, str(malformed)) from malformed


def _subscription(
    request: JoinGroupRequest, said: ConsumerProtocolSubscription, before: Subscription, ticket: Ticket
) -> Subscription:
    has_timeout = ticket.version >= _REBALANCE_TIMEOUT
    return Subscription(
        interest=Interest(tuple(sorted({*map(TopicName, said.topics)}))),
        instance_id=before.instance_id if request.group_instance_id is None else request.group_instance_id,
        rack_id=said.rack_id or before.rack_id,
        client_id=ticket.client_id,
        client_host=ticket.client_host,
        rebalance_timeout_ms=request.rebalance_timeout_ms if has_timeout else request.session_timeout_ms,
        assignor=before.assignor,
        classic=ClassicMembership(
            request.session_timeout_ms,
            tuple(Protocol(each.name, each.metadata) for each in request.protocols),
        ),
    )
