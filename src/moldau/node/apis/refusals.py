"""How each API says that a request is refused as a whole: once, or in the entry of all that was asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from moldau.model.errors import ErrorCode, KafkaError
from moldau.model.ids import ZERO_UUID
from moldau.node.apis.call import Call
from moldau.wire.message import Request, Response
from moldau.wire.messages import ApiKey
from moldau.wire.messages.brokers import (
    AllocateProducerIdsResponse,
    AlterPartitionResponse,
    AssignReplicasToDirsResponse,
    BrokerHeartbeatResponse,
    BrokerRegistrationResponse,
    ControllerRegistrationResponse,
    UnregisterBrokerResponse,
    UpdateFeaturesResponse,
)
from moldau.wire.messages.configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    ListConfigResourcesResponse,
)
from moldau.wire.messages.consumer_groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatResponse,
)
from moldau.wire.messages.consumer_groups import DescribedGroup as DescribedConsumerGroup
from moldau.wire.messages.fetch import FetchResponse
from moldau.wire.messages.groups import (
    Coordinator,
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupResponse,
    ListGroupsResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
    SyncGroupResponse,
)
from moldau.wire.messages.log_dirs import DescribeLogDirsResponse
from moldau.wire.messages.metadata import (
    DescribeClusterResponse,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponseTopic,
    MetadataRequest,
    MetadataResponse,
    MetadataResponseTopic,
)
from moldau.wire.messages.offsets import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
    EpochEndOffset,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from moldau.wire.messages.quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlterClientQuotasResponseEntryData,
    DescribeClientQuotasResponse,
)
from moldau.wire.messages.raft import (
    AddRaftVoterResponse,
    BeginQuorumEpochResponse,
    DescribeQuorumResponse,
    EndQuorumEpochResponse,
    FetchSnapshotResponse,
    RemoveRaftVoterResponse,
    UpdateRaftVoterResponse,
    VoteResponse,
)
from moldau.wire.messages.security import EnvelopeResponse
from moldau.wire.messages.topics import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    CreatableTopicResult,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ListPartitionReassignmentsResponse,
    PartitionResult,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
    ReplicaElectionResult,
)
from moldau.wire.messages.txn import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    InitProducerIdResponse,
    PartitionResponse,
    TopicResponse,
)

Q = TypeVar("Q", bound=Request)
Refusal = Callable[[Call, KafkaError], Response]

_NO_OFFSET: Final = -1
_NO_EPOCH: Final = -1
_NO_NODE: Final = -1
_NO_PORT: Final = -1


def _once(refuse: Callable[[KafkaError], Response]) -> Refusal:
    """A refusal in which the error stands once, whatever was asked for."""
    return lambda _, error: refuse(error)


def _in_each(kind: type[Q], refuse: Callable[[Q, KafkaError], Response]) -> Refusal:
    """A refusal that names what was asked for, each with the error."""

    def refuse_call(call: Call, error: KafkaError) -> Response:
        assert isinstance(call.body, kind), (kind, call.body)
        return refuse(call.body, error)

    return refuse_call


# ----------------------------------------------------------------------------- those that need more words


def _metadata(request: MetadataRequest, error: KafkaError) -> Response:
    return MetadataResponse(
        brokers=[],
        topics=[
            MetadataResponseTopic(
                error_code=error.code,
                # Before version 12 a name cannot be null.
                name=topic.name or "",
                topic_id=topic.topic_id,
                partitions=[],
            )
            for topic in request.topics or ()
        ],
        error_code=error.code,
    )


def _delete_topics(request: DeleteTopicsRequest, error: KafkaError) -> Response:
    # Up to version 5 topics have only names, and stand in a list of their own.
    topics = [(topic.name, topic.topic_id) for topic in request.topics]
    topics += ((name, ZERO_UUID) for name in request.topic_names)
    return DeleteTopicsResponse(
        throttle_time_ms=0,
        responses=[
            DeletableTopicResult(
                name=name, topic_id=topic_id, error_code=error.code, error_message=error.message
            )
            for name, topic_id in topics
        ],
    )


def _elect_leaders(call: Call, error: KafkaError) -> Response:
    request = call.body
    assert isinstance(request, ElectLeadersRequest), request
    return ElectLeadersResponse(
        throttle_time_ms=0,
        # In version 0 only partitions have errors.
        error_code=error.code if call.version > 0 else 0,
        replica_election_results=[
            ReplicaElectionResult(
                topic=topic.topic,
                partition_result=[
                    PartitionResult(
                        partition_id=partition, error_code=error.code, error_message=error.message
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topic_partitions or ()
        ],
    )


def _alter_reassignments(request: AlterPartitionReassignmentsRequest, error: KafkaError) -> Response:
    return AlterPartitionReassignmentsResponse(
        throttle_time_ms=0,
        error_code=error.code,
        error_message=error.message,
        responses=[
            ReassignableTopicResponse(
                name=topic.name,
                partitions=[
                    ReassignablePartitionResponse(
                        partition_index=partition.partition_index,
                        error_code=error.code,
                        error_message=error.message,
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )


# ------------------------------------------------------------------------------------------------- groups

_SEVERAL_COORDINATORS: Final = 4
_NULL_PROTOCOL: Final = 7
_SEVERAL_GROUPS: Final = 8
_GROUP_ERROR: Final = 2
_DESCRIBED_ERROR: Final = 6


def _find_coordinator(call: Call, error: KafkaError) -> Response:
    request = call.body
    assert isinstance(request, FindCoordinatorRequest), request
    if call.version < _SEVERAL_COORDINATORS:
        return FindCoordinatorResponse(
            error_code=error.code, error_message=error.message, node_id=_NO_NODE, host="", port=_NO_PORT
        )
    return FindCoordinatorResponse(coordinators=[not_found(key, error) for key in request.coordinator_keys])


def not_found(key: str, error: KafkaError) -> Coordinator:
    """Why one of several coordinators cannot be named."""
    return Coordinator(
        key=key,
        node_id=_NO_NODE,
        host="",
        port=_NO_PORT,
        error_code=error.code,
        error_message=error.message,
    )


def _join_group(call: Call, error: KafkaError) -> Response:
    request = call.body
    assert isinstance(request, JoinGroupRequest), request
    return JoinGroupResponse(
        error_code=error.code,
        protocol_name=None if call.version >= _NULL_PROTOCOL else "",
        leader="",
        member_id=request.member_id,
        members=[],
    )


def _heartbeat(error: KafkaError) -> Response:
    # A member must not join again, or look for another coordinator, because this one is not ready yet.
    is_loading = error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    return HeartbeatResponse(error_code=ErrorCode.NONE if is_loading else error.code)


def _offset_commit(request: OffsetCommitRequest, error: KafkaError) -> Response:
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitResponsePartition(partition_index=each.partition_index, error_code=error.code)
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _offset_fetch(call: Call, error: KafkaError) -> Response:
    request = call.body
    assert isinstance(request, OffsetFetchRequest), request
    if call.version >= _SEVERAL_GROUPS:
        groups = [not_read(group, error, version=call.version) for group in request.groups]
        return OffsetFetchResponse(groups=groups)
    if call.version >= _GROUP_ERROR:
        return OffsetFetchResponse(error_code=error.code)
    return OffsetFetchResponse(
        topics=[
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=index,
                        committed_offset=_NO_OFFSET,
                        metadata="",
                        error_code=error.code,
                    )
                    for index in topic.partition_indexes
                ],
            )
            for topic in request.topics or ()
        ]
    )


def not_read(group: OffsetFetchRequestGroup, error: KafkaError, *, version: int) -> OffsetFetchResponseGroup:
    """Why the offsets of one group cannot be read; version 1 can only say so in each partition."""
    topics = []
    if version < _GROUP_ERROR:
        topics = [
            OffsetFetchResponseTopics(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartitions(
                        partition_index=index,
                        committed_offset=_NO_OFFSET,
                        metadata="",
                        error_code=error.code,
                    )
                    for index in topic.partition_indexes
                ],
            )
            for topic in group.topics or ()
        ]
    return OffsetFetchResponseGroup(group_id=group.group_id, topics=topics, error_code=error.code)


def not_described(group_id: str, error: KafkaError, *, version: int) -> DescribedGroup:
    """Why a group cannot be described."""
    return DescribedGroup(
        error_code=error.code,
        error_message=error.message if version >= _DESCRIBED_ERROR else None,
        group_id=group_id,
        group_state="",
        protocol_type="",
        protocol_data="",
        members=[],
    )


def _describe_groups(call: Call, error: KafkaError) -> Response:
    request = call.body
    assert isinstance(request, DescribeGroupsRequest), request
    groups = [not_described(group_id, error, version=call.version) for group_id in request.groups]
    return DescribeGroupsResponse(groups=groups)


def consumers_not_described(group_id: str, error: KafkaError) -> DescribedConsumerGroup:
    """Why a consumer group cannot be described."""
    return DescribedConsumerGroup(
        error_code=error.code,
        error_message=error.message,
        group_id=group_id,
        group_state="",
        group_epoch=0,
        assignment_epoch=0,
        assignor_name="",
        members=[],
    )


# ---------------------------------------------------------------------------------------------- the table

REFUSALS: Final[Mapping[ApiKey, Refusal]] = {
    # Only the quorum's Fetch, which always has a version that knows an error for the whole.
    ApiKey.FETCH: _once(lambda error: FetchResponse(throttle_time_ms=0, error_code=error.code, responses=[])),
    ApiKey.LIST_OFFSETS: _in_each(
        ListOffsetsRequest,
        lambda request, error: ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(
                    name=topic.name,
                    partitions=[
                        ListOffsetsPartitionResponse(
                            partition_index=each.partition_index, error_code=error.code
                        )
                        for each in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        ),
    ),
    ApiKey.METADATA: _in_each(MetadataRequest, _metadata),
    ApiKey.OFFSET_COMMIT: _in_each(OffsetCommitRequest, _offset_commit),
    ApiKey.OFFSET_FETCH: _offset_fetch,
    ApiKey.FIND_COORDINATOR: _find_coordinator,
    ApiKey.JOIN_GROUP: _join_group,
    ApiKey.HEARTBEAT: _once(_heartbeat),
    ApiKey.LEAVE_GROUP: _once(lambda error: LeaveGroupResponse(error_code=error.code)),
    ApiKey.SYNC_GROUP: _once(lambda error: SyncGroupResponse(error_code=error.code, assignment=b"")),
    ApiKey.DESCRIBE_GROUPS: _describe_groups,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: _once(
        lambda error: ConsumerGroupHeartbeatResponse(
            throttle_time_ms=0,
            error_code=error.code,
            error_message=error.message,
            member_epoch=0,
            heartbeat_interval_ms=0,
        )
    ),
    ApiKey.CONSUMER_GROUP_DESCRIBE: _in_each(
        ConsumerGroupDescribeRequest,
        lambda request, error: ConsumerGroupDescribeResponse(
            throttle_time_ms=0,
            groups=[consumers_not_described(group_id, error) for group_id in request.group_ids],
        ),
    ),
    ApiKey.LIST_GROUPS: _once(lambda error: ListGroupsResponse(error_code=error.code, groups=[])),
    ApiKey.DELETE_GROUPS: _in_each(
        DeleteGroupsRequest,
        lambda request, error: DeleteGroupsResponse(
            throttle_time_ms=0,
            results=[
                DeletableGroupResult(group_id=group_id, error_code=error.code)
                for group_id in request.groups_names
            ],
        ),
    ),
    ApiKey.OFFSET_DELETE: _once(
        lambda error: OffsetDeleteResponse(error_code=error.code, throttle_time_ms=0, topics=[])
    ),
    ApiKey.CREATE_TOPICS: _in_each(
        CreateTopicsRequest,
        lambda request, error: CreateTopicsResponse(
            throttle_time_ms=0,
            topics=[
                CreatableTopicResult(name=topic.name, error_code=error.code, error_message=error.message)
                for topic in request.topics
            ],
        ),
    ),
    ApiKey.DELETE_TOPICS: _in_each(DeleteTopicsRequest, _delete_topics),
    ApiKey.DELETE_RECORDS: _in_each(
        DeleteRecordsRequest,
        lambda request, error: DeleteRecordsResponse(
            throttle_time_ms=0,
            topics=[
                DeleteRecordsTopicResult(
                    name=topic.name,
                    partitions=[
                        DeleteRecordsPartitionResult(
                            partition_index=each.partition_index,
                            low_watermark=_NO_OFFSET,
                            error_code=error.code,
                        )
                        for each in topic.partitions
                    ],
                )
                for topic in request.topics
            ],
        ),
    ),
    ApiKey.INIT_PRODUCER_ID: _once(
        lambda error: InitProducerIdResponse(
            throttle_time_ms=0, error_code=error.code, producer_epoch=_NO_EPOCH
        )
    ),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: _in_each(
        OffsetForLeaderEpochRequest,
        lambda request, error: OffsetForLeaderEpochResponse(
            throttle_time_ms=0,
            topics=[
                OffsetForLeaderTopicResult(
                    topic=topic.topic,
                    partitions=[
                        EpochEndOffset(error_code=error.code, partition=each.partition)
                        for each in topic.partitions
                    ],
                )
                for topic in request.topics
            ],
        ),
    ),
    ApiKey.DESCRIBE_CONFIGS: _in_each(
        DescribeConfigsRequest,
        lambda request, error: DescribeConfigsResponse(
            throttle_time_ms=0,
            results=[
                DescribeConfigsResult(
                    error_code=error.code,
                    error_message=error.message,
                    resource_type=resource.resource_type,
                    resource_name=resource.resource_name,
                    configs=[],
                )
                for resource in request.resources
            ],
        ),
    ),
    ApiKey.ALTER_CONFIGS: _in_each(
        AlterConfigsRequest,
        lambda request, error: AlterConfigsResponse(
            throttle_time_ms=0,
            responses=[
                AlterConfigsResourceResponse(
                    error_code=error.code,
                    error_message=error.message,
                    resource_type=resource.resource_type,
                    resource_name=resource.resource_name,
                )
                for resource in request.resources
            ],
        ),
    ),
    # Before version 3 there is no place for the error; clients take no directories for not being allowed.
    ApiKey.DESCRIBE_LOG_DIRS: _once(
        lambda error: DescribeLogDirsResponse(throttle_time_ms=0, error_code=error.code, results=[])
    ),
    ApiKey.CREATE_PARTITIONS: _in_each(
        CreatePartitionsRequest,
        lambda request, error: CreatePartitionsResponse(
            throttle_time_ms=0,
            results=[
                CreatePartitionsTopicResult(
                    name=topic.name, error_code=error.code, error_message=error.message
                )
                for topic in request.topics
            ],
        ),
    ),
    ApiKey.ELECT_LEADERS: _elect_leaders,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _in_each(
        IncrementalAlterConfigsRequest,
        lambda request, error: IncrementalAlterConfigsResponse(
            throttle_time_ms=0,
            responses=[
                AlterConfigsResourceResponse(
                    error_code=error.code,
                    error_message=error.message,
                    resource_type=resource.resource_type,
                    resource_name=resource.resource_name,
                )
                for resource in request.resources
            ],
        ),
    ),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _in_each(AlterPartitionReassignmentsRequest, _alter_reassignments),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: _once(
        lambda error: ListPartitionReassignmentsResponse(
            throttle_time_ms=0, error_code=error.code, error_message=error.message, topics=[]
        )
    ),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: _once(
        lambda error: DescribeClientQuotasResponse(
            throttle_time_ms=0, error_code=error.code, error_message=error.message, entries=None
        )
    ),
    ApiKey.ALTER_CLIENT_QUOTAS: _in_each(
        AlterClientQuotasRequest,
        lambda request, error: AlterClientQuotasResponse(
            throttle_time_ms=0,
            entries=[
                AlterClientQuotasResponseEntryData(
                    error_code=error.code, error_message=error.message, entity=entry.entity
                )
                for entry in request.entries
            ],
        ),
    ),
    ApiKey.VOTE: _once(lambda error: VoteResponse(error_code=error.code, topics=[])),
    ApiKey.BEGIN_QUORUM_EPOCH: _once(
        lambda error: BeginQuorumEpochResponse(error_code=error.code, topics=[])
    ),
    ApiKey.END_QUORUM_EPOCH: _once(lambda error: EndQuorumEpochResponse(error_code=error.code, topics=[])),
    ApiKey.DESCRIBE_QUORUM: _once(
        lambda error: DescribeQuorumResponse(error_code=error.code, error_message=error.message, topics=[])
    ),
    ApiKey.ALTER_PARTITION: _once(
        lambda error: AlterPartitionResponse(throttle_time_ms=0, error_code=error.code, topics=[])
    ),
    ApiKey.UPDATE_FEATURES: _once(
        lambda error: UpdateFeaturesResponse(
            throttle_time_ms=0, error_code=error.code, error_message=error.message
        )
    ),
    ApiKey.ENVELOPE: _once(lambda error: EnvelopeResponse(error_code=error.code)),
    ApiKey.FETCH_SNAPSHOT: _once(
        lambda error: FetchSnapshotResponse(throttle_time_ms=0, error_code=error.code, topics=[])
    ),
    ApiKey.DESCRIBE_CLUSTER: _once(
        lambda error: DescribeClusterResponse(
            throttle_time_ms=0,
            error_code=error.code,
            error_message=error.message,
            cluster_id="",
            brokers=[],
        )
    ),
    ApiKey.DESCRIBE_PRODUCERS: _in_each(
        DescribeProducersRequest,
        lambda request, error: DescribeProducersResponse(
            throttle_time_ms=0,
            topics=[
                TopicResponse(
                    name=topic.name,
                    partitions=[
                        PartitionResponse(
                            partition_index=partition,
                            error_code=error.code,
                            error_message=error.message,
                            active_producers=[],
                        )
                        for partition in topic.partition_indexes
                    ],
                )
                for topic in request.topics
            ],
        ),
    ),
    ApiKey.BROKER_REGISTRATION: _once(
        lambda error: BrokerRegistrationResponse(throttle_time_ms=0, error_code=error.code)
    ),
    ApiKey.BROKER_HEARTBEAT: _once(
        lambda error: BrokerHeartbeatResponse(
            throttle_time_ms=0, error_code=error.code, should_shut_down=False
        )
    ),
    ApiKey.UNREGISTER_BROKER: _once(
        lambda error: UnregisterBrokerResponse(
            throttle_time_ms=0, error_code=error.code, error_message=error.message
        )
    ),
    ApiKey.ALLOCATE_PRODUCER_IDS: _once(
        lambda error: AllocateProducerIdsResponse(
            throttle_time_ms=0, error_code=error.code, producer_id_start=0, producer_id_len=0
        )
    ),
    ApiKey.CONTROLLER_REGISTRATION: _once(
        lambda error: ControllerRegistrationResponse(
            throttle_time_ms=0, error_code=error.code, error_message=error.message
        )
    ),
    ApiKey.ASSIGN_REPLICAS_TO_DIRS: _once(
        lambda error: AssignReplicasToDirsResponse(throttle_time_ms=0, error_code=error.code, directories=[])
    ),
    ApiKey.LIST_CONFIG_RESOURCES: _once(
        lambda error: ListConfigResourcesResponse(
            throttle_time_ms=0, error_code=error.code, config_resources=[]
        )
    ),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: _in_each(
        DescribeTopicPartitionsRequest,
        lambda request, error: DescribeTopicPartitionsResponse(
            throttle_time_ms=0,
            topics=[
                DescribeTopicPartitionsResponseTopic(
                    error_code=error.code, name=topic.name, topic_id=ZERO_UUID, partitions=[]
                )
                for topic in request.topics
            ],
        ),
    ),
    ApiKey.ADD_RAFT_VOTER: _once(
        lambda error: AddRaftVoterResponse(
            throttle_time_ms=0, error_code=error.code, error_message=error.message
        )
    ),
    ApiKey.REMOVE_RAFT_VOTER: _once(
        lambda error: RemoveRaftVoterResponse(
            throttle_time_ms=0, error_code=error.code, error_message=error.message
        )
    ),
    ApiKey.UPDATE_RAFT_VOTER: _once(
        lambda error: UpdateRaftVoterResponse(throttle_time_ms=0, error_code=error.code)
    ),
}
