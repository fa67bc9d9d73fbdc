"""Records of `__cluster_metadata`."""

from __future__ import annotations

from moldau.wire.message import MetadataRecord
from moldau.wire.types import (
    Bool,
    Bytes,
    Float64,
    Int8,
    Int16,
    Int32,
    Int64,
    String,
    Struct,
    UInt16,
    Uuid,
    field,
)


class RegisterBrokerRecord(MetadataRecord, key=0, versions="0-4", flexible="0+"):
    """A broker has registered."""

    broker_id: Int32
    is_migrating_zk_broker: Bool = field("2+", default=False)
    incarnation_id: Uuid
    broker_epoch: Int64
    end_points: list[BrokerEndpoint]
    features: list[BrokerFeature]
    rack: String | None = field(nullable="0+")
    fenced: Bool = field(default=True)
    in_controlled_shutdown: Bool = field("1+", default=False)
    log_dirs: list[Uuid] = field("3+", tag=0, default=[])
    cordoned_log_dirs: list[Uuid] | None = field("4+", tag=1, nullable="4+", default=None)


class BrokerEndpoint(Struct):
    """A listener of a broker."""

    name: String
    host: String
    port: UInt16
    security_protocol: Int16


class BrokerFeature(Struct):
    """The range of a feature that a broker supports."""

    name: String
    min_supported_version: Int16
    max_supported_version: Int16


class UnregisterBrokerRecord(MetadataRecord, key=1, versions="0", flexible="0+"):
    """A broker is gone for good."""

    broker_id: Int32
    broker_epoch: Int64


class TopicRecord(MetadataRecord, key=2, versions="0", flexible="0+"):
    """A topic exists."""

    name: String
    topic_id: Uuid


class PartitionRecord(MetadataRecord, key=3, versions="0-2", flexible="0+"):
    """A partition exists, with this state."""

    partition_id: Int32 = field(default=-1)
    topic_id: Uuid
    replicas: list[Int32]
    isr: list[Int32]
    removing_replicas: list[Int32]
    adding_replicas: list[Int32]
    leader: Int32 = field(default=-1)
    leader_recovery_state: Int8 = field(tag=0, default=0)
    leader_epoch: Int32 = field(default=-1)
    partition_epoch: Int32 = field(default=-1)
    directories: list[Uuid] = field("1+", default=[])
    eligible_leader_replicas: list[Int32] | None = field("2+", tag=1, nullable="2+", default=None)
    last_known_elr: list[Int32] | None = field("2+", tag=2, nullable="2+", default=None)


class ConfigRecord(MetadataRecord, key=4, versions="0", flexible="0+"):
    """A setting of a resource; null removes it."""

    resource_type: Int8
    resource_name: String
    name: String
    value: String | None = field(nullable="0+")


class PartitionChangeRecord(MetadataRecord, key=5, versions="0-2", flexible="0+"):
    """What has changed in a partition; a field that is not sent stays as it is."""

    partition_id: Int32 = field(default=-1)
    topic_id: Uuid
    isr: list[Int32] | None = field(tag=0, nullable="0+", default=None)
    leader: Int32 = field(tag=1, default=-2)
    replicas: list[Int32] | None = field(tag=2, nullable="0+", default=None)
    removing_replicas: list[Int32] | None = field(tag=3, nullable="0+", default=None)
    adding_replicas: list[Int32] | None = field(tag=4, nullable="0+", default=None)
    leader_recovery_state: Int8 = field(tag=5, default=-1)
    directories: list[Uuid] | None = field("1+", tag=8, nullable="1+", default=None)
    eligible_leader_replicas: list[Int32] | None = field("2+", tag=6, nullable="2+", default=None)
    last_known_elr: list[Int32] | None = field("2+", tag=7, nullable="2+", default=None)


class FenceBrokerRecord(MetadataRecord, key=7, versions="0", flexible="0+"):
    """A broker was fenced, as old controllers wrote it."""

    id: Int32
    epoch: Int64


class UnfenceBrokerRecord(MetadataRecord, key=8, versions="0", flexible="0+"):
    """A broker was unfenced, as old controllers wrote it."""

    id: Int32
    epoch: Int64


class RemoveTopicRecord(MetadataRecord, key=9, versions="0", flexible="0+"):
    """A topic was deleted."""

    topic_id: Uuid


class DelegationTokenRecord(MetadataRecord, key=10, versions="0", flexible="0+"):
    """A delegation token exists."""

    owner: String
    requester: String
    renewers: list[String]
    issue_timestamp: Int64
    max_timestamp: Int64
    expiration_timestamp: Int64
    token_id: String


class UserScramCredentialRecord(MetadataRecord, key=11, versions="0", flexible="0+"):
    """A user has a SCRAM credential."""

    name: String
    mechanism: Int8
    salt: Bytes
    stored_key: Bytes
    server_key: Bytes
    iterations: Int32


class FeatureLevelRecord(MetadataRecord, key=12, versions="0", flexible="0+"):
    """The finalised level of a feature."""

    name: String
    feature_level: Int16


class ClientQuotaRecord(MetadataRecord, key=14, versions="0", flexible="0+"):
    """A quota was set or removed."""

    entity: list[EntityData]
    key: String
    value: Float64
    remove: Bool


class EntityData(Struct):
    """One part of an entity; a null name is the default."""

    entity_type: String
    entity_name: String | None = field(nullable="0+")


class ProducerIdsRecord(MetadataRecord, key=15, versions="0", flexible="0+"):
    """A block of producer ids was given to a broker."""

    broker_id: Int32
    broker_epoch: Int64 = field(default=-1)
    next_producer_id: Int64


class BrokerRegistrationChangeRecord(MetadataRecord, key=17, versions="0-3", flexible="0+"):
    """What has changed in a broker's registration."""

    broker_id: Int32
    broker_epoch: Int64
    fenced: Int8 = field(tag=0, default=0)
    in_controlled_shutdown: Int8 = field("1+", tag=1, default=0)
    log_dirs: list[Uuid] = field("2+", tag=2, default=[])
    cordoned_log_dirs: list[Uuid] | None = field("3+", tag=3, nullable="3+", default=None)


class AccessControlEntryRecord(MetadataRecord, key=18, versions="0", flexible="0+"):
    """An access control entry exists."""

    id: Uuid
    resource_type: Int8
    resource_name: String
    pattern_type: Int8
    principal: String
    host: String
    operation: Int8
    permission_type: Int8


class RemoveAccessControlEntryRecord(MetadataRecord, key=19, versions="0", flexible="0+"):
    """An access control entry was deleted."""

    id: Uuid


class NoOpRecord(MetadataRecord, key=20, versions="0", flexible="0+"):
    """Nothing; it only moves the log forward."""


class ZkMigrationStateRecord(MetadataRecord, key=21, versions="0", flexible="0+"):
    """How far the migration from ZooKeeper has come."""

    zk_migration_state: Int8


class RemoveUserScramCredentialRecord(MetadataRecord, key=22, versions="0", flexible="0+"):
    """A SCRAM credential was deleted."""

    name: String
    mechanism: Int8


class BeginTransactionRecord(MetadataRecord, key=23, versions="0", flexible="0+"):
    """The records from here on count only if an end follows."""

    name: String | None = field(tag=0, nullable="0+", default=None)


class EndTransactionRecord(MetadataRecord, key=24, versions="0", flexible="0+"):
    """The records since the beginning count."""


class AbortTransactionRecord(MetadataRecord, key=25, versions="0", flexible="0+"):
    """The records since the beginning do not count."""

    reason: String | None = field(tag=0, nullable="0+", default=None)


class RemoveDelegationTokenRecord(MetadataRecord, key=26, versions="0", flexible="0+"):
    """A delegation token was deleted."""

    token_id: String


class RegisterControllerRecord(MetadataRecord, key=27, versions="0", flexible="0+"):
    """A controller has registered."""

    controller_id: Int32
    incarnation_id: Uuid
    zk_migration_ready: Bool
    end_points: list[ControllerEndpoint]
    features: list[ControllerFeature]


class ControllerEndpoint(Struct):
    """A listener of a controller."""

    name: String
    host: String
    port: UInt16
    security_protocol: Int16


class ControllerFeature(Struct):
    """The range of a feature that a controller supports."""

    name: String
    min_supported_version: Int16
    max_supported_version: Int16


class ClearElrRecord(MetadataRecord, key=28, versions="0", flexible="0+"):
    """Eligible leader replicas are forgotten, of one topic or of all."""

    topic_name: String
