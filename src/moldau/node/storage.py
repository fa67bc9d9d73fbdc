"""A data directory before a node runs in it: it is formatted once, and belongs to one node from then on."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from moldau.log.checkpoints import (
    META_PROPERTIES,
    TEMPORARY_SUFFIX,
    DirectoryIdentity,
    read_bytes,
    read_identity,
    write_identity,
)
from moldau.metadata.bootstrap import bootstrap_records
from moldau.metadata.features import KRAFT_VERSION
from moldau.metadata.frames import decode_frame, encode_frame
from moldau.model.errors import KafkaError, MalformedMessage
from moldau.model.ids import ClusterId, DirectoryId, NodeId, is_reserved, uuid_from_text
from moldau.node.config import NodeConfig
from moldau.node.quorum_files import (
    EMPTY_STATE,
    PART_SUFFIX,
    checkpoint_name,
    format_quorum,
    read_snapshot,
)
from moldau.node.quorum_log import PATH
from moldau.raft.voters import Endpoint, ReplicaKey, Voter, VoterSet
from moldau.wire.message import MetadataRecord
from moldau.wire.messages.control_records import SnapshotFooterRecord, SnapshotHeaderRecord
from moldau.wire.messages.internal_logs import UnknownRecord
from moldau.wire.records.batch import ControlType, control_key, encode_batch
from moldau.wire.records.record import Record
from moldau.world.ports import Disk, Flush

BOOTSTRAP: Final = "bootstrap.checkpoint"

_CLUSTER_ID: Final = re.compile(r"[\x21-\x7e]+")
_INITIAL_CONTROLLER: Final = re.compile(r"([0-9]+)@\[?([0-9a-zA-Z\-%._:]+?)\]?:([0-9]+):([0-9a-zA-Z_-]{22})")


class UnusableDirectory(Exception):
    """A data directory, or a wish for one, that makes no sense; the text says why, and what to do."""


# ---------------------------------------------------------------- formatting


def format_directory(
    disk: Disk,
    config: NodeConfig,
    *,
    cluster_id: ClusterId,
    directory_id: DirectoryId,
    voters: VoterSet,
    levels: Mapping[str, int],
    timestamp: int,
    is_ignoring_formatted: bool = False,
) -> bool:
    """Make the directory the node's in this cluster; False if it was, and that is no reason to complain.

    The quorum begins with these voters. Without any the node waits for a quorum that others began. What
    says that the directory is formatted is written last, so that half the work can be done again. Whoever
    may not be alone with the directory locks it first.
    """
    if not _CLUSTER_ID.fullmatch(cluster_id):
        raise UnusableDirectory(
            f"The cluster id {cluster_id!r} must have some characters and no blanks:"
            " 'moldau storage random-uuid' makes one."
        )
    found = _identity(disk, config)
    if found is not None:
        _check_formatted(found, config, cluster_id, is_ignoring_formatted=is_ignoring_formatted)
        return False
    records = _bootstrap(config, levels)
    _remove_half_formatted_quorum(disk, config)
    disk.flush_blocking(_write_bootstrap(disk, records, timestamp))
    if voters.voters:
        format_quorum(disk, PATH, voters, timestamp=timestamp)
    disk.flush_blocking(write_identity(disk, DirectoryIdentity(cluster_id, config.node_id, directory_id)))
    return True


def standalone_voters(config: NodeConfig, directory_id: DirectoryId) -> VoterSet:
    """The quorum of this node alone."""
    listener = config.controller_listener
    if listener is None:
        raise UnusableDirectory(
            f"Node {config.node_id} is no controller, so it cannot be a quorum by itself."
        )
    at = Endpoint(listener.name, listener.advertised.host, listener.advertised.port)
    return VoterSet.of(Voter(ReplicaKey(config.node_id, directory_id), (at,)))


def parse_initial_controllers(text: str, config: NodeConfig) -> VoterSet:
    """The quorum in `id@host:port:directory-id,...`, with this node in it if it is a controller."""
    voters: dict[NodeId, Voter] = {}
    name = config.controller_listener_name
    for entry in text.split(","):
        match = _INITIAL_CONTROLLER.fullmatch(entry.strip())
        if match is None:
            raise UnusableDirectory(
                f"The initial controller {entry.strip()!r} must be ID@HOST:PORT:DIRECTORY-ID, where"
                " 'moldau storage random-uuid' makes a directory's id."
            )
        node_id, directory_id = NodeId(int(match[1])), DirectoryId(uuid_from_text(match[4]))
        if node_id in voters:
            raise UnusableDirectory(f"The initial controllers name node {node_id} twice.")
        if is_reserved(directory_id) or any(
            voter.key.directory_id == directory_id for voter in voters.values()
        ):
            raise UnusableDirectory(f"The directory id {match[4]} of node {node_id} is not one of its own.")
        endpoint = Endpoint(name, match[2], int(match[3]))
        voters[node_id] = Voter(ReplicaKey(node_id, directory_id), (endpoint,))
    if config.is_controller and config.node_id not in voters:
        raise UnusableDirectory(f"The initial controllers do not name node {config.node_id}, which is one.")
    return VoterSet.of(*voters.values())


# ---------------------------------------------------------------- starting


def lock_directory(disk: Disk, config: NodeConfig) -> None:
    """Claim the directory for this process until it ends."""
    try:
        disk.lock()
    except BlockingIOError as error:
        raise UnusableDirectory(
            f"The directory {config.log_directory} is in use by another process."
        ) from error


def open_directory(
    disk: Disk, config: NodeConfig, *, cluster_id: ClusterId | None = None
) -> DirectoryIdentity:
    """Claim the directory for this process, and say whose it is; it must be formatted for this node.

    Whoever gives the id of a cluster wants no other.
    """
    lock_directory(disk, config)
    identity = _identity(disk, config)
    if identity is None:
        raise UnusableDirectory(
            f"The directory {config.log_directory} is not formatted. Run: moldau storage format --config FILE"
            " --cluster-id ID, where 'moldau storage random-uuid' makes the id of a new cluster."
        )
    if cluster_id is not None:
        _check_cluster(identity, config, cluster_id)
    _check_node(identity, config)
    if identity.directory_id is None:
        raise UnusableDirectory(
            f"The {META_PROPERTIES} of {config.log_directory} has no directory.id: it was written before"
            " Kafka 3.7. Start it once with a Kafka that is newer."
        )
    return identity


def read_bootstrap(disk: Disk) -> list[MetadataRecord]:
    """The records with which the cluster begins; MalformedMessage if they are not there whole."""
    data = read_bytes(disk, BOOTSTRAP)
    if data is None:
        raise MalformedMessage(f"{BOOTSTRAP} is missing")
    try:
        values = [record.value for record in read_snapshot(data).records]
        return [decode_frame(value) for value in values if value is not None]
    except (MalformedMessage, UnknownRecord, KafkaError) as error:
        raise MalformedMessage(f"{BOOTSTRAP}: {error}") from error


# ---------------------------------------------------------------- within


def _identity(disk: Disk, config: NodeConfig) -> DirectoryIdentity | None:
    try:
        return read_identity(disk)
    except MalformedMessage as error:
        raise UnusableDirectory(
            f"The directory {config.log_directory} cannot be believed: {error}."
        ) from error


def _check_cluster(identity: DirectoryIdentity, config: NodeConfig, cluster_id: ClusterId) -> None:
    if identity.cluster_id != cluster_id:
        raise UnusableDirectory(
            f"The directory {config.log_directory} belongs to the cluster {identity.cluster_id}, not to"
            f" {cluster_id}."
        )


def _check_node(identity: DirectoryIdentity, config: NodeConfig) -> None:
    if identity.node_id != config.node_id:
        raise UnusableDirectory(
            f"The directory {config.log_directory} belongs to node {identity.node_id}, and node.id is"
            f" {config.node_id}."
        )


def _check_formatted(
    identity: DirectoryIdentity, config: NodeConfig, cluster_id: ClusterId, *, is_ignoring_formatted: bool
) -> None:
    _check_cluster(identity, config, cluster_id)
    _check_node(identity, config)
    if not is_ignoring_formatted:
        raise UnusableDirectory(
            f"The directory {config.log_directory} is already formatted; --ignore-formatted leaves it so."
        )


def _bootstrap(config: NodeConfig, levels: Mapping[str, int]) -> list[MetadataRecord]:
    if levels.get(KRAFT_VERSION, 1) != 1:
        raise UnusableDirectory(f"{KRAFT_VERSION} must be 1: voters are always kept in the quorum's log.")
    try:
        return bootstrap_records(static=config.static, levels=levels)
    except KafkaError as error:
        raise UnusableDirectory(error.message) from error


def _write_bootstrap(disk: Disk, records: Sequence[MetadataRecord], timestamp: int) -> Flush:
    temporary = BOOTSTRAP + TEMPORARY_SUFFIX
    disk.remove(temporary)
    file = disk.open(temporary, create=True)
    file.append(_bootstrap_batches(records, timestamp))
    file.close()
    return Flush(files=(file,), renames=((temporary, BOOTSTRAP),), directories=("",))


def _bootstrap_batches(records: Sequence[MetadataRecord], timestamp: int) -> list[bytes]:
    """A snapshot without voters, of whom Kafka wants to hear nothing in this file."""
    head = SnapshotHeaderRecord(version=0, last_contained_log_timestamp=timestamp).encode(0)
    foot = SnapshotFooterRecord(version=0).encode(0)
    end = 1 + len(records)
    first = Record(0, timestamp, control_key(ControlType.SNAPSHOT_HEADER), head)
    body = [Record(at, timestamp, None, encode_frame(record)) for at, record in enumerate(records, start=1)]
    last = Record(end, timestamp, control_key(ControlType.SNAPSHOT_FOOTER), foot)
    return [
        encode_batch([first], is_control=True),
        encode_batch(body, base_offset=1),
        encode_batch([last], base_offset=end, is_control=True),
    ]


def _remove_half_formatted_quorum(disk: Disk, config: NodeConfig) -> None:
    """Take away a first snapshot that names a directory id which is lost; never a log that was lived with."""
    if not disk.exists(PATH):
        return
    first = checkpoint_name(EMPTY_STATE)
    if any(name not in (first, first + PART_SUFFIX) for name in disk.list(PATH)):
        raise UnusableDirectory(
            f"The directory {config.log_directory} has a metadata log and no {META_PROPERTIES}: bring that"
            " file back, or give the node another directory."
        )
    disk.remove(PATH)
    disk.flush_blocking(Flush(directories=("",)))
