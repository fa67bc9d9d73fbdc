"""Small files next to the logs: the state of the quorum, and snapshots of producers."""

from __future__ import annotations

from moldau.model.ids import ZERO_UUID
from moldau.wire.message import Data
from moldau.wire.types import Int16, Int32, Int64, String, Struct, UInt32, Uuid, field


class QuorumStateData(Data, versions="0-1", flexible="0+"):
    """The `quorum-state` file: epoch, vote and leader."""

    cluster_id: String = field("0", default="")
    leader_id: Int32 = field(default=-1)
    leader_epoch: Int32 = field(default=-1)
    voted_id: Int32 = field(default=-1)
    voted_directory_id: Uuid = field("1+", default=ZERO_UUID)
    applied_offset: Int64 = field("0", default=0)
    current_voters: list[Voter] | None = field("0", nullable="0", default=[])


class Voter(Struct):
    """A voter of the quorum."""

    voter_id: Int32


class ProducerSnapshot(Data, versions="1"):
    """A `.snapshot` file: the producers that a partition knows."""

    crc: UInt32
    producer_entries: list[ProducerEntry]


class ProducerEntry(Struct):
    """The last batch of one producer."""

    producer_id: Int64
    epoch: Int16
    last_sequence: Int32
    last_offset: Int64
    offset_delta: Int32
    timestamp: Int64
    coordinator_epoch: Int32
    current_txn_first_offset: Int64
