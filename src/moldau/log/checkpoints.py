"""The small text files of a data directory: what a restart believes without reading logs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from moldau.model.errors import MalformedMessage
from moldau.model.ids import (
    ClusterId,
    DirectoryId,
    NodeId,
    PartitionIndex,
    TopicId,
    TopicName,
    TopicPartition,
    uuid_from_text,
    uuid_to_text,
)
from moldau.world.ports import Disk, Flush

RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
HIGH_WATERMARKS: Final = "replication-offset-checkpoint"
LOG_STARTS: Final = "log-start-offset-checkpoint"
CLEANED_ENDS: Final = "cleaner-offset-checkpoint"
CLEAN_SHUTDOWN: Final = ".kafka_cleanshutdown"
META_PROPERTIES: Final = "meta.properties"
PARTITION_METADATA: Final = "partition.metadata"
TEMPORARY_SUFFIX: Final = ".tmp"

_VERSION: Final = 0
_META_VERSION: Final = "1"


@dataclass(frozen=True, slots=True)
class DirectoryIdentity:
    """Whose data a directory holds, as its meta.properties says."""

    cluster_id: ClusterId
    node_id: NodeId
    directory_id: DirectoryId | None


def read_offsets(disk: Disk, name: str) -> dict[TopicPartition, int]:
    """The offsets in one of the four checkpoints; none if there is no such file."""
    text = read_text(disk, name)
    if text is None:
        return {}
    try:
        version, count, *lines = text.splitlines()
        offsets = {}
        for line in lines:
            topic, partition, offset = line.split()
            offsets[TopicPartition(TopicName(topic), PartitionIndex(int(partition)))] = int(offset)
        is_sound = int(version) == _VERSION and int(count) == len(lines)
    except ValueError as error:
        raise MalformedMessage(f"{name}: {error}") from None
    if not is_sound:
        raise MalformedMessage(f"{name}: version {version}, {count} entries announced, {len(lines)} found")
    return offsets


def write_offsets(disk: Disk, name: str, offsets: Mapping[TopicPartition, int], *, number: int = 0) -> Flush:
    """Write one of the four checkpoints; it holds once the returned work is flushed.

    `number` is that of `replace_text`.
    """
    lines = [str(_VERSION), str(len(offsets))]
    lines += (f"{at.topic} {at.partition} {offset}" for at, offset in sorted(offsets.items()))
    return replace_text(disk, name, "\n".join(lines) + "\n", number=number)


def read_clean_shutdown(disk: Disk) -> int | None:
    """The broker epoch (-1: unknown) at which this directory was closed properly; None if it was not."""
    text = read_text(disk, CLEAN_SHUTDOWN)
    if text is None:
        return None
    try:
        return msgspec.json.decode(text, type=_CleanShutdown).brokerEpoch
    except msgspec.DecodeError:
        # Older brokers left an empty file.
        return -1


def write_clean_shutdown(disk: Disk, broker_epoch: int) -> Flush:
    """Say that every log of the directory was closed and flushed."""
    text = msgspec.json.encode(_CleanShutdown(version=_VERSION, brokerEpoch=broker_epoch)).decode()
    return replace_text(disk, CLEAN_SHUTDOWN, text)


def remove_clean_shutdown(disk: Disk) -> Flush:
    """Take that back; to be flushed before the first append."""
    disk.remove(CLEAN_SHUTDOWN)
    return Flush(directories=("",))


def read_identity(disk: Disk) -> DirectoryIdentity | None:
    """Whose directory this is; None for a new one, MalformedMessage if the file cannot be believed."""
    text = read_text(disk, META_PROPERTIES)
    if text is None:
        return None
    lines = (line.strip() for line in text.splitlines())
    properties = dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))
    try:
        if properties["version"] != _META_VERSION:
            raise MalformedMessage(f"{META_PROPERTIES}: version {properties['version']} is not known")
        directory_id = properties.get("directory.id")
        return DirectoryIdentity(
            ClusterId(properties["cluster.id"]),
            NodeId(int(properties["node.id"])),
            None if directory_id is None else DirectoryId(uuid_from_text(directory_id)),
        )
    except KeyError as missing:
        raise MalformedMessage(f"{META_PROPERTIES}: {missing} is missing") from None
    except ValueError as error:
        raise MalformedMessage(f"{META_PROPERTIES}: {error}") from None


def write_identity(disk: Disk, identity: DirectoryIdentity) -> Flush:
    """Claim a directory for a node of a cluster."""
    lines = [
        f"version={_META_VERSION}",
        f"cluster.id={identity.cluster_id}",
        f"node.id={identity.node_id}",
        *([] if identity.directory_id is None else [f"directory.id={uuid_to_text(identity.directory_id)}"]),
    ]
    return replace_text(disk, META_PROPERTIES, "\n".join(lines) + "\n")


def read_topic_id(disk: Disk, path: str) -> TopicId | None:
    """The topic to which a partition's directory belongs; None if it does not say."""
    text = read_text(disk, f"{path}/{PARTITION_METADATA}")
    if text is None:
        return None
    try:
        fields = dict(line.split(": ", 1) for line in text.splitlines())
        if int(fields["version"]) != _VERSION:
            raise MalformedMessage(f"{PARTITION_METADATA}: version {fields['version']} is not known")
        return TopicId(uuid_from_text(fields["topic_id"]))
    except (KeyError, ValueError) as error:
        raise MalformedMessage(f"{path}/{PARTITION_METADATA}: {error}") from None


def write_topic_id(disk: Disk, path: str, topic_id: TopicId) -> Flush:
    """Say to which topic a partition's directory belongs."""
    text = f"version: {_VERSION}\ntopic_id: {uuid_to_text(topic_id)}"
    return replace_text(disk, f"{path}/{PARTITION_METADATA}", text)


def read_text(disk: Disk, path: str) -> str | None:
    """A file's text; None if there is no such file."""
    data = read_bytes(disk, path)
    try:
        return None if data is None else data.decode()
    except UnicodeDecodeError as error:
        raise MalformedMessage(f"{path}: {error}") from None


def read_bytes(disk: Disk, path: str) -> bytes | None:
    """A file's bytes; None if there is no such file."""
    try:
        file = disk.open(path)
    except FileNotFoundError:
        return None
    data = file.read(0, file.size())
    file.close()
    return data


def replace_text(disk: Disk, path: str, text: str, *, number: int = 0) -> Flush:
    """Write a temporary file that takes the name `path` when the returned work is flushed.

    Whoever may write again before that flush has ended gives each temporary file a `number` of its own.
    """
    temporary = f"{path}.{number}{TEMPORARY_SUFFIX}"
    disk.remove(temporary)
    file = disk.open(temporary, create=True)
    file.append((text.encode(),))
    file.close()
    return Flush(files=(file,), renames=((temporary, path),))


class _CleanShutdown(msgspec.Struct):
    version: int = _VERSION
    brokerEpoch: int = -1  # noqa: N815  the field's name in Kafka's file
