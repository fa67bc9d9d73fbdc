"""Topics: creating, deleting, growing, moving replicas, and electing leaders."""

from __future__ import annotations

from moldau.model.ids import ZERO_UUID
from moldau.wire.message import Request, Response
from moldau.wire.types import Bool, Int8, Int16, Int32, String, Struct, Uuid, field


class CreateTopicsRequest(Request, key=19, versions="2-7", flexible="5+"):
    """Create topics."""

    topics: list[CreatableTopic]
    timeout_ms: Int32 = field(default=60000)
    validate_only: Bool = field(default=False)


class CreatableTopic(Struct):
    """A topic to create; replicas are placed by hand or by the controller."""

    name: String
    num_partitions: Int32
    replication_factor: Int16
    assignments: list[CreatableReplicaAssignment]
    configs: list[CreatableTopicConfig]


class CreatableReplicaAssignment(Struct):
    """The brokers of one partition."""

    partition_index: Int32
    broker_ids: list[Int32]


class CreatableTopicConfig(Struct):
    """A setting of the new topic."""

    name: String
    value: String | None = field(nullable="0+")


class CreateTopicsResponse(Response, key=19, versions="2-7", flexible="5+"):
    """Which topics were created."""

    throttle_time_ms: Int32
    topics: list[CreatableTopicResult]


class CreatableTopicResult(Struct):
    """The outcome for one topic."""

    name: String
    topic_id: Uuid = field("7+", default=ZERO_UUID, ignorable=True)
    error_code: Int16
    error_message: String | None = field(nullable="0+")
    topic_config_error_code: Int16 = field("5+", tag=0, default=0, ignorable=True)
    num_partitions: Int32 = field("5+", default=-1, ignorable=True)
    replication_factor: Int16 = field("5+", default=-1, ignorable=True)
    configs: list[CreatableTopicConfigs] | None = field("5+", nullable="5+", default=[], ignorable=True)


class CreatableTopicConfigs(Struct):
    """A setting of the created topic, and where it comes from."""

    name: String
    value: String | None = field(nullable="5+")
    read_only: Bool
    config_source: Int8 = field(default=-1)
    is_sensitive: Bool


class DeleteTopicsRequest(Request, key=20, versions="1-6", flexible="4+"):
    """Delete topics; from version 6 on also by id."""

    topics: list[DeleteTopicState] = field("6+", default=[])
    topic_names: list[String] = field("0-5", default=[], ignorable=True)
    timeout_ms: Int32


class DeleteTopicState(Struct):
    """A topic to delete, by name or by id."""

    name: String | None = field(nullable="6+", default=None)
    topic_id: Uuid


class DeleteTopicsResponse(Response, key=20, versions="1-6", flexible="4+"):
    """Which topics were deleted."""

    throttle_time_ms: Int32
    responses: list[DeletableTopicResult]


class DeletableTopicResult(Struct):
    """The outcome for one topic."""

    name: String | None = field(nullable="6+")
    topic_id: Uuid = field("6+", default=ZERO_UUID, ignorable=True)
    error_code: Int16
    error_message: String | None = field("5+", nullable="5+", default=None, ignorable=True)


class CreatePartitionsRequest(Request, key=37, versions="0-3", flexible="2+"):
    """Add partitions to topics."""

    topics: list[CreatePartitionsTopic]
    timeout_ms: Int32
    validate_only: Bool


class CreatePartitionsTopic(Struct):
    """The number of partitions that one topic is to have."""

    name: String
    count: Int32
    assignments: list[CreatePartitionsAssignment] | None = field(nullable="0+")


class CreatePartitionsAssignment(Struct):
    """The brokers of one new partition."""

    broker_ids: list[Int32]


class CreatePartitionsResponse(Response, key=37, versions="0-3", flexible="2+"):
    """Which topics were given more partitions."""

    throttle_time_ms: Int32
    results: list[CreatePartitionsTopicResult]


class CreatePartitionsTopicResult(Struct):
    """The outcome for one topic."""

    name: String
    error_code: Int16
    error_message: String | None = field(nullable="0+", default=None)


class AlterPartitionReassignmentsRequest(Request, key=45, versions="0-1", flexible="0+"):
    """Move replicas to other brokers, or call off a move."""

    timeout_ms: Int32 = field(default=60000)
    allow_replication_factor_change: Bool = field("1+", default=True)
    topics: list[ReassignableTopic]


class ReassignableTopic(Struct):
    """The moves in one topic."""

    name: String
    partitions: list[ReassignablePartition]


class ReassignablePartition(Struct):
    """The brokers that are to hold one partition; null calls off its move."""

    partition_index: Int32
    replicas: list[Int32] | None = field(nullable="0+", default=None)


class AlterPartitionReassignmentsResponse(Response, key=45, versions="0-1", flexible="0+"):
    """Which moves were started or called off."""

    throttle_time_ms: Int32
    allow_replication_factor_change: Bool = field("1+", default=True, ignorable=True)
    error_code: Int16
    error_message: String | None = field(nullable="0+")
    responses: list[ReassignableTopicResponse]


class ReassignableTopicResponse(Struct):
    """The outcome for one topic."""

    name: String
    partitions: list[ReassignablePartitionResponse]


class ReassignablePartitionResponse(Struct):
    """The outcome for one partition."""

    partition_index: Int32
    error_code: Int16
    error_message: String | None = field(nullable="0+")


class ListPartitionReassignmentsRequest(Request, key=46, versions="0", flexible="0+"):
    """Ask for moves of replicas that are under way."""

    timeout_ms: Int32 = field(default=60000)
    topics: list[ListPartitionReassignmentsTopics] | None = field(nullable="0+", default=None)


class ListPartitionReassignmentsTopics(Struct):
    """The partitions of one topic to look at."""

    name: String
    partition_indexes: list[Int32]


class ListPartitionReassignmentsResponse(Response, key=46, versions="0", flexible="0+"):
    """The moves that are under way."""

    throttle_time_ms: Int32
    error_code: Int16
    error_message: String | None = field(nullable="0+")
    topics: list[OngoingTopicReassignment]


class OngoingTopicReassignment(Struct):
    """The moves in one topic."""

    name: String
    partitions: list[OngoingPartitionReassignment]


class OngoingPartitionReassignment(Struct):
    """The replicas of one partition, those being added and those being removed."""

    partition_index: Int32
    replicas: list[Int32]
    adding_replicas: list[Int32]
    removing_replicas: list[Int32]


class ElectLeadersRequest(Request, key=43, versions="0-2", flexible="2+"):
    """Elect leaders, preferred or unclean."""

    election_type: Int8 = field("1+", default=0)
    topic_partitions: list[TopicPartitions] | None = field(nullable="0+")
    timeout_ms: Int32 = field(default=60000)


class TopicPartitions(Struct):
    """Partitions of one topic."""

    topic: String
    partitions: list[Int32]


class ElectLeadersResponse(Response, key=43, versions="0-2", flexible="2+"):
    """Which elections were held."""

    throttle_time_ms: Int32
    error_code: Int16 = field("1+", default=0)
    replica_election_results: list[ReplicaElectionResult]


class ReplicaElectionResult(Struct):
    """The outcome for one topic."""

    topic: String
    partition_result: list[PartitionResult]


class PartitionResult(Struct):
    """The outcome for one partition."""

    partition_id: Int32
    error_code: Int16
    error_message: String | None = field(nullable="0+")
