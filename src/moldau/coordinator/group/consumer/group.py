"""A consumer group as the log tells it: its epochs, its members, what they are to have and what they have."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import ClassVar, Final, TypeVar

from moldau.coordinator.group.assignors import Partitions
from moldau.coordinator.group.consumer.member import (
    LEAVING,
    CurrentAssignment,
    Epochs,
    Interest,
    Member,
    MemberState,
    Subscription,
)
from moldau.coordinator.group.consumer.records import (
    current_of,
    group_tombstones,
    partitions_of,
    regex_of,
    subscription_of,
)
from moldau.coordinator.group.consumer.regexes import ResolvedRegex
from moldau.coordinator.group.group import Group, GroupKind, PartitionCheck
from moldau.coordinator.shard import CoordinatorRecord
from moldau.model.errors import ErrorCode, KafkaError
from moldau.model.ids import TopicId, TopicName, Uuid
from moldau.wire.message import CoordinatorKey, CoordinatorValue
from moldau.wire.messages import group_records as wire

T = TypeVar("T")

CONSUMER_PROTOCOL: Final = "consumer"

# The first version of OffsetCommit in which a number can be a member's epoch.
_EPOCH_VERSION_MIN: Final = 9
_NO_TARGET_EPOCH: Final = -1


class ConsumerGroup(Group):
    """The group, changed only by what the log says; what can be counted is counted as it changes.

    Nothing here walks all members, or a heartbeat would cost more the more members there are. Whatever has to
    look at all of them, as a new target has, does so only when the group has changed.
    """

    __slots__ = (
        "_assignors",
        "_classic_count",
        "_classic_protocols",
        "_holders",
        "_interests",
        "_shared_interests",
        "_stable_by_epoch",
        "_topics",
        "epoch",
        "has_partition_metadata",
        "members",
        "metadata_hash",
        "regexes",
        "static_member_ids",
        "target",
        "target_epoch",
        "target_timestamp_ms",
    )

    kind: ClassVar[GroupKind] = GroupKind.CONSUMER

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id)
        # Raised whenever members, subscriptions or topics change; the target follows it.
        self.epoch = 1
        self.metadata_hash = 0
        self.members: dict[str, Member] = {}
        self.static_member_ids: dict[str, str] = {}
        self.target_epoch = _NO_TARGET_EPOCH
        self.target_timestamp_ms = 0
        self.target: dict[str, Partitions] = {}
        self.regexes: dict[str, ResolvedRegex] = {}
        # Whether the log still has a record of the kind that Kafka wrote before 4.1.
        self.has_partition_metadata = False
        # Who has a partition, be it to give it up: nobody else may get it meanwhile.
        self._holders: dict[TopicId, dict[int, str]] = {}
        # How many members want the same; mostly all of them do.
        self._interests: dict[Interest, int] = {}
        self._shared_interests: dict[Interest, Interest] = {}
        self._assignors: dict[str, int] = {}
        self._classic_count = 0
        self._classic_protocols: dict[str, int] = {}
        self._stable_by_epoch: dict[int, int] = {}
        self._topics: Mapping[TopicName, None] | None = None

    # ------------------------------------------------------------------------------------ what it is like

    @property
    def state_name(self) -> str:
        """Empty, Assigning, Reconciling or Stable."""
        if not self.members:
            return "Empty"
        if self.epoch > self.target_epoch:
            return "Assigning"
        if self._stable_by_epoch.get(self.target_epoch, 0) < len(self.members):
            return "Reconciling"
        return "Stable"

    @property
    def protocol_type(self) -> str:
        """Always that of consumers."""
        return CONSUMER_PROTOCOL

    @property
    def is_empty(self) -> bool:
        """Whether nobody is in it."""
        return not self.members

    @property
    def classic_count(self) -> int:
        """How many members join and sync."""
        return self._classic_count

    def static_member(self, instance_id: str | None) -> Member | None:
        """The member with this instance id."""
        member_id = None if instance_id is None else self.static_member_ids.get(instance_id)
        return None if member_id is None else self.members.get(member_id)

    def holder(self, topic_id: TopicId, partition: int) -> str | None:
        """The member that has the partition, or has yet to say that it gave it up."""
        return self._holders.get(topic_id, {}).get(partition)

    def interests(self) -> Mapping[Interest, int]:
        """All that members want, with how many want it."""
        return self._interests

    def assignors(self) -> Mapping[str, int]:
        """The assignors that members ask for, with how many ask for it."""
        return self._assignors

    def topics(self) -> Mapping[TopicName, None]:
        """The names of all topics that members subscribe to, or that match what they subscribe to."""
        if self._topics is None:
            topics: dict[TopicName, None] = {}
            for interest in self._interests:
                topics |= dict.fromkeys(interest.topics)
            for resolved in self.regexes.values():
                topics |= dict.fromkeys(resolved.topics)
            self._topics = topics
        return self._topics

    def supports_classic(self, protocol_names: Iterable[str]) -> bool:
        """Whether a classic member with these protocols has one in common with all other classic members."""
        return any(self._classic_protocols.get(name, 0) == self._classic_count for name in protocol_names)

    # ------------------------------------------------------------------------------- what the log changes

    def apply(self, key: CoordinatorKey, value: CoordinatorValue | None) -> None:
        """Take in a record of this group; the one that ends the group is for those who keep it."""
        match key:
            case wire.ConsumerGroupCurrentMemberAssignmentKey(member_id=member_id):
                if value is None:
                    self.drop_current(member_id)
                else:
                    assert isinstance(value, wire.ConsumerGroupCurrentMemberAssignmentValue)
                    self.put_current(member_id, current_of(value))
            case wire.ConsumerGroupMemberMetadataKey(member_id=member_id):
                if value is None:
                    self.drop_member(member_id)
                else:
                    assert isinstance(value, wire.ConsumerGroupMemberMetadataValue)
                    self.put_subscription(member_id, subscription_of(value))
            case wire.ConsumerGroupTargetAssignmentMemberKey(member_id=member_id):
                if value is None:
                    self.target.pop(member_id, None)
                else:
                    assert isinstance(value, wire.ConsumerGroupTargetAssignmentMemberValue)
                    self.target[member_id] = partitions_of(value)
            case wire.ConsumerGroupTargetAssignmentMetadataKey():
                self.target_epoch, self.target_timestamp_ms = _NO_TARGET_EPOCH, 0
                if value is not None:
                    assert isinstance(value, wire.ConsumerGroupTargetAssignmentMetadataValue)
                    self.target_epoch = value.assignment_epoch
                    self.target_timestamp_ms = value.assignment_timestamp
            case wire.ConsumerGroupMetadataKey():
                assert isinstance(value, wire.ConsumerGroupMetadataValue)
                self.epoch, self.metadata_hash = value.epoch, value.metadata_hash
            case wire.ConsumerGroupRegularExpressionKey(regular_expression=regex):
                assert value is None or isinstance(value, wire.ConsumerGroupRegularExpressionValue)
                self.put_regex(regex, None if value is None else regex_of(value))
            case wire.ConsumerGroupPartitionMetadataKey():
                self.has_partition_metadata = value is not None
            case _:
                raise AssertionError(f"{type(key).__name__} is not about consumer groups")

    def put_subscription(self, member_id: str, subscription: Subscription) -> None:
        """A member has said something of itself, for the first time or anew."""
        old = self.members.get(member_id)
        if old is not None:
            self._count_subscription(old.subscription, -1)
            self._forget_instance(old)
        # Members who want the same share it, however many there are.
        shared = self._shared_interests.setdefault(subscription.interest, subscription.interest)
        subscription = replace(subscription, interest=shared)
        self._count_subscription(subscription, +1)
        if old is None:
            old = Member(member_id)
            self._hold(member_id, old.current)
        self.members[member_id] = replace(old, subscription=subscription)
        if subscription.instance_id is not None:
            self.static_member_ids[subscription.instance_id] = member_id

    def put_current(self, member_id: str, current: CurrentAssignment) -> None:
        """A member has got or given up partitions, or moved on to another epoch."""
        old = self.members.get(member_id)
        if old is None:
            # A log that was cleaned may tell what a member has before it says who it is.
            old = Member(member_id)
            self._count_subscription(old.subscription, +1)
        else:
            # First released, then held: what is given back while it was to be given up is in both.
            self._release(member_id, old.current)
        self._hold(member_id, current)
        self.members[member_id] = replace(old, current=current)

    def drop_current(self, member_id: str) -> None:
        """A member has nothing any more; it goes, or is about to."""
        if member_id in self.members:
            self.put_current(member_id, CurrentAssignment(epoch=LEAVING))

    def drop_member(self, member_id: str) -> None:
        """A member has gone."""
        old = self.members.pop(member_id, None)
        if old is None:
            return
        self._release(member_id, old.current)
        self._count_subscription(old.subscription, -1)
        self._forget_instance(old)

    def put_regex(self, regex: str, resolved: ResolvedRegex | None) -> None:
        """An expression stands for these topics now, or nobody subscribes to it any more."""
        if resolved is None:
            self.regexes.pop(regex, None)
        else:
            self.regexes[regex] = resolved
        self._topics = None

    def _forget_instance(self, member: Member) -> None:
        instance_id = member.subscription.instance_id
        # Its successor may have taken the instance over already.
        if instance_id is not None and self.static_member_ids.get(instance_id) == member.member_id:
            del self.static_member_ids[instance_id]

    def _hold(self, member_id: str, current: CurrentAssignment) -> None:
        for topic_id, partition in _each(current.assigned, current.revoking):
            self._holders.setdefault(topic_id, {})[partition] = member_id
        if current.state is MemberState.STABLE:
            _count(self._stable_by_epoch, current.epoch, +1)

    def _release(self, member_id: str, current: CurrentAssignment) -> None:
        for topic_id, partition in _each(current.assigned, current.revoking):
            holders = self._holders.get(topic_id, {})
            # Whoever has got it since keeps it.
            if holders.get(partition) == member_id:
                del holders[partition]
                if not holders:
                    del self._holders[topic_id]
        if current.state is MemberState.STABLE:
            _count(self._stable_by_epoch, current.epoch, -1)

    def _count_subscription(self, subscription: Subscription, by: int) -> None:
        _count(self._interests, subscription.interest, by)
        if subscription.interest not in self._interests:
            self._shared_interests.pop(subscription.interest, None)
        self._topics = None
        if subscription.assignor is not None:
            _count(self._assignors, subscription.assignor, by)
        if subscription.classic is not None:
            self._classic_count += by
            for name in dict.fromkeys(protocol.name for protocol in subscription.classic.protocols):
                _count(self._classic_protocols, name, by)

    # -------------------------------------------------------------------------- what groups are asked for

    def check_commit(
        self, *, member_id: str, instance_id: str | None, epoch: int, is_transactional: bool, version: int
    ) -> PartitionCheck | None:
        """A member may commit in its epoch, and in an older one what it has had since before (KIP-1251)."""
        if epoch < 0 and not self.members:
            return None
        if is_transactional and epoch == -1 and not member_id and instance_id is None:
            # Transactions need not say who they are.
            return None
        member = self._known(member_id)
        if not is_transactional and not member.is_classic and version < _EPOCH_VERSION_MIN:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"Members with an epoch commit with OffsetCommit {_EPOCH_VERSION_MIN} or later.",
            )
        if epoch == member.current.epoch:
            return None
        if epoch > member.current.epoch:
            raise _stale(member, epoch)

        def check(topic: str, topic_id: Uuid, partition: int) -> None:
            since = member.current.assignment_epoch(TopicId(topic_id), partition)
            if since is None or epoch < since:
                raise _stale(member, epoch)

        return check

    def heard_of(self, member_id: str, now_ms: int) -> None:
        """Only heartbeats keep a member of this kind alive."""

    def check_fetch(self, *, member_id: str | None, member_epoch: int) -> None:
        """A member reads in its own epoch; whoever names no member may read."""
        if member_id is None and member_epoch < 0:
            return
        member = self._known(member_id or "")
        if member_epoch != member.current.epoch:
            raise _stale(member, member_epoch)

    def check_offset_deletion(self) -> None:
        """Offsets may always be deleted, of topics to which nobody subscribes."""

    def check_deletion(self) -> None:
        """Only an empty group may go."""
        if self.members:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member subscribes to the topic, by its name or by an expression."""
        return topic in self.topics()

    def retention_begins_ms(self, commit_timestamp: int) -> int | None:
        """An offset is kept from its commit on, as long as nobody subscribes to its topic."""
        return commit_timestamp

    def tombstones(self) -> list[CoordinatorRecord]:
        """The end of the group and of whoever is in it."""
        return group_tombstones(self.group_id, self.members, self.regexes)

    def _known(self, member_id: str) -> Member:
        member = self.members.get(member_id)
        if member is None:
            raise unknown_member(self.group_id, member_id)
        return member


def unknown_member(group_id: str, member_id: str) -> KafkaError:
    """The refusal of somebody who is not in the group."""
    return KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"{member_id!r} is not a member of group {group_id!r}.")


def _stale(member: Member, epoch: int) -> KafkaError:
    code = ErrorCode.ILLEGAL_GENERATION if member.is_classic else ErrorCode.STALE_MEMBER_EPOCH
    return KafkaError(code, f"The member is in epoch {member.current.epoch}, and came with {epoch}.")


def _each(*assignments: Epochs) -> Iterator[tuple[TopicId, int]]:
    for assignment in assignments:
        for topic_id, epochs in assignment.items():
            for partition in epochs:
                yield topic_id, partition


def _count(counts: dict[T, int], key: T, by: int) -> None:
    count = counts.get(key, 0) + by
    assert count >= 0, (key, count)
    if count:
        counts[key] = count
    else:
        del counts[key]
