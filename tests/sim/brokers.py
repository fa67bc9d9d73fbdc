"""A broker in the simulator that does only what a test tells it, and a history of what its client is told."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol, TypeVar

from node.broker import TOPIC, Broker, answer, batch_of, produce_request, produced

from moldau.log import checkpoints
from moldau.log.segment import LOG_SUFFIX, file_name
from moldau.model.errors import ErrorCode
from moldau.model.ids import PartitionIndex, TopicName, TopicPartition, Uuid
from moldau.sim.checks import History, LogId, Mark, Value
from moldau.sim.cluster import SimNode
from moldau.sim.disk import Operation, SimDisk, Survives
from moldau.sim.reopening import Promise, check_image
from moldau.sim.run import Violation
from moldau.sim.workload import fetched_batches
from moldau.wire.message import Request, Response
from moldau.wire.messages.offsets import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from moldau.wire.messages.produce import PartitionProduceResponse
from moldau.wire.records.record import Record
from moldau.world.ports import ConnectionLost, World

PRODUCER = 7_000
AT = TopicPartition(TopicName(TOPIC), PartitionIndex(0))
EARLIEST = -2
# What a broker does by itself happens within a few hundred milliseconds.
BRISK = {
    "replica.high.watermark.checkpoint.interval.ms": "300",
    "log.retention.check.interval.ms": "200",
}


class HasErrorCode(Protocol):
    error_code: int


Row = TypeVar("Row", bound=HasErrorCode)


class ToldBroker(Broker):
    """One topic with one partition, an idempotent producer and a reader, all in plain calls."""

    def __init__(
        self,
        topic_settings: Mapping[str, str] | None = None,
        settings: Mapping[str, str] | None = None,
        *,
        flush_ms: tuple[int, int] = (0, 5),
    ) -> None:
        super().__init__({**BRISK, **(settings or {})}, flush_ms=flush_ms)
        self.history = History()
        self.log_id = LogId(Uuid(self.create_topic(settings=topic_settings)), TOPIC, 0)
        self._written = 0
        self._image_count = 0
        self._batches: dict[int, tuple[list[Value], bytes]] = {}

    async def _run(self, world: World) -> None:
        self._world = world
        await super()._run(world)

    @property
    def machine(self) -> SimNode:
        return self._machine

    @property
    def disk(self) -> SimDisk:
        """The disk of the present life."""
        return self._machine.disk

    # ------------------------------------------------------------ writing

    def write(self, count: int = 1) -> int:
        """Write a batch of new values, which must be accepted; gives the number of the first."""
        first = self.send(count)
        self.settle(first)
        return first

    def send(self, count: int = 1) -> int:
        """Send a batch of new values, and wait for nothing."""
        first = self.make(count)
        self.wire.send(produce_request(self._batches[first][1]), 12)
        return first

    def make(self, count: int = 1) -> int:
        """Make a batch of new values; gives the number of the first."""
        first, self._written = self._written, self._written + count
        values = [Value(TOPIC, 0, "writer", number) for number in range(first, self._written)]
        for value in values:
            self.history.on_sent(value, self.wall_ms)
        records = [Record(at, self.wall_ms, value.key, value.encode()) for at, value in enumerate(values)]
        self._batches[first] = values, batch_of(records, producer=(PRODUCER, 0, first))
        return first

    def settle(self, first: int) -> None:
        """Wait for the answer to the batch that was sent, and note it."""
        self._note(first, produced(self.wire.receive()))

    def repeat(self, first: int) -> None:
        """Send a batch once more, and note the answer."""
        self._note(first, self.produce(self._batches[first][1]))

    def _note(self, first: int, row: PartitionProduceResponse) -> None:
        if row.error_code != ErrorCode.NONE:
            raise Violation(f"the batch of {first} was refused: {ErrorCode(row.error_code).name}")
        for at, value in enumerate(self._batches[first][0]):
            self.history.on_acknowledged(value, self.log_id, row.base_offset + at, is_committed=True)

    # ------------------------------------------------------------ whatever happens meanwhile

    def come_up(self) -> None:
        """Start the machine, again and again if it ends by itself, until clients are served."""
        while not self._machine.is_alive:
            self._is_ready, self._wire = False, None
            self._machine.start()
            self.sim.run_until(lambda: self._is_ready or not self._machine.is_alive)
        assert self._is_ready, "the broker neither serves nor ends"

    def insist(self, count: int = 1) -> None:
        """Write a batch of new values, and send it until it is accepted."""
        first = self.make(count)
        request = produce_request(self._batches[first][1])
        self._note(first, self._insist(lambda: produced(self._ask_in_time(request, 12))))

    def insist_on_deletion(self, offset: int) -> None:
        """Delete what is before an offset, and ask until it is done."""
        request = self.delete_request(offset)

        def ask() -> DeleteRecordsPartitionResult:
            response = answer(self._ask_in_time(request, None), DeleteRecordsResponse)
            return response.topics[0].partitions[0]

        self._insist(ask)

    def _insist(self, ask: Callable[[], Row]) -> Row:
        for _ in range(50):
            self.come_up()
            try:
                row = ask()
            except (ConnectionLost, TimeoutError):
                self._wire = None
                continue
            if not ErrorCode(row.error_code).is_retriable:
                return row
            self.run_for(100)
        raise Violation("there is no end of retries")

    def _ask_in_time(self, request: Request, version: int | None) -> Response:
        wire = self.wire
        wire.send(request, version)
        self.sim.run_until(
            lambda: bool(wire.answers) or wire.is_closed or not self._machine.is_alive, timeout_ms=5_000
        )
        if not wire.answers:
            raise TimeoutError("nobody answers")
        return wire.answers.popleft()

    # ------------------------------------------------------------ reading

    def read(self) -> list[int]:
        """Read the whole log, check all of it, and give the numbers that are there."""
        log_id = self.log_id
        start = position = self.list_offset(EARLIEST).offset
        found: dict[int, bytes | None] = {}
        end = None
        while end is None or position < end:
            marks = self.history.marks(log_id)
            row = self.fetch(position)
            if row.error_code == ErrorCode.CORRUPT_MESSAGE:
                position = self._passed_over(position)
                continue
            if row.error_code != ErrorCode.NONE:
                raise Violation(f"{position} cannot be read: {ErrorCode(row.error_code).name}")
            end = row.high_watermark
            seen = {
                Mark.HIGH_WATERMARK: row.high_watermark,
                Mark.LAST_STABLE_OFFSET: row.last_stable_offset,
                Mark.LOG_START: row.log_start_offset,
            }
            self.history.on_marks(log_id, seen, asked_at=marks, now_ms=self.wall_ms)
            before = position
            for batch in fetched_batches(row):
                if not batch.is_sound:
                    position = self._passed_over(max(batch.first, position))
                    break
                for offset, data in batch.records:
                    if offset >= position:
                        self.history.on_read("reader", log_id, offset, data, epoch=batch.epoch)
                        found[offset] = data
                position = max(position, batch.next_offset)
            if position == before < end:
                raise Violation(f"there is nothing at {position}, and {end} are committed")
        self.history.check_log(log_id, found, start=start, end=end)
        return [Value.decode(data).number for _, data in sorted(found.items())]

    def _passed_over(self, position: int) -> int:
        following = self.history.on_unreadable("reader", self.log_id, position)
        if following == position:
            raise Violation(f"{position} cannot be read, and is not damaged")
        return following

    # ------------------------------------------------------------ deleting, and rot

    def delete_request(self, offset: int) -> DeleteRecordsRequest:
        """Ask to delete what is before an offset; that is noted."""
        self.history.on_deletion(TOPIC, offset)
        asked = DeleteRecordsPartition(partition_index=0, offset=offset)
        return DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name=TOPIC, partitions=[asked])], timeout_ms=10_000
        )

    def delete(self, offset: int) -> None:
        """Delete what is before an offset."""
        response = answer(self.ask(self.delete_request(offset)), DeleteRecordsResponse)
        assert response.topics[0].partitions[0].error_code == ErrorCode.NONE

    def await_checkpoint(self) -> None:
        """Wait until it is durably written down that everything is flushed."""

        def recovery_point() -> int:
            durable = self.disk.crash(Survives.NOTHING)
            return checkpoints.read_offsets(durable, checkpoints.RECOVERY_POINTS).get(AT, 0)

        self.run_until(lambda: recovery_point() == self.log().log_end_offset)

    def flip(self, offset: int, position_in_batch: int, *, bit: int = 6) -> None:
        """Let a bit of the batch that begins at an offset rot."""
        for segment in self.log().segments:
            for batch in segment.batches_from():
                if batch.header.base_offset == offset:
                    path = f"{AT}/{file_name(segment.base_offset, LOG_SUFFIX)}"
                    self.disk.flip_bit(path, batch.position + position_in_batch, bit=bit)
                    self.history.on_rot(self.log_id, first=offset, last=batch.header.last_offset)
                    return
        raise AssertionError(f"no batch begins at {offset}")

    # ------------------------------------------------------------ the end of a life

    def try_crashes(self, *_: Operation) -> None:
        """Whatever a power cut left now, everything that was acknowledged would be there."""
        self._image_count += 1
        chance = self.sim.randomness.fork(f"image {self._image_count}")
        promises = [Promise.of(replica) for replica in self.node.partitions]
        for survives in (Survives.NOTHING, Survives.SOME):
            image = self.disk.crash(survives, chance)
            check_image(image, promises, world=self._world, survives=survives)
        committed = self.history.marks(self.log_id)[Mark.HIGH_WATERMARK]
        if any(promise.flushed_end < committed for promise in promises):
            raise Violation(f"{committed} are acknowledged, and not all of them flushed")

    def at_every_operation(self, do: Callable[[Operation], None]) -> None:
        """Have something done before each operation on the disk of the present life."""
        trace = self.disk.on_operation

        def on_operation(operation: Operation) -> None:
            do(operation)
            if trace is not None:
                trace(operation)

        self.disk.on_operation = on_operation

    def power_cut(self, survives: Survives = Survives.NOTHING) -> None:
        """The machine goes dark."""
        self._machine.power_cut(survives)

    def power_cut_and_start(self, survives: Survives = Survives.NOTHING) -> None:
        """The machine goes dark, and is started again."""
        self.power_cut(survives)
        self.start()
