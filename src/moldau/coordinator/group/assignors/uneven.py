"""The uniform assignor where members want different topics: as level as their subscriptions allow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from moldau.coordinator.group.assignors.assignment import PartitionCounts, Partitions, Subscriber
from moldau.coordinator.group.assignors.dealing import deal
from moldau.model.ids import TopicId

# Each round levels every topic for itself, given the others. Usually the second finds nothing left to do;
# subscriptions that overlap in long chains take more, and then nearly level is good enough.
ROUNDS_MAX: Final = 64


def assign_unevenly(members: Sequence[Subscriber], counts: PartitionCounts) -> dict[str, Partitions]:
    """No partition could move to a member that has two less than its owner, and few have moved."""
    draft = _Draft(members, counts)
    # First what nobody has, so that owners give up no more than they must.
    for topic in draft.topics:
        topic.place_free(draft.loads)
    for _ in range(ROUNDS_MAX):
        move_count = sum(topic.level(draft.loads) for topic in draft.topics)
        if not move_count:
            break
    return draft.finish()


class _Draft:
    """An assignment in the making; members go by their place in the sorted list."""

    def __init__(self, members: Sequence[Subscriber], counts: PartitionCounts) -> None:
        self._members = members
        subscribers: dict[TopicId, list[int]] = {}
        for index, member in enumerate(members):
            for topic_id in member.topics:
                subscribers.setdefault(topic_id, []).append(index)
        topics = {
            topic_id: _Topic(topic_id, counts[topic_id], indexes) for topic_id, indexes in subscribers.items()
        }
        self.loads = [0] * len(members)
        for index, member in enumerate(members):
            wanted = frozenset(member.topics)
            for topic_id, partitions in member.owned.items():
                if topic_id in wanted:
                    self.loads[index] += topics[topic_id].claim(index, partitions)
        # Those with the least choice first: the others can make room for them.
        self.topics = sorted(topics.values(), key=lambda topic: (len(topic.subscribers), topic.id))

    def finish(self) -> dict[str, Partitions]:
        """The assignment, with every member in it."""
        assigned: list[dict[TopicId, tuple[int, ...]]] = [{} for _ in self._members]
        for topic in self.topics:
            for index, partitions in topic.owned.items():
                if partitions:
                    assigned[index][topic.id] = tuple(sorted(partitions))
        return {member.member_id: assigned[index] for index, member in enumerate(self._members)}


class _Topic:
    """The partitions of a topic: who may have them, who has them, and which are free."""

    def __init__(self, topic_id: TopicId, partition_count: int, subscribers: list[int]) -> None:
        self.id = topic_id
        self.subscribers = subscribers
        self.owned: dict[int, list[int]] = {}
        self._partition_count = partition_count
        self._free = dict.fromkeys(range(partition_count))

    def claim(self, index: int, partitions: Sequence[int]) -> int:
        """Leave a member those that are still free, and say how many they are."""
        mine = [each for each in partitions if each in self._free]
        for each in mine:
            del self._free[each]
        self.owned[index] = mine
        return len(mine)

    def place_free(self, loads: list[int]) -> None:
        """Give away what is free, and take nothing from anybody."""
        if self._free:
            more = _shares([loads[index] for index in self.subscribers], [], len(self._free))
            self._deal(list(self._free), more, loads)
            self._free.clear()

    def level(self, loads: list[int]) -> int:
        """Share the topic out anew, as level as the other topics allow, and say how many partitions moved."""
        subscribers_loads = [loads[index] for index in self.subscribers]
        heaviest = max((loads[index] for index, mine in self.owned.items() if mine), default=0)
        if heaviest - min(subscribers_loads) <= 1:
            return 0
        have = [len(self.owned.get(index, ())) for index in self.subscribers]
        others = [load - mine for load, mine in zip(subscribers_loads, have, strict=True)]
        shares = _shares(others, have, self._partition_count)
        released = [
            partition
            for index, mine, share in zip(self.subscribers, have, shares, strict=True)
            if mine > share
            for partition in self._release(index, mine - share, loads)
        ]
        more = [max(0, share - mine) for mine, share in zip(have, shares, strict=True)]
        self._deal(sorted(released), more, loads)
        return len(released)

    def _release(self, index: int, count: int, loads: list[int]) -> list[int]:
        partitions = sorted(self.owned[index])
        self.owned[index] = partitions[:-count]
        loads[index] -= count
        return partitions[-count:]

    def _deal(self, partitions: list[int], more: list[int], loads: list[int]) -> None:
        """Hand partitions out to those who get more."""
        for index, partition in deal(partitions, dict(zip(self.subscribers, more, strict=True))):
            self.owned.setdefault(index, []).append(partition)
            loads[index] += 1


def _shares(others: Sequence[int], have: Sequence[int], count: int) -> list[int]:
    """How many of `count` partitions each gets on top of `others`, for the sums to be as level as can be.

    Like water poured into a vessel with an uneven floor: the low places fill first, up to one level. What is
    left over is less than one each, and goes first to those who `have` more than they get without it.
    """
    floor_sum, wet_count = 0, 0
    for floor in sorted(others):
        if floor * wet_count - floor_sum > count:
            break
        floor_sum += floor
        wet_count += 1
    level, extra_count = divmod(count + floor_sum, wet_count)
    shares = [max(0, level - floor) for floor in others]
    if extra_count:
        wet = [place for place, floor in enumerate(others) if floor <= level]
        if have:
            wet.sort(key=lambda place: have[place] <= shares[place])
        for place in wet[:extra_count]:
            shares[place] += 1
    return shares
