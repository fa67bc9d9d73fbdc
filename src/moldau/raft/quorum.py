"""One replica of the metadata quorum: Raft as Kafka speaks it (KIP-595, KIP-853, KIP-996).

Followers pull. A follower's fetch offset is the end of what it has flushed, so the leader learns from the
next fetch what is durable there, and commits what a majority has flushed. A replica that is behind the
leader's log loads a snapshot first. Every rule is in `Quorum.step`; the node carries out the effects that it
returns, in their order and, apart from flushes and messages, before the next step.

One rule covers all that must be durable before others see it: **nothing leaves while the election state on
disk is older than the one in memory.** So a vote is never sent, nor counted for oneself, before it is safe.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from moldau.model.errors import ErrorCode, KafkaError, MalformedMessage
from moldau.model.ids import ClusterId, Epoch, Offset
from moldau.raft import control
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
    Gone,
    LoadSnapshot,
    LogChanged,
    PersistElection,
    ProposalCommitted,
    ProposalRefused,
    ProposalUncertain,
    Proposed,
    Reply,
    ResignationWanted,
    RoleChanged,
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
from moldau.raft.jitter import Jitter
from moldau.raft.log_view import LogView, OffsetAndEpoch
from moldau.raft.messages import (
    UNKNOWN_LEADERSHIP,
    AddVoter,
    BeginEpoch,
    Describe,
    DescribeReply,
    EndEpoch,
    EpochReply,
    Fetch,
    FetchReply,
    FetchSnapshot,
    FetchSnapshotReply,
    Leadership,
    LogRange,
    RemoveVoter,
    ReplicaProgress,
    Request,
    SnapshotRange,
    UpdateVoter,
    Vote,
    VoterChange,
    VoterChangeReply,
    VoteReply,
)
from moldau.raft.messages import Reply as ReplyMessage
from moldau.raft.positions import divergence, end_of_batches, needs_snapshot
from moldau.raft.roles import (
    Ballot,
    Candidate,
    Download,
    Follower,
    Leader,
    Observer,
    Progress,
    Prospective,
    Resigned,
    Role,
    Unattached,
)
from moldau.raft.voters import Endpoint, Peer, ReplicaKey, Voter, VoterHistory, VoterSet
from moldau.wire.records.batch import ControlType

EPOCH_MAX: Final = Epoch(2**31 - 1)


class QuorumBroken(Exception):
    """A peer contradicts what is committed, or there are two leaders: better stopped than wrong."""


class Timing(Struct, frozen=True):
    """How patient a replica is; the names and defaults are those of `controller.quorum.*`."""

    election_timeout_ms: int = 1000
    election_backoff_max_ms: int = 1000
    fetch_timeout_ms: int = 2000
    fetch_wait_ms: int = 500
    fetch_bytes_max: int = 1_048_576
    snapshot_bytes_max: int = 1_048_576
    retry_backoff_ms: int = 20

    @property
    def check_quorum_ms(self) -> int:
        """How long a leader goes on without a majority: longer than a follower goes on without a leader."""
        return self.fetch_timeout_ms * 3 // 2

    @property
    def reminder_ms(self) -> int:
        """How long a voter may not fetch before the leader makes itself known to it again."""
        return self.fetch_timeout_ms // 2


class Identity(Struct, frozen=True):
    """Who this replica is, where it listens, and whom it asks while it knows no voters."""

    cluster_id: ClusterId
    me: Voter
    bootstrap: tuple[Endpoint, ...] = ()


class _Sent(Struct, frozen=True):
    request_id: int
    request: Request


class _ParkedFetch(Struct, frozen=True):
    token: int
    request: Fetch
    until_ms: int


class _Pending(Struct, frozen=True):
    """Something that waits until `end` is committed."""

    token: int
    end: Offset


class Quorum:
    """The decisions of one replica; see the module for the protocol."""

    def __init__(
        self,
        identity: Identity,
        *,
        log: LogView,
        voters: VoterHistory,
        election: ElectionState,
        timing: Timing,
        jitter_seed: int,
        now_ms: int,
    ) -> None:
        self.identity = identity
        self.voters = voters
        self.committed = Offset(max(log.latest_snapshot.offset, log.start_offset))
        self._me = identity.me.key
        self._log = log
        self._timing = timing
        self._jitter = Jitter(jitter_seed)
        self._now_ms = now_ms
        self._saved = election
        self._saving: ElectionState | None = None
        self._effects: list[Effect] = []
        self._outbox: list[Effect] = []
        self._is_log_changing = False
        self._request_ids = 0
        self._sent: dict[Endpoint, _Sent] = {}
        self._not_before_ms: dict[Endpoint, int] = {}
        self._parked: dict[ReplicaKey, _ParkedFetch] = {}
        self._proposals: list[_Pending] = []
        self._voter_change: _Pending | None = None
        self.role = self._role_after_restart(election)

    # ------------------------------------------------------------ what others may know

    @property
    def epoch(self) -> Epoch:
        """The newest epoch that this replica has heard of."""
        return self.role.epoch

    @property
    def leader(self) -> Peer | None:
        """The leader of this epoch, if known."""
        match self.role:
            case Leader():
                return self.identity.me.peer
            case Follower(leader=leader) | Observer(leader=leader) | Prospective(leader=leader):
                return leader
            case Unattached() | Candidate() | Resigned():
                return None

    @property
    def durable_election(self) -> ElectionState:
        """The election state that would survive a power cut; nothing that contradicts it has left."""
        return self._saved

    @property
    def is_voter(self) -> bool:
        """Whether this replica has a vote, as far as its own log says."""
        return self._me in self.voters.latest.keys

    @property
    def may_stand(self) -> bool:
        """Whether this replica takes part in elections: it has a vote, or its removal is not committed.

        Its log may be the only one with the record that removes it. Then nobody else can win, since it
        refuses shorter logs, and it has to lead once more, without counting itself (Raft thesis, 4.2.2).
        """
        return any(self._me in voters.keys for voters in self.voters.in_force(self.committed))

    @property
    def deadline_ms(self) -> int | None:
        """When the next Tick is due, if nothing else happens."""
        return min(self._deadlines(), default=None)

    def _deadlines(self) -> Iterator[int]:
        match self.role:
            case Leader() as role:
                yield self._alone_since_ms(role) + self._timing.check_quorum_ms
            case Observer(leader=None):
                pass
            case Candidate() if self._saving is not None:
                # Its time begins when its vote is on the disk, or a slow disk would have it stand for ever.
                pass
            case role:
                yield role.deadline_ms
        for endpoint, _, due_ms in self._wanted():
            if endpoint not in self._sent:
                yield max(due_ms, self._not_before_ms.get(endpoint, 0))
        yield from (parked.until_ms for parked in self._parked.values())

    # ------------------------------------------------------------ the step

    def step(self, event: Event, now_ms: int) -> list[Effect]:
        """Take in what happened; gives what is to be done, in order."""
        assert now_ms >= self._now_ms, (now_ms, self._now_ms)
        self._now_ms = now_ms
        match event:
            case Tick():
                pass
            case LogChanged():
                self._is_log_changing = False
            case Asked(token, request):
                self._on_request(token, request)
            case Answered(request_id, reply):
                self._on_reply(request_id, reply)
            case Unanswered(request_id):
                self._on_no_reply(request_id)
            case Gone(token):
                self._parked = {key: parked for key, parked in self._parked.items() if parked.token != token}
            case Proposed(token, batch, count):
                self._on_proposal(token, batch, count)
            case Flushed():
                self._commit()
            case ElectionPersisted(state):
                assert state == self._saving, (state, self._saving)
                self._saved, self._saving = state, None
                if isinstance(self.role, Candidate):
                    self.role = replace(self.role, deadline_ms=self._election_deadline_ms())
            case SnapshotSaved(snapshot_id):
                self._on_snapshot_saved(snapshot_id)
            case SnapshotLoaded(snapshot_id, voters):
                self._on_snapshot_loaded(snapshot_id, voters)
            case SnapshotTaken(snapshot_id):
                assert snapshot_id.offset <= self.committed, (snapshot_id, self.committed)
                self._effects.append(Trim(snapshot_id.offset))
            case ResignationWanted():
                if isinstance(self.role, Leader):
                    self._resign(self.role)
        self._advance()
        effects, self._effects = self._effects, []
        return effects

    def _advance(self) -> None:
        """What follows from the state itself: time that ran out, our own vote, requests that are due."""
        self._run_out_of_time()
        self._count_own_vote()
        self._answer_parked()
        self._ask()
        state = self._election_state()
        if state != self._saved and self._saving is None:
            self._saving = state
            self._effects.append(PersistElection(state))
        if state == self._saved:
            self._effects += self._outbox
            self._outbox = []

    def _run_out_of_time(self) -> None:
        now_ms = self._now_ms
        match self.role:
            case Unattached(deadline_ms=deadline_ms) if now_ms >= deadline_ms:
                self._stand(leader=None)
            case Resigned(deadline_ms=deadline_ms) if now_ms >= deadline_ms:
                if self.may_stand:
                    self._stand(leader=None)
                else:
                    self._detach(self.epoch)
            case Prospective(leader=leader, deadline_ms=deadline_ms) if now_ms >= deadline_ms:
                # Back to a leader that we only failed to reach; it may be reachable again.
                if leader is not None:
                    self._follow(self.epoch, leader)
                else:
                    self._stand(leader=None)
            case Candidate(deadline_ms=deadline_ms) if now_ms >= deadline_ms and self._saving is None:
                self._stand(leader=None)
            case Follower(leader=leader, deadline_ms=deadline_ms) if now_ms >= deadline_ms:
                self._stand(leader=leader)
            case Observer(leader=Peer(), deadline_ms=deadline_ms) if now_ms >= deadline_ms:
                self._detach(self.epoch)
            case Leader() as role:
                if now_ms - self._alone_since_ms(role) >= self._timing.check_quorum_ms:
                    self._resign(role)

    def _change_log(self, effect: AppendAsLeader | AppendControl | AppendAsFollower | Truncate) -> None:
        # Until it is carried out the log looks as before, so there is one such effect in a step.
        assert not self._is_log_changing, effect
        self._is_log_changing = True
        self._effects.append(effect)

    def _alone_since_ms(self, role: Leader) -> int:
        return role.alone_since_ms(self.voters.latest, self._me, self._now_ms)

    # ------------------------------------------------------------ changing roles

    def _role_after_restart(self, election: ElectionState) -> Role:
        now_ms = self._now_ms
        leader = self.voters.latest.find(election.leader_id) if election.leader_id is not None else None
        if not self.may_stand:
            return Observer(election.epoch, election.voted, leader.peer if leader else None, now_ms)
        if election.leader_id == self._me.node_id and self.voters.latest.majority > 1:
            # What it appended in this epoch may be lost, so it must not lead it again.
            return self._resigned(election.epoch, successors=())
        if leader is not None and leader.key != self._me:
            deadline_ms = now_ms + self._timing.fetch_timeout_ms
            return Follower(election.epoch, election.voted, leader.peer, deadline_ms)
        # Standing at once disturbs nobody, because of the pre-vote, and a lone voter leads without delay, in
        # a new epoch if it led the old one.
        return Unattached(election.epoch, election.voted, now_ms)

    def _become(self, role: Role) -> None:
        before, leader_before = self.role, self.leader
        assert role.epoch >= before.epoch, (role, before)
        self.role = role
        if (type(before), before.epoch, leader_before) == (type(role), role.epoch, self.leader):
            return
        self._sent.clear()
        self._not_before_ms.clear()
        if isinstance(before, Leader):
            self._stop_leading()
        self._effects.append(RoleChanged(role))

    def _stop_leading(self) -> None:
        for parked in self._parked.values():
            self._reply(parked.token, FetchReply(ErrorCode.NOT_LEADER_OR_FOLLOWER, self._leadership()))
        self._parked.clear()
        self._effects += [ProposalUncertain(proposal.token) for proposal in self._proposals]
        self._proposals.clear()
        if self._voter_change is not None:
            reply = VoterChangeReply(ErrorCode.NOT_LEADER_OR_FOLLOWER, self._leadership())
            self._reply(self._voter_change.token, reply)
            self._voter_change = None

    def _detach(self, epoch: Epoch, *, deadline_ms: int | None = None) -> None:
        """Know the epoch, and no leader."""
        voted = self._election_state().voted if epoch == self.epoch else None
        if not self.may_stand:
            turn = self.role.turn + 1 if isinstance(self.role, Observer) else 0
            self._become(Observer(epoch, voted, None, self._now_ms, turn=turn))
        else:
            deadline_ms = self._election_deadline_ms() if deadline_ms is None else deadline_ms
            self._become(Unattached(epoch, voted, deadline_ms))

    def _follow(self, epoch: Epoch, leader: Peer) -> None:
        voted = self._election_state().voted if epoch == self.epoch else None
        part = Follower if self.may_stand else Observer
        self._become(part(epoch, voted, leader, self._now_ms + self._timing.fetch_timeout_ms))

    def _stand(self, *, leader: Peer | None) -> None:
        """Ask whether we would be elected; our own answer is yes."""
        ballot = Ballot().counting(self._me, is_granted=True)
        voted = self._election_state().voted
        prospective = Prospective(self.epoch, voted, leader, ballot, self._election_deadline_ms())
        self._become(prospective)
        self._sent.clear()
        self._count_pre_votes(prospective)

    def _count_pre_votes(self, role: Prospective) -> None:
        if role.ballot.is_won(self.voters.latest) and role.epoch < EPOCH_MAX:
            epoch = Epoch(role.epoch + 1)
            self._become(Candidate(epoch, Ballot(), self._election_deadline_ms()))
        elif role.ballot.is_lost(self.voters.latest):
            self._step_back(role.leader)

    def _count_votes(self, role: Candidate) -> None:
        if role.ballot.is_won(self.voters.latest):
            self._lead(role)
        elif role.ballot.is_lost(self.voters.latest):
            self._step_back(None)

    def _step_back(self, leader: Peer | None) -> None:
        """Lost: follow the leader that there seems to be, or wait a while before standing again."""
        if leader is not None:
            self._follow(self.epoch, leader)
        else:
            backoff_ms = self._timing.retry_backoff_ms + self._jitter.below(
                self._timing.election_backoff_max_ms
            )
            self._detach(self.epoch, deadline_ms=self._now_ms + backoff_ms)

    def _count_own_vote(self) -> None:
        role = self.role
        if not isinstance(role, Candidate) or role.ballot.has(self._me):
            return
        if self._saved == self._election_state():
            self.role = replace(role, ballot=role.ballot.counting(self._me, is_granted=True))
            self._count_votes(self.role)

    def _lead(self, candidate: Candidate) -> None:
        self._become(Leader(candidate.epoch, self._log.end_offset, self._now_ms))
        # Older records are committed through a record of this epoch, so there must be one at once.
        value = control.leader_change(self._me, self.voters.latest, candidate.ballot)
        self._change_log(AppendControl(candidate.epoch, ControlType.LEADER_CHANGE, value))

    def _resign(self, role: Leader) -> None:
        progress = role.progress
        successors = sorted(
            (voter.key for voter in self.voters.latest.others(self._me) if voter.key in progress),
            key=lambda key: -progress[key].end_offset,
        )
        self._become(self._resigned(role.epoch, successors=tuple(successors)))

    def _resigned(self, epoch: Epoch, *, successors: tuple[ReplicaKey, ...]) -> Resigned:
        return Resigned(epoch, successors, frozenset(), self._election_deadline_ms())

    def _election_deadline_ms(self) -> int:
        timeout_ms = self._timing.election_timeout_ms
        return self._now_ms + timeout_ms + self._jitter.below(timeout_ms)

    def _election_state(self) -> ElectionState:
        role, me = self.role, self._me
        match role:
            case Unattached(epoch, voted):
                return ElectionState(epoch, None, voted)
            case Candidate(epoch):
                return ElectionState(epoch, None, me)
            case Leader(epoch) | Resigned(epoch):
                return ElectionState(epoch, me.node_id, me)
            case (
                Prospective(epoch, voted, leader)
                | Follower(epoch, voted, leader)
                | Observer(epoch, voted, leader)
            ):
                return ElectionState(epoch, leader.node_id if leader else None, voted)

    def _leadership(self) -> Leadership:
        return Leadership(self.epoch, self.leader)

    def _observe(self, leadership: Leadership) -> None:
        """Learn of an epoch or a leader that a peer knows."""
        epoch, leader = leadership.epoch, leadership.leader
        if leader is not None and leader.node_id == self._me.node_id:
            # We led that epoch once; whoever says so has not heard that this is over.
            leader = None
        if epoch > self.epoch:
            if leader is not None:
                self._follow(epoch, leader)
            else:
                self._detach(epoch)
        elif epoch == self.epoch and leader is not None:
            match self.role:
                case Unattached() | Candidate() | Prospective(leader=None) | Observer(leader=None):
                    self._follow(epoch, leader)
                case Leader() | Resigned():
                    raise QuorumBroken(f"node {leader.node_id} claims to lead epoch {epoch}, which is ours")
                case (
                    Follower(leader=known)
                    | Prospective(leader=Peer() as known)
                    | Observer(leader=Peer() as known)
                ):
                    if known.node_id != leader.node_id:
                        raise QuorumBroken(
                            f"epoch {epoch} has two leaders: {known.node_id}, {leader.node_id}"
                        )

    # ------------------------------------------------------------ asking others

    def _wanted(self) -> Iterator[tuple[Endpoint, Request, int]]:
        """Whom to ask what, and from when on; at most one question to each."""
        match self.role:
            case Prospective(ballot=ballot) | Candidate(ballot=ballot):
                for voter in self.voters.latest.others(self._me):
                    if not ballot.has(voter.key):
                        yield voter.endpoints[0], self._vote_for_me(voter.key), 0
            case (
                Follower(leader=leader, download=download)
                | Observer(leader=Peer() as leader, download=download)
            ):
                request = self._next_fetch(download)
                if request is not None:
                    yield leader.endpoint, request, 0
            case Observer(turn=turn):
                places = self._places_to_ask()
                request = self._next_fetch(None)
                if places and request is not None:
                    yield places[turn % len(places)], request, 0
            case Leader(epoch=epoch, progress=progress):
                me = self.identity.me.peer
                for voter in self.voters.latest.others(self._me):
                    known = progress.get(voter.key)
                    due_ms = known.fetched_ms + self._timing.reminder_ms if known else 0
                    begin = BeginEpoch(self.identity.cluster_id, voter.key, epoch, me)
                    yield voter.endpoints[0], begin, due_ms
            case Resigned(epoch=epoch, successors=successors, told=told):
                for voter in self.voters.latest.others(self._me):
                    if voter.key not in told:
                        end = EndEpoch(self.identity.cluster_id, epoch, self._me.node_id, successors)
                        yield voter.endpoints[0], end, 0
            case Unattached():
                pass

    def _places_to_ask(self) -> tuple[Endpoint, ...]:
        """Where somebody may know the leader."""
        voters = tuple(voter.endpoints[0] for voter in self.voters.latest.others(self._me))
        return voters + tuple(place for place in self.identity.bootstrap if place not in voters)

    def _vote_for_me(self, voter: ReplicaKey) -> Vote:
        log_end = OffsetAndEpoch(self._log.end_offset, self._log.last_epoch)
        is_pre_vote = isinstance(self.role, Prospective)
        return Vote(self.identity.cluster_id, voter, self._me, self.epoch, log_end, is_pre_vote)

    def _next_fetch(self, download: Download | None) -> Fetch | FetchSnapshot | None:
        cluster_id, timing = self.identity.cluster_id, self._timing
        if download is not None:
            if download.is_complete:
                return None
            position, size = download.position, timing.snapshot_bytes_max
            return FetchSnapshot(cluster_id, self._me, self.epoch, download.snapshot_id, position, size)
        if self._is_log_changing or self._log.flushed_offset < self._log.end_offset:
            # The fetch offset tells the leader what is durable here, so it waits for the flush.
            return None
        return Fetch(
            cluster_id,
            self._me,
            self.epoch,
            offset=self._log.end_offset,
            last_epoch=self._log.last_epoch,
            wait_ms_max=timing.fetch_wait_ms,
            bytes_max=timing.fetch_bytes_max,
            high_watermark=self.committed,
        )

    def _ask(self) -> None:
        for endpoint, request, due_ms in list(self._wanted()):
            if endpoint in self._sent or self._now_ms < max(due_ms, self._not_before_ms.get(endpoint, 0)):
                continue
            self._request_ids += 1
            self._sent[endpoint] = _Sent(self._request_ids, request)
            self._outbox.append(SendRequest(self._request_ids, endpoint, request))

    def _take_sent(self, request_id: int) -> tuple[Endpoint, Request] | None:
        """What was asked under this id; None if the role for which it was asked is over."""
        for endpoint, sent in self._sent.items():
            if sent.request_id == request_id:
                del self._sent[endpoint]
                return endpoint, sent.request
        return None

    def _on_no_reply(self, request_id: int) -> None:
        sent = self._take_sent(request_id)
        if sent is None:
            return
        self._back_off(sent[0])
        if isinstance(self.role, Observer) and self.role.leader is None:
            self.role = replace(self.role, turn=self.role.turn + 1)

    def _back_off(self, endpoint: Endpoint, pause_ms: int | None = None) -> None:
        self._not_before_ms[endpoint] = self._now_ms + (pause_ms or self._timing.retry_backoff_ms)

    def _on_reply(self, request_id: int, reply: ReplyMessage) -> None:
        sent = self._take_sent(request_id)
        if sent is None:
            return
        endpoint, request = sent
        before = self.role
        if not isinstance(reply, DescribeReply):
            self._observe(reply.leadership)
        if self.role is not before:
            return
        match before, request, reply:
            case ((Prospective() | Candidate()), Vote(voter=voter), VoteReply(error, _, is_granted)):
                self._on_vote_reply(before, voter, endpoint, error, is_granted)
            case ((Follower() | Observer()), Fetch(), FetchReply()):
                self._on_fetched(before, endpoint, reply)
            case ((Follower() | Observer()), FetchSnapshot(), FetchSnapshotReply()):
                self._on_snapshot_piece(before, endpoint, reply)
            case Leader(), BeginEpoch(), EpochReply():
                self._back_off(endpoint, self._timing.reminder_ms)
            case Resigned(told=told), EndEpoch(), EpochReply():
                keys = {voter.key for voter in self.voters.latest.voters if voter.endpoints[0] == endpoint}
                self.role = replace(before, told=told | keys)
            case _:
                self._back_off(endpoint)

    def _on_vote_reply(
        self,
        role: Prospective | Candidate,
        voter: ReplicaKey,
        endpoint: Endpoint,
        error: ErrorCode,
        is_granted: bool,
    ) -> None:
        if error is not ErrorCode.NONE:
            self._back_off(endpoint)
            return
        ballot = role.ballot.counting(voter, is_granted=is_granted)
        if isinstance(role, Prospective):
            self.role = replace(role, ballot=ballot)
            self._count_pre_votes(self.role)
        else:
            self.role = replace(role, ballot=ballot)
            self._count_votes(self.role)

    # ------------------------------------------------------------ following

    def _on_fetched(self, role: Follower | Observer, endpoint: Endpoint, reply: FetchReply) -> None:
        if reply.error is not ErrorCode.NONE or not isinstance(reply.records, bytes):
            self._back_off(endpoint)
            if isinstance(role, Observer) and role.leader is None:
                self.role = replace(role, turn=role.turn + 1)
            return
        self.role = role = self._with_patience(role)
        if reply.snapshot_id is not None:
            if reply.snapshot_id.offset <= self.committed:
                raise QuorumBroken(f"the leader wants {reply.snapshot_id} loaded below {self.committed}")
            self.role = replace(role, download=Download(reply.snapshot_id))
        elif reply.diverging is not None:
            self._truncate_to(reply.diverging)
        else:
            self._append_fetched(endpoint, reply.records, reply.high_watermark)

    def _with_patience(self, role: Follower | Observer) -> Follower | Observer:
        return replace(role, deadline_ms=self._now_ms + self._timing.fetch_timeout_ms, has_fetched=True)

    def _truncate_to(self, diverging: OffsetAndEpoch) -> None:
        """Cut the log where it parts from the leader's, never at the high watermark (KIP-101)."""
        ours = self._log.end_of_epoch(diverging.epoch)
        end = min(ours.offset, diverging.offset) if ours.epoch == diverging.epoch else ours.offset
        if end < self.committed:
            raise QuorumBroken(f"the leader parts from us at {end}, and {self.committed} is committed")
        self._change_log(Truncate(end))
        self._set_voters(self.voters.truncated(end))

    def _append_fetched(self, endpoint: Endpoint, records: bytes, high_watermark: Offset) -> None:
        end = self._log.end_offset
        try:
            next_end = end_of_batches(records, start=end)
            changes = list(control.voter_changes(records))
        except (KafkaError, MalformedMessage):
            self._back_off(endpoint)
            return
        if records:
            self._change_log(AppendAsFollower(records))
        voters = self.voters
        for offset, voter_set in changes:
            voters = voters.changed(offset, voter_set)
        self._advance_committed(Offset(min(high_watermark, next_end)))
        self._set_voters(voters)

    def _set_voters(self, voters: VoterHistory) -> None:
        """Let other voters count, and take the part that they leave us."""
        self.voters = voters
        match self.role:
            case Follower(epoch=epoch, leader=leader) if not self.may_stand:
                self._follow(epoch, leader)
            case Observer(epoch=epoch, leader=Peer() as leader) if self.may_stand:
                self._follow(epoch, leader)

    def _on_snapshot_piece(
        self, role: Follower | Observer, endpoint: Endpoint, reply: FetchSnapshotReply
    ) -> None:
        download = role.download
        if download is None or download.snapshot_id != reply.snapshot_id:
            self._back_off(endpoint)
            return
        is_piece = reply.position == download.position and isinstance(reply.data, bytes)
        if reply.error is not ErrorCode.NONE or not is_piece:
            # The leader has a newer snapshot by now, or is no leader: the next fetch tells.
            self._back_off(endpoint)
            self.role = replace(role, download=None)
            return
        assert isinstance(reply.data, bytes)
        role = self._with_patience(role)
        self._effects.append(WriteSnapshot(download.snapshot_id, download.position, reply.data))
        position = download.position + len(reply.data)
        is_complete = position >= reply.size
        if is_complete:
            self._effects.append(SaveSnapshot(download.snapshot_id))
        elif not reply.data:
            self._back_off(endpoint)
        self.role = replace(role, download=Download(download.snapshot_id, position, is_complete))

    def _on_snapshot_saved(self, snapshot_id: OffsetAndEpoch) -> None:
        # A candidate has shown its log to others, so it must not change any more; only a follower loads.
        match self.role:
            case Follower(download=download) | Observer(download=download):
                if download is not None and download.is_complete and download.snapshot_id == snapshot_id:
                    self._effects.append(LoadSnapshot(snapshot_id))
            case _:
                pass

    def _on_snapshot_loaded(self, snapshot_id: OffsetAndEpoch, voters: VoterSet) -> None:
        match self.role:
            case Follower() | Observer():
                self.role = replace(self._with_patience(self.role), download=None)
            case _:
                raise AssertionError(f"a snapshot was loaded by {self.role}")
        self._advance_committed(snapshot_id.offset)
        self._set_voters(VoterHistory.starting_at(snapshot_id.offset, voters))

    def _advance_committed(self, offset: Offset) -> None:
        if offset > self.committed:
            self.committed = offset
            self._effects.append(Committed(offset))

    # ------------------------------------------------------------ answering others

    def _reply(self, token: int, reply: ReplyMessage) -> None:
        self._outbox.append(Reply(token, reply))

    def _on_request(self, token: int, request: Request) -> None:
        cluster_id = None if isinstance(request, Describe) else request.cluster_id
        is_ours = cluster_id is None or cluster_id == self.identity.cluster_id
        match request:
            case Vote():
                self._reply(token, self._on_vote(request) if is_ours else VoteReply(*_WRONG_CLUSTER))
            case BeginEpoch() | EndEpoch():
                self._reply(token, self._on_epoch(request) if is_ours else EpochReply(*_WRONG_CLUSTER))
            case Fetch():
                if is_ours:
                    self._on_fetch(token, request)
                else:
                    self._reply(token, FetchReply(*_WRONG_CLUSTER))
            case FetchSnapshot():
                if is_ours:
                    self._reply(token, self._on_fetch_snapshot(request))
                else:
                    self._reply(token, FetchSnapshotReply(*_WRONG_CLUSTER, request.snapshot_id))
            case AddVoter() | RemoveVoter() | UpdateVoter():
                if is_ours:
                    self._on_voter_change(token, request)
                else:
                    self._reply(token, VoterChangeReply(*_WRONG_CLUSTER))
            case Describe():
                self._reply(token, self._describe())

    def _on_vote(self, request: Vote) -> VoteReply:
        if request.voter != self._me:
            return VoteReply(ErrorCode.INVALID_VOTER_KEY, self._leadership())
        if request.epoch < self.epoch:
            return VoteReply(ErrorCode.FENCED_LEADER_EPOCH, self._leadership())
        if request.epoch > self.epoch:
            self._detach(request.epoch)
        is_granted = self._would_vote_for(request)
        if is_granted and not request.is_pre_vote:
            self._vote_for(request.candidate)
        return VoteReply(ErrorCode.NONE, self._leadership(), is_granted)

    def _would_vote_for(self, request: Vote) -> bool:
        # Whether we have a vote ourselves does not matter: the candidate may know newer voters than we do.
        theirs, ours = request.log_end, (self._log.last_epoch, self._log.end_offset)
        is_up_to_date = (theirs.epoch, theirs.offset) >= ours
        match self.role:
            case Leader():
                return False
            case Follower(has_fetched=has_fetched) | Observer(leader=Peer(), has_fetched=has_fetched):
                # Whoever has a leader that works helps nobody to replace it.
                return request.is_pre_vote and is_up_to_date and not has_fetched
            case Candidate() | Resigned():
                return request.is_pre_vote and is_up_to_date
            case Unattached(voted=voted) | Prospective(voted=voted) | Observer(voted=voted):
                if request.is_pre_vote:
                    return is_up_to_date
                if voted is not None:
                    return voted == request.candidate
                return is_up_to_date and self.leader is None

    def _vote_for(self, candidate: ReplicaKey) -> None:
        epoch = self.epoch
        self._detach(epoch)
        assert isinstance(self.role, Unattached | Observer), self.role
        self.role = replace(self.role, voted=candidate)

    def _on_epoch(self, request: BeginEpoch | EndEpoch) -> EpochReply:
        if isinstance(request, BeginEpoch) and request.voter != self._me:
            return EpochReply(ErrorCode.INVALID_VOTER_KEY, self._leadership())
        if request.epoch < self.epoch:
            return EpochReply(ErrorCode.FENCED_LEADER_EPOCH, self._leadership())
        match request:
            case BeginEpoch(epoch=epoch, leader=leader):
                self._observe(Leadership(epoch, leader))
            case EndEpoch(epoch=epoch, leader_id=leader_id, successors=successors):
                known = self.leader
                is_over = known is not None and known.node_id == leader_id != self._me.node_id
                if epoch > self.epoch or is_over or isinstance(self.role, Unattached):
                    self._detach(epoch, deadline_ms=self._succession_deadline_ms(successors))
        return EpochReply(ErrorCode.NONE, self._leadership())

    def _succession_deadline_ms(self, successors: tuple[ReplicaKey, ...]) -> int:
        """The most caught-up voter stands at once, the others later in their order."""
        if self._me not in successors:
            return self._election_deadline_ms()
        rank = successors.index(self._me)
        if rank == 0:
            return self._now_ms
        backoff_ms = self._timing.retry_backoff_ms << rank
        return self._now_ms + min(backoff_ms, self._timing.election_backoff_max_ms)

    # ------------------------------------------------------------ leading

    def _leader_for(self, epoch: Epoch) -> Leader | ErrorCode:
        """This replica as the leader of the epoch that a replica names, or why it is not."""
        if epoch < self.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if epoch > self.epoch:
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        return self.role if isinstance(self.role, Leader) else ErrorCode.NOT_LEADER_OR_FOLLOWER

    def _on_fetch(self, token: int, request: Fetch) -> None:
        role = self._leader_for(request.epoch)
        if isinstance(role, ErrorCode):
            self._reply(token, FetchReply(role, self._leadership()))
            return
        log, position = self._log, OffsetAndEpoch(request.offset, request.last_epoch)
        reply = FetchReply(ErrorCode.NONE, self._leadership(), self.committed, log.start_offset)
        flushed = None
        if needs_snapshot(log, position):
            reply = replace(reply, snapshot_id=log.latest_snapshot)
        elif (diverging := divergence(log, position)) is not None:
            reply = replace(reply, diverging=diverging)
        else:
            flushed = request.offset
        if request.replica.node_id >= 0:
            self.role = role.heard_from(
                request.replica, flushed=flushed, log_end=log.end_offset, now_ms=self._now_ms
            )
        if flushed is None:
            self._reply(token, reply)
            return
        before = self._parked.pop(request.replica, None)
        if before is not None:
            # The replica has given up on it, or its connection has broken.
            self._reply(before.token, reply)
        self._parked[request.replica] = _ParkedFetch(token, request, self._now_ms + request.wait_ms_max)
        self._commit()

    def _answer_parked(self) -> None:
        """Answer the fetches that have something to get or to learn, or have waited long enough."""
        log = self._log
        for key, parked in list(self._parked.items()):
            request = parked.request
            # The log may have been trimmed since; the replica finds out with its next fetch.
            has_records = log.start_offset <= request.offset < log.end_offset
            if has_records or request.high_watermark < self.committed or self._now_ms >= parked.until_ms:
                records = LogRange(request.offset, request.bytes_max) if has_records else b""
                leadership = self._leadership()
                reply = FetchReply(
                    ErrorCode.NONE, leadership, self.committed, log.start_offset, records=records
                )
                del self._parked[key]
                self._reply(parked.token, reply)

    def _on_fetch_snapshot(self, request: FetchSnapshot) -> FetchSnapshotReply:
        snapshot_id, position = request.snapshot_id, request.position
        role = self._leader_for(request.epoch)
        if isinstance(role, ErrorCode):
            return FetchSnapshotReply(role, self._leadership(), snapshot_id)
        size = self._log.snapshot_size(snapshot_id)
        if size is None:
            return FetchSnapshotReply(ErrorCode.SNAPSHOT_NOT_FOUND, self._leadership(), snapshot_id)
        if not 0 <= position < size:
            return FetchSnapshotReply(ErrorCode.POSITION_OUT_OF_RANGE, self._leadership(), snapshot_id)
        if request.replica.node_id >= 0:
            log_end = self._log.end_offset
            self.role = role.heard_from(request.replica, flushed=None, log_end=log_end, now_ms=self._now_ms)
        data = SnapshotRange(snapshot_id, position, request.bytes_max)
        return FetchSnapshotReply(ErrorCode.NONE, self._leadership(), snapshot_id, size, position, data)

    def _on_proposal(self, token: int, batch: bytes, count: int) -> None:
        if not isinstance(self.role, Leader):
            self._effects.append(ProposalRefused(token))
            return
        self._proposals.append(_Pending(token, Offset(self._log.end_offset + count)))
        self._change_log(AppendAsLeader(self.role.epoch, batch))

    def _commit(self) -> None:
        role = self.role
        if not isinstance(role, Leader):
            return
        offset = role.flushed_by_majority(self.voters.latest, self._me, self._log.flushed_offset)
        if offset <= self.committed or not role.may_commit(offset):
            return
        self._advance_committed(offset)
        done = [proposal for proposal in self._proposals if proposal.end <= offset]
        self._proposals = self._proposals[len(done) :]
        self._effects += [ProposalCommitted(proposal.token, proposal.end) for proposal in done]
        if self.voters.latest_offset < offset:
            self._on_voters_committed(role)

    def _on_voters_committed(self, role: Leader) -> None:
        if self._voter_change is not None:
            self._reply(self._voter_change.token, VoterChangeReply(ErrorCode.NONE, self._leadership()))
            self._voter_change = None
        if not self.is_voter:
            # It has led until its own removal was committed, and only now may go (KIP-853).
            self._resign(role)

    def _on_voter_change(self, token: int, request: VoterChange) -> None:
        refusal = self._refusal_of(request)
        if refusal is not None:
            self._reply(token, VoterChangeReply(refusal[0], self._leadership(), refusal[1]))
            return
        voters, end = self.voters.latest, self._log.end_offset
        voters = (
            voters.without(request.key)
            if isinstance(request, RemoveVoter)
            else voters.with_voter(request.voter)
        )
        value = control.voters_record(voters)
        self._change_log(AppendControl(self.epoch, ControlType.KRAFT_VOTERS, value))
        self.voters = self.voters.changed(end, voters)
        if isinstance(request, AddVoter) and not request.is_acknowledged_when_committed:
            self._reply(token, VoterChangeReply(ErrorCode.NONE, self._leadership()))
        else:
            self._voter_change = _Pending(token, Offset(end + 1))

    def _refusal_of(self, request: VoterChange) -> tuple[ErrorCode, str] | None:
        role, voters = self.role, self.voters.latest
        if not isinstance(role, Leader):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER, "This node does not lead the quorum."
        # A leader that changes voters before it commits anything may be one of two: Raft's single-server bug.
        if self.committed <= role.start_offset:
            return ErrorCode.REQUEST_TIMED_OUT, "The leader has not committed a record of its epoch yet."
        if self.voters.latest_offset >= self.committed:
            return ErrorCode.REQUEST_TIMED_OUT, "Another change of voters is not committed yet."
        match request:
            case AddVoter(voter=voter):
                return self._refusal_to_add(role, voter)
            case RemoveVoter(key=key):
                if key not in voters.keys:
                    return ErrorCode.VOTER_NOT_FOUND, f"Node {key.node_id} with this directory is no voter."
                if len(voters.voters) == 1:
                    return ErrorCode.INVALID_REQUEST, "The last voter cannot be removed."
            case UpdateVoter(epoch=epoch, voter=voter):
                if epoch != self.epoch:
                    is_old = epoch < self.epoch
                    error = ErrorCode.FENCED_LEADER_EPOCH if is_old else ErrorCode.UNKNOWN_LEADER_EPOCH
                    return error, f"The epoch is {self.epoch}."
                if voter.key not in voters.keys:
                    return ErrorCode.VOTER_NOT_FOUND, f"Node {voter.key.node_id} is no voter."
                if not voter.endpoints:
                    return ErrorCode.INVALID_REQUEST, "A voter needs an endpoint."
        return None

    def _refusal_to_add(self, role: Leader, voter: Voter) -> tuple[ErrorCode, str] | None:
        if not voter.endpoints:
            return ErrorCode.INVALID_REQUEST, "A voter needs an endpoint."
        if self.voters.latest.find(voter.key.node_id) is not None:
            return ErrorCode.DUPLICATE_VOTER, f"Node {voter.key.node_id} is a voter already."
        progress = role.progress.get(voter.key)
        if progress is None or not self._is_caught_up(progress):
            return (
                ErrorCode.REQUEST_TIMED_OUT,
                f"Node {voter.key.node_id} has not caught up with the log yet.",
            )
        return None

    def _is_caught_up(self, progress: Progress) -> bool:
        is_alive = self._now_ms - progress.fetched_ms < self._timing.fetch_timeout_ms
        return is_alive and progress.end_offset >= self.committed

    def _describe(self) -> DescribeReply:
        role = self.role
        if not isinstance(role, Leader):
            return DescribeReply(ErrorCode.NOT_LEADER_OR_FOLLOWER, self._leadership())
        voters = self.voters.latest
        known: dict[ReplicaKey, Progress | None] = dict(role.progress)
        return DescribeReply(
            ErrorCode.NONE,
            self._leadership(),
            self.committed,
            voters=tuple(self._describe_replica(key, known.get(key)) for key in voters.keys),
            observers=tuple(
                self._describe_replica(key, known[key]) for key in sorted(known) if key not in voters.keys
            ),
            nodes=tuple((voter.key.node_id, voter.endpoints) for voter in voters.voters),
        )

    def _describe_replica(self, key: ReplicaKey, progress: Progress | None) -> ReplicaProgress:
        if key == self._me:
            return ReplicaProgress(key, self._log.end_offset, 0, 0)
        if progress is None:
            return ReplicaProgress(key, Offset(-1), None, None)
        caught_up_ms = progress.caught_up_ms
        return ReplicaProgress(
            key,
            progress.end_offset,
            self._now_ms - progress.fetched_ms,
            None if caught_up_ms is None else self._now_ms - caught_up_ms,
        )


_WRONG_CLUSTER: Final = (ErrorCode.INCONSISTENT_CLUSTER_ID, UNKNOWN_LEADERSHIP)
