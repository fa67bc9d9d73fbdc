"""Who of a classic group reads which partitions, decided by the member that leads it.

Every member decides alike: the order of members is that of their names, the order of partitions their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import cycle
from typing import Final

from moldau.client.offsets import place_of
from moldau.model.ids import TopicPartition


@dataclass(frozen=True, slots=True)
class Subscription:
    """What a member wants to read, and what it has since which generation."""

    topics: tuple[str, ...]
    owned: tuple[TopicPartition, ...] = ()
    generation: int = -1
    # A name that stays when a static member comes back with a new id.
    instance_id: str | None = None


Subscriptions = Mapping[str, Subscription]
PartitionCounts = Mapping[str, int]
Assigned = dict[str, list[TopicPartition]]


@dataclass(frozen=True, slots=True)
class Assignor:
    """A way to divide partitions among members, by the name that all clients know it by."""

    name: str
    assign: Callable[[Subscriptions, PartitionCounts], Assigned]
    # Members keep what they have while they join, and give up only what goes to somebody else (KIP-429).
    is_cooperative: bool = False


def assignors_named(names: Iterable[str]) -> tuple[Assignor, ...]:
    """The assignors of these names, in this order; ValueError says which there are."""
    chosen = tuple(names)
    for name in chosen:
        if name not in ASSIGNORS:
            raise ValueError(f"there is no assignor {name!r}, only {', '.join(ASSIGNORS)}")
    return tuple(ASSIGNORS[name] for name in chosen)


def assign_ranges(members: Subscriptions, counts: PartitionCounts) -> Assigned:
    """Of each topic a run of partitions to each member; the first members get one more if need be."""
    assigned: Assigned = {member: [] for member in members}
    for topic in _topics(members, counts):
        readers = [member for member in _in_order(members) if topic in members[member].topics]
        each, more = divmod(counts[topic], len(readers))
        first = 0
        for number, member in enumerate(readers):
            end = first + each + (number < more)
            assigned[member] += [place_of((topic, index)) for index in range(first, end)]
            first = end
    return assigned


def assign_in_turn(members: Subscriptions, counts: PartitionCounts) -> Assigned:
    """All partitions of all topics in turn, passing over members that do not want a topic."""
    assigned: Assigned = {member: [] for member in members}
    turn = cycle(_in_order(members))
    for place in _partitions(members, counts):
        member = next(member for member in turn if place.topic in members[member].topics)
        assigned[member].append(place)
    return assigned


def assign_sticky(members: Subscriptions, counts: PartitionCounts) -> Assigned:
    """As evenly as subscriptions allow, and moving no more partitions than that takes."""
    assigned: Assigned = {member: [] for member in _in_order(members)}
    places = _partitions(members, counts)
    owners = _owners(members, places)
    for place in places:
        if place in owners:
            assigned[owners[place]].append(place)
    readers = {
        topic: [member for member in assigned if topic in members[member].topics]
        for topic in _topics(members, counts)
    }

    def least_loaded(place: TopicPartition) -> str:
        return min(readers[place.topic], key=lambda member: len(assigned[member]))

    for place in places:
        if place not in owners:
            assigned[least_loaded(place)].append(place)
    # Every move makes the sum of the squares of the loads smaller, so that there is an end.
    has_moved = True
    while has_moved:
        has_moved = False
        for member in sorted(assigned, key=lambda member: -len(assigned[member])):
            for place in reversed(assigned[member]):
                other = least_loaded(place)
                if len(assigned[other]) + 1 < len(assigned[member]):
                    assigned[member].remove(place)
                    assigned[other].append(place)
                    has_moved = True
    return {member: sorted(places) for member, places in assigned.items()}


def assign_cooperatively(members: Subscriptions, counts: PartitionCounts) -> Assigned:
    """The same in two steps: what has to move is given to nobody until its owner has let go of it."""
    assigned = assign_sticky(members, counts)
    owners = _owners(members, _partitions(members, counts))
    return {
        member: [place for place in places if owners.get(place, member) == member]
        for member, places in assigned.items()
    }


# What a member may offer, by the names under which all clients know these.
ASSIGNORS: Final = {
    assignor.name: assignor
    for assignor in (
        Assignor("range", assign_ranges),
        Assignor("roundrobin", assign_in_turn),
        Assignor("cooperative-sticky", assign_cooperatively, is_cooperative=True),
    )
}


def _in_order(members: Subscriptions) -> list[str]:
    """Static members by their instance, so that one that comes back takes the place it had."""
    return sorted(members, key=lambda member: (members[member].instance_id or member, member))


def _topics(members: Subscriptions, counts: PartitionCounts) -> list[str]:
    wanted = dict.fromkeys(topic for member in members.values() for topic in member.topics)
    return sorted(topic for topic in wanted if topic in counts)


def _partitions(members: Subscriptions, counts: PartitionCounts) -> list[TopicPartition]:
    return [place_of((topic, index)) for topic in _topics(members, counts) for index in range(counts[topic])]


def _owners(members: Subscriptions, places: Iterable[TopicPartition]) -> dict[TopicPartition, str]:
    """Who has which partition; of two that say so, who has it since the later generation, else nobody."""
    claims: dict[TopicPartition, list[tuple[int, str]]] = {}
    for member in _in_order(members):
        subscription = members[member]
        for place in subscription.owned:
            if place.topic in subscription.topics:
                claims.setdefault(place, []).append((subscription.generation, member))
    owners: dict[TopicPartition, str] = {}
    for place in places:
        of_place = claims.get(place, [])
        newest = max((generation for generation, _ in of_place), default=-1)
        latest = [member for generation, member in of_place if generation == newest]
        if len(latest) == 1:
            owners[place] = latest[0]
    return owners
