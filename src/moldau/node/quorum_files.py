"""The quorum's files next to its log: `quorum-state`, and snapshots `<end offset>-<epoch>.checkpoint`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from moldau.log.checkpoints import read_bytes, replace_text
from moldau.model.errors import MalformedMessage
from moldau.model.ids import ZERO_UUID, DirectoryId, Epoch, NodeId, Offset, uuid_from_text, uuid_to_text
from moldau.raft import control
from moldau.raft.events import ElectionState
from moldau.raft.log_view import OffsetAndEpoch
from moldau.raft.voters import ReplicaKey, VoterSet
from moldau.wire.messages import control_records as wire
from moldau.wire.records.batch import ControlType, control_key, control_type, decode_batch, encode_batch
from moldau.wire.records.header import iter_headers
from moldau.wire.records.record import Record
from moldau.world.ports import Disk, Flush

STATE_NAME: Final = "quorum-state"
STATE_VERSION: Final = 1
PART_SUFFIX: Final = ".part"
EMPTY_STATE: Final = OffsetAndEpoch(Offset(0), Epoch(0))

_CHECKPOINT = re.compile(r"(\d{20})-(\d{10})\.checkpoint")


# ---------------------------------------------------------------- quorum-state


def read_election(disk: Disk, path: str) -> ElectionState:
    """The election state on disk; that of a new node if there is none."""
    data = read_bytes(disk, f"{path}/{STATE_NAME}")
    if data is None:
        return ElectionState()
    try:
        state = json.loads(data)
        voted = ReplicaKey(
            NodeId(state["votedId"]), DirectoryId(uuid_from_text(state.get("votedDirectoryId", "A" * 22)))
        )
        return ElectionState(
            Epoch(state["leaderEpoch"]),
            NodeId(state["leaderId"]) if state["leaderId"] >= 0 else None,
            voted if voted.node_id >= 0 else None,
        )
    except (ValueError, KeyError, TypeError) as error:
        # Guessing would be voting twice, so a node with a damaged file does not start.
        raise MalformedMessage(f"{path}/{STATE_NAME}: {error}") from error


def write_election(disk: Disk, path: str, state: ElectionState) -> Flush:
    """Replace the election state; durable once the returned work is flushed."""
    text = json.dumps(
        {
            "leaderId": -1 if state.leader_id is None else state.leader_id,
            "leaderEpoch": state.epoch,
            "votedId": state.voted.node_id if state.voted else -1,
            "votedDirectoryId": uuid_to_text(state.voted.directory_id if state.voted else ZERO_UUID),
            "data_version": STATE_VERSION,
        },
        separators=(",", ":"),
    )
    return replace_text(disk, f"{path}/{STATE_NAME}", text)


# ---------------------------------------------------------------- snapshots


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What a snapshot holds: the voters, and the records that make up the state."""

    voters: VoterSet
    records: tuple[Record, ...]


def checkpoint_name(snapshot_id: OffsetAndEpoch) -> str:
    """The name of a snapshot's file, as Kafka spells it."""
    return f"{snapshot_id.offset:020}-{snapshot_id.epoch:010}.checkpoint"


def list_snapshots(disk: Disk, path: str) -> list[OffsetAndEpoch]:
    """The snapshots in a directory, oldest first."""
    found = (_CHECKPOINT.fullmatch(name) for name in disk.list(path))
    return sorted(OffsetAndEpoch(Offset(int(match[1])), Epoch(int(match[2]))) for match in found if match)


def read_snapshot(data: bytes) -> Snapshot:
    """A snapshot from its bytes; MalformedMessage or KafkaError if it is not whole."""
    voters, records, has_footer = VoterSet(), [], False
    for position, header in iter_headers(data):
        _, batch = decode_batch(memoryview(data)[position : position + header.size_bytes])
        if not header.is_control:
            records += batch
            continue
        for record in batch:
            kind = control_type(record.key)
            has_footer = kind is ControlType.SNAPSHOT_FOOTER
            if kind is ControlType.KRAFT_VOTERS and record.value is not None:
                voters = control.read_voters_record(record.value)
    if not has_footer:
        raise MalformedMessage("the snapshot has no end")
    return Snapshot(voters, tuple(records))


def encode_snapshot(
    voters: VoterSet, records: Iterable[Record], *, epoch: Epoch, timestamp: int
) -> list[bytes]:
    """The batches of a snapshot; offsets in it count from 0."""
    first = [
        (
            ControlType.SNAPSHOT_HEADER,
            wire.SnapshotHeaderRecord(version=0, last_contained_log_timestamp=timestamp),
        ),
    ]
    controls = [(kind, record.encode(0)) for kind, record in first]
    controls += [
        (ControlType.KRAFT_VERSION, control.kraft_version()),
        (ControlType.KRAFT_VOTERS, control.voters_record(voters)),
    ]
    offset = 0
    batches: list[bytes] = []
    head = [Record(n, timestamp, control_key(kind), value) for n, (kind, value) in enumerate(controls)]
    batches.append(encode_batch(head, leader_epoch=epoch, is_control=True))
    offset += len(head)
    body = [record._replace(offset=offset + number) for number, record in enumerate(records)]
    if body:
        batches.append(encode_batch(body, base_offset=offset, leader_epoch=epoch))
        offset += len(body)
    footer = wire.SnapshotFooterRecord(version=0).encode(0)
    end = Record(offset, timestamp, control_key(ControlType.SNAPSHOT_FOOTER), footer)
    batches.append(encode_batch([end], base_offset=offset, leader_epoch=epoch, is_control=True))
    return batches


def write_snapshot(disk: Disk, path: str, snapshot_id: OffsetAndEpoch, batches: Sequence[bytes]) -> Flush:
    """Write a snapshot under a temporary name, which the returned work makes durable and renames."""
    name = f"{path}/{checkpoint_name(snapshot_id)}"
    disk.remove(name + PART_SUFFIX)
    file = disk.open(name + PART_SUFFIX, create=True)
    file.append(batches)
    file.close()
    return Flush(files=(file,), renames=((name + PART_SUFFIX, name),), directories=(path,))


def format_quorum(
    disk: Disk, path: str, voters: VoterSet, *, start: OffsetAndEpoch = EMPTY_STATE, timestamp: int
) -> None:
    """Make the first snapshot of a new quorum, which names its voters; nothing if there is one."""
    make_quorum_directory(disk, path)
    if list_snapshots(disk, path):
        return
    batches = encode_snapshot(voters, (), epoch=start.epoch, timestamp=timestamp)
    disk.flush_blocking(write_snapshot(disk, path, start, batches))


def make_quorum_directory(disk: Disk, path: str) -> None:
    """Make the directory, durably: whatever is flushed inside is worth no more than its own entry."""
    disk.make_directory(path)
    disk.flush_blocking(Flush(directories=(path.rpartition("/")[0],)))
