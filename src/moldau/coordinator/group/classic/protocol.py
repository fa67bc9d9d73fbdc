"""The classic protocol: join, sync, heartbeat, leave, and what happens if one of them does not come.

A rebalance is a barrier. Members join, and their requests stay parked until all have; then each learns the
new generation, and the leader learns who is in it. They sync, and stay parked until it brings the assignment.
Whatever assignors do, eager or cooperative, is between the members: their bytes are passed on untouched.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from moldau.coordinator.group.classic.group import (
    NO_ASSIGNMENT,
    ClassicGroup,
    CompletingRebalance,
    Empty,
    Gathering,
    Member,
    PreparingRebalance,
    Stable,
    State,
)
from moldau.coordinator.group.classic.guests import Guests
from moldau.coordinator.group.classic.replies import (
    LEAVE_SEVERAL,
    UNKNOWN_MEMBER,
    joined,
    left,
    no_join,
    no_sync,
    not_joined,
    synced,
)
from moldau.coordinator.group.group import Group, GroupKind
from moldau.coordinator.group.history import Cause, What, person
from moldau.coordinator.group.part import Alarm, Applier, Decider
from moldau.coordinator.group.records import size_of
from moldau.coordinator.group.state import GroupState
from moldau.coordinator.shard import Circumstances, Draft, ShardDecision, Ticket
from moldau.coordinator.timers import Timer
from moldau.metadata.image import Delta
from moldau.model.decision import Decision
from moldau.model.errors import ErrorCode, KafkaError
from moldau.model.ids import Uuid
from moldau.model.settings.table import (
    GROUP_INITIAL_REBALANCE_DELAY_MS,
    GROUP_MAX_SESSION_TIMEOUT_MS,
    GROUP_MAX_SIZE,
    GROUP_MIN_SESSION_TIMEOUT_MS,
    MINUTE_MS,
)
from moldau.wire.message import CoordinatorKey, Request, Response
from moldau.wire.messages.group_records import GroupMetadataKey, GroupMetadataValue
from moldau.wire.messages.groups import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
)

# The versions that bring something along.
_REBALANCE_TIMEOUT: Final = 1
_MEMBER_ID_REQUIRED: Final = 4
_SKIP_ASSIGNMENT: Final = 9
# A new member has no id yet to send heartbeats with, and its connection is not read while its join is parked.
# So it is let go after this long; one that is still there tries again.
_NEW_MEMBER_JOIN_TIMEOUT_MS: Final = 5 * MINUTE_MS
# Thousands may come at once, and the first ones tell enough.
_CAUSES_MAX: Final = 100

Decided = ShardDecision[Response | None]


@dataclass(frozen=True, slots=True)
class SessionOver:
    """A member has not been heard of for too long."""

    group: ClassicGroup
    member: Member


@dataclass(frozen=True, slots=True)
class PendingOver:
    """Somebody has not come back with the member id that it was given."""

    group: ClassicGroup
    member_id: str


@dataclass(frozen=True, slots=True)
class JoiningOver:
    """The time to join is over."""

    group: ClassicGroup


@dataclass(frozen=True, slots=True)
class SyncingOver:
    """The time to ask for the assignment is over."""

    group: ClassicGroup


class ClassicProtocol:
    """The part of a group shard that runs classic groups."""

    def __init__(self, state: GroupState, guests: Mapping[GroupKind, Guests] | None = None) -> None:
        self._state = state
        self._groups = state.groups
        self._timers = state.timers
        # Who answers classic members of groups of other kinds.
        self._guests = {} if guests is None else guests

    @property
    def deciders(self) -> Mapping[type[Request], Decider]:
        """The four requests of the protocol."""
        return {
            JoinGroupRequest: self.join,
            SyncGroupRequest: self.sync,
            HeartbeatRequest: self.heartbeat,
            LeaveGroupRequest: self.leave,
        }

    @property
    def appliers(self) -> Mapping[type[CoordinatorKey], Applier]:
        """The one record of a classic group."""
        return {GroupMetadataKey: self.apply}

    @property
    def alarms(self) -> Mapping[type[object], Alarm]:
        """What members may be late with."""
        return {
            SessionOver: self.session_over,
            PendingOver: self.pending_over,
            JoiningOver: self.joining_over,
            SyncingOver: self.syncing_over,
        }

    # ------------------------------------------------------------ what the log says

    def apply(self, key: GroupMetadataKey, value: GroupMetadataValue | None) -> None:
        """A generation, or the end of the group."""
        group = self._groups.get(key.group)
        if value is None:
            # A group of another kind may have taken its place already.
            if isinstance(group, ClassicGroup):
                for pending in group.pending.values():
                    pending.cancel()
                self._state.forget(group, is_moved=group.is_dismissed)
            return
        if not isinstance(group, ClassicGroup):
            group = self._groups[key.group] = ClassicGroup(key.group)
        group.apply(value)

    def loaded(self, draft: Draft, circumstances: Circumstances) -> None:
        """Expect to hear of every member within its session timeout."""
        size_max = circumstances.settings[GROUP_MAX_SIZE]
        for group in self._groups.values():
            if not isinstance(group, ClassicGroup):
                continue
            for member in group.begin_sessions():
                self._expect(group, member, circumstances)
            if len(group.members) > size_max:
                # The limit has been lowered: let them commit and join again, as many as there is room for.
                self._prepare_rebalance(group, draft, circumstances)

    def metadata_changed(self, delta: Delta, draft: Draft, circumstances: Circumstances) -> None:
        """Classic members watch the metadata themselves."""

    # ------------------------------------------------------------ joining

    def join(self, request: JoinGroupRequest, ticket: Ticket, circumstances: Circumstances) -> Decided:
        """Join the group, for the first time or again; the reply waits for the others."""
        settings, timeout_ms = circumstances.settings, request.session_timeout_ms
        member_id = request.member_id
        if not request.group_id:
            return not_joined(ErrorCode.INVALID_GROUP_ID, member_id, ticket)
        if not (
            settings[GROUP_MIN_SESSION_TIMEOUT_MS] <= timeout_ms <= settings[GROUP_MAX_SESSION_TIMEOUT_MS]
        ):
            return not_joined(ErrorCode.INVALID_SESSION_TIMEOUT, member_id, ticket)
        draft = Draft()
        found = self._groups.get(request.group_id)
        if isinstance(found, ClassicGroup):
            return draft.decision(self._join(found, request, ticket, draft, circumstances))
        if found is not None:
            guests = self._guests.get(found.kind)
            if guests is None or (found.is_empty and not guests.may_become_classic):
                return not_joined(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, UNKNOWN_MEMBER, ticket)
            if not found.is_empty:
                return guests.join(request, ticket, circumstances)
            draft.records += found.tombstones()
        if member_id:
            return not_joined(ErrorCode.UNKNOWN_MEMBER_ID, member_id, ticket)
        group = ClassicGroup(request.group_id)
        reply = self._join(group, request, ticket, draft, circumstances)
        if group.is_unheard_of:
            # Nobody was let in, so that nothing has changed.
            return Decision(reply)
        # The tombstones of an empty group of another kind do not touch it any more.
        self._groups[group.group_id] = group
        return draft.decision(reply)

    def _join(
        self,
        group: ClassicGroup,
        request: JoinGroupRequest,
        ticket: Ticket,
        draft: Draft,
        circumstances: Circumstances,
    ) -> Response | None:
        member_id = request.member_id
        if not _has_room(group, member_id, circumstances.settings[GROUP_MAX_SIZE]):
            self._turn_away(group, member_id, draft, circumstances)
            return no_join(ErrorCode.GROUP_MAX_SIZE_REACHED, UNKNOWN_MEMBER, ticket)
        if not group.supports(request.protocol_type, request.protocols):
            return no_join(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member_id, ticket)
        if not member_id:
            return self._join_new(group, request, ticket, draft, circumstances)
        if member_id in group.pending:
            if request.group_instance_id is not None:
                # Static members are not asked to come again, so it was somebody else who got this id.
                return no_join(ErrorCode.UNKNOWN_MEMBER_ID, member_id, ticket)
            self._add(group, member_id, request, ticket, draft, circumstances)
            return None
        try:
            member = group.member(member_id, request.group_instance_id)
        except KafkaError as error:
            return no_join(error.code, member_id, ticket)
        return self._join_again(group, member, request, ticket, draft, circumstances)

    def _join_new(
        self,
        group: ClassicGroup,
        request: JoinGroupRequest,
        ticket: Ticket,
        draft: Draft,
        circumstances: Circumstances,
    ) -> Response | None:
        instance_id = request.group_instance_id
        name = ticket.client_id if instance_id is None else instance_id
        new_id = f"{name}-{_uuid_text(circumstances.draws.uuid())}"
        if instance_id is not None:
            known_id = group.static_members.get(instance_id)
            if known_id is not None:
                return self._replace(
                    group, group.members[known_id], new_id, request, ticket, draft, circumstances
                )
        elif ticket.version >= _MEMBER_ID_REQUIRED:
            # Else a client whose connection breaks leaves a member behind with each attempt (KIP-394).
            timer = group.pending[new_id] = Timer[object](PendingOver(group, new_id))
            self._timers.set(timer, circumstances.now_ms + request.session_timeout_ms)
            return no_join(ErrorCode.MEMBER_ID_REQUIRED, new_id, ticket)
        self._add(group, new_id, request, ticket, draft, circumstances)
        return None

    def _add(
        self,
        group: ClassicGroup,
        member_id: str,
        request: JoinGroupRequest,
        ticket: Ticket,
        draft: Draft,
        circumstances: Circumstances,
    ) -> None:
        if isinstance(group.state, Empty):
            group.type = request.protocol_type
        elif isinstance(group.state, Gathering):
            group.state.has_grown = True
        member = Member(
            member_id,
            instance_id=request.group_instance_id,
            client_id=ticket.client_id,
            client_host=ticket.client_host,
            session_timeout_ms=request.session_timeout_ms,
            rebalance_timeout_ms=_rebalance_timeout_ms(request, ticket),
            protocols=request.protocols,
            is_new=True,
        )
        group.add(member)
        _note(group, What.JOINED, member)
        self._park_join(group, member, ticket, draft)
        self._expect(group, member, circumstances, timeout_ms=_NEW_MEMBER_JOIN_TIMEOUT_MS)
        self._rebalance(group, draft, circumstances)

    def _join_again(
        self,
        group: ClassicGroup,
        member: Member,
        request: JoinGroupRequest,
        ticket: Ticket,
        draft: Draft,
        circumstances: Circumstances,
    ) -> Response | None:
        is_unchanged = list(member.protocols) == list(request.protocols)
        is_leader = member.member_id == group.leader_id
        match group.state:
            case CompletingRebalance() if is_unchanged:
                # It may not have got the first reply.
                return joined(group, member, ticket, is_leader=is_leader)
            case Stable() if is_unchanged and not is_leader:
                return joined(group, member, ticket, is_leader=False)
        # A leader that joins again has seen something change that concerns the assignment.
        if not isinstance(group.state, PreparingRebalance):
            _note(group, What.LEADER_JOINED if is_unchanged else What.JOINED_ANEW, member)
        group.update(
            member,
            request.protocols,
            session_timeout_ms=request.session_timeout_ms,
            rebalance_timeout_ms=_rebalance_timeout_ms(request, ticket),
        )
        self._park_join(group, member, ticket, draft)
        self._rebalance(group, draft, circumstances)
        return None

    def _replace(
        self,
        group: ClassicGroup,
        member: Member,
        new_id: str,
        request: JoinGroupRequest,
        ticket: Ticket,
        draft: Draft,
        circumstances: Circumstances,
    ) -> Response | None:
        """A static member is back after a restart, and takes the place of what is left of itself."""
        old_id, old_leader_id = member.member_id, group.leader_id
        assignments = {each_id: group.assignment(each_id) for each_id in group.members}
        self._answer_join(group, member, no_join(ErrorCode.FENCED_INSTANCE_ID, old_id, member.join), draft)
        self._answer_sync(member, no_sync(ErrorCode.FENCED_INSTANCE_ID), draft)
        group.replace(member, new_id)
        group.update(
            member,
            request.protocols,
            session_timeout_ms=request.session_timeout_ms,
            rebalance_timeout_ms=_rebalance_timeout_ms(request, ticket),
        )
        self._expect(group, member, circumstances)
        if isinstance(group.state, Stable) and group.vote() == group.protocol:
            # Nothing changes for anybody: the new id is noted, and the assignment stays what it was.
            assignments[new_id] = assignments.pop(old_id)
            draft.records.append(group.to_record(assignments))
            is_leader = group.leader_id == new_id
            if ticket.version >= _SKIP_ASSIGNMENT:
                return joined(group, member, ticket, is_leader=is_leader, skip_assignment=is_leader)
            # A leader that cannot be told to keep the assignment must not know that it is the leader.
            return joined(group, member, ticket, is_leader=False, leader_id=old_leader_id)
        _note(group, What.RETURNED, member)
        self._park_join(group, member, ticket, draft)
        self._rebalance(group, draft, circumstances)
        return None

    def _turn_away(
        self, group: ClassicGroup, member_id: str, draft: Draft, circumstances: Circumstances
    ) -> None:
        """There is no room: whoever is on the way in, or is to join again, is forgotten."""
        pending = group.pending.pop(member_id, None)
        if pending is not None:
            pending.cancel()
        member = group.members.get(member_id)
        if member is not None:
            self._remove(group, member, draft)
        if pending is not None or member is not None:
            self._complete_if_all_joined(group, draft, circumstances)

    # ------------------------------------------------------------ the barrier

    def _rebalance(self, group: ClassicGroup, draft: Draft, circumstances: Circumstances) -> None:
        """Somebody has come, gone or changed its mind."""
        if isinstance(group.state, Gathering):
            return
        if isinstance(group.state, PreparingRebalance):
            self._complete_if_all_joined(group, draft, circumstances)
        else:
            self._prepare_rebalance(group, draft, circumstances)

    def _prepare_rebalance(self, group: ClassicGroup, draft: Draft, circumstances: Circumstances) -> None:
        """Have all members join again."""
        if isinstance(group.state, CompletingRebalance):
            for member in group.members.values():
                if member.sync is not None:
                    self._answer_sync(member, no_sync(ErrorCode.REBALANCE_IN_PROGRESS), draft)
                    self._expect(group, member, circumstances)
        if group.syncing is not None:
            group.syncing.cancel()
        if group.rebalance is None:
            group.rebalance = Timer(JoiningOver(group))
        if isinstance(group.state, Empty):
            delay_ms = circumstances.settings[GROUP_INITIAL_REBALANCE_DELAY_MS]
            extension_ms = max(group.rebalance_timeout_ms() - delay_ms, 0)
            _enter(group, Gathering(delay_ms, extension_ms), circumstances)
            self._timers.set(group.rebalance, circumstances.now_ms + delay_ms)
            return
        _enter(group, PreparingRebalance(), circumstances)
        self._timers.set(group.rebalance, circumstances.now_ms + group.rebalance_timeout_ms())
        self._complete_if_all_joined(group, draft, circumstances)

    def _complete_if_all_joined(
        self, group: ClassicGroup, draft: Draft, circumstances: Circumstances
    ) -> None:
        if isinstance(group.state, PreparingRebalance) and group.have_all_joined:
            self._complete_joining(group, draft, circumstances)

    def _complete_joining(self, group: ClassicGroup, draft: Draft, circumstances: Circumstances) -> None:
        """Begin the next generation with all who have joined, and static members who have not."""
        assert group.rebalance is not None
        group.rebalance.cancel()
        for member in list(group.members.values()):
            if member.join is None and member.instance_id is None:
                _note(group, What.JOIN_OVER, member)
                self._remove(group, member, draft)
        if not group.elect_joined_leader() and group.members:
            # Only static members are left, and none of them is here: wait until they come, or expire.
            self._timers.set(group.rebalance, circumstances.now_ms + group.rebalance_timeout_ms())
            return
        group.generation += 1
        causes, group.causes = group.causes, []
        self._state.histories.add(
            group.group_id, wall_ms=circumstances.wall_ms, epoch=group.generation, causes=causes
        )
        if not group.members:
            group.protocol = None
            _enter(group, Empty(), circumstances)
            draft.records.append(group.to_record({}))
            return
        group.protocol = group.vote()
        _enter(group, CompletingRebalance(dict.fromkeys(group.members)), circumstances)
        for member in group.members.values():
            if member.join is not None:
                is_leader = member.member_id == group.leader_id
                reply = joined(group, member, member.join, is_leader=is_leader)
                self._answer_join(group, member, reply, draft)
            member.is_new = False
            self._expect(group, member, circumstances)
        if group.syncing is None:
            group.syncing = Timer(SyncingOver(group))
        self._timers.set(group.syncing, circumstances.now_ms + group.rebalance_timeout_ms())

    # ------------------------------------------------------------ the assignment

    def sync(self, request: SyncGroupRequest, ticket: Ticket, circumstances: Circumstances) -> Decided:
        """Ask for the assignment, which the leader brings along."""
        found = self._existing(request.group_id)
        if found.is_empty:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        if not isinstance(found, ClassicGroup):
            return self._guests[found.kind].sync(request, ticket, circumstances)
        group = found
        member = group.member(request.member_id, request.group_instance_id)
        _check_generation(group, request.generation_id)
        if not (
            request.protocol_type in (None, group.type) and request.protocol_name in (None, group.protocol)
        ):
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        match group.state:
            case CompletingRebalance():
                return self._sync(group, member, request, ticket, circumstances)
            case Stable():
                self._has_synced(group, group.state, member)
                return Decision(synced(group, group.assignment(member.member_id)))
        raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)

    def _sync(
        self,
        group: ClassicGroup,
        member: Member,
        request: SyncGroupRequest,
        ticket: Ticket,
        circumstances: Circumstances,
    ) -> Decided:
        draft = Draft()
        state = group.state
        assert isinstance(state, CompletingRebalance)
        if member.sync is not None:
            self._answer_sync(member, no_sync(ErrorCode.REBALANCE_IN_PROGRESS), draft)
        member.sync = ticket
        self._has_synced(group, state, member)
        if member.member_id != group.leader_id:
            return draft.decision(None)
        assignments = {each.member_id: each.assignment for each in request.assignments}
        record = group.to_record(assignments)
        if size_of(record) > circumstances.batch_bytes_max:
            for each in group.members.values():
                self._answer_sync(each, no_sync(ErrorCode.UNKNOWN_SERVER_ERROR), draft)
            self._prepare_rebalance(group, draft, circumstances)
            return draft.decision(None)
        draft.records.append(record)
        for each in group.members.values():
            if each.sync is not None:
                # Those that were waited upon could not expire, and now they can.
                self._expect(group, each, circumstances)
                self._answer_sync(each, synced(group, assignments.get(each.member_id, NO_ASSIGNMENT)), draft)
        _enter(group, Stable(state.unsynced), circumstances)
        return draft.decision(None)

    def _has_synced(self, group: ClassicGroup, state: CompletingRebalance | Stable, member: Member) -> None:
        state.unsynced.pop(member.member_id, None)
        if not state.unsynced and group.syncing is not None:
            group.syncing.cancel()

    # ------------------------------------------------------------ staying and leaving

    def heartbeat(self, request: HeartbeatRequest, ticket: Ticket, circumstances: Circumstances) -> Decided:
        """A member is alive; it learns whether it has to join again."""
        found = self._existing(request.group_id)
        if not isinstance(found, ClassicGroup):
            return self._guests[found.kind].heartbeat(request, ticket, circumstances)
        member = found.member(request.member_id, request.group_instance_id)
        _check_generation(found, request.generation_id)
        self._expect(found, member, circumstances)
        is_joining = isinstance(found.state, PreparingRebalance)
        return Decision(
            HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS if is_joining else ErrorCode.NONE)
        )

    def leave(self, request: LeaveGroupRequest, ticket: Ticket, circumstances: Circumstances) -> Decided:
        """Let members go that ask for it, or that an admin names by their instance ids."""
        leaving = request.members
        if ticket.version < LEAVE_SEVERAL:
            leaving = [MemberIdentity(member_id=request.member_id)]
        try:
            found = self._existing(request.group_id)
        except KafkaError as error:
            if error.code is not ErrorCode.UNKNOWN_MEMBER_ID:
                raise
            return Decision(left(leaving, [error.code] * len(leaving), ticket))
        if not isinstance(found, ClassicGroup):
            return self._guests[found.kind].leave(request, ticket, circumstances)
        draft = Draft()
        codes = [self._leave(found, each, draft) for each in leaving]
        if ErrorCode.NONE in codes and not isinstance(found.state, Empty):
            self._rebalance(found, draft, circumstances)
        self._forget_if_unused(found)
        return draft.decision(left(leaving, codes, ticket))

    def _leave(self, group: ClassicGroup, leaving: MemberIdentity, draft: Draft) -> ErrorCode:
        member_id, instance_id = leaving.member_id, leaving.group_instance_id
        pending = group.pending.pop(member_id, None)
        if pending is not None:
            pending.cancel()
            return ErrorCode.NONE
        if not member_id and instance_id is not None:
            member_id = group.static_members.get(instance_id, UNKNOWN_MEMBER)
        try:
            member = group.member(member_id, instance_id)
        except KafkaError as error:
            return error.code
        _note(group, What.LEFT, member)
        self._remove(group, member, draft)
        return ErrorCode.NONE

    def _remove(self, group: ClassicGroup, member: Member, draft: Draft) -> None:
        # A client that is still there joins again.
        join = no_join(ErrorCode.UNKNOWN_MEMBER_ID, UNKNOWN_MEMBER, member.join)
        self._answer_join(group, member, join, draft)
        self._answer_sync(member, no_sync(ErrorCode.UNKNOWN_MEMBER_ID), draft)
        group.remove(member)

    # ------------------------------------------------------------ when somebody is late

    def session_over(self, over: SessionOver, draft: Draft, circumstances: Circumstances) -> None:
        """Let a member go that was not heard of."""
        group, member = over.group, over.member
        if not self._is_current(group) or group.members.get(member.member_id) is not member:
            return
        if member.is_waited_upon:
            # Its time begins anew when it is answered.
            return
        _note(group, What.SESSION_OVER, member)
        self._remove(group, member, draft)
        if isinstance(group.state, PreparingRebalance):
            self._complete_if_all_joined(group, draft, circumstances)
        else:
            self._rebalance(group, draft, circumstances)

    def pending_over(self, over: PendingOver, draft: Draft, circumstances: Circumstances) -> None:
        """Wait no longer for somebody who has not come back with its id."""
        group = over.group
        if self._is_current(group) and group.pending.pop(over.member_id, None) is not None:
            self._complete_if_all_joined(group, draft, circumstances)
            self._forget_if_unused(group)

    def joining_over(self, over: JoiningOver, draft: Draft, circumstances: Circumstances) -> None:
        """Begin without those who have not joined; a group that still grows waits a little longer."""
        group, state = over.group, over.group.state
        if not self._is_current(group) or not isinstance(state, PreparingRebalance):
            return
        if isinstance(state, Gathering) and state.has_grown and state.extension_ms:
            delay_ms = min(circumstances.settings[GROUP_INITIAL_REBALANCE_DELAY_MS], state.extension_ms)
            group.state = Gathering(delay_ms, max(state.extension_ms - state.delay_ms, 0))
            assert group.rebalance is not None
            self._timers.set(group.rebalance, circumstances.now_ms + delay_ms)
        else:
            self._complete_joining(group, draft, circumstances)

    def syncing_over(self, over: SyncingOver, draft: Draft, circumstances: Circumstances) -> None:
        """Let those go who know the generation and never asked for their assignment."""
        group, state = over.group, over.group.state
        if not self._is_current(group) or not isinstance(state, CompletingRebalance | Stable):
            return
        late = [group.members[member_id] for member_id in state.unsynced]
        for member in late:
            _note(group, What.SYNC_OVER, member)
            self._remove(group, member, draft)
        if late:
            self._prepare_rebalance(group, draft, circumstances)

    # ------------------------------------------------------------ coming from and going to another kind

    def adopt(
        self, group: ClassicGroup, draft: Draft, circumstances: Circumstances, *, is_settled: bool
    ) -> None:
        """Take over a group that was of another kind; unless all is settled there, its members join again."""
        self._groups[group.group_id] = group
        for member in group.members.values():
            self._expect(group, member, circumstances)
        if not is_settled:
            group.causes.append(Cause(What.MOVED))
            self._prepare_rebalance(group, draft, circumstances)

    def dismiss(self, group: ClassicGroup, draft: Draft) -> None:
        """The group is of another kind now, which expects its members to join again."""
        group.is_dismissed = True
        for member in group.members.values():
            join = no_join(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id, member.join)
            self._answer_join(group, member, join, draft)
            self._answer_sync(member, no_sync(ErrorCode.REBALANCE_IN_PROGRESS), draft)
            if member.session is not None:
                member.session.cancel()
        for timer in (group.rebalance, group.syncing, *group.pending.values()):
            if timer is not None:
                timer.cancel()

    # ------------------------------------------------------------ within

    def _existing(self, group_id: str) -> Group:
        """The group that a member speaks of; KafkaError if none of its members can be classic ones."""
        if not group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID)
        found = self._groups.get(group_id)
        if found is None or not (isinstance(found, ClassicGroup) or found.kind in self._guests):
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        return found

    def _is_current(self, group: ClassicGroup) -> bool:
        return self._groups.get(group.group_id) is group

    def _forget_if_unused(self, group: ClassicGroup) -> None:
        """Nothing of it is in the log, so it is nowhere once nobody is on the way in."""
        if group.is_unheard_of and self._is_current(group):
            self._state.forget(group)

    def _expect(
        self,
        group: ClassicGroup,
        member: Member,
        circumstances: Circumstances,
        *,
        timeout_ms: int | None = None,
    ) -> None:
        """Have the member go if it is not heard of in time; its session timeout unless told otherwise."""
        if member.session is None:
            member.session = Timer(SessionOver(group, member))
        wait_ms = member.session_timeout_ms if timeout_ms is None else timeout_ms
        self._timers.set(member.session, circumstances.now_ms + wait_ms)

    def _park_join(self, group: ClassicGroup, member: Member, ticket: Ticket, draft: Draft) -> None:
        if member.join is not None:
            # It has asked before, and most likely given up that connection.
            again = no_join(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id, member.join)
            self._answer_join(group, member, again, draft)
        member.join = ticket
        group.waiting_count += 1

    def _answer_join(self, group: ClassicGroup, member: Member, reply: Response, draft: Draft) -> None:
        if member.join is not None:
            draft.reply(member.join, reply)
            member.join = None
            group.waiting_count -= 1

    def _answer_sync(self, member: Member, reply: Response, draft: Draft) -> None:
        if member.sync is not None:
            draft.reply(member.sync, reply)
            member.sync = None


# ------------------------------------------------------------------------------------------------- leaves


def _has_room(group: ClassicGroup, member_id: str, size_max: int) -> bool:
    member = group.members.get(member_id)
    match group.state:
        case Empty():
            return True
        case PreparingRebalance():
            # Those that have joined count: if the limit was lowered, the last to come back find no room.
            return (member is not None and member.join is not None) or group.waiting_count < size_max
    return member is not None or len(group.members) < size_max


def _check_generation(group: ClassicGroup, generation_id: int) -> None:
    if generation_id != group.generation:
        raise KafkaError(ErrorCode.ILLEGAL_GENERATION)


def _rebalance_timeout_ms(request: JoinGroupRequest, ticket: Ticket) -> int:
    """Version 0 knows one timeout for both."""
    is_known = ticket.version >= _REBALANCE_TIMEOUT
    return request.rebalance_timeout_ms if is_known else request.session_timeout_ms


def _note(group: ClassicGroup, what: What, member: Member) -> None:
    """Remember why there will be another generation."""
    if len(group.causes) < _CAUSES_MAX:
        who = person(member.instance_id, client_id=member.client_id, host=member.client_host)
        group.causes.append(Cause(what, member.member_id, who))


def _enter(group: ClassicGroup, state: State, circumstances: Circumstances) -> None:
    group.state = state
    group.since_ms = circumstances.wall_ms


def _uuid_text(uuid: Uuid) -> str:
    """The uuid as member ids end with it: hexadecimal, in five groups."""
    digits = uuid.hex()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
