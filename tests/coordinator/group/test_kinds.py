"""Groups of several kinds in one namespace: what the classic protocol says to a group that is not classic."""

from __future__ import annotations

import pytest
from coordinator.group.live import GROUP, Live

from moldau.coordinator.group.classic.group import ClassicGroup
from moldau.coordinator.group.classic.protocol import ClassicProtocol
from moldau.coordinator.group.group import Group, GroupKind, PartitionCheck
from moldau.coordinator.group.records import classic_group
from moldau.coordinator.group.state import GroupState
from moldau.coordinator.shard import Circumstances, CoordinatorRecord, ShardDecision, Ticket
from moldau.model.decision import Decision
from moldau.model.errors import ErrorCode, KafkaError
from moldau.wire.message import Response
from moldau.wire.messages.group_records import ShareGroupMetadataKey
from moldau.wire.messages.groups import (
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    ListGroupsRequest,
    ListGroupsResponse,
    SyncGroupRequest,
)


class Foreign(Group):
    """A group of another kind, as little of it as others may ask for."""

    # One that no part of the shard knows how to answer classic members for.
    kind = GroupKind.SHARE

    def __init__(self, group_id: str, *, is_empty: bool) -> None:
        super().__init__(group_id)
        self._is_empty = is_empty

    @property
    def state_name(self) -> str:
        return "Empty" if self._is_empty else "Stable"

    @property
    def protocol_type(self) -> str:
        return "share"

    @property
    def is_empty(self) -> bool:
        return self._is_empty

    def check_commit(
        self, *, member_id: str, instance_id: str | None, epoch: int, is_transactional: bool, version: int
    ) -> PartitionCheck | None:
        if member_id != "known":
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        return self._check_partition

    def _check_partition(self, topic: str, topic_id: bytes, partition: int) -> None:
        if partition > 1:
            raise KafkaError(ErrorCode.STALE_MEMBER_EPOCH)

    def heard_of(self, member_id: str, now_ms: int) -> None:
        pass

    def check_fetch(self, *, member_id: str | None, member_epoch: int) -> None:
        raise KafkaError(ErrorCode.STALE_MEMBER_EPOCH)

    def check_offset_deletion(self) -> None:
        pass

    def check_deletion(self) -> None:
        pass

    def is_subscribed_to(self, topic: str) -> bool:
        return False

    def retention_begins_ms(self, commit_timestamp: int) -> int | None:
        return commit_timestamp

    def tombstones(self) -> list[CoordinatorRecord]:
        return [CoordinatorRecord(ShareGroupMetadataKey(group_id=self.group_id), None)]


def with_foreign(*, is_empty: bool = False) -> Live:
    live = Live()
    live.shard.state.groups[GROUP] = Foreign(GROUP, is_empty=is_empty)
    return live


def test_a_group_of_another_kind_is_closed_to_classic_members() -> None:
    live = with_foreign()
    assert live.join().code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert live.sync("m", 1).code is ErrorCode.UNKNOWN_MEMBER_ID
    assert live.heartbeat("m", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert live.leave("m") == [ErrorCode.UNKNOWN_MEMBER_ID]


def test_a_group_of_another_kind_is_listed_as_what_it_is_and_is_no_classic_group() -> None:
    live = with_foreign()
    listed = live.ask(ListGroupsRequest(types_filter=["Share"])).reply(ListGroupsResponse).groups
    assert [(each.group_id, each.group_type) for each in listed] == [(GROUP, "share")]
    described = live.ask(DescribeGroupsRequest(groups=[GROUP])).reply(DescribeGroupsResponse).groups
    assert [each.error_code for each in described] == [ErrorCode.GROUP_ID_NOT_FOUND]


def test_what_a_group_says_of_commits_and_reads_holds() -> None:
    live = with_foreign()
    assert live.commit({("t", 0): 1}, member_id="known", generation=1) is ErrorCode.NONE
    assert live.commit({("t", 0): 1}, member_id="other", generation=1) is ErrorCode.UNKNOWN_MEMBER_ID
    stale = live.commit({("t", 1): 1, ("t", 2): 1}, member_id="known", generation=1)
    assert stale is ErrorCode.STALE_MEMBER_EPOCH
    assert len(live.log) == 1, "nothing of a commit that is refused is written"


class Hosts:
    """Answers classic members of groups of the other kind, by saying who asked for what."""

    may_become_classic = True

    def __init__(self) -> None:
        self.asked: list[object] = []

    def _note(self, request: object) -> ShardDecision[Response | None]:
        self.asked.append(type(request))
        return Decision(HeartbeatResponse(error_code=0))

    def join(
        self, request: JoinGroupRequest, ticket: Ticket, circumstances: Circumstances
    ) -> ShardDecision[Response | None]:
        return self._note(request)

    def sync(
        self, request: SyncGroupRequest, ticket: Ticket, circumstances: Circumstances
    ) -> ShardDecision[Response | None]:
        return self._note(request)

    def heartbeat(
        self, request: HeartbeatRequest, ticket: Ticket, circumstances: Circumstances
    ) -> ShardDecision[Response | None]:
        return self._note(request)

    def leave(
        self, request: LeaveGroupRequest, ticket: Ticket, circumstances: Circumstances
    ) -> ShardDecision[Response | None]:
        return self._note(request)


def join_request() -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=GROUP,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id="",
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )


TICKET = Ticket(version=3, client_id="c", client_host="/h")


def test_classic_members_of_a_group_that_is_being_migrated_are_answered_by_its_kind() -> None:
    state, hosts = GroupState(), Hosts()
    state.groups[GROUP] = Foreign(GROUP, is_empty=False)
    protocol = ClassicProtocol(state, {Foreign.kind: hosts})
    circumstances = Live().circumstances()
    protocol.join(join_request(), TICKET, circumstances)
    sync = SyncGroupRequest(group_id=GROUP, generation_id=1, member_id="m", assignments=[])
    protocol.sync(sync, TICKET, circumstances)
    heartbeat = HeartbeatRequest(group_id=GROUP, generation_id=1, member_id="m")
    protocol.heartbeat(heartbeat, TICKET, circumstances)
    protocol.leave(LeaveGroupRequest(group_id=GROUP, member_id="m"), TICKET, circumstances)
    assert hosts.asked == [JoinGroupRequest, SyncGroupRequest, HeartbeatRequest, LeaveGroupRequest]


@pytest.mark.parametrize("protocols", [[], [JoinGroupRequestProtocol(name="range", metadata=b"")]])
def test_an_empty_group_of_another_kind_becomes_classic_when_a_classic_member_is_let_in(
    protocols: list[JoinGroupRequestProtocol],
) -> None:
    state = GroupState()
    foreign = state.groups[GROUP] = Foreign(GROUP, is_empty=True)
    protocol = ClassicProtocol(state, {Foreign.kind: Hosts()})
    request = join_request()
    request.protocols = protocols
    decision = protocol.join(request, TICKET, Live().circumstances())
    if protocols:
        assert list(decision.records) == foreign.tombstones()
        assert isinstance(state.groups[GROUP], ClassicGroup)
    else:
        assert decision.records == ()
        assert state.groups[GROUP] is foreign


def test_the_tombstone_of_a_classic_group_leaves_a_group_of_another_kind_alone() -> None:
    live = with_foreign()
    live.shard.apply(classic_group(GROUP, None))
    assert isinstance(live.shard.state.groups[GROUP], Foreign)
