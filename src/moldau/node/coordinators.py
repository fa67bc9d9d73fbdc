"""Coordinators on a node: the shards whose partitions are led here, loaded from their logs and kept in them.

What `coordinator.shard` describes is carried out here, for every kind of coordinator alike: decide, append,
apply at once, wait for the commit, reply. Records that are decided in one tick of the loop are one batch. A
shard lives as long as the leadership of its partition: when that ends, or an append fails, it is dropped with
all that waits for it, and whoever leads next loads it from the log.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections import deque
from collections.abc import Iterator
from functools import cached_property
from typing import Final

from moldau.coordinator.shard import (
    NO_PRODUCER,
    Circumstances,
    CoordinatorRecord,
    Shard,
    ShardDecision,
    ShardKind,
    Surroundings,
    Ticket,
)
from moldau.log.producers import Origin
from moldau.metadata.image import Delta, LocalChanges
from moldau.metadata.view import ClusterView
from moldau.model.draws import SEED_BYTES, Draws
from moldau.model.errors import ErrorCode, KafkaError, MalformedMessage
from moldau.model.ids import PartitionIndex, ProducerId, TopicName, partition_for_coordinator
from moldau.model.settings.setting import InvalidSetting
from moldau.model.settings.table import (
    OFFSETS_COMMIT_TIMEOUT_MS,
    OFFSETS_LOAD_BUFFER_SIZE,
    OFFSETS_TOPIC_COMPRESSION_CODEC,
)
from moldau.node.logs import get_logger
from moldau.node.partitions import Partitions, Replica
from moldau.node.waiting import is_set_within
from moldau.replica.leader import Leader
from moldau.wire.message import Request, Response
from moldau.wire.messages.internal_logs import UnknownRecord
from moldau.wire.records.batch import ControlType, control_type, decode_records, encode_batch, payload_of
from moldau.wire.records.compression import Codec
from moldau.wire.records.header import BatchHeader, Buffer, check_crc, iter_headers
from moldau.wire.records.record import Record
from moldau.world.ports import World

log = get_logger(__name__)

# How long loading a shard may keep others waiting.
_SLICE_US: Final = 2_000
# How long there is nothing to do if no shard has a deadline.
_IDLE_MS: Final = 60_000
_KNOWN_KEYS_MAX: Final = 100_000
# The length, the offset and the timestamp of a record, and the lengths of its key and value; at most.
_RECORD_OVERHEAD_BYTES: Final = 32

# What a client is told when records do not become committed.
_UNCOMMITTED: Final = {
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.NOT_COORDINATOR,
}


class Waiter(Ticket):
    """Somebody who asks a shard, and is told what it says."""

    __slots__ = ()

    @abstractmethod
    def told(self, reply: Response | KafkaError) -> None:
        """Called once, when the reply is final."""


Told = tuple[Waiter, Response | KafkaError]


class Coordinators:
    """All shards of one kind of coordinator that are led here."""

    def __init__(self, world: World, kind: ShardKind, partitions: Partitions) -> None:
        self.topic: Final = TopicName(kind.log.name)
        self.world = world
        self.kind = kind
        self.partitions = partitions
        self.codec = Codec.NONE
        self._around: Surroundings | None = None
        self._led: dict[PartitionIndex, Led] = {}
        self._partition_count = 0
        self._partition_of: dict[str, PartitionIndex] = {}
        self._to_load: deque[Led] = deque()
        self._has_to_load = asyncio.Event()
        self._to_append: dict[Led, None] = {}
        self._has_to_append = asyncio.Event()
        self._woken = asyncio.Event()
        self._sleeping_until_ms = 0

    # ------------------------------------------------------------ asking

    def ask(self, key: str, request: Request, waiter: Waiter) -> None:
        """Have the shard of a group, or whatever the key names, decide on a request."""
        led = self._led.get(self.partition_of(key))
        if led is None:
            waiter.told(KafkaError(ErrorCode.NOT_COORDINATOR))
        else:
            led.ask(request, waiter)

    def shard_of(self, key: str) -> Shard | None:
        """The shard of a key, to look into it; None where it is not led here, or not loaded yet."""
        led = self._led.get(self.partition_of(key))
        return None if led is None else led.shard

    def partition_of(self, key: str) -> PartitionIndex:
        """The partition of the topic in which all about a key is kept; -1 if there is no topic yet."""
        index = self._partition_of.get(key)
        if index is None:
            if not self._partition_count:
                return PartitionIndex(-1)
            index = partition_for_coordinator(key, self._partition_count)
            if len(self._partition_of) >= _KNOWN_KEYS_MAX:
                self._partition_of.clear()
            self._partition_of[key] = index
        return index

    def __iter__(self) -> Iterator[Led]:
        return iter(list(self._led.values()))

    @property
    def around(self) -> Surroundings:
        """The cluster as this node's parts know it."""
        assert self._around is not None, "nothing is led before anything is known of the cluster"
        return self._around

    @cached_property
    def draws(self) -> Draws:
        """Where member ids and the like come from; nothing is drawn before somebody needs one."""
        return Draws(self.world.randomness.bytes(SEED_BYTES))

    # ------------------------------------------------------------ following the metadata

    def follow(self, view: ClusterView, delta: Delta, changes: LocalChanges) -> None:
        """Lead the shards that are led here now, and no others; tell them what has changed."""
        self._around = Surroundings(view.image, view.broker_settings, view.broker_layers)
        self.codec = _codec(view.broker_settings[OFFSETS_TOPIC_COMPRESSION_CODEC])
        topic = view.image.topics.get(self.topic)
        partition_count = 0 if topic is None else len(topic.partitions)
        if partition_count != self._partition_count:
            self._partition_count = partition_count
            self._partition_of.clear()
        for local in (*changes.closed, *changes.followed, *changes.led):
            if local.topic_partition.topic == self.topic:
                self._drop(local.topic_partition.partition, ErrorCode.NOT_COORDINATOR)
        for local in changes.led:
            if local.topic_partition.topic == self.topic:
                self._load_soon(local.topic_partition.partition)
        for led in self:
            led.metadata_changed(delta)

    def _load_soon(self, index: PartitionIndex) -> None:
        replica = self.partitions.find(self.topic, index)
        if replica is None or replica.leader is None:
            return
        led = self._led[index] = Led(self, replica, replica.leader)
        self._to_load.append(led)
        self._has_to_load.set()

    def _drop(self, index: PartitionIndex, code: ErrorCode) -> None:
        led = self._led.pop(index, None)
        if led is not None:
            self._to_append.pop(led, None)
            led.drop(KafkaError(code))

    def failed(self, led: Led, why: str) -> None:
        """What a shard has applied cannot be written, so it has to forget it."""
        index = led.replica.at.partition
        log.error("coordinator dropped", partition=str(led.replica.at), why=why)
        self._drop(index, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        self._load_soon(index)

    # ------------------------------------------------------------ the tasks

    async def run_loads(self) -> None:
        """Load shards from their logs, one after the other."""
        while True:
            while self._to_load:
                led = self._to_load.popleft()
                if self.is_led(led):
                    await led.load()
            self._has_to_load.clear()
            await self._has_to_load.wait()

    def is_led(self, led: Led) -> bool:
        """Whether the shard is the one that speaks for its partition."""
        return self._led.get(led.replica.at.partition) is led

    async def run_appends(self) -> None:
        """Write what was decided since the last turn, a batch for each shard."""
        while True:
            await self._has_to_append.wait()
            self._has_to_append.clear()
            to_append, self._to_append = self._to_append, {}
            for led in to_append:
                led.append()

    def append_soon(self, led: Led) -> None:
        """Have what a shard has decided written in this tick of the loop."""
        self._to_append[led] = None
        self._has_to_append.set()

    async def run_deadlines(self) -> None:
        """Have shards do what nobody asks for, when it is due."""
        clock = self.world.clock
        while True:
            self._woken.clear()
            now_ms = clock.now_ms()
            next_ms = now_ms + _IDLE_MS
            # Whatever changes from here on may have been looked at already.
            self._sleeping_until_ms = next_ms
            for led in self:
                due_ms = led.next_deadline_ms()
                if due_ms is not None and due_ms <= now_ms and self.is_led(led):
                    led.deadlines_passed()
                    due_ms = led.next_deadline_ms()
                    # One of the others may have had to wait for this.
                    await asyncio.sleep(0)
                if due_ms is not None:
                    next_ms = min(next_ms, due_ms)
            self._sleeping_until_ms = next_ms
            await is_set_within(self._woken, clock, next_ms - clock.now_ms())

    def wake_by(self, deadline_ms: int) -> None:
        """Look at the deadlines no later than then."""
        if deadline_ms < self._sleeping_until_ms:
            self._woken.set()


class Led:
    """One shard, for as long as its partition is led here in one leader epoch."""

    def __init__(self, coordinators: Coordinators, replica: Replica, leader: Leader) -> None:
        self.replica = replica
        self._leader = leader
        self._coordinators = coordinators
        self._clock = coordinators.world.clock
        self._kind = coordinators.kind
        self._shard: Shard = coordinators.kind.make()
        self._is_loaded = False
        self._parked: dict[Waiter, None] = {}
        # Decided and applied in this tick, not yet written; and who is told when it is committed.
        self._records: list[Record] = []
        self._told_then: list[Told] = []

    @property
    def shard(self) -> Shard | None:
        """What is led; None while it is being loaded."""
        return self._shard if self._is_loaded else None

    # ------------------------------------------------------------ deciding

    def ask(self, request: Request, waiter: Waiter) -> None:
        """Decide on a request; who asks is told once all that the decision saw is committed."""
        if self.replica.leader is not self._leader:
            waiter.told(KafkaError(ErrorCode.NOT_COORDINATOR))
            return
        if not self._is_loaded:
            waiter.told(KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
            return
        try:
            decision = self._shard.decide(request, waiter, self._circumstances())
        except KafkaError as error:
            self._tell(((waiter, error),))
            return
        reply = decision.reply
        if reply is None:
            self._parked[waiter] = None
            self._carry_out(decision)
        elif decision.records or decision.effects:
            self._carry_out(decision, (waiter, reply))
        else:
            # A heartbeat, or somebody who reads.
            self._tell(((waiter, reply),))
        self._look_at_deadline()

    def metadata_changed(self, delta: Delta) -> None:
        """Let the shard see what has changed in the cluster."""
        if self._is_loaded:
            self._carry_out(self._shard.metadata_changed(delta, self._circumstances()))
            self._look_at_deadline()

    def next_deadline_ms(self) -> int | None:
        """When the shard has something to do by itself."""
        return self._shard.next_deadline_ms() if self._is_loaded else None

    def deadlines_passed(self) -> None:
        """Have the shard do what is due."""
        if self.replica.leader is self._leader:
            self._carry_out(self._shard.deadlines_passed(self._circumstances()))

    def _circumstances(self) -> Circumstances:
        clock, coordinators = self._clock, self._coordinators
        return Circumstances(
            clock.now_ms(),
            clock.wall_ms(),
            coordinators.draws,
            coordinators.around,
            self._leader.config.rules.message_bytes_max,
        )

    def _look_at_deadline(self) -> None:
        deadline_ms = self._shard.next_deadline_ms()
        if deadline_ms is not None:
            self._coordinators.wake_by(deadline_ms)

    # ------------------------------------------------------------ carrying out

    def _carry_out(self, decision: ShardDecision[object], *told: Told) -> None:
        """Apply what was decided at once, and have it written in this tick."""
        if decision.records:
            shard, kind = self._shard, self._kind
            records, wall_ms = self._records, self._clock.wall_ms()
            for record in decision.records:
                key, value = record
                encoded = None if value is None else kind.log.encode_value(value, kind.version_of(value))
                records.append(Record(len(records), wall_ms, kind.log.encode_key(key), encoded))
                shard.apply(record)
            self._coordinators.append_soon(self)
        replies = list(told)
        for ticket, reply in decision.effects:
            assert isinstance(ticket, Waiter)
            # It may be the one that is being decided, which then has not been parked for long.
            self._parked.pop(ticket, None)
            replies.append((ticket, reply))
        if replies:
            self._tell(replies)

    def _tell(self, replies: tuple[Told, ...] | list[Told]) -> None:
        """Give replies once everything that they saw is committed."""
        if self._records:
            self._told_then += replies
        else:
            self._tell_when_committed(replies)

    def _tell_when_committed(self, replies: tuple[Told, ...] | list[Told]) -> None:
        partition_log = self.replica.log
        end = partition_log.log_end_offset
        if end <= partition_log.high_watermark:
            for waiter, reply in replies:
                waiter.told(reply)
            return
        timeout_ms = self._coordinators.around.settings[OFFSETS_COMMIT_TIMEOUT_MS]
        self.replica.waiting.for_commit(
            end,
            deadline_ms=self._clock.now_ms() + timeout_ms,
            told=lambda code: _tell_all(replies, code),
        )

    def append(self) -> None:
        """Write what was decided since the last time as one batch, or several if it is much."""
        records, self._records = self._records, []
        told, self._told_then = self._told_then, []
        if not records:
            return
        if self.replica.leader is not self._leader:
            _tell_all(told, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return
        try:
            size_max = self._leader.config.rules.message_bytes_max
            self._leader.log.append_as_leader(
                bytearray(b"".join(_batches(records, self._coordinators.codec, size_max))),
                leader_epoch=self._leader.epoch,
                now_ms=self._clock.wall_ms(),
                origin=Origin.COORDINATOR,
            )
        except (OSError, KafkaError) as error:
            _tell_all(told, ErrorCode.REQUEST_TIMED_OUT)
            self._coordinators.failed(self, str(error))
            return
        self._coordinators.partitions.appended(self.replica)
        self._tell_when_committed(told)

    def drop(self, error: KafkaError) -> None:
        """Send everybody away: what this shard knows is worth nothing any more."""
        parked, self._parked = self._parked, {}
        told, self._told_then = self._told_then, []
        self._records = []
        self._is_loaded = False
        for waiter in (*parked, *(waiter for waiter, _ in told)):
            waiter.told(error)

    # ------------------------------------------------------------ loading

    async def load(self) -> None:
        """Apply the whole log, and let others have their turn in between."""
        partition_log, began_ms = self._leader.log, self._clock.now_ms()
        offset = partition_log.log_start_offset
        # Nobody else writes to it, and this shard does not before it is loaded.
        end = partition_log.log_end_offset
        while offset < end and self._coordinators.is_led(self):
            bytes_max = self._coordinators.around.settings[OFFSETS_LOAD_BUFFER_SIZE]
            try:
                found = partition_log.read(offset, bytes_max=bytes_max, end_limit=end)
            except KafkaError as error:
                offset = self._skip_damage(offset, error)
                continue
            if found.records is not None:
                data = await self._coordinators.world.tasks.off_loop(found.records.read)
                await self._apply_batches(data)
            offset = max(found.end_offset, offset + 1)
        if not self._coordinators.is_led(self):
            return
        self._is_loaded = True
        self._carry_out(self._shard.loaded(self._circumstances()))
        self._look_at_deadline()
        took_ms = self._clock.now_ms() - began_ms
        log.info("coordinator loaded", partition=str(self.replica.at), records_end=end, took_ms=took_ms)

    def _skip_damage(self, offset: int, error: KafkaError) -> int:
        """Go on behind records that cannot be read any more; what they said is lost, and is said so."""
        damage = next(
            (each for each in self._leader.log.corrupt_ranges if each.offset <= offset < each.offset_end),
            None,
        )
        if damage is None:
            raise error
        log.error(
            "coordinator's records are damaged",
            partition=str(self.replica.at),
            offset=damage.offset,
            offset_end=damage.offset_end,
        )
        return damage.offset_end

    async def _apply_batches(self, data: bytes) -> None:
        clock = self._clock
        turn_ends_us = clock.now_us() + _SLICE_US
        try:
            for position, header in iter_headers(data):
                self._apply_batch(data, position, header)
                if clock.now_us() >= turn_ends_us:
                    await asyncio.sleep(0)
                    if not self._coordinators.is_led(self):
                        return
                    turn_ends_us = clock.now_us() + _SLICE_US
        except MalformedMessage as error:
            log.error(
                "coordinator's batches cannot be read", partition=str(self.replica.at), error=str(error)
            )

    def _apply_batch(self, data: Buffer, position: int, header: BatchHeader) -> None:
        try:
            check_crc(data, position, header)
            records = decode_records(header, payload_of(data, position, header))
        except (MalformedMessage, KafkaError) as error:
            log.error(
                "coordinator's batch cannot be read",
                partition=str(self.replica.at),
                offset=header.base_offset,
                error=str(error),
            )
            return
        producer_id = ProducerId(header.producer_id)
        if header.is_control:
            for record in records:
                kind = control_type(record.key)
                if kind in (ControlType.COMMIT, ControlType.ABORT):
                    self._shard.end_transaction(producer_id, is_commit=kind is ControlType.COMMIT)
            return
        for record in records:
            self._apply_record(record, producer_id if header.is_transactional else NO_PRODUCER)

    def _apply_record(self, record: Record, producer_id: ProducerId) -> None:
        if record.key is None:
            return
        try:
            key = self._kind.log.decode_key(record.key)
            value = None if record.value is None else self._kind.log.decode_value(key, record.value)
        except (UnknownRecord, MalformedMessage) as error:
            # A newer release wrote it; Kafka passes over such records too.
            log.limited(
                "coordinator's record is not known",
                key=str(self.replica.at),
                now_ms=self._clock.now_ms(),
                offset=record.offset,
                error=str(error),
            )
            return
        self._shard.apply(CoordinatorRecord(key, value), producer_id)


def _codec(number: int) -> Codec:
    try:
        return Codec(number)
    except ValueError:
        raise InvalidSetting(
            f"There is no codec {number}: {OFFSETS_TOPIC_COMPRESSION_CODEC.name} is one of "
            f"{', '.join(f'{each.value} ({each.name.lower()})' for each in Codec)}."
        ) from None


def _tell_all(replies: tuple[Told, ...] | list[Told], code: ErrorCode) -> None:
    if code is ErrorCode.NONE:
        for waiter, reply in replies:
            waiter.told(reply)
        return
    error = KafkaError(_UNCOMMITTED[code])
    for waiter, _ in replies:
        waiter.told(error)


def _batches(records: list[Record], codec: Codec, size_max: int) -> Iterator[bytes]:
    """The records as batches that are not too large, unless a single record is."""
    if len(records) == 1:
        yield encode_batch(records, codec=codec)
        return
    begin = size = 0
    for number, record in enumerate(records):
        more = len(record.key or b"") + len(record.value or b"") + _RECORD_OVERHEAD_BYTES
        if size and size + more > size_max:
            yield _batch(records[begin:number], codec)
            begin, size = number, 0
        size += more
    yield _batch(records[begin:], codec)


def _batch(records: list[Record], codec: Codec) -> bytes:
    first = records[0].offset
    if first:
        records = [record._replace(offset=record.offset - first) for record in records]
    return encode_batch(records, codec=codec)
