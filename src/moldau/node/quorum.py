"""One replica of the metadata quorum on a machine: carries out what `raft.Quorum` decides, decides nothing.

All events pass through one queue and are taken in by one task, so that an effect is carried out before the
next event is looked at. Flushes, messages and snapshots run beside it and come back as events.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

from moldau.model.errors import ErrorCode, KafkaError, MalformedMessage
from moldau.model.ids import Epoch, Offset
from moldau.model.settings.table import GIB
from moldau.node.peers import Peers
from moldau.node.quorum_files import (
    PART_SUFFIX,
    encode_snapshot,
    make_quorum_directory,
    read_election,
    read_snapshot,
    write_election,
    write_snapshot,
)
from moldau.node.quorum_log import PATH, QuorumLog
from moldau.node.quorum_wire import (
    VERSIONS,
    Filled,
    check_version,
    from_wire,
    reply_from_wire,
    reply_to_wire,
    to_wire,
)
from moldau.node.waiting import is_set_within
from moldau.raft import events
from moldau.raft.control import voter_changes
from moldau.raft.events import ElectionState, Event
from moldau.raft.log_view import OffsetAndEpoch
from moldau.raft.messages import FetchReply, FetchSnapshotReply, LogRange, Request, SnapshotRange
from moldau.raft.messages import Reply as ReplyMessage
from moldau.raft.quorum import Identity, Quorum, Timing
from moldau.raft.roles import Role
from moldau.raft.voters import Endpoint, VoterHistory
from moldau.wire import message
from moldau.wire.records.batch import decode_batch, encode_batch, encode_control_batch
from moldau.wire.records.header import iter_headers
from moldau.wire.records.record import Record
from moldau.world.ports import Address, ConnectionLost, DiskFailed, Flush, Scope, World

# How long what is committed may wait until a restart can tell damage to it from the torn end of a log.
_NOTE_MS: Final = 1_000
UNCOMMITTED_MAX: Final = 10_000


class Change(NamedTuple):
    """A record that somebody wants in the log."""

    key: bytes | None
    value: bytes | None


class Appended(NamedTuple):
    """Records that stand in the leader's log, and the future of their end once they are committed."""

    offset: Offset
    epoch: Epoch
    committed: asyncio.Future[Offset]


class _Asked(NamedTuple):
    """A request that waits for its answer."""

    request: message.Request
    version: int
    answer: asyncio.Future[message.Response]


class StateMachine(Protocol):
    """What the committed records mean; the same records give the same state on every replica."""

    def restore(self, records: Sequence[Record], end: Offset) -> None:
        """Begin anew with what a snapshot of everything before `end` holds."""
        ...

    def apply(self, records: Sequence[Record], end: Offset) -> None:
        """Take in committed records; `end` is the offset after them, control records included."""
        ...

    def dump(self) -> Sequence[Record]:
        """The state as records, for a snapshot."""
        ...

    def role_changed(self, role: Role) -> None:
        """This replica leads, or follows another one."""
        ...


@dataclass(frozen=True, slots=True)
class QuorumConfig:
    """What an operator may set."""

    timing: Timing = field(default_factory=Timing)
    request_timeout_ms: int = 2000
    snapshot_records: int = 10_000
    segment_bytes: int = GIB


class QuorumNode:
    """A replica of the quorum; `run` is its life."""

    def __init__(
        self, world: World, identity: Identity, machine: StateMachine, config: QuorumConfig | None = None
    ) -> None:
        self.identity = identity
        self.config = config or QuorumConfig()
        self.peers = Peers(world.network, world.clock, client_id=f"quorum-{identity.me.key.node_id}")
        self._world = world
        self._machine = machine
        self._events: deque[Event] = deque()
        self._woken = asyncio.Event()
        self._tokens = 0
        self._answers: dict[int, _Asked] = {}
        self._proposed: dict[int, asyncio.Future[Offset]] = {}
        self._awaiting_applied: list[asyncio.Future[None]] = []
        self._quorum: Quorum | None = None
        self._is_flushing = False
        self._is_noting = False
        self._is_taking_snapshot = False
        self._has_failed = False

    # ------------------------------------------------------------ for the rest of the node

    @property
    def quorum(self) -> Quorum:
        """The core; for others to look at, once the node `is_open`."""
        assert self._quorum is not None, "the quorum has not been opened"
        return self._quorum

    @property
    def is_open(self) -> bool:
        """Whether the log has been read, and this replica takes part."""
        return self._quorum is not None

    @property
    def applied(self) -> Offset:
        """Up to where the state machine has taken in the log."""
        return self._applied

    def append(self, changes: Sequence[Change]) -> Appended:
        """Append records as the leader, now and as one batch; NOT_CONTROLLER if this replica does not lead.

        The future fails with REQUEST_TIMED_OUT if leadership was lost: the records may be committed yet. Not
        to be called by the state machine, which is told of records in the middle of a step.
        """
        if len(self._proposed) >= UNCOMMITTED_MAX:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "Too many records wait to be committed already.")
        self._take_in_waiting_events()
        offset, wall_ms = self.view.end_offset, self._world.clock.wall_ms()
        records = [Record(n, wall_ms, change.key, change.value) for n, change in enumerate(changes)]
        committed: asyncio.Future[Offset] = asyncio.get_running_loop().create_future()
        self._tokens += 1
        self._proposed[self._tokens] = committed
        self._step(events.Proposed(self._tokens, encode_batch(records), len(records)))
        self._take_in_waiting_events()
        if committed.done() and (refused := committed.exception()) is not None:
            raise refused
        # Leadership may be lost while nobody waits for the outcome.
        committed.add_done_callback(lambda done: done.exception() if not done.cancelled() else None)
        return Appended(offset, self.quorum.epoch, committed)

    async def propose(self, changes: Sequence[Change]) -> Offset:
        """Have records committed; gives their end. The errors are those of `append` and its future."""
        return await self.append(changes).committed

    async def serve(self, request: message.Request, *, version: int) -> message.Response:
        """Answer a request of another replica, when the core does."""
        check_version(request, version)
        question = from_wire(request)
        self._tokens += 1
        token = self._tokens
        answer: asyncio.Future[message.Response] = asyncio.get_running_loop().create_future()
        self._answers[token] = _Asked(request, version, answer)
        self._tell(events.Asked(token, question))
        try:
            return await answer
        finally:
            if self._answers.pop(token, None) is not None:
                self._tell(events.Gone(token))

    async def until_applied(self, end: Offset) -> None:
        """Return once the state machine has taken in everything before `end`."""
        while self._applied < end:
            reached: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._awaiting_applied.append(reached)
            await reached

    async def ask(self, to: Endpoint, request: Request) -> ReplyMessage:
        """Ask another replica, or this one, as any peer would; ConnectionLost if it does not answer."""
        wire_request = to_wire(request)
        response = await self.peers.ask(
            Address(to.host, to.port),
            wire_request,
            version=VERSIONS[type(wire_request)],
            timeout_ms=self.config.request_timeout_ms,
        )
        return reply_from_wire(response)

    def resign(self) -> None:
        """Hand leadership over, if it is ours, before the node stops."""
        self._tell(events.ResignationWanted())

    async def run(self) -> None:
        """Take part in the quorum until cancelled; DiskFailed if the disk can no longer be trusted."""
        try:
            async with self._world.tasks.scope() as scope:
                self._scope: Scope = scope
                self._open()
                await self._take_in_events()
        except OSError as error:
            raise DiskFailed(f"the quorum's disk failed: {error}") from error

    async def _take_in_events(self) -> None:
        while True:
            self._take_in_waiting_events()
            self._woken.clear()
            deadline_ms = self.quorum.deadline_ms
            pause_ms = None if deadline_ms is None else deadline_ms - self._world.clock.now_ms()
            if pause_ms is None:
                await self._woken.wait()
            elif pause_ms <= 0 or not await is_set_within(self._woken, self._world.clock, pause_ms):
                self._step(events.Tick())

    def _take_in_waiting_events(self) -> None:
        while self._events:
            self._step(self._events.popleft())

    def _tell(self, event: Event) -> None:
        self._events.append(event)
        self._woken.set()

    def _step(self, event: Event) -> None:
        if self._has_failed:
            raise DiskFailed("the quorum's disk has failed")
        has_changed_log = False
        try:
            for effect in self.quorum.step(event, self._world.clock.now_ms()):
                has_changed_log |= self._carry_out(effect)
        except OSError as error:
            # The core believes what was not carried out, so that it must not be asked again; whoever is
            # told first ends the node, and the next start finds out what is on the disk.
            self._has_failed = True
            raise DiskFailed(f"the quorum's disk failed: {error}") from error
        if has_changed_log:
            self._events.appendleft(events.LogChanged())
            self._flush_soon()

    # ------------------------------------------------------------ opening

    def _open(self) -> None:
        world, disk = self._world, self._world.disk
        make_quorum_directory(disk, PATH)
        for name in disk.list(PATH):
            if name.endswith(PART_SUFFIX):
                disk.remove(f"{PATH}/{name}")
        self.view = QuorumLog(world, segment_bytes=self.config.segment_bytes)
        self._applied = self.view.latest_snapshot.offset
        history = VoterHistory()
        if self.view.snapshots:
            snapshot = read_snapshot(self.view.read_snapshot_file(self.view.latest_snapshot))
            history = VoterHistory.starting_at(self._applied, snapshot.voters)
            self._machine.restore(snapshot.records, self._applied)
        for records in self.view.batches(self._applied, self.view.end_offset):
            for offset, voters in voter_changes(records):
                history = history.changed(offset, voters)
        self._snapshot_at = self._applied
        self._quorum = Quorum(
            self.identity,
            log=self.view,
            voters=history,
            election=self._election_on_disk(),
            timing=self.config.timing,
            jitter_seed=world.randomness.below(2**63),
            now_ms=world.clock.now_ms(),
        )

    def _election_on_disk(self) -> ElectionState:
        """The election state; its epoch is never below what the log proves to have been."""
        state = read_election(self._world.disk, PATH)
        if state.epoch < self.view.last_epoch:
            return ElectionState(self.view.last_epoch)
        return state

    # ------------------------------------------------------------ carrying out

    def _carry_out(self, effect: events.Effect) -> bool:
        """Do what the core wants; tells whether that changed the log."""
        match effect:
            case events.PersistElection(state):
                self._scope.start(self._persist(state), name="quorum persists its vote")
            case events.AppendAsLeader(epoch, batch):
                self.view.append(batch, epoch)
                return True
            case events.AppendControl(epoch, kind, value):
                batch = encode_control_batch(kind, value, timestamp=self._world.clock.wall_ms())
                self.view.append(batch, epoch)
                return True
            case events.AppendAsFollower(records):
                self.view.append_as_follower(records)
                return True
            case events.Truncate(end):
                self.view.truncate(end)
                return True
            case events.WriteSnapshot(snapshot_id, position, data):
                self.view.write_part(snapshot_id, position, data)
            case events.SaveSnapshot(snapshot_id):
                self._scope.start(self._save_download(snapshot_id), name="quorum saves a snapshot")
            case events.LoadSnapshot(snapshot_id):
                self._load(snapshot_id)
            case events.Trim(start):
                self.view.trim(start)
                self._flush_soon()
            case events.SendRequest(request_id, to, request):
                self._scope.start(self._send(request_id, to, request), name=f"quorum asks {to.host}")
            case events.Reply(token, reply):
                self._respond(token, reply)
            case events.Committed(offset):
                self._apply_up_to(offset)
            case events.ProposalCommitted(token, end):
                committed = self._proposed.pop(token)
                if not committed.done():
                    committed.set_result(end)
            case events.ProposalRefused(token):
                self._fail(token, ErrorCode.NOT_CONTROLLER)
            case events.ProposalUncertain(token):
                self._fail(token, ErrorCode.REQUEST_TIMED_OUT)
            case events.RoleChanged(role):
                self._machine.role_changed(role)
        return False

    async def _persist(self, state: ElectionState) -> None:
        await self._flush(write_election(self._world.disk, PATH, state))
        self._tell(events.ElectionPersisted(state))

    async def _flush(self, work: Flush) -> None:
        try:
            await self._world.disk.flush(work)
        except OSError as error:
            raise DiskFailed(f"the quorum's disk failed: {error}") from error

    def _flush_soon(self) -> None:
        if not self._is_flushing and self.view.log.is_dirty:
            self._is_flushing = True
            self._scope.start(self._flush_log(), name="quorum flushes its log")

    async def _flush_log(self) -> None:
        while self.view.log.is_dirty:
            try:
                work = self.view.log.begin_flush()
            except OSError as error:
                raise DiskFailed(f"the quorum's disk failed: {error}") from error
            await self._flush(work.flush)
            self.view.log.flushed(work)
            self._tell(events.Flushed())
        self._is_flushing = False

    def _note_recovery_point_soon(self) -> None:
        if not self._is_noting:
            self._is_noting = True
            self._scope.start(self._note_recovery_point(), name="quorum notes its recovery point")

    async def _note_recovery_point(self) -> None:
        """Until there is nothing new to note; what is committed is flushed here too by then."""
        while True:
            await self._world.clock.sleep_ms(_NOTE_MS)
            try:
                work = self.view.note_recovery_point()
            except OSError as error:
                raise DiskFailed(f"the quorum's disk failed: {error}") from error
            if work is None:
                self._is_noting = False
                return
            await self._flush(work)

    # ------------------------------------------------------------ talking

    async def _send(self, request_id: int, to: Endpoint, request: Request) -> None:
        try:
            reply = await self.ask(to, request)
        except (ConnectionLost, KafkaError, MalformedMessage, ValueError):
            self._tell(events.Unanswered(request_id))
        else:
            self._tell(events.Answered(request_id, reply))

    def _respond(self, token: int, reply: ReplyMessage) -> None:
        if token not in self._answers:
            return
        request, version, answer = self._answers.pop(token)
        if not answer.done():
            now_wall_ms = self._world.clock.wall_ms()
            answer.set_result(
                reply_to_wire(self._filled(reply), request, version=version, now_wall_ms=now_wall_ms)
            )

    def _filled(self, reply: ReplyMessage) -> Filled:
        match reply:
            case FetchReply(records=LogRange(start, bytes_max)):
                return Filled(reply, self.view.read(start, bytes_max=bytes_max))
            case FetchSnapshotReply(data=SnapshotRange(snapshot_id, position, bytes_max)):
                return Filled(reply, self.view.read_snapshot_file(snapshot_id, position, bytes_max))
        return Filled(reply)

    def _fail(self, token: int, error: ErrorCode) -> None:
        committed = self._proposed.pop(token)
        if not committed.done():
            committed.set_exception(KafkaError(error))

    # ------------------------------------------------------------ the state machine and its snapshots

    def _apply_up_to(self, offset: Offset) -> None:
        self.view.log.advance_high_watermark(offset)
        for records in self.view.batches(self._applied, offset):
            for position, header in iter_headers(records):
                batch = memoryview(records)[position : position + header.size_bytes]
                data = () if header.is_control else decode_batch(batch)[1]
                self._applied = Offset(header.next_offset)
                self._machine.apply(data, self._applied)
        assert self._applied == offset, (self._applied, offset)
        awaiting, self._awaiting_applied = self._awaiting_applied, []
        for reached in awaiting:
            if not reached.done():
                reached.set_result(None)
        self._note_recovery_point_soon()
        if self._applied - self._snapshot_at >= self.config.snapshot_records:
            self._take_snapshot()

    def _take_snapshot(self) -> None:
        """Write down the state as it is now, while the log goes on."""
        if self._is_taking_snapshot:
            return
        self._is_taking_snapshot = True
        self._snapshot_at = self._applied
        epoch = self.view.epoch_before(self._applied)
        snapshot_id = OffsetAndEpoch(self._applied, epoch)
        batches = encode_snapshot(
            self.quorum.voters.at(self._applied),
            self._machine.dump(),
            epoch=epoch,
            timestamp=self._world.clock.wall_ms(),
        )
        work = write_snapshot(self._world.disk, PATH, snapshot_id, batches)
        self._scope.start(self._save_own(snapshot_id, work), name="quorum takes a snapshot")

    async def _save_own(self, snapshot_id: OffsetAndEpoch, work: Flush) -> None:
        await self._flush(work)
        self.view.snapshot_saved(snapshot_id)
        self._is_taking_snapshot = False
        self._tell(events.SnapshotTaken(snapshot_id))

    async def _save_download(self, snapshot_id: OffsetAndEpoch) -> None:
        await self._flush(Flush(files=(self.view.open_part(snapshot_id),)))
        self._tell(events.SnapshotSaved(snapshot_id))

    def _load(self, snapshot_id: OffsetAndEpoch) -> None:
        snapshot = read_snapshot(self.view.read_part(snapshot_id))
        self.view.load(snapshot_id)
        self._applied = self._snapshot_at = snapshot_id.offset
        self._machine.restore(snapshot.records, self._applied)
        self._events.appendleft(events.SnapshotLoaded(snapshot_id, snapshot.voters))
