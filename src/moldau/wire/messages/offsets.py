"""Offsets of a partition: looking them up by time or epoch, and raising the lowest one."""

from __future__ import annotations

from moldau.wire.message import Request, Response
from moldau.wire.types import Int8, Int16, Int32, Int64, String, Struct, field


class ListOffsetsRequest(Request, key=2, versions="1-11", flexible="6+"):
    """Ask for offsets by timestamp, or for the first and last ones."""

    replica_id: Int32
    isolation_level: Int8 = field("2+", default=0)
    topics: list[ListOffsetsTopic]
    timeout_ms: Int32 = field("10+", default=0, ignorable=True)


class ListOffsetsTopic(Struct):
    """The partitions of one topic to look at."""

    name: String
    partitions: list[ListOffsetsPartition]


class ListOffsetsPartition(Struct):
    """The timestamp to look for in one partition."""

    partition_index: Int32
    current_leader_epoch: Int32 = field("4+", default=-1, ignorable=True)
    timestamp: Int64


class ListOffsetsResponse(Response, key=2, versions="1-11", flexible="6+"):
    """The offsets that were found."""

    throttle_time_ms: Int32 = field("2+", default=0, ignorable=True)
    topics: list[ListOffsetsTopicResponse]


class ListOffsetsTopicResponse(Struct):
    """The offsets found in one topic."""

    name: String
    partitions: list[ListOffsetsPartitionResponse]


class ListOffsetsPartitionResponse(Struct):
    """The offset found in one partition."""

    partition_index: Int32
    error_code: Int16
    timestamp: Int64 = field(default=-1)
    offset: Int64 = field(default=-1)
    leader_epoch: Int32 = field("4+", default=-1)


class OffsetForLeaderEpochRequest(Request, key=23, versions="2-4", flexible="4+"):
    """Ask where leader epochs ended, to find out whether logs diverge."""

    replica_id: Int32 = field("3+", default=-2, ignorable=True)
    topics: list[OffsetForLeaderTopic]


class OffsetForLeaderTopic(Struct):
    """The partitions of one topic to look at."""

    topic: String
    partitions: list[OffsetForLeaderPartition]


class OffsetForLeaderPartition(Struct):
    """The epoch to look for in one partition."""

    partition: Int32
    current_leader_epoch: Int32 = field(default=-1)
    leader_epoch: Int32


class OffsetForLeaderEpochResponse(Response, key=23, versions="2-4", flexible="4+"):
    """Where the epochs ended."""

    throttle_time_ms: Int32
    topics: list[OffsetForLeaderTopicResult]


class OffsetForLeaderTopicResult(Struct):
    """Where epochs ended in one topic."""

    topic: String
    partitions: list[EpochEndOffset]


class EpochEndOffset(Struct):
    """Where an epoch ended in one partition."""

    error_code: Int16
    partition: Int32
    leader_epoch: Int32 = field(default=-1)
    end_offset: Int64 = field(default=-1)


class DeleteRecordsRequest(Request, key=21, versions="0-2", flexible="2+"):
    """Delete the records before given offsets."""

    topics: list[DeleteRecordsTopic]
    timeout_ms: Int32


class DeleteRecordsTopic(Struct):
    """The partitions of one topic to trim."""

    name: String
    partitions: list[DeleteRecordsPartition]


class DeleteRecordsPartition(Struct):
    """The offset up to which one partition is trimmed."""

    partition_index: Int32
    offset: Int64


class DeleteRecordsResponse(Response, key=21, versions="0-2", flexible="2+"):
    """The offsets at which the logs start now."""

    throttle_time_ms: Int32
    topics: list[DeleteRecordsTopicResult]


class DeleteRecordsTopicResult(Struct):
    """The outcome for one topic."""

    name: String
    partitions: list[DeleteRecordsPartitionResult]


class DeleteRecordsPartitionResult(Struct):
    """The outcome for one partition."""

    partition_index: Int32
    low_watermark: Int64
    error_code: Int16
