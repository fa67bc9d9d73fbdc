"""What members ask of their group: to be let in, to get their share, to stay and to leave."""

from __future__ import annotations

from typing import Final

from moldau.model.errors import ErrorCode, KafkaError
from moldau.node.apis.call import Call, Parts
from moldau.node.apis.group_calls import Caller, check
from moldau.node.security import Operation, ResourceType
from moldau.wire.message import Request
from moldau.wire.messages.consumer_groups import ConsumerGroupHeartbeatRequest
from moldau.wire.messages.groups import (
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    SyncGroupRequest,
)

_READ, _DESCRIBE = Operation.READ, Operation.DESCRIBE
_PROTOCOL_IN_SYNC: Final = 5


def join(parts: Parts, call: Call) -> None:
    """JoinGroup: the reply waits for the other members."""
    request = call.body
    assert isinstance(request, JoinGroupRequest)
    _ask(parts, call, request.group_id, request)


def sync(parts: Parts, call: Call) -> None:
    """SyncGroup: the reply waits for the leader."""
    request = call.body
    assert isinstance(request, SyncGroupRequest)
    if call.version >= _PROTOCOL_IN_SYNC and None in (request.protocol_type, request.protocol_name):
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    _ask(parts, call, request.group_id, request)


def heartbeat(parts: Parts, call: Call) -> None:
    """Heartbeat of a classic member."""
    request = call.body
    assert isinstance(request, HeartbeatRequest)
    _ask(parts, call, request.group_id, request)


def leave(parts: Parts, call: Call) -> None:
    """LeaveGroup, for one or several."""
    request = call.body
    assert isinstance(request, LeaveGroupRequest)
    _ask(parts, call, request.group_id, request)


def consumer_heartbeat(parts: Parts, call: Call) -> None:
    """ConsumerGroupHeartbeat: who may not see a topic cannot subscribe to it (KIP-848)."""
    request = call.body
    assert isinstance(request, ConsumerGroupHeartbeatRequest)
    check(parts, call, _READ, request.group_id)
    for topic in request.subscribed_topic_names or ():
        if not call.may(parts, _DESCRIBE, ResourceType.TOPIC, topic):
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    parts.groups.ask(request.group_id, request, Caller(call))


def _ask(parts: Parts, call: Call, group_id: str, request: Request) -> None:
    check(parts, call, _READ, group_id)
    parts.groups.ask(group_id, request, Caller(call))
