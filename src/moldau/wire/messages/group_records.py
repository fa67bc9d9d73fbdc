"""Records of `__consumer_offsets`: offsets and groups of every kind."""

from __future__ import annotations

from moldau.model.ids import ZERO_UUID
from moldau.wire.message import CoordinatorKey, CoordinatorValue
from moldau.wire.types import Bytes, Int8, Int16, Int32, Int64, String, Struct, UInt16, Uuid, field


class LegacyOffsetCommitKey(CoordinatorKey, key=0, versions="0"):
    """The key of a committed offset as Kafka 0.8.2 wrote it."""

    group: String
    topic: String
    partition: Int32


class LegacyOffsetCommitValue(CoordinatorValue, key=0, versions="0"):
    """A committed offset as Kafka 0.8.2 wrote it."""

    offset: Int64
    metadata: String
    commit_timestamp: Int64


class OffsetCommitKey(CoordinatorKey, key=1, versions="0"):
    """The key of a committed offset: the group and the partition."""

    group: String
    topic: String
    partition: Int32


class OffsetCommitValue(CoordinatorValue, key=1, versions="0-4", flexible="4+"):
    """A committed offset."""

    offset: Int64
    leader_epoch: Int32 = field("3+", default=-1, ignorable=True)
    metadata: String
    commit_timestamp: Int64
    expire_timestamp: Int64 = field("1", default=-1, ignorable=True)
    topic_id: Uuid = field("4+", tag=0, default=ZERO_UUID, ignorable=True)


class GroupMetadataKey(CoordinatorKey, key=2, versions="0"):
    """The key of a classic group."""

    group: String


class GroupMetadataValue(CoordinatorValue, key=2, versions="0-4", flexible="4+"):
    """A generation of a classic group."""

    protocol_type: String
    generation: Int32
    protocol: String | None = field(nullable="0+")
    leader: String | None = field(nullable="0+")
    current_state_timestamp: Int64 = field("2+", default=-1, ignorable=True)
    members: list[MemberMetadata]


class MemberMetadata(Struct):
    """A member of a classic group."""

    member_id: String
    group_instance_id: String | None = field("3+", nullable="3+", default=None, ignorable=True)
    client_id: String
    client_host: String
    rebalance_timeout: Int32 = field("1+", default=-1, ignorable=True)
    session_timeout: Int32
    subscription: Bytes
    assignment: Bytes


class ConsumerGroupMetadataKey(CoordinatorKey, key=3, versions="0"):
    """The key of a consumer group."""

    group_id: String


class ConsumerGroupMetadataValue(CoordinatorValue, key=3, versions="0", flexible="0+"):
    """The epoch of a consumer group."""

    epoch: Int32
    metadata_hash: Int64 = field(tag=0, default=0)


class ConsumerGroupPartitionMetadataKey(CoordinatorKey, key=4, versions="0"):
    """The key of the partitions that a consumer group has seen; no longer written."""

    group_id: String


class ConsumerGroupPartitionMetadataValue(CoordinatorValue, key=4, versions="0", flexible="0+"):
    """The partitions that a consumer group has seen; no longer written."""

    topics: list[TopicMetadata]


class TopicMetadata(Struct):
    """A topic and its number of partitions."""

    topic_id: Uuid
    topic_name: String
    num_partitions: Int32
    partition_metadata: list[PartitionMetadata]


class PartitionMetadata(Struct):
    """The racks of one partition."""

    partition: Int32
    racks: list[String]


class ConsumerGroupMemberMetadataKey(CoordinatorKey, key=5, versions="0"):
    """The key of a member of a consumer group."""

    group_id: String
    member_id: String


class ClassicMemberMetadata(Struct):
    """What a member of the classic kind said when it joined."""

    session_timeout_ms: Int32 = field(default=0)
    supported_protocols: list[ClassicProtocol] = field(default=[])


class ConsumerGroupMemberMetadataValue(CoordinatorValue, key=5, versions="0", flexible="0+"):
    """A member of a consumer group and its subscription."""

    instance_id: String | None = field(nullable="0+")
    rack_id: String | None = field(nullable="0+")
    client_id: String
    client_host: String
    subscribed_topic_names: list[String]
    subscribed_topic_regex: String | None = field(nullable="0+")
    rebalance_timeout_ms: Int32 = field(default=-1)
    server_assignor: String | None = field(nullable="0+")
    classic_member_metadata: ClassicMemberMetadata | None = field(
        tag=0, nullable="0+", default_factory=ClassicMemberMetadata
    )


class ClassicProtocol(Struct):
    """A protocol that a classic member supports."""

    name: String
    metadata: Bytes


class ConsumerGroupTargetAssignmentMetadataKey(CoordinatorKey, key=6, versions="0"):
    """The key of the epoch of a consumer group's target assignment."""

    group_id: String


class ConsumerGroupTargetAssignmentMetadataValue(CoordinatorValue, key=6, versions="0", flexible="0+"):
    """The epoch of a consumer group's target assignment."""

    assignment_epoch: Int32
    assignment_timestamp: Int64 = field(tag=0, default=0)


class ConsumerGroupTargetAssignmentMemberKey(CoordinatorKey, key=7, versions="0"):
    """The key of a member's target assignment."""

    group_id: String
    member_id: String


class ConsumerGroupTargetAssignmentMemberValue(CoordinatorValue, key=7, versions="0", flexible="0+"):
    """The partitions that a member is to own."""

    topic_partitions: list[TopicPartition]


class TopicPartition(Struct):
    """Partitions of one topic."""

    topic_id: Uuid
    partitions: list[Int32]


class ConsumerGroupCurrentMemberAssignmentKey(CoordinatorKey, key=8, versions="0"):
    """The key of a member's current assignment."""

    group_id: String
    member_id: String


class ConsumerGroupCurrentMemberAssignmentValue(CoordinatorValue, key=8, versions="0", flexible="0+"):
    """The partitions that a member owns, and those it is giving up."""

    member_epoch: Int32
    previous_member_epoch: Int32
    state: Int8
    assigned_partitions: list[ConsumerGroupCurrentMemberAssignmentTopicPartitions]
    partitions_pending_revocation: list[ConsumerGroupCurrentMemberAssignmentTopicPartitions]


class ConsumerGroupCurrentMemberAssignmentTopicPartitions(Struct):
    """Partitions of one topic, and the epochs in which they were assigned."""

    topic_id: Uuid
    partitions: list[Int32]
    assignment_epochs: list[Int32] | None = field(tag=0, nullable="0+", default=[])


class ConsumerGroupRegularExpressionKey(CoordinatorKey, key=16, versions="0"):
    """The key of a regular expression that members subscribe to."""

    group_id: String
    regular_expression: String


class ConsumerGroupRegularExpressionValue(CoordinatorValue, key=16, versions="0", flexible="0+"):
    """The topics that a regular expression stands for."""

    topics: list[String]
    version: Int64
    timestamp: Int64


class ShareGroupMetadataKey(CoordinatorKey, key=11, versions="0"):
    """The key of a share group."""

    group_id: String


class ShareGroupMetadataValue(CoordinatorValue, key=11, versions="0", flexible="0+"):
    """The epoch of a share group."""

    epoch: Int32
    metadata_hash: Int64


class ShareGroupMemberMetadataKey(CoordinatorKey, key=10, versions="0"):
    """The key of a member of a share group."""

    group_id: String
    member_id: String


class ShareGroupMemberMetadataValue(CoordinatorValue, key=10, versions="0", flexible="0+"):
    """A member of a share group and its subscription."""

    rack_id: String | None = field(nullable="0+")
    client_id: String
    client_host: String
    subscribed_topic_names: list[String]


class ShareGroupTargetAssignmentMetadataKey(CoordinatorKey, key=12, versions="0"):
    """The key of the epoch of a share group's target assignment."""

    group_id: String


class ShareGroupTargetAssignmentMetadataValue(CoordinatorValue, key=12, versions="0", flexible="0+"):
    """The epoch of a share group's target assignment."""

    assignment_epoch: Int32
    assignment_timestamp: Int64 = field(tag=0, default=0)


class ShareGroupTargetAssignmentMemberKey(CoordinatorKey, key=13, versions="0"):
    """The key of a member's target assignment."""

    group_id: String
    member_id: String


class ShareGroupTargetAssignmentMemberValue(CoordinatorValue, key=13, versions="0", flexible="0+"):
    """The partitions that a member is to fetch from."""

    topic_partitions: list[TopicPartition]


class ShareGroupCurrentMemberAssignmentKey(CoordinatorKey, key=14, versions="0"):
    """The key of a member's current assignment."""

    group_id: String
    member_id: String


class ShareGroupCurrentMemberAssignmentValue(CoordinatorValue, key=14, versions="0", flexible="0+"):
    """The partitions that a member fetches from."""

    member_epoch: Int32
    previous_member_epoch: Int32
    state: Int8
    assigned_partitions: list[ShareGroupCurrentMemberAssignmentTopicPartitions]


class ShareGroupCurrentMemberAssignmentTopicPartitions(Struct):
    """Partitions of one topic."""

    topic_id: Uuid
    partitions: list[Int32]


class ShareGroupStatePartitionMetadataKey(CoordinatorKey, key=15, versions="0"):
    """The key of the partitions whose state a share group keeps."""

    group_id: String


class ShareGroupStatePartitionMetadataValue(CoordinatorValue, key=15, versions="0", flexible="0+"):
    """The partitions whose state a share group keeps, is starting or is deleting."""

    initializing_topics: list[TopicPartitionsInfo]
    initialized_topics: list[TopicPartitionsInfo]
    deleting_topics: list[DeletingTopicInfo]


class TopicPartitionsInfo(Struct):
    """A topic and those of its partitions."""

    topic_id: Uuid
    topic_name: String
    partitions: list[Int32]


class DeletingTopicInfo(Struct):
    """A topic that is being deleted."""

    topic_id: Uuid
    topic_name: String


class StreamsGroupMetadataKey(CoordinatorKey, key=17, versions="0"):
    """The key of a streams group."""

    group_id: String


class StreamsGroupMetadataValue(CoordinatorValue, key=17, versions="0", flexible="0+"):
    """The epochs of a streams group."""

    epoch: Int32
    metadata_hash: Int64
    validated_topology_epoch: Int32 = field(tag=0, default=-1)
    last_assignment_configs: list[LastAssignmentConfig] | None = field(tag=1, nullable="0+", default=[])


class LastAssignmentConfig(Struct):
    """A setting that the last assignment was made with."""

    key: String
    value: String


class StreamsGroupMemberMetadataKey(CoordinatorKey, key=19, versions="0"):
    """The key of a member of a streams group."""

    group_id: String
    member_id: String


class StreamsGroupMemberMetadataValue(CoordinatorValue, key=19, versions="0", flexible="0+"):
    """A member of a streams group."""

    instance_id: String | None = field(nullable="0+")
    rack_id: String | None = field(nullable="0+")
    client_id: String
    client_host: String
    rebalance_timeout_ms: Int32 = field(default=-1)
    topology_epoch: Int32
    process_id: String
    user_endpoint: Endpoint | None = field(nullable="0+", default=None)
    client_tags: list[KeyValue]


class Endpoint(Struct):
    """Where an instance answers interactive queries."""

    host: String
    port: UInt16


class KeyValue(Struct):
    """A tag of a client."""

    key: String
    value: String


class StreamsGroupTargetAssignmentMetadataKey(CoordinatorKey, key=20, versions="0"):
    """The key of the epoch of a streams group's target assignment."""

    group_id: String


class StreamsGroupTargetAssignmentMetadataValue(CoordinatorValue, key=20, versions="0", flexible="0+"):
    """The epoch of a streams group's target assignment."""

    assignment_epoch: Int32
    assignment_timestamp: Int64 = field(tag=0, default=0)


class StreamsGroupTargetAssignmentMemberKey(CoordinatorKey, key=21, versions="0"):
    """The key of a member's target tasks."""

    group_id: String
    member_id: String


class StreamsGroupTargetAssignmentMemberValue(CoordinatorValue, key=21, versions="0", flexible="0+"):
    """The tasks that a member is to run."""

    active_tasks: list[StreamsGroupTargetAssignmentMemberTaskIds]
    standby_tasks: list[StreamsGroupTargetAssignmentMemberTaskIds]
    warmup_tasks: list[StreamsGroupTargetAssignmentMemberTaskIds]


class StreamsGroupTargetAssignmentMemberTaskIds(Struct):
    """Tasks of one subtopology, by partition."""

    subtopology_id: String
    partitions: list[Int32]


class StreamsGroupCurrentMemberAssignmentKey(CoordinatorKey, key=22, versions="0"):
    """The key of a member's current tasks."""

    group_id: String
    member_id: String


class StreamsGroupCurrentMemberAssignmentValue(CoordinatorValue, key=22, versions="0", flexible="0+"):
    """The tasks that a member runs, and those it is giving up."""

    member_epoch: Int32
    previous_member_epoch: Int32
    state: Int8
    active_tasks: list[StreamsGroupCurrentMemberAssignmentTaskIds]
    standby_tasks: list[StreamsGroupCurrentMemberAssignmentTaskIds]
    warmup_tasks: list[StreamsGroupCurrentMemberAssignmentTaskIds]
    active_tasks_pending_revocation: list[StreamsGroupCurrentMemberAssignmentTaskIds]
    standby_tasks_pending_revocation: list[StreamsGroupCurrentMemberAssignmentTaskIds]
    warmup_tasks_pending_revocation: list[StreamsGroupCurrentMemberAssignmentTaskIds]


class StreamsGroupCurrentMemberAssignmentTaskIds(Struct):
    """Tasks of one subtopology, and the epochs in which they were assigned."""

    subtopology_id: String
    partitions: list[Int32]
    assignment_epochs: list[Int32] | None = field(tag=0, nullable="0+", default=[])


class StreamsGroupTopologyKey(CoordinatorKey, key=23, versions="0"):
    """The key of a streams group's topology."""

    group_id: String


class StreamsGroupTopologyValue(CoordinatorValue, key=23, versions="0", flexible="0+"):
    """The processing graph of a streams group."""

    epoch: Int32
    subtopologies: list[Subtopology]


class Subtopology(Struct):
    """A part of the graph that runs as one task per partition."""

    subtopology_id: String
    source_topics: list[String]
    source_topic_regex: list[String]
    state_changelog_topics: list[InternalTopicInfo]
    repartition_sink_topics: list[String]
    repartition_source_topics: list[InternalTopicInfo]
    copartition_groups: list[CopartitionGroup]


class InternalTopicInfo(Struct):
    """An internal topic, its size and its configuration."""

    name: String
    partitions: Int32
    replication_factor: Int16
    topic_configs: list[TopicConfig]


class TopicConfig(Struct):
    """A setting of an internal topic."""

    key: String
    value: String


class CopartitionGroup(Struct):
    """Topics, by their index, that must have equally many partitions."""

    source_topics: list[Int16]
    source_topic_regex: list[Int16]
    repartition_source_topics: list[Int16]
