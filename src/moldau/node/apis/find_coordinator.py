"""FindCoordinator: which broker leads the partition in which all about a group is kept."""

from __future__ import annotations

from typing import Final

from moldau.metadata.view import ClusterView
from moldau.model.errors import ErrorCode, KafkaError
from moldau.model.ids import partition_for_coordinator
from moldau.model.settings.resolve import Source
from moldau.model.settings.table import (
    OFFSETS_TOPIC_NUM_PARTITIONS,
    OFFSETS_TOPIC_REPLICATION_FACTOR,
    OFFSETS_TOPIC_SEGMENT_BYTES,
)
from moldau.node.apis import leaders
from moldau.node.apis.call import Answer, Call, Parts
from moldau.node.apis.refusals import not_found
from moldau.node.security import Operation, ResourceType
from moldau.wire.message import Response
from moldau.wire.messages.groups import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from moldau.wire.messages.topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from moldau.world.ports import ConnectionLost

GROUP: Final = 0
_SEVERAL: Final = 4
_CREATE_VERSION: Final = 7
# Clients ask again if it takes longer.
_CREATE_TIMEOUT_MS: Final = 3_000


def handle(parts: Parts, call: Call) -> Answer:
    """The coordinators of the keys that were asked for; the first to ask for any has the topic created."""
    request = call.body
    assert isinstance(request, FindCoordinatorRequest)
    if request.key_type != GROUP:
        # An error that says so would have clients look for one again and again; at this one they give up.
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "This broker coordinates groups, and nothing else.")
    if parts.groups.topic not in parts.view.image.topics:
        return _create_first(parts, call, request)
    return _find(parts, call, request)


def _find(parts: Parts, call: Call, request: FindCoordinatorRequest) -> Response:
    keys = request.coordinator_keys if call.version >= _SEVERAL else [request.key]
    found = [_coordinator(parts, call, key) for key in keys]
    if call.version >= _SEVERAL:
        return FindCoordinatorResponse(coordinators=found)
    (only,) = found
    return FindCoordinatorResponse(
        error_code=only.error_code,
        error_message=only.error_message,
        node_id=only.node_id,
        host=only.host,
        port=only.port,
    )


def _coordinator(parts: Parts, call: Call, key: str) -> Coordinator:
    if not call.may(parts, Operation.DESCRIBE, ResourceType.GROUP, key):
        return not_found(key, KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED))
    view = parts.view
    topic = view.image.topics.get(parts.groups.topic)
    if topic is not None:
        partition = topic.partitions[partition_for_coordinator(key, len(topic.partitions))]
        for at in leaders.places(view, (partition.leader,), call.listener.name):
            return Coordinator(
                key=key,
                node_id=at.node_id,
                host=at.host,
                port=at.port,
                error_code=ErrorCode.NONE,
                error_message=None,
            )
    return not_found(key, KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE))


async def _create_first(parts: Parts, call: Call, request: FindCoordinatorRequest) -> Response:
    name = parts.groups.topic
    wanted = CreateTopicsRequest(topics=[offsets_topic(parts.view, name)], timeout_ms=_CREATE_TIMEOUT_MS)
    try:
        async with parts.world.clock.timeout_ms(_CREATE_TIMEOUT_MS):
            await parts.channel.ask(wanted, version=_CREATE_VERSION)
            await parts.publisher.until(lambda view: name in view.image.topics)
    except (TimeoutError, ConnectionLost):
        pass
    return _find(parts, call, request)


def offsets_topic(view: ClusterView, name: str) -> CreatableTopic:
    """The topic in which groups are kept, as this broker's settings want it.

    Kafka creates it with three replicas or not at all, so that groups need three brokers unless somebody has
    thought of it. A number that somebody has set is meant; the default is only what one would like best.
    """
    settings = view.broker_settings
    replication_factor = settings[OFFSETS_TOPIC_REPLICATION_FACTOR]
    if settings.source(OFFSETS_TOPIC_REPLICATION_FACTOR) is Source.DEFAULT:
        replication_factor = min(replication_factor, max(len(view.active_brokers()), 1))
    configs = {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": str(settings[OFFSETS_TOPIC_SEGMENT_BYTES]),
    }
    return CreatableTopic(
        name=name,
        num_partitions=settings[OFFSETS_TOPIC_NUM_PARTITIONS],
        replication_factor=replication_factor,
        assignments=[],
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
    )
