"""Programs of simulated machines that read as members of one group, and note all that they are told."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from moldau.client import Client, ClientError, GroupConsumer
from moldau.client.settings import SettingValue
from moldau.model.errors import ErrorCode
from moldau.model.ids import PartitionIndex, TopicName, TopicPartition
from moldau.sim.checks import LogId
from moldau.sim.disk import SimDisk, Survives
from moldau.sim.group_checks import GroupHistory, Write
from moldau.sim.run import Violation
from moldau.sim.workload import Program, Stage, known, with_client
from moldau.world.ports import World

Places = tuple[TopicPartition, ...]

SESSION_TIMEOUT_MS: Final = 1_500
MEMBER: Final[Mapping[str, SettingValue]] = {
    "auto.offset.reset": "earliest",
    "enable.auto.commit": False,
    "session.timeout.ms": SESSION_TIMEOUT_MS,
    "heartbeat.interval.ms": 200,
    "max.poll.interval.ms": 2_000,
    "max.poll.records": 3,
}
# A static member that was killed is awaited until its session is over.
_STILL_HERE: Final = (ErrorCode.UNRELEASED_INSTANCE_ID, ErrorCode.FENCED_INSTANCE_ID)


@dataclass(slots=True)
class Reading:
    """What all readers of a group share."""

    group_id: str
    topic: str
    history: GroupHistory
    # One of these for each life of a reader.
    protocols: Sequence[Mapping[str, SettingValue]]
    lives_ms_max: int
    is_over: Callable[[], bool]
    """Whether all is read and committed, so that everybody may leave."""
    now_us: Callable[[], int]


class Reader(Program):
    """A member of the group that reads, commits, leaves and comes back, each time perhaps as another kind."""

    def __init__(self, name: str, stage: Stage, reading: Reading, *, instance_id: str = "") -> None:
        super().__init__(name, stage)
        self.reading = reading
        self.consumer: GroupConsumer | None = None
        self._instance_id = instance_id
        self._life_count = 0
        self._life = ""

    @property
    def life(self) -> str:
        """What the history calls the present life."""
        return self._life

    def on_crashed(self, image: SimDisk, survives: Survives) -> None:
        """Its process is gone, and what it had is nobody's."""
        self.reading.history.on_gone(self._life)
        self.consumer = None

    async def main(self, world: World) -> None:
        """Be a member, again and again, until everything is read."""
        self.world = world
        while not self.reading.is_over():
            protocols = self.reading.protocols
            protocol = protocols[world.randomness.below(len(protocols))]
            await with_client(
                world,
                self.stage,
                self.work,
                **{**MEMBER, **protocol, "group.instance.id": self._instance_id},
            )
            await self.pause(500)
        self.stage.unfinished.pop(self.name, None)

    async def work(self, client: Client) -> None:
        """One life."""
        await known(self, client, self.reading.topic)
        self._life_count += 1
        life = self._life = f"{self.name}.{self._life_count}"
        history, now_us = self.reading.history, self.reading.now_us

        def granted(places: Places) -> None:
            history.on_granted(life, places, now_us())

        async def revoked(places: Places) -> None:
            if self.chance(70):
                await self._commit(consumer, places)
            history.on_given_up(life, places)

        def lost(places: Places) -> None:
            history.on_given_up(life, places)

        consumer = client.consumer(
            [self.reading.topic],
            group_id=self.reading.group_id,
            on_assigned=granted,
            on_revoked=revoked,
            on_lost=lost,
        )
        self.consumer = consumer
        try:
            await self._read(client, consumer)
        finally:
            await consumer.close()
        history.on_gone(life)
        self.consumer = None

    async def _read(self, client: Client, consumer: GroupConsumer) -> None:
        ends_ms = self.world.clock.now_ms() + self.world.randomness.below(self.reading.lives_ms_max)
        while not self.reading.is_over():
            if not self.stage.is_ending and self.world.clock.now_ms() >= ends_ms:
                return
            try:
                polled = await consumer.poll(timeout_ms=100)
            except ClientError as error:
                if error.code in _STILL_HERE:
                    await self.pause(500)
                    return
                if not error.code.is_retriable:
                    raise Violation(f"{self._life} cannot be a member: {error}") from error
                await self.pause(50)
                continue
            for place, records in polled.items():
                log_id = LogId(client.cluster.metadata.topic_id(place.topic), place.topic, place.partition)
                for record in records:
                    self.history.on_read(self._life, log_id, record.offset, record.value)
                    self.reading.history.on_read(self._life, place, record.offset, self.reading.now_us())
            if polled and self.chance(50):
                await self.pause(120)
            if self.stage.is_ending or self.chance(40):
                await self._commit(consumer, await consumer.assignment())

    async def _commit(self, consumer: GroupConsumer, places: Sequence[TopicPartition]) -> None:
        history, now_us = self.reading.history, self.reading.now_us
        offsets = history.positions(self._life, places)
        if not offsets:
            return
        written: list[Write] = history.on_commit(self._life, offsets, now_us())
        try:
            await consumer.commit(offsets)
        except ClientError:
            # Nobody knows whether it has happened.
            return
        history.on_committed(written, now_us())


class OffsetWatcher(Program):
    """Asks what the group has committed, until all of it is."""

    def __init__(self, name: str, stage: Stage, reading: Reading, *, strike: Callable[[], None]) -> None:
        super().__init__(name, stage)
        self._reading = reading
        self._strike = strike
        self.has_struck = False
        self.committed: dict[TopicPartition, int] = {}

    async def work(self, client: Client) -> None:
        """Ask now and then, and once more after a last crash."""
        await known(self, client, self._reading.topic)
        while [*self.stage.unfinished] != [self.name]:
            await self._ask(client)
            await self.pause(150)
        self._strike()
        while not self.has_struck:
            await self.pause(20)
        while not await self._ask(client):
            await self.pause(50)

    async def _ask(self, client: Client) -> bool:
        reading, asked_us = self._reading, self._reading.now_us()
        try:
            found = await client.admin.group_offsets(reading.group_id)
        except ClientError:
            return False
        self.committed = {place: each.offset for place, each in found.items()}
        view = client.cluster.metadata.topics[reading.topic]
        places = [TopicPartition(TopicName(view.name), PartitionIndex(index)) for index in view.partitions]
        reading.history.on_told(self.name, self.committed, places, asked_us=asked_us, now_us=reading.now_us())
        return True
