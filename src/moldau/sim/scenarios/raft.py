"""Quorums of one, three or five voters that agree on numbered values while nodes, disks and links fail.

Voters come and go and snapshots replace the log meanwhile. What must hold is written down outside of the
nodes, in a ledger: one leader per epoch, one vote per voter and epoch, one value per offset, the same state
at the same offset whether it was replayed or restored, and no acknowledged value lost.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

from moldau.model.errors import ErrorCode, KafkaError
from moldau.model.ids import ClusterId, DirectoryId, Epoch, NodeId, Offset, Uuid
from moldau.node.quorum import Change, QuorumConfig, QuorumNode
from moldau.node.quorum_files import EMPTY_STATE, format_quorum
from moldau.node.quorum_log import PATH
from moldau.raft.events import Event
from moldau.raft.log_view import OffsetAndEpoch
from moldau.raft.messages import AddVoter, RemoveVoter, VoterChangeReply
from moldau.raft.quorum import Identity, Timing
from moldau.raft.roles import Leader, Role
from moldau.raft.voters import Endpoint, ReplicaKey, Voter, VoterSet
from moldau.sim.cluster import Cluster, SimNode
from moldau.sim.disk import Survives
from moldau.sim.faults import ALL_BUT_ROT
from moldau.sim.quorum_listener import listen
from moldau.sim.randomness import Seeded
from moldau.sim.run import Violation
from moldau.wire.records.record import Record
from moldau.world.ports import Address, ConnectionLost, DiskFailed, World

PORT: Final = 9093
PAUSE_MS_MAX: Final = 300
CLUSTER_ID: Final = ClusterId("simulated")
NEAR_THE_END: Final = OffsetAndEpoch(Offset(2**31 - 40), Epoch(2**31 - 1_000))
TIMING: Final = Timing(
    election_timeout_ms=300,
    election_backoff_max_ms=300,
    fetch_timeout_ms=600,
    fetch_wait_ms=150,
    fetch_bytes_max=1_000,
    snapshot_bytes_max=200,
)


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run is about, drawn from its seed."""

    voter_count: int
    spare_count: int
    start: OffsetAndEpoch
    snapshot_records: int
    segment_bytes: int
    flush_ms_max: int = 5
    blackout_ms: int | None = None
    """From when on all machines lose power at once, right after a client was told that its value is safe."""

    @classmethod
    def drawn(cls, chance: Seeded) -> Plan:
        """A plan of one seed."""
        return cls(
            voter_count=chance.choice((1, 3, 3, 3, 5)),
            spare_count=chance.choice((0, 0, 1, 2)),
            start=chance.choice((EMPTY_STATE, EMPTY_STATE, NEAR_THE_END)),
            snapshot_records=chance.choice((5, 15, 40, 100_000)),
            segment_bytes=chance.choice((500, 2_000, 1_000_000)),
            flush_ms_max=chance.choice((5, 40)),
            blackout_ms=chance.between(1_000, 6_000) if chance.chance(0.5) else None,
        )


class Ledger:
    """What the nodes have claimed, kept outside of their world; raises at the first contradiction."""

    def __init__(self) -> None:
        self.next_value = 0
        self.leaders: dict[int, str] = {}
        self.votes: dict[tuple[str, int], ReplicaKey] = {}
        self.values: dict[int, int] = {}
        self.offset_of: dict[int, int] = {}
        self.states: dict[int, int] = {}
        self.acknowledged: dict[int, int] = {}
        self.refused: set[int] = set()
        self.is_ending = False
        self.is_accepted_again = False
        self.when_acknowledged: Callable[[], None] | None = None

    def new_value(self) -> int:
        """A value that nobody has proposed."""
        self.next_value += 1
        return self.next_value

    def on_leader(self, name: str, epoch: int) -> None:
        """A node leads an epoch."""
        other = self.leaders.setdefault(epoch, name)
        if other != name:
            raise Violation(f"epoch {epoch} has two leaders, {other} and {name}")

    def on_vote(self, name: str, epoch: int, candidate: ReplicaKey) -> None:
        """A node has voted, in this life or an earlier one."""
        other = self.votes.setdefault((name, epoch), candidate)
        if other != candidate:
            raise Violation(f"{name} voted for {other} and for {candidate} in epoch {epoch}")

    def on_committed(self, name: str, offset: int, value: int) -> None:
        """A node has applied a value."""
        other = self.values.setdefault(offset, value)
        if other != value:
            raise Violation(f"{name} has {value} at offset {offset}, where {other} was committed")
        place = self.offset_of.setdefault(value, offset)
        if place != offset:
            raise Violation(f"{name} has {value} at {offset}, and it was committed at {place}")
        if value in self.refused:
            raise Violation(f"{value} was refused, and {name} has it at offset {offset}")

    def on_state(self, name: str, end: int, digest: int) -> None:
        """A node's state after everything before `end`."""
        other = self.states.setdefault(end, digest)
        if other != digest:
            raise Violation(f"{name} has another state at {end} than the one that was committed")

    def on_acknowledged(self, value: int, end: int) -> None:
        """A client was told that its value is committed and ends at `end`."""
        if self.values.get(end - 1) != value:
            raise Violation(f"{value} was acknowledged at {end - 1}, where {self.values.get(end - 1)} is")
        self.acknowledged[value] = end - 1
        self.is_accepted_again = self.is_ending
        if self.when_acknowledged is not None:
            self.when_acknowledged()

    def on_refused(self, value: int) -> None:
        """A client was told that its value was not written."""
        if value in self.offset_of:
            raise Violation(f"{value} was refused, and is at offset {self.offset_of[value]}")
        self.refused.add(value)


class Values:
    """The state machine: all values in their order."""

    def __init__(self, name: str, ledger: Ledger) -> None:
        self.values: list[int] = []
        self._digest = 0
        self._name = name
        self._ledger = ledger

    def restore(self, records: Sequence[Record], end: Offset) -> None:
        """Begin anew with what a snapshot holds: the same state that a replay has led to."""
        self.values, self._digest = [], 0
        for record in records:
            self._add(record)
        self._ledger.on_state(self._name, end, self._digest)

    def apply(self, records: Sequence[Record], end: Offset) -> None:
        """Take in committed records."""
        for record in records:
            self._ledger.on_committed(self._name, record.offset, self._add(record))
        self._ledger.on_state(self._name, end, self._digest)

    def dump(self) -> Sequence[Record]:
        """The state as records."""
        return [Record(0, 0, None, b"%d" % value) for value in self.values]

    def role_changed(self, role: Role) -> None:
        """The ledger looks at the roles itself."""

    def _add(self, record: Record) -> int:
        assert record.value is not None
        self._digest = zlib.crc32(record.value + b",", self._digest)
        self.values.append(int(record.value))
        return self.values[-1]


class Replica:
    """The program of one node: a replica of the quorum, and a client that proposes through it."""

    def __init__(self, number: int, plan: Plan, ledger: Ledger) -> None:
        self.name = name_of(number)
        self.me = voter(number)
        self.plan = plan
        self.ledger = ledger
        self.node: QuorumNode | None = None
        self.machine = Values(self.name, ledger)
        self._committed_before = Offset(-1)

    async def main(self, world: World) -> None:
        """Take part until the end of the process."""
        self.node = None
        try:
            world.disk.lock()
            if self.me in first_voters(self.plan).voters:
                voters, start = first_voters(self.plan), self.plan.start
                format_quorum(world.disk, PATH, voters, start=start, timestamp=0)
        except OSError as error:
            raise DiskFailed("cannot start") from error
        bootstrap = tuple(each.endpoints[0] for each in first_voters(self.plan).others(self.me.key))
        self.machine = Values(self.name, self.ledger)
        config = QuorumConfig(
            timing=TIMING,
            request_timeout_ms=500,
            snapshot_records=self.plan.snapshot_records,
            segment_bytes=self.plan.segment_bytes,
        )
        node = WatchedNode(world, Identity(CLUSTER_ID, self.me, bootstrap), self.machine, config)
        node.replica = self
        async with world.tasks.scope() as scope:
            scope.start(self.propose_values(world, node), name=f"{self.name} proposes")
            if self.plan.spare_count:
                scope.start(self.change_voters(world, node), name=f"{self.name} changes voters")
            self._committed_before = Offset(-1)
            self.node = node
            scope.start(node.run(), name=f"{self.name} takes part")
            await listen(world, Address(self.name, PORT), node, scope)
            await asyncio.get_running_loop().create_future()

    async def propose_values(self, world: World, node: QuorumNode) -> None:
        """One value after the other, until the faults are over and one has come through since."""
        while not self.ledger.is_accepted_again:
            await world.clock.sleep_ms(world.randomness.below(PAUSE_MS_MAX))
            await self.propose(
                world, node, [self.ledger.new_value() for _ in range(1 + world.randomness.below(3))]
            )

    async def propose(self, world: World, node: QuorumNode, values: Sequence[int]) -> None:
        """Propose values and note what became of them: committed, refused, or unknown."""
        try:
            async with world.clock.timeout_ms(3_000):
                end = await node.propose([Change(None, b"%d" % value) for value in values])
        except TimeoutError:
            return
        except KafkaError as error:
            if error.code is ErrorCode.NOT_CONTROLLER:
                for value in values:
                    self.ledger.on_refused(value)
            return
        for place, value in enumerate(values):
            self.ledger.on_acknowledged(value, end - len(values) + place + 1)

    async def change_voters(self, world: World, node: QuorumNode) -> None:
        """Add a node or take one away now and then, through whoever leads."""
        everybody = [voter(number) for number in range(1, self.plan.voter_count + self.plan.spare_count + 1)]
        while not self.ledger.is_ending:
            await world.clock.sleep_ms(200 + world.randomness.below(800))
            leader = node.quorum.leader if node.is_open else None
            if leader is None or leader.node_id != self.me.key.node_id:
                continue
            target = everybody[world.randomness.below(len(everybody))]
            is_in = target.key in node.quorum.voters.latest.keys
            if is_in and len(node.quorum.voters.latest.voters) <= max(1, self.plan.voter_count - 1):
                continue
            request = RemoveVoter(CLUSTER_ID, target.key) if is_in else AddVoter(CLUSTER_ID, target)
            try:
                reply = await node.ask(leader.endpoint, request)
            except ConnectionLost:
                continue
            assert isinstance(reply, VoterChangeReply)

    def check(self) -> None:
        """What can be seen of this node from outside."""
        assert self.node is not None
        quorum, before = self.node.quorum, self._committed_before
        if isinstance(quorum.role, Leader):
            self.ledger.on_leader(self.name, quorum.epoch)
        election = quorum.durable_election
        if election.voted is not None:
            self.ledger.on_vote(self.name, election.epoch, election.voted)
        if quorum.committed < before:
            raise Violation(f"{self.name} took {before} for committed, and now {quorum.committed}")
        self._committed_before = quorum.committed


class WatchedNode(QuorumNode):
    """A node that is looked at after every step of its core, before anybody hears of it."""

    replica: Replica

    def _step(self, event: Event) -> None:
        super()._step(event)
        self.replica.check()


class Raft:
    """Quorums of 1, 3 or 5 voters, whose voters change, under every fault but rot."""

    faults: ClassVar[Sequence[str]] = ALL_BUT_ROT
    safety_ms: ClassVar[int] = 8_000
    liveness_ms: ClassVar[int] = 60_000
    replica_class: ClassVar[type[Replica]] = Replica

    def __init__(self) -> None:
        self.ledger = Ledger()
        self.replicas: dict[str, Replica] = {}

    def build(self, cluster: Cluster) -> Sequence[str]:
        """The voters of the seed's plan, and spare nodes that may become voters."""
        self.cluster = cluster
        self.plan = Plan.drawn(cluster.randomness.fork("plan"))
        for number in range(1, self.plan.voter_count + self.plan.spare_count + 1):
            replica = self.replica_class(number, self.plan, self.ledger)
            self.replicas[replica.name] = replica
            cluster.add(replica.name, replica.main, flush_ms=(0, self.plan.flush_ms_max))
        cluster.start_all()
        if self.plan.blackout_ms is not None:
            cluster.loop.call_outside(self.plan.blackout_ms * 1_000, self._await_blackout)
        return list(self.replicas)

    def _await_blackout(self) -> None:
        def black_out() -> None:
            self.ledger.when_acknowledged = None
            self.cluster.loop.call_outside(0, self._black_out)

        self.ledger.when_acknowledged = black_out

    def _black_out(self) -> None:
        chance = self.cluster.randomness.fork("blackout")
        for node in self.cluster.nodes.values():
            node.power_cut(chance.choice((Survives.SOME, Survives.NOTHING)))
            self.cluster.loop.call_outside(chance.between(1, 1_000_000), self._boot, node)

    def _boot(self, node: SimNode) -> None:
        if not node.is_alive:
            node.start()

    def core(self, cluster: Cluster) -> Sequence[str]:
        """All nodes, or any majority where the voters stay the same."""
        chance = cluster.randomness.fork("core")
        names = list(self.replicas)
        if not self.plan.spare_count:
            majority = len(names) // 2 + 1
            names = sorted(chance.shuffled(names)[: chance.between(majority, len(names))])
        self._core = [self.replicas[name] for name in names]
        return names

    def check_step(self) -> None:
        """Nothing is left to check: a replica changes only in steps of its core, and is looked at in each."""

    def heal(self) -> None:
        """No more faults: clients come to an end."""
        self.ledger.when_acknowledged = None
        self.ledger.is_ending = True

    def is_settled(self) -> bool:
        """Whether values are accepted again, nobody waits, and all replicas have come to the same end."""
        if not self.ledger.is_accepted_again:
            return False
        nodes = [replica.node for replica in self._core if replica.node is not None and replica.node.is_open]
        if len(nodes) < len(self._core):
            return False
        ends = {(node.applied, node.view.end_offset, node.quorum.epoch) for node in nodes}
        return len(ends) == 1 and all(node.applied == node.view.end_offset for node in nodes)

    def check_end(self) -> None:
        """Every acknowledged value is in every replica's state, and no refused one."""
        for replica in self._core:
            present = set(replica.machine.values)
            lost = [value for value in self.ledger.acknowledged if value not in present]
            if lost:
                raise Violation(f"{replica.name} has lost {lost}, which were acknowledged")
            if present & self.ledger.refused:
                raise Violation(f"{replica.name} has {present & self.ledger.refused}, which were refused")


def name_of(number: int) -> str:
    """What a node is called."""
    return f"node{number}"


def voter(number: int) -> Voter:
    """A node as a voter."""
    directory_id = DirectoryId(Uuid((1_000 + number).to_bytes(16, "big")))
    return Voter(ReplicaKey(NodeId(number), directory_id), (Endpoint("CONTROLLER", name_of(number), PORT),))


def first_voters(plan: Plan) -> VoterSet:
    """The voters that a quorum is formatted with."""
    return VoterSet.of(*(voter(number) for number in range(1, plan.voter_count + 1)))
