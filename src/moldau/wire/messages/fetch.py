"""Fetch: reading record batches, by consumers, followers and the metadata quorum."""

from __future__ import annotations

from moldau.model.ids import ZERO_UUID
from moldau.wire.message import Request, Response
from moldau.wire.types import FetchedRecords, Int8, Int16, Int32, Int64, String, Struct, Uuid, field


class ReplicaState(Struct, is_value=True):
    """The follower that fetches, and the epoch of its registration."""

    replica_id: Int32 = field(default=-1)
    replica_epoch: Int64 = field(default=-1)


class FetchRequest(Request, key=1, versions="4-18", flexible="12+"):
    """Read batches from partitions, waiting a while for enough bytes."""

    cluster_id: String | None = field("12+", tag=0, nullable="12+", default=None, ignorable=True)
    replica_id: Int32 = field("0-14", default=-1)
    replica_state: ReplicaState = field("15+", tag=1, default=ReplicaState())
    max_wait_ms: Int32
    min_bytes: Int32
    max_bytes: Int32 = field(default=2**31 - 1)
    isolation_level: Int8 = field(default=0)
    session_id: Int32 = field("7+", default=0, ignorable=True)
    session_epoch: Int32 = field("7+", default=-1, ignorable=True)
    topics: list[FetchTopic]
    forgotten_topics_data: list[ForgottenTopic] = field("7+", default=[])
    rack_id: String = field("11+", default="", ignorable=True)


class FetchTopic(Struct):
    """What to read of one topic."""

    topic: String = field("0-12", default="", ignorable=True)
    topic_id: Uuid = field("13+", default=ZERO_UUID, ignorable=True)
    partitions: list[FetchPartition]


class FetchPartition(Struct):
    """What to read of one partition."""

    partition: Int32
    current_leader_epoch: Int32 = field("9+", default=-1, ignorable=True)
    fetch_offset: Int64
    last_fetched_epoch: Int32 = field("12+", default=-1)
    log_start_offset: Int64 = field("5+", default=-1, ignorable=True)
    partition_max_bytes: Int32
    replica_directory_id: Uuid = field("17+", tag=0, default=ZERO_UUID, ignorable=True)
    high_watermark: Int64 = field("18+", tag=1, default=2**63 - 1, ignorable=True)


class ForgottenTopic(Struct):
    """Partitions to drop from the fetch session."""

    topic: String = field("7-12", default="", ignorable=True)
    topic_id: Uuid = field("13+", default=ZERO_UUID, ignorable=True)
    partitions: list[Int32]


class SnapshotId(Struct, is_value=True):
    """The snapshot that a replica must load before it can fetch."""

    end_offset: Int64 = field(default=-1)
    epoch: Int32 = field(default=-1)


class LeaderIdAndEpoch(Struct, is_value=True):
    """Who leads a partition now, so that the client need not ask."""

    leader_id: Int32 = field(default=-1)
    leader_epoch: Int32 = field(default=-1)


class EpochEndOffset(Struct, is_value=True):
    """Where the log of a follower parts from the log of its leader."""

    epoch: Int32 = field(default=-1)
    end_offset: Int64 = field(default=-1)


class FetchResponse(Response, key=1, versions="4-18", flexible="12+"):
    """The batches that were found."""

    throttle_time_ms: Int32
    error_code: Int16 = field("7+", default=0, ignorable=True)
    session_id: Int32 = field("7+", default=0)
    responses: list[FetchableTopicResponse]
    node_endpoints: list[NodeEndpoint] = field("16+", tag=0, default=[])


class FetchableTopicResponse(Struct):
    """What was found of one topic."""

    topic: String = field("0-12", default="", ignorable=True)
    topic_id: Uuid = field("13+", default=ZERO_UUID, ignorable=True)
    partitions: list[PartitionData]


class PartitionData(Struct):
    """What was found of one partition."""

    partition_index: Int32
    error_code: Int16
    high_watermark: Int64
    last_stable_offset: Int64 = field(default=-1)
    log_start_offset: Int64 = field("5+", default=-1, ignorable=True)
    diverging_epoch: EpochEndOffset = field("12+", tag=0, default=EpochEndOffset())
    current_leader: LeaderIdAndEpoch = field("12+", tag=1, default=LeaderIdAndEpoch())
    snapshot_id: SnapshotId = field("12+", tag=2, default=SnapshotId())
    aborted_transactions: list[AbortedTransaction] | None = field(nullable="4+")
    preferred_read_replica: Int32 = field("11+", default=-1)
    records: FetchedRecords | None = field(nullable="0+")


class AbortedTransaction(Struct):
    """An aborted transaction whose records a reader of committed data must skip."""

    producer_id: Int64
    first_offset: Int64


class NodeEndpoint(Struct):
    """Where a leader named in this response listens."""

    node_id: Int32
    host: String
    port: Int32
    rack: String | None = field(nullable="16+", default=None)
