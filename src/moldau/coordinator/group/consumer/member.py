"""A member of a consumer group: what it wants, and what it has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum, unique
from typing import Final, NamedTuple

from moldau.coordinator.group.assignors import Partitions
from moldau.model.ids import TopicId, TopicName

# What a member says instead of an epoch.
JOINING: Final = 0
LEAVING: Final = -1
LEAVING_FOR_A_WHILE: Final = -2

# Partitions by topic, each with the epoch in which the member got it; the numbers rise.
Epochs = Mapping[TopicId, Mapping[int, int]]


@unique
class MemberState(IntEnum):
    """How far a member has come towards its target, as Kafka numbers it in records."""

    STABLE = 0
    # It has yet to say that it gave some partitions up.
    UNREVOKED_PARTITIONS = 1
    # It has yet to get some that others still have.
    UNRELEASED_PARTITIONS = 2
    # A later version wrote something that this one cannot read.
    UNKNOWN = 127


class Interest(NamedTuple):
    """What a member wants to read: topics by name, in order, and those that match an expression."""

    topics: tuple[TopicName, ...] = ()
    regex: str = ""


NO_INTEREST: Final = Interest()


class ClassicProtocol(NamedTuple):
    """A way of assigning that a classic member knows, with what it tells about itself."""

    name: str
    metadata: bytes


@dataclass(frozen=True, slots=True)
class ClassicMembership:
    """What is known of a member that joins and syncs, and knows nothing of epochs."""

    session_timeout_ms: int
    # The one it likes best comes first.
    protocols: tuple[ClassicProtocol, ...]


@dataclass(frozen=True, slots=True)
class Subscription:
    """What a member has said of itself."""

    interest: Interest = NO_INTEREST
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    assignor: str | None = None
    classic: ClassicMembership | None = None


@dataclass(frozen=True, slots=True)
class CurrentAssignment:
    """What a member has: what it may read, and what it is to give up but may still be reading."""

    epoch: int = JOINING
    previous_epoch: int = -1
    state: MemberState = MemberState.STABLE
    assigned: Epochs = field(default_factory=dict)
    revoking: Epochs = field(default_factory=dict)

    def is_reconciled_to(self, epoch: int) -> bool:
        """Whether the member has all that it is to have in this epoch."""
        return self.state is MemberState.STABLE and self.epoch == epoch

    def assignment_epoch(self, topic_id: TopicId, partition: int) -> int | None:
        """Since when the member has had the partition, be it to give up; None if it has it not."""
        epoch = self.assigned.get(topic_id, _NONE).get(partition)
        return self.revoking.get(topic_id, _NONE).get(partition) if epoch is None else epoch


@dataclass(frozen=True, slots=True)
class Member:
    """A member: each of the two parts is one record in the log."""

    member_id: str
    subscription: Subscription = Subscription()
    current: CurrentAssignment = CurrentAssignment()

    @property
    def is_classic(self) -> bool:
        """Whether it joins and syncs."""
        return self.subscription.classic is not None


def without_epochs(partitions: Epochs) -> Partitions:
    """The partitions alone."""
    return {topic_id: tuple(epochs) for topic_id, epochs in partitions.items()}


def with_epoch(partitions: Partitions, epoch: int) -> Epochs:
    """The partitions, all of them got in one epoch."""
    return {topic_id: dict.fromkeys(numbers, epoch) for topic_id, numbers in partitions.items()}


_NONE: Final[Mapping[int, int]] = {}
