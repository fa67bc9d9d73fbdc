"""What groups of every kind have in common: they share one namespace, and all may commit offsets."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from enum import StrEnum, unique
from typing import ClassVar

from moldau.coordinator.shard import CoordinatorRecord
from moldau.model.ids import Uuid

# Given topic, topic id and partition: KafkaError unless an offset may be committed there.
PartitionCheck = Callable[[str, Uuid, int], None]


@unique
class GroupKind(StrEnum):
    """The kinds of groups, as ListGroups spells them."""

    CLASSIC = "classic"
    CONSUMER = "consumer"
    SHARE = "share"
    STREAMS = "streams"


class Group(ABC):
    """A group of some kind, as those see it who deal with all kinds."""

    __slots__ = ("group_id",)

    kind: ClassVar[GroupKind]
    expires: ClassVar[bool] = True
    """Whether the group goes when it is empty and has no offsets any more."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id

    @property
    @abstractmethod
    def state_name(self) -> str:
        """The state, in Kafka's word for it."""

    @property
    @abstractmethod
    def protocol_type(self) -> str:
        """What the members do with one another: "consumer", "connect", "share"; empty if there were none."""

    @property
    @abstractmethod
    def is_empty(self) -> bool:
        """Whether the group has no members, so that it may be deleted or become one of another kind."""

    @abstractmethod
    def check_commit(
        self, *, member_id: str, instance_id: str | None, epoch: int, is_transactional: bool, version: int
    ) -> PartitionCheck | None:
        """KafkaError unless this member, in this generation or epoch, may commit offsets now.

        Gives what has still to be asked for each partition, if anything.
        """

    @abstractmethod
    def heard_of(self, member_id: str, now_ms: int) -> None:
        """A member has committed offsets, which keeps its session alive where heartbeats would too."""

    @abstractmethod
    def check_fetch(self, *, member_id: str | None, member_epoch: int) -> None:
        """KafkaError unless this member may read committed offsets; no member means anybody."""

    @abstractmethod
    def check_offset_deletion(self) -> None:
        """KafkaError unless offsets may be deleted of topics to which nobody is subscribed."""

    @abstractmethod
    def check_deletion(self) -> None:
        """KafkaError unless the whole group may be deleted."""

    @abstractmethod
    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member reads the topic, so that its offsets stay."""

    @abstractmethod
    def retention_begins_ms(self, commit_timestamp: int) -> int | None:
        """From when on the retention of an offset counts that was committed then; None while it is kept."""

    @abstractmethod
    def tombstones(self) -> list[CoordinatorRecord]:
        """The records after which nothing of the group is in the log; its offsets have their own."""
