"""Classic consumer groups, finding coordinators, and committed offsets of groups of every kind."""

from __future__ import annotations

from moldau.model.ids import ZERO_UUID
from moldau.wire.message import Request, Response
from moldau.wire.types import Bool, Bytes, Int8, Int16, Int32, Int64, String, Struct, Uuid, field


class FindCoordinatorRequest(Request, key=10, versions="0-6", flexible="3+"):
    """Ask which brokers coordinate groups, transactions or share partitions."""

    key: String = field("0-3", default="")
    key_type: Int8 = field("1+", default=0)
    coordinator_keys: list[String] = field("4+", default=[])


class FindCoordinatorResponse(Response, key=10, versions="0-6", flexible="3+"):
    """The coordinators; up to version 3 a single one, in the top fields."""

    throttle_time_ms: Int32 = field("1+", default=0, ignorable=True)
    error_code: Int16 = field("0-3", default=0)
    error_message: String | None = field("1-3", nullable="1-3", default="", ignorable=True)
    node_id: Int32 = field("0-3", default=0)
    host: String = field("0-3", default="")
    port: Int32 = field("0-3", default=0)
    coordinators: list[Coordinator] = field("4+", default=[])


class Coordinator(Struct):
    """The coordinator of one key."""

    key: String
    node_id: Int32
    host: String
    port: Int32
    error_code: Int16
    error_message: String | None = field(nullable="4+")


class JoinGroupRequest(Request, key=11, versions="0-9", flexible="6+"):
    """Join a classic group, and wait until the others have joined too."""

    group_id: String
    session_timeout_ms: Int32
    rebalance_timeout_ms: Int32 = field("1+", default=-1, ignorable=True)
    member_id: String
    group_instance_id: String | None = field("5+", nullable="5+", default=None)
    protocol_type: String
    protocols: list[JoinGroupRequestProtocol]
    reason: String | None = field("8+", nullable="8+", default=None, ignorable=True)


class JoinGroupRequestProtocol(Struct):
    """A protocol that the member supports, with what it tells the leader."""

    name: String
    metadata: Bytes


class JoinGroupResponse(Response, key=11, versions="0-9", flexible="6+"):
    """The new generation; its leader also learns of all members."""

    throttle_time_ms: Int32 = field("2+", default=0, ignorable=True)
    error_code: Int16
    generation_id: Int32 = field(default=-1)
    protocol_type: String | None = field("7+", nullable="7+", default=None, ignorable=True)
    protocol_name: String | None = field(nullable="7+")
    leader: String
    skip_assignment: Bool = field("9+", default=False)
    member_id: String
    members: list[JoinGroupResponseMember]


class JoinGroupResponseMember(Struct):
    """A member as the leader sees it."""

    member_id: String
    group_instance_id: String | None = field("5+", nullable="5+", default=None, ignorable=True)
    metadata: Bytes


class SyncGroupRequest(Request, key=14, versions="0-5", flexible="4+"):
    """Ask for the member's assignment; the leader brings those of all."""

    group_id: String
    generation_id: Int32
    member_id: String
    group_instance_id: String | None = field("3+", nullable="3+", default=None)
    protocol_type: String | None = field("5+", nullable="5+", default=None, ignorable=True)
    protocol_name: String | None = field("5+", nullable="5+", default=None, ignorable=True)
    assignments: list[SyncGroupRequestAssignment]


class SyncGroupRequestAssignment(Struct):
    """What the leader assigns to one member."""

    member_id: String
    assignment: Bytes


class SyncGroupResponse(Response, key=14, versions="0-5", flexible="4+"):
    """The assignment of the member."""

    throttle_time_ms: Int32 = field("1+", default=0, ignorable=True)
    error_code: Int16
    protocol_type: String | None = field("5+", nullable="5+", default=None, ignorable=True)
    protocol_name: String | None = field("5+", nullable="5+", default=None, ignorable=True)
    assignment: Bytes


class HeartbeatRequest(Request, key=12, versions="0-4", flexible="4+"):
    """Tell the coordinator that a member of a classic group is alive."""

    group_id: String
    generation_id: Int32
    member_id: String
    group_instance_id: String | None = field("3+", nullable="3+", default=None)


class HeartbeatResponse(Response, key=12, versions="0-4", flexible="4+"):
    """Whether the member is still in the group, and whether it must join again."""

    throttle_time_ms: Int32 = field("1+", default=0, ignorable=True)
    error_code: Int16


class LeaveGroupRequest(Request, key=13, versions="0-5", flexible="4+"):
    """Leave a classic group; from version 3 on for several members at once."""

    group_id: String
    member_id: String = field("0-2", default="")
    members: list[MemberIdentity] = field("3+", default=[])


class MemberIdentity(Struct):
    """A member that leaves, and why."""

    member_id: String
    group_instance_id: String | None = field(nullable="3+", default=None)
    reason: String | None = field("5+", nullable="5+", default=None, ignorable=True)


class LeaveGroupResponse(Response, key=13, versions="0-5", flexible="4+"):
    """Whether the members have left."""

    throttle_time_ms: Int32 = field("1+", default=0, ignorable=True)
    error_code: Int16
    members: list[MemberResponse] = field("3+", default=[])


class MemberResponse(Struct):
    """The outcome for one member."""

    member_id: String
    group_instance_id: String | None = field(nullable="3+")
    error_code: Int16


class OffsetCommitRequest(Request, key=8, versions="2-10", flexible="8+"):
    """Commit offsets for a group."""

    group_id: String
    generation_id_or_member_epoch: Int32 = field(default=-1)
    member_id: String
    group_instance_id: String | None = field("7+", nullable="7+", default=None)
    retention_time_ms: Int64 = field("2-4", default=-1, ignorable=True)
    topics: list[OffsetCommitRequestTopic]


class OffsetCommitRequestTopic(Struct):
    """The offsets to commit for one topic."""

    name: String = field("0-9", default="", ignorable=True)
    topic_id: Uuid = field("10+", default=ZERO_UUID, ignorable=True)
    partitions: list[OffsetCommitRequestPartition]


class OffsetCommitRequestPartition(Struct):
    """The offset to commit for one partition."""

    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Int32 = field("6+", default=-1, ignorable=True)
    committed_metadata: String | None = field(nullable="0+")


class OffsetCommitResponse(Response, key=8, versions="2-10", flexible="8+"):
    """Which offsets were committed."""

    throttle_time_ms: Int32 = field("3+", default=0, ignorable=True)
    topics: list[OffsetCommitResponseTopic]


class OffsetCommitResponseTopic(Struct):
    """The outcome for one topic."""

    name: String = field("0-9", default="", ignorable=True)
    topic_id: Uuid = field("10+", default=ZERO_UUID, ignorable=True)
    partitions: list[OffsetCommitResponsePartition]


class OffsetCommitResponsePartition(Struct):
    """The outcome for one partition."""

    partition_index: Int32
    error_code: Int16


class OffsetFetchRequest(Request, key=9, versions="1-10", flexible="6+"):
    """Ask for committed offsets; from version 8 on of several groups at once."""

    group_id: String = field("0-7", default="")
    topics: list[OffsetFetchRequestTopic] | None = field("0-7", nullable="2-7", default=[])
    groups: list[OffsetFetchRequestGroup] = field("8+", default=[])
    require_stable: Bool = field("7+", default=False)


class OffsetFetchRequestTopic(Struct):
    """The partitions of one topic, up to version 7."""

    name: String
    partition_indexes: list[Int32]


class OffsetFetchRequestGroup(Struct):
    """A group to look at; null topics mean all."""

    group_id: String
    member_id: String | None = field("9+", nullable="9+", default=None, ignorable=True)
    member_epoch: Int32 = field("9+", default=-1, ignorable=True)
    topics: list[OffsetFetchRequestTopics] | None = field(nullable="8+")


class OffsetFetchRequestTopics(Struct):
    """The partitions of one topic, from version 8 on."""

    name: String = field("8-9", default="", ignorable=True)
    topic_id: Uuid = field("10+", default=ZERO_UUID, ignorable=True)
    partition_indexes: list[Int32]


class OffsetFetchResponse(Response, key=9, versions="1-10", flexible="6+"):
    """The committed offsets."""

    throttle_time_ms: Int32 = field("3+", default=0, ignorable=True)
    topics: list[OffsetFetchResponseTopic] = field("0-7", default=[])
    error_code: Int16 = field("2-7", default=0, ignorable=True)
    groups: list[OffsetFetchResponseGroup] = field("8+", default=[])


class OffsetFetchResponseTopic(Struct):
    """The offsets in one topic, up to version 7."""

    name: String
    partitions: list[OffsetFetchResponsePartition]


class OffsetFetchResponsePartition(Struct):
    """The offset in one partition, up to version 7."""

    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Int32 = field("5-7", default=-1, ignorable=True)
    metadata: String | None = field(nullable="0-7")
    error_code: Int16


class OffsetFetchResponseGroup(Struct):
    """The offsets of one group."""

    group_id: String
    topics: list[OffsetFetchResponseTopics]
    error_code: Int16 = field(default=0)


class OffsetFetchResponseTopics(Struct):
    """The offsets in one topic, from version 8 on."""

    name: String = field("8-9", default="", ignorable=True)
    topic_id: Uuid = field("10+", default=ZERO_UUID, ignorable=True)
    partitions: list[OffsetFetchResponsePartitions]


class OffsetFetchResponsePartitions(Struct):
    """The offset in one partition, from version 8 on."""

    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Int32 = field(default=-1)
    metadata: String | None = field(nullable="8+")
    error_code: Int16


class OffsetDeleteRequest(Request, key=47, versions="0"):
    """Delete committed offsets of a group."""

    group_id: String
    topics: list[OffsetDeleteRequestTopic]


class OffsetDeleteRequestTopic(Struct):
    """The partitions of one topic to forget."""

    name: String
    partitions: list[OffsetDeleteRequestPartition]


class OffsetDeleteRequestPartition(Struct):
    """A partition to forget."""

    partition_index: Int32


class OffsetDeleteResponse(Response, key=47, versions="0"):
    """Which offsets were deleted."""

    error_code: Int16
    throttle_time_ms: Int32
    topics: list[OffsetDeleteResponseTopic]


class OffsetDeleteResponseTopic(Struct):
    """The outcome for one topic."""

    name: String
    partitions: list[OffsetDeleteResponsePartition]


class OffsetDeleteResponsePartition(Struct):
    """The outcome for one partition."""

    partition_index: Int32
    error_code: Int16


class ListGroupsRequest(Request, key=16, versions="0-5", flexible="3+"):
    """Ask for the groups of this coordinator, by state and type."""

    states_filter: list[String] = field("4+", default=[])
    types_filter: list[String] = field("5+", default=[])


class ListGroupsResponse(Response, key=16, versions="0-5", flexible="3+"):
    """The groups that were found."""

    throttle_time_ms: Int32 = field("1+", default=0, ignorable=True)
    error_code: Int16
    groups: list[ListedGroup]


class ListedGroup(Struct):
    """A group by name, with its state and type."""

    group_id: String
    protocol_type: String
    group_state: String = field("4+", default="", ignorable=True)
    group_type: String = field("5+", default="", ignorable=True)


class DescribeGroupsRequest(Request, key=15, versions="0-6", flexible="5+"):
    """Ask for the members and assignments of classic groups."""

    groups: list[String]
    include_authorized_operations: Bool = field("3+", default=False)


class DescribeGroupsResponse(Response, key=15, versions="0-6", flexible="5+"):
    """The groups that were asked for."""

    throttle_time_ms: Int32 = field("1+", default=0, ignorable=True)
    groups: list[DescribedGroup]


class DescribedGroup(Struct):
    """A group and its members."""

    error_code: Int16
    error_message: String | None = field("6+", nullable="6+", default=None)
    group_id: String
    group_state: String
    protocol_type: String
    protocol_data: String
    members: list[DescribedGroupMember]
    authorized_operations: Int32 = field("3+", default=-2147483648)


class DescribedGroupMember(Struct):
    """A member: its client, what it subscribed to and what it got."""

    member_id: String
    group_instance_id: String | None = field("4+", nullable="4+", default=None, ignorable=True)
    client_id: String
    client_host: String
    member_metadata: Bytes
    member_assignment: Bytes


class DeleteGroupsRequest(Request, key=42, versions="0-2", flexible="2+"):
    """Delete groups that have no members."""

    groups_names: list[String]


class DeleteGroupsResponse(Response, key=42, versions="0-2", flexible="2+"):
    """Which groups were deleted."""

    throttle_time_ms: Int32
    results: list[DeletableGroupResult]


class DeletableGroupResult(Struct):
    """The outcome for one group."""

    group_id: String
    error_code: Int16
