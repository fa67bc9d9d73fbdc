"""Which class an API key stands for, which versions clients are told of, and what loads what."""

import subprocess
import sys

import pytest

from moldau.model.errors import MalformedMessage
from moldau.wire import messages
from moldau.wire.message import Message
from moldau.wire.messages import (
    GROUP_KEYS,
    GROUP_VALUES,
    METADATA_RECORDS,
    REQUESTS,
    RESPONSES,
    SHARE_KEYS,
    SHARE_VALUES,
    TXN_KEYS,
    TXN_VALUES,
    ApiKey,
    advertised_versions,
    request_header_version,
    response_header_version,
    spoken_versions,
)
from moldau.wire.messages.group_records import GroupMetadataKey, OffsetCommitKey, OffsetCommitValue
from moldau.wire.messages.internal_logs import (
    GROUP_LOG,
    TXN_LOG,
    UnknownRecord,
    decode_metadata_record,
    encode_metadata_record,
)
from moldau.wire.messages.metadata_records import FeatureLevelRecord, NoOpRecord
from moldau.wire.types import Versions

# What brokers and controllers of Kafka 4.3 say they speak.
ADVERTISED = """
Produce 0-13, Fetch 4-18, ListOffsets 1-11, Metadata 0-13, OffsetCommit 2-10, OffsetFetch 1-10,
FindCoordinator 0-6, JoinGroup 0-9, Heartbeat 0-4, LeaveGroup 0-5, SyncGroup 0-5, DescribeGroups 0-6,
ListGroups 0-5, SaslHandshake 0-1, ApiVersions 0-4, CreateTopics 2-7, DeleteTopics 1-6, DeleteRecords 0-2,
InitProducerId 0-5, OffsetForLeaderEpoch 2-4, AddPartitionsToTxn 0-5, AddOffsetsToTxn 0-4, EndTxn 0-5,
WriteTxnMarkers 1-2, TxnOffsetCommit 0-5, DescribeAcls 1-3, CreateAcls 1-3, DeleteAcls 1-3,
DescribeConfigs 1-4, AlterConfigs 0-2, AlterReplicaLogDirs 1-2, DescribeLogDirs 1-5, SaslAuthenticate 0-2,
CreatePartitions 0-3, CreateDelegationToken 1-3, RenewDelegationToken 1-2, ExpireDelegationToken 1-2,
DescribeDelegationToken 1-3, DeleteGroups 0-2, ElectLeaders 0-2, IncrementalAlterConfigs 0-1,
AlterPartitionReassignments 0-1, ListPartitionReassignments 0, OffsetDelete 0, DescribeClientQuotas 0-1,
AlterClientQuotas 0-1, DescribeUserScramCredentials 0, AlterUserScramCredentials 0, Vote 0-2,
BeginQuorumEpoch 0-1, EndQuorumEpoch 0-1, DescribeQuorum 0-2, AlterPartition 2-3, UpdateFeatures 0-2,
Envelope 0, FetchSnapshot 0-1, DescribeCluster 0-2, DescribeProducers 0, BrokerRegistration 0-4,
BrokerHeartbeat 0-2, UnregisterBroker 0, DescribeTransactions 0, ListTransactions 0-2,
AllocateProducerIds 0, ConsumerGroupHeartbeat 0-1, ConsumerGroupDescribe 0-1, ControllerRegistration 0,
GetTelemetrySubscriptions 0, PushTelemetry 0, AssignReplicasToDirs 0, ListConfigResources 0-1,
DescribeTopicPartitions 0, ShareGroupHeartbeat 1, ShareGroupDescribe 1, ShareFetch 1-2, ShareAcknowledge 1-2,
AddRaftVoter 0-1, RemoveRaftVoter 0, UpdateRaftVoter 0, InitializeShareGroupState 0, ReadShareGroupState 0,
WriteShareGroupState 0-1, DeleteShareGroupState 0, ReadShareGroupStateSummary 0-1, StreamsGroupHeartbeat 0,
StreamsGroupDescribe 0, DescribeShareGroupOffsets 0-1, AlterShareGroupOffsets 0, DeleteShareGroupOffsets 0
"""


def test_the_advertised_versions_are_those_of_kafka() -> None:
    table = dict(entry.split() for entry in ADVERTISED.replace("\n", " ").split(","))
    ours = {api_key.api_name: str(versions) for api_key, versions in advertised_versions().items()}
    assert ours == table


def test_versions_are_spoken_unless_they_are_refused_or_unstable() -> None:
    assert spoken_versions(ApiKey.PRODUCE) == Versions(3, 13)
    assert spoken_versions(ApiKey.INIT_PRODUCER_ID) == Versions(0, 5)
    assert REQUESTS[ApiKey.INIT_PRODUCER_ID].declaration.versions == Versions(0, 6)


@pytest.mark.parametrize("api_key", list(ApiKey))
def test_a_request_and_its_response_fit_together(api_key: ApiKey) -> None:
    request, response = REQUESTS[api_key], RESPONSES[api_key]
    assert request.__name__ == f"{api_key.api_name}Request"
    assert response.__name__ == f"{api_key.api_name}Response"
    assert request.declaration.key == response.declaration.key == api_key
    assert request.declaration.versions == response.declaration.versions


@pytest.mark.parametrize(
    ("table", "size"),
    [
        (GROUP_KEYS, 22),
        (GROUP_VALUES, 22),
        (TXN_KEYS, 1),
        (TXN_VALUES, 1),
        (SHARE_KEYS, 2),
        (SHARE_VALUES, 2),
        (METADATA_RECORDS, 26),
    ],
)
def test_a_record_is_found_under_its_type(table: dict[int, type[Message]], size: int) -> None:
    assert {number: kind.declaration.key for number, kind in table.items()} == {n: n for n in table}
    assert len(table) == size


def test_what_does_not_exist_is_not_found() -> None:
    assert 4 not in REQUESTS
    with pytest.raises(KeyError):
        messages.BY_NAME["LeaderAndIsrRequest"]


@pytest.mark.parametrize(
    ("api_key", "version", "request_header", "response_header"),
    [
        (ApiKey.PRODUCE, 8, 1, 0),
        (ApiKey.PRODUCE, 9, 2, 1),
        (ApiKey.SASL_HANDSHAKE, 1, 1, 0),
        (ApiKey.API_VERSIONS, 2, 1, 0),
        (ApiKey.API_VERSIONS, 3, 2, 0),
    ],
)
def test_headers_have_tags_when_messages_have(
    api_key: ApiKey, version: int, request_header: int, response_header: int
) -> None:
    assert request_header_version(api_key, version) == request_header
    assert response_header_version(api_key, version) == response_header


def test_asking_for_one_message_loads_one_family() -> None:
    script = (
        "import sys\n"
        "from moldau.wire import messages\n"
        "before = {name for name in sys.modules if name.startswith('moldau.wire.messages.')}\n"
        "messages.REQUESTS[0]\n"
        "after = {name for name in sys.modules if name.startswith('moldau.wire.messages.')}\n"
        "assert (before, after) == (set(), {'moldau.wire.messages.produce'}), after"
    )
    # A process of its own: this one has long since loaded everything.
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


# ---------------------------------------------------------------- internal logs


def test_a_coordinators_record_starts_with_its_type_and_version() -> None:
    key = OffsetCommitKey(group="g", topic="t", partition=3)
    value = OffsetCommitValue(offset=42, metadata="", commit_timestamp=1)
    key_bytes, value_bytes = GROUP_LOG.encode_key(key), GROUP_LOG.encode_value(value, 3)
    assert key_bytes == bytes.fromhex("0001 000167 000174 00000003")
    assert value_bytes[:2] == bytes.fromhex("0003")
    assert GROUP_LOG.decode_key(key_bytes) == key
    assert GROUP_LOG.decode_value(key, value_bytes) == value


def test_records_of_a_newer_release_are_told_from_damaged_ones() -> None:
    key = GroupMetadataKey(group="g")
    with pytest.raises(UnknownRecord, match="type 99"):
        GROUP_LOG.decode_key(bytes.fromhex("0063 0000"))
    with pytest.raises(UnknownRecord, match="GroupMetadataValue of version 9"):
        GROUP_LOG.decode_value(key, bytes.fromhex("0009 00"))
    with pytest.raises(MalformedMessage):
        GROUP_LOG.decode_key(b"\0")
    with pytest.raises(MalformedMessage):
        GROUP_LOG.decode_key(bytes.fromhex("0001 0001"))
    with pytest.raises(AssertionError):
        TXN_LOG.encode_key(key)


def test_a_metadata_record_starts_with_framing_type_and_version() -> None:
    record = FeatureLevelRecord(name="metadata.version", feature_level=30)
    data = encode_metadata_record(record, 0)
    assert data[:3] == bytes([1, 12, 0])
    assert decode_metadata_record(data) == (record, 0)
    assert decode_metadata_record(encode_metadata_record(NoOpRecord(), 0)) == (NoOpRecord(), 0)


@pytest.mark.parametrize(
    ("data", "error"),
    [
        ("", MalformedMessage),
        ("01 14", MalformedMessage),
        ("00 14 00 00", MalformedMessage),
        ("01 14 00 00 00", MalformedMessage),
        ("02 14 00 00", UnknownRecord),
        ("01 14 01 00", UnknownRecord),
        ("01 63 00 00", UnknownRecord),
    ],
)
def test_a_metadata_record_is_refused_if_it_is_damaged_or_too_new(data: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        decode_metadata_record(bytes.fromhex(data))
