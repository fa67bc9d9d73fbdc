"""What must hold in the history of a group, put together from what its members have told."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

from clients.members.member import Committed, Disturbed, Event, Read, Rebalanced


class Told(Protocol):
    """A member, as far as its history is concerned."""

    name: str
    events: list[Event]


@dataclass(frozen=True, slots=True)
class Ownership:
    """A member had a partition from one moment until another; the times are those of one clock."""

    member: str
    partition: int
    start: int
    end: int


def ownerships(member: Told) -> list[Ownership]:
    """All that a member has owned.

    A member that was expelled, killed or paused cannot tell when its partitions went to somebody else. It had
    them at least until the coordinator last answered it, which is the end that is taken then.
    """
    found: list[Ownership] = []
    since: dict[int, int] = {}
    answered = 0

    def end(partitions: Iterable[int], at: int) -> None:
        for partition in partitions:
            if partition in since:
                found.append(Ownership(member.name, partition, since.pop(partition), at))

    for event in member.events:
        match event:
            case Rebalanced(at=at, kind="assigned", partitions=partitions):
                answered = at
                for partition in sorted(partitions):
                    since.setdefault(partition, at)
            case Rebalanced(at=at, kind="revoked", partitions=partitions):
                end(sorted(partitions), at)
            case Rebalanced(kind="lost", partitions=partitions):
                end(sorted(partitions), answered)
            case Committed(at=at):
                answered = at
            case Disturbed():
                end(sorted(since), answered)
    end(sorted(since), answered)
    return found


def check_nothing_owned_twice(members: Sequence[Told]) -> None:
    """No partition has two owners at the same time."""
    by_partition: dict[int, list[Ownership]] = defaultdict(list)
    for member in members:
        for each in ownerships(member):
            by_partition[each.partition].append(each)
    assert by_partition, "nobody has owned anything"
    for owned in by_partition.values():
        owned.sort(key=lambda each: (each.start, each.end))
        for earlier, later in pairwise(owned):
            assert earlier.end <= later.start, f"owned twice: {earlier} and {later}"


def check_commits_kept(members: Sequence[Told]) -> None:
    """Whoever gets a partition goes on where the group had committed, or beyond, but never before."""
    commits: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for member in members:
        for event in member.events:
            if isinstance(event, Committed):
                for partition, offset in event.offsets.items():
                    commits[partition].append((event.at, offset))
    for member in members:
        fresh: dict[int, int] = {}
        for event in member.events:
            match event:
                case Rebalanced(at=at, kind="assigned", partitions=partitions):
                    fresh |= dict.fromkeys(partitions, at)
                case Read(partition=partition, offset=offset) if partition in fresh:
                    assigned = fresh.pop(partition)
                    before = [commit for commit in commits[partition] if commit[0] < assigned]
                    committed = max(before, default=(0, 0))[1]
                    assert offset >= committed, (
                        f"{member.name} read {offset} of partition {partition}, committed was {committed}"
                    )


def check_no_gaps(members: Sequence[Told]) -> None:
    """While a member has a partition it leaves no record of it out."""
    for member in members:
        last: dict[int, int] = {}
        for event in member.events:
            match event:
                case Rebalanced(partitions=partitions):
                    for partition in partitions:
                        last.pop(partition, None)
                case Read(partition=partition, offset=offset):
                    if partition in last:
                        assert offset <= last[partition] + 1, (
                            f"{member.name} went from {last[partition]} to {offset} in partition {partition}"
                        )
                    last[partition] = offset


def check_history(members: Sequence[Told]) -> None:
    """All of it."""
    check_nothing_owned_twice(members)
    check_commits_kept(members)
    check_no_gaps(members)
