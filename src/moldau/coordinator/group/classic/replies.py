"""What members of classic groups are answered, in the words of each version."""

from __future__ import annotations

from typing import Final

from moldau.coordinator.group.classic.group import NO_ASSIGNMENT, ClassicGroup, Member
from moldau.coordinator.shard import ShardDecision, Ticket
from moldau.model.decision import Decision
from moldau.model.errors import ErrorCode
from moldau.wire.message import Response
from moldau.wire.messages.groups import (
    JoinGroupResponse,
    JoinGroupResponseMember,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
    SyncGroupResponse,
)

UNKNOWN_MEMBER: Final = ""
NO_LEADER: Final = ""
NO_GENERATION: Final = -1
# The versions that bring something along.
LEAVE_SEVERAL: Final = 3
_NULL_PROTOCOL: Final = 7


def not_joined(code: ErrorCode, member_id: str, ticket: Ticket) -> ShardDecision[Response | None]:
    """A join that is refused at once, before anything has changed."""
    return Decision(no_join(code, member_id, ticket))


def no_join(code: ErrorCode, member_id: str, ticket: Ticket | None) -> JoinGroupResponse:
    """The refusal of a join."""
    return JoinGroupResponse(
        error_code=code,
        generation_id=NO_GENERATION,
        protocol_name=None if ticket is not None and ticket.version >= _NULL_PROTOCOL else "",
        leader=NO_LEADER,
        member_id=member_id,
        members=[],
    )


def joined(
    group: ClassicGroup,
    member: Member,
    ticket: Ticket,
    *,
    is_leader: bool,
    leader_id: str | None = None,
    skip_assignment: bool = False,
) -> JoinGroupResponse:
    """The reply to a join: the generation, and for the leader who is in it."""
    members = []
    if is_leader:
        members = [
            JoinGroupResponseMember(
                member_id=each.member_id,
                group_instance_id=each.instance_id,
                metadata=each.metadata(group.protocol),
            )
            for each in group.members.values()
        ]
    return JoinGroupResponse(
        error_code=ErrorCode.NONE,
        generation_id=group.generation,
        protocol_type=group.type,
        protocol_name=group.protocol,
        leader=leader_id or group.leader_id or NO_LEADER,
        skip_assignment=skip_assignment,
        member_id=member.member_id,
        members=members,
    )


def synced(group: ClassicGroup, assignment: bytes) -> SyncGroupResponse:
    """A member's assignment."""
    return SyncGroupResponse(
        error_code=ErrorCode.NONE,
        protocol_type=group.type,
        protocol_name=group.protocol,
        assignment=assignment,
    )


def no_sync(code: ErrorCode) -> SyncGroupResponse:
    """The refusal of a sync."""
    return SyncGroupResponse(error_code=code, assignment=NO_ASSIGNMENT)


def left(leaving: list[MemberIdentity], codes: list[ErrorCode], ticket: Ticket) -> LeaveGroupResponse:
    """What came of leaving, one outcome for each."""
    if ticket.version < LEAVE_SEVERAL:
        return LeaveGroupResponse(error_code=codes[0])
    return LeaveGroupResponse(
        error_code=ErrorCode.NONE,
        members=[
            MemberResponse(
                member_id=each.member_id, group_instance_id=each.group_instance_id, error_code=code
            )
            for each, code in zip(leaving, codes, strict=True)
        ],
    )
