"""Programs of simulated machines that use a cluster as applications do, and note what they are told."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Final, NamedTuple

from moldau.client import (
    EARLIEST,
    LATEST,
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
from moldau.log.producers import BATCHES_MAX
from moldau.model.errors import ErrorCode, KafkaError, MalformedMessage
from moldau.model.ids import ZERO_UUID, TopicPartition, Uuid, sequence_after
from moldau.model.ids import Sequence as SequenceNumber
from moldau.sim.checks import History, LogId, Mark, Marks, Value
from moldau.sim.run import Violation
from moldau.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from moldau.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from moldau.wire.messages.txn import InitProducerIdRequest, InitProducerIdResponse
from moldau.wire.records.batch import decode_batch, encode_batch
from moldau.wire.records.header import check_crc, iter_headers
from moldau.wire.records.record import Record
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
NO_MARKS: Final[Marks] = dict.fromkeys(Mark, 0)
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


async def known(program: Program, client: Client, topic: str) -> None:
    """Wait until a topic is there."""
    while True:
        try:
            await client.cluster.topic(topic)
        except ClientError:
            await program.pause(50)
        else:
            return


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
                if producer.held_bytes:
                    raise Violation(f"{self.name} holds {producer.held_bytes} bytes, and has sent everything")
                self._has_sent_all = True
                await settling

    async def _write(self, client: Client, producer: Producer) -> None:
        topic = self.stage.topics[self.world.randomness.below(len(self.stage.topics))].name
        known = client.cluster.metadata.topics.get(topic)
        partition = self.world.randomness.below(len(known.partitions) if known is not None else 1)
        number = self._numbers[topic, partition] = self._numbers.get((topic, partition), 0) + 1
        value = Value(topic, partition, self.name, number)
        self.history.on_sent(value, self.world.clock.wall_ms())
        # Now and then one that is too large for any topic.
        padding = b" " * 2_000 if not self.is_idempotent and self.chance(4) else b""
        try:
            delivery = await producer.send(
                topic, value.encode() + padding, key=value.key, partition=partition
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
        if delivered.offset < 0:
            raise Violation(f"{value} was acknowledged, and nobody said where it is")
        # Ids are never used again: if it is the same before and after, it was the same in between.
        is_same = client.cluster.metadata.topic_id(value.topic) == log_id.topic_id != ZERO_UUID
        self.history.on_acknowledged(
            value, log_id if is_same else None, delivered.offset, is_committed=self.is_idempotent
        )


class Repeater(Program):
    """Writes batches one by one and sends some of the last five again, which a broker must know by then.

    It numbers its batches itself, so that some runs come to where the numbers begin again, and sends each
    until it is answered: a broker that finds a gap has forgotten something.
    """

    def __init__(self, name: str, stage: Stage, topic: str, *, epoch: int, sequence: int) -> None:
        super().__init__(name, stage)
        self._topic = topic
        self._epoch = epoch
        self._sequence = sequence
        self._number = 0
        self._recent: deque[tuple[bytes, int]] = deque(maxlen=BATCHES_MAX)

    async def work(self, client: Client) -> None:
        """Write until something is acknowledged after the faults."""
        await known(self, client, self._topic)
        # Asked for by id, so that nothing is written into a topic of the same name.
        log_id = LogId(client.cluster.metadata.topic_id(self._topic), self._topic, 0)
        producer_id = await self._producer_id(client)
        is_last = False
        while not is_last:
            is_last = self.stage.is_ending
            await self._write(client, log_id, producer_id)
            while self._recent and self.chance(30):
                batch, offset = self._recent[self.world.randomness.below(len(self._recent))]
                again = await self._send(client, log_id, batch)
                if again != offset:
                    raise Violation(f"{self.name}: a batch at {offset} of {log_id} is at {again} too")
            await self.pause(300)

    async def _producer_id(self, client: Client) -> int:
        while True:
            request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=2**31 - 1)
            try:
                response = await client.admin.send(request, InitProducerIdResponse)
            except ClientError:
                await self.pause(50)
                continue
            if response.error_code == ErrorCode.NONE:
                return response.producer_id
            await self.pause(50)

    async def _write(self, client: Client, log_id: LogId, producer_id: int) -> None:
        now_ms = self.world.clock.wall_ms()
        numbers = range(self._number + 1, self._number + 2 + self.world.randomness.below(3))
        values = [Value(log_id.topic, log_id.partition, self.name, number) for number in numbers]
        for value in values:
            self.history.on_sent(value, now_ms)
        batch = encode_batch(
            [Record(at, now_ms, value.key, value.encode()) for at, value in enumerate(values)],
            producer_id=producer_id,
            producer_epoch=self._epoch,
            base_sequence=self._sequence,
        )
        offset = await self._send(client, log_id, batch)
        for at, value in enumerate(values):
            self.history.on_acknowledged(value, log_id, offset + at, is_committed=True)
        self._recent.append((batch, offset))
        self._number = numbers[-1]
        self._sequence = sequence_after(SequenceNumber(self._sequence), len(values))

    async def _send(self, client: Client, log_id: LogId, batch: bytes) -> int:
        """Where the broker says that a batch is, once it says so."""
        data = TopicProduceData(
            name=log_id.topic,
            topic_id=log_id.topic_id,
            partition_data=[PartitionProduceData(index=log_id.partition, records=batch)],
        )
        while True:
            request = ProduceRequest(acks=-1, timeout_ms=1_000, topic_data=[data])
            try:
                response = await client.admin.send(request, ProduceResponse)
            except ClientError:
                await self.pause(50)
                continue
            row = response.responses[0].partition_responses[0]
            code = ErrorCode(row.error_code)
            if code is ErrorCode.NONE:
                return row.base_offset
            if not code.is_retriable:
                raise Violation(f"{self.name}: {log_id} refuses what it should know or expect: {code.name}")
            await self.pause(50)


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
            await known(self, client, topic)
        async with client.consumer(self._topics) as consumer:
            is_done = False
            while not is_done:
                try:
                    polled = await consumer.poll(timeout_ms=200)
                    is_done = not polled and await self._is_done(consumer)
                except ClientError:
                    await self.pause(50)
                    continue
                for place, records in polled.items():
                    for record in records:
                        self._take(client, place, record.offset, record.value)

    async def _is_done(self, consumer: Consumer) -> bool:
        """Whether nobody writes any more and everything that the last fetch knew of is read, or deleted."""
        if any(name.startswith("writer") for name in self.stage.unfinished) or not self._positions:
            return False
        for place in self._positions:
            if await consumer.position(place) < (consumer.high_watermark(place) or 0):
                return False
        return True

    def _take(self, client: Client, place: TopicPartition, offset: int, data: bytes | None) -> None:
        log_id = LogId(client.cluster.metadata.topic_id(place.topic), place.topic, place.partition)
        expected = self._positions.get(place, 0)
        if offset != expected:
            now_ms = self.world.clock.wall_ms()
            self.history.on_skipped(self.name, log_id, expected=expected, got=offset, now_ms=now_ms)
        self.history.on_read(self.name, log_id, offset, data)
        self._positions[place] = offset + 1


class Watcher(Program):
    """Fetches every partition by its topic's id, in small pieces, and looks at all marks it is told."""

    def __init__(self, name: str, stage: Stage, *, strike: Callable[[], None]) -> None:
        super().__init__(name, stage)
        self._positions: dict[LogId, int] = {}
        self._strike = strike
        self.has_struck = False

    async def work(self, client: Client) -> None:
        """Read along; when all others are done read everything, and once more after a last crash."""
        while [*self.stage.unfinished] != [self.name]:
            await self._read_along(client)
            if self._positions and self.chance(30):
                logs = list(self._positions)
                await self.look_for_end(client, logs[self.world.randomness.below(len(logs))])
            await self.pause(100)
        await self._read_everything(client)
        self._strike()
        while not self.has_struck:
            await self.pause(20)
        await self._read_everything(client)

    async def _read_along(self, client: Client) -> None:
        for log_id in await self._logs(client):
            position = self._positions.get(log_id, 0)
            row = await self._fetch(client, log_id, position)
            if row is not None:
                self._positions[log_id] = self._take(log_id, position, row)

    async def _logs(self, client: Client) -> list[LogId]:
        while True:
            marks = {log_id: self.history.marks(log_id) for log_id in self.history.logs}
            try:
                topics = await client.admin.list_topics()
            except ClientError:
                await self.pause(50)
                continue
            found = {
                LogId(Uuid(topic.topic_id), name, partition): view.leader.epoch
                for name, topic in topics.items()
                for partition, view in topic.partitions.items()
            }
            for log_id, epoch in found.items():
                self._told(log_id, {Mark.LEADER_EPOCH: epoch}, marks.get(log_id))
            return list(found)

    def _told(self, log_id: LogId, seen: Marks, asked_at: Marks | None) -> None:
        now_ms = self.world.clock.wall_ms()
        self.history.on_marks(log_id, seen, asked_at=asked_at or NO_MARKS, now_ms=now_ms)

    async def _read_everything(self, client: Client) -> None:
        for log_id in await self._logs(client):
            await self._read_whole(client, log_id)

    async def _read_whole(self, client: Client, log_id: LogId) -> None:
        found: dict[int, bytes | None] = {}
        start = position = await self._start(client, log_id)
        end: int | None = None
        stable = 0
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
            before = position
            if row.error_code == ErrorCode.CORRUPT_MESSAGE:
                position = self.history.on_unreadable(self.name, log_id, position)
            else:
                end, stable = row.high_watermark, row.last_stable_offset
                for batch in fetched_batches(row):
                    if not batch.is_sound:
                        position = self.history.on_unreadable(self.name, log_id, max(batch.first, position))
                        break
                    for offset, data in batch.records:
                        if offset >= position:
                            self.history.on_read(self.name, log_id, offset, data, epoch=batch.epoch)
                            found[offset] = data
                    position = max(position, batch.next_offset)
            if position == before:
                await self.pause(50)
        self.history.check_log(log_id, found, start=start, end=end)
        if stable != end:
            raise Violation(f"{log_id} is stable up to {stable}, and ends at {end}")

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

    async def look_for_end(self, client: Client, log_id: LogId) -> None:
        """Ask where a log ends, which is not before where it ended for anybody else."""
        marks = self.history.marks(log_id)
        place = (log_id.topic, log_id.partition)
        try:
            found = await client.admin.list_offsets({place: LATEST})
        except ClientError:
            return
        # It was asked for by name: only if the name means the same before and after it did in between.
        if log_id in await self._logs(client):
            (end,) = (each.offset for each in found.values())
            self._told(log_id, {Mark.HIGH_WATERMARK: end}, marks)

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
            now_ms = self.world.clock.wall_ms()
            self.history.on_skipped(self.name, log_id, expected=position, got=start, now_ms=now_ms)
            return None
        if row.error_code == ErrorCode.CORRUPT_MESSAGE:
            return row
        if row.error_code != ErrorCode.NONE:
            return None
        seen = {
            Mark.HIGH_WATERMARK: row.high_watermark,
            Mark.LAST_STABLE_OFFSET: row.last_stable_offset,
            Mark.LOG_START: row.log_start_offset,
        }
        self._told(log_id, seen, marks)
        return row

    def _take(self, log_id: LogId, position: int, row: PartitionData) -> int:
        if row.error_code == ErrorCode.CORRUPT_MESSAGE:
            return self.history.on_unreadable(self.name, log_id, position)
        for batch in fetched_batches(row):
            if not batch.is_sound:
                return self.history.on_unreadable(self.name, log_id, max(batch.first, position))
            for offset, data in batch.records:
                if offset < position:
                    continue
                if offset != position:
                    now_ms = self.world.clock.wall_ms()
                    self.history.on_skipped(self.name, log_id, expected=position, got=offset, now_ms=now_ms)
                self.history.on_read(self.name, log_id, offset, data, epoch=batch.epoch)
                position = offset + 1
            position = max(position, batch.next_offset)
        return position


class FetchedBatch(NamedTuple):
    """A batch that was fetched; of one that is not sound, only where it begins is known."""

    first: int
    next_offset: int = -1
    epoch: int = -1
    is_sound: bool = False
    records: Sequence[tuple[int, bytes | None]] = ()


def fetched_batches(row: PartitionData) -> Iterator[FetchedBatch]:
    """What a fetch has brought, batch by batch, up to one that is not sound."""
    data = row.records or b""
    assert isinstance(data, bytes | bytearray | memoryview)
    first = 0
    try:
        for start, header in iter_headers(data):
            first = header.base_offset
            batch = memoryview(data)[start : start + header.size_bytes]
            check_crc(batch, 0, header)
            if header.last_offset >= row.high_watermark:
                raise Violation(
                    f"a fetch gave {header.last_offset} of a log that is committed up to {row.high_watermark}"
                )
            records = [(record.offset, record.value) for record in decode_batch(batch)[1]]
            yield FetchedBatch(first, header.next_offset, header.leader_epoch, True, records)
            first = header.next_offset
    except (KafkaError, MalformedMessage):
        yield FetchedBatch(first)


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
        marks = self.history.marks(log_id)
        start, end = marks[Mark.LOG_START], marks[Mark.HIGH_WATERMARK]
        if end <= start:
            return
        offset = start + self.world.randomness.below(end - start + 1)
        self.history.on_deletion(topic, offset)
        found = await client.admin.delete_records({(topic, 0): offset})
        (start,) = found.values()
        if start < offset:
            raise Violation(f"{log_id} was to start at {offset}, and starts at {start}")
        now_ms = self.world.clock.wall_ms()
        self.history.on_marks(log_id, {Mark.LOG_START: start}, asked_at=marks, now_ms=now_ms)

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
