"""Sending records: the shell around the accumulator, which decides everything but where the brokers are."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Self

from moldau.client.accumulator import UNKNOWN_OFFSET, Accumulator, Batch, Failed, Split, Written, record_bytes
from moldau.client.cluster import Cluster
from moldau.client.connection import BrokerConnection
from moldau.client.errors import ClientError, check, code_of
from moldau.client.metadata import Leader, TopicView
from moldau.client.partitioners import Partitioner, Sticky
from moldau.client.settings import ClientSettings
from moldau.client.waiting import Errands, Signal
from moldau.model.errors import ErrorCode, KafkaError, MalformedMessage
from moldau.model.ids import ZERO_UUID, TopicPartition
from moldau.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from moldau.wire.messages.txn import InitProducerIdRequest, InitProducerIdResponse
from moldau.wire.records.batch import Packed
from moldau.wire.records.record import Headers
from moldau.world.ports import ConnectionLost, Scope

HeadersGiven = Mapping[str, bytes | None] | Iterable[tuple[str, bytes | None]]

_TOPIC_IDS_SINCE = 13


@dataclass(frozen=True, slots=True)
class Delivered:
    """Where a record was written; the offset is -1 if the broker was not asked, or did not say."""

    partition: TopicPartition
    offset: int
    timestamp: int


def settled(batch: Batch) -> asyncio.Future[None]:
    """Done once the batch has an outcome; one for each who waits, as who stops must not stop the others."""
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    batch.on_done.append(lambda: None if future.done() else future.set_result(None))
    return future


class Delivery:
    """What becomes of one record; awaiting it gives where it was written, or raises why it was not."""

    __slots__ = ("_batch", "_index")

    def __init__(self, batch: Batch, index: int) -> None:
        self._batch = batch
        self._index = index

    def __await__(self) -> Generator[object, None, Delivered]:
        while True:
            match self._batch.outcome:
                case None:
                    yield from settled(self._batch).__await__()
                case Split() as split:
                    self._batch, self._index = split.find(self._index)
                case Failed(error):
                    raise error
                case Written(base_offset, timestamp):
                    offset = UNKNOWN_OFFSET if base_offset == UNKNOWN_OFFSET else base_offset + self._index
                    own = self._batch.records[self._index].timestamp
                    return Delivered(self._batch.partition, offset, own if timestamp is None else timestamp)


@dataclass(frozen=True, slots=True)
class DeliveredRange:
    """Where `count` records of a packed batch were written, from its record `first` on."""

    partition: TopicPartition
    first: int
    count: int
    offset: int


class PackedFailed(ClientError):
    """Records of a packed batch were given up: those that are `packed` here, from its record `first` on."""

    def __init__(self, error: ClientError, packed: Packed, *, first: int) -> None:
        super().__init__(error.code, error.message, where=error.where, is_final=error.is_final)
        self.packed = packed
        self.first = first

    @property
    def count(self) -> int:
        """How many records were given up."""
        return self.packed.count


class PackedDelivery:
    """What becomes of a packed batch; awaiting it gives where it was written, or raises why it was not."""

    __slots__ = ("_batch",)

    def __init__(self, batch: Batch) -> None:
        self._batch = batch

    def is_settled(self) -> bool:
        """Whether there is a result."""
        return all(batch.outcome is not None for _, batch in self._parts())

    def result(self) -> list[DeliveredRange]:
        """Where the records are, in one range or, where the batch had to be split, in several."""
        ranges: list[DeliveredRange] = []
        for first, batch in self._parts():
            match batch.outcome:
                case Written(base_offset):
                    ranges.append(DeliveredRange(batch.partition, first, batch.count, base_offset))
                case Failed(error):
                    assert batch.packed is not None, "halves of what was packed are packed"
                    raise PackedFailed(error, batch.packed, first=first)
                case _:
                    raise RuntimeError("The batch is not settled yet.")
        return ranges

    def __await__(self) -> Generator[object, None, list[DeliveredRange]]:
        while (batch := next((part for _, part in self._parts() if part.outcome is None), None)) is not None:
            yield from settled(batch).__await__()
        return self.result()

    def _parts(self) -> Iterator[tuple[int, Batch]]:
        """What was not split any further, each with the place of its first record in the whole batch."""
        pending = [(0, self._batch)]
        while pending:
            first, batch = pending.pop()
            if isinstance(batch.outcome, Split):
                middle = first + batch.outcome.first.count
                pending += [(middle, batch.outcome.second), (first, batch.outcome.first)]
            else:
                yield first, batch


class Producer:
    """Sends records in batches; order within a partition is kept, and with idempotence nothing is doubled."""

    def __init__(
        self,
        cluster: Cluster,
        settings: ClientSettings,
        scope: Scope,
        *,
        lane: str,
        partitioner: Partitioner,
    ) -> None:
        self._cluster = cluster
        self._settings = settings
        self._scope = scope
        self._lane = lane
        self._clock = cluster.world.clock
        self._accumulator = Accumulator(settings)
        self._partitioner = partitioner
        self._sticky = Sticky(switch_bytes=settings.batch_size, below=cluster.world.randomness.below)
        self._wake = Signal()
        self._settled = Signal()
        self._waiting_for_room: deque[asyncio.Future[None]] = deque()
        self._flushes = 0
        self._errands = Errands(scope, owner=lane, on_done=self._wake.set)
        self._connect_failures: dict[int, int] = {}
        self.is_closed = False
        scope.start(self._dispatch_for_ever(), name=f"{lane}: dispatch")

    # ---------------------------------------------------------------- what users call

    async def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        partition: int | None = None,
        headers: HeadersGiven = (),
        timestamp: int | None = None,
    ) -> Delivery:
        """Hand over a record; returns as soon as there is room for it, and the Delivery tells the rest."""
        view = self._cluster.metadata.topics.get(topic)
        if view is None or (partition is not None and partition >= len(view.partitions)):
            view = await self.topic(topic, partition=partition)
        pairs: Headers = ()
        if headers:
            pairs = tuple(headers.items() if isinstance(headers, Mapping) else headers)
        size = record_bytes(key, value, pairs)
        if size > self._settings.max_request_size:
            message = f"A record of {size} bytes is larger than max.request.size."
            raise ClientError(ErrorCode.MESSAGE_TOO_LARGE, message, where=topic)
        await self._admit(size)
        chosen = self._partition(view, key, partition, size)
        stamp = self._clock.wall_ms() if timestamp is None else timestamp
        batch, index, is_news = self._accumulator.append(
            view.partitions[chosen].place,
            (stamp, key, value, pairs),
            size=size,
            now_ms=self._clock.now_ms(),
        )
        if is_news:
            self._wake.set()
            # A caller that sends without a pause would else fill the memory before anything leaves.
            await asyncio.sleep(0)
        return Delivery(batch, index)

    async def send_packed(self, batches: Iterable[tuple[str, int, Packed]]) -> list[PackedDelivery]:
        """Hand over whole batches, each with its topic and partition; returns when there is room for them.

        They go as they are, in this order for each partition; one that is too large for the topic is split.
        """
        deliveries: list[PackedDelivery] = []
        for name, partition, packed in batches:
            view = self._cluster.metadata.topics.get(name)
            if view is None or partition >= len(view.partitions):
                view = await self.topic(name, partition=partition)
            if packed.size_bytes > self._settings.max_request_size:
                message = f"A batch of {packed.size_bytes} bytes is larger than max.request.size."
                raise ClientError(ErrorCode.MESSAGE_TOO_LARGE, message, where=name)
            place = view.partitions[self._checked(view, partition)].place
            await self._admit(packed.size_bytes)
            batch = self._accumulator.append_packed(place, packed, now_ms=self._clock.now_ms())
            self._wake.set()
            deliveries.append(PackedDelivery(batch))
        return deliveries

    async def topic(
        self, name: str, *, partition: int | None = None, timeout_ms: int | None = None
    ) -> TopicView:
        """The topic, created if need be and possible; looked up anew if it lacks `partition`."""
        view = self._cluster.metadata.topics.get(name)
        if view is None:
            patience_ms = self._settings.max_block_ms if timeout_ms is None else timeout_ms
            view = await self._cluster.topic(name, timeout_ms=patience_ms, may_create=True)
        if partition is not None and partition >= len(view.partitions):
            # The topic may have grown, or been created anew, since it was asked for.
            await self._cluster.refresh_if_possible([name], seen=self._cluster.metadata.revision)
            view = self._cluster.metadata.topics.get(name, view)
        return view

    @property
    def held_bytes(self) -> int:
        """How much of buffer.memory is in use."""
        return self._accumulator.held_bytes

    async def flush(self) -> None:
        """Send everything now and wait until all of it is settled; each Delivery tells how."""
        self._flushes += 1
        try:
            self._hurry()
            while self._accumulator.unsettled:
                await self._settled.wait()
        finally:
            self._flushes -= 1
            self._hurry()

    async def close(self) -> None:
        """Flush and send no more."""
        if not self.is_closed:
            await self.flush()
            self.abandon()

    def abandon(self) -> None:
        """End now; what is not settled fails."""
        self.is_closed = True
        self._accumulator.fail_all(ClientError(ErrorCode.NETWORK_EXCEPTION, "The producer was closed."))
        self._free_room()
        self._wake.set()
        self._cluster.close_lane(self._lane)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is None:
            await self.close()
        else:
            self.abandon()

    def _partition(self, topic: TopicView, key: bytes | None, given: int | None, size: int) -> int:
        count = len(topic.partitions)
        chosen = self._partitioner(topic.name, key, count) if given is None else given
        if chosen is None:
            return self._sticky.choose(topic.name, topic.available or tuple(topic.partitions), size)
        return self._checked(topic, chosen)

    def _checked(self, topic: TopicView, partition: int) -> int:
        count = len(topic.partitions)
        if not 0 <= partition < count:
            message = f"There is no partition {partition}: the topic has {count}."
            raise ClientError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message, where=topic.name)
        return partition

    async def _admit(self, size: int) -> None:
        """Return when there is room for so many bytes."""
        if not self._accumulator.has_room(size) or self._waiting_for_room:
            await self._room_for(size)
        if self.is_closed:
            raise ClientError(ErrorCode.INVALID_REQUEST, "The producer is closed.")

    async def _room_for(self, size: int) -> None:
        """Wait, behind those who came before, until there is room."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting_for_room.append(future)
        self._hurry()
        try:
            async with self._clock.timeout_ms(self._settings.max_block_ms):
                await future
                while not self._accumulator.has_room(size):
                    await self._settled.wait()
        except TimeoutError:
            message = f"buffer.memory stayed full for {self._settings.max_block_ms} ms."
            raise ClientError(ErrorCode.REQUEST_TIMED_OUT, message) from None
        finally:
            self._waiting_for_room = deque(each for each in self._waiting_for_room if each is not future)
            self._free_room()
            self._hurry()

    def _free_room(self) -> None:
        """Let the next one in line look whether there is room for it."""
        while self._waiting_for_room and self._waiting_for_room[0].cancelled():
            self._waiting_for_room.popleft()
        if self._waiting_for_room and not self._waiting_for_room[0].done():
            self._waiting_for_room[0].set_result(None)

    def _hurry(self) -> None:
        self._accumulator.is_hurried = self._flushes > 0 or bool(self._waiting_for_room)
        self._wake.set()

    # ---------------------------------------------------------------- dispatching

    async def _dispatch_for_ever(self) -> None:
        while not self.is_closed:
            now_ms = self._clock.now_ms()
            before = self._accumulator.unsettled
            self._accumulator.advance(now_ms)
            if self._accumulator.unsettled < before:
                self._note_settled()
            if self._accumulator.needs_producer_id:
                self._errands.run("producer id", self._obtain_producer_id)
            else:
                self._dispatch(now_ms)
            next_ms = self._accumulator.next_event_ms(now_ms)
            await self._wake.wait_at_most(self._clock, None if next_ms is None else next_ms - now_ms)

    def _dispatch(self, now_ms: int) -> None:
        by_leader: dict[int, list[TopicPartition]] = {}
        for partition in self._accumulator.sendable(now_ms):
            leader = self._cluster.metadata.leader(partition)
            if leader is None:
                self._errands.run("metadata", self._refresh)
            else:
                by_leader.setdefault(leader.node_id, []).append(partition)
        for node_id, partitions in by_leader.items():
            connection = self._cluster.open_connection_to(node_id, self._lane)
            if connection is None:
                self._errands.run(f"connect to {node_id}", partial(self._connect, node_id))
                continue
            while partitions and self._may_send(connection):
                self._send(connection, self._taken(partitions))
                ready = dict.fromkeys(self._accumulator.sendable(now_ms))
                partitions[:] = [partition for partition in partitions if partition in ready]

    def _may_send(self, connection: BrokerConnection) -> bool:
        in_flight_max = self._settings.max_in_flight_requests_per_connection
        return connection.is_open and connection.is_writable and connection.in_flight < in_flight_max

    def _taken(self, partitions: Sequence[TopicPartition]) -> list[Batch]:
        """A request's worth: one batch of each partition, as many as fit, at least one."""
        batches: list[Batch] = []
        size = 0
        for partition in partitions:
            if batches and size + self._accumulator.first_bytes(partition) > self._settings.max_request_size:
                break
            batch = self._accumulator.take(partition)
            batches.append(batch)
            size += batch.size_bytes
        return batches

    def _send(self, connection: BrokerConnection, batches: list[Batch]) -> None:
        """Write the request at once: the order of calls is the order on the wire."""
        try:
            request, version = self._request(batches, connection.version_of(ProduceRequest))
            if self._settings.acks == 0:
                connection.tell(request, version=version)
                for batch in batches:
                    self._accumulator.succeeded(batch, base_offset=UNKNOWN_OFFSET, timestamp=None)
                self._note_settled()
                return
            reply = connection.ask(
                request, ProduceResponse, timeout_ms=self._settings.request_timeout_ms, version=version
            )
        except (ConnectionLost, KafkaError) as error:
            self._fail(batches, error)
            return
        self._scope.start(self._settle(batches, reply), name=f"{self._lane}: reply")

    def _request(self, batches: list[Batch], version: int) -> tuple[ProduceRequest, int]:
        topics: dict[str, list[PartitionProduceData]] = {}
        for batch in batches:
            encoded = batch.encoded(self._settings.compression_type)
            data = PartitionProduceData(index=batch.partition.partition, records=encoded)
            topics.setdefault(batch.partition.topic, []).append(data)
        ids = {topic: self._cluster.metadata.topic_id(topic) for topic in topics}
        if ZERO_UUID in ids.values():
            version = min(version, _TOPIC_IDS_SINCE - 1)
        request = ProduceRequest(
            acks=self._settings.acks,
            timeout_ms=self._settings.request_timeout_ms,
            topic_data=[
                TopicProduceData(name=topic, topic_id=ids[topic], partition_data=data)
                for topic, data in topics.items()
            ],
        )
        return request, version

    async def _settle(self, batches: list[Batch], reply: Awaitable[ProduceResponse]) -> None:
        try:
            response = await reply
        except (ConnectionLost, KafkaError, MalformedMessage) as error:
            self._fail(batches, error)
            return
        if self.is_closed:
            return
        rows: dict[tuple[str, int], PartitionProduceResponse] = {}
        for topic in response.responses:
            name = topic.name or self._cluster.metadata.name_of(topic.topic_id)
            rows |= {(name, row.index): row for row in topic.partition_responses}
        for batch in batches:
            row = rows.get((batch.partition.topic, batch.partition.partition))
            if row is None:
                self._fail([batch], ClientError(ErrorCode.UNKNOWN_SERVER_ERROR, "The reply leaves it out."))
            elif row.error_code == ErrorCode.NONE:
                timestamp = None if row.log_append_time_ms < 0 else row.log_append_time_ms
                self._accumulator.succeeded(batch, base_offset=row.base_offset, timestamp=timestamp)
            else:
                self._refused(batch, row, response)
        self._note_settled()

    def _refused(self, batch: Batch, row: PartitionProduceResponse, response: ProduceResponse) -> None:
        hint = Leader(row.current_leader.leader_id, row.current_leader.leader_epoch)
        is_news = self._cluster.metadata.apply_leader(batch.partition, hint, response.node_endpoints)
        # Brokers often repeat what they say of the first record.
        details = [
            each.batch_index_error_message
            for each in row.record_errors
            if (each.batch_index_error_message or "") not in (row.error_message or "")
        ]
        message = "; ".join(filter(None, (row.error_message, *details))) or None
        error = ClientError(code_of(row.error_code), message, where=batch.partition)
        self._fail([batch], error, is_leader_known=is_news)

    def _fail(
        self,
        batches: list[Batch],
        error: ConnectionLost | KafkaError | MalformedMessage,
        *,
        is_leader_known: bool = False,
    ) -> None:
        if self.is_closed:
            return
        now_ms = self._clock.now_ms()
        code = error.code if isinstance(error, KafkaError) else ErrorCode.NETWORK_EXCEPTION
        message = error.message if isinstance(error, KafkaError) else str(error)
        for batch in batches:
            # A leader that the refusing broker named can be asked at once.
            delay_ms = 0 if is_leader_known else self._cluster.backoff_ms(batch.attempts - 1)
            self._accumulator.failed(
                batch,
                ClientError(code, message, where=batch.partition),
                now_ms=now_ms,
                retry_at_ms=now_ms + delay_ms,
            )
        if code.is_retriable and not is_leader_known:
            self._errands.run("metadata", self._refresh)
        self._note_settled()

    def _note_settled(self) -> None:
        self._settled.set_for_all()
        self._free_room()
        self._wake.set()

    # ---------------------------------------------------------------- errands

    async def _connect(self, node_id: int) -> None:
        seen = self._cluster.metadata.revision
        try:
            await self._cluster.connection_to(node_id, self._lane)
            self._connect_failures.pop(node_id, None)
        except (ConnectionLost, KafkaError, MalformedMessage):
            failures = self._connect_failures.get(node_id, 0)
            self._connect_failures[node_id] = failures + 1
            await self._clock.sleep_ms(self._cluster.backoff_ms(failures))
            # Perhaps others lead by now.
            await self._cluster.refresh_if_possible(seen=seen)

    async def _refresh(self) -> None:
        await self._cluster.refresh_if_possible()
        # Whoever is still without a leader asks again, but not at once.
        await self._clock.sleep_ms(self._settings.retry_backoff_ms)

    async def _obtain_producer_id(self) -> None:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=2**31 - 1)
        try:
            response = await self._cluster.ask_any(
                request, InitProducerIdResponse, lambda reply: check(reply.error_code)
            )
        except ClientError as error:
            self._accumulator.fail_all(error)
            self._note_settled()
        else:
            self._accumulator.set_producer(response.producer_id, response.producer_epoch)
