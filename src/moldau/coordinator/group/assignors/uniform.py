"""The uniform assignor: everybody gets equally much, and keeps as much of it as that allows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from moldau.coordinator.group.assignors.assignment import (
    NO_RACKS,
    PartitionCounts,
    PartitionRacks,
    Partitions,
    Subscriber,
)
from moldau.coordinator.group.assignors.dealing import deal
from moldau.coordinator.group.assignors.nearness import (
    Bundle,
    bundles_of,
    has_near_and_far,
    near_to_members,
)
from moldau.coordinator.group.assignors.uneven import assign_unevenly
from moldau.model.ids import TopicId

_TopicPartition = tuple[TopicId, int]


def assign_uniformly(
    members: Sequence[Subscriber], counts: PartitionCounts, racks: PartitionRacks = NO_RACKS
) -> dict[str, Partitions]:
    """Balance before nearness before stickiness."""
    ordered = sorted(members, key=lambda member: member.member_id)
    if not ordered:
        return {}
    topics = ordered[0].topics
    if all(member.topics is topics or member.topics == topics for member in ordered):
        assigned = _assign_evenly(ordered, counts)
    else:
        assigned = assign_unevenly(ordered, counts)
    if not has_near_and_far(ordered, racks):
        return assigned
    wanted = dict.fromkeys(topic for member in ordered for topic in member.topics)
    # Within a topic first, so that it stays spread over as many members as it was.
    assigned = near_to_members(assigned, ordered, racks, [bundles_of(counts, [topic]) for topic in wanted])
    alike: dict[tuple[TopicId, ...], list[Bundle]] = {}
    for member in ordered:
        bundles = [
            ((topic, each),) for topic, numbers in assigned[member.member_id].items() for each in numbers
        ]
        alike.setdefault(member.topics, []).extend(bundles)
    return near_to_members(assigned, ordered, racks, [*alike.values()])


def _assign_evenly(members: Sequence[Subscriber], counts: PartitionCounts) -> dict[str, Partitions]:
    """All members want the same topics, so no two of them end more than one partition apart."""
    topics = members[0].topics
    pool = _Pool(topics, counts)
    kept = [pool.claim(member.owned) for member in members]
    sizes = [sum(map(len, partitions.values())) for partitions in kept]

    share, extra_count = divmod(sum(counts[topic] for topic in topics), len(members))
    # Whoever has more than the share keeps one more, as long as there are some to be had. Those that are left
    # go to members who get something anyway, so that few assignments change.
    richest_first = sorted(
        range(len(members)), key=lambda index: (sizes[index] <= share, sizes[index] == share)
    )
    missing = [0] * len(members)
    for position, index in enumerate(richest_first):
        quota = share + (position < extra_count)
        if sizes[index] > quota:
            kept[index] = pool.give_up(kept[index], quota)
        else:
            missing[index] = quota - sizes[index]

    gained: dict[int, dict[TopicId, list[int]]] = {}
    for index, (topic, partition) in deal(pool.unclaimed(), dict(enumerate(missing))):
        gained.setdefault(index, {}).setdefault(topic, []).append(partition)
    return {
        member.member_id: _merged(kept[index], gained[index]) if index in gained else kept[index]
        for index, member in enumerate(members)
    }


class _Pool:
    """Which partitions of some topics have an owner."""

    def __init__(self, topics: Iterable[TopicId], counts: PartitionCounts) -> None:
        self._is_claimed = {topic: bytearray(counts[topic]) for topic in topics}

    def claim(self, owned: Partitions) -> Partitions:
        """The part of `owned` that exists and that nobody has claimed before."""
        is_whole = True
        claimed: dict[TopicId, tuple[int, ...]] = {}
        for topic, partitions in owned.items():
            marks = self._is_claimed.get(topic)
            if marks is None:
                is_whole = False
                continue
            mine = tuple(each for each in partitions if each < len(marks) and not marks[each])
            for each in mine:
                marks[each] = True
            is_whole = is_whole and len(mine) == len(partitions)
            if mine:
                claimed[topic] = mine
        return owned if is_whole else claimed

    def give_up(self, owned: Partitions, keep_count: int) -> Partitions:
        """Keep so many, the lowest numbers of all topics: what is kept stays spread, and so is the rest."""
        by_number = sorted(
            (partition, topic) for topic, partitions in owned.items() for partition in partitions
        )
        kept: dict[TopicId, list[int]] = {}
        for partition, topic in by_number[:keep_count]:
            kept.setdefault(topic, []).append(partition)
        for partition, topic in by_number[keep_count:]:
            self._is_claimed[topic][partition] = False
        return {topic: tuple(partitions) for topic, partitions in kept.items()}

    def unclaimed(self) -> Iterator[_TopicPartition]:
        """What has no owner, topic by topic."""
        for topic, marks in self._is_claimed.items():
            partition = marks.find(0)
            while partition >= 0:
                yield topic, partition
                partition = marks.find(0, partition + 1)


def _merged(kept: Partitions, gained: dict[TopicId, list[int]]) -> Partitions:
    """What a member keeps and what it gains, in order."""
    partitions = dict(kept)
    for topic, more in gained.items():
        partitions[topic] = tuple(sorted((*partitions.get(topic, ()), *more)))
    return partitions
