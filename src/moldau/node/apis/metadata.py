"""Metadata: where partitions are; a topic that is missing is created if both sides want that."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from moldau.metadata.describe import topics as describe
from moldau.metadata.view import ClusterView
from moldau.model.errors import ErrorCode
from moldau.model.ids import TopicName
from moldau.model.settings.resolve import find
from moldau.model.settings.setting import Scope
from moldau.node.apis.call import Answer, Call, Parts
from moldau.node.security import CLUSTER_NAME, Operation, ResourceType
from moldau.wire.message import Response
from moldau.wire.messages.metadata import (
    DescribeTopicPartitionsRequest,
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponseTopic,
)
from moldau.wire.messages.topics import CreatableTopic, CreateTopicsRequest
from moldau.world.ports import ConnectionLost

AUTO_CREATE: Final = find(Scope.BROKER, "auto.create.topics.enable")
PARTITIONS_PER_PAGE: Final = find(Scope.BROKER, "max.request.partition.size.limit")
_CREATE_VERSION: Final = 7
_CREATE_TIMEOUT_MS: Final = 1_000
_ASKS_WHETHER_TO_CREATE: Final = 4


def handle(parts: Parts, call: Call) -> Answer:
    """The brokers, and the topics that were asked for and may be seen."""
    request = call.body
    assert isinstance(request, MetadataRequest)
    missing = _to_create(parts, call, request)
    return _create_first(parts, call, request, missing) if missing else _describe(parts, call, request)


def _describe(parts: Parts, call: Call, request: MetadataRequest) -> Response:
    view = _visible(parts, call) if request.topics is None else parts.view
    response = describe.describe_metadata(
        view, request, version=call.version, listener=call.listener.name, controller_id=parts.node_id
    )
    if not response.brokers:
        # This broker is about to leave, and a client that is told of nobody may never ask anybody again.
        at = call.listener.advertised
        myself = MetadataResponseBroker(
            node_id=parts.node_id, host=at.host, port=at.port, rack=parts.config.rack
        )
        response.brokers.append(myself)
    if request.topics is not None:
        for topic in response.topics:
            _hide_if_denied(parts, call, topic)
    return response


def _hide_if_denied(parts: Parts, call: Call, topic: MetadataResponseTopic) -> None:
    if topic.name is not None and not call.may(parts, Operation.DESCRIBE, ResourceType.TOPIC, topic.name):
        topic.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        topic.partitions = []


def _visible(parts: Parts, call: Call) -> ClusterView:
    """The view without the topics that the client must not know of."""
    view = parts.view
    hidden: dict[TopicName, None] = {
        name: None
        for name in view.image.topics
        if not call.may(parts, Operation.DESCRIBE, ResourceType.TOPIC, name)
    }
    if not hidden:
        return view
    return view.next(replace(view.image, topics=view.image.topics.changed(hidden)))


def _to_create(parts: Parts, call: Call, request: MetadataRequest) -> list[str]:
    may_create = call.version < _ASKS_WHETHER_TO_CREATE or request.allow_auto_topic_creation
    if not request.topics or not may_create or not parts.view.broker_settings[AUTO_CREATE]:
        return []
    known = parts.view.image.topics
    return [
        topic.name
        for topic in request.topics
        if topic.name is not None
        and TopicName(topic.name) not in known
        and describe.missing_topic_code(topic.name) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        and (
            call.may(parts, Operation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME)
            or call.may(parts, Operation.CREATE, ResourceType.TOPIC, topic.name)
        )
    ]


async def _create_first(parts: Parts, call: Call, request: MetadataRequest, names: list[str]) -> Response:
    wanted = CreateTopicsRequest(
        topics=[
            CreatableTopic(name=name, num_partitions=-1, replication_factor=-1, assignments=[], configs=[])
            for name in dict.fromkeys(names)
        ],
        timeout_ms=_CREATE_TIMEOUT_MS,
        validate_only=False,
    )
    try:
        async with parts.world.clock.timeout_ms(_CREATE_TIMEOUT_MS):
            await parts.channel.ask(wanted, version=_CREATE_VERSION)
            await parts.publisher.until(
                lambda view: all(TopicName(name) in view.image.topics for name in names)
            )
    except (TimeoutError, ConnectionLost):
        pass
    response = _describe(parts, call, request)
    assert isinstance(response, MetadataResponse)
    return response


def describe_topic_partitions(parts: Parts, call: Call) -> Response:
    """Topics and their partitions, page by page (KIP-966)."""
    request = call.body
    assert isinstance(request, DescribeTopicPartitionsRequest)
    count_max = parts.view.number(PARTITIONS_PER_PAGE)
    return describe.describe_topic_partitions(
        _visible(parts, call), request, listener=call.listener.name, partition_count_max=count_max
    )
