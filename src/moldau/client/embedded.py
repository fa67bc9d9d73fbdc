"""What consumers tell each other inside the classic protocol: subscriptions and assignments, versioned."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final

from moldau.client.assignors import Subscription
from moldau.client.offsets import place_of
from moldau.model.errors import MalformedMessage
from moldau.model.ids import TopicPartition
from moldau.wire.messages.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from moldau.wire.messages.consumer_protocol import TopicPartition as TopicRow

_VERSION: Final = struct.Struct(">h")
_SUBSCRIPTION_VERSION: Final = ConsumerProtocolSubscription.declaration.versions.highest
_ASSIGNMENT_VERSION: Final = ConsumerProtocolAssignment.declaration.versions.highest


def write_subscription(subscription: Subscription, *, rack_id: str | None) -> bytes:
    """A subscription as a member sends it with its request to join."""
    message = ConsumerProtocolSubscription(
        topics=sorted(subscription.topics),
        owned_partitions=_rows(subscription.owned),
        generation_id=subscription.generation,
        rack_id=rack_id,
    )
    return _VERSION.pack(_SUBSCRIPTION_VERSION) + message.encode(_SUBSCRIPTION_VERSION)


def read_subscription(data: bytes, *, instance_id: str | None) -> Subscription:
    """What another member wants and has; MalformedMessage if that cannot be read."""
    version, rest = _split(data)
    message = ConsumerProtocolSubscription.decode(rest, min(version, _SUBSCRIPTION_VERSION))
    return Subscription(
        tuple(message.topics), _places(message.owned_partitions), message.generation_id, instance_id
    )


def write_assignment(places: Iterable[TopicPartition]) -> bytes:
    """What the leader sends to a member."""
    message = ConsumerProtocolAssignment(assigned_partitions=_rows(places))
    return _VERSION.pack(_ASSIGNMENT_VERSION) + message.encode(_ASSIGNMENT_VERSION)


def read_assignment(data: bytes) -> tuple[TopicPartition, ...]:
    """What a member was given; nothing if the leader said nothing."""
    if not data:
        return ()
    version, rest = _split(data)
    message = ConsumerProtocolAssignment.decode(rest, min(version, _ASSIGNMENT_VERSION))
    return _places(message.assigned_partitions)


def _split(data: bytes) -> tuple[int, bytes]:
    if len(data) < _VERSION.size:
        raise MalformedMessage("There is no version.")
    (version,) = _VERSION.unpack_from(data)
    if version < 0:
        raise MalformedMessage(f"There is no version {version}.")
    # Later versions begin as the ones before them do.
    return int(version), bytes(data[_VERSION.size :])


def _rows(places: Iterable[TopicPartition]) -> list[TopicRow]:
    topics: dict[str, list[int]] = {}
    for place in sorted(places):
        topics.setdefault(place.topic, []).append(place.partition)
    return [TopicRow(topic=topic, partitions=indexes) for topic, indexes in topics.items()]


def _places(rows: Iterable[TopicRow]) -> tuple[TopicPartition, ...]:
    return tuple(place_of((row.topic, index)) for row in rows for index in row.partitions)
