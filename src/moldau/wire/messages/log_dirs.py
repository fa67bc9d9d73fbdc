"""Directories that hold logs, and moving replicas between them."""

from __future__ import annotations

from moldau.wire.message import Request, Response
from moldau.wire.types import Bool, Int16, Int32, Int64, String, Struct, field


class DescribeLogDirsRequest(Request, key=35, versions="1-5", flexible="2+"):
    """Ask what the directories of a broker hold; null topics mean all."""

    topics: list[DescribableLogDirTopic] | None = field(nullable="0+")


class DescribableLogDirTopic(Struct):
    """The partitions of one topic to look at."""

    topic: String
    partitions: list[Int32]


class DescribeLogDirsResponse(Response, key=35, versions="1-5", flexible="2+"):
    """The directories and what they hold."""

    throttle_time_ms: Int32
    error_code: Int16 = field("3+", default=0, ignorable=True)
    results: list[DescribeLogDirsResult]


class DescribeLogDirsResult(Struct):
    """A directory, its space and its topics."""

    error_code: Int16
    log_dir: String
    topics: list[DescribeLogDirsTopic]
    total_bytes: Int64 = field("4+", default=-1, ignorable=True)
    usable_bytes: Int64 = field("4+", default=-1, ignorable=True)
    is_cordoned: Bool = field("5+", default=False, ignorable=True)


class DescribeLogDirsTopic(Struct):
    """The partitions of one topic in a directory."""

    name: String
    partitions: list[DescribeLogDirsPartition]


class DescribeLogDirsPartition(Struct):
    """The size of one replica, and its lag if it is moving in."""

    partition_index: Int32
    partition_size: Int64
    offset_lag: Int64
    is_future_key: Bool


class AlterReplicaLogDirsRequest(Request, key=34, versions="1-2", flexible="2+"):
    """Move replicas to other directories of the same broker."""

    dirs: list[AlterReplicaLogDir]


class AlterReplicaLogDir(Struct):
    """A directory and the replicas to move there."""

    path: String
    topics: list[AlterReplicaLogDirTopic]


class AlterReplicaLogDirTopic(Struct):
    """Partitions of one topic."""

    name: String
    partitions: list[Int32]


class AlterReplicaLogDirsResponse(Response, key=34, versions="1-2", flexible="2+"):
    """Which moves were started."""

    throttle_time_ms: Int32
    results: list[AlterReplicaLogDirTopicResult]


class AlterReplicaLogDirTopicResult(Struct):
    """The outcome for one topic."""

    topic_name: String
    partitions: list[AlterReplicaLogDirPartitionResult]


class AlterReplicaLogDirPartitionResult(Struct):
    """The outcome for one partition."""

    partition_index: Int32
    error_code: Int16
