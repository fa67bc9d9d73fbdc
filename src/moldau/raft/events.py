"""What happens to a replica of the quorum, and what it then wants done."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from moldau.model.ids import Epoch, NodeId, Offset
from moldau.raft.log_view import OffsetAndEpoch
from moldau.raft.messages import Reply as ReplyMessage
from moldau.raft.messages import Request
from moldau.raft.roles import Role
from moldau.raft.voters import Endpoint, ReplicaKey, VoterSet
from moldau.wire.records.batch import ControlType

FIRST_EPOCH: Final = Epoch(0)


class ElectionState(Struct, frozen=True):
    """What must survive a restart, in the file `quorum-state`: the epoch, its leader, and our vote in it."""

    epoch: Epoch = FIRST_EPOCH
    leader_id: NodeId | None = None
    voted: ReplicaKey | None = None


# ---------------------------------------------------------------- events


class Tick(Struct, frozen=True):
    """Time has passed; due at `Quorum.deadline_ms`."""


class Asked(Struct, frozen=True):
    """A request has arrived; `Reply` answers it under the same token."""

    token: int
    request: Request


class Answered(Struct, frozen=True):
    """The reply to the request sent under `request_id` has arrived."""

    request_id: int
    reply: ReplyMessage


class Unanswered(Struct, frozen=True):
    """The request sent under `request_id` failed or ran out of time."""

    request_id: int


class Gone(Struct, frozen=True):
    """Whoever waited for the reply to `token` has left."""

    token: int


class Proposed(Struct, frozen=True):
    """Somebody wants `count` records committed, as one batch; the outcome is told under the same token."""

    token: int
    batch: bytes
    count: int


class LogChanged(Struct, frozen=True):
    """The log was appended to or truncated as the effects of the last step asked."""


class Flushed(Struct, frozen=True):
    """More of the log is durable: see `LogView.flushed_offset`."""


class ElectionPersisted(Struct, frozen=True):
    """This state is durable."""

    state: ElectionState


class SnapshotSaved(Struct, frozen=True):
    """A downloaded snapshot is durable beside the log, and waits to be loaded."""

    snapshot_id: OffsetAndEpoch


class SnapshotLoaded(Struct, frozen=True):
    """The log starts anew at the end of a downloaded snapshot, which holds these voters."""

    snapshot_id: OffsetAndEpoch
    voters: VoterSet


class SnapshotTaken(Struct, frozen=True):
    """The state up to a committed offset is durable as a snapshot of our own."""

    snapshot_id: OffsetAndEpoch


class ResignationWanted(Struct, frozen=True):
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


class PersistElection(Struct, frozen=True):
    """Make this state durable, then say ElectionPersisted. At most one is under way."""

    state: ElectionState


class AppendAsLeader(Struct, frozen=True):
    """Append a proposed batch in this epoch, flush, and say LogChanged, later Flushed."""

    epoch: Epoch
    batch: bytes


class AppendControl(Struct, frozen=True):
    """The same for a control record, which the node dates."""

    epoch: Epoch
    kind: ControlType
    value: bytes


class AppendAsFollower(Struct, frozen=True):
    """Append the leader's batches as they are, flush, and say LogChanged, later Flushed."""

    records: bytes


class Truncate(Struct, frozen=True):
    """Cut the log at `end`, and say LogChanged."""

    end: Offset


class WriteSnapshot(Struct, frozen=True):
    """Keep a piece of a snapshot that is being downloaded; position 0 starts it anew."""

    snapshot_id: OffsetAndEpoch
    position: int
    data: bytes


class SaveSnapshot(Struct, frozen=True):
    """Make the downloaded snapshot durable, then say SnapshotSaved."""

    snapshot_id: OffsetAndEpoch


class LoadSnapshot(Struct, frozen=True):
    """Put the downloaded snapshot in the place of the whole log, then say SnapshotLoaded."""

    snapshot_id: OffsetAndEpoch


class Trim(Struct, frozen=True):
    """Drop the log before `start`, which a snapshot holds, and older snapshots."""

    start: Offset


class SendRequest(Struct, frozen=True):
    """Ask a peer; say Answered or Unanswered under the same id."""

    request_id: int
    to: Endpoint
    request: Request


class Reply(Struct, frozen=True):
    """Answer the request that came under `token`; ranges in it are read from the log or a snapshot."""

    token: int
    reply: ReplyMessage


class Committed(Struct, frozen=True):
    """Everything before `offset` is committed, for good."""

    offset: Offset


class ProposalCommitted(Struct, frozen=True):
    """The proposed batch is committed and ends at `end`."""

    token: int
    end: Offset


class ProposalRefused(Struct, frozen=True):
    """The proposed batch was not written: this node does not lead."""

    token: int


class ProposalUncertain(Struct, frozen=True):
    """The proposed batch was written, but leadership was lost: it may yet be committed, or not."""

    token: int


class RoleChanged(Struct, frozen=True):
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
