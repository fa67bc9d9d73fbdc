"""A group shard with a log and a clock of its own, driven by the rules by which the node drives it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from moldau.coordinator.group.classic.group import ClassicGroup
from moldau.coordinator.group.shard import GroupShard
from moldau.coordinator.shard import (
    Circumstances,
    CoordinatorRecord,
    ShardDecision,
    Surroundings,
    Ticket,
)
from moldau.metadata.image import Delta, Image
from moldau.model.draws import Draws
from moldau.model.errors import ErrorCode, KafkaError
from moldau.model.ids import ZERO_UUID, TopicName, Uuid
from moldau.model.settings.resolve import Layer, Source, resolve
from moldau.model.settings.setting import Scope
from moldau.wire.message import Request, Response
from moldau.wire.messages.groups import (
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
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)

R = TypeVar("R", bound=Response)

BATCH_BYTES_MAX = 1024 * 1024
GROUP = "orders"


class Asked(Ticket):
    """A request, and what became of it."""

    __slots__ = ("answer",)

    def __init__(self, version: int, client_id: str, connection: int = 0) -> None:
        super().__init__(
            version=version, client_id=client_id, client_host="/127.0.0.1", connection=connection
        )
        self.answer: Response | KafkaError | None = None

    @property
    def is_parked(self) -> bool:
        return self.answer is None

    def reply(self, kind: type[R]) -> R:
        assert isinstance(self.answer, kind), self.answer
        return self.answer

    @property
    def code(self) -> ErrorCode:
        """The error of the whole reply."""
        if isinstance(self.answer, KafkaError):
            return self.answer.code
        assert self.answer is not None, "it is still parked"
        return ErrorCode(self.answer.error_code)  # type: ignore[attr-defined]

    @property
    def joined(self) -> JoinGroupResponse:
        return self.reply(JoinGroupResponse)

    @property
    def synced(self) -> SyncGroupResponse:
        return self.reply(SyncGroupResponse)


class Live:
    """One shard while it is led."""

    def __init__(self, texts: Mapping[str, str] | None = None, image: Image | None = None) -> None:
        layers = (Layer(Source.STATIC, texts or {}),)
        self.around = Surroundings(image or Image(), resolve(Scope.BROKER, *layers), layers)
        self.now_ms = 1_000_000
        self.wall_offset_ms = 1_700_000_000_000
        self.draws = Draws(bytes(16))
        self.batch_bytes_max = BATCH_BYTES_MAX
        self.log: list[CoordinatorRecord] = []
        self.shard = GroupShard()
        self.carry_out(self.shard.loaded(self.circumstances()))

    def circumstances(self) -> Circumstances:
        wall_ms = self.now_ms + self.wall_offset_ms
        return Circumstances(self.now_ms, wall_ms, self.draws, self.around, self.batch_bytes_max)

    def carry_out(self, decision: ShardDecision[object]) -> None:
        for record in decision.records:
            self.log.append(record)
            self.shard.apply(record)
        for ticket, reply in decision.effects:
            assert isinstance(ticket, Asked)
            assert ticket.is_parked, "nobody is answered twice"
            ticket.answer = reply

    def ask(
        self,
        request: Request,
        *,
        version: int | None = None,
        client_id: str = "ada",
        connection: int = 0,
    ) -> Asked:
        if version is None:
            version = type(request).declaration.versions.highest
        asked = Asked(version, client_id, connection)
        try:
            decision = self.shard.decide(request, asked, self.circumstances())
        except KafkaError as error:
            asked.answer = error
            return asked
        self.carry_out(decision)
        if decision.reply is not None:
            assert asked.is_parked, "nobody is answered twice"
            asked.answer = decision.reply
        return asked

    def wait(self, duration_ms: int) -> None:
        """Let time pass, and what is due happen when it is."""
        end_ms = self.now_ms + duration_ms
        while (next_ms := self.shard.next_deadline_ms()) is not None and next_ms <= end_ms:
            self.now_ms = max(self.now_ms, next_ms)
            self.carry_out(self.shard.deadlines_passed(self.circumstances()))
        self.now_ms = end_ms

    def metadata_changed(self, delta: Delta) -> None:
        self.carry_out(self.shard.metadata_changed(delta, self.circumstances()))

    def reload(self, log: Sequence[CoordinatorRecord] | None = None) -> None:
        """Another broker takes over, or this one starts again."""
        self.shard = GroupShard()
        for record in self.log if log is None else log:
            self.shard.apply(record)
        self.carry_out(self.shard.loaded(self.circumstances()))

    def group(self, group_id: str = GROUP) -> ClassicGroup:
        group = self.shard.state.groups[group_id]
        assert isinstance(group, ClassicGroup)
        return group

    def id_of(self, topic: str) -> Uuid:
        """The id that the node looks up for a topic that a request names."""
        found = self.around.image.topics.get(TopicName(topic))
        return ZERO_UUID if found is None else found.id

    @property
    def state(self) -> str:
        return self.group().state_name

    # ------------------------------------------------------------ requests, as members send them

    def join(
        self,
        member_id: str = "",
        *,
        protocols: Mapping[str, bytes] | None = None,
        protocol_type: str = "consumer",
        instance_id: str | None = None,
        session_timeout_ms: int = 10_000,
        rebalance_timeout_ms: int = 60_000,
        version: int = 9,
        client_id: str = "ada",
        group_id: str = GROUP,
    ) -> Asked:
        protocols = {"range": subscription("t")} if protocols is None else protocols
        return self.ask(
            JoinGroupRequest(
                group_id=group_id,
                session_timeout_ms=session_timeout_ms,
                rebalance_timeout_ms=rebalance_timeout_ms,
                member_id=member_id,
                group_instance_id=instance_id,
                protocol_type=protocol_type,
                protocols=[
                    JoinGroupRequestProtocol(name=name, metadata=metadata)
                    for name, metadata in protocols.items()
                ],
            ),
            version=version,
            client_id=client_id,
        )

    def join_known(self, **options: object) -> Asked:
        """Join as clients do since KIP-394: ask for an id, and come with it."""
        asked = self.join(**options)  # type: ignore[arg-type]
        if not asked.is_parked and asked.code is ErrorCode.MEMBER_ID_REQUIRED:
            return self.join(asked.joined.member_id, **options)  # type: ignore[arg-type]
        return asked

    def sync(
        self,
        member_id: str,
        generation: int,
        assignments: Mapping[str, bytes] | None = None,
        *,
        instance_id: str | None = None,
        protocol_type: str | None = "consumer",
        protocol_name: str | None = "range",
        group_id: str = GROUP,
    ) -> Asked:
        return self.ask(
            SyncGroupRequest(
                group_id=group_id,
                generation_id=generation,
                member_id=member_id,
                group_instance_id=instance_id,
                protocol_type=protocol_type,
                protocol_name=protocol_name,
                assignments=[
                    SyncGroupRequestAssignment(member_id=each, assignment=assignment)
                    for each, assignment in (assignments or {}).items()
                ],
            )
        )

    def heartbeat(
        self, member_id: str, generation: int, *, instance_id: str | None = None, group_id: str = GROUP
    ) -> ErrorCode:
        asked = self.ask(
            HeartbeatRequest(
                group_id=group_id,
                generation_id=generation,
                member_id=member_id,
                group_instance_id=instance_id,
            )
        )
        return asked.code if isinstance(asked.answer, KafkaError) else _code(asked.reply(HeartbeatResponse))

    def leave(self, *leaving: str | tuple[str, str], group_id: str = GROUP) -> list[ErrorCode]:
        """Members leave, by their ids or by pairs of member id and instance id."""
        asked = self.ask(
            LeaveGroupRequest(
                group_id=group_id,
                members=[
                    MemberIdentity(member_id=each)
                    if isinstance(each, str)
                    else MemberIdentity(member_id=each[0], group_instance_id=each[1])
                    for each in leaving
                ],
            )
        )
        reply = asked.reply(LeaveGroupResponse)
        assert reply.error_code == ErrorCode.NONE
        return [ErrorCode(each.error_code) for each in reply.members]

    def commit(
        self,
        offsets: Mapping[tuple[str, int], int],
        *,
        member_id: str = "",
        generation: int = -1,
        instance_id: str | None = None,
        note: str | None = "",
        epoch: int = -1,
        version: int = 9,
        retention_ms: int = -1,
        group_id: str = GROUP,
    ) -> ErrorCode:
        """The error of the whole, or that of all partitions together."""
        asked = self.ask(
            OffsetCommitRequest(
                group_id=group_id,
                generation_id_or_member_epoch=generation,
                member_id=member_id,
                group_instance_id=instance_id,
                retention_time_ms=retention_ms,
                topics=[
                    OffsetCommitRequestTopic(
                        name=topic,
                        topic_id=self.id_of(topic),
                        partitions=[
                            OffsetCommitRequestPartition(
                                partition_index=partition,
                                committed_offset=offset,
                                committed_leader_epoch=epoch,
                                committed_metadata=note,
                            )
                        ],
                    )
                    for (topic, partition), offset in offsets.items()
                ],
            ),
            version=version,
        )
        if isinstance(asked.answer, KafkaError):
            return asked.code
        topics = asked.reply(OffsetCommitResponse).topics
        codes = {each.error_code for topic in topics for each in topic.partitions}
        assert len(codes) == 1, codes
        return ErrorCode(codes.pop())

    def committed(self, group_id: str = GROUP, *, require_stable: bool = False) -> dict[tuple[str, int], int]:
        """All offsets of a group."""
        asked = self.ask(
            OffsetFetchRequest(
                groups=[OffsetFetchRequestGroup(group_id=group_id, topics=None)],
                require_stable=require_stable,
            )
        )
        (group,) = asked.reply(OffsetFetchResponse).groups
        assert group.error_code == ErrorCode.NONE
        return {
            (topic.name, each.partition_index): each.committed_offset
            for topic in group.topics
            for each in topic.partitions
        }

    # ------------------------------------------------------------ whole rebalances

    def stable(self, *names: str, **options: object) -> list[str]:
        """A group of so many members with an assignment; gives their ids, the leader's first."""
        asked = [self.join_known(client_id=name, **options) for name in names]
        # A second member extends the first wait, and nobody the second one.
        self.wait(3_000 * min(len(names), 2))
        joined = [each.joined for each in asked]
        leader = joined[0].leader
        ids = sorted((each.member_id for each in joined), key=lambda each: each != leader)
        self.assign(ids)
        return ids

    def assign(self, ids: Sequence[str]) -> None:
        """Every member syncs, the leader first, and gets its own id as its assignment."""
        generation = self.group().generation
        for number, member_id in enumerate(ids):
            assignments = {} if number else {each: each.encode() for each in ids}
            instance_id = self.group().members[member_id].instance_id
            synced = self.sync(member_id, generation, assignments, instance_id=instance_id).synced
            assert synced.assignment == member_id.encode()


def subscription(*topics: str) -> bytes:
    """What a consumer says when it joins, in the version that all others begin with."""
    names = b"".join(len(topic).to_bytes(2, "big") + topic.encode() for topic in topics)
    return b"\0\0" + len(topics).to_bytes(4, "big") + names + b"\xff\xff\xff\xff"


def _code(reply: HeartbeatResponse) -> ErrorCode:
    return ErrorCode(reply.error_code)
