"""Settings, as far as whoever asks may see them."""

from __future__ import annotations

from moldau.metadata.describe import configs as describe
from moldau.metadata.image import ResourceType as ConfigResourceType
from moldau.model.errors import ErrorCode, KafkaError
from moldau.node.apis.call import Call, Parts
from moldau.node.security import CLUSTER_NAME, Operation, ResourceType
from moldau.wire.message import Response
from moldau.wire.messages.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResult,
    ListConfigResourcesRequest,
)


def describe_configs(parts: Parts, call: Call) -> Response:
    """The settings of the resources that may be seen; the others get an error each."""
    request = call.body
    assert isinstance(request, DescribeConfigsRequest)
    denied = [_denial(parts, call, asked) for asked in request.resources]
    response = describe.describe_configs(parts.view, request)
    response.results = [
        result if code is None else _refused(asked, code)
        for asked, code, result in zip(request.resources, denied, response.results, strict=True)
    ]
    return response


def _denial(parts: Parts, call: Call, asked: DescribeConfigsResource) -> ErrorCode | None:
    """Why the settings of a resource are not shown; None if they are."""
    match asked.resource_type:
        case ConfigResourceType.TOPIC:
            kind, name, code = (
                ResourceType.TOPIC,
                asked.resource_name,
                ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            )
        case ConfigResourceType.GROUP:
            kind, name, code = (
                ResourceType.GROUP,
                asked.resource_name,
                ErrorCode.GROUP_AUTHORIZATION_FAILED,
            )
        case ConfigResourceType.BROKER | ConfigResourceType.BROKER_LOGGER | ConfigResourceType.CLIENT_METRICS:
            kind, name, code = ResourceType.CLUSTER, CLUSTER_NAME, ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        case _:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"There is no resource type {asked.resource_type}.")
    return None if call.may(parts, Operation.DESCRIBE_CONFIGS, kind, name) else code


def _refused(asked: DescribeConfigsResource, code: ErrorCode) -> DescribeConfigsResult:
    return DescribeConfigsResult(
        error_code=code,
        error_message=code.message,
        resource_type=asked.resource_type,
        resource_name=asked.resource_name,
        configs=[],
    )


def list_config_resources(parts: Parts, call: Call) -> Response:
    """The resources that can have settings."""
    request = call.body
    assert isinstance(request, ListConfigResourcesRequest)
    return describe.list_config_resources(parts.view, request, version=call.version)
