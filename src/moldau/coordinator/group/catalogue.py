"""The groups of a shard as admins see them: listed, described if they are classic, and deleted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from moldau.coordinator.group.classic.group import DEAD, ClassicGroup, Stable
from moldau.coordinator.group.part import Alarm, Applier, Decider
from moldau.coordinator.group.records import offset_tombstone
from moldau.coordinator.group.state import GroupState
from moldau.coordinator.shard import Circumstances, Draft, ShardDecision, Ticket
from moldau.metadata.image import Delta
from moldau.model.decision import Decision
from moldau.model.errors import ErrorCode, KafkaError
from moldau.wire.message import CoordinatorKey, Request, Response
from moldau.wire.messages.groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)

# From this version on a group that is not there is an error, not a dead group.
_GROUP_ID_NOT_FOUND: Final = 6


class Catalogue:
    """The part that deals with groups as a whole."""

    def __init__(self, state: GroupState) -> None:
        self._state = state

    @property
    def deciders(self) -> Mapping[type[Request], Decider]:
        """The requests about groups of this shard."""
        return {
            ListGroupsRequest: self.list_groups,
            DescribeGroupsRequest: self.describe,
            DeleteGroupsRequest: self.delete,
        }

    @property
    def appliers(self) -> Mapping[type[CoordinatorKey], Applier]:
        """None: the groups have their own."""
        return {}

    @property
    def alarms(self) -> Mapping[type[object], Alarm]:
        """None."""
        return {}

    def loaded(self, draft: Draft, circumstances: Circumstances) -> None:
        """Nothing to begin."""

    def metadata_changed(self, delta: Delta, draft: Draft, circumstances: Circumstances) -> None:
        """Groups do not depend on it."""

    def list_groups(
        self, request: ListGroupsRequest, ticket: Ticket, circumstances: Circumstances
    ) -> ShardDecision[Response | None]:
        """The groups in any of the states and of any of the types asked for; empty filters let all pass."""
        states = dict.fromkeys(state.strip().lower() for state in request.states_filter)
        types = dict.fromkeys(kind.strip().lower() for kind in request.types_filter)
        return Decision(
            ListGroupsResponse(
                error_code=ErrorCode.NONE,
                groups=[
                    ListedGroup(
                        group_id=group.group_id,
                        protocol_type=group.protocol_type,
                        group_state=group.state_name,
                        group_type=group.kind.value,
                    )
                    for group in self._state.groups.values()
                    if (not states or group.state_name.lower() in states)
                    and (not types or group.kind.value in types)
                ],
            )
        )

    def describe(
        self, request: DescribeGroupsRequest, ticket: Ticket, circumstances: Circumstances
    ) -> ShardDecision[Response | None]:
        """Classic groups and their members."""
        return Decision(
            DescribeGroupsResponse(groups=[self._describe(each, ticket) for each in request.groups])
        )

    def _describe(self, group_id: str, ticket: Ticket) -> DescribedGroup:
        group = self._state.groups.get(group_id)
        if not isinstance(group, ClassicGroup):
            is_error = ticket.version >= _GROUP_ID_NOT_FOUND
            what = "not found" if group is None else "is not a classic group"
            return DescribedGroup(
                error_code=ErrorCode.GROUP_ID_NOT_FOUND if is_error else ErrorCode.NONE,
                error_message=f"Group {group_id} {what}." if is_error else None,
                group_id=group_id,
                group_state=DEAD,
                protocol_type="",
                protocol_data="",
                members=[],
            )
        # While it rebalances, neither the protocol nor what members say under it is settled.
        protocol = group.protocol if isinstance(group.state, Stable) else None
        return DescribedGroup(
            error_code=ErrorCode.NONE,
            group_id=group_id,
            group_state=group.state_name,
            protocol_type=group.protocol_type,
            protocol_data=protocol or "",
            members=[
                DescribedGroupMember(
                    member_id=member.member_id,
                    group_instance_id=member.instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    member_metadata=member.metadata(protocol),
                    member_assignment=group.assignment(member.member_id),
                )
                for member in group.members.values()
            ],
        )

    def delete(
        self, request: DeleteGroupsRequest, ticket: Ticket, circumstances: Circumstances
    ) -> ShardDecision[Response | None]:
        """Delete groups without members, and all that they have committed."""
        draft = Draft()
        results = []
        for group_id in dict.fromkeys(request.groups_names):
            code = ErrorCode.NONE
            try:
                self._delete(group_id, draft)
            except KafkaError as error:
                code = error.code
            results.append(DeletableGroupResult(group_id=group_id, error_code=code))
        return draft.decision(DeleteGroupsResponse(throttle_time_ms=0, results=results))

    def _delete(self, group_id: str, draft: Draft) -> None:
        group = self._state.group(group_id)
        group.check_deletion()
        offsets = self._state.offsets
        places = {
            (topic, partition): None
            for topic, partitions in offsets.of_group(group_id).items()
            for partition in partitions
        }
        places |= {(place.topic, place.partition): None for place in offsets.pending(group_id)}
        draft.records += (
            offset_tombstone(group_id, topic=topic, partition=partition) for topic, partition in places
        )
        draft.records += group.tombstones()
