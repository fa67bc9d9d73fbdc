"""A quorum in the simulator that does only what a test tells it to."""

from __future__ import annotations

from collections.abc import Callable

from moldau.node.quorum import QuorumNode
from moldau.node.quorum_files import EMPTY_STATE
from moldau.raft.roles import Leader
from moldau.sim.cluster import Cluster
from moldau.sim.disk import Survives
from moldau.sim.scenarios.raft import Ledger, Plan, Replica
from moldau.world.ports import World


class ToldReplica(Replica):
    """A replica whose client proposes what it is told to, batch by batch."""

    def __init__(self, number: int, plan: Plan, ledger: Ledger) -> None:
        super().__init__(number, plan, ledger)
        self.orders: list[list[int]] = []
        self.world: World | None = None
        """Of its last life."""

    async def propose_values(self, world: World, node: QuorumNode) -> None:
        self.world = world
        while True:
            while self.orders:
                await self.propose(world, node, self.orders.pop(0))
            await world.clock.sleep_ms(1)


class ToldQuorum:
    """A cluster of such replicas, and the checks of the random scenario after every step."""

    def __init__(self, voter_count: int, *, snapshot_records: int = 100_000, seed: int = 1) -> None:
        self.cluster = Cluster(f"told {seed}")
        self.ledger = Ledger()
        plan = Plan(voter_count, 0, EMPTY_STATE, snapshot_records, segment_bytes=1_000_000)
        self.replicas = [ToldReplica(number, plan, self.ledger) for number in range(1, voter_count + 1)]
        for replica in self.replicas:
            self.cluster.add(replica.name, replica.main)
        self.cluster.start_all()

    def __enter__(self) -> ToldQuorum:
        return self

    def __exit__(self, *error: object) -> None:
        self.cluster.close()

    def run_until(self, is_reached: Callable[[], bool], *, timeout_ms: int = 30_000) -> None:
        assert self.cluster.run_until(is_reached, timeout_ms=timeout_ms), "it did not come about"

    def elect(self, *among: ToldReplica) -> ToldReplica:
        """Wait until one of them leads."""
        self.run_until(lambda: any(leads(replica) for replica in among or self.replicas))
        return next(replica for replica in among or self.replicas if leads(replica))

    def others(self, *replicas: ToldReplica) -> list[ToldReplica]:
        return [replica for replica in self.replicas if replica not in replicas]

    def propose(self, replica: ToldReplica, count: int = 1) -> list[int]:
        """Let a replica's client propose new values, in one batch."""
        values = [self.ledger.new_value() for _ in range(count)]
        replica.orders.append(values)
        return values

    def accept(self, replica: ToldReplica, count: int = 1) -> list[int]:
        """The same, and wait until they are acknowledged."""
        values = self.propose(replica, count)
        self.run_until(lambda: values[-1] in self.ledger.acknowledged)
        return values

    def isolate(self, replica: ToldReplica) -> None:
        self.cluster.network.isolate(replica.name)

    def power_cut(self, replica: ToldReplica) -> None:
        """The machine goes dark, and only what was flushed is left."""
        self.cluster.nodes[replica.name].power_cut(Survives.NOTHING)
        replica.node = None

    def start(self, replica: ToldReplica) -> None:
        self.cluster.nodes[replica.name].start()


def leads(replica: ToldReplica) -> bool:
    return replica.node is not None and replica.node.is_open and isinstance(replica.node.quorum.role, Leader)


def applied_by(replica: ToldReplica) -> int:
    return replica.node.applied if replica.node is not None and replica.node.is_open else -1
