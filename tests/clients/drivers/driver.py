"""What a scenario may ask of a client, whichever language the client is written in.

Drivers take the same care everywhere: they raise the limits that their client sets on sizes to `SIZE_MAX`,
let the broker refuse what is wrong wherever the client does not do so first, and name errors as Kafka does.
An offset that the log does not have is an error, OFFSET_OUT_OF_RANGE, and no reason to start elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from moldau.model.errors import ErrorCode

# Larger than any record or request of a scenario.
SIZE_MAX = 8 * 2**20
# What a driver answers where its client does not tell an offset or an id.
UNKNOWN = -1

Codec = Literal["none", "gzip", "snappy", "lz4", "zstd"]
CODECS: tuple[Codec, ...] = ("none", "gzip", "snappy", "lz4", "zstd")
Headers = tuple[tuple[str, bytes | None], ...]
Start = int | Literal["earliest", "latest"]
GroupProtocol = Literal["classic", "consumer"]


class DriverError(Exception):
    """The broker or the client refused; `code` and `name` are Kafka's, or -1 and the client's own word."""

    def __init__(self, code: int, name: str, message: str) -> None:
        super().__init__(f"{name} ({code}): {message}")
        self.code = code
        self.name = name
        self.message = message


def kafka_error(code: int, message: str) -> DriverError:
    """An error by its number in Kafka's protocol."""
    return DriverError(code, ErrorCode(code).name, message)


class Unsupported(Exception):
    """The client cannot do this, for the reason given."""


class ToolchainMissing(Exception):
    """What the client needs to run is not installed, for the reason given."""


@dataclass(frozen=True, slots=True)
class NewRecord:
    """A record to write; without a partition or a timestamp the client chooses."""

    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    partition: int | None = None
    timestamp: int | None = None


@dataclass(frozen=True, slots=True)
class Placed:
    """Where a record was written; the offset is UNKNOWN where the client does not tell."""

    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class ReadRecord:
    """A record as it was read."""

    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic: the number of its partitions, and the leader of each."""

    partitions: int
    leaders: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """The first offset of a partition and the one after its last."""

    earliest: int
    latest: int


@dataclass(frozen=True, slots=True)
class FoundByTime:
    """The first offset at or after a time, and the records from there on."""

    offset: int
    records: tuple[ReadRecord, ...]


@dataclass(frozen=True, slots=True)
class Node:
    """A broker as clients are told to reach it."""

    id: int
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """A cluster; the controller is UNKNOWN where the client does not tell."""

    cluster_id: str | None
    controller_id: int
    nodes: tuple[Node, ...]


class Driver(Protocol):
    """One client, connected to one cluster; any method may raise DriverError or Unsupported."""

    @property
    def version(self) -> str:
        """The client's own version, as in "2.16.1"."""

    def create_topic(
        self,
        topic: str,
        *,
        partitions: int,
        replication_factor: int = 1,
        configs: Mapping[str, str] | None = None,
    ) -> None:
        """Create a topic."""

    def describe_topic(self, topic: str) -> TopicDescription:
        """The partitions of a topic and their leaders."""

    def list_topics(self) -> list[str]:
        """The names of all topics."""

    def describe_configs(self, topic: str) -> dict[str, str | None]:
        """Every setting of a topic with its value."""

    def alter_configs(self, topic: str, configs: Mapping[str, str]) -> None:
        """Set these settings, and leave the others as they are."""

    def create_partitions(self, topic: str, *, total: int) -> None:
        """Add partitions until there are this many."""

    def delete_topic(self, topic: str) -> None:
        """Delete a topic."""

    def delete_records(self, topic: str, *, partition: int, before_offset: int) -> int:
        """Delete what is before the offset; the first offset afterwards."""

    def produce(
        self,
        topic: str,
        records: Sequence[NewRecord],
        *,
        codec: Codec = "none",
        acks: Literal[-1, 0, 1] = -1,
        idempotent: bool = False,
    ) -> list[Placed]:
        """Write the records, in as few batches as the client makes of it, and say where they are."""

    def consume(
        self, topic: str, *, partition: int, offset: Start, count: int, timeout_ms: int
    ) -> list[ReadRecord]:
        """Read without a group, until there are `count` records or the time is over."""

    def consume_from_time(
        self, topic: str, *, partition: int, timestamp: int, count: int, timeout_ms: int
    ) -> FoundByTime:
        """Read from the first record with this timestamp or a later one."""

    def read_in_group(
        self, topic: str, *, group: str, count: int, timeout_ms: int, protocol: GroupProtocol = "classic"
    ) -> list[tuple[int, int]]:
        """Join a group, read from what it has committed until there are `count` records or the time is over,
        commit, and leave; partition and offset of what was read."""

    def list_offsets(self, topic: str, *, partition: int) -> OffsetRange:
        """Where a partition begins and ends."""

    def offset_for_time(self, topic: str, *, partition: int, timestamp: int) -> int:
        """The first offset at or after a time; -1 if there is none."""

    def describe_cluster(self) -> ClusterDescription:
        """The cluster's id, controller and brokers."""

    def close(self) -> None:
        """End the client."""
