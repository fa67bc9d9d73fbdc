"""Looking at and changing groups: who is in them, what they have committed, and that they are gone."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from moldau.client.cluster import Cluster, CoordinatorKind
from moldau.client.committed import (
    CommittedOffset,
    Committer,
    Offsets,
    Place,
    commit_offsets,
    committed_offsets,
    delete_offsets,
    fetch_offsets,
)
from moldau.client.coordinator import GroupCoordinator
from moldau.client.embedded import read_assignment
from moldau.client.errors import ClientError, check
from moldau.client.metadata import Broker
from moldau.client.offsets import place_of
from moldau.model.errors import ErrorCode, MalformedMessage
from moldau.model.ids import TopicPartition
from moldau.wire.messages.consumer_groups import (
    ConsumerGroupDescribeAssignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from moldau.wire.messages.groups import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
)

CLASSIC: Final = "Classic"
CONSUMER: Final = "Consumer"

_STATES_SINCE: Final = 4
_TYPES_SINCE: Final = 5
_CLASSIC_MEMBER: Final = 0
_DEAD: Final = "Dead"


@dataclass(frozen=True, slots=True)
class GroupListing:
    """A group as its coordinator lists it; old brokers tell neither state nor type."""

    group_id: str
    protocol_type: str
    state: str
    type: str


@dataclass(frozen=True, slots=True)
class MemberView:
    """A member: its client, what it reads, and in a consumer group what it is to read."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    assignment: tuple[TopicPartition, ...]
    # None where the protocol has no such thing.
    target: tuple[TopicPartition, ...] | None = None
    epoch: int | None = None
    # Whether a member of a consumer group speaks its protocol, and not the classic one.
    is_upgraded: bool | None = None


@dataclass(frozen=True, slots=True)
class GroupView:
    """A group and its members."""

    group_id: str
    type: str
    protocol_type: str
    state: str
    assignor: str
    coordinator: Broker
    members: tuple[MemberView, ...]
    # None where the protocol has no such thing.
    epoch: int | None = None
    target_epoch: int | None = None

    @property
    def is_empty(self) -> bool:
        """Whether nobody reads."""
        return not self.members


class GroupAdmin:
    """What an Admin does with groups."""

    _cluster: Cluster

    async def find_coordinator(self, group_id: str) -> Broker:
        """The broker that looks after a group."""
        node_id = await self._cluster.retrying(
            lambda: self._cluster.coordinator(group_id, CoordinatorKind.GROUP)
        )
        return self._cluster.metadata.brokers[node_id]

    async def list_groups(
        self, *, states: Iterable[str] = (), types: Iterable[str] = ()
    ) -> list[GroupListing]:
        """All groups of all brokers, by name; perhaps only those in some states or of some types."""
        wanted_states, wanted_types = list(states), list(types)

        async def attempt() -> dict[str, GroupListing]:
            await self._cluster.refresh()
            found: dict[str, GroupListing] = {}
            for node_id in sorted(self._cluster.metadata.brokers):
                connection = await self._cluster.connection_to(node_id)
                version = connection.version_of(ListGroupsRequest)
                request = ListGroupsRequest()
                if version >= _STATES_SINCE:
                    request.states_filter = wanted_states
                if version >= _TYPES_SINCE:
                    request.types_filter = wanted_types
                response = await self._cluster.ask_at(connection, request, ListGroupsResponse)
                check(response.error_code, where=f"broker {node_id}")
                for row in response.groups:
                    found[row.group_id] = GroupListing(
                        row.group_id, row.protocol_type, row.group_state, row.group_type
                    )
            return found

        return [group for _, group in sorted((await self._cluster.retrying(attempt)).items())]

    async def describe_groups(self, *group_ids: str) -> dict[str, GroupView]:
        """These groups, of either kind; GROUP_ID_NOT_FOUND if one does not exist."""
        return {group_id: await self._describe_group(group_id) for group_id in group_ids}

    async def group_offsets(
        self,
        group_id: str,
        partitions: Iterable[tuple[str, int]] | None = None,
        *,
        require_stable: bool = False,
    ) -> dict[TopicPartition, CommittedOffset]:
        """What a group has committed, for some partitions or all."""
        coordinator = GroupCoordinator(self._cluster, group_id)
        places = None if partitions is None else [place_of(each) for each in partitions]
        found = await coordinator.retrying(
            lambda: fetch_offsets(coordinator, places, require_stable=require_stable)
        )
        return dict(sorted(found.items()))

    async def alter_group_offsets(self, group_id: str, offsets: Offsets[Place]) -> None:
        """Let a group without members go on elsewhere; UNKNOWN_MEMBER_ID while it has some."""
        coordinator = GroupCoordinator(self._cluster, group_id)
        chosen = committed_offsets(offsets)
        await coordinator.retrying(lambda: commit_offsets(coordinator, Committer(), chosen))

    async def delete_group_offsets(
        self, group_id: str, partitions: Iterable[tuple[str, int]]
    ) -> dict[TopicPartition, ErrorCode]:
        """Let a group forget partitions; tells how it went with each."""
        coordinator = GroupCoordinator(self._cluster, group_id)
        places = [place_of(each) for each in partitions]
        return await coordinator.retrying(lambda: delete_offsets(coordinator, places))

    async def delete_groups(self, *group_ids: str) -> None:
        """Delete groups without members, with all they have committed."""
        for group_id in group_ids:
            await self._delete_group(group_id)

    async def _delete_group(self, group_id: str) -> None:
        coordinator = GroupCoordinator(self._cluster, group_id)

        async def attempt() -> None:
            request = DeleteGroupsRequest(groups_names=[group_id])
            response = await coordinator.ask(request, DeleteGroupsResponse)
            for row in response.results:
                check(row.error_code, where=row.group_id)

        await coordinator.retrying(attempt)

    async def _describe_group(self, group_id: str) -> GroupView:
        coordinator = GroupCoordinator(self._cluster, group_id)
        try:
            return await coordinator.retrying(lambda: self._describe_consumer_group(coordinator))
        except ClientError as error:
            # A classic group is none for those who ask for the other kind, and some brokers know only one.
            if error.code not in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION):
                raise
        return await coordinator.retrying(lambda: self._describe_classic_group(coordinator))

    async def _describe_consumer_group(self, coordinator: GroupCoordinator) -> GroupView:
        request = ConsumerGroupDescribeRequest(
            group_ids=[coordinator.group_id], include_authorized_operations=False
        )
        (row,) = (await coordinator.ask(request, ConsumerGroupDescribeResponse)).groups
        check(row.error_code, row.error_message, where=row.group_id)
        return GroupView(
            row.group_id,
            CONSUMER,
            "consumer",
            row.group_state,
            row.assignor_name,
            await self._broker_of(coordinator),
            tuple(
                MemberView(
                    member.member_id,
                    member.instance_id,
                    member.client_id,
                    member.client_host,
                    _places(member.assignment),
                    _places(member.target_assignment),
                    member.member_epoch,
                    None if member.member_type < 0 else member.member_type != _CLASSIC_MEMBER,
                )
                for member in row.members
            ),
            row.group_epoch,
            row.assignment_epoch,
        )

    async def _describe_classic_group(self, coordinator: GroupCoordinator) -> GroupView:
        request = DescribeGroupsRequest(groups=[coordinator.group_id])
        (row,) = (await coordinator.ask(request, DescribeGroupsResponse)).groups
        check(row.error_code, row.error_message, where=row.group_id)
        if row.group_state == _DEAD:
            raise ClientError(ErrorCode.GROUP_ID_NOT_FOUND, where=row.group_id)
        is_of_consumers = row.protocol_type in ("consumer", "")
        return GroupView(
            row.group_id,
            CLASSIC,
            row.protocol_type,
            row.group_state,
            row.protocol_data,
            await self._broker_of(coordinator),
            tuple(
                MemberView(
                    member.member_id,
                    member.group_instance_id,
                    member.client_id,
                    member.client_host,
                    _assigned(bytes(member.member_assignment)) if is_of_consumers else (),
                )
                for member in row.members
            ),
        )

    async def _broker_of(self, coordinator: GroupCoordinator) -> Broker:
        node_id = await coordinator.node_id()
        return self._cluster.metadata.brokers[node_id]


def _places(assignment: ConsumerGroupDescribeAssignment) -> tuple[TopicPartition, ...]:
    return tuple(
        place_of((topic.topic_name, index))
        for topic in assignment.topic_partitions
        for index in topic.partitions
    )


def _assigned(data: bytes) -> tuple[TopicPartition, ...]:
    try:
        return read_assignment(data)
    except MalformedMessage:
        return ()
