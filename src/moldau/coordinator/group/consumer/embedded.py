"""What consumers put into the classic protocol: subscriptions and assignments, with a version in front."""

from __future__ import annotations

import struct
from typing import Final

from moldau.coordinator.group.assignors import Partitions
from moldau.metadata.image import Image
from moldau.model.errors import MalformedMessage
from moldau.model.ids import TopicId, TopicName
from moldau.wire.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
)

_VERSION: Final = struct.Struct(">h")
_SUBSCRIPTION_MAX: Final = ConsumerProtocolSubscription.declaration.versions.highest
_ASSIGNMENT_MAX: Final = ConsumerProtocolAssignment.declaration.versions.highest


def read_subscription(data: bytes) -> ConsumerProtocolSubscription:
    """What a consumer wants and has; MalformedMessage if that cannot be read."""
    version = read_version(data)
    # Later versions begin as the ones before them do.
    return ConsumerProtocolSubscription.decode(data[_VERSION.size :], min(version, _SUBSCRIPTION_MAX))


def read_assignment(data: bytes) -> ConsumerProtocolAssignment:
    """What a consumer was given; MalformedMessage if that cannot be read."""
    version = read_version(data)
    return ConsumerProtocolAssignment.decode(data[_VERSION.size :], min(version, _ASSIGNMENT_MAX))


def read_version(data: bytes) -> int:
    """The version in which a consumer speaks."""
    if len(data) < _VERSION.size:
        raise MalformedMessage("There is no version.")
    (version,) = _VERSION.unpack_from(data)
    if version < 0:
        raise MalformedMessage(f"There is no version {version}.")
    return int(version)


def write_assignment(partitions: Partitions, version: int, image: Image) -> bytes:
    """The partitions, by the names of their topics, in the version that the consumer speaks."""
    version = min(version, _ASSIGNMENT_MAX)
    assignment = ConsumerProtocolAssignment(
        assigned_partitions=[
            TopicPartition(topic=image.topic_names[topic_id], partitions=list(numbers))
            for topic_id, numbers in partitions.items()
            if topic_id in image.topic_names
        ]
    )
    return _VERSION.pack(version) + assignment.encode(version)


def partitions_by_id(topics: list[TopicPartition], image: Image) -> Partitions:
    """The partitions of those topics that exist, by their ids."""
    found: dict[TopicId, dict[int, None]] = {}
    for each in topics:
        topic = image.topics.get(TopicName(each.topic))
        if topic is not None:
            existing = (number for number in each.partitions if topic.partition(number) is not None)
            found.setdefault(topic.id, {}).update(dict.fromkeys(existing))
    return {topic_id: tuple(sorted(numbers)) for topic_id, numbers in found.items() if numbers}
