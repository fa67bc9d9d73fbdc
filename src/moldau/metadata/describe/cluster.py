"""What clients are told about brokers and controllers."""

from __future__ import annotations

from typing import Final

from moldau.metadata.view import ClusterView
from moldau.model.errors import ErrorCode, KafkaError
from moldau.model.ids import NodeId
from moldau.wire.messages.metadata import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

BROKERS: Final = 1
CONTROLLERS: Final = 2


def describe_cluster(
    view: ClusterView,
    request: DescribeClusterRequest,
    *,
    listener: str,
    controller_id: NodeId,
    is_controller_listener: bool,
) -> DescribeClusterResponse:
    """The brokers or, on a controller's listener, the controllers, with where they listen."""
    if request.endpoint_type not in (BROKERS, CONTROLLERS):
        raise KafkaError(
            ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"There is no endpoint type {request.endpoint_type}."
        )
    if (request.endpoint_type == CONTROLLERS) != is_controller_listener:
        kinds = {BROKERS: "brokers", CONTROLLERS: "controllers"}
        raise KafkaError(
            ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            f"The question about {kinds[request.endpoint_type]} came to a listener of the others.",
        )
    nodes = (
        _controllers(view, listener)
        if is_controller_listener
        else _brokers(view, listener, with_fenced=request.include_fenced_brokers)
    )
    return DescribeClusterResponse(
        throttle_time_ms=0,
        error_code=ErrorCode.NONE,
        endpoint_type=request.endpoint_type,
        cluster_id=view.cluster_id,
        controller_id=controller_id,
        brokers=nodes,
    )


def _brokers(view: ClusterView, listener: str, *, with_fenced: bool) -> list[DescribeClusterBroker]:
    return [
        DescribeClusterBroker(
            broker_id=broker.id,
            host=endpoint.host,
            port=endpoint.port,
            rack=broker.rack,
            is_fenced=broker.is_fenced,
        )
        for broker in view.image.brokers.values()
        if (with_fenced or not broker.is_fenced) and (endpoint := broker.endpoint(listener)) is not None
    ]


def _controllers(view: ClusterView, listener: str) -> list[DescribeClusterBroker]:
    return [
        DescribeClusterBroker(broker_id=controller.id, host=endpoint.host, port=endpoint.port)
        for controller in view.image.controllers.values()
        if (endpoint := controller.endpoint(listener)) is not None
    ]
