"""What a node knows about the cluster at one offset of the metadata log, and what each batch changes."""

from moldau.metadata.image.delta import Delta, LocalChanges, LocalPartition, PartitionChanged
from moldau.metadata.image.image import Image
from moldau.metadata.image.invalid import InvalidMetadata
from moldau.metadata.image.nodes import Broker, Endpoint, FeatureRange, RegisteredController
from moldau.metadata.image.resources import (
    ALL_BROKERS,
    EntityPart,
    QuotaEntity,
    Resource,
    ResourceType,
    broker_resource,
    quota_entity,
    topic_resource,
)
from moldau.metadata.image.topics import (
    INTERNAL_TOPICS,
    NO_LEADER,
    LeaderRecovery,
    NodeIds,
    Partition,
    Topic,
)

__all__ = [
    "ALL_BROKERS",
    "INTERNAL_TOPICS",
    "NO_LEADER",
    "Broker",
    "Delta",
    "Endpoint",
    "EntityPart",
    "FeatureRange",
    "Image",
    "InvalidMetadata",
    "LeaderRecovery",
    "LocalChanges",
    "LocalPartition",
    "NodeIds",
    "Partition",
    "PartitionChanged",
    "QuotaEntity",
    "RegisteredController",
    "Resource",
    "ResourceType",
    "Topic",
    "broker_resource",
    "quota_entity",
    "topic_resource",
]
