"""From classic groups to consumer groups and back, while the members stay (KIP-848, online migration).

A classic group becomes a consumer group when a member of the new kind joins it. Its members have what they
were last assigned, in an epoch that is their generation, and are told to join again, which the new group
answers. When the last member of the new kind goes, what is left becomes a classic group, and all join once
more. In both directions a partition stays with whoever has it until that member has joined again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import Flag
from typing import Final

from moldau.coordinator.group.assignors import Partitions
from moldau.coordinator.group.classic.group import ClassicGroup, Stable
from moldau.coordinator.group.classic.group import Member as ClassicMember
from moldau.coordinator.group.classic.protocol import ClassicProtocol
from moldau.coordinator.group.consumer.embedded import (
    partitions_by_id,
    read_assignment,
    read_subscription,
    read_version,
    write_assignment,
)
from moldau.coordinator.group.consumer.group import CONSUMER_PROTOCOL, ConsumerGroup
from moldau.coordinator.group.consumer.hashing import TopicHashes
from moldau.coordinator.group.consumer.member import (
    ClassicMembership,
    CurrentAssignment,
    Interest,
    Member,
    Subscription,
    with_epoch,
    without_epochs,
)
from moldau.coordinator.group.consumer.member import ClassicProtocol as Protocol
from moldau.coordinator.group.consumer.records import (
    current_record,
    epoch_record,
    subscription_record,
    target_epoch_record,
    target_record,
)
from moldau.coordinator.group.records import size_of
from moldau.coordinator.shard import Circumstances, CoordinatorRecord, Draft
from moldau.metadata.image import Image
from moldau.model.errors import ErrorCode, KafkaError, MalformedMessage
from moldau.model.ids import TopicId, TopicName
from moldau.model.settings.resolve import Settings
from moldau.model.settings.table import (
    GROUP_CONSUMER_MAX_SIZE,
    GROUP_CONSUMER_MIGRATION_POLICY,
    GROUP_MAX_SIZE,
)
from moldau.wire.messages.consumer_protocol import ConsumerProtocolSubscription
from moldau.wire.messages.group_records import GroupMetadataValue
from moldau.wire.messages.groups import JoinGroupRequestProtocol

# Epoch 0 is for those who join.
_EPOCH_MIN: Final = 1
# What a record takes in its batch besides key and value.
_OVERHEAD_BYTES: Final = 32


class Policy(Flag):
    """In which directions groups may be migrated."""

    DISABLED = 0
    UPGRADE = 1
    DOWNGRADE = 2
    BIDIRECTIONAL = 3


class Migration:
    """Makes groups of one kind into the other."""

    def __init__(self, classic: ClassicProtocol) -> None:
        self._classic = classic

    # -------------------------------------------------------------------------------- to a consumer group

    def upgrade(
        self, classic: ClassicGroup, hashes: TopicHashes, circumstances: Circumstances
    ) -> tuple[ConsumerGroup, list[CoordinatorRecord]]:
        """The group as a consumer group, and the records that make it one; nothing has changed yet.

        GROUP_ID_NOT_FOUND if it may not become one, as for a group of any other kind.
        """
        settings, image = circumstances.settings, circumstances.image
        size_max = settings[GROUP_CONSUMER_MAX_SIZE]
        if Policy.UPGRADE not in _policy(settings):
            raise _stays_classic(classic, "groups may not be upgraded here")
        if classic.type != CONSUMER_PROTOCOL:
            raise _stays_classic(classic, f"its members are not consumers, but {classic.type!r}")
        if len(classic.members) > size_max:
            raise _stays_classic(classic, f"it has more than {size_max} members")
        epoch = max(classic.generation, _EPOCH_MIN)
        try:
            members = _consumer_members(classic, epoch, image)
        except MalformedMessage as malformed:
            raise _stays_classic(classic, f"a member cannot be understood: {malformed}") from malformed

        group_id = classic.group_id
        topics = dict.fromkeys(topic for member in members for topic in member.subscription.interest.topics)
        metadata_hash = hashes.of_group(topics, image)
        made = [
            *(subscription_record(group_id, each.member_id, each.subscription) for each in members),
            epoch_record(group_id, epoch, metadata_hash),
            *(target_record(group_id, each.member_id, _assigned(each)) for each in members),
            target_epoch_record(group_id, epoch, 0),
            *(current_record(group_id, each.member_id, each.current) for each in members),
        ]
        records = [*classic.tombstones(), *made]
        if not _fits(records, circumstances):
            # In two batches, one of them could be lost, and with it who has what.
            raise _stays_classic(classic, "it is too large to be upgraded at once")
        group = ConsumerGroup(group_id)
        for record in made:
            group.apply(record.key, record.value)
        return group, records

    def dismiss(self, classic: ClassicGroup, draft: Draft) -> None:
        """The classic group has become a consumer group: whoever waits in it is to join again."""
        self._classic.dismiss(classic, draft)

    # --------------------------------------------------------------------------------- to a classic group

    def downgrade(
        self, group: ConsumerGroup, leaving: Mapping[str, object], draft: Draft, circumstances: Circumstances
    ) -> bool:
        """Make it a classic group if only classic members stay; False if it stays what it is."""
        leaving_classic = sum(group.members[member_id].is_classic for member_id in leaving)
        if group.classic_count - leaving_classic != len(group.members) - len(leaving):
            return False
        staying = [each for each in group.members.values() if each.member_id not in leaving]
        return self._hand_over(group, staying, draft, circumstances, is_settled=False)

    def downgrade_with(
        self, group: ConsumerGroup, returning: Member, draft: Draft, circumstances: Circumstances
    ) -> bool:
        """The same when the last member of the new kind is static and returns, already told as a classic one.

        The classic group gets it as it was, with the id that it had: there it joins, and gets its new one.
        """
        before = group.members[returning.member_id]
        if before.is_classic or group.classic_count != len(group.members) - 1:
            return False
        members = [returning if each is before else each for each in group.members.values()]
        # If all have what they are to have in this very epoch, nobody has to join again.
        is_settled = group.epoch == group.target_epoch and all(
            without_epochs(each.current.assigned) == group.target.get(each.member_id, {})
            and (each is returning or each.current.is_reconciled_to(group.epoch))
            for each in members
        )
        return self._hand_over(group, members, draft, circumstances, is_settled=is_settled)

    def _hand_over(
        self,
        group: ConsumerGroup,
        members: list[Member],
        draft: Draft,
        circumstances: Circumstances,
        *,
        is_settled: bool,
    ) -> bool:
        settings = circumstances.settings
        if not members or len(members) > settings[GROUP_MAX_SIZE]:
            return False
        if Policy.DOWNGRADE not in _policy(settings):
            return False
        classic = _classic_group(group, members, circumstances.wall_ms)
        # Not what they are to have: whoever loads this, or makes it a consumer group again before all have
        # joined, must know what each may still be reading.
        held = {each.member_id: _held(each) for each in members}
        assignments = {
            each.member_id: write_assignment(
                held[each.member_id],
                read_version(each.metadata(classic.protocol)),
                circumstances.image,
            )
            for each in classic.members.values()
        }
        record = classic.to_record(assignments)
        records = [*group.tombstones(), record]
        if not _fits(records, circumstances):
            return False
        draft.records += records
        # A member that comes back is answered out of the record in the decision that writes it.
        assert isinstance(record.value, GroupMetadataValue)
        classic.apply(record.value)
        self._classic.adopt(classic, draft, circumstances, is_settled=is_settled)
        return True


# --------------------------------------------------------------------------------- members of either kind


def _consumer_members(classic: ClassicGroup, epoch: int, image: Image) -> list[Member]:
    """The members with what they have; MalformedMessage if one of them cannot be read."""
    # While the first generation is still gathering, it has no protocol yet.
    subscriptions = {
        each.member_id: read_subscription(each.metadata(classic.protocol) or each.protocols[0].metadata)
        for each in classic.members.values()
    }
    held = _held_in(classic, subscriptions, image)
    members = []
    for each in classic.members.values():
        said = subscriptions[each.member_id]
        subscription = Subscription(
            interest=Interest(tuple(sorted({*map(TopicName, said.topics)}))),
            instance_id=each.instance_id,
            rack_id=said.rack_id or None,
            client_id=each.client_id,
            client_host=each.client_host,
            rebalance_timeout_ms=each.rebalance_timeout_ms,
            classic=ClassicMembership(
                each.session_timeout_ms, tuple(Protocol(one.name, one.metadata) for one in each.protocols)
            ),
        )
        assigned = with_epoch(held[each.member_id], epoch)
        current = CurrentAssignment(epoch=epoch, previous_epoch=epoch, assigned=assigned)
        members.append(Member(each.member_id, subscription, current))
    return members


def _held_in(
    classic: ClassicGroup, subscriptions: Mapping[str, ConsumerProtocolSubscription], image: Image
) -> dict[str, Partitions]:
    """What members of a classic group may be reading; what several claim, only one of them has.

    They have what they were assigned last. A cooperative member that was assigned less than it had reads the
    rest, too, until it joins once more, and what it had it said when it joined.
    """
    holders: dict[tuple[TopicId, int], str] = {}
    for member_id in classic.members:
        for place in _places(_last_assigned(classic.assignment(member_id), image)):
            holders.setdefault(place, member_id)
    for member_id, said in subscriptions.items():
        for place in _places(partitions_by_id(said.owned_partitions, image)):
            holders.setdefault(place, member_id)
    held: dict[str, dict[TopicId, tuple[int, ...]]] = {member_id: {} for member_id in classic.members}
    for (topic_id, number), member_id in sorted(holders.items()):
        held[member_id][topic_id] = (*held[member_id].get(topic_id, ()), number)
    return {**held}


def _places(partitions: Partitions) -> Iterator[tuple[TopicId, int]]:
    for topic_id, numbers in partitions.items():
        for number in numbers:
            yield topic_id, number


def _last_assigned(data: bytes, image: Image) -> Partitions:
    """What a member was assigned."""
    if not data:
        return {}
    assignment = read_assignment(data)
    if assignment.user_data:
        raise MalformedMessage("its assignor adds data of its own")
    return partitions_by_id(assignment.assigned_partitions, image)


def _assigned(member: Member) -> Partitions:
    return without_epochs(member.current.assigned)


def _held(member: Member) -> Partitions:
    """What a member may be reading: all that it was given and has not given up."""
    held = {topic_id: [*epochs] for topic_id, epochs in member.current.assigned.items()}
    for topic_id, epochs in member.current.revoking.items():
        held.setdefault(topic_id, []).extend(epochs)
    return {topic_id: tuple(sorted(numbers)) for topic_id, numbers in held.items()}


def _classic_group(group: ConsumerGroup, members: Iterable[Member], wall_ms: int) -> ClassicGroup:
    """A stable classic group of these members, whose generation is the epoch of the consumer group."""
    classic = ClassicGroup(group.group_id)
    classic.type = CONSUMER_PROTOCOL
    classic.generation = group.epoch
    classic.since_ms = wall_ms
    for each in members:
        said, membership = each.subscription, each.subscription.classic
        assert membership is not None, each.member_id
        classic.add(
            ClassicMember(
                each.member_id,
                instance_id=said.instance_id,
                client_id=said.client_id,
                client_host=said.client_host,
                session_timeout_ms=membership.session_timeout_ms,
                rebalance_timeout_ms=said.rebalance_timeout_ms,
                protocols=[
                    JoinGroupRequestProtocol(name=one.name, metadata=one.metadata)
                    for one in membership.protocols
                ],
                is_new=False,
            )
        )
    classic.state = Stable()
    classic.protocol = classic.vote()
    return classic


# ------------------------------------------------------------------------------------------------- leaves


def _policy(settings: Settings) -> Policy:
    return Policy[settings[GROUP_CONSUMER_MIGRATION_POLICY].upper()]


def _fits(records: Iterable[CoordinatorRecord], circumstances: Circumstances) -> bool:
    return sum(size_of(record) + _OVERHEAD_BYTES for record in records) <= circumstances.batch_bytes_max


def _stays_classic(classic: ClassicGroup, why: str) -> KafkaError:
    return KafkaError(
        ErrorCode.GROUP_ID_NOT_FOUND, f"Group {classic.group_id!r} stays a classic group: {why}."
    )
