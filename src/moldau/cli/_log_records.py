"""Records of Kafka's internal logs, decoded; which log it is follows from the directory's name."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum, unique
from pathlib import Path
from typing import Final

from moldau.model.errors import KafkaError, MalformedMessage
from moldau.wire.as_json import Json, message_to_json
from moldau.wire.message import CoordinatorKey, CoordinatorValue, Data
from moldau.wire.messages.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from moldau.wire.messages.control_records import (
    KRaftVersionRecord,
    LeaderChangeMessage,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
)
from moldau.wire.messages.group_records import GroupMetadataValue
from moldau.wire.messages.internal_logs import (
    GROUP_LOG,
    SHARE_LOG,
    TXN_LOG,
    CoordinatorLog,
    UnknownRecord,
    decode_metadata_record,
)
from moldau.wire.records.batch import ControlType, control_type, coordinator_epoch_of
from moldau.wire.records.record import Record

_CAPITAL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_CONSUMER: Final = "consumer"


@unique
class LogKind(Enum):
    """Whose records a log has."""

    GROUPS = "groups"
    TRANSACTIONS = "transactions"
    SHARES = "shares"
    METADATA = "metadata"


_TOPICS: Final = {
    "__consumer_offsets": LogKind.GROUPS,
    "__transaction_state": LogKind.TRANSACTIONS,
    "__share_group_state": LogKind.SHARES,
    "__cluster_metadata": LogKind.METADATA,
}
_COORDINATORS: Final = {
    LogKind.GROUPS: GROUP_LOG,
    LogKind.TRANSACTIONS: TXN_LOG,
    LogKind.SHARES: SHARE_LOG,
}
_CONTROLS: Final[dict[ControlType, type[Data]]] = {
    ControlType.LEADER_CHANGE: LeaderChangeMessage,
    ControlType.SNAPSHOT_HEADER: SnapshotHeaderRecord,
    ControlType.SNAPSHOT_FOOTER: SnapshotFooterRecord,
    ControlType.KRAFT_VERSION: KRaftVersionRecord,
    ControlType.KRAFT_VOTERS: VotersRecord,
}


@dataclass(frozen=True, slots=True)
class Decoded:
    """A record of an internal log, as Kafka's tool shows it; a value of None deletes the key."""

    key: Json
    value: Json


class Undecodable(Exception):
    """A record is not of the log, or of a newer release; the text says what it is."""


def log_kind_of(path: Path) -> LogKind | None:
    """Which internal log a file is of; None for those of users."""
    if path.name == "bootstrap.checkpoint":
        return LogKind.METADATA
    return _TOPICS.get(path.absolute().parent.name.rpartition("-")[0])


def decode_record(kind: LogKind, record: Record) -> Decoded:
    """What a record of an internal log says; Undecodable if it says nothing that we know."""
    try:
        if kind is LogKind.METADATA:
            return _metadata(record)
        return _coordinator(_COORDINATORS[kind], record)
    except UnknownRecord as error:
        raise Undecodable(str(error)) from error
    except (KafkaError, MalformedMessage) as error:
        raise Undecodable(str(error)) from error


def _metadata(record: Record) -> Decoded:
    if record.value is None:
        raise MalformedMessage("it has no value")
    message, version = decode_metadata_record(record.value)
    name = _CAPITAL.sub("_", type(message).__name__).upper()
    return Decoded(None, {"type": name, "version": version, "data": message_to_json(message, version)})


def _coordinator(log: CoordinatorLog, record: Record) -> Decoded:
    if record.key is None:
        raise MalformedMessage("it has no key")
    key = log.decode_key(record.key)
    shown: Json = {"type": str(type(key).declaration.key), "data": message_to_json(key, 0)}
    if record.value is None:
        return Decoded(shown, None)
    value = log.decode_value(key, record.value)
    version = int.from_bytes(record.value[:2], "big", signed=True)
    return Decoded(shown, {"version": str(version), "data": _coordinator_value(key, value, version)})


def _coordinator_value(key: CoordinatorKey, value: CoordinatorValue, version: int) -> Json:
    shown = message_to_json(value, version)
    if isinstance(value, GroupMetadataValue) and value.protocol_type == _CONSUMER:
        members = shown["members"]
        assert isinstance(members, list)
        for member, at in zip(value.members, members, strict=True):
            assert isinstance(at, dict)
            at["subscription"] = _embedded(ConsumerProtocolSubscription, member.subscription)
            at["assignment"] = _embedded(ConsumerProtocolAssignment, member.assignment)
    return shown


def _embedded(kind: type[Data], data: bytes) -> Json:
    """What clients told each other; an empty one while a group rebalances."""
    if len(data) < 2:
        return None
    versions = kind.declaration.versions
    version = min(int.from_bytes(data[:2], "big", signed=True), versions.highest)
    return message_to_json(kind.decode(data[2:], version), versions.highest)


@dataclass(frozen=True, slots=True)
class Control:
    """What a control record says: the end of a transaction, or a message of the quorum."""

    type: ControlType | None
    version: int
    coordinator_epoch: int | None
    data: Json


def decode_control(record: Record) -> Control:
    """What a control record says; Undecodable if it is damaged."""
    try:
        return _control(record)
    except (KafkaError, MalformedMessage) as error:
        raise Undecodable(str(error)) from error


def _control(record: Record) -> Control:
    kind = control_type(record.key)
    version = int.from_bytes((record.value or b"")[:2], "big", signed=True)
    if kind in (ControlType.ABORT, ControlType.COMMIT):
        return Control(kind, version, coordinator_epoch_of(record.value), None)
    message = None if kind is None else _CONTROLS.get(kind)
    if message is None or record.value is None or not message.declaration.versions.includes(version):
        return Control(kind, version, None, None)
    return Control(kind, version, None, message_to_json(message.decode(record.value, version), version))
