"""Programs of simulated machines that use a cluster as applications do, and note what they are told."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Final

from moldau.client import (
    EARLIEST,
    Client,
    ClientError,
    Consumer,
    Delivery,
    NewTopic,
    Producer,
    ResourceType,
    open_client,
)
from moldau.client.settings import ClientSettings, SettingValue
from moldau.model.errors import ErrorCode
from moldau.model.ids import ZERO_UUID, TopicPartition, Uuid
from moldau.sim.checks import History, LogId, Marks, Value
from moldau.sim.run import Violation
from moldau.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from moldau.wire.records.batch import decode_batch
from moldau.wire.records.header import iter_headers
from moldau.world.ports import Address, World

# Impatient, so that a run of some seconds has room for what comes after a timeout.
IMPATIENT: Final[Mapping[str, SettingValue]] = {
    "request.timeout.ms": 1_000,
    "default.api.timeout.ms": 3_000,
    "socket.connection.setup.timeout.ms": 500,
    "retry.backoff.ms": 30,
    "retry.backoff.max.ms": 200,
    "delivery.timeout.ms": 4_000,
    "max.block.ms": 2_000,
    "metadata.max.age.ms": 1_000,
    "fetch.max.wait.ms": 100,
    "allow.auto.create.topics": False,
}
CAREFUL: Final[Mapping[str, SettingValue]] = {"acks": "all", "enable_idempotence": True}
CARELESS: Final[Mapping[str, SettingValue]] = {"acks": "1", "enable_idempotence": False, "retries": 0}
FETCH_BYTES: Final = 2_000
_UNSETTLED_MAX: Final = 50
# After these nobody knows whether a batch was written.
_FATE_UNKNOWN: Final = (
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
)


@dataclass(slots=True)
class Stage:
    """What all programs of a run share."""

    bootstrap: Sequence[Address]
    history: History
    topics: Sequence[NewTopic]
    is_ending: bool = False
    """The faults are over: each program comes to its end."""
    unfinished: dict[str, None] = field(default_factory=dict)
    """The programs that have something to do yet."""


Work = Callable[[Client], Coroutine[object, object, None]]


async def with_client(world: World, stage: Stage, work: Work, **settings: SettingValue) -> None:
    """Do some work with a client, once anybody answers."""
    parsed = ClientSettings.parse({**IMPATIENT, **settings})
    is_open = False
    while not is_open:
        try:
            async with open_client(world, stage.bootstrap, parsed) as client:
                is_open = True
                await work(client)
        except ClientError:
            if is_open:
                raise
            await world.clock.sleep_ms(50)


class Program:
    """The program of one machine; it ends by itself some time after `Stage.is_ending`."""

    settings: ClassVar[Mapping[str, SettingValue]] = {}

    def __init__(self, name: str, stage: Stage) -> None:
        self.name = name
        self.stage = stage
        self.history = stage.history
        stage.unfinished[name] = None

    async def main(self, world: World) -> None:
        """Work until there is nothing left to do."""
        self.world = world
        await with_client(world, self.stage, self.work, **self.settings)
        del self.stage.unfinished[self.name]

    async def work(self, client: Client) -> None:
        """What there is to do."""
        raise NotImplementedError

    async def pause(self, ms_max: int) -> None:
        """Wait for a while."""
        await self.world.clock.sleep_ms(self.world.randomness.below(ms_max))

    def chance(self, percent: int) -> bool:
        """True so often."""
        return self.world.randomness.below(100) < percent


# ---------------------------------------------------------------- writing


class Writer(Program):
    """Writes numbered values into every topic, and notes what became of each.

    With sequence numbers it waits for all replicas and repeats what was not answered. Without, it waits for
    the leader alone and never repeats, so that an error that a broker gave is final.
    """

    def __init__(self, name: str, stage: Stage, *, is_idempotent: bool) -> None:
        super().__init__(name, stage)
        self.is_idempotent = is_idempotent
        self._settings = CAREFUL if is_idempotent else CARELESS
        if not is_idempotent:
            self.history.unordered_writers[name] = None
        self._numbers: dict[tuple[str, int], int] = {}
        self._unsettled: deque[tuple[Value, LogId, Delivery]] = deque()
        self._is_answered_again = False
        self._has_sent_all = False

    async def work(self, client: Client) -> None:
        """Write until something is acknowledged after the faults."""
        async with self.world.tasks.scope() as scope:
            settling = scope.start(self._settle_all(client), name=f"{self.name} settles")
            producer = client.producer(**self._settings)  # type: ignore[arg-type]  # none is a partitioner
            async with producer:
                while not (self.stage.is_ending and self._is_answered_again):
                    for _ in range(1 + self.world.randomness.below(4)):
                        await self._write(client, producer)
                    await self.pause(80)
                    while len(self._unsettled) >= _UNSETTLED_MAX:
                        await self.pause(20)
                await producer.flush()
                self._has_sent_all = True
                await settling

    async def _write(self, client: Client, producer: Producer) -> None:
        topic = self.stage.topics[self.world.randomness.below(len(self.stage.topics))].name
        known = client.cluster.metadata.topics.get(topic)
        partition = self.world.randomness.below(len(known.partitions) if known is not None else 1)
        number = self._numbers[topic, partition] = self._numbers.get((topic, partition), 0) + 1
        value = Value(topic, partition, self.name, number)
        # Now and then one that is too large for any topic.
        padding = b" " * 2_000 if not self.is_idempotent and self.chance(4) else b""
        try:
            delivery = await producer.send(
                topic, value.encode() + padding, key=b"%d" % (number % 5), partition=partition
            )
        except ClientError:
            # It never left this machine.
            self.history.on_refused(value, "by the client itself")
            return
        log_id = LogId(client.cluster.metadata.topic_id(topic), topic, partition)
        self._unsettled.append((value, log_id, delivery))

    async def _settle_all(self, client: Client) -> None:
        while self._unsettled or not self._has_sent_all:
            if self._unsettled:
                await self._settle(client, *self._unsettled[0])
                self._unsettled.popleft()
            else:
                await self.world.clock.sleep_ms(5)

    async def _settle(self, client: Client, value: Value, log_id: LogId, delivery: Delivery) -> None:
        try:
            delivered = await delivery
        except ClientError as error:
            if not self.is_idempotent and error.code not in _FATE_UNKNOWN:
                self.history.on_refused(value, error.code.name)
            return
        self._is_answered_again = self.stage.is_ending
        # Ids are never used again: if it is the same before and after, it was the same in between.
        is_same = client.cluster.metadata.topic_id(value.topic) == log_id.topic_id != ZERO_UUID
        self.history.on_acknowledged(
            value,
            log_id if is_same else None,
            delivered.offset if delivered.offset >= 0 else None,
            is_committed=self.is_idempotent,
        )


# ---------------------------------------------------------------- reading


class Tailer(Program):
    """A consumer that reads some topics from their beginning and then what comes, and skips nothing."""

    settings: ClassVar[Mapping[str, SettingValue]] = {"auto.offset.reset": "earliest", "max.poll.records": 20}

    def __init__(self, name: str, stage: Stage, topics: Sequence[str]) -> None:
        super().__init__(name, stage)
        self._topics = topics
        self._positions: dict[TopicPartition, int] = {}

    async def work(self, client: Client) -> None:
        """Poll until the writers are done and nothing more comes."""
        for topic in self._topics:
            await self._known(client, topic)
        async with client.consumer(self._topics) as consumer:
            while not self._is_done(consumer):
                try:
                    polled = await consumer.poll(timeout_ms=200)
                except ClientError:
                    await self.pause(50)
                    continue
                for place, records in polled.items():
                    for record in records:
                        self._take(client, place, record.offset, record.value)

    async def _known(self, client: Client, topic: str) -> None:
        while True:
            try:
                await client.cluster.topic(topic)
            except ClientError:
                await self.pause(50)
            else:
                return

    def _is_done(self, consumer: Consumer) -> bool:
        """Whether nobody writes any more and everything that the last fetch knew of is read."""
        if any(name.startswith("writer") for name in self.stage.unfinished) or not self._positions:
            return False
        return all(
            position >= (consumer.high_watermark(place) or 0) for place, position in self._positions.items()
        )

    def _take(self, client: Client, place: TopicPartition, offset: int, data: bytes | None) -> None:
        log_id = LogId(client.cluster.metadata.topic_id(place.topic), place.topic, place.partition)
        expected = self._positions.get(place, 0)
        if offset != expected:
            self.history.on_skipped(self.name, log_id, expected=expected, got=offset)
        self.history.on_read(self.name, log_id, offset, data)
        self._positions[place] = offset + 1


class Watcher(Program):
    """Fetches every partition by its topic's id, in small pieces, and looks at the marks in each response."""

    def __init__(self, name: str, stage: Stage, *, strike: Callable[[], None]) -> None:
        super().__init__(name, stage)
        self._positions: dict[LogId, int] = {}
        self._strike = strike
        self.has_struck = False

    async def work(self, client: Client) -> None:
        """Read along; when all others are done read everything, and once more after a last crash."""
        while [*self.stage.unfinished] != [self.name]:
            await self._read_along(client)
            await self.pause(100)
        await self._read_everything(client)
        self._strike()
        while not self.has_struck:
            await self.pause(20)
        await self._read_everything(client)

    async def _read_along(self, client: Client) -> None:
        for log_id in await self._logs(client):
            position = self._positions.get(log_id, 0)
            found = await self._fetch(client, log_id, position)
            if found is not None:
                self._positions[log_id] = self._take(log_id, position, found)

    async def _logs(self, client: Client) -> list[LogId]:
        while True:
            try:
                topics = await client.admin.list_topics()
            except ClientError:
                await self.pause(50)
                continue
            return [
                LogId(Uuid(topic.topic_id), name, partition)
                for name, topic in topics.items()
                for partition in topic.partitions
            ]

    async def _read_everything(self, client: Client) -> None:
        for log_id in await self._logs(client):
            await self._read_whole(client, log_id)

    async def _read_whole(self, client: Client, log_id: LogId) -> None:
        found: dict[int, bytes | None] = {}
        start = position = await self._start(client, log_id)
        end: int | None = None
        while end is None or position < end:
            row = await self._fetch(client, log_id, position)
            if row is None:
                if log_id not in await self._logs(client):
                    # A deletion that nobody waited for any more came through.
                    return
                if self._positions[log_id] > position:
                    found.clear()
                    start = position = self._positions[log_id]
                await self.pause(50)
                continue
            end = row.high_watermark
            for offset, epoch, data in _records(row, position):
                self.history.on_read(self.name, log_id, offset, data, epoch=epoch)
                found[offset] = data
                position = offset + 1
        self.history.check_log(log_id, found, start=start, end=end)

    async def _start(self, client: Client, log_id: LogId) -> int:
        place = (log_id.topic, log_id.partition)
        while True:
            try:
                found = await client.admin.list_offsets({place: EARLIEST})
            except ClientError:
                if log_id not in await self._logs(client):
                    return 0
                await self.pause(50)
            else:
                self._positions[log_id] = next(iter(found.values())).offset
                return self._positions[log_id]

    async def _fetch(self, client: Client, log_id: LogId, position: int) -> PartitionData | None:
        """One fetch; None if there is nothing to be had now."""
        asked = FetchPartition(
            partition=log_id.partition, fetch_offset=position, partition_max_bytes=FETCH_BYTES
        )
        request = FetchRequest(
            max_wait_ms=20,
            min_bytes=1,
            max_bytes=FETCH_BYTES,
            topics=[FetchTopic(topic_id=log_id.topic_id, partitions=[asked])],
        )
        marks = self.history.marks(log_id)
        try:
            response = await client.admin.send(request, FetchResponse)
        except ClientError:
            return None
        row = response.responses[0].partitions[0] if response.responses else None
        if row is None:
            return None
        if row.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            start = await self._start(client, log_id)
            self.history.on_skipped(self.name, log_id, expected=position, got=start)
            return None
        if row.error_code != ErrorCode.NONE:
            return None
        self.history.on_marks(log_id, Marks(row.high_watermark, row.log_start_offset), asked_at=marks)
        return row

    def _take(self, log_id: LogId, position: int, row: PartitionData) -> int:
        for offset, epoch, data in _records(row, position):
            if offset != position:
                self.history.on_skipped(self.name, log_id, expected=position, got=offset)
            self.history.on_read(self.name, log_id, offset, data, epoch=epoch)
            position = offset + 1
        return position


def _records(row: PartitionData, position: int) -> list[tuple[int, int, bytes | None]]:
    """The records of a fetch from an offset on: offset, leader epoch, value."""
    found: list[tuple[int, int, bytes | None]] = []
    data = row.records or b""
    assert isinstance(data, bytes | bytearray | memoryview)
    for start, header in iter_headers(data):
        _, records = decode_batch(memoryview(data)[start : start + header.size_bytes])
        found += [
            (record.offset, header.leader_epoch, record.value)
            for record in records
            if record.offset >= position
        ]
    if any(offset >= row.high_watermark for offset, _, _ in found):
        raise Violation(f"a fetch gave {found[-1][0]} of a log that is committed up to {row.high_watermark}")
    return found


# ---------------------------------------------------------------- administration


class Operator(Program):
    """Creates the topics, then changes, deletes and creates them anew while others use them."""

    def __init__(
        self, name: str, stage: Stage, *, fleeting: str | None, trimmed: str | None, growing: str | None
    ) -> None:
        super().__init__(name, stage)
        self._fleeting = fleeting
        self._trimmed = trimmed
        self._growing = growing

    async def work(self, client: Client) -> None:
        """One thing after the other; in the end every topic is there."""
        for topic in self.stage.topics:
            await self._create(client, topic)
        while not self.stage.is_ending:
            await self.pause(600)
            try:
                await self._change(client)
            except ClientError:
                # Refused, or nobody knows; the readers see what came of it.
                continue
        for topic in self.stage.topics:
            await self._create(client, topic)

    async def _change(self, client: Client) -> None:
        match self.world.randomness.below(4):
            case 0 if self._fleeting is not None:
                await client.admin.delete_topics(self._fleeting)
                if self.chance(80):
                    await self._create(client, self._topic(self._fleeting))
            case 1 if self._growing is not None:
                view = (await client.admin.describe_topics(self._growing))[self._growing]
                if len(view.partitions) < 4:
                    await client.admin.add_partitions(self._growing, len(view.partitions) + 1)
            case 2 if self._trimmed is not None:
                await self._trim(client, self._trimmed)
            case 3:
                topic = self.stage.topics[self.world.randomness.below(len(self.stage.topics))]
                segment_ms = str(20 + self.world.randomness.below(2_000))
                await client.admin.alter_configs(ResourceType.TOPIC, topic.name, {"segment.ms": segment_ms})

    def _topic(self, name: str) -> NewTopic:
        return next(topic for topic in self.stage.topics if topic.name == name)

    async def _trim(self, client: Client, topic: str) -> None:
        view = (await client.admin.describe_topics(topic))[topic]
        log_id = LogId(Uuid(view.topic_id), topic, 0)
        end = self.history.marks(log_id).high_watermark
        if not end:
            return
        offset = self.world.randomness.below(end + 1)
        self.history.on_deletion(topic, offset)
        marks = self.history.marks(log_id)
        found = await client.admin.delete_records({(topic, 0): offset})
        (start,) = found.values()
        if start < offset:
            raise Violation(f"{log_id} was to start at {offset}, and starts at {start}")
        self.history.on_marks(log_id, Marks(marks.high_watermark, start), asked_at=marks)

    async def _create(self, client: Client, topic: NewTopic) -> None:
        while True:
            try:
                await client.admin.create_topics(topic)
            except ClientError as error:
                if error.code is ErrorCode.TOPIC_ALREADY_EXISTS:
                    return
                await self.pause(50)
            else:
                return
