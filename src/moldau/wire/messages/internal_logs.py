"""How records of the internal logs are framed: what stands before the message says which one it is.

The key of a coordinator's record starts with its type and the value with its version, both as int16. A record
of `__cluster_metadata` has no key; its value starts with three varints: the version of this framing, the type
and the version.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass

from moldau.model.errors import MalformedMessage
from moldau.wire.compiler import decode_uvarint, decoder, encode_uvarint
from moldau.wire.message import CoordinatorKey, CoordinatorValue, MetadataRecord
from moldau.wire.messages import (
    GROUP_KEYS,
    GROUP_VALUES,
    METADATA_RECORDS,
    SHARE_KEYS,
    SHARE_VALUES,
    TXN_KEYS,
    TXN_VALUES,
)

_INT16 = struct.Struct(">h")
# All keys have this version only: the type of the record took the place of a version.
_KEY_VERSION = 0
_METADATA_FRAME_VERSION = 1


class UnknownRecord(Exception):
    """A well-formed record of a type or version that this release does not know, so a newer one wrote it."""


@dataclass(frozen=True, slots=True)
class CoordinatorLog:
    """The records that one of the coordinators keeps."""

    name: str
    keys: Mapping[int, type[CoordinatorKey]]
    values: Mapping[int, type[CoordinatorValue]]

    def encode_key(self, key: CoordinatorKey) -> bytes:
        """The key of a record."""
        assert self.keys.get(_type_of(key)) is type(key), f"{self.name} has no {type(key).__name__}"
        return _INT16.pack(_type_of(key)) + key.encode(_KEY_VERSION)

    def encode_value(self, value: CoordinatorValue, version: int) -> bytes:
        """The value of a record."""
        assert self.values.get(_type_of(value)) is type(value), f"{self.name} has no {type(value).__name__}"
        return _INT16.pack(version) + value.encode(version)

    def decode_key(self, data: bytes) -> CoordinatorKey:
        """The key of a record; its class says what the record is about."""
        record_type = _leading_int16(data)
        if record_type not in self.keys:
            raise UnknownRecord(f"{self.name} has a record of type {record_type}")
        return decoder(self.keys[record_type], _KEY_VERSION)(data, _INT16.size, len(data))[0]

    def decode_value(self, key: CoordinatorKey, data: bytes) -> CoordinatorValue:
        """The value of the record with this key."""
        kind = self.values[_type_of(key)]
        version = _leading_int16(data)
        if not kind.declaration.versions.includes(version):
            raise UnknownRecord(f"{self.name} has a {kind.__name__} of version {version}")
        return decoder(kind, version)(data, _INT16.size, len(data))[0]


GROUP_LOG = CoordinatorLog("__consumer_offsets", GROUP_KEYS, GROUP_VALUES)
TXN_LOG = CoordinatorLog("__transaction_state", TXN_KEYS, TXN_VALUES)
SHARE_LOG = CoordinatorLog("__share_group_state", SHARE_KEYS, SHARE_VALUES)


def encode_metadata_record(record: MetadataRecord, version: int) -> bytes:
    """The value of a record in `__cluster_metadata`."""
    lead = (_METADATA_FRAME_VERSION, _type_of(record), version)
    return b"".join(map(encode_uvarint, lead)) + record.encode(version)


def decode_metadata_record(data: bytes) -> tuple[MetadataRecord, int]:
    """The record in a value of `__cluster_metadata`, and its version."""
    try:
        frame_version, position = decode_uvarint(data, 0)
        record_type, position = decode_uvarint(data, position)
        version, position = decode_uvarint(data, position)
    except IndexError as error:
        raise MalformedMessage("a metadata record that ends before its message") from error
    if frame_version == 0:
        raise MalformedMessage("a metadata record with framing 0, which never existed")
    if frame_version > _METADATA_FRAME_VERSION:
        raise UnknownRecord(f"__cluster_metadata has a record with framing {frame_version}")
    kind = METADATA_RECORDS.get(record_type)
    if kind is None or not kind.declaration.versions.includes(version):
        raise UnknownRecord(f"__cluster_metadata has a record of type {record_type} and version {version}")
    record, position = decoder(kind, version)(data, position, len(data))
    if position != len(data):
        raise MalformedMessage(f"{len(data) - position} bytes follow a {kind.__name__}")
    return record, version


def _type_of(message: CoordinatorKey | CoordinatorValue | MetadataRecord) -> int:
    record_type = type(message).declaration.key
    assert record_type is not None, f"{type(message).__name__} has no type"
    return record_type


def _leading_int16(data: bytes) -> int:
    if len(data) < _INT16.size:
        raise MalformedMessage(f"{len(data)} bytes are too few for a type or version")
    number: int = _INT16.unpack_from(data)[0]
    return number
