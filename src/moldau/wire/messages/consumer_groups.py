"""Consumer groups whose assignment the coordinator computes (KIP-848)."""

from __future__ import annotations

from moldau.wire.message import Request, Response
from moldau.wire.types import Bool, Int8, Int16, Int32, String, Struct, Uuid, field


class ConsumerGroupHeartbeatRequest(Request, key=68, versions="0-1", flexible="0+"):
    """Join, stay in or leave a group; fields that have not changed are null or -1."""

    group_id: String
    member_id: String
    member_epoch: Int32
    instance_id: String | None = field(nullable="0+", default=None)
    rack_id: String | None = field(nullable="0+", default=None)
    rebalance_timeout_ms: Int32 = field(default=-1)
    subscribed_topic_names: list[String] | None = field(nullable="0+", default=None)
    subscribed_topic_regex: String | None = field("1+", nullable="1+", default=None)
    server_assignor: String | None = field(nullable="0+", default=None)
    topic_partitions: list[ConsumerGroupHeartbeatTopicPartitions] | None = field(nullable="0+", default=None)


class ConsumerGroupHeartbeatTopicPartitions(Struct):
    """Partitions of one topic."""

    topic_id: Uuid
    partitions: list[Int32]


class ConsumerGroupHeartbeatResponse(Response, key=68, versions="0-1", flexible="0+"):
    """The member's epoch and, when it has changed, its assignment."""

    throttle_time_ms: Int32
    error_code: Int16
    error_message: String | None = field(nullable="0+", default=None)
    member_id: String | None = field(nullable="0+", default=None)
    member_epoch: Int32
    heartbeat_interval_ms: Int32
    assignment: ConsumerGroupHeartbeatAssignment | None = field(nullable="0+", default=None)


class ConsumerGroupHeartbeatAssignment(Struct):
    """All partitions that the member is to own."""

    topic_partitions: list[ConsumerGroupHeartbeatTopicPartitions]


class ConsumerGroupDescribeRequest(Request, key=69, versions="0-1", flexible="0+"):
    """Ask for the state of consumer groups."""

    group_ids: list[String]
    include_authorized_operations: Bool


class ConsumerGroupDescribeResponse(Response, key=69, versions="0-1", flexible="0+"):
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
    """A member: its client, its subscription, what it owns and what it is to own."""

    member_id: String
    instance_id: String | None = field(nullable="0+", default=None)
    rack_id: String | None = field(nullable="0+", default=None)
    member_epoch: Int32
    client_id: String
    client_host: String
    subscribed_topic_names: list[String]
    subscribed_topic_regex: String | None = field(nullable="0+", default=None)
    assignment: ConsumerGroupDescribeAssignment
    target_assignment: ConsumerGroupDescribeAssignment
    member_type: Int8 = field("1+", default=-1, ignorable=True)


class ConsumerGroupDescribeAssignment(Struct):
    """The partitions assigned to a member."""

    topic_partitions: list[ConsumerGroupDescribeTopicPartitions]


class ConsumerGroupDescribeTopicPartitions(Struct):
    """Partitions of one topic."""

    topic_id: Uuid
    topic_name: String
    partitions: list[Int32]
