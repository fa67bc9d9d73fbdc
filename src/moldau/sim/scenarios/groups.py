"""Readers that share a topic as one group, of either protocol and of both at once, while everything fails.

What must hold is written down outside of the machines (`sim.group_checks`): no partition is read by two
members of the group, nobody skips a record, what was committed is where the next one goes on, and no commit
is taken back. In the end everything that was acknowledged was read, and all of it is committed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

from moldau.client import NewTopic
from moldau.client.settings import SettingValue
from moldau.coordinator.group.classic.group import ClassicGroup
from moldau.coordinator.group.consumer.group import ConsumerGroup
from moldau.coordinator.group.shard import GroupShard
from moldau.model.ids import TopicPartition
from moldau.node.config import NodeConfig
from moldau.sim.checks import History
from moldau.sim.cluster import Cluster
from moldau.sim.disk import SimDisk, Survives
from moldau.sim.faults import ALL_BUT_ROT
from moldau.sim.group_checks import GroupHistory
from moldau.sim.randomness import Seeded
from moldau.sim.readers import SESSION_TIMEOUT_MS, OffsetWatcher, Reader, Reading
from moldau.sim.run import Violation
from moldau.sim.scenarios.broker import BROKER, CLIENTS, SETTINGS, BrokerProgram, Looker
from moldau.sim.workload import Operator, Stage, Writer

GROUP: Final = "readers"
TOPIC: Final = "shared"
PARTITIONS_MAX: Final = 4
READERS_MAX: Final = 4
CONFIG: Final = NodeConfig.of(
    {
        **SETTINGS,
        "offsets.topic.num.partitions": "1",
        # Loading takes its time, so that others come in between.
        "offsets.load.buffer.size": "1",
        # Rolls and compactions, so that what is loaded is what they have left.
        "log.roll.ms": "700",
        "log.cleaner.min.cleanable.ratio": "0.01",
        "log.segment.delete.delay.ms": "100",
        # Calendars jump by a day, which must not make a group forget where it was.
        "offsets.retention.minutes": "20000000",
        "group.initial.rebalance.delay.ms": "100",
        "group.min.session.timeout.ms": "100",
        "group.consumer.min.session.timeout.ms": "100",
        "group.consumer.session.timeout.ms": str(SESSION_TIMEOUT_MS),
        "group.consumer.min.heartbeat.interval.ms": "50",
        "group.consumer.heartbeat.interval.ms": "200",
        "group.consumer.assignment.interval.ms": "0",
    }
)
# A look at who reads what costs little, and nothing changes in most steps.
_STEPS_BETWEEN_LOOKS: Final = 20

# Calendars jump, which must not make a record one of another time.
_KEPT: Final = {"retention.ms": "-1", "message.timestamp.after.max.ms": str(2**63 - 1)}

Protocol = Mapping[str, SettingValue]

NEW: Final[Protocol] = {"group.protocol": "consumer"}
EAGER: Final[Protocol] = {"group.protocol": "classic", "partition.assignment.strategy": "range"}
COOPERATIVE: Final[Protocol] = {
    "group.protocol": "classic",
    "partition.assignment.strategy": "cooperative-sticky",
}
# Which readers may meet in a group: those of one protocol, or a group that is moved to and fro under way.
MIXTURES: Final[Sequence[Sequence[Protocol]]] = (
    [NEW],
    [{**NEW, "group.remote.assignor": "range"}, NEW],
    [EAGER],
    [COOPERATIVE],
    [NEW, EAGER],
    [NEW, COOPERATIVE],
)


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run is about, drawn from its seed."""

    topic: NewTopic
    protocols: Sequence[Protocol]
    static_count: int
    reader_count: int
    lives_ms_max: int
    grows: bool
    flush_ms_max: int
    blackout_ms: int | None
    """From when on the broker loses power right after a reader was told that its commit is done."""

    @classmethod
    def drawn(cls, chance: Seeded) -> Plan:
        """A plan of one seed."""
        reader_count = chance.between(2, READERS_MAX)
        return cls(
            topic=NewTopic(TOPIC, chance.between(1, PARTITIONS_MAX), 1, _KEPT),
            protocols=chance.choice(MIXTURES),
            static_count=chance.below(reader_count + 1) if chance.chance(0.5) else 0,
            reader_count=reader_count,
            lives_ms_max=chance.choice((1_500, 5_000, 60_000)),
            grows=chance.chance(0.3),
            flush_ms_max=chance.choice((5, 40)),
            blackout_ms=chance.between(500, 6_000) if chance.chance(0.5) else None,
        )


class Groups:
    """A group whose members speak either protocol, under every fault: nothing is skipped or read by two."""

    faults: ClassVar[Sequence[str]] = ALL_BUT_ROT
    safety_ms: ClassVar[int] = 8_000
    liveness_ms: ClassVar[int] = 60_000

    def __init__(self) -> None:
        self.written = History()

    def build(self, cluster: Cluster) -> Sequence[str]:
        """The broker and the readers, who may be hurt, and those who write and watch."""
        self.cluster = cluster
        plan = self.plan = Plan.drawn(cluster.randomness.fork("plan"))
        self.program = BrokerProgram(config=CONFIG)
        self.machine = cluster.add(BROKER, self.program.main, flush_ms=(0, plan.flush_ms_max))
        self.program.format(self.machine)
        self.machine.on_crashed = self._on_crashed
        self.looker = Looker(self.program)
        self.history = GroupHistory(self._is_member)
        self.stage = Stage([CLIENTS], self.written, [plan.topic])
        self.reading = Reading(
            group_id=GROUP,
            topic=TOPIC,
            history=self.history,
            protocols=plan.protocols,
            lives_ms_max=plan.lives_ms_max,
            is_over=self._is_over,
            now_us=lambda: cluster.loop.now_us,
        )
        self.watcher = OffsetWatcher("watcher", self.stage, self.reading, strike=self._strike)
        self.readers = [self._reader(number) for number in range(plan.reader_count)]
        self.writer = Writer("writer", self.stage, is_idempotent=True)
        growing = TOPIC if plan.grows else None
        operator = Operator("operator", self.stage, fleeting=None, trimmed=None, growing=growing)
        for program in (*self.readers, self.writer, operator, self.watcher):
            machine = cluster.add(program.name, program.main)
            if isinstance(program, Reader):
                machine.on_crashed = program.on_crashed
        self._steps = 0
        cluster.start_all()
        if plan.blackout_ms is not None:
            cluster.loop.call_outside(plan.blackout_ms * 1_000, self._await_blackout)
        return [BROKER, *(reader.name for reader in self.readers)]

    def _reader(self, number: int) -> Reader:
        instance_id = f"instance{number}" if number < self.plan.static_count else ""
        return Reader(f"reader{number}", self.stage, self.reading, instance_id=instance_id)

    # ------------------------------------------------------------ what the group says

    def _is_member(self, life: str) -> bool | None:
        """Whether the group counts a reader among its members; None if there is nobody who could say."""
        consumer = next((reader.consumer for reader in self.readers if reader.life == life), None)
        shard = None if self.program.node is None else self.program.node.groups.shard_of(GROUP)
        if consumer is None or shard is None:
            return None
        assert isinstance(shard, GroupShard)
        group = shard.state.groups.get(GROUP)
        if not isinstance(group, ClassicGroup | ConsumerGroup):
            return False
        return consumer.member_id in group.members

    def _on_crashed(self, image: SimDisk, survives: Survives) -> None:
        self.program.node = None

    # ------------------------------------------------------------ trouble of its own

    def _await_blackout(self) -> None:
        def black_out() -> None:
            self.history.when_committed = None
            self.cluster.loop.call_outside(0, self._lose_power)

        self.history.when_committed = black_out

    def _lose_power(self) -> None:
        chance = self.cluster.randomness.fork("blackout")
        self.machine.power_cut(Survives.NOTHING)
        self.cluster.loop.call_outside(chance.between(1, 1_000_000), self._boot)

    def _boot(self) -> None:
        if not self.machine.is_alive:
            self.machine.start()

    # ------------------------------------------------------------ the end

    def _is_over(self) -> bool:
        """Whether all that was written is read, and committed."""
        if not self.stage.is_ending or self.writer.name in self.stage.unfinished:
            return False
        ends = self._ends()
        return bool(ends) and all(
            self.watcher.committed.get(place, 0) == end and not self._unread(place)
            for place, end in ends.items()
        )

    def _ends(self) -> dict[TopicPartition, int]:
        node = self.program.node
        if node is None:
            return {}
        return {
            replica.at: replica.log.high_watermark for replica in node.partitions if replica.at.topic == TOPIC
        }

    def _unread(self, place: TopicPartition) -> list[int]:
        acknowledged = [
            offset
            for log_id, log in self.written.logs.items()
            if (log_id.topic, log_id.partition) == (place.topic, place.partition)
            for offset in log.acknowledged.values()
        ]
        return self.history.unread(place, acknowledged)

    def _strike(self) -> None:
        """The last crash, when everything is committed."""

        def crash() -> None:
            self.machine.power_cut(Survives.NOTHING)
            self.cluster.loop.call_outside(1_000, boot)

        def boot() -> None:
            self.machine.start()
            self.watcher.has_struck = True

        self.cluster.loop.call_outside(0, crash)

    # ------------------------------------------------------------ phases

    def core(self, cluster: Cluster) -> Sequence[str] | None:
        """All of them: whoever does not come back leaves the rest to the others when its session is over."""
        chance = cluster.randomness.fork("core")
        survivors = chance.some([reader.name for reader in self.readers])
        return [BROKER, *(survivors or [self.readers[0].name])]

    def check_step(self) -> None:
        """The history is looked at whenever somebody is told something; who reads what now and then."""
        self._steps += 1
        if not self._steps % _STEPS_BETWEEN_LOOKS:
            self.history.check_owners()

    def heal(self) -> None:
        """No more faults: all is to be read."""
        self.history.when_committed = None
        self.stage.is_ending = True
        for reader in self.readers:
            if not self.cluster.nodes[reader.name].is_alive:
                self.stage.unfinished.pop(reader.name, None)

    def is_settled(self) -> bool:
        """Whether all programs are done, and the broker serves and is idle."""
        node = self.program.node
        return not self.stage.unfinished and node is not None and not self.looker.why_busy(node)

    def check_end(self) -> None:
        """What was acknowledged was read, and committed to its end, also after a crash."""
        for place, end in self._ends().items():
            if unread := self._unread(place):
                raise Violation(f"nobody has read {unread} of {place}")
            if self.watcher.committed.get(place, 0) != end:
                raise Violation(
                    f"{place} ends at {end}, and {self.watcher.committed.get(place)} is committed"
                )
        if not self.history.grant_count:
            raise Violation("nobody was ever given anything")
