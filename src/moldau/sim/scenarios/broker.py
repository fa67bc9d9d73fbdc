"""One broker, with its own controller, that writers, readers and an operator use while everything fails.

What must hold is written down outside of the machines: one value per offset, nothing lost that was committed,
nothing there that was refused, each value once and in order, marks that never go back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

from moldau.client import NewTopic
from moldau.model.ids import ClusterId, DirectoryId, Uuid
from moldau.node.config import NodeConfig
from moldau.node.node import Node
from moldau.node.storage import format_directory, standalone_voters
from moldau.sim.checks import History
from moldau.sim.cluster import EPOCH_MS, Cluster, SimNode
from moldau.sim.disk import Survives
from moldau.sim.faults import ALL_BUT_ROT
from moldau.sim.randomness import Seeded
from moldau.sim.run import Violation
from moldau.sim.workload import Operator, Stage, Tailer, Watcher, Writer
from moldau.world.ports import Address, World

BROKER: Final = "broker"
CLIENTS: Final = Address(BROKER, 9092)
CONTROLLERS: Final = Address(BROKER, 9093)
DIRECTORY_ID: Final = DirectoryId(Uuid(bytes(range(16, 32))))
CONFIG: Final = NodeConfig.of(
    {
        "process.roles": "broker,controller",
        "node.id": "1",
        "listeners": f"PLAINTEXT://{CLIENTS},CONTROLLER://{CONTROLLERS}",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": str(CONTROLLERS),
        "log.dirs": "data",
        "controller.quorum.election.timeout.ms": "100",
        "controller.quorum.election.backoff.max.ms": "100",
        "broker.heartbeat.interval.ms": "200",
        # Often enough to meet faults within the few seconds of a run.
        "replica.high.watermark.checkpoint.interval.ms": "400",
        "log.retention.check.interval.ms": "300",
        # Calendars jump by a day, which must not make a broker forget who has written.
        "producer.id.expiration.ms": "2000000000",
    }
)
KEPT: Final = "kept"
TRIMMED: Final = "trimmed"
FLEETING: Final = "fleeting"
AGED: Final = "aged"
CACHED: Final = "cached"
_ANY_OFFSET: Final = 2**63 - 1
_LIMITED: Final = {"max.message.bytes": "1500", "message.timestamp.after.max.ms": str(2**63 - 1)}
_FOR_EVER: Final = {"retention.ms": "-1"}


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run is about, drawn from its seed."""

    topics: tuple[NewTopic, ...]
    writer_count: int
    stops_ms: tuple[int, ...]
    """When the broker is asked to stop in an orderly way."""
    may_lose_power: bool
    flush_ms_max: int
    blackout_ms: int | None
    """From when on the broker loses power right after a writer was told that its value is safe."""

    @classmethod
    def drawn(cls, chance: Seeded, *, may_lose_power: bool) -> Plan:
        """A plan of one seed."""

        def topic(name: str, configs: dict[str, str]) -> NewTopic:
            segment_ms = {"segment.ms": str(chance.choice((30, 300, 3_000, 100_000)))}
            return NewTopic(name, chance.between(1, 3), 1, {**_LIMITED, **segment_ms, **configs})

        topics = [topic(KEPT, _FOR_EVER)]
        topics += chance.some([topic(TRIMMED, {**_FOR_EVER, "file.delete.delay.ms": "100"})])
        topics += chance.some([topic(FLEETING, {})])
        topics += chance.some([topic(AGED, {"retention.ms": "700", "file.delete.delay.ms": "100"})])
        if not may_lose_power:
            # What Kafka calls durable is only written, so that a power cut may take it.
            topics += chance.some([topic(CACHED, {**_FOR_EVER, "moldau.durability": "replicated"})])
        return cls(
            topics=tuple(topics),
            writer_count=chance.between(1, 2),
            stops_ms=tuple(chance.between(500, 6_000) for _ in range(chance.below(3))),
            may_lose_power=may_lose_power,
            flush_ms_max=chance.choice((5, 40)),
            blackout_ms=chance.between(500, 5_000) if may_lose_power and chance.chance(0.5) else None,
        )


class BrokerProgram:
    """The program of the broker's machine."""

    def __init__(self) -> None:
        self.node: Node | None = None
        """The node of the present life, once it serves clients."""
        self._main: asyncio.Task[object] | None = None

    def format(self, machine: SimNode) -> None:
        """Make the machine's disk a data directory."""
        format_directory(
            machine.disk,
            CONFIG,
            cluster_id=ClusterId("simulated"),
            directory_id=DIRECTORY_ID,
            voters=standalone_voters(CONFIG, DIRECTORY_ID),
            levels={},
            timestamp=EPOCH_MS,
        )

    async def main(self, world: World) -> None:
        """Be a broker until the end of the process."""
        self._main = asyncio.current_task()
        self.node = None
        node = Node(world, CONFIG)

        def ready() -> None:
            self.node = node

        node.on_ready = ready
        await node.run()

    def stop(self) -> None:
        """Ask it to stop, as SIGTERM does."""
        if self._main is not None:
            self._main.cancel()


class Broker:
    """One broker and its clients under every fault but rot: nothing committed is lost, doubled or moved."""

    faults: ClassVar[Sequence[str]] = ALL_BUT_ROT
    safety_ms: ClassVar[int] = 6_000
    liveness_ms: ClassVar[int] = 60_000

    def __init__(self) -> None:
        self.history = History()
        self.program = BrokerProgram()

    def build(self, cluster: Cluster) -> Sequence[str]:
        """The broker, which may be hurt, and its clients, which are hurt through it."""
        self.cluster = cluster
        # The nemesis draws its kinds in the same way, from the same stream.
        kinds = cluster.randomness.fork("nemesis").some(self.faults)
        plan = self.plan = Plan.drawn(cluster.randomness.fork("plan"), may_lose_power="power-cut" in kinds)
        self.machine = cluster.add(BROKER, self.program.main, flush_ms=(0, plan.flush_ms_max))
        self.program.format(self.machine)
        names = [topic.name for topic in plan.topics]
        self.stage = Stage([CLIENTS], self.history, plan.topics)
        if AGED in names:
            self.history.on_deletion(AGED, _ANY_OFFSET)
        writers = [
            Writer(f"writer{number}", self.stage, is_idempotent=True) for number in range(plan.writer_count)
        ]
        self.watcher = Watcher("watcher", self.stage, strike=self._strike)
        programs = [
            *writers,
            Writer("writer-plain", self.stage, is_idempotent=False),
            Tailer("tailer", self.stage, [name for name in names if name not in (FLEETING, AGED)]),
            self.watcher,
            Operator(
                "operator",
                self.stage,
                fleeting=FLEETING if FLEETING in names else None,
                trimmed=TRIMMED if TRIMMED in names else None,
                growing=KEPT,
            ),
        ]
        for program in programs:
            cluster.add(program.name, program.main)
        cluster.start_all()
        for stop_ms in plan.stops_ms:
            cluster.loop.call_outside(stop_ms * 1_000, self._stop)
        if plan.blackout_ms is not None:
            cluster.loop.call_outside(plan.blackout_ms * 1_000, self._await_blackout)
        return [BROKER]

    # ------------------------------------------------------------ trouble of its own

    def _stop(self) -> None:
        if self.machine.is_alive:
            self.cluster.loop.note("asked to stop", place=BROKER)
            self.program.stop()

    def _await_blackout(self) -> None:
        def black_out() -> None:
            self.history.when_committed = None
            self.cluster.loop.call_outside(0, self._lose_power)

        self.history.when_committed = black_out

    def _lose_power(self) -> None:
        chance = self.cluster.randomness.fork("blackout")
        self.machine.power_cut(chance.choice((Survives.SOME, Survives.NOTHING)))
        self.cluster.loop.call_outside(chance.between(1, 1_000_000), self._boot)

    def _boot(self) -> None:
        if not self.machine.is_alive:
            self.machine.start()

    def _strike(self) -> None:
        """The last crash, when everything has been read."""
        chance = self.cluster.randomness.fork("last crash")
        crashes: list[Callable[[], None]] = [self.machine.kill, self._stop]
        if self.plan.may_lose_power:
            crashes.append(lambda: self.machine.power_cut(Survives.NOTHING))
            crashes.append(lambda: self.machine.power_cut(Survives.SOME))

        def crash() -> None:
            if self.machine.is_alive:
                chance.choice(crashes)()
                self.cluster.loop.call_outside(1_000, self._boot_after_end)
            else:
                self.cluster.loop.call_outside(10_000, crash)

        self.cluster.loop.call_outside(0, crash)

    def _boot_after_end(self) -> None:
        """Start it once it is gone; an orderly stop takes its time."""
        if self.machine.is_alive:
            self.cluster.loop.call_outside(1_000, self._boot_after_end)
        else:
            self.machine.start()
            self.watcher.has_struck = True

    # ------------------------------------------------------------ phases

    def core(self, cluster: Cluster) -> Sequence[str]:
        """There is only one."""
        return [BROKER]

    def check_step(self) -> None:
        """The history is looked at whenever somebody is told something."""

    def heal(self) -> None:
        """No more faults: every program comes to its end."""
        self.history.when_committed = None
        self.stage.is_ending = True

    def is_settled(self) -> bool:
        """Whether all programs are done, and the broker serves."""
        return not self.stage.unfinished and self.program.node is not None

    def check_end(self) -> None:
        """Nobody is left waiting in a broker whose clients are gone."""
        node = self.program.node
        assert node is not None
        for replica in node.partitions:
            if replica.waiting:
                raise Violation(f"somebody waits for {replica.at}, and nobody is connected")
