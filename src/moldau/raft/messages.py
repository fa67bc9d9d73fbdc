"""What replicas of the quorum say to each other, without the wire's topics and partitions around it."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from moldau.model.errors import ErrorCode
from moldau.model.ids import ClusterId, Epoch, NodeId, Offset
from moldau.raft.log_view import OffsetAndEpoch
from moldau.raft.voters import Endpoint, Peer, ReplicaKey, Voter

UNKNOWN_OFFSET: Final = Offset(-1)
HIGH_WATERMARK_UNSUPPORTED: Final = Offset(2**63 - 1)
"""What a follower says that cannot tell its high watermark (before KIP-1166): it is never answered early."""


class Leadership(Struct, frozen=True):
    """An epoch and, where known, its leader."""

    epoch: Epoch
    leader: Peer | None = None


UNKNOWN_LEADERSHIP: Final = Leadership(Epoch(-1))


# ---------------------------------------------------------------- requests


class Vote(Struct, frozen=True):
    """A candidate asks `voter` for its vote, or in a pre-vote whether it would give one (KIP-996)."""

    cluster_id: ClusterId | None
    voter: ReplicaKey
    candidate: ReplicaKey
    epoch: Epoch
    log_end: OffsetAndEpoch
    is_pre_vote: bool


class BeginEpoch(Struct, frozen=True):
    """A new leader makes itself known to `voter`."""

    cluster_id: ClusterId | None
    voter: ReplicaKey
    epoch: Epoch
    leader: Peer


class EndEpoch(Struct, frozen=True):
    """A leader resigns, and names its successors, the most caught-up first."""

    cluster_id: ClusterId | None
    epoch: Epoch
    leader_id: NodeId
    successors: tuple[ReplicaKey, ...]


class Fetch(Struct, frozen=True):
    """A replica asks for what follows its flushed end."""

    cluster_id: ClusterId | None
    replica: ReplicaKey
    epoch: Epoch
    offset: Offset
    last_epoch: Epoch
    wait_ms_max: int
    bytes_max: int
    high_watermark: Offset


class FetchSnapshot(Struct, frozen=True):
    """A replica that is behind the log asks for a piece of a snapshot."""

    cluster_id: ClusterId | None
    replica: ReplicaKey
    epoch: Epoch
    snapshot_id: OffsetAndEpoch
    position: int
    bytes_max: int


class AddVoter(Struct, frozen=True):
    """An operator makes an observer a voter."""

    cluster_id: ClusterId | None
    voter: Voter
    is_acknowledged_when_committed: bool = True


class RemoveVoter(Struct, frozen=True):
    """An operator takes a voter's vote away."""

    cluster_id: ClusterId | None
    key: ReplicaKey


class UpdateVoter(Struct, frozen=True):
    """A voter tells the leader its new endpoints."""

    cluster_id: ClusterId | None
    epoch: Epoch
    voter: Voter


class Describe(Struct, frozen=True):
    """Somebody asks for the state of the quorum."""


VoterChange = AddVoter | RemoveVoter | UpdateVoter
Request = Vote | BeginEpoch | EndEpoch | Fetch | FetchSnapshot | VoterChange | Describe


# ---------------------------------------------------------------- replies


class VoteReply(Struct, frozen=True):
    """Whether the vote is given."""

    error: ErrorCode
    leadership: Leadership
    is_granted: bool = False


class EpochReply(Struct, frozen=True):
    """Whether the beginning or end of an epoch is accepted."""

    error: ErrorCode
    leadership: Leadership


class LogRange(Struct, frozen=True):
    """Whole batches that whoever sends the reply reads from the log."""

    start: Offset
    bytes_max: int


class SnapshotRange(Struct, frozen=True):
    """A stretch of a snapshot that whoever sends the reply reads from its file."""

    snapshot_id: OffsetAndEpoch
    position: int
    bytes_max: int


class FetchReply(Struct, frozen=True):
    """Records; or where the logs part; or the snapshot to load first."""

    error: ErrorCode
    leadership: Leadership
    high_watermark: Offset = UNKNOWN_OFFSET
    log_start: Offset = UNKNOWN_OFFSET
    diverging: OffsetAndEpoch | None = None
    snapshot_id: OffsetAndEpoch | None = None
    records: bytes | LogRange = b""


class FetchSnapshotReply(Struct, frozen=True):
    """A piece of a snapshot, and how long the whole is."""

    error: ErrorCode
    leadership: Leadership
    snapshot_id: OffsetAndEpoch
    size: int = 0
    position: int = 0
    data: bytes | SnapshotRange = b""


class VoterChangeReply(Struct, frozen=True):
    """Whether the voters were changed."""

    error: ErrorCode
    leadership: Leadership
    message: str | None = None


class ReplicaProgress(Struct, frozen=True):
    """How far a replica has come, as its leader sees it; times are ages, since clocks differ."""

    key: ReplicaKey
    end_offset: Offset
    since_fetch_ms: int | None
    since_caught_up_ms: int | None


class DescribeReply(Struct, frozen=True):
    """The state of the quorum, as its leader sees it."""

    error: ErrorCode
    leadership: Leadership
    high_watermark: Offset = UNKNOWN_OFFSET
    voters: tuple[ReplicaProgress, ...] = ()
    observers: tuple[ReplicaProgress, ...] = ()
    nodes: tuple[tuple[NodeId, tuple[Endpoint, ...]], ...] = ()


Reply = VoteReply | EpochReply | FetchReply | FetchSnapshotReply | VoterChangeReply | DescribeReply
