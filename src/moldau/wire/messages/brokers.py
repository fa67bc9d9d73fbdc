"""What brokers and controllers tell the active controller."""

from __future__ import annotations

from moldau.wire.message import Request, Response
from moldau.wire.types import Bool, Int8, Int16, Int32, Int64, String, Struct, UInt16, Uuid, field


class BrokerRegistrationRequest(Request, key=62, versions="0-4", flexible="0+"):
    """Register a broker with the controller when it starts."""

    broker_id: Int32
    cluster_id: String
    incarnation_id: Uuid
    listeners: list[Listener]
    features: list[Feature]
    rack: String | None = field(nullable="0+")
    is_migrating_zk_broker: Bool = field("1+", default=False)
    log_dirs: list[Uuid] = field("2+", default=[], ignorable=True)
    previous_broker_epoch: Int64 = field("3+", default=-1, ignorable=True)


class Listener(Struct):
    """A listener and its protocol."""

    name: String
    host: String
    port: UInt16
    security_protocol: Int16


class Feature(Struct):
    """The range of a feature that the node supports."""

    name: String
    min_supported_version: Int16
    max_supported_version: Int16


class BrokerRegistrationResponse(Response, key=62, versions="0-4", flexible="0+"):
    """The epoch of the broker's registration."""

    throttle_time_ms: Int32
    error_code: Int16
    broker_epoch: Int64 = field(default=-1)


class BrokerHeartbeatRequest(Request, key=63, versions="0-2", flexible="0+"):
    """Tell the controller that a broker is alive, and ask to be unfenced or to shut down."""

    broker_id: Int32
    broker_epoch: Int64 = field(default=-1)
    current_metadata_offset: Int64
    want_fence: Bool
    want_shut_down: Bool
    offline_log_dirs: list[Uuid] = field("1+", tag=0, default=[])
    cordoned_log_dirs: list[Uuid] | None = field("2+", tag=1, nullable="2+", default=None)


class BrokerHeartbeatResponse(Response, key=63, versions="0-2", flexible="0+"):
    """Whether the broker is fenced, has caught up, and may shut down."""

    throttle_time_ms: Int32
    error_code: Int16
    is_caught_up: Bool = field(default=False)
    is_fenced: Bool = field(default=True)
    should_shut_down: Bool


class UnregisterBrokerRequest(Request, key=64, versions="0", flexible="0+"):
    """Forget a broker that will not come back."""

    broker_id: Int32


class UnregisterBrokerResponse(Response, key=64, versions="0", flexible="0+"):
    """Whether the broker was forgotten."""

    throttle_time_ms: Int32
    error_code: Int16
    error_message: String | None = field(nullable="0+")


class ControllerRegistrationRequest(Request, key=70, versions="0", flexible="0+"):
    """Register a controller with the active one."""

    controller_id: Int32
    incarnation_id: Uuid
    zk_migration_ready: Bool
    listeners: list[Listener]
    features: list[Feature]


class ControllerRegistrationResponse(Response, key=70, versions="0", flexible="0+"):
    """Whether the controller was registered."""

    throttle_time_ms: Int32
    error_code: Int16
    error_message: String | None = field(nullable="0+")


class AllocateProducerIdsRequest(Request, key=67, versions="0", flexible="0+"):
    """Ask for a block of producer ids."""

    broker_id: Int32
    broker_epoch: Int64 = field(default=-1)


class AllocateProducerIdsResponse(Response, key=67, versions="0", flexible="0+"):
    """The block of producer ids."""

    throttle_time_ms: Int32
    error_code: Int16
    producer_id_start: Int64
    producer_id_len: Int32


class AlterPartitionRequest(Request, key=56, versions="2-3", flexible="0+"):
    """Change the in-sync replicas of partitions that the broker leads."""

    broker_id: Int32
    broker_epoch: Int64 = field(default=-1)
    topics: list[AlterPartitionRequestTopicData]


class AlterPartitionRequestTopicData(Struct):
    """The changes in one topic."""

    topic_id: Uuid
    partitions: list[AlterPartitionRequestPartitionData]


class AlterPartitionRequestPartitionData(Struct):
    """The replicas that are to be in sync in one partition."""

    partition_index: Int32
    leader_epoch: Int32
    new_isr: list[Int32] = field("0-2", default=[])
    new_isr_with_epochs: list[BrokerState] = field("3+", default=[])
    leader_recovery_state: Int8 = field(default=0)
    partition_epoch: Int32


class BrokerState(Struct):
    """An in-sync replica, and the epoch of its registration as the leader knows it."""

    broker_id: Int32
    broker_epoch: Int64 = field(default=-1)


class AlterPartitionResponse(Response, key=56, versions="2-3", flexible="0+"):
    """The state of the partitions after the changes."""

    throttle_time_ms: Int32
    error_code: Int16
    topics: list[AlterPartitionResponseTopicData]


class AlterPartitionResponseTopicData(Struct):
    """The state of one topic."""

    topic_id: Uuid
    partitions: list[AlterPartitionResponsePartitionData]


class AlterPartitionResponsePartitionData(Struct):
    """The state of one partition."""

    partition_index: Int32
    error_code: Int16
    leader_id: Int32
    leader_epoch: Int32
    isr: list[Int32]
    leader_recovery_state: Int8 = field(default=0)
    partition_epoch: Int32


class AssignReplicasToDirsRequest(Request, key=73, versions="0", flexible="0+"):
    """Tell the controller which directories hold which replicas."""

    broker_id: Int32
    broker_epoch: Int64 = field(default=-1)
    directories: list[AssignReplicasToDirsRequestDirectoryData]


class AssignReplicasToDirsRequestDirectoryData(Struct):
    """The replicas of one directory."""

    id: Uuid
    topics: list[AssignReplicasToDirsRequestTopicData]


class AssignReplicasToDirsRequestTopicData(Struct):
    """The partitions of one topic."""

    topic_id: Uuid
    partitions: list[AssignReplicasToDirsRequestPartitionData]


class AssignReplicasToDirsRequestPartitionData(Struct):
    """A partition in the directory."""

    partition_index: Int32


class AssignReplicasToDirsResponse(Response, key=73, versions="0", flexible="0+"):
    """Which assignments were accepted."""

    throttle_time_ms: Int32
    error_code: Int16
    directories: list[AssignReplicasToDirsResponseDirectoryData]


class AssignReplicasToDirsResponseDirectoryData(Struct):
    """The outcome for one directory."""

    id: Uuid
    topics: list[AssignReplicasToDirsResponseTopicData]


class AssignReplicasToDirsResponseTopicData(Struct):
    """The outcome for one topic."""

    topic_id: Uuid
    partitions: list[AssignReplicasToDirsResponsePartitionData]


class AssignReplicasToDirsResponsePartitionData(Struct):
    """The outcome for one partition."""

    partition_index: Int32
    error_code: Int16


class UpdateFeaturesRequest(Request, key=57, versions="0-2", flexible="0+"):
    """Change the finalised levels of features."""

    timeout_ms: Int32 = field(default=60000)
    feature_updates: list[FeatureUpdateKey]
    validate_only: Bool = field("1+", default=False)


class FeatureUpdateKey(Struct):
    """A feature and the level it is to have."""

    feature: String
    max_version_level: Int16
    allow_downgrade: Bool = field("0", default=False)
    upgrade_type: Int8 = field("1+", default=1)


class UpdateFeaturesResponse(Response, key=57, versions="0-2", flexible="0+"):
    """Which features were changed."""

    throttle_time_ms: Int32
    error_code: Int16
    error_message: String | None = field(nullable="0+")
    results: list[UpdatableFeatureResult] = field("0-1", default=[], ignorable=True)


class UpdatableFeatureResult(Struct):
    """The outcome for one feature, up to version 1."""

    feature: String
    error_code: Int16
    error_message: String | None = field(nullable="0+")
