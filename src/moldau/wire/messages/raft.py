"""The metadata quorum: votes, epochs, snapshots, and changes of its voters."""

from __future__ import annotations

from moldau.model.ids import ZERO_UUID
from moldau.wire.message import Request, Response
from moldau.wire.types import Bool, FetchedRecords, Int16, Int32, Int64, String, Struct, UInt16, Uuid, field


class VoteRequest(Request, key=52, versions="0-2", flexible="0+"):
    """Ask for a vote, or in a pre-vote whether one would be given."""

    cluster_id: String | None = field(nullable="0+", default=None)
    voter_id: Int32 = field("1+", default=-1, ignorable=True)
    topics: list[VoteRequestTopicData]


class VoteRequestTopicData(Struct):
    """The candidacies in one topic."""

    topic_name: String
    partitions: list[VoteRequestPartitionData]


class VoteRequestPartitionData(Struct):
    """A candidacy: the candidate's epoch and the end of its log."""

    partition_index: Int32
    replica_epoch: Int32
    replica_id: Int32
    replica_directory_id: Uuid = field("1+", default=ZERO_UUID, ignorable=True)
    voter_directory_id: Uuid = field("1+", default=ZERO_UUID, ignorable=True)
    last_offset_epoch: Int32
    last_offset: Int64
    pre_vote: Bool = field("2+", default=False)


class VoteResponse(Response, key=52, versions="0-2", flexible="0+"):
    """Whether the vote was granted."""

    error_code: Int16
    topics: list[VoteResponseTopicData]
    node_endpoints: list[NodeEndpoint] = field("1+", tag=0, default=[])


class VoteResponseTopicData(Struct):
    """The answers for one topic."""

    topic_name: String
    partitions: list[VoteResponsePartitionData]


class VoteResponsePartitionData(Struct):
    """The answer, with the leader as far as the voter knows it."""

    partition_index: Int32
    error_code: Int16
    leader_id: Int32
    leader_epoch: Int32
    vote_granted: Bool


class NodeEndpoint(Struct):
    """Where a node named in this response listens."""

    node_id: Int32
    host: String
    port: UInt16


class BeginQuorumEpochRequest(Request, key=53, versions="0-1", flexible="1+"):
    """A new leader makes itself known."""

    cluster_id: String | None = field(nullable="0+", default=None)
    voter_id: Int32 = field("1+", default=-1, ignorable=True)
    topics: list[BeginQuorumEpochRequestTopicData]
    leader_endpoints: list[LeaderEndpoint] = field("1+", default=[], ignorable=True)


class BeginQuorumEpochRequestTopicData(Struct):
    """The leaderships in one topic."""

    topic_name: String
    partitions: list[BeginQuorumEpochRequestPartitionData]


class BeginQuorumEpochRequestPartitionData(Struct):
    """The leader and its epoch."""

    partition_index: Int32
    voter_directory_id: Uuid = field("1+", default=ZERO_UUID, ignorable=True)
    leader_id: Int32
    leader_epoch: Int32


class LeaderEndpoint(Struct):
    """A listener of the leader."""

    name: String
    host: String
    port: UInt16


class BeginQuorumEpochResponse(Response, key=53, versions="0-1", flexible="1+"):
    """Whether the leader was accepted."""

    error_code: Int16
    topics: list[BeginQuorumEpochResponseTopicData]
    node_endpoints: list[NodeEndpoint] = field("1+", tag=0, default=[])


class BeginQuorumEpochResponseTopicData(Struct):
    """The answers for one topic."""

    topic_name: String
    partitions: list[BeginQuorumEpochResponsePartitionData]


class BeginQuorumEpochResponsePartitionData(Struct):
    """The answer, with the leader as far as the voter knows it."""

    partition_index: Int32
    error_code: Int16
    leader_id: Int32
    leader_epoch: Int32


class EndQuorumEpochRequest(Request, key=54, versions="0-1", flexible="1+"):
    """A leader resigns and says who should come next."""

    cluster_id: String | None = field(nullable="0+", default=None)
    topics: list[EndQuorumEpochTopicData]
    leader_endpoints: list[LeaderEndpoint] = field("1+", default=[], ignorable=True)


class EndQuorumEpochTopicData(Struct):
    """The resignations in one topic."""

    topic_name: String
    partitions: list[EndQuorumEpochPartitionData]


class EndQuorumEpochPartitionData(Struct):
    """The resigning leader, and its successors in order of preference."""

    partition_index: Int32
    leader_id: Int32
    leader_epoch: Int32
    preferred_successors: list[Int32] = field("0", default=[], ignorable=True)
    preferred_candidates: list[ReplicaInfo] = field("1+", default=[], ignorable=True)


class ReplicaInfo(Struct):
    """A voter that may come next."""

    candidate_id: Int32
    candidate_directory_id: Uuid


class EndQuorumEpochResponse(Response, key=54, versions="0-1", flexible="1+"):
    """Whether the resignation was accepted."""

    error_code: Int16
    topics: list[BeginQuorumEpochResponseTopicData]
    node_endpoints: list[NodeEndpoint] = field("1+", tag=0, default=[])


class FetchSnapshotRequest(Request, key=59, versions="0-1", flexible="0+"):
    """Read a piece of a snapshot."""

    cluster_id: String | None = field(tag=0, nullable="0+", default=None)
    replica_id: Int32 = field(default=-1)
    max_bytes: Int32 = field(default=2**31 - 1)
    topics: list[FetchSnapshotRequestTopicSnapshot]


class FetchSnapshotRequestTopicSnapshot(Struct):
    """The snapshots of one topic."""

    name: String
    partitions: list[FetchSnapshotRequestPartitionSnapshot]


class FetchSnapshotRequestPartitionSnapshot(Struct):
    """The snapshot of one partition and the position to read from."""

    partition: Int32
    current_leader_epoch: Int32
    snapshot_id: SnapshotId
    position: Int64
    replica_directory_id: Uuid = field("1+", tag=0, default=ZERO_UUID, ignorable=True)


class SnapshotId(Struct):
    """A snapshot by the offset and epoch that it ends with."""

    end_offset: Int64
    epoch: Int32


class LeaderIdAndEpoch(Struct, is_value=True):
    """Who leads the partition now."""

    leader_id: Int32 = field(default=0)
    leader_epoch: Int32 = field(default=0)


class FetchSnapshotResponse(Response, key=59, versions="0-1", flexible="0+"):
    """A piece of a snapshot."""

    throttle_time_ms: Int32
    error_code: Int16
    topics: list[FetchSnapshotResponseTopicSnapshot]
    node_endpoints: list[NodeEndpoint] = field("1+", tag=0, default=[])


class FetchSnapshotResponseTopicSnapshot(Struct):
    """The pieces for one topic."""

    name: String
    partitions: list[FetchSnapshotResponsePartitionSnapshot]


class FetchSnapshotResponsePartitionSnapshot(Struct):
    """The piece for one partition, which need not end with a whole batch."""

    index: Int32
    error_code: Int16
    snapshot_id: SnapshotId
    current_leader: LeaderIdAndEpoch = field(tag=0, default=LeaderIdAndEpoch())
    size: Int64
    position: Int64
    unaligned_records: FetchedRecords


class DescribeQuorumRequest(Request, key=55, versions="0-2", flexible="0+"):
    """Ask for the state of the quorum."""

    topics: list[DescribeQuorumRequestTopicData]


class DescribeQuorumRequestTopicData(Struct):
    """The partitions of one topic."""

    topic_name: String
    partitions: list[DescribeQuorumRequestPartitionData]


class DescribeQuorumRequestPartitionData(Struct):
    """A partition to look at."""

    partition_index: Int32


class DescribeQuorumResponse(Response, key=55, versions="0-2", flexible="0+"):
    """The state of the quorum."""

    error_code: Int16
    error_message: String | None = field("2+", nullable="2+", default="", ignorable=True)
    topics: list[DescribeQuorumResponseTopicData]
    nodes: list[Node] = field("2+", default=[])


class DescribeQuorumResponseTopicData(Struct):
    """The state for one topic."""

    topic_name: String
    partitions: list[DescribeQuorumResponsePartitionData]


class DescribeQuorumResponsePartitionData(Struct):
    """The leader, the high watermark, the voters and the observers."""

    partition_index: Int32
    error_code: Int16
    error_message: String | None = field("2+", nullable="2+", default="", ignorable=True)
    leader_id: Int32
    leader_epoch: Int32
    high_watermark: Int64
    current_voters: list[ReplicaState]
    observers: list[ReplicaState]


class ReplicaState(Struct):
    """How far one replica has come."""

    replica_id: Int32
    replica_directory_id: Uuid = field("2+", default=ZERO_UUID)
    log_end_offset: Int64
    last_fetch_timestamp: Int64 = field("1+", default=-1, ignorable=True)
    last_caught_up_timestamp: Int64 = field("1+", default=-1, ignorable=True)


class Node(Struct):
    """A node and its listeners."""

    node_id: Int32
    listeners: list[Listener]


class Listener(Struct):
    """A name and where it is reached."""

    name: String
    host: String
    port: UInt16


class AddRaftVoterRequest(Request, key=80, versions="0-1", flexible="0+"):
    """Make an observer a voter."""

    cluster_id: String | None = field(nullable="0+")
    timeout_ms: Int32
    voter_id: Int32
    voter_directory_id: Uuid
    listeners: list[Listener]
    ack_when_committed: Bool = field("1+", default=True)


class AddRaftVoterResponse(Response, key=80, versions="0-1", flexible="0+"):
    """Whether the voter was added."""

    throttle_time_ms: Int32
    error_code: Int16
    error_message: String | None = field(nullable="0+")


class RemoveRaftVoterRequest(Request, key=81, versions="0", flexible="0+"):
    """Remove a voter from the quorum."""

    cluster_id: String | None = field(nullable="0+")
    voter_id: Int32
    voter_directory_id: Uuid


class RemoveRaftVoterResponse(Response, key=81, versions="0", flexible="0+"):
    """Whether the voter was removed."""

    throttle_time_ms: Int32
    error_code: Int16
    error_message: String | None = field(nullable="0+")


class UpdateRaftVoterRequest(Request, key=82, versions="0", flexible="0+"):
    """Tell the leader of a voter's new endpoints and versions."""

    cluster_id: String | None = field(nullable="0+")
    current_leader_epoch: Int32
    voter_id: Int32
    voter_directory_id: Uuid
    listeners: list[Listener]
    kraft_version_feature: KRaftVersionFeature


class KRaftVersionFeature(Struct):
    """The range of quorum versions that the voter supports."""

    min_supported_version: Int16
    max_supported_version: Int16


class CurrentLeader(Struct, is_value=True):
    """Who leads the quorum now and where it listens."""

    leader_id: Int32 = field(default=-1)
    leader_epoch: Int32 = field(default=-1)
    host: String = field(default="")
    port: Int32 = field(default=0)


class UpdateRaftVoterResponse(Response, key=82, versions="0", flexible="0+"):
    """Whether the voter was updated."""

    throttle_time_ms: Int32
    error_code: Int16
    current_leader: CurrentLeader = field(tag=0, default=CurrentLeader())
