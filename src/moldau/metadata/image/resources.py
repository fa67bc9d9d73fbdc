"""What settings and quotas are attached to."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import NamedTuple, Protocol

from moldau.model.ids import NodeId, TopicName


class ResourceType(IntEnum):
    """The kinds of things that have settings, as Kafka numbers them."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class Resource(NamedTuple):
    """Something that has settings of its own; the broker with the empty name is all of them."""

    type: int
    name: str

    def __str__(self) -> str:
        kinds = {int(each): each.name.lower() for each in ResourceType}
        return f"{kinds.get(self.type, self.type)} {self.name!r}"


ALL_BROKERS = Resource(ResourceType.BROKER, "")


def topic_resource(name: TopicName) -> Resource:
    """The topic, as something that has settings."""
    return Resource(ResourceType.TOPIC, name)


def broker_resource(node_id: NodeId) -> Resource:
    """The broker, as something that has settings."""
    return Resource(ResourceType.BROKER, str(node_id))


class EntityPart(NamedTuple):
    """One part of whom a quota limits: a type, and a name unless it is the default for all names."""

    type: str
    # Stands before the name so that parts can be sorted; None cannot.
    is_named: bool
    name: str

    @property
    def name_or_none(self) -> str | None:
        """The name as messages carry it: null is the default."""
        return self.name if self.is_named else None


# Sorted by type, each type once.
QuotaEntity = tuple[EntityPart, ...]


class _PartLike(Protocol):
    entity_type: str
    entity_name: str | None


def quota_entity(parts: Iterable[_PartLike]) -> QuotaEntity:
    """Whom the parts of a message mean, in whichever order they come."""
    return tuple(
        sorted(
            EntityPart(part.entity_type, part.entity_name is not None, part.entity_name or "")
            for part in parts
        )
    )
