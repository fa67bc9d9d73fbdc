"""The records of classic groups and of offsets, and the versions in which Kafka 4.3 writes all of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from moldau.coordinator.shard import CoordinatorRecord
from moldau.wire.message import CoordinatorValue
from moldau.wire.messages.group_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from moldau.wire.messages.internal_logs import GROUP_LOG

NO_TIMESTAMP: Final = -1

# What is not here is written in its newest version. Of classic groups that would be a flexible one, which
# brokers before Kafka 3.5 cannot read and which says nothing more.
_VERSIONS: Final[Mapping[type[CoordinatorValue], int]] = {GroupMetadataValue: 3}
# The only version with a time of expiry, which clients before Kafka 2.1 choose themselves.
_WITH_EXPIRY: Final = 1


def version_of(value: CoordinatorValue) -> int:
    """The version in which a value is written."""
    if isinstance(value, OffsetCommitValue) and value.expire_timestamp != NO_TIMESTAMP:
        return _WITH_EXPIRY
    kind = type(value)
    return _VERSIONS.get(kind, kind.declaration.versions.highest)


def size_of(record: CoordinatorRecord) -> int:
    """How many bytes the record takes, but for a few around it."""
    key, value = record
    size = len(GROUP_LOG.encode_key(key))
    return size if value is None else size + len(GROUP_LOG.encode_value(value, version_of(value)))


def offset_tombstone(group_id: str, *, topic: str, partition: int) -> CoordinatorRecord:
    """No offset is committed there any more."""
    return CoordinatorRecord(OffsetCommitKey(group=group_id, topic=topic, partition=partition), None)


def classic_group(group_id: str, value: GroupMetadataValue | None) -> CoordinatorRecord:
    """A generation of a classic group, or that there is no such group any more."""
    return CoordinatorRecord(GroupMetadataKey(group=group_id), value)
