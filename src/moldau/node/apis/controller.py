"""What brokers pass on to the active controller, and what a controller does with it."""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Iterator
from typing import Final

from moldau.metadata.image import ResourceType as ConfigResourceType
from moldau.model.errors import ErrorCode, KafkaError
from moldau.model.ids import TopicName
from moldau.node.apis.call import Answer, Call, Parts
from moldau.node.apis.dispatch import answered
from moldau.node.security import CLUSTER_NAME, Operation, Principal, ResourceType
from moldau.wire import framing
from moldau.wire.message import Request, Response
from moldau.wire.messages.configs import AlterConfigsRequest, IncrementalAlterConfigsRequest
from moldau.wire.messages.principal import DefaultPrincipalData
from moldau.wire.messages.security import EnvelopeRequest, EnvelopeResponse
from moldau.wire.messages.topics import (
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
)
from moldau.world.ports import ConnectionLost

_ENVELOPE_VERSION: Final = 0
_PRINCIPAL_VERSION: Final = struct.Struct(">h")


def forward(parts: Parts, call: Call) -> Answer:
    """Have the active controller decide, and pass its reply on as it is."""
    return _forward(parts, call, call.raw())


async def _forward(parts: Parts, call: Call, request: bytes) -> None:
    principal = DefaultPrincipalData(
        type=call.principal.type, name=call.principal.name, token_authenticated=False
    )
    envelope = EnvelopeRequest(
        request_data=request,
        request_principal=_PRINCIPAL_VERSION.pack(0) + principal.encode(0),
        client_host_address=_packed(call.host),
    )
    try:
        response = await parts.channel.ask(envelope, version=_ENVELOPE_VERSION)
    except ConnectionLost as error:
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"The controller did not answer: {error}") from None
    assert isinstance(response, EnvelopeResponse)
    if response.error_code or response.response_data is None:
        raise KafkaError(ErrorCode(response.error_code))
    # Whoever changed something sees it in the next answer of this broker.
    applied = parts.quorum.applied
    await parts.publisher.until(lambda view: view.image.offset >= applied - 1)
    call.asker.answered_encoded(call, response.response_data)


def decide(parts: Parts, call: Call) -> Answer:
    """Have the controller on this node decide."""
    return _decide(parts, call)


async def _decide(parts: Parts, call: Call) -> Response:
    if parts.controller is None:
        raise KafkaError(ErrorCode.NOT_CONTROLLER)
    _check_access(parts, call)
    throttle_ms = _metered(parts, call)
    response = await parts.controller.handle(call.body)
    if throttle_ms:
        response.throttle_time_ms = throttle_ms  # type: ignore[attr-defined]  # all that is metered has it
    return response


def _check_access(parts: Parts, call: Call) -> None:
    """Refuse the whole request if some of what it names must not be touched by the one who asks."""
    for operation, kind, name in _touched(call.body):
        if call.may(parts, operation, kind, name):
            continue
        if operation is Operation.CREATE and call.may(parts, operation, ResourceType.CLUSTER, CLUSTER_NAME):
            continue
        is_topic = kind is ResourceType.TOPIC
        raise KafkaError(
            ErrorCode.TOPIC_AUTHORIZATION_FAILED if is_topic else ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        )


def _touched(request: Request) -> Iterator[tuple[Operation, ResourceType, str]]:
    """What a request changes, and how."""
    match request:
        case CreateTopicsRequest():
            yield from ((Operation.CREATE, ResourceType.TOPIC, topic.name) for topic in request.topics)
        case DeleteTopicsRequest():
            names = [*request.topic_names, *(topic.name or "" for topic in request.topics)]
            yield from ((Operation.DELETE, ResourceType.TOPIC, name) for name in names)
        case CreatePartitionsRequest():
            yield from ((Operation.ALTER, ResourceType.TOPIC, topic.name) for topic in request.topics)
        case AlterConfigsRequest() | IncrementalAlterConfigsRequest():
            for resource in request.resources:
                if resource.resource_type == ConfigResourceType.TOPIC:
                    yield Operation.ALTER_CONFIGS, ResourceType.TOPIC, resource.resource_name
                else:
                    yield Operation.ALTER_CONFIGS, ResourceType.CLUSTER, CLUSTER_NAME


# From these versions on a client understands that it must come again later (KIP-599).
_UNDERSTANDS_THROTTLING: Final = {CreateTopicsRequest: 6, DeleteTopicsRequest: 5, CreatePartitionsRequest: 3}


def _metered(parts: Parts, call: Call) -> int:
    """Count the partitions that a request makes or removes; gives for how long the client should pause."""
    count, request = 0, call.body
    topics = parts.view.image.topics
    match request:
        case CreateTopicsRequest(validate_only=False):
            count = sum(max(topic.num_partitions, len(topic.assignments), 1) for topic in request.topics)
        case CreatePartitionsRequest(validate_only=False):
            for topic in request.topics:
                known = topics.get(TopicName(topic.name))
                count += max(topic.count - len(known.partitions), 0) if known is not None else 0
        case DeleteTopicsRequest():
            names = [*request.topic_names, *(topic.name or "" for topic in request.topics)]
            found = [topics.get(TopicName(name)) for name in names]
            count = sum(len(topic.partitions) for topic in found if topic is not None)
    if not count:
        return 0
    return parts.quotas.record_mutations(
        user=call.principal.name,
        client_id=call.client_id,
        count=count,
        now_ms=parts.world.clock.now_ms(),
        is_strict=call.version >= _UNDERSTANDS_THROTTLING[type(request)],
    )


def quorum(parts: Parts, call: Call) -> Answer:
    """Let the quorum answer another replica, or somebody who asks about it."""
    return parts.quorum.serve(call.body, version=call.version)


def open_envelope(parts: Parts, call: Call) -> Answer:
    """Answer the request in an envelope as if its client had asked here."""
    envelope = call.body
    assert isinstance(envelope, EnvelopeRequest)
    data = bytes(envelope.request_data)
    received = framing.read_request(framing.Frame(data, 0, len(data), is_shared=False))
    if isinstance(received, framing.UnservedRequest) or envelope.request_principal is None:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    raw = bytes(envelope.request_principal)
    sender = DefaultPrincipalData.decode(raw[_PRINCIPAL_VERSION.size :], 0)
    try:
        host = str(ipaddress.ip_address(bytes(envelope.client_host_address)))
    except ValueError as error:
        raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from None
    inner = Call(
        received,
        received.body(),
        asker=call.asker,
        principal=Principal(sender.type, sender.name),
        host=host,
        listener=call.listener,
        began_us=call.began_us,
    )
    return _open(parts, inner)


async def _open(parts: Parts, inner: Call) -> Response:
    received = inner.received
    from moldau.node.apis.table import FORWARDABLE

    api = FORWARDABLE.get(received.api_key)
    if api is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{received.api_key.api_name} is not for the controller.")
    response = await answered(parts, api, inner)
    assert response is not None, "whatever is decided is answered"
    chunks = framing.encode_response(
        response, api_key=received.api_key, version=received.version, correlation_id=received.correlation_id
    )
    framed = b"".join(chunks)  # type: ignore[arg-type]  # the controller sends no slices of files
    return EnvelopeResponse(response_data=framed[4:], error_code=ErrorCode.NONE)


def _packed(host: str) -> bytes:
    try:
        return ipaddress.ip_address(host).packed
    except ValueError:
        # In a simulation hosts have names.
        return bytes(4)
