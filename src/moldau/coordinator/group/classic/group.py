"""A classic group: the generation that is in the log, and who is at present about to be its next."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from moldau.coordinator.group.group import Group, GroupKind, PartitionCheck
from moldau.coordinator.group.history import Cause
from moldau.coordinator.group.records import NO_TIMESTAMP, classic_group
from moldau.coordinator.shard import CoordinatorRecord, Ticket
from moldau.coordinator.timers import Timer
from moldau.model.errors import ErrorCode, KafkaError, MalformedMessage
from moldau.wire.messages.consumer_protocol import ConsumerProtocolSubscription
from moldau.wire.messages.group_records import GroupMetadataValue, MemberMetadata
from moldau.wire.messages.groups import JoinGroupRequestProtocol

CONSUMER_PROTOCOL: Final = "consumer"
DEAD: Final = "Dead"
"""What a group that is not there is said to be."""
NO_ASSIGNMENT: Final = b""
# The version stands before a subscription; all versions begin as the first one does.
_VERSION_BYTES: Final = 2


# ---------------------------------------------------------------------------------------------- its states


@dataclass(slots=True)
class Empty:
    """Nobody is in the group; there may be offsets."""

    name = "Empty"


@dataclass(slots=True)
class PreparingRebalance:
    """Members are joining. All must before the rebalance timeout, or are left behind."""

    name = "PreparingRebalance"


@dataclass(slots=True)
class Gathering(PreparingRebalance):
    """The first members are joining, and the group waits a little for more of them."""

    delay_ms: int
    """How long this wait is."""
    extension_ms: int
    """How much longer the group may wait after it."""
    has_grown: bool = False
    """Whether somebody has come since this wait began."""


@dataclass(slots=True)
class CompletingRebalance:
    """All know the new generation, and wait for its leader to say who gets what."""

    unsynced: dict[str, None]
    """The members that have not asked for their assignment yet."""
    name = "CompletingRebalance"


@dataclass(slots=True)
class Stable:
    """The assignment is there."""

    unsynced: dict[str, None] = field(default_factory=dict)
    name = "Stable"


State = Empty | PreparingRebalance | Gathering | CompletingRebalance | Stable


# --------------------------------------------------------------------------------------------- its members


class Member:
    """Somebody in the group: what it said when it joined, and what it waits for."""

    __slots__ = (
        "client_host",
        "client_id",
        "instance_id",
        "is_new",
        "join",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "session",
        "session_timeout_ms",
        "sync",
    )

    def __init__(
        self,
        member_id: str,
        *,
        instance_id: str | None,
        client_id: str,
        client_host: str,
        session_timeout_ms: int,
        rebalance_timeout_ms: int,
        protocols: Sequence[JoinGroupRequestProtocol],
        is_new: bool,
    ) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.session_timeout_ms = session_timeout_ms
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.protocols = protocols
        self.is_new = is_new
        """Whether it has been in no generation yet."""
        self.join: Ticket | None = None
        self.sync: Ticket | None = None
        self.session: Timer[object] | None = None

    @property
    def is_waited_upon(self) -> bool:
        """Whether it is the member that waits, so that no heartbeat can be expected of it."""
        return not self.is_new and (self.join is not None or self.sync is not None)

    def metadata(self, protocol: str | None) -> bytes:
        """What the member says under a protocol."""
        return next((each.metadata for each in self.protocols if each.name == protocol), b"")

    def vote(self, candidates: Mapping[str, object]) -> str:
        """The candidate that the member likes best."""
        return next(each.name for each in self.protocols if each.name in candidates)


# ------------------------------------------------------------------------------------------------ the group


class ClassicGroup(Group):
    """A classic group. `logged` is its only logged state; the rest are the sessions of its members."""

    __slots__ = (
        "_assignments",
        "_subscribed",
        "_support",
        "causes",
        "generation",
        "is_dismissed",
        "leader_id",
        "logged",
        "members",
        "pending",
        "protocol",
        "rebalance",
        "since_ms",
        "state",
        "static_members",
        "syncing",
        "type",
        "waiting_count",
    )

    kind = GroupKind.CLASSIC

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        self.logged: GroupMetadataValue | None = None
        """The last generation whose assignment was made, or None for a group that only has offsets."""
        self.state: State = Empty()
        # Of the calendar: when the state was entered.
        self.since_ms = NO_TIMESTAMP
        self.generation = 0
        self.type = ""
        self.protocol: str | None = None
        self.leader_id: str | None = None
        self.members: dict[str, Member] = {}
        self.static_members: dict[str, str] = {}
        """The members that have a name for good, by it."""
        self.pending: dict[str, Timer[object]] = {}
        """Who was given an id and has to join with it."""
        self.waiting_count = 0
        """How many members have joined and wait for the others."""
        self.causes: list[Cause] = []
        """Why there will be another generation."""
        self.is_dismissed = False
        """Whether it has become a group of another kind."""
        self.rebalance: Timer[object] | None = None
        self.syncing: Timer[object] | None = None
        self._assignments: dict[str, bytes] = {}
        # How many members support each protocol.
        self._support: dict[str, int] = {}
        # The topics that members read; None if it is not known, or has not been asked for since a change.
        self._subscribed: dict[str, None] | None = None

    # ------------------------------------------------------------ what the log says

    def apply(self, value: GroupMetadataValue) -> None:
        """Take in a generation; sessions are not touched by it."""
        self.logged = value
        self._assignments = {each.member_id: each.assignment for each in value.members}

    @property
    def is_unheard_of(self) -> bool:
        """Whether the log knows nothing but offsets of it, and nobody is about to join."""
        return self.logged is None and not self.members and not self.pending

    def begin_sessions(self) -> list[Member]:
        """Take up what the log says of the members; they will be heard of, or expire."""
        assert not self.members, "sessions begin once"
        logged = self.logged
        if logged is None:
            return []
        self.generation = logged.generation
        self.type = logged.protocol_type
        self.protocol = logged.protocol
        self.leader_id = logged.leader
        self.since_ms = logged.current_state_timestamp
        for each in logged.members:
            timeout_ms = each.rebalance_timeout
            self.add(
                Member(
                    each.member_id,
                    instance_id=each.group_instance_id,
                    client_id=each.client_id,
                    client_host=each.client_host,
                    session_timeout_ms=each.session_timeout,
                    rebalance_timeout_ms=each.session_timeout if timeout_ms < 0 else timeout_ms,
                    protocols=[
                        JoinGroupRequestProtocol(name=logged.protocol or "", metadata=each.subscription)
                    ],
                    is_new=False,
                )
            )
        if self.members:
            self.state = Stable()
        return list(self.members.values())

    def to_record(self, assignments: Mapping[str, bytes]) -> CoordinatorRecord:
        """The record of the present generation with these assignments."""
        return classic_group(
            self.group_id,
            GroupMetadataValue(
                protocol_type=self.type,
                generation=self.generation,
                protocol=self.protocol,
                leader=self.leader_id,
                current_state_timestamp=self.since_ms,
                members=[
                    MemberMetadata(
                        member_id=member.member_id,
                        group_instance_id=member.instance_id,
                        client_id=member.client_id,
                        client_host=member.client_host,
                        rebalance_timeout=member.rebalance_timeout_ms,
                        session_timeout=member.session_timeout_ms,
                        subscription=member.metadata(self.protocol),
                        assignment=assignments.get(member.member_id, NO_ASSIGNMENT),
                    )
                    for member in self.members.values()
                ],
            ),
        )

    def assignment(self, member_id: str) -> bytes:
        """What the member was assigned in the generation that is in the log."""
        return self._assignments.get(member_id, NO_ASSIGNMENT)

    # ------------------------------------------------------------ members

    def add(self, member: Member) -> None:
        """Let somebody in; the first one leads, and says what the group is about."""
        assert member.member_id not in self.members, member.member_id
        if member.instance_id is not None:
            assert member.instance_id not in self.static_members, member.instance_id
            self.static_members[member.instance_id] = member.member_id
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.members[member.member_id] = member
        self._count_support(member.protocols, 1)
        timer = self.pending.pop(member.member_id, None)
        if timer is not None:
            timer.cancel()

    def remove(self, member: Member) -> None:
        """Let somebody go; what it waits for must have been answered."""
        assert member.join is None, "nobody is sent away without an answer"
        assert member.sync is None, "nobody is sent away without an answer"
        del self.members[member.member_id]
        if member.instance_id is not None:
            del self.static_members[member.instance_id]
        if member.session is not None:
            member.session.cancel()
        self._count_support(member.protocols, -1)
        if self.leader_id == member.member_id:
            self.leader_id = next(iter(self.members), None)
        if isinstance(self.state, CompletingRebalance | Stable):
            self.state.unsynced.pop(member.member_id, None)

    def replace(self, member: Member, new_id: str) -> None:
        """Give a static member a new id: whoever goes on with the old one is another process."""
        assert member.instance_id is not None
        old_id = member.member_id
        # It stays where it stands, so that the order of members follows from the history alone.
        self.members = {
            new_id if each_id == old_id else each_id: each for each_id, each in self.members.items()
        }
        member.member_id = new_id
        self.static_members[member.instance_id] = new_id
        if self.leader_id == old_id:
            self.leader_id = new_id
        if isinstance(self.state, CompletingRebalance | Stable) and old_id in self.state.unsynced:
            del self.state.unsynced[old_id]
            self.state.unsynced[new_id] = None

    def update(
        self,
        member: Member,
        protocols: Sequence[JoinGroupRequestProtocol],
        *,
        session_timeout_ms: int,
        rebalance_timeout_ms: int,
    ) -> None:
        """Take over what a member says who joins again."""
        self._count_support(member.protocols, -1)
        self._count_support(protocols, 1)
        member.protocols = protocols
        member.session_timeout_ms = session_timeout_ms
        member.rebalance_timeout_ms = rebalance_timeout_ms

    def member(self, member_id: str, instance_id: str | None) -> Member:
        """The member with both names; KafkaError if there is none, or another has taken its place."""
        if instance_id is not None:
            current_id = self.static_members.get(instance_id)
            if current_id is None:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
            if current_id != member_id:
                raise KafkaError(ErrorCode.FENCED_INSTANCE_ID)
        member = self.members.get(member_id)
        if member is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        return member

    @property
    def have_all_joined(self) -> bool:
        """Whether nobody is left to wait for."""
        return self.waiting_count == len(self.members) and not self.pending

    def rebalance_timeout_ms(self) -> int:
        """How long the slowest member may take to join again."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def elect_joined_leader(self) -> bool:
        """See to it that the leader is one who has joined; tells whether there is one."""
        leader = self.members.get(self.leader_id or "")
        if leader is not None and leader.join is None:
            joined = (member.member_id for member in self.members.values() if member.join is not None)
            self.leader_id = next(joined, self.leader_id)
            return self.members[self.leader_id or ""].join is not None
        return leader is not None

    # ------------------------------------------------------------ protocols

    def supports(self, protocol_type: str, protocols: Iterable[JoinGroupRequestProtocol]) -> bool:
        """Whether somebody who speaks these could join: all members must speak one of them."""
        if isinstance(self.state, Empty):
            return bool(protocol_type) and any(True for _ in protocols)
        return protocol_type == self.type and any(
            self._support.get(each.name, 0) == len(self.members) for each in protocols
        )

    def vote(self) -> str:
        """The protocol that most members prefer of those that all speak; the first to have so many wins."""
        candidates = {name: 0 for name, count in self._support.items() if count == len(self.members)}
        for member in self.members.values():
            candidates[member.vote(candidates)] += 1
        return max(candidates, key=candidates.__getitem__)

    def _count_support(self, protocols: Iterable[JoinGroupRequestProtocol], amount: int) -> None:
        self._subscribed = None
        # Each once, however often a client names it.
        for name in dict.fromkeys(each.name for each in protocols):
            count = self._support.get(name, 0) + amount
            if count:
                self._support[name] = count
            else:
                self._support.pop(name, None)

    # ------------------------------------------------------------ as a group among others

    @property
    def state_name(self) -> str:
        """The state, in Kafka's word for it."""
        return self.state.name

    @property
    def protocol_type(self) -> str:
        """What the members do with one another."""
        return self.type

    @property
    def is_empty(self) -> bool:
        """Whether the group has no members."""
        return isinstance(self.state, Empty)

    def check_commit(
        self, *, member_id: str, instance_id: str | None, epoch: int, is_transactional: bool, version: int
    ) -> PartitionCheck | None:
        """KafkaError unless this member may commit offsets in this generation now."""
        if epoch < 0 and isinstance(self.state, Empty):
            # An admin, or a consumer that does without group management.
            return None
        if epoch >= 0 or member_id or instance_id is not None:
            self.member(member_id, instance_id)
            if epoch != self.generation:
                raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        elif not is_transactional:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        if isinstance(self.state, CompletingRebalance) and not is_transactional:
            # It knows the new generation, but not what it got there.
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
        return None

    def heard_of(self, member_id: str, now_ms: int) -> None:
        """A commit is as good as a heartbeat."""
        member = self.members.get(member_id)
        if member is not None and member.session is not None and member.session.is_set:
            member.session.deadline_ms = max(member.session.deadline_ms, now_ms + member.session_timeout_ms)

    def check_fetch(self, *, member_id: str | None, member_epoch: int) -> None:
        """Everybody may read the offsets of a classic group."""

    def check_offset_deletion(self) -> None:
        """NON_EMPTY_GROUP if nobody can tell what the members read."""
        if not isinstance(self.state, Empty) and self.type != CONSUMER_PROTOCOL:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)

    def check_deletion(self) -> None:
        """NON_EMPTY_GROUP while there are members."""
        if not isinstance(self.state, Empty):
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member reads the topic; if a consumer's subscription cannot be read, it may be this."""
        if self.type != CONSUMER_PROTOCOL or not self.members:
            return False
        topics = self._subscriptions()
        return topics is None or topic in topics

    def retention_begins_ms(self, commit_timestamp: int) -> int | None:
        """Since it became empty, or if it is stable or never had members, since the commit."""
        if not self.type:
            return commit_timestamp
        if isinstance(self.state, Empty):
            return commit_timestamp if self.since_ms == NO_TIMESTAMP else self.since_ms
        is_known = self.type == CONSUMER_PROTOCOL and self._subscriptions() is not None
        return commit_timestamp if is_known and isinstance(self.state, Stable) else None

    def tombstones(self) -> list[CoordinatorRecord]:
        """The one record after which the group is gone."""
        return [classic_group(self.group_id, None)]

    def _subscriptions(self) -> dict[str, None] | None:
        if self._subscribed is None and self.protocol is not None:
            topics: dict[str, None] = {}
            try:
                for member in self.members.values():
                    subscription = member.metadata(self.protocol)[_VERSION_BYTES:]
                    topics |= dict.fromkeys(ConsumerProtocolSubscription.decode(subscription, 0).topics)
            except MalformedMessage:
                return None
            self._subscribed = topics
        return self._subscribed
