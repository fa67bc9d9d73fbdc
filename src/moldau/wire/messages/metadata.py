"""What clients ask about the cluster: brokers, topics, partitions and their leaders."""

from __future__ import annotations

from moldau.model.ids import ZERO_UUID
from moldau.wire.message import Request, Response
from moldau.wire.types import Bool, Int8, Int16, Int32, String, Struct, Uuid, field


class MetadataRequest(Request, key=3, versions="0-13", flexible="9+"):
    """Ask for the brokers of the cluster and for topics with their partitions."""

    topics: list[MetadataRequestTopic] | None = field(nullable="1+")
    allow_auto_topic_creation: Bool = field("4+", default=True)
    include_cluster_authorized_operations: Bool = field("8-10", default=False)
    include_topic_authorized_operations: Bool = field("8+", default=False)


class MetadataRequestTopic(Struct):
    """A topic to describe, by name or by id."""

    topic_id: Uuid = field("10+", default=ZERO_UUID, ignorable=True)
    name: String | None = field(nullable="10+")


class MetadataResponse(Response, key=3, versions="0-13", flexible="9+"):
    """The brokers, the controller, and the topics that were asked for."""

    throttle_time_ms: Int32 = field("3+", default=0, ignorable=True)
    brokers: list[MetadataResponseBroker]
    cluster_id: String | None = field("2+", nullable="2+", default=None, ignorable=True)
    controller_id: Int32 = field("1+", default=-1, ignorable=True)
    topics: list[MetadataResponseTopic]
    cluster_authorized_operations: Int32 = field("8-10", default=-2147483648)
    error_code: Int16 = field("13+", default=0, ignorable=True)


class MetadataResponseBroker(Struct):
    """A broker and where it listens."""

    node_id: Int32
    host: String
    port: Int32
    rack: String | None = field("1+", nullable="1+", default=None, ignorable=True)


class MetadataResponseTopic(Struct):
    """A topic and its partitions."""

    error_code: Int16
    name: String | None = field(nullable="12+")
    topic_id: Uuid = field("10+", default=ZERO_UUID, ignorable=True)
    is_internal: Bool = field("1+", default=False, ignorable=True)
    partitions: list[MetadataResponsePartition]
    topic_authorized_operations: Int32 = field("8+", default=-2147483648)


class MetadataResponsePartition(Struct):
    """A partition: its leader and its replicas."""

    error_code: Int16
    partition_index: Int32
    leader_id: Int32
    leader_epoch: Int32 = field("7+", default=-1, ignorable=True)
    replica_nodes: list[Int32]
    isr_nodes: list[Int32]
    offline_replicas: list[Int32] = field("5+", default=[], ignorable=True)


class DescribeClusterRequest(Request, key=60, versions="0-2", flexible="0+"):
    """Ask for the members of the cluster, brokers or controllers."""

    include_cluster_authorized_operations: Bool
    endpoint_type: Int8 = field("1+", default=1)
    include_fenced_brokers: Bool = field("2+", default=False)


class DescribeClusterResponse(Response, key=60, versions="0-2", flexible="0+"):
    """The members of the cluster."""

    throttle_time_ms: Int32
    error_code: Int16
    error_message: String | None = field(nullable="0+", default=None)
    endpoint_type: Int8 = field("1+", default=1)
    cluster_id: String
    controller_id: Int32 = field(default=-1)
    brokers: list[DescribeClusterBroker]
    cluster_authorized_operations: Int32 = field(default=-2147483648)


class DescribeClusterBroker(Struct):
    """A broker or controller and where it listens."""

    broker_id: Int32
    host: String
    port: Int32
    rack: String | None = field(nullable="0+", default=None)
    is_fenced: Bool = field("2+", default=False)


class DescribeTopicPartitionsRequest(Request, key=75, versions="0", flexible="0+"):
    """Ask for partitions of topics, a page at a time."""

    topics: list[TopicRequest]
    response_partition_limit: Int32 = field(default=2000)
    cursor: Cursor | None = field(nullable="0+", default=None)


class TopicRequest(Struct):
    """A topic to describe."""

    name: String


class Cursor(Struct):
    """Where the next page starts."""

    topic_name: String
    partition_index: Int32


class DescribeTopicPartitionsResponse(Response, key=75, versions="0", flexible="0+"):
    """One page of partitions."""

    throttle_time_ms: Int32
    topics: list[DescribeTopicPartitionsResponseTopic]
    next_cursor: Cursor | None = field(nullable="0+", default=None)


class DescribeTopicPartitionsResponseTopic(Struct):
    """A topic and its partitions on this page."""

    error_code: Int16
    name: String | None = field(nullable="0+")
    topic_id: Uuid
    is_internal: Bool = field(default=False)
    partitions: list[DescribeTopicPartitionsResponsePartition]
    topic_authorized_operations: Int32 = field(default=-2147483648)


class DescribeTopicPartitionsResponsePartition(Struct):
    """A partition: its leader, its replicas and who else may lead (KIP-966)."""

    error_code: Int16
    partition_index: Int32
    leader_id: Int32
    leader_epoch: Int32 = field(default=-1)
    replica_nodes: list[Int32]
    isr_nodes: list[Int32]
    eligible_leader_replicas: list[Int32] | None = field(nullable="0+", default=None)
    last_known_elr: list[Int32] | None = field(nullable="0+", default=None)
    offline_replicas: list[Int32]
