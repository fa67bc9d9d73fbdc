"""What replicas of the quorum say to each other, without the wire's topics and partitions around it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from moldau.model.errors import ErrorCode
from moldau.model.ids import ClusterId, Epoch, NodeId, Offset
from moldau.raft.log_view import OffsetAndEpoch
from moldau.raft.voters import Endpoint, Peer, ReplicaKey, Voter

UNKNOWN_OFFSET: Final = Offset(-1)
HIGH_WATERMARK_UNSUPPORTED: Final = Offset(2**63 - 1)
"""What a follower says that cannot tell its high watermark (before KIP-1166): it is never answered early."""


@dataclass(frozen=True, slots=True)
class Leadership:
    """An epoch and, where known, its leader."""

    epoch: Epoch
    leader: Peer | None = None


UNKNOWN_LEADERSHIP: Final = Leadership(Epoch(-1))


# ---------------------------------------------------------------- requests


@dataclass(frozen=True, slots=True)
class Vote:
    """A candidate asks `voter` for its vote, or in a pre-vote whether it would give one (KIP-996)."""

    cluster_id: ClusterId | None
    voter: ReplicaKey
    candidate: ReplicaKey
    epoch: Epoch
    log_end: OffsetAndEpoch
    is_pre_vote: bool


@dataclass(frozen=True, slots=True)
class BeginEpoch:
    """A new leader makes itself known to `voter`."""

    cluster_id: ClusterId | None
    voter: ReplicaKey
    epoch: Epoch
    leader: Peer


@dataclass(frozen=True, slots=True)
class EndEpoch:
    """A leader resigns, and names its successors, the most caught-up first."""

    cluster_id: ClusterId | None
    epoch: Epoch
    leader_id: NodeId
    successors: tuple[ReplicaKey, ...]


@dataclass(frozen=True, slots=True)
class Fetch:
    """A replica asks for what follows its flushed end."""

    cluster_id: ClusterId | None
    replica: ReplicaKey
    epoch: Epoch
    offset: Offset
    last_epoch: Epoch
    wait_ms_max: int
    bytes_max: int
    high_watermark: Offset


@dataclass(frozen=True, slots=True)
class FetchSnapshot:
    """A replica that is behind the log asks for a piece of a snapshot."""

    cluster_id: ClusterId | None
    replica: ReplicaKey
    epoch: Epoch
    snapshot_id: OffsetAndEpoch
    position: int
    bytes_max: int


@dataclass(frozen=True, slots=True)
class AddVoter:
    """An operator makes an observer a voter."""

    cluster_id: ClusterId | None
    voter: Voter
    is_acknowledged_when_committed: bool = True


@dataclass(frozen=True, slots=True)
class RemoveVoter:
    """An operator takes a voter's vote away."""

    cluster_id: ClusterId | None
    key: ReplicaKey


@dataclass(frozen=True, slots=True)
class UpdateVoter:
    """A voter tells the leader its new endpoints."""

    cluster_id: ClusterId | None
    epoch: Epoch
    voter: Voter


@dataclass(frozen=True, slots=True)
class Describe:
    """Somebody asks for the state of the quorum."""


VoterChange = AddVoter | RemoveVoter | UpdateVoter
Request = Vote | BeginEpoch | EndEpoch | Fetch | FetchSnapshot | VoterChange | Describe


# ---------------------------------------------------------------- replies


@dataclass(frozen=True, slots=True)
class VoteReply:
    """Whether the vote is given."""

    error: ErrorCode
    leadership: Leadership
    is_granted: bool = False


@dataclass(frozen=True, slots=True)
class EpochReply:
    """Whether the beginning or end of an epoch is accepted."""

    error: ErrorCode
    leadership: Leadership


@dataclass(frozen=True, slots=True)
class LogRange:
    """Whole batches that whoever sends the reply reads from the log."""

    start: Offset
    bytes_max: int


@dataclass(frozen=True, slots=True)
class SnapshotRange:
    """A stretch of a snapshot that whoever sends the reply reads from its file."""

    snapshot_id: OffsetAndEpoch
    position: int
    bytes_max: int


@dataclass(frozen=True, slots=True)
class FetchReply:
    """Records; or where the logs part; or the snapshot to load first."""

    error: ErrorCode
    leadership: Leadership
    high_watermark: Offset = UNKNOWN_OFFSET
    log_start: Offset = UNKNOWN_OFFSET
    diverging: OffsetAndEpoch | None = None
    snapshot_id: OffsetAndEpoch | None = None
    records: bytes | LogRange = b""


@dataclass(frozen=True, slots=True)
class FetchSnapshotReply:
    """A piece of a snapshot, and how long the whole is."""

    error: ErrorCode
    leadership: Leadership
    snapshot_id: OffsetAndEpoch
    size: int = 0
    position: int = 0
    data: bytes | SnapshotRange = b""


@dataclass(frozen=True, slots=True)
class VoterChangeReply:
    """Whether the voters were changed."""

    error: ErrorCode
    leadership: Leadership
    message: str | None = None


@dataclass(frozen=True, slots=True)
class ReplicaProgress:
    """How far a replica has come, as its leader sees it; times are ages, since clocks differ."""

    key: ReplicaKey
    end_offset: Offset
    since_fetch_ms: int | None
    since_caught_up_ms: int | None


@dataclass(frozen=True, slots=True)
class DescribeReply:
    """The state of the quorum, as its leader sees it."""

    error: ErrorCode
    leadership: Leadership
    high_watermark: Offset = UNKNOWN_OFFSET
    voters: tuple[ReplicaProgress, ...] = ()
    observers: tuple[ReplicaProgress, ...] = ()
    nodes: tuple[tuple[NodeId, tuple[Endpoint, ...]], ...] = ()


Reply = VoteReply | EpochReply | FetchReply | FetchSnapshotReply | VoterChangeReply | DescribeReply
