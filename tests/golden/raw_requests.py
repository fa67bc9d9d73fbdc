"""Requests at every version that a listener serves, which no client of today would send."""

import base64
import contextlib
import socket
from collections.abc import Iterator
from typing import Any

from golden import contents
from golden.java_programs import MessageCodec
from golden.recording_proxy import read_frame, send_frame

RESPONSE_TIMEOUT_S = 3
CLIENT_ID = "raw"

_HEADER_CLASS = "org.apache.kafka.common.message.RequestHeaderData"


def send_every_version(
    codec: MessageCodec, requests: list[contents.Schema], *, address: str, topic_id: str
) -> None:
    """Send each request at each stable version twice: as Kafka fills it in, and about the topic `raw`."""
    for schema in requests:
        for version in stable_versions(schema):
            about_a_topic = contents.chosen(schema, version, _Choice(schema["name"], version, topic_id))
            for content in (about_a_topic,) if schema["name"] in _NEVER_EMPTY else (None, about_a_topic):
                _send(address, _frame(codec, schema, version, content))


def stable_versions(schema: contents.Schema) -> Iterator[int]:
    """The versions that a broker offers without being told to offer unstable ones."""
    versions = contents.versions(schema)
    yield from versions[:-1] if schema.get("latestVersionUnstable") else versions


# As Kafka fills them in, the first has acks=0 and no answer, and the second ends the controller's process.
_NEVER_EMPTY = ("ProduceRequest", "FetchSnapshotRequest")


class _Choice:
    """What goes into a field, by its name, so that the broker has something to answer."""

    def __init__(self, request: str, version: int, topic_id: str) -> None:
        # What a request changes must be something that no later request needs.
        self._topic = "absent" if request in ("DeleteTopicsRequest", "CreateTopicsRequest") else "raw"
        self._topic_id = None if request == "DeleteTopicsRequest" else topic_id
        if request in _QUORUM_REQUESTS:
            self._topic, self._topic_id = _METADATA_TOPIC
        self._group = f"raw-{request}-{version}"

    def __call__(self, field: contents.Field) -> Any:
        name, type_name = field["name"], field["type"]
        match field.get("entityType"):
            case "topicName":
                return [self._topic] if type_name == "[]string" else self._topic
            case "groupId":
                return [self._group] if type_name == "[]string" else self._group
        if type_name == "uuid" and name == "TopicId":
            return self._topic_id
        if type_name == "[]int32" and "artition" in name:
            return [0]
        if type_name == "records":
            return base64.b64encode(contents.RECORD_BATCH).decode()
        return _BY_NAME.get(name) if type_name != "[]string" else None


_QUORUM_REQUESTS = (
    "VoteRequest",
    "BeginQuorumEpochRequest",
    "EndQuorumEpochRequest",
    "DescribeQuorumRequest",
    "FetchSnapshotRequest",
)
_METADATA_TOPIC = ("__cluster_metadata", "AAAAAAAAAAAAAAAAAAAAAQ")

_BY_NAME: dict[str, Any] = {
    "Acks": -1,
    "CurrentLeaderEpoch": -1,
    "IncludeTopicAuthorizedOperations": True,
    "MaxBytes": 1 << 20,
    "MaxWaitMs": 100,
    "NumPartitions": 1,
    "Operation": 1,
    "PartitionMaxBytes": 1 << 20,
    "PermissionType": 1,
    "ProtocolType": "consumer",
    "RebalanceTimeoutMs": 6000,
    "ReplicationFactor": 1,
    "ResourceName": "raw",
    "ResourceType": 2,
    "ResourceTypeFilter": 1,
    "SessionTimeoutMs": 6000,
    "TimeoutMs": 1000,
    "timeoutMs": 1000,
    "Timestamp": -1,
}


def _frame(
    codec: MessageCodec, schema: contents.Schema, version: int, content: contents.Content | None
) -> bytes:
    header_version = codec.ask("headers", api_key=schema["apiKey"], version=version)["request"]
    header = {
        "requestApiKey": schema["apiKey"],
        "requestApiVersion": version,
        "correlationId": 7,
        "clientId": CLIENT_ID,
    }
    name = f"org.apache.kafka.common.message.{schema['name']}Data"
    parts = (
        codec.ask("encode", **{"class": _HEADER_CLASS}, version=header_version, json=header),
        codec.ask("encode", **{"class": name}, version=version, json=content),
    )
    for part in parts:
        assert "error" not in part, (schema["name"], version, part)
    return b"".join(bytes.fromhex(part["hex"]) for part in parts)


def _send(address: str, frame: bytes) -> None:
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=RESPONSE_TIMEOUT_S) as connection:
        send_frame(connection, frame)
        # The proxy keeps the answer; a broker that hangs up or never answers gave none to keep.
        with contextlib.suppress(OSError):
            read_frame(connection)
