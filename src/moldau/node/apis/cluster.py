"""The cluster as a whole: its nodes, its quorum, its directories and its quotas."""

from __future__ import annotations

from typing import Final

from moldau.metadata.controller import quotas
from moldau.metadata.describe import cluster as describe
from moldau.model.errors import ErrorCode, KafkaError
from moldau.model.ids import NodeId
from moldau.node.apis.call import Call, Parts
from moldau.node.security import CLUSTER_NAME, Operation, ResourceType
from moldau.wire.message import Response
from moldau.wire.messages.log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from moldau.wire.messages.metadata import DescribeClusterRequest
from moldau.wire.messages.quotas import DescribeClientQuotasRequest
from moldau.wire.messages.raft import DescribeQuorumRequest
from moldau.world.ports import ConnectionLost

_NOBODY: Final = NodeId(-1)
_KNOWS_ENDPOINT_TYPES: Final = 1
# What can be done to the cluster at all.
_OPERATIONS: Final = (
    Operation.CREATE,
    Operation.ALTER,
    Operation.DESCRIBE,
    Operation.CLUSTER_ACTION,
    Operation.DESCRIBE_CONFIGS,
    Operation.ALTER_CONFIGS,
    Operation.IDEMPOTENT_WRITE,
)


# -------------------------------------------------------------------------------------------------- nodes


def describe_cluster(parts: Parts, call: Call) -> Response:
    """The brokers or, on a controller's listener, the controllers."""
    request = call.body
    assert isinstance(request, DescribeClusterRequest)
    is_controller = call.listener.is_controller
    if is_controller and not _may(parts, call, Operation.ALTER):
        # Where controllers are is for administrators only, unlike where brokers are.
        raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    # Clients need a node to send administrative requests to, and any broker passes those on.
    controller_id = _quorum_leader(parts) if is_controller else parts.node_id
    try:
        response = describe.describe_cluster(
            parts.view,
            request,
            listener=call.listener.name,
            controller_id=controller_id,
            is_controller_listener=is_controller,
        )
    except KafkaError as error:
        if call.version < _KNOWS_ENDPOINT_TYPES:
            raise KafkaError(ErrorCode.INVALID_REQUEST, error.message) from None
        raise
    if all(node.broker_id != controller_id for node in response.brokers):
        response.controller_id = _NOBODY
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = _operations(parts, call)
    return response


def _quorum_leader(parts: Parts) -> NodeId:
    leader = parts.quorum.quorum.leader if parts.quorum.is_open else None
    return _NOBODY if leader is None else leader.node_id


def _operations(parts: Parts, call: Call) -> int:
    """What the one who asks may do to the cluster, a bit each; nothing to those who may not look at it."""
    if not _may(parts, call, Operation.DESCRIBE):
        return 0
    return sum(1 << operation for operation in _OPERATIONS if _may(parts, call, operation))


def _may(parts: Parts, call: Call, operation: Operation) -> bool:
    return call.may(parts, operation, ResourceType.CLUSTER, CLUSTER_NAME)


# ------------------------------------------------------------------------------------------------- quorum


async def describe_quorum(parts: Parts, call: Call) -> Response:
    """The quorum as its leader sees it, who alone knows how far the others are."""
    request = call.body
    assert isinstance(request, DescribeQuorumRequest)
    try:
        return await parts.channel.ask(request, version=call.version)
    except ConnectionLost as error:
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"The controller did not answer: {error}") from None


# -------------------------------------------------------------------------------------------- directories


def describe_log_dirs(parts: Parts, call: Call) -> Response:
    """The one directory of this broker, and how large its partitions are."""
    request = call.body
    assert isinstance(request, DescribeLogDirsRequest)
    asked = (
        None
        if request.topics is None
        else {(topic.topic, partition) for topic in request.topics for partition in topic.partitions}
    )
    topics: dict[str, DescribeLogDirsTopic] = {}
    for replica in sorted(parts.partitions, key=lambda replica: replica.at):
        name, partition = replica.at
        if asked is None or (name, partition) in asked:
            topic = topics.setdefault(name, DescribeLogDirsTopic(name=name, partitions=[]))
            topic.partitions.append(
                DescribeLogDirsPartition(
                    partition_index=partition,
                    partition_size=replica.log.size_bytes,
                    # A lag is that of a replica which moves in from another directory, and there is none.
                    offset_lag=0,
                    is_future_key=False,
                )
            )
    directory = DescribeLogDirsResult(
        error_code=ErrorCode.NONE,
        log_dir=parts.config.log_directory,
        topics=list(topics.values()),
        usable_bytes=parts.world.disk.free_bytes(),
    )
    return DescribeLogDirsResponse(throttle_time_ms=0, error_code=ErrorCode.NONE, results=[directory])


# ------------------------------------------------------------------------------------------------- quotas


def describe_client_quotas(parts: Parts, call: Call) -> Response:
    """The quotas of whom the question matches."""
    request = call.body
    assert isinstance(request, DescribeClientQuotasRequest)
    return quotas.describe_client_quotas(parts.view, request)
