"""Members of groups, each on a connection of its own, that say exactly what a test wants them to say."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from node.broker import Broker, Wire, answer

from moldau.model.errors import ErrorCode
from moldau.model.ids import partition_for_coordinator
from moldau.wire.messages.groups import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)

GROUP = "orders"
OFFSETS_TOPIC = "__consumer_offsets"
FIND_VERSION = 4
COMMIT_VERSION = 9
_ARRIVES_MS = 50

Offsets = Mapping[tuple[str, int], int]


def find_coordinator(broker: Broker, *keys: str) -> None:
    """Have the coordinators of some groups found, and ready."""
    for key in keys or (GROUP,):
        until(broker, lambda key=key: _is_served(broker, key))  # type: ignore[misc]


def until(broker: Broker, is_reached: Callable[[], bool], *, tries: int = 1_000) -> None:
    """Ask again and again until something is true."""
    for _ in range(tries):
        if is_reached():
            return
        broker.run_for(100)
    raise AssertionError("what was waited for never came")


def _is_served(broker: Broker, key: str) -> bool:
    request = FindCoordinatorRequest(key_type=0, coordinator_keys=[key])
    found = answer(broker.ask(request, FIND_VERSION), FindCoordinatorResponse).coordinators[0]
    if found.error_code != ErrorCode.NONE:
        return False
    return committed_group(broker, key).error_code == ErrorCode.NONE


def partition_of(group_id: str = GROUP, *, count: int = 50) -> int:
    """The partition in which a group is kept."""
    return partition_for_coordinator(group_id, count)


def commit_request(
    offsets: Offsets,
    *,
    group_id: str = GROUP,
    member_id: str = "",
    generation: int = -1,
    note: str | None = "",
    epoch: int = -1,
) -> OffsetCommitRequest:
    """A commit of some offsets."""
    topics = dict.fromkeys(topic for topic, _ in offsets)
    return OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        topics=[
            OffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=partition,
                        committed_offset=offset,
                        committed_leader_epoch=epoch,
                        committed_metadata=note,
                    )
                    for (name, partition), offset in offsets.items()
                    if name == topic
                ],
            )
            for topic in topics
        ],
    )


def commit(
    at: Broker | Wire,
    offsets: Offsets,
    *,
    version: int = COMMIT_VERSION,
    group_id: str = GROUP,
    member_id: str = "",
    generation: int = -1,
    note: str | None = "",
    epoch: int = -1,
) -> ErrorCode:
    """Commit offsets; gives the one error of all partitions."""
    request = commit_request(
        offsets, group_id=group_id, member_id=member_id, generation=generation, note=note, epoch=epoch
    )
    return commit_code(answer(at.ask(request, version), OffsetCommitResponse))


def commit_code(response: OffsetCommitResponse) -> ErrorCode:
    """The one error of all partitions."""
    (code,) = {each.error_code for topic in response.topics for each in topic.partitions}
    return ErrorCode(code)


def committed_group(
    at: Broker | Wire, group_id: str = GROUP, *, version: int = 8, require_stable: bool = False
) -> OffsetFetchResponseGroup:
    """All that a group has committed, or why it cannot be told."""
    request = OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group_id=group_id, topics=None)], require_stable=require_stable
    )
    return answer(at.ask(request, version), OffsetFetchResponse).groups[0]


def committed(at: Broker | Wire, group_id: str = GROUP) -> dict[tuple[str, int], int]:
    """All offsets of a group."""
    group = committed_group(at, group_id)
    assert group.error_code == ErrorCode.NONE, ErrorCode(group.error_code)
    return {
        (topic.name, each.partition_index): each.committed_offset
        for topic in group.topics
        for each in topic.partitions
    }


class Member:
    """One client of a group; what it has been told last is in its fields."""

    def __init__(
        self,
        broker: Broker,
        name: str = "ada",
        *,
        group_id: str = GROUP,
        instance_id: str | None = None,
        protocols: Mapping[str, bytes] | None = None,
        session_timeout_ms: int = 10_000,
        rebalance_timeout_ms: int = 60_000,
        version: int = 9,
    ) -> None:
        self.broker = broker
        self.name = name
        self.wire = broker.connect(client_id=name)
        self.group_id = group_id
        self.instance_id = instance_id
        self.protocols = {"range": b""} if protocols is None else protocols
        self.session_timeout_ms = session_timeout_ms
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.version = version
        self.member_id = ""
        self.generation = -1
        self.leader = ""

    def reconnect(self) -> None:
        """Go on with another connection."""
        self.wire = self.broker.connect(client_id=self.name)

    @property
    def leads(self) -> bool:
        """Whether it has to assign."""
        return self.member_id == self.leader

    def send_join(self) -> None:
        """Ask to join, and do not wait."""
        self.wire.send(
            JoinGroupRequest(
                group_id=self.group_id,
                session_timeout_ms=self.session_timeout_ms,
                rebalance_timeout_ms=self.rebalance_timeout_ms,
                member_id=self.member_id,
                group_instance_id=self.instance_id,
                protocol_type="consumer",
                protocols=[
                    JoinGroupRequestProtocol(name=name, metadata=metadata)
                    for name, metadata in self.protocols.items()
                ],
            ),
            self.version,
        )

    def joined(self) -> JoinGroupResponse:
        """What came of joining."""
        reply = answer(self.wire.receive(), JoinGroupResponse)
        if reply.member_id:
            self.member_id = reply.member_id
        if reply.error_code == ErrorCode.NONE:
            self.generation, self.leader = reply.generation_id, reply.leader
        return reply

    def begin_join(self) -> None:
        """Join as far as it goes before the others have: with an id, if one is needed."""
        self.send_join()
        if not self.member_id and self.instance_id is None and self.version >= 4:
            reply = self.joined()
            assert reply.error_code == ErrorCode.MEMBER_ID_REQUIRED, ErrorCode(reply.error_code)
            self.send_join()
        # Until it has arrived, so that members join in the order in which they are told to.
        self.broker.run_for(_ARRIVES_MS)

    def join(self) -> JoinGroupResponse:
        """Join, and wait until all have."""
        self.begin_join()
        return self.joined()

    def send_sync(self, assignments: Mapping[str, bytes] | None = None, version: int = 5) -> None:
        """Ask for the assignment, and do not wait."""
        self.wire.send(
            SyncGroupRequest(
                group_id=self.group_id,
                generation_id=self.generation,
                member_id=self.member_id,
                group_instance_id=self.instance_id,
                protocol_type="consumer",
                protocol_name=next(iter(self.protocols)),
                assignments=[
                    SyncGroupRequestAssignment(member_id=member_id, assignment=assignment)
                    for member_id, assignment in (assignments or {}).items()
                ],
            ),
            version,
        )

    def synced(self) -> SyncGroupResponse:
        """What came of it."""
        return answer(self.wire.receive(), SyncGroupResponse)

    def sync(self, assignments: Mapping[str, bytes] | None = None) -> SyncGroupResponse:
        """Ask for the assignment, and wait for it."""
        self.send_sync(assignments)
        return self.synced()

    def heartbeat(self) -> ErrorCode:
        """Say that it lives."""
        request = HeartbeatRequest(
            group_id=self.group_id,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
        )
        return ErrorCode(answer(self.wire.ask(request), HeartbeatResponse).error_code)

    def leave(self) -> ErrorCode:
        """Leave the group."""
        request = LeaveGroupRequest(
            group_id=self.group_id,
            members=[MemberIdentity(member_id=self.member_id, group_instance_id=self.instance_id)],
        )
        reply = answer(self.wire.ask(request), LeaveGroupResponse)
        return ErrorCode(reply.members[0].error_code)

    def commit(self, offsets: Offsets) -> ErrorCode:
        """Commit as a member."""
        return commit(
            self.wire,
            offsets,
            group_id=self.group_id,
            member_id=self.member_id,
            generation=self.generation,
        )


def stable(members: Sequence[Member]) -> None:
    """Have all join and sync; each gets its own id as its assignment."""
    for member in members:
        member.begin_join()
    for member in members:
        reply = member.joined()
        assert reply.error_code == ErrorCode.NONE, ErrorCode(reply.error_code)
    assign(members)


def assign(members: Sequence[Member]) -> None:
    """Have all sync, the leader first."""
    for member in sorted(members, key=lambda each: not each.leads):
        assignments = {each.member_id: each.member_id.encode() for each in members}
        reply = member.sync(assignments if member.leads else None)
        assert reply.error_code == ErrorCode.NONE, ErrorCode(reply.error_code)
        assert reply.assignment == member.member_id.encode()
