"""What an assignor is given, and what it gives back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Protocol

from moldau.model.ids import TopicId

# Partitions by topic; the numbers rise, and no topic is there without one.
Partitions = Mapping[TopicId, tuple[int, ...]]
PartitionCounts = Mapping[TopicId, int]
# By topic, the racks in which each partition has a replica, sorted.
PartitionRacks = Mapping[TopicId, Sequence[tuple[str, ...]]]

NO_RACKS: Final[PartitionRacks] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Subscriber:
    """A member as an assignor sees it. Its topics exist, are sorted, and are named once each."""

    member_id: str
    topics: tuple[TopicId, ...]
    # What it was to own so far, which it keeps if it may.
    owned: Partitions = field(default_factory=dict)
    instance_id: str | None = None
    rack: str | None = None


class Assignor(Protocol):
    """Shares partitions out among members.

    The same members and topics give the same assignment, whatever order the members come in. Every partition
    of a topic to which somebody subscribes has exactly one owner, and every member is in the answer.
    """

    def __call__(
        self, members: Sequence[Subscriber], counts: PartitionCounts, racks: PartitionRacks = NO_RACKS
    ) -> dict[str, Partitions]:
        """Who is to have what; without `racks` it is all one who is where."""
        ...
