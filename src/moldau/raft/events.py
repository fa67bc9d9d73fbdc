"""What happens to a replica of the quorum, and what it then wants done."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from moldau.model.ids import Epoch, NodeId, Offset
from moldau.raft.log_view import OffsetAndEpoch
from moldau.raft.messages import Reply as ReplyMessage
from moldau.raft.messages import Request
from moldau.raft.roles import Role
from moldau.raft.voters import Endpoint, ReplicaKey, VoterSet
from moldau.wire.records.batch import ControlType

FIRST_EPOCH: Final = Epoch(0)


@dataclass(frozen=True, slots=True)
class ElectionState:
    """What must survive a restart, in the file `quorum-state`: the epoch, its leader, and our vote in it."""

    epoch: Epoch = FIRST_EPOCH
    leader_id: NodeId | None = None
    voted: ReplicaKey | None = None


# ---------------------------------------------------------------- events


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed; due at `Quorum.deadline_ms`."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A request has arrived; `Reply` answers it under the same token."""

    token: int
    request: Request


@dataclass(frozen=True, slots=True)
class Answered:
    """The reply to the request sent under `request_id` has arrived."""

    request_id: int
    reply: ReplyMessage


@dataclass(frozen=True, slots=True)
class Unanswered:
    """The request sent under `request_id` failed or ran out of time."""

    request_id: int


@dataclass(frozen=True, slots=True)
class Gone:
    """Whoever waited for the reply to `token` has left."""

    token: int


@dataclass(frozen=True, slots=True)
class Proposed:
    """Somebody wants `count` records committed, as one batch; the outcome is told under the same token."""

    token: int
    batch: bytes
    count: int


@dataclass(frozen=True, slots=True)
class LogChanged:
    """The log was appended to or truncated as the effects of the last step asked."""


@dataclass(frozen=True, slots=True)
class Flushed:
    """More of the log is durable: see `LogView.flushed_offset`."""


@dataclass(frozen=True, slots=True)
class ElectionPersisted:
    """This state is durable."""

    state: ElectionState


@dataclass(frozen=True, slots=True)
class SnapshotSaved:
    """A downloaded snapshot is durable beside the log, and waits to be loaded."""

    snapshot_id: OffsetAndEpoch


@dataclass(frozen=True, slots=True)
class SnapshotLoaded:
    """The log starts anew at the end of a downloaded snapshot, which holds these voters."""

    snapshot_id: OffsetAndEpoch
    voters: VoterSet


@dataclass(frozen=True, slots=True)
class SnapshotTaken:
    """The state up to a committed offset is durable as a snapshot of our own."""

    snapshot_id: OffsetAndEpoch


@dataclass(frozen=True, slots=True)
class ResignationWanted:
    """The node is about to stop: hand leadership over, if it is ours."""


Event = (
    Tick
    | Asked
    | Answered
    | Unanswered
    | Gone
    | Proposed
    | LogChanged
    | Flushed
    | ElectionPersisted
    | SnapshotSaved
    | SnapshotLoaded
    | SnapshotTaken
    | ResignationWanted
)


# ---------------------------------------------------------------- effects, carried out in their order


@dataclass(frozen=True, slots=True)
class PersistElection:
    """Make this state durable, then say ElectionPersisted. At most one is under way."""

    state: ElectionState


@dataclass(frozen=True, slots=True)
class AppendAsLeader:
    """Append a proposed batch in this epoch, flush, and say LogChanged, later Flushed."""

    epoch: Epoch
    batch: bytes


@dataclass(frozen=True, slots=True)
class AppendControl:
    """The same for a control record, which the node dates."""

    epoch: Epoch
    kind: ControlType
    value: bytes


@dataclass(frozen=True, slots=True)
class AppendAsFollower:
    """Append the leader's batches as they are, flush, and say LogChanged, later Flushed."""

    records: bytes


@dataclass(frozen=True, slots=True)
class Truncate:
    """Cut the log at `end`, and say LogChanged."""

    end: Offset


@dataclass(frozen=True, slots=True)
class WriteSnapshot:
    """Keep a piece of a snapshot that is being downloaded; position 0 starts it anew."""

    snapshot_id: OffsetAndEpoch
    position: int
    data: bytes


@dataclass(frozen=True, slots=True)
class SaveSnapshot:
    """Make the downloaded snapshot durable, then say SnapshotSaved."""

    snapshot_id: OffsetAndEpoch


@dataclass(frozen=True, slots=True)
class LoadSnapshot:
    """Put the downloaded snapshot in the place of the whole log, then say SnapshotLoaded."""

    snapshot_id: OffsetAndEpoch


@dataclass(frozen=True, slots=True)
class Trim:
    """Drop the log before `start`, which a snapshot holds, and older snapshots."""

    start: Offset


@dataclass(frozen=True, slots=True)
class SendRequest:
    """Ask a peer; say Answered or Unanswered under the same id."""

    request_id: int
    to: Endpoint
    request: Request


@dataclass(frozen=True, slots=True)
class Reply:
    """Answer the request that came under `token`; ranges in it are read from the log or a snapshot."""

    token: int
    reply: ReplyMessage


@dataclass(frozen=True, slots=True)
class Committed:
    """Everything before `offset` is committed, for good."""

    offset: Offset


@dataclass(frozen=True, slots=True)
class ProposalCommitted:
    """The proposed batch is committed and ends at `end`."""

    token: int
    end: Offset


@dataclass(frozen=True, slots=True)
class ProposalRefused:
    """The proposed batch was not written: this node does not lead."""

    token: int


@dataclass(frozen=True, slots=True)
class ProposalUncertain:
    """The proposed batch was written, but leadership was lost: it may yet be committed, or not."""

    token: int


@dataclass(frozen=True, slots=True)
class RoleChanged:
    """This node plays another part, or plays it in another epoch."""

    role: Role


Effect = (
    PersistElection
    | AppendAsLeader
    | AppendControl
    | AppendAsFollower
    | Truncate
    | WriteSnapshot
    | SaveSnapshot
    | LoadSnapshot
    | Trim
    | SendRequest
    | Reply
    | Committed
    | ProposalCommitted
    | ProposalRefused
    | ProposalUncertain
    | RoleChanged
)
