"""The parts that a replica can play, each with exactly what that part needs."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field
from msgspec.structs import replace

from moldau.model.ids import Epoch, Offset
from moldau.raft.log_view import OffsetAndEpoch
from moldau.raft.voters import Peer, ReplicaKey, VoterSet

OBSERVER_FORGOTTEN_AFTER_MS = 300_000


class Ballot(Struct, frozen=True):
    """The votes counted so far."""

    granted: frozenset[ReplicaKey] = frozenset()
    refused: frozenset[ReplicaKey] = frozenset()

    def counting(self, voter: ReplicaKey, *, is_granted: bool) -> Ballot:
        """The ballot with one more vote."""
        if is_granted:
            return replace(self, granted=self.granted | {voter})
        return replace(self, refused=self.refused | {voter})

    def has(self, voter: ReplicaKey) -> bool:
        """Whether this voter has been counted."""
        return voter in self.granted or voter in self.refused

    def is_won(self, voters: VoterSet) -> bool:
        """Whether a majority has granted its vote."""
        return sum(key in self.granted for key in voters.keys) >= voters.majority

    def is_lost(self, voters: VoterSet) -> bool:
        """Whether so many refused that no majority is left."""
        return sum(key in self.refused for key in voters.keys) > len(voters.voters) - voters.majority


class Download(Struct, frozen=True):
    """A snapshot that is being fetched from the leader."""

    snapshot_id: OffsetAndEpoch
    position: int = 0
    is_complete: bool = False


class Unattached(Struct, frozen=True):
    """A voter that knows the epoch and no leader; it stands for election at the deadline."""

    epoch: Epoch
    voted: ReplicaKey | None
    deadline_ms: int


class Prospective(Struct, frozen=True):
    """A voter that asks whether it would be elected before it disturbs anybody with a new epoch (KIP-996)."""

    epoch: Epoch
    voted: ReplicaKey | None
    leader: Peer | None
    ballot: Ballot
    deadline_ms: int


class Candidate(Struct, frozen=True):
    """A voter that has voted for itself and asks the others to do so."""

    epoch: Epoch
    ballot: Ballot
    deadline_ms: int


class Follower(Struct, frozen=True):
    """A voter that fetches from the leader; it loses patience at the deadline."""

    epoch: Epoch
    voted: ReplicaKey | None
    leader: Peer
    deadline_ms: int
    has_fetched: bool = False
    download: Download | None = None


class Observer(Struct, frozen=True):
    """A replica without a vote: fetches from the leader, or asks around for it, `turn` after turn."""

    epoch: Epoch
    voted: ReplicaKey | None
    leader: Peer | None
    deadline_ms: int
    has_fetched: bool = False
    download: Download | None = None
    turn: int = 0


class Resigned(Struct, frozen=True):
    """A voter that led this epoch and does so no more; it tells the others until the deadline."""

    epoch: Epoch
    successors: tuple[ReplicaKey, ...]
    told: frozenset[ReplicaKey]
    deadline_ms: int


class Progress(Struct, frozen=True):
    """How far a replica has flushed, and when it last fetched and last had everything."""

    end_offset: Offset
    fetched_ms: int
    caught_up_ms: int | None


class Leader(Struct, frozen=True):
    """The voter whose log is the log, since `start_offset`."""

    epoch: Epoch
    start_offset: Offset
    since_ms: int
    progress: Mapping[ReplicaKey, Progress] = field(default_factory=dict)

    def heard_from(
        self, replica: ReplicaKey, *, flushed: Offset | None, log_end: Offset, now_ms: int
    ) -> Leader:
        """The leader after a fetch; without `flushed`, one that only showed that the replica is alive."""
        before = self.progress.get(replica)
        # A replica that has lost records must not lend its old progress to a commit: the last word counts.
        end = flushed if flushed is not None else before.end_offset if before else Offset(-1)
        caught_up_ms = now_ms if end >= log_end else before.caught_up_ms if before else None
        return replace(
            self,
            progress={
                **{
                    key: progress
                    for key, progress in self.progress.items()
                    if now_ms - progress.fetched_ms < OBSERVER_FORGOTTEN_AFTER_MS
                },
                replica: Progress(end, now_ms, caught_up_ms),
            },
        )

    def flushed_by_majority(self, voters: VoterSet, me: ReplicaKey, own_flushed: Offset) -> Offset:
        """The offset up to which a majority of voters has flushed; -1 if that is not known."""
        # The leader counts itself as any other voter: by what it has flushed, and only while it has a vote.
        ends = sorted((own_flushed if key == me else self._end_of(key) for key in voters.keys), reverse=True)
        return ends[voters.majority - 1] if ends else Offset(-1)

    def may_commit(self, offset: Offset) -> bool:
        """Whether a majority up to `offset` suffices: only with a record of this epoch in it (Raft 5.4.2)."""
        return offset > self.start_offset

    def alone_since_ms(self, voters: VoterSet, me: ReplicaKey, now_ms: int) -> int:
        """When a majority of voters was last known to follow; now, if the leader is the majority."""
        heard = sorted((now_ms if key == me else self._heard_ms(key) for key in voters.keys), reverse=True)
        return heard[voters.majority - 1] if heard else self.since_ms

    def _end_of(self, key: ReplicaKey) -> Offset:
        progress = self.progress.get(key)
        return progress.end_offset if progress else Offset(-1)

    def _heard_ms(self, key: ReplicaKey) -> int:
        progress = self.progress.get(key)
        return progress.fetched_ms if progress else self.since_ms


Role = Unattached | Prospective | Candidate | Follower | Observer | Leader | Resigned
