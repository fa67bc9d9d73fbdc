"""Share groups (KIP-932): membership, fetching and acknowledging, offsets, and their stored state."""

from __future__ import annotations

from moldau.wire.message import Request, Response
from moldau.wire.types import Bool, FetchedRecords, Int8, Int16, Int32, Int64, String, Struct, Uuid, field


class ShareGroupHeartbeatRequest(Request, key=76, versions="1", flexible="0+"):
    """Join, stay in or leave a share group."""

    group_id: String
    member_id: String
    member_epoch: Int32
    rack_id: String | None = field(nullable="0+", default=None)
    subscribed_topic_names: list[String] | None = field(nullable="0+", default=None)


class ShareGroupHeartbeatResponse(Response, key=76, versions="1", flexible="0+"):
    """The member's epoch and, when it has changed, its assignment."""

    throttle_time_ms: Int32
    error_code: Int16
    error_message: String | None = field(nullable="0+", default=None)
    member_id: String | None = field(nullable="0+", default=None)
    member_epoch: Int32
    heartbeat_interval_ms: Int32
    assignment: ShareGroupHeartbeatAssignment | None = field(nullable="0+", default=None)


class ShareGroupHeartbeatAssignment(Struct):
    """All partitions that the member may fetch from."""

    topic_partitions: list[ShareGroupHeartbeatTopicPartitions]


class ShareGroupHeartbeatTopicPartitions(Struct):
    """Partitions of one topic."""

    topic_id: Uuid
    partitions: list[Int32]


class ShareGroupDescribeRequest(Request, key=77, versions="1", flexible="0+"):
    """Ask for the state of share groups."""

    group_ids: list[String]
    include_authorized_operations: Bool


class ShareGroupDescribeResponse(Response, key=77, versions="1", flexible="0+"):
    """The groups that were asked for."""

    throttle_time_ms: Int32
    groups: list[DescribedGroup]


class DescribedGroup(Struct):
    """A group, its epochs and its members."""

    error_code: Int16
    error_message: String | None = field(nullable="0+", default=None)
    group_id: String
    group_state: String
    group_epoch: Int32
    assignment_epoch: Int32
    assignor_name: String
    members: list[Member]
    authorized_operations: Int32 = field(default=-2147483648)


class Member(Struct):
    """A member: its client, its subscription and its assignment."""

    member_id: String
    rack_id: String | None = field(nullable="0+", default=None)
    member_epoch: Int32
    client_id: String
    client_host: String
    subscribed_topic_names: list[String]
    assignment: ShareGroupDescribeAssignment


class ShareGroupDescribeAssignment(Struct):
    """The partitions assigned to a member."""

    topic_partitions: list[ShareGroupDescribeTopicPartitions]


class ShareGroupDescribeTopicPartitions(Struct):
    """Partitions of one topic."""

    topic_id: Uuid
    topic_name: String
    partitions: list[Int32]


class ShareFetchRequest(Request, key=78, versions="1-2", flexible="0+"):
    """Acquire records of share partitions, and acknowledge earlier ones on the way."""

    group_id: String | None = field(nullable="0+", default=None)
    member_id: String | None = field(nullable="0+")
    share_session_epoch: Int32
    max_wait_ms: Int32
    min_bytes: Int32
    max_bytes: Int32 = field(default=2**31 - 1)
    max_records: Int32
    batch_size: Int32
    share_acquire_mode: Int8 = field("2+", default=0, ignorable=True)
    is_renew_ack: Bool = field("2+", default=False)
    topics: list[FetchTopic]
    forgotten_topics_data: list[ForgottenTopic]


class FetchTopic(Struct):
    """What to fetch and acknowledge in one topic."""

    topic_id: Uuid
    partitions: list[FetchPartition]


class FetchPartition(Struct):
    """What to fetch and acknowledge in one partition."""

    partition_index: Int32
    acknowledgement_batches: list[AcknowledgementBatch]


class AcknowledgementBatch(Struct):
    """What became of a range of offsets: one type for all, or one for each."""

    first_offset: Int64
    last_offset: Int64
    acknowledge_types: list[Int8]


class ForgottenTopic(Struct):
    """Partitions to drop from the share session."""

    topic_id: Uuid
    partitions: list[Int32]


class ShareFetchResponse(Response, key=78, versions="1-2", flexible="0+"):
    """The records that were acquired."""

    throttle_time_ms: Int32
    error_code: Int16
    error_message: String | None = field(nullable="0+", default=None)
    acquisition_lock_timeout_ms: Int32
    responses: list[ShareFetchableTopicResponse]
    node_endpoints: list[NodeEndpoint]


class ShareFetchableTopicResponse(Struct):
    """What was acquired in one topic."""

    topic_id: Uuid
    partitions: list[ShareFetchPartitionData]


class ShareFetchPartitionData(Struct):
    """What was acquired in one partition."""

    partition_index: Int32
    error_code: Int16
    error_message: String | None = field(nullable="0+", default=None)
    acknowledge_error_code: Int16
    acknowledge_error_message: String | None = field(nullable="0+", default=None)
    current_leader: LeaderIdAndEpoch
    records: FetchedRecords
    acquired_records: list[AcquiredRecords]


class LeaderIdAndEpoch(Struct):
    """Who leads a partition now, so that the client need not ask."""

    leader_id: Int32
    leader_epoch: Int32


class AcquiredRecords(Struct):
    """A range of acquired offsets, and how often they were delivered."""

    first_offset: Int64
    last_offset: Int64
    delivery_count: Int16


class NodeEndpoint(Struct):
    """Where a leader named in this response listens."""

    node_id: Int32
    host: String
    port: Int32
    rack: String | None = field(nullable="0+", default=None)


class ShareAcknowledgeRequest(Request, key=79, versions="1-2", flexible="0+"):
    """Acknowledge records without fetching more."""

    group_id: String | None = field(nullable="0+", default=None)
    member_id: String | None = field(nullable="0+")
    share_session_epoch: Int32
    is_renew_ack: Bool = field("2+", default=False)
    topics: list[AcknowledgeTopic]


class AcknowledgeTopic(Struct):
    """What to acknowledge in one topic."""

    topic_id: Uuid
    partitions: list[AcknowledgePartition]


class AcknowledgePartition(Struct):
    """What to acknowledge in one partition."""

    partition_index: Int32
    acknowledgement_batches: list[AcknowledgementBatch]


class ShareAcknowledgeResponse(Response, key=79, versions="1-2", flexible="0+"):
    """Which acknowledgements were accepted."""

    throttle_time_ms: Int32
    error_code: Int16
    error_message: String | None = field(nullable="0+", default=None)
    acquisition_lock_timeout_ms: Int32 = field("2+", default=0, ignorable=True)
    responses: list[ShareAcknowledgeTopicResponse]
    node_endpoints: list[NodeEndpoint]


class ShareAcknowledgeTopicResponse(Struct):
    """The outcome for one topic."""

    topic_id: Uuid
    partitions: list[ShareAcknowledgePartitionData]


class ShareAcknowledgePartitionData(Struct):
    """The outcome for one partition."""

    partition_index: Int32
    error_code: Int16
    error_message: String | None = field(nullable="0+", default=None)
    current_leader: LeaderIdAndEpoch


class DescribeShareGroupOffsetsRequest(Request, key=90, versions="0-1", flexible="0+"):
    """Ask where share groups stand."""

    groups: list[DescribeShareGroupOffsetsRequestGroup]


class DescribeShareGroupOffsetsRequestGroup(Struct):
    """A group to look at; null topics mean all."""

    group_id: String
    topics: list[DescribeShareGroupOffsetsRequestTopic] | None = field(nullable="0+")


class DescribeShareGroupOffsetsRequestTopic(Struct):
    """The partitions of one topic."""

    topic_name: String
    partitions: list[Int32]


class DescribeShareGroupOffsetsResponse(Response, key=90, versions="0-1", flexible="0+"):
    """Where the groups stand."""

    throttle_time_ms: Int32
    groups: list[DescribeShareGroupOffsetsResponseGroup]


class DescribeShareGroupOffsetsResponseGroup(Struct):
    """Where one group stands."""

    group_id: String
    topics: list[DescribeShareGroupOffsetsResponseTopic]
    error_code: Int16
    error_message: String | None = field(nullable="0+", default=None)


class DescribeShareGroupOffsetsResponseTopic(Struct):
    """Where a group stands in one topic."""

    topic_name: String
    topic_id: Uuid
    partitions: list[DescribeShareGroupOffsetsResponsePartition]


class DescribeShareGroupOffsetsResponsePartition(Struct):
    """The start offset of one partition, and the lag behind its end."""

    partition_index: Int32
    start_offset: Int64
    leader_epoch: Int32
    lag: Int64 = field("1+", default=-1, ignorable=True)
    error_code: Int16
    error_message: String | None = field(nullable="0+", default=None)


class AlterShareGroupOffsetsRequest(Request, key=91, versions="0", flexible="0+"):
    """Set the start offsets of a share group."""

    group_id: String
    topics: list[AlterShareGroupOffsetsRequestTopic]


class AlterShareGroupOffsetsRequestTopic(Struct):
    """The offsets to set in one topic."""

    topic_name: String
    partitions: list[AlterShareGroupOffsetsRequestPartition]


class AlterShareGroupOffsetsRequestPartition(Struct):
    """The offset to set in one partition."""

    partition_index: Int32
    start_offset: Int64


class AlterShareGroupOffsetsResponse(Response, key=91, versions="0", flexible="0+"):
    """Which offsets were set."""

    throttle_time_ms: Int32
    error_code: Int16
    error_message: String | None = field(nullable="0+", default=None)
    responses: list[AlterShareGroupOffsetsResponseTopic]


class AlterShareGroupOffsetsResponseTopic(Struct):
    """The outcome for one topic."""

    topic_name: String
    topic_id: Uuid
    partitions: list[AlterShareGroupOffsetsResponsePartition]


class AlterShareGroupOffsetsResponsePartition(Struct):
    """The outcome for one partition."""

    partition_index: Int32
    error_code: Int16
    error_message: String | None = field(nullable="0+", default=None)


class DeleteShareGroupOffsetsRequest(Request, key=92, versions="0", flexible="0+"):
    """Delete the offsets that a share group keeps for topics."""

    group_id: String
    topics: list[DeleteShareGroupOffsetsRequestTopic]


class DeleteShareGroupOffsetsRequestTopic(Struct):
    """A topic to forget."""

    topic_name: String


class DeleteShareGroupOffsetsResponse(Response, key=92, versions="0", flexible="0+"):
    """Which topics were forgotten."""

    throttle_time_ms: Int32
    error_code: Int16
    error_message: String | None = field(nullable="0+", default=None)
    responses: list[DeleteShareGroupOffsetsResponseTopic]


class DeleteShareGroupOffsetsResponseTopic(Struct):
    """The outcome for one topic."""

    topic_name: String
    topic_id: Uuid
    error_code: Int16
    error_message: String | None = field(nullable="0+", default=None)


class InitializeShareGroupStateRequest(Request, key=83, versions="0", flexible="0+"):
    """Start keeping the state of share partitions."""

    group_id: String
    topics: list[InitializeStateData]


class InitializeStateData(Struct):
    """The partitions of one topic to start with."""

    topic_id: Uuid
    partitions: list[InitializeShareGroupStatePartitionData]


class InitializeShareGroupStatePartitionData(Struct):
    """Where one partition starts."""

    partition: Int32
    state_epoch: Int32
    start_offset: Int64


class InitializeShareGroupStateResponse(Response, key=83, versions="0", flexible="0+"):
    """Which partitions were started."""

    results: list[InitializeStateResult]


class InitializeStateResult(Struct):
    """The outcome for one topic."""

    topic_id: Uuid
    partitions: list[InitializeShareGroupStatePartitionResult]


class InitializeShareGroupStatePartitionResult(Struct):
    """The outcome for one partition."""

    partition: Int32
    error_code: Int16
    error_message: String | None = field(nullable="0+", default=None)


class ReadShareGroupStateRequest(Request, key=84, versions="0", flexible="0+"):
    """Read the state of share partitions in order to lead them."""

    group_id: String
    topics: list[ReadStateData]


class ReadStateData(Struct):
    """The partitions of one topic to read."""

    topic_id: Uuid
    partitions: list[ReadShareGroupStatePartitionData]


class ReadShareGroupStatePartitionData(Struct):
    """A partition to read; the leader epoch fences former leaders."""

    partition: Int32
    leader_epoch: Int32


class ReadShareGroupStateResponse(Response, key=84, versions="0", flexible="0+"):
    """The state that was kept."""

    results: list[ReadStateResult]


class ReadStateResult(Struct):
    """The state of one topic."""

    topic_id: Uuid
    partitions: list[ReadShareGroupStatePartitionResult]


class ReadShareGroupStatePartitionResult(Struct):
    """The state of one partition."""

    partition: Int32
    error_code: Int16
    error_message: String | None = field(nullable="0+", default=None)
    state_epoch: Int32
    start_offset: Int64
    state_batches: list[StateBatch]


class StateBatch(Struct):
    """The delivery state of a range of offsets."""

    first_offset: Int64
    last_offset: Int64
    delivery_state: Int8
    delivery_count: Int16


class WriteShareGroupStateRequest(Request, key=85, versions="0-1", flexible="0+"):
    """Save changes of the state of share partitions."""

    group_id: String
    topics: list[WriteStateData]


class WriteStateData(Struct):
    """The partitions of one topic to write."""

    topic_id: Uuid
    partitions: list[WriteShareGroupStatePartitionData]


class WriteShareGroupStatePartitionData(Struct):
    """What has changed in one partition."""

    partition: Int32
    state_epoch: Int32
    leader_epoch: Int32
    start_offset: Int64
    delivery_complete_count: Int32 = field("1+", default=-1, ignorable=True)
    state_batches: list[StateBatch]


class WriteShareGroupStateResponse(Response, key=85, versions="0-1", flexible="0+"):
    """Which changes were saved."""

    results: list[WriteStateResult]


class WriteStateResult(Struct):
    """The outcome for one topic."""

    topic_id: Uuid
    partitions: list[InitializeShareGroupStatePartitionResult]


class DeleteShareGroupStateRequest(Request, key=86, versions="0", flexible="0+"):
    """Stop keeping the state of share partitions."""

    group_id: String
    topics: list[DeleteStateData]


class DeleteStateData(Struct):
    """The partitions of one topic to forget."""

    topic_id: Uuid
    partitions: list[DeleteShareGroupStatePartitionData]


class DeleteShareGroupStatePartitionData(Struct):
    """A partition to forget."""

    partition: Int32


class DeleteShareGroupStateResponse(Response, key=86, versions="0", flexible="0+"):
    """Which partitions were forgotten."""

    results: list[DeleteStateResult]


class DeleteStateResult(Struct):
    """The outcome for one topic."""

    topic_id: Uuid
    partitions: list[InitializeShareGroupStatePartitionResult]


class ReadShareGroupStateSummaryRequest(Request, key=87, versions="0-1", flexible="0+"):
    """Read only the offsets and epochs of share partitions."""

    group_id: String
    topics: list[ReadStateSummaryData]


class ReadStateSummaryData(Struct):
    """The partitions of one topic to read."""

    topic_id: Uuid
    partitions: list[ReadShareGroupStatePartitionData]


class ReadShareGroupStateSummaryResponse(Response, key=87, versions="0-1", flexible="0+"):
    """The offsets and epochs that were kept."""

    results: list[ReadStateSummaryResult]


class ReadStateSummaryResult(Struct):
    """The summary of one topic."""

    topic_id: Uuid
    partitions: list[ReadShareGroupStateSummaryPartitionResult]


class ReadShareGroupStateSummaryPartitionResult(Struct):
    """The summary of one partition."""

    partition: Int32
    error_code: Int16
    error_message: String | None = field(nullable="0+", default=None)
    state_epoch: Int32
    leader_epoch: Int32
    start_offset: Int64
    delivery_complete_count: Int32 = field("1+", default=-1, ignorable=True)
