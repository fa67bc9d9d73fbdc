"""One broker, with its own controller, that writers, readers and an operator use while everything fails.

What must hold is written down outside of the machines: one value per offset, nothing lost that was committed,
nothing there that was refused, each value once and in order, marks that never go back (`sim.checks`). And
the broker is looked at from within: what it calls committed is flushed, every crash leaves logs that open as
they were (`sim.reopening`), and whatever it keeps in memory has an end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

from moldau.client import NewTopic
from moldau.log import checkpoints
from moldau.log.producers import BATCHES_MAX
from moldau.log.segment import LOG_SUFFIX, PlacedBatch, Segment, file_name
from moldau.model.ids import ClusterId, DirectoryId, TopicName, TopicPartition, Uuid
from moldau.node.config import NodeConfig
from moldau.node.node import Node
from moldau.node.partitions import Replica
from moldau.node.storage import format_directory, standalone_voters
from moldau.sim.checks import History, LogId
from moldau.sim.cluster import EPOCH_MS, Cluster, SimNode
from moldau.sim.disk import SimDisk, Survives
from moldau.sim.faults import ALL_BUT_ROT
from moldau.sim.randomness import Seeded
from moldau.sim.reopening import Promise, check_image, read_topic_id
from moldau.sim.run import Violation
from moldau.sim.workload import Operator, Repeater, Stage, Tailer, Watcher, Writer
from moldau.world.ports import Address, World

BROKER: Final = "broker"
CLIENTS: Final = Address(BROKER, 9092)
CONTROLLERS: Final = Address(BROKER, 9093)
DIRECTORY_ID: Final = DirectoryId(Uuid(bytes(range(16, 32))))
SETTINGS: Final = {
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
    "log.cleaner.backoff.ms": "500",
    # Calendars jump by a day, which must not make a broker forget who has written.
    "producer.id.expiration.ms": "2000000000",
}
CONFIG: Final = NodeConfig.of(SETTINGS)
KEPT: Final = "kept"
TRIMMED: Final = "trimmed"
FLEETING: Final = "fleeting"
AGED: Final = "aged"
COMPACTED: Final = "compacted"
ROTTING: Final = "rotting"
CACHED: Final = "cached"
AGED_MS: Final = 700
NEAR_THE_END: Final = 2**31 - 40
_ANY_OFFSET: Final = 2**63 - 1
_LIMITED: Final = {"max.message.bytes": "1500", "message.timestamp.after.max.ms": str(2**63 - 1)}
_FOR_EVER: Final = {"retention.ms": "-1"}
_SOON_GONE: Final = {"file.delete.delay.ms": "100"}
_OFTEN_COMPACTED: Final = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", **_SOON_GONE}

# What one broker may hold at once with the few clients of a run; about three times what any seed has needed.
TASKS_MAX: Final = 75
CONNECTIONS_MAX: Final = 250
OPERATIONS_PER_STEP_MAX: Final = 500
# The broker is looked at after so many steps, as each look costs about as much as a step.
_STEPS_BETWEEN_LOOKS: Final = 10


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run is about, drawn from its seed."""

    topics: tuple[NewTopic, ...]
    writer_count: int
    repeated_topic: str
    """Into which topic batches are written again and again."""
    repeated_from: tuple[int, int]
    """The producer epoch and sequence number of the first of them."""
    kept_from: int
    """Where the logs of the topic that nobody deletes from begin."""
    stops_ms: tuple[int, ...]
    """When the broker is asked to stop in an orderly way."""
    probes_ms: tuple[int, ...]
    """When it is tried what a power cut would leave."""
    rot_ms: int | None
    """From when on a batch may rot; the broker is restarted then."""
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
        topics += chance.some([topic(TRIMMED, {**_FOR_EVER, **_SOON_GONE})])
        topics += chance.some([topic(FLEETING, {})])
        topics += chance.some([topic(AGED, {"retention.ms": str(AGED_MS), **_SOON_GONE})])
        topics += chance.some([topic(COMPACTED, _OFTEN_COMPACTED)])
        topics += chance.some(chance.some([topic(ROTTING, _FOR_EVER)]))
        if not may_lose_power:
            # What Kafka calls durable is only written, so that a power cut may take it.
            topics += chance.some([topic(CACHED, {**_FOR_EVER, "moldau.durability": "replicated"})])
        names = [topic.name for topic in topics]
        lasting = [name for name in names if name not in (FLEETING, ROTTING)]
        return cls(
            topics=tuple(topics),
            writer_count=chance.between(1, 2),
            # Rather where retention takes what has to be remembered.
            repeated_topic=chance.choice([*lasting, *([AGED] * len(lasting) if AGED in names else [])]),
            repeated_from=chance.choice(((0, 0), (2**15 - 1, 2**31 - 10))),
            kept_from=chance.choice((0, 0, NEAR_THE_END)),
            stops_ms=tuple(chance.between(500, 6_000) for _ in range(chance.below(3))),
            probes_ms=tuple(chance.between(300, 6_000) for _ in range(3)),
            rot_ms=chance.between(2_000, 5_000) if ROTTING in names else None,
            may_lose_power=may_lose_power,
            flush_ms_max=chance.choice((5, 40)),
            blackout_ms=chance.between(500, 5_000) if may_lose_power and chance.chance(0.5) else None,
        )


class BrokerProgram:
    """The program of the broker's machine."""

    def __init__(self, *, kept_from: int = 0, config: NodeConfig = CONFIG) -> None:
        self.config = config
        self.node: Node | None = None
        """The node of the present life, once it serves clients."""
        self.life: tuple[Node, World] | None = None
        """The node of the present life or, until the next one, of the last."""
        self._kept_from = kept_from
        self._main: asyncio.Task[object] | None = None

    def format(self, machine: SimNode) -> None:
        """Make the machine's disk a data directory."""
        format_directory(
            machine.disk,
            self.config,
            cluster_id=ClusterId("simulated"),
            directory_id=DIRECTORY_ID,
            voters=standalone_voters(self.config, DIRECTORY_ID),
            levels={},
            timestamp=EPOCH_MS,
        )

    async def main(self, world: World) -> None:
        """Be a broker until the end of the process."""
        self._main = asyncio.current_task()
        self.node = None
        node = Node(world, self.config)
        self.life = node, world

        def ready() -> None:
            self.node = node
            if self._kept_from:
                self._make_old_logs(world)

        node.on_ready = ready
        await node.run()

    def _make_old_logs(self, world: World) -> None:
        """Let the logs of a topic that is not there yet begin as if much had been deleted from them."""
        assert self.node is not None
        if TopicName(KEPT) in self.node.publisher.view.image.topics:
            return
        try:
            for partition in range(3):
                directory = f"{KEPT}-{partition}"
                world.disk.make_directory(directory)
                world.disk.open(f"{directory}/{file_name(self._kept_from, LOG_SUFFIX)}", create=True).close()
        except OSError:
            # Then they begin like all others.
            return

    def stop(self) -> None:
        """Ask it to stop, as SIGTERM does."""
        if self._main is not None:
            self._main.cancel()


class Broker:
    """One broker and its clients under every fault: nothing committed is lost, doubled or moved."""

    faults: ClassVar[Sequence[str]] = ALL_BUT_ROT
    safety_ms: ClassVar[int] = 6_000
    liveness_ms: ClassVar[int] = 60_000

    def __init__(self) -> None:
        self.history = History()

    def build(self, cluster: Cluster) -> Sequence[str]:
        """The broker, which may be hurt, and its clients, which are hurt through it."""
        self.cluster = cluster
        # The nemesis draws its kinds in the same way, from the same stream.
        kinds = cluster.randomness.fork("nemesis").some(self.faults)
        plan = self.plan = Plan.drawn(cluster.randomness.fork("plan"), may_lose_power="power-cut" in kinds)
        self.program = BrokerProgram(kept_from=plan.kept_from)
        self.machine = cluster.add(BROKER, self.program.main, flush_ms=(0, plan.flush_ms_max))
        self.program.format(self.machine)
        self.machine.on_crashed = self._on_crashed
        self.looker = Looker(self.program)
        self._promises: dict[TopicPartition, Promise] = {}
        self._probe_count = 0
        self._add_clients(plan, has_true_calendar="clock-jump" not in kinds)
        cluster.start_all()
        later = cluster.loop.call_outside
        for stop_ms in plan.stops_ms:
            later(stop_ms * 1_000, self._stop)
        for probe_ms in plan.probes_ms:
            later(probe_ms * 1_000, self._probe)
        if plan.rot_ms is not None:
            later(plan.rot_ms * 1_000, self._rot)
        if plan.blackout_ms is not None:
            later(plan.blackout_ms * 1_000, self._await_blackout)
        return [BROKER]

    def _add_clients(self, plan: Plan, *, has_true_calendar: bool) -> None:
        names = [topic.name for topic in plan.topics]
        history, stage = self.history, Stage([CLIENTS], self.history, plan.topics)
        self.stage = stage
        history.on_deletion(KEPT, plan.kept_from)
        history.compacted[COMPACTED] = None
        if has_true_calendar:
            history.retention_ms[AGED] = AGED_MS
        else:
            history.on_deletion(AGED, _ANY_OFFSET)
        epoch, sequence = plan.repeated_from
        self.watcher = Watcher("watcher", stage, strike=self._strike)
        programs = [
            *(Writer(f"writer{number}", stage, is_idempotent=True) for number in range(plan.writer_count)),
            Writer("writer-plain", stage, is_idempotent=False),
            Repeater("writer-again", stage, plan.repeated_topic, epoch=epoch, sequence=sequence),
            Tailer("tailer", stage, [name for name in names if name not in (FLEETING, AGED, ROTTING)]),
            self.watcher,
            Operator(
                "operator",
                stage,
                fleeting=FLEETING if FLEETING in names else None,
                trimmed=TRIMMED if TRIMMED in names else None,
                growing=KEPT,
            ),
        ]
        for program in programs:
            self.cluster.add(program.name, program.main)

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

    def _rot(self) -> None:
        """Damage a batch that was flushed and is known to be, and restart the broker uncleanly."""
        chance = self.cluster.randomness.fork("rot")
        places = self._places_to_rot()
        if self.stage.is_ending:
            return
        if not places:
            self.cluster.loop.call_outside(200_000, self._rot)
            return
        replica, segment, batch = chance.choice(places)
        damage(self.machine.disk, self.history, replica, segment, batch, chance)
        self.cluster.loop.note("rot", f"{replica.at} at {batch.header.base_offset}", place=BROKER)
        if self.plan.may_lose_power and chance.chance(0.5):
            self.machine.power_cut()
        else:
            self.machine.kill()
        self.cluster.loop.call_outside(chance.between(1, 1_000_000), self._boot)

    def _places_to_rot(self) -> list[tuple[Replica, Segment, PlacedBatch]]:
        node = self.program.node
        if node is None or not self.machine.is_alive:
            return []
        durable = self.machine.disk.crash(Survives.NOTHING)
        known = checkpoints.read_offsets(durable, checkpoints.RECOVERY_POINTS)
        return [
            (replica, segment, batch)
            for replica in node.partitions
            if replica.at.topic == ROTTING
            for segment in replica.log.segments
            for batch in segment.batches_from()
            if batch.header.next_offset <= known.get(replica.at, 0)
        ]

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

    # ------------------------------------------------------------ what a crash leaves

    def _probe(self) -> None:
        """Try two power cuts that do not happen."""
        self._probe_count += 1
        chance = self.cluster.randomness.fork(f"probe {self._probe_count}")
        if self.machine.is_alive:
            for survives in (Survives.SOME, Survives.NOTHING):
                self._check_image(self.machine.disk.crash(survives, chance), survives)

    def _on_crashed(self, image: SimDisk, survives: Survives) -> None:
        self._check_image(image.crash(Survives.EVERYTHING), survives)
        self.program.node = None

    def _check_image(self, image: SimDisk, survives: Survives) -> None:
        assert self.program.life is not None
        node, world = self.program.life
        self._note_promises(node)
        check_image(image, self._promises.values(), world=world, survives=survives)

    def _note_promises(self, node: Node) -> None:
        """What the present life promises, and what an earlier one did of logs that are not open yet."""
        here = {replica.at: Promise.of(replica) for replica in node.partitions if replica.at.topic != ROTTING}
        before = {} if self.program.node is node else self._promises
        still_there = {
            at: promise.after_crash()
            for at, promise in before.items()
            if at not in here and read_topic_id(self.machine.disk, at) == promise.topic_id
        }
        self._promises = {**still_there, **here}

    # ------------------------------------------------------------ phases

    def core(self, cluster: Cluster) -> Sequence[str]:
        """There is only one."""
        return [BROKER]

    def check_step(self) -> None:
        """The history is looked at whenever somebody is told something; the broker now and then."""
        self.looker.check_step(self.machine)

    def heal(self) -> None:
        """No more faults: every program comes to its end."""
        self.history.when_committed = None
        self.stage.is_ending = True

    def is_settled(self) -> bool:
        """Whether all programs are done, and the broker serves and is idle."""
        node = self.program.node
        return not self.stage.unfinished and node is not None and not self.looker.why_busy(node)

    def check_end(self) -> None:
        """Everything that was written is flushed and committed, and nobody is left waiting."""
        assert self.program.node is not None
        self.looker.check(self.program.node)


class Looker:
    """Looks at a broker from within, which no client can."""

    def __init__(self, program: BrokerProgram) -> None:
        self._program = program
        self._steps = 0
        self._operation_count = 0
        self._ends: dict[Replica, tuple[int, int, int]] = {}

    def check_step(self, machine: SimNode) -> None:
        """While clients are served no step may take long; now and then all else is looked at."""
        node, count = self._program.node, machine.disk.operation_count
        done, self._operation_count = count - self._operation_count, count
        if node is None:
            return
        if done > OPERATIONS_PER_STEP_MAX:
            raise Violation(f"the loop stood still for {done} operations on the disk")
        self._steps += 1
        if not self._steps % _STEPS_BETWEEN_LOOKS:
            self.check(node)
            if machine.task_count > TASKS_MAX:
                raise Violation(f"the broker has {machine.task_count} tasks")

    def check(self, node: Node) -> None:
        """What is committed is flushed, nothing goes back, and memory has an end."""
        for replica in node.partitions:
            log, leader = replica.log, replica.leader
            ends = log.log_start_offset, log.last_stable_offset, log.high_watermark
            limit = log.log_end_offset
            if leader is not None and leader.needs_flush_to_commit:
                limit = log.flushed_end_offset
            if [*ends, limit] != sorted((*ends, limit)):
                raise Violation(f"{replica.at} starts, is stable, committed and durable at {ends}, {limit}")
            before = self._ends.get(replica, ends)
            if any(now < then for now, then in zip(ends, before, strict=True)):
                raise Violation(f"{replica.at} starts, is stable and committed at {ends}, after {before}")
            self._ends[replica] = ends
            if any(len(producer.batches) > BATCHES_MAX for producer in log.producers):
                raise Violation(f"{replica.at} keeps more batches than it must know")
        if len(node.server.connections) > CONNECTIONS_MAX:
            raise Violation(f"the broker has {len(node.server.connections)} connections")
        if not 0 <= node.server.unfinished_bytes <= node.server.limits.unfinished_bytes_max:
            raise Violation(f"{node.server.unfinished_bytes} bytes are counted for unfinished requests")

    def why_busy(self, node: Node) -> str | None:
        """What a broker without clients still does that must come to an end."""
        if any(connection.host != BROKER for connection in node.server.connections):
            return "connections are open"
        if node.server.unfinished_bytes:
            return "memory is held for requests"
        for replica in node.partitions:
            if replica.waiting:
                return f"somebody waits for {replica.at}"
            log = replica.log
            if not log.high_watermark == log.flushed_end_offset == log.log_end_offset:
                return f"{replica.at} is not flushed"
        return None


def damage(
    disk: SimDisk, history: History, replica: Replica, segment: Segment, batch: PlacedBatch, chance: Seeded
) -> None:
    """Let a bit of a batch rot, one that its CRC covers or that says how long it is."""
    header = batch.header
    # The offset and the leader epoch come before what the CRC covers: nobody would notice.
    position = chance.choice((*range(8, 12), *range(16, header.size_bytes)))
    path = f"{replica.at}/{file_name(segment.base_offset, LOG_SUFFIX)}"
    disk.flip_bit(path, batch.position + position, bit=chance.below(8))
    log_id = LogId(Uuid(replica.topic_id), replica.at.topic, replica.at.partition)
    history.on_rot(log_id, first=header.base_offset, last=header.last_offset)
