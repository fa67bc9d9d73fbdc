"""What members of a classic consumer group tell each other through the coordinator."""

from __future__ import annotations

from moldau.wire.message import Data
from moldau.wire.types import Bytes, Int32, String, Struct, field


class ConsumerProtocolSubscription(Data, versions="0-3"):
    """The topics that a member wants, and the partitions it has."""

    topics: list[String]
    user_data: Bytes | None = field(nullable="0+", default=None)
    owned_partitions: list[TopicPartition] = field("1+", default=[], ignorable=True)
    generation_id: Int32 = field("2+", default=-1, ignorable=True)
    rack_id: String | None = field("3+", nullable="3+", default=None, ignorable=True)


class TopicPartition(Struct):
    """Partitions of one topic."""

    topic: String
    partitions: list[Int32]


class ConsumerProtocolAssignment(Data, versions="0-3"):
    """The partitions that a member gets."""

    assigned_partitions: list[TopicPartition]
    user_data: Bytes | None = field(nullable="0+", default=None)
