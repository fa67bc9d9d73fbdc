"""A consumer group while a decision changes it: what it will be, and the records that will make it so."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from moldau.coordinator.group.assignors import ASSIGNORS, NO_RACKS, Partitions, Subscriber
from moldau.coordinator.group.consumer.group import ConsumerGroup
from moldau.coordinator.group.consumer.hashing import TopicHashes
from moldau.coordinator.group.consumer.member import (
    JOINING,
    CurrentAssignment,
    Interest,
    Member,
    Subscription,
)
from moldau.coordinator.group.consumer.racks import racks_of
from moldau.coordinator.group.consumer.reconcile import Owned, Target, reconcile
from moldau.coordinator.group.consumer.records import (
    current_record,
    epoch_record,
    member_tombstones,
    partition_metadata_tombstone,
    regex_record,
    subscription_record,
    target_epoch_record,
    target_record,
)
from moldau.coordinator.group.consumer.regexes import ResolvedRegex, matching
from moldau.coordinator.group.history import Cause, What
from moldau.coordinator.shard import CoordinatorRecord
from moldau.metadata.image import Image
from moldau.model.ids import TopicId, TopicName


class GroupChange:
    """The group as it will be once the records are applied. Nothing of the group itself changes here."""

    def __init__(self, group: ConsumerGroup, image: Image) -> None:
        self.group = group
        self.records: list[CoordinatorRecord] = []
        # Why the epoch was raised.
        self.causes: list[Cause] = []
        self.epoch = group.epoch
        self.target_epoch = group.target_epoch
        self._image = image
        # Only what is changed; None is what is gone.
        self._members: dict[str, Member | None] = {}
        self._targets: dict[str, Partitions | None] = {}
        self._regexes: dict[str, ResolvedRegex | None] = {}
        self._predecessor_ids: dict[str, str] = {}

    # -------------------------------------------------------------------------------------- as it will be

    def member(self, member_id: str) -> Member:
        """A member that is in the group, or will be."""
        return self._members.get(member_id) or self.group.members[member_id]

    def is_known(self, member_id: str) -> bool:
        """Whether the member was in the group before, be it under another id."""
        return member_id in self.group.members or member_id in self._predecessor_ids

    def members(self) -> Iterator[Member]:
        """All of them: only for what has to look at everybody."""
        for member_id, member in self.group.members.items():
            changed = self._members.get(member_id, member)
            if changed is not None:
                yield changed
        for member_id, changed in self._members.items():
            if changed is not None and member_id not in self.group.members:
                yield changed

    def target(self, member_id: str) -> Partitions:
        """What a member is to have."""
        target = self._targets[member_id] if member_id in self._targets else self.group.target.get(member_id)
        return target or {}

    def regex(self, regex: str) -> ResolvedRegex | None:
        """What an expression stands for."""
        return self._regexes[regex] if regex in self._regexes else self.group.regexes.get(regex)

    def topics_of(self, interest: Interest) -> tuple[TopicName, ...]:
        """The names that an interest stands for."""
        resolved = self.regex(interest.regex) if interest.regex else None
        if resolved is None or not resolved.topics:
            return interest.topics
        return tuple(sorted({*interest.topics, *resolved.topics}))

    def topic_ids_of(self, interest: Interest) -> tuple[TopicId, ...]:
        """The ids of those topics that exist, in order."""
        topics = self._image.topics
        found = (topics.get(name) for name in self.topics_of(interest))
        return tuple(sorted(topic.id for topic in found if topic is not None))

    def interests(self) -> Mapping[Interest, int]:
        """All that members want, with how many want it."""
        counts = dict(self.group.interests())
        for member_id, member in self._members.items():
            before = self.group.members.get(member_id)
            if before is not None:
                counts[before.subscription.interest] -= 1
            if member is not None:
                interest = member.subscription.interest
                counts[interest] = counts.get(interest, 0) + 1
        return {interest: count for interest, count in counts.items() if count}

    # ---------------------------------------------------------------------------------------- its members

    def put_subscription(self, member_id: str, subscription: Subscription) -> bool:
        """What a member says of itself; True if it wants other topics than before, or is new."""
        before = self._members.get(member_id) or self.group.members.get(member_id)
        if before is not None and before.subscription == subscription:
            return False
        self._members[member_id] = replace(before or Member(member_id), subscription=subscription)
        self.records.append(subscription_record(self.group.group_id, member_id, subscription))
        return before is None or before.subscription.interest != subscription.interest

    def put_current(self, member_id: str, current: CurrentAssignment) -> bool:
        """What a member has; True if that is not what it had."""
        before = self.member(member_id)
        if before.current == current:
            return False
        self._members[member_id] = replace(before, current=current)
        self.records.append(current_record(self.group.group_id, member_id, current))
        return True

    def remove(self, member_id: str) -> None:
        """A member leaves, or is cast out; what it had is free."""
        self._members[member_id] = None
        self._targets[member_id] = None
        self.records += member_tombstones(self.group.group_id, member_id)

    def succeed(self, predecessor: Member, member_id: str) -> None:
        """A static member is back under another id: it has what it had, and joins as if anew."""
        group_id = self.group.group_id
        target = self.target(predecessor.member_id)
        self.remove(predecessor.member_id)
        current = replace(predecessor.current, epoch=JOINING, previous_epoch=JOINING)
        self._predecessor_ids[member_id] = predecessor.member_id
        self._members[member_id] = Member(member_id, predecessor.subscription, current)
        self._targets[member_id] = target
        self.records += (
            subscription_record(group_id, member_id, predecessor.subscription),
            target_record(group_id, member_id, target),
            current_record(group_id, member_id, current),
        )

    def reconcile(self, member_id: str, owned: Owned | None, *, wants_other_topics: bool) -> bool:
        """Bring a member one step towards its target; True if that changed what it has."""
        member = self.member(member_id)
        if member.current.is_reconciled_to(self.target_epoch) and not wants_other_topics:
            return False
        wanted = frozenset(self.topic_ids_of(member.subscription.interest))
        itself = (None, member_id, self._predecessor_ids.get(member_id))
        return self.put_current(
            member_id,
            reconcile(
                member.current,
                Target(self.target_epoch, self.target(member_id)),
                owned=owned,
                wants=wanted.__contains__,
                is_held_by_another=lambda *partition: self.group.holder(*partition) not in itself,
                wants_other_topics=wants_other_topics,
            ),
        )

    # ------------------------------------------------------------------------------------ its expressions

    def resolve_regexes(self, wall_ms: int) -> None:
        """Look up what nobody subscribed to before, and forget what nobody subscribes to any more."""
        wanted = dict.fromkeys(interest.regex for interest in self.interests() if interest.regex)
        for regex in wanted:
            if self.regex(regex) is None:
                topics = matching(regex, self._image.topics)
                self.put_regex(regex, ResolvedRegex(tuple(topics), self._image.offset, wall_ms))
        for regex in self.group.regexes:
            if regex not in wanted:
                self.put_regex(regex, None)

    def refresh_regexes(self, created: Iterable[TopicName], wall_ms: int) -> bool:
        """Topics have come and gone, or may have; True if an expression stands for others now."""
        has_changed = False
        for regex, before in self.group.regexes.items():
            if regex in self._regexes:
                continue
            still = (topic for topic in before.topics if topic in self._image.topics)
            topics = tuple(sorted({*still, *matching(regex, created)}))
            if topics != before.topics:
                self.put_regex(regex, ResolvedRegex(topics, self._image.offset, wall_ms))
                has_changed = True
        return has_changed

    def put_regex(self, regex: str, resolved: ResolvedRegex | None) -> None:
        """What an expression stands for; None if nobody subscribes to it any more."""
        self._regexes[regex] = resolved
        self.records.append(regex_record(self.group.group_id, regex, resolved))

    # ----------------------------------------------------------------------------------------- its epochs

    def raise_epoch(self, hashes: TopicHashes, *causes: Cause) -> None:
        """Have the group assigned anew, if there is a cause or its topics are not what they were."""
        metadata_hash = hashes.of_group(self._topics(), self._image)
        if metadata_hash != self.group.metadata_hash and not causes:
            causes = (Cause(What.TOPICS_CHANGED),)
        if causes:
            self.causes += causes
            self.epoch += 1
            self.records.append(epoch_record(self.group.group_id, self.epoch, metadata_hash))
        if self.group.has_partition_metadata:
            self.records.append(partition_metadata_tombstone(self.group.group_id))

    def make_target(self, default_assignor: str, wall_ms: int) -> None:
        """Decide anew what every member is to have."""
        topic_ids: dict[Interest, tuple[TopicId, ...]] = {}
        subscribers = []
        for member in self.members():
            interest = member.subscription.interest
            if interest not in topic_ids:
                topic_ids[interest] = self.topic_ids_of(interest)
            subscribers.append(
                Subscriber(
                    member.member_id,
                    topic_ids[interest],
                    self.target(member.member_id),
                    member.subscription.instance_id,
                    member.subscription.rack_id,
                )
            )
        image = self._image
        topics = {
            topic_id: image.topics[image.topic_names[topic_id]]
            for ids in topic_ids.values()
            for topic_id in ids
        }
        counts = {topic_id: len(topic.partitions) for topic_id, topic in topics.items()}
        # Most members do not say where they are, and then nobody has to know where anything is.
        has_racks = any(subscriber.rack is not None for subscriber in subscribers)
        racks = NO_RACKS
        if has_racks:
            racks = {topic_id: racks_of(topic, image) for topic_id, topic in topics.items()}
        assign = ASSIGNORS[self.preferred_assignor() or default_assignor]
        assigned = assign(subscribers, counts, racks)

        group_id = self.group.group_id
        # If all of it is too much for one batch, members first lose what others then get.
        for member_id in sorted(assigned, key=lambda each: _size(assigned[each]) - _size(self.target(each))):
            partitions = assigned[member_id]
            if partitions != self._targets.get(member_id, self.group.target.get(member_id)):
                self._targets[member_id] = partitions
                self.records.append(target_record(group_id, member_id, partitions))
        self.target_epoch = self.epoch
        self.records.append(target_epoch_record(group_id, self.epoch, wall_ms))

    def preferred_assignor(self) -> str | None:
        """The assignor that most members ask for, if any does."""
        counts = dict(self.group.assignors())
        for member_id, member in self._members.items():
            before = self.group.members.get(member_id)
            for each, by in ((before, -1), (member, 1)):
                assignor = None if each is None else each.subscription.assignor
                if assignor is not None:
                    counts[assignor] = counts.get(assignor, 0) + by
        asked_for = [name for name in sorted(counts) if counts[name] and name in ASSIGNORS]
        return max(asked_for, key=lambda name: counts[name], default=None)

    def _topics(self) -> Iterable[TopicName]:
        if not self._members and not self._regexes:
            return self.group.topics()
        return dict.fromkeys(topic for interest in self.interests() for topic in self.topics_of(interest))


def _size(partitions: Partitions) -> int:
    return sum(map(len, partitions.values()))
