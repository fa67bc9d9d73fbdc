"""Every message of Apache Kafka 4.3, by API key and by name; a family is loaded when one is asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import IntEnum
from functools import cache
from importlib import import_module
from typing import TypeVar

from moldau.wire.message import CoordinatorKey, CoordinatorValue, Message, MetadataRecord, Request, Response
from moldau.wire.types import Versions

M = TypeVar("M", bound=Message)
K = TypeVar("K", int, str)


class ApiKey(IntEnum):
    """The number of an API; 4 to 7 went with ZooKeeper."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    CREATE_DELEGATION_TOKEN = 38
    RENEW_DELEGATION_TOKEN = 39
    EXPIRE_DELEGATION_TOKEN = 40
    DESCRIBE_DELEGATION_TOKEN = 41
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    VOTE = 52
    BEGIN_QUORUM_EPOCH = 53
    END_QUORUM_EPOCH = 54
    DESCRIBE_QUORUM = 55
    ALTER_PARTITION = 56
    UPDATE_FEATURES = 57
    ENVELOPE = 58
    FETCH_SNAPSHOT = 59
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    BROKER_REGISTRATION = 62
    BROKER_HEARTBEAT = 63
    UNREGISTER_BROKER = 64
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    ALLOCATE_PRODUCER_IDS = 67
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    CONTROLLER_REGISTRATION = 70
    GET_TELEMETRY_SUBSCRIPTIONS = 71
    PUSH_TELEMETRY = 72
    ASSIGN_REPLICAS_TO_DIRS = 73
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    SHARE_GROUP_HEARTBEAT = 76
    SHARE_GROUP_DESCRIBE = 77
    SHARE_FETCH = 78
    SHARE_ACKNOWLEDGE = 79
    ADD_RAFT_VOTER = 80
    REMOVE_RAFT_VOTER = 81
    UPDATE_RAFT_VOTER = 82
    INITIALIZE_SHARE_GROUP_STATE = 83
    READ_SHARE_GROUP_STATE = 84
    WRITE_SHARE_GROUP_STATE = 85
    DELETE_SHARE_GROUP_STATE = 86
    READ_SHARE_GROUP_STATE_SUMMARY = 87
    STREAMS_GROUP_HEARTBEAT = 88
    STREAMS_GROUP_DESCRIBE = 89
    DESCRIBE_SHARE_GROUP_OFFSETS = 90
    ALTER_SHARE_GROUP_OFFSETS = 91
    DELETE_SHARE_GROUP_OFFSETS = 92

    @property
    def api_name(self) -> str:
        """The name as Kafka spells it: `ListOffsets`."""
        return self.name.title().replace("_", "")


def request_header_version(api_key: int, version: int) -> int:
    """The version of the header in front of a request; it has tags when the request has."""
    return 2 if REQUESTS[api_key].declaration.flexible.includes(version) else 1


def response_header_version(api_key: int, version: int) -> int:
    """The version of the header in front of a response."""
    # A client that asks too new a version of ApiVersions must still be able to read that it did (KIP-511).
    if api_key == ApiKey.API_VERSIONS:
        return 0
    return 1 if RESPONSES[api_key].declaration.flexible.includes(version) else 0


@cache
def spoken_versions(api_key: int) -> Versions:
    """The versions of an API that clients may use; one that Kafka still calls unstable is none of them."""
    declaration = REQUESTS[api_key].declaration
    return Versions(declaration.versions.lowest, declaration.versions.highest - declaration.latest_unstable)


@cache
def advertised_versions() -> Mapping[ApiKey, Versions]:
    """The versions that Kafka 4.3 tells clients about, of every API on any listener."""
    advertised = {api_key: spoken_versions(api_key) for api_key in ApiKey}
    # Versions 0 to 2 are refused; without them librdkafka takes compression for unsupported (KAFKA-18659).
    advertised[ApiKey.PRODUCE] = advertised[ApiKey.PRODUCE]._replace(lowest=0)
    return advertised


# ---------------------------------------------------------------- which module declares what

_APIS = {
    "produce": ("Produce",),
    "fetch": ("Fetch",),
    "offsets": ("ListOffsets", "OffsetForLeaderEpoch", "DeleteRecords"),
    "metadata": ("Metadata", "DescribeCluster", "DescribeTopicPartitions"),
    "groups": (
        "FindCoordinator",
        "JoinGroup",
        "SyncGroup",
        "Heartbeat",
        "LeaveGroup",
        "OffsetCommit",
        "OffsetFetch",
        "OffsetDelete",
        "ListGroups",
        "DescribeGroups",
        "DeleteGroups",
    ),
    "consumer_groups": ("ConsumerGroupHeartbeat", "ConsumerGroupDescribe"),
    "share": (
        "ShareGroupHeartbeat",
        "ShareGroupDescribe",
        "ShareFetch",
        "ShareAcknowledge",
        "DescribeShareGroupOffsets",
        "AlterShareGroupOffsets",
        "DeleteShareGroupOffsets",
        "InitializeShareGroupState",
        "ReadShareGroupState",
        "WriteShareGroupState",
        "DeleteShareGroupState",
        "ReadShareGroupStateSummary",
    ),
    "streams": ("StreamsGroupHeartbeat", "StreamsGroupDescribe"),
    "txn": (
        "InitProducerId",
        "AddPartitionsToTxn",
        "AddOffsetsToTxn",
        "TxnOffsetCommit",
        "EndTxn",
        "WriteTxnMarkers",
        "DescribeProducers",
        "DescribeTransactions",
        "ListTransactions",
    ),
    "topics": (
        "CreateTopics",
        "DeleteTopics",
        "CreatePartitions",
        "AlterPartitionReassignments",
        "ListPartitionReassignments",
        "ElectLeaders",
    ),
    "configs": ("DescribeConfigs", "AlterConfigs", "IncrementalAlterConfigs", "ListConfigResources"),
    "quotas": ("DescribeClientQuotas", "AlterClientQuotas"),
    "acls": ("DescribeAcls", "CreateAcls", "DeleteAcls"),
    "security": (
        "SaslHandshake",
        "SaslAuthenticate",
        "DescribeUserScramCredentials",
        "AlterUserScramCredentials",
        "CreateDelegationToken",
        "RenewDelegationToken",
        "ExpireDelegationToken",
        "DescribeDelegationToken",
        "Envelope",
    ),
    "log_dirs": ("DescribeLogDirs", "AlterReplicaLogDirs"),
    "raft": (
        "Vote",
        "BeginQuorumEpoch",
        "EndQuorumEpoch",
        "FetchSnapshot",
        "DescribeQuorum",
        "AddRaftVoter",
        "RemoveRaftVoter",
        "UpdateRaftVoter",
    ),
    "brokers": (
        "BrokerRegistration",
        "BrokerHeartbeat",
        "UnregisterBroker",
        "ControllerRegistration",
        "AllocateProducerIds",
        "AlterPartition",
        "AssignReplicasToDirs",
        "UpdateFeatures",
    ),
    "telemetry": ("GetTelemetrySubscriptions", "PushTelemetry"),
    "api_versions": ("ApiVersions",),
}
_OTHERS = {
    "header": ("RequestHeader", "ResponseHeader"),
    "control_records": (
        "ControlRecordTypeSchema",
        "EndTxnMarker",
        "LeaderChangeMessage",
        "SnapshotHeaderRecord",
        "SnapshotFooterRecord",
        "KRaftVersionRecord",
        "VotersRecord",
    ),
    "consumer_protocol": ("ConsumerProtocolSubscription", "ConsumerProtocolAssignment"),
    "principal": ("DefaultPrincipalData",),
    "files": ("QuorumStateData", "ProducerSnapshot"),
}
# The types of the records in the internal logs. A coordinator's record has a key and a value.
_GROUP_RECORDS = {
    0: "LegacyOffsetCommit",
    1: "OffsetCommit",
    2: "GroupMetadata",
    3: "ConsumerGroupMetadata",
    4: "ConsumerGroupPartitionMetadata",
    5: "ConsumerGroupMemberMetadata",
    6: "ConsumerGroupTargetAssignmentMetadata",
    7: "ConsumerGroupTargetAssignmentMember",
    8: "ConsumerGroupCurrentMemberAssignment",
    10: "ShareGroupMemberMetadata",
    11: "ShareGroupMetadata",
    12: "ShareGroupTargetAssignmentMetadata",
    13: "ShareGroupTargetAssignmentMember",
    14: "ShareGroupCurrentMemberAssignment",
    15: "ShareGroupStatePartitionMetadata",
    16: "ConsumerGroupRegularExpression",
    17: "StreamsGroupMetadata",
    19: "StreamsGroupMemberMetadata",
    20: "StreamsGroupTargetAssignmentMetadata",
    21: "StreamsGroupTargetAssignmentMember",
    22: "StreamsGroupCurrentMemberAssignment",
    23: "StreamsGroupTopology",
}
_TXN_RECORDS = {
    0: "TransactionLog",
}
_SHARE_RECORDS = {
    0: "ShareSnapshot",
    1: "ShareUpdate",
}
_METADATA_RECORDS = {
    0: "RegisterBrokerRecord",
    1: "UnregisterBrokerRecord",
    2: "TopicRecord",
    3: "PartitionRecord",
    4: "ConfigRecord",
    5: "PartitionChangeRecord",
    7: "FenceBrokerRecord",
    8: "UnfenceBrokerRecord",
    9: "RemoveTopicRecord",
    10: "DelegationTokenRecord",
    11: "UserScramCredentialRecord",
    12: "FeatureLevelRecord",
    14: "ClientQuotaRecord",
    15: "ProducerIdsRecord",
    17: "BrokerRegistrationChangeRecord",
    18: "AccessControlEntryRecord",
    19: "RemoveAccessControlEntryRecord",
    20: "NoOpRecord",
    21: "ZkMigrationStateRecord",
    22: "RemoveUserScramCredentialRecord",
    23: "BeginTransactionRecord",
    24: "EndTransactionRecord",
    25: "AbortTransactionRecord",
    26: "RemoveDelegationTokenRecord",
    27: "RegisterControllerRecord",
    28: "ClearElrRecord",
}


def _modules() -> Iterator[tuple[str, str]]:
    for module, stems in _APIS.items():
        for stem in stems:
            yield f"{stem}Request", module
            yield f"{stem}Response", module
    for module, names in _OTHERS.items():
        for name in names:
            yield name, module
    for module, records in (
        ("group_records", _GROUP_RECORDS),
        ("txn_records", _TXN_RECORDS),
        ("share_records", _SHARE_RECORDS),
    ):
        for stem in records.values():
            yield f"{stem}Key", module
            yield f"{stem}Value", module
    for name in _METADATA_RECORDS.values():
        yield name, "metadata_records"


_MODULE_OF = dict(_modules())


class _OnDemand(Mapping[K, type[M]]):
    """Classes of messages, each loaded when it is first asked for."""

    def __init__(self, kind: type[M], names: Mapping[K, str]) -> None:
        self._kind = kind
        self._names: Mapping[K, str] = names
        self._loaded: dict[K, type[M]] = {}

    def __getitem__(self, key: K) -> type[M]:
        found = self._loaded.get(key)
        if found is None:
            name = self._names[key]
            found = getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
            assert issubclass(found, self._kind), f"{name} is no {self._kind.__name__}"
            self._loaded[key] = found
        return found

    def __iter__(self) -> Iterator[K]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __contains__(self, key: object) -> bool:
        return key in self._names


def _with_suffix(stems: Mapping[int, str], suffix: str) -> Mapping[int, str]:
    return {number: stem + suffix for number, stem in stems.items()}


_API_NAMES = {int(api_key): api_key.api_name for api_key in ApiKey}

BY_NAME: Mapping[str, type[Message]] = _OnDemand(Message, {name: name for name in _MODULE_OF})
REQUESTS: Mapping[int, type[Request]] = _OnDemand(Request, _with_suffix(_API_NAMES, "Request"))
RESPONSES: Mapping[int, type[Response]] = _OnDemand(Response, _with_suffix(_API_NAMES, "Response"))

GROUP_KEYS: Mapping[int, type[CoordinatorKey]] = _OnDemand(
    CoordinatorKey, _with_suffix(_GROUP_RECORDS, "Key")
)
GROUP_VALUES: Mapping[int, type[CoordinatorValue]] = _OnDemand(
    CoordinatorValue, _with_suffix(_GROUP_RECORDS, "Value")
)
TXN_KEYS: Mapping[int, type[CoordinatorKey]] = _OnDemand(CoordinatorKey, _with_suffix(_TXN_RECORDS, "Key"))
TXN_VALUES: Mapping[int, type[CoordinatorValue]] = _OnDemand(
    CoordinatorValue, _with_suffix(_TXN_RECORDS, "Value")
)
SHARE_KEYS: Mapping[int, type[CoordinatorKey]] = _OnDemand(
    CoordinatorKey, _with_suffix(_SHARE_RECORDS, "Key")
)
SHARE_VALUES: Mapping[int, type[CoordinatorValue]] = _OnDemand(
    CoordinatorValue, _with_suffix(_SHARE_RECORDS, "Value")
)
METADATA_RECORDS: Mapping[int, type[MetadataRecord]] = _OnDemand(MetadataRecord, _METADATA_RECORDS)
