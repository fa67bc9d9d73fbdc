"""Replicas of a quorum in memory: a log that is a list, and a post that delivers what a test lets through."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from msgspec.structs import replace

from moldau.model.ids import ClusterId, DirectoryId, Epoch, NodeId, Offset, Uuid
from moldau.raft.control import voter_changes, voters_record
from moldau.raft.events import (
    Answered,
    AppendAsFollower,
    AppendAsLeader,
    AppendControl,
    Asked,
    Committed,
    Effect,
    ElectionPersisted,
    ElectionState,
    Event,
    Flushed,
    LoadSnapshot,
    LogChanged,
    PersistElection,
    Proposed,
    Reply,
    SaveSnapshot,
    SendRequest,
    SnapshotLoaded,
    SnapshotSaved,
    SnapshotTaken,
    Tick,
    Trim,
    Truncate,
    Unanswered,
    WriteSnapshot,
)
from moldau.raft.log_view import OffsetAndEpoch
from moldau.raft.messages import FetchReply, FetchSnapshotReply, LogRange, SnapshotRange, Vote
from moldau.raft.messages import Reply as ReplyMessage
from moldau.raft.quorum import Identity, Quorum, Timing
from moldau.raft.roles import Leader
from moldau.raft.voters import BEFORE_THE_LOG, Endpoint, ReplicaKey, Voter, VoterHistory, VoterSet
from moldau.wire.records.batch import ControlType, encode_batch, encode_control_batch
from moldau.wire.records.header import iter_headers, read_header, stamp
from moldau.wire.records.record import Record

CLUSTER = ClusterId("the-cluster")
NOTHING = OffsetAndEpoch(Offset(0), Epoch(0))


def voter(node_id: int, directory: int = 0) -> Voter:
    """Voter number `node_id`, with its first or another directory."""
    directory_id = DirectoryId(Uuid((1000 * directory + 200 + node_id).to_bytes(16, "big")))
    endpoint = Endpoint("CONTROLLER", f"node-{node_id}", 9093)
    return Voter(ReplicaKey(NodeId(node_id), directory_id), (endpoint,))


def voters(*node_ids: int) -> VoterHistory:
    """The voters with which a quorum is formatted."""
    return VoterHistory(((BEFORE_THE_LOG, VoterSet.of(*map(voter, node_ids))),))


def batch_of(value: bytes) -> bytes:
    """A proposed batch of one record."""
    return encode_batch([Record(0, 0, None, value)])


@dataclass
class MemoryLog:
    """A log whose batches are a list; what is not flushed is lost by `lose_power`."""

    batches: list[bytes] = field(default_factory=list)
    start_offset: Offset = NOTHING.offset
    flushed_offset: Offset = NOTHING.offset
    latest_snapshot: OffsetAndEpoch = NOTHING
    snapshots: dict[OffsetAndEpoch, bytes] = field(default_factory=dict)
    downloads: dict[OffsetAndEpoch, bytes] = field(default_factory=dict)

    @property
    def end_offset(self) -> Offset:
        return Offset(read_header(self.batches[-1]).next_offset) if self.batches else self.start_offset

    @property
    def last_epoch(self) -> Epoch:
        return (
            Epoch(read_header(self.batches[-1]).leader_epoch) if self.batches else self.latest_snapshot.epoch
        )

    def end_of_epoch(self, epoch: Epoch) -> OffsetAndEpoch:
        known = [read_header(batch) for batch in self.batches if read_header(batch).leader_epoch <= epoch]
        if not known:
            return OffsetAndEpoch(self.start_offset, self.latest_snapshot.epoch)
        return OffsetAndEpoch(Offset(known[-1].next_offset), Epoch(known[-1].leader_epoch))

    def snapshot_size(self, snapshot_id: OffsetAndEpoch) -> int | None:
        return len(self.snapshots[snapshot_id]) if snapshot_id in self.snapshots else None

    def append(self, batch: bytes, epoch: Epoch) -> None:
        stamped = bytearray(batch)
        stamp(stamped, 0, base_offset=self.end_offset, leader_epoch=epoch)
        self.batches.append(bytes(stamped))

    def append_as_follower(self, records: bytes) -> None:
        for position, header in iter_headers(records):
            assert header.base_offset == self.end_offset
            self.batches.append(records[position : position + header.size_bytes])

    def read(self, start: Offset) -> bytes:
        return b"".join(batch for batch in self.batches if read_header(batch).next_offset > start)

    def truncate(self, end: Offset) -> None:
        self.batches = [batch for batch in self.batches if read_header(batch).next_offset <= end]
        assert self.end_offset == end, "the leader names the ends of batches"
        self.flushed_offset = min(self.flushed_offset, end)

    def trim(self, start: Offset) -> None:
        self.batches = [batch for batch in self.batches if read_header(batch).base_offset >= start]
        self.start_offset = start

    def load(self, snapshot_id: OffsetAndEpoch) -> None:
        self.snapshots = {snapshot_id: self.downloads.pop(snapshot_id)}
        self.latest_snapshot = snapshot_id
        self.batches = []
        self.start_offset = self.flushed_offset = snapshot_id.offset

    def lose_power(self) -> None:
        self.truncate(self.flushed_offset)

    def places(self) -> list[tuple[int, int]]:
        """Offset and epoch of each batch."""
        return [(h.base_offset, h.leader_epoch) for h in map(read_header, self.batches)]


class Replica:
    """A quorum over a MemoryLog that carries out its effects; the disk may be told to be slow."""

    def __init__(
        self,
        node_id: int,
        history: VoterHistory,
        *,
        log: MemoryLog | None = None,
        election: ElectionState | None = None,
        now_ms: int = 0,
        timing: Timing | None = None,
        bootstrap: tuple[Endpoint, ...] = (),
    ) -> None:
        self.me = voter(node_id)
        self.log = log or MemoryLog()
        self.initial_voters = history
        self.now_ms = now_ms
        self.on_disk = election or ElectionState()
        self.flushes_at_once = True
        self.persists_at_once = True
        self.sent: list[SendRequest] = []
        self.replies: dict[int, ReplyMessage] = {}
        self.outcomes: list[Effect] = []
        self.commits: list[Offset] = []
        self.quorum = Quorum(
            Identity(CLUSTER, self.me, bootstrap),
            log=self.log,
            voters=history,
            election=self.on_disk,
            timing=timing or Timing(),
            jitter_seed=node_id,
            now_ms=now_ms,
        )

    def restarted(self, *, history: VoterHistory | None = None) -> Replica:
        """The same replica after a power cut."""
        self.log.lose_power()
        if history is None:
            history = self.initial_voters
            for batch in self.log.batches:
                for offset, voter_set in voter_changes(batch):
                    history = history.changed(offset, voter_set)
        again = Replica(self.me.key.node_id, history, log=self.log, election=self.on_disk, now_ms=self.now_ms)
        again.initial_voters = self.initial_voters
        return again

    def step(self, event: Event, now_ms: int | None = None) -> list[Effect]:
        """One step and all that follows at once."""
        self.now_ms = self.now_ms if now_ms is None else now_ms
        effects = self.quorum.step(event, self.now_ms)
        for effect in effects:
            self._carry_out(effect)
        return effects

    def flush(self) -> None:
        self.log.flushed_offset = self.log.end_offset
        self.step(Flushed())

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case PersistElection(state):
                if self.persists_at_once:
                    self.on_disk = state
                    self.step(ElectionPersisted(state))
            case AppendAsLeader(epoch, batch):
                self._append(lambda: self.log.append(batch, epoch))
            case AppendControl(epoch, kind, value):
                self._append(lambda: self.log.append(encode_control_batch(kind, value, timestamp=0), epoch))
            case AppendAsFollower(records):
                self._append(lambda: self.log.append_as_follower(records))
            case Truncate(end):
                self.log.truncate(end)
                self.step(LogChanged())
            case WriteSnapshot(snapshot_id, position, data):
                self.log.downloads[snapshot_id] = self.log.downloads.get(snapshot_id, b"")[:position] + data
            case SaveSnapshot(snapshot_id):
                self.step(SnapshotSaved(snapshot_id))
            case LoadSnapshot(snapshot_id):
                self.log.load(snapshot_id)
                (_, voter_set), *_ = voter_changes(self.log.snapshots[snapshot_id])
                self.step(SnapshotLoaded(snapshot_id, voter_set))
            case Trim(start):
                self.log.trim(start)
            case SendRequest():
                self.sent.append(effect)
            case Reply(token, reply):
                self.replies[token] = self._filled(reply)
            case Committed(offset):
                self.commits.append(offset)
            case _:
                self.outcomes.append(effect)

    def _append(self, append: Callable[[], None]) -> None:
        append()
        self.step(LogChanged())
        if self.flushes_at_once:
            self.flush()

    def _filled(self, reply: ReplyMessage) -> ReplyMessage:
        match reply:
            case FetchReply(records=LogRange(start)):
                return replace(reply, records=self.log.read(start))
            case FetchSnapshotReply(data=SnapshotRange(snapshot_id, position, bytes_max)):
                data = self.log.snapshots[snapshot_id][position : position + bytes_max]
                return replace(reply, data=data)
        return reply

    def take_snapshot(self) -> OffsetAndEpoch:
        """A snapshot of everything committed, and the log trimmed up to it."""
        end = self.quorum.committed
        epoch = next(h.leader_epoch for h in map(read_header, self.log.batches) if h.next_offset == end)
        snapshot_id = OffsetAndEpoch(end, Epoch(epoch))
        value = voters_record(self.quorum.voters.at(end))
        self.log.snapshots = {snapshot_id: encode_control_batch(ControlType.KRAFT_VOTERS, value, timestamp=0)}
        self.log.latest_snapshot = snapshot_id
        self.step(SnapshotTaken(snapshot_id))
        return snapshot_id


class Post:
    """Carries messages between replicas, at once, in order, except to and from those cut off."""

    def __init__(self, *replicas: Replica) -> None:
        self.replicas = {replica.me.endpoints[0]: replica for replica in replicas}
        self.cut_off: set[int] = set()
        self.waiting: dict[int, tuple[Replica, int]] = {}
        self.tokens = 0
        self.now_ms = max((replica.now_ms for replica in replicas), default=0)

    def __getitem__(self, node_id: int) -> Replica:
        return self.replicas[voter(node_id).endpoints[0]]

    def replace(self, replica: Replica) -> None:
        """A replica that was restarted, or is new."""
        self.replicas[replica.me.endpoints[0]] = replica

    def reaches(self, replica: Replica) -> bool:
        return replica.me.key.node_id not in self.cut_off

    def deliver(self) -> None:
        """Carry everything that is under way, and what that brings about."""
        is_quiet = False
        while not is_quiet:
            is_quiet = True
            for replica in list(self.replicas.values()):
                while replica.sent:
                    is_quiet = False
                    self._ask(replica, replica.sent.pop(0))
            for token, (asker, request_id) in list(self.waiting.items()):
                for replica in list(self.replicas.values()):
                    if token in replica.replies:
                        is_quiet = False
                        reply = replica.replies.pop(token)
                        del self.waiting[token]
                        is_lost = not self.reaches(asker) or not self.reaches(replica)
                        asker.step(Unanswered(request_id) if is_lost else Answered(request_id, reply))

    def _ask(self, asker: Replica, sent: SendRequest) -> None:
        to = self.replicas.get(sent.to)
        if to is None or not self.reaches(to) or not self.reaches(asker):
            asker.step(Unanswered(sent.request_id))
            return
        self.tokens += 1
        self.waiting[self.tokens] = (asker, sent.request_id)
        to.step(Asked(self.tokens, sent.request))

    def run_until(self, condition: Callable[[], bool], *, within_ms: int = 60_000) -> None:
        """Let time pass, deadline by deadline, until something holds."""
        end_ms = self.now_ms + within_ms
        self._tick()
        while not condition():
            deadlines = [r.quorum.deadline_ms for r in self.replicas.values()]
            self.now_ms = max(self.now_ms + 1, min(d for d in deadlines if d is not None))
            assert self.now_ms <= end_ms, "it did not come about"
            self._tick()

    def run_for(self, duration_ms: int) -> None:
        """Let time pass."""
        end_ms = self.now_ms + duration_ms
        self.run_until(lambda: self.now_ms >= end_ms, within_ms=2 * duration_ms + 10_000)

    def _tick(self) -> None:
        for replica in list(self.replicas.values()):
            replica.step(Tick(), self.now_ms)
        self.deliver()

    def leader(self) -> Replica | None:
        """The leader of the newest epoch among those that can be reached."""
        leaders = [r for r in self.replicas.values() if isinstance(r.quorum.role, Leader) and self.reaches(r)]
        return max(leaders, key=lambda replica: replica.quorum.epoch, default=None)

    def elect(self) -> Replica:
        """Wait until there is a leader that has committed a record of its epoch."""

        def is_elected() -> bool:
            leader = self.leader()
            return leader is not None and leader.quorum.committed == leader.log.end_offset

        self.run_until(is_elected)
        leader = self.leader()
        assert leader is not None
        return leader

    def elect_without_fetches(self, node_id: int) -> Replica:
        """Let this replica win an election, and nobody fetch from it afterwards."""
        leader = self[node_id]
        while not isinstance(leader.quorum.role, Leader):
            for replica in self.replicas.values():
                replica.sent = [
                    sent for sent in replica.sent if replica is leader and isinstance(sent.request, Vote)
                ]
            leader.step(Tick(), self.now_ms)
            self.deliver_votes_of(leader)
            self.now_ms = leader.quorum.deadline_ms or self.now_ms
        return leader

    def deliver_votes_of(self, candidate: Replica) -> None:
        """Carry a candidate's requests for votes, and the answers, and nothing else."""
        while candidate.sent:
            sent = candidate.sent.pop(0)
            if isinstance(sent.request, Vote):
                to = self.replicas[sent.to]
                to.step(Asked(0, sent.request), self.now_ms)
                candidate.step(Answered(sent.request_id, to.replies.pop(0)))

    def propose(self, replica: Replica, value: bytes) -> int:
        """Propose a value and let it take its way; gives the token of the outcome."""
        self.tokens += 1
        token = self.tokens
        replica.step(Proposed(token, batch_of(value), 1))
        self.deliver()
        return token


def three() -> Post:
    """Three voters that have just started."""
    return Post(*(Replica(node_id, voters(1, 2, 3)) for node_id in (1, 2, 3)))
