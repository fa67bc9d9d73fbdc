"""Partitions near to who reads them: owners exchange partitions, so that all have as many as before.

A partition is near to a member if a replica is in the member's rack. What is not near goes to somebody to
whom it would be, who gives something to a third, and so on, until somebody makes up for the first. In the end
as many partitions as can be are near, and those that need not move have stayed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Final

from moldau.coordinator.group.assignors.assignment import PartitionRacks, Partitions, Subscriber
from moldau.model.ids import TopicId

# Partitions that go from hand to hand together: one, or those of one number of topics that are to be joined.
Bundle = tuple[tuple[TopicId, int], ...]

# The racks in which a bundle is whole.
_Near = tuple[str, ...]
# Of members who do not say where they are; nothing is near to them.
_NOWHERE: Final = None
_Rack = str | None


def near_to_members(
    assigned: Mapping[str, Partitions],
    members: Sequence[Subscriber],
    racks: PartitionRacks,
    groups: Sequence[Sequence[Bundle]],
) -> dict[str, Partitions]:
    """The same assignment after exchanges within groups of bundles; who owns some of one wants all of it."""
    where = {member.member_id: member.rack for member in members}
    owners = {
        (topic, partition): member_id
        for member_id, partitions in assigned.items()
        for topic, numbers in partitions.items()
        for partition in numbers
    }
    has_changed = False
    for bundles in groups:
        had = [owners[bundle[0]] for bundle in bundles]
        got = exchanged(had, [_near(bundle, racks) for bundle in bundles], where)
        for bundle, before, after in zip(bundles, had, got, strict=True):
            if before != after:
                has_changed = True
                owners.update(dict.fromkeys(bundle, after))
    if not has_changed:
        return dict(assigned)
    found: dict[str, dict[TopicId, list[int]]] = {member_id: {} for member_id in assigned}
    for (topic, partition), member_id in owners.items():
        found[member_id].setdefault(topic, []).append(partition)
    return {
        member_id: {topic: tuple(sorted(numbers)) for topic, numbers in sorted(partitions.items())}
        for member_id, partitions in found.items()
    }


def has_near_and_far(members: Sequence[Subscriber], racks: PartitionRacks) -> bool:
    """Whether it makes a difference who gets what."""
    return bool(racks) and any(member.rack is not _NOWHERE for member in members)


def exchanged(owners: Sequence[str], near: Sequence[_Near], racks: Mapping[str, _Rack]) -> list[str]:
    """The owners of some bundles after exchanges; `racks` has where owners are, `near` where bundles are."""
    found = list(owners)
    piles = _Piles(found, near, racks)
    for place, where in enumerate(near):
        rack = racks[found[place]]
        if rack in where:
            continue
        ring = piles.ring_from(place, rack, where)
        # Each goes to the owner of the next one, and the last to the owner of the first.
        takers = [found[following] for following in (*ring[1:], ring[0])] if ring else []
        for moved, taker in zip(ring, takers, strict=True):
            piles.move(moved, racks[taker])
            found[moved] = taker
    return found


class _Piles:
    """Bundles by the rack of their owner, and by where they are near: those of one pile are alike."""

    def __init__(self, owners: Sequence[str], near: Sequence[_Near], racks: Mapping[str, _Rack]) -> None:
        self._near = near
        self._rack_of: list[_Rack] = [racks[owner] for owner in owners]
        self._racks = list(dict.fromkeys(self._rack_of))
        # What has moved on stays in its old piles until it is on top, so that moving takes no search.
        self._piles: dict[_Rack, dict[_Near, list[int]]] = {rack: {} for rack in self._racks}
        for place, rack in enumerate(self._rack_of):
            self._piles[rack].setdefault(near[place], []).append(place)
        # From where there was no ring once, there is none later.
        self._hopeless: dict[tuple[_Rack, _Near], None] = {}

    def move(self, place: int, rack: _Rack) -> None:
        """A bundle has got another owner."""
        self._piles[rack].setdefault(self._near[place], []).append(place)
        self._rack_of[place] = rack

    def ring_from(self, place: int, rack: _Rack, near: _Near) -> list[int]:
        """The shortest ring of bundles that brings this one near, and none away; empty if there is none."""
        if (rack, near) in self._hopeless:
            return []
        # How each rack was reached first: from which, by giving it which bundle.
        came: dict[_Rack, tuple[_Rack, int]] = {}
        to_visit: deque[_Rack] = deque(there for there in near if there in self._piles)
        for first in to_visit:
            came[first] = (rack, place)
        while to_visit:
            here = to_visit.popleft()
            for given, goes_to in self._gifts(here):
                for there in goes_to:
                    if there == rack:
                        return self._ring(came, here, given, start=place)
                    if there in self._piles and there not in came:
                        came[there] = (here, given)
                        to_visit.append(there)
        self._hopeless[rack, near] = None
        return []

    def _gifts(self, here: _Rack) -> list[tuple[int, Sequence[_Rack]]]:
        """What a rack can give away and where to, so that nothing that was near becomes far."""
        gifts: list[tuple[int, Sequence[_Rack]]] = []
        for near, pile in self._piles[here].items():
            while pile and self._rack_of[pile[-1]] != here:
                pile.pop()
            if pile:
                gifts.append((pile[-1], near if here in near else self._racks))
        return gifts

    @staticmethod
    def _ring(came: Mapping[_Rack, tuple[_Rack, int]], last: _Rack, given: int, *, start: int) -> list[int]:
        ring = [given]
        while ring[-1] != start:
            last, before = came[last]
            ring.append(before)
        ring.reverse()
        return ring


def bundles_of(counts: Mapping[TopicId, int], topics: Sequence[TopicId]) -> list[Bundle]:
    """Each partition of some topics by itself."""
    return [((topic, partition),) for topic in topics for partition in range(counts[topic])]


def _near(bundle: Bundle, racks: PartitionRacks) -> _Near:
    (topic, partition), *others = bundle
    return tuple(
        rack
        for rack in racks[topic][partition]
        if all(rack in racks[other][number] for other, number in others)
    )
