"""Who votes, where they listen, and how that changed along the log (KIP-853)."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from moldau.model.ids import DirectoryId, NodeId, Offset

BEFORE_THE_LOG: Final = Offset(-1)


class ReplicaKey(Struct, frozen=True, order=True):
    """A replica by its node and its directory: a node that lost its disk is not the voter it was."""

    node_id: NodeId
    directory_id: DirectoryId


class Endpoint(Struct, frozen=True, order=True):
    """A named listener of a node."""

    name: str
    host: str
    port: int


class Peer(Struct, frozen=True):
    """A node and where to reach it."""

    node_id: NodeId
    endpoint: Endpoint


class Voter(Struct, frozen=True):
    """A replica that votes; peers use the first of its endpoints."""

    key: ReplicaKey
    endpoints: tuple[Endpoint, ...]

    @property
    def peer(self) -> Peer:
        """The voter as somebody to talk to."""
        return Peer(self.key.node_id, self.endpoints[0])


class VoterSet(Struct, frozen=True):
    """The voters at one point of the log, in the order of their ids."""

    voters: tuple[Voter, ...] = ()

    @classmethod
    def of(cls, *voters: Voter) -> VoterSet:
        """A set of voters, each id once."""
        by_id = {voter.key.node_id: voter for voter in voters}
        assert len(by_id) == len(voters), voters
        return cls(tuple(by_id[node_id] for node_id in sorted(by_id)))

    @property
    def majority(self) -> int:
        """How many voters decide."""
        return len(self.voters) // 2 + 1

    @property
    def keys(self) -> tuple[ReplicaKey, ...]:
        """The voters' keys."""
        return tuple(voter.key for voter in self.voters)

    def find(self, node_id: NodeId) -> Voter | None:
        """The voter with this id, whatever its directory."""
        return next((voter for voter in self.voters if voter.key.node_id == node_id), None)

    def others(self, me: ReplicaKey) -> tuple[Voter, ...]:
        """Every voter but one."""
        return tuple(voter for voter in self.voters if voter.key != me)

    def with_voter(self, voter: Voter) -> VoterSet:
        """The set after adding a voter, or giving it other endpoints."""
        return VoterSet.of(*self.others(voter.key), voter)

    def without(self, key: ReplicaKey) -> VoterSet:
        """The set after removing a voter."""
        return VoterSet(self.others(key))


class VoterHistory(Struct, frozen=True):
    """The voter sets that the log holds, each with the offset of its record.

    A set counts from the moment it is appended, so that truncating its record brings back the one before.
    """

    changes: tuple[tuple[Offset, VoterSet], ...] = ()

    @classmethod
    def starting_at(cls, end: Offset, voters: VoterSet) -> VoterHistory:
        """The history of a log that begins where a snapshot with these voters ends."""
        return cls(((Offset(end - 1), voters),))

    @property
    def latest(self) -> VoterSet:
        """The set that counts now."""
        return self.changes[-1][1] if self.changes else VoterSet()

    @property
    def latest_offset(self) -> Offset:
        """Where the set that counts was written."""
        return self.changes[-1][0] if self.changes else BEFORE_THE_LOG

    def at(self, end: Offset) -> VoterSet:
        """The set as the log says it up to, and without, `end`."""
        return VoterHistory(tuple(change for change in self.changes if change[0] < end)).latest

    def in_force(self, committed: Offset) -> tuple[VoterSet, ...]:
        """The last set that is known to be committed, and those after it, which may yet be truncated."""
        return (self.at(committed), *(voters for offset, voters in self.changes if offset >= committed))

    def changed(self, offset: Offset, voters: VoterSet) -> VoterHistory:
        """The history with one more set."""
        assert offset > self.latest_offset, (offset, self.latest_offset)
        return VoterHistory((*self.changes, (offset, voters)))

    def truncated(self, end: Offset) -> VoterHistory:
        """The history of the log cut at `end`."""
        return VoterHistory(tuple(change for change in self.changes if change[0] < end))
