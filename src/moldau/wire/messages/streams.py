"""Streams groups (KIP-1071): membership and tasks of Kafka Streams applications."""

from __future__ import annotations

from moldau.wire.message import Request, Response
from moldau.wire.types import Bool, Int8, Int16, Int32, Int64, String, Struct, UInt16, field


class StreamsGroupHeartbeatRequest(Request, key=88, versions="0", flexible="0+"):
    """Join, stay in or leave a streams group; fields that have not changed are null or -1."""

    group_id: String
    member_id: String
    member_epoch: Int32
    endpoint_information_epoch: Int32
    instance_id: String | None = field(nullable="0+", default=None)
    rack_id: String | None = field(nullable="0+", default=None)
    rebalance_timeout_ms: Int32 = field(default=-1)
    topology: StreamsGroupHeartbeatTopology | None = field(nullable="0+", default=None)
    active_tasks: list[TaskIds] | None = field(nullable="0+", default=None)
    standby_tasks: list[TaskIds] | None = field(nullable="0+", default=None)
    warmup_tasks: list[TaskIds] | None = field(nullable="0+", default=None)
    process_id: String | None = field(nullable="0+", default=None)
    user_endpoint: Endpoint | None = field(nullable="0+", default=None)
    client_tags: list[KeyValue] | None = field(nullable="0+", default=None)
    task_offsets: list[TaskOffset] | None = field(nullable="0+", default=None)
    task_end_offsets: list[TaskOffset] | None = field(nullable="0+", default=None)
    shutdown_application: Bool = field(default=False)


class StreamsGroupHeartbeatTopology(Struct):
    """The processing graph that a new application brings along."""

    epoch: Int32
    subtopologies: list[StreamsGroupHeartbeatSubtopology]


class StreamsGroupHeartbeatSubtopology(Struct):
    """A part of the graph that runs as one task per partition."""

    subtopology_id: String
    source_topics: list[String]
    source_topic_regex: list[String]
    state_changelog_topics: list[TopicInfo]
    repartition_sink_topics: list[String]
    repartition_source_topics: list[TopicInfo]
    copartition_groups: list[CopartitionGroup]


class TopicInfo(Struct):
    """An internal topic, its size and its configuration."""

    name: String
    partitions: Int32
    replication_factor: Int16
    topic_configs: list[KeyValue]


class KeyValue(Struct):
    """A named value."""

    key: String
    value: String


class CopartitionGroup(Struct):
    """Topics, by their index, that must have equally many partitions."""

    source_topics: list[Int16]
    source_topic_regex: list[Int16]
    repartition_source_topics: list[Int16]


class TaskIds(Struct):
    """Tasks of one subtopology, by partition."""

    subtopology_id: String
    partitions: list[Int32]


class Endpoint(Struct):
    """Where an instance answers interactive queries."""

    host: String
    port: UInt16


class TaskOffset(Struct):
    """How far a task has read its changelog."""

    subtopology_id: String
    partition: Int32
    offset: Int64


class StreamsGroupHeartbeatResponse(Response, key=88, versions="0", flexible="0+"):
    """The member's epoch and, when they have changed, its tasks."""

    throttle_time_ms: Int32
    error_code: Int16
    error_message: String | None = field(nullable="0+", default=None)
    member_id: String
    member_epoch: Int32
    heartbeat_interval_ms: Int32
    acceptable_recovery_lag: Int32
    task_offset_interval_ms: Int32
    status: list[Status] | None = field(nullable="0+")
    active_tasks: list[TaskIds] | None = field(nullable="0+", default=None)
    standby_tasks: list[TaskIds] | None = field(nullable="0+", default=None)
    warmup_tasks: list[TaskIds] | None = field(nullable="0+", default=None)
    endpoint_information_epoch: Int32
    partitions_by_user_endpoint: list[EndpointToPartitions] | None = field(nullable="0+", default=None)


class Status(Struct):
    """Why the group cannot run as it should."""

    status_code: Int8
    status_detail: String


class EndpointToPartitions(Struct):
    """Which partitions an instance can answer queries for."""

    user_endpoint: Endpoint
    active_partitions: list[TopicPartition]
    standby_partitions: list[TopicPartition]


class TopicPartition(Struct):
    """Partitions of one topic."""

    topic: String
    partitions: list[Int32]


class StreamsGroupDescribeRequest(Request, key=89, versions="0", flexible="0+"):
    """Ask for the state of streams groups."""

    group_ids: list[String]
    include_authorized_operations: Bool


class StreamsGroupDescribeResponse(Response, key=89, versions="0", flexible="0+"):
    """The groups that were asked for."""

    throttle_time_ms: Int32
    groups: list[DescribedGroup]


class DescribedGroup(Struct):
    """A group, its epochs, its topology and its members."""

    error_code: Int16
    error_message: String | None = field(nullable="0+", default=None)
    group_id: String
    group_state: String
    group_epoch: Int32
    assignment_epoch: Int32
    topology: StreamsGroupDescribeTopology | None = field(nullable="0+", default=None)
    members: list[Member]
    authorized_operations: Int32 = field(default=-2147483648)


class StreamsGroupDescribeTopology(Struct):
    """The processing graph of a group."""

    epoch: Int32
    subtopologies: list[StreamsGroupDescribeSubtopology] | None = field(nullable="0+", default=None)


class StreamsGroupDescribeSubtopology(Struct):
    """A part of the graph and its topics."""

    subtopology_id: String
    source_topics: list[String]
    repartition_sink_topics: list[String]
    state_changelog_topics: list[TopicInfo]
    repartition_source_topics: list[TopicInfo]


class Member(Struct):
    """A member: its client, its instance and its tasks."""

    member_id: String
    member_epoch: Int32
    instance_id: String | None = field(nullable="0+", default=None)
    rack_id: String | None = field(nullable="0+", default=None)
    client_id: String
    client_host: String
    topology_epoch: Int32
    process_id: String
    user_endpoint: Endpoint | None = field(nullable="0+", default=None)
    client_tags: list[KeyValue]
    task_offsets: list[TaskOffset]
    task_end_offsets: list[TaskOffset]
    assignment: Assignment
    target_assignment: Assignment
    is_classic: Bool


class Assignment(Struct):
    """The tasks of a member: active, standby and warming up."""

    active_tasks: list[TaskIds]
    standby_tasks: list[TaskIds]
    warmup_tasks: list[TaskIds]
