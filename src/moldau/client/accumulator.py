"""What a producer holds back: records into batches, batches into order, and what an answer means for each.

A partition's batches are sent in the order they were made. With idempotence each carries a sequence number
from its first sending on, by which the broker knows repetitions and gaps. A batch that fails for good leaves
a gap, so the partition goes on in a new producer epoch, counting from 0 again (KIP-360). Brokers keep that
epoch by partition, so other partitions need not notice.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from moldau.client.errors import ClientError
from moldau.client.settings import ClientSettings
from moldau.model.errors import ErrorCode
from moldau.model.ids import Sequence, TopicPartition, sequence_after
from moldau.wire.records.batch import Packed, encode_batch
from moldau.wire.records.compression import Codec
from moldau.wire.records.header import HEADER_BYTES, NO_SEQUENCE
from moldau.wire.records.record import Headers, Record

PRODUCER_EPOCH_MAX = 2**15 - 1
_FIRST_SEQUENCE = Sequence(0)
UNKNOWN_OFFSET = -1
# Lengths and deltas of a record at their longest that is usual; an estimate, on the safe side.
_RECORD_OVERHEAD_BYTES = 21
_HEADER_OVERHEAD_BYTES = 6

# After these nobody knows whether the batch was written. A broker that loses or closes a partition says the
# same to those whose batch it has refused and to those whose batch it has in its log and cannot commit.
_FATE_UNKNOWN = (
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.UNKNOWN_SERVER_ERROR,
)


def record_bytes(key: bytes | None, value: bytes | None, headers: Headers) -> int:
    """About how much room a record takes in a batch."""
    size = _RECORD_OVERHEAD_BYTES + len(key or b"") + len(value or b"")
    for name, text in headers:
        size += _HEADER_OVERHEAD_BYTES + len(name) + len(text or b"")
    return size


@dataclass(frozen=True, slots=True)
class Written:
    """The batch is in the log; `timestamp` only if the broker replaced the records' own."""

    base_offset: int
    timestamp: int | None


@dataclass(frozen=True, slots=True)
class Failed:
    """The batch was given up."""

    error: ClientError


@dataclass(frozen=True, slots=True)
class Split:
    """The batch was too large, and its records went on in these two."""

    first: Batch
    second: Batch

    def find(self, index: int) -> tuple[Batch, int]:
        """Where the record with this place in the whole batch is now."""
        middle = self.first.count
        return (self.first, index) if index < middle else (self.second, index - middle)


Outcome = Written | Failed | Split


class Batch:
    """Records of one partition that are sent together, as they came one by one or already packed."""

    __slots__ = (
        "attempts",
        "base_sequence",
        "created_ms",
        "doubt",
        "number",
        "on_done",
        "outcome",
        "packed",
        "partition",
        "producer_epoch",
        "producer_id",
        "records",
        "size_bytes",
    )

    def __init__(
        self,
        partition: TopicPartition,
        *,
        number: tuple[int, ...],
        created_ms: int,
        packed: Packed | None = None,
    ) -> None:
        self.partition = partition
        self.number = number
        self.created_ms = created_ms
        self.records: list[Record] = []
        self.packed = packed
        self.size_bytes = HEADER_BYTES if packed is None else packed.size_bytes
        self.attempts = 0
        self.doubt: ClientError | None = None
        """The last answer, or lack of one, that left open whether the batch was written."""
        self.producer_id = -1
        self.producer_epoch = -1
        self.base_sequence = NO_SEQUENCE
        self.outcome: Outcome | None = None
        self.on_done: list[Callable[[], None]] = []

    @property
    def count(self) -> int:
        """How many records it has."""
        return len(self.records) if self.packed is None else self.packed.count

    def add(self, size: int, timestamp: int, key: bytes | None, value: bytes | None, headers: Headers) -> int:
        """Append a record; gives its place in the batch."""
        index = len(self.records)
        self.records.append(Record(index, timestamp, key, value, headers))
        self.size_bytes += size
        return index

    def encoded(self, codec: Codec) -> bytes:
        """What goes over the wire; records that came packed keep the codec that they were packed with."""
        if self.packed is not None:
            return self.packed.sealed(
                producer_id=self.producer_id,
                producer_epoch=self.producer_epoch,
                base_sequence=self.base_sequence,
            )
        return encode_batch(
            self.records,
            codec=codec,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            base_sequence=self.base_sequence,
        )

    def finish(self, outcome: Outcome) -> None:
        """Settle what became of the batch, once."""
        assert self.outcome is None, self.outcome
        self.outcome = outcome
        waiting, self.on_done = self.on_done, []
        for tell in waiting:
            tell()

    def halves(self) -> Split:
        """Two batches with the records, and the sequence numbers, of this one."""
        first, second = self._packed_halves() if self.packed is not None else self._halves_of_records()
        for part, records_before in ((first, 0), (second, first.count)):
            part.attempts = self.attempts
            part.producer_id, part.producer_epoch = self.producer_id, self.producer_epoch
            if self.base_sequence != NO_SEQUENCE:
                part.base_sequence = sequence_after(Sequence(self.base_sequence), records_before)
        return Split(first, second)

    def _packed_halves(self) -> tuple[Batch, Batch]:
        assert self.packed is not None
        first, second = self.packed.halves()
        return self._part(0, first), self._part(1, second)

    def _halves_of_records(self) -> tuple[Batch, Batch]:
        parts = self._part(0), self._part(1)
        middle = len(self.records) // 2
        for part, records in zip(parts, (self.records[:middle], self.records[middle:]), strict=True):
            for record in records:
                size = record_bytes(record.key, record.value, record.headers)
                part.add(size, record.timestamp, record.key, record.value, record.headers)
        return parts

    def _part(self, turn: int, packed: Packed | None = None) -> Batch:
        return Batch(self.partition, number=(*self.number, turn), created_ms=self.created_ms, packed=packed)


@dataclass(slots=True)
class _Line:
    """The batches of one partition, and where its sequence numbers are."""

    partition: TopicPartition
    waiting: deque[Batch] = field(default_factory=deque)
    in_flight: list[Batch] = field(default_factory=list)
    retry_at_ms: int = 0
    producer_id: int = -1
    producer_epoch: int = -1
    next_sequence: Sequence = _FIRST_SEQUENCE
    # Whether the broker has written a batch of this epoch.
    is_introduced: bool = False
    has_gap: bool = False


class Accumulator:
    """All that was sent and is not settled yet; the caller carries out the sending."""

    def __init__(self, settings: ClientSettings) -> None:
        self._settings = settings
        self._is_idempotent = settings.is_idempotent
        self._producer: tuple[int, int] | None = None
        self._lines: dict[TopicPartition, _Line] = {}
        # The partitions that have something waiting, in the order they came; others cost nothing.
        self._busy: dict[TopicPartition, _Line] = {}
        self._batch_count = 0
        self.held_bytes = 0
        self.unsettled = 0
        # While somebody waits for room or for a flush, nothing lingers.
        self.is_hurried = False

    # ---------------------------------------------------------------- filling

    def has_room(self, size: int) -> bool:
        """Whether a record of this size may be appended; one that is larger than all the room may, alone."""
        return self.held_bytes == 0 or self.held_bytes + size <= self._settings.buffer_memory

    def append(
        self,
        partition: TopicPartition,
        record: tuple[int, bytes | None, bytes | None, Headers],
        *,
        size: int,
        now_ms: int,
    ) -> tuple[Batch, int, bool]:
        """Put a record (timestamp, key, value, headers) into a batch.

        Gives the batch, the record's place in it, and whether there is more to send, or a moment to wait for,
        than before.
        """
        line = self._line(partition)
        batch = line.waiting[-1] if line.waiting else None
        is_news = False
        if (
            batch is None
            or batch.attempts
            or batch.packed is not None
            or batch.size_bytes + size > self._settings.batch_size
        ):
            batch = Batch(partition, number=self._next_number(), created_ms=now_ms)
            self._enqueue(line, batch)
            is_news = True
        index = batch.add(size, *record)
        self.held_bytes += size
        return batch, index, is_news or batch.size_bytes >= self._settings.batch_size

    def append_packed(self, partition: TopicPartition, packed: Packed, *, now_ms: int) -> Batch:
        """Put records that are packed already behind those that came before; they do not linger."""
        batch = Batch(partition, number=self._next_number(), created_ms=now_ms, packed=packed)
        self._enqueue(self._line(partition), batch)
        return batch

    def _line(self, partition: TopicPartition) -> _Line:
        line = self._lines.get(partition)
        if line is None:
            line = self._lines[partition] = _Line(partition)
        return line

    def _next_number(self) -> tuple[int, ...]:
        self._batch_count += 1
        return (self._batch_count,)

    def _enqueue(self, line: _Line, batch: Batch) -> None:
        line.waiting.append(batch)
        self._busy[line.partition] = line
        self.held_bytes += batch.size_bytes
        self.unsettled += 1

    # ---------------------------------------------------------------- sending

    @property
    def needs_producer_id(self) -> bool:
        """Whether an id must be had before anything new can be sent."""
        return self._is_idempotent and self._producer is None and bool(self._busy)

    def set_producer(self, producer_id: int, epoch: int) -> None:
        """Use this id from now on."""
        self._producer = (producer_id, epoch)

    def sendable(self, now_ms: int) -> list[TopicPartition]:
        """The partitions whose first batch should be sent now."""
        return [partition for partition, line in self._busy.items() if self._is_sendable(line, now_ms)]

    def next_event_ms(self, now_ms: int) -> int | None:
        """When something becomes sendable or expires by itself; None if nothing will."""
        soonest: int | None = None
        for line in self._busy.values():
            head = line.waiting[0]
            at = head.created_ms + self._settings.delivery_timeout_ms
            # What waits for an answer, rather than for time, is looked at when the answer comes.
            if not self._is_held_up(line):
                at = min(at, self._due_ms(line))
            # What is due and was not sent waits for a leader or a connection.
            if at > now_ms and (soonest is None or at < soonest):
                soonest = at
        return soonest

    def first_bytes(self, partition: TopicPartition) -> int:
        """About how large the batch is that `take` would give."""
        return self._busy[partition].waiting[0].size_bytes

    def take(self, partition: TopicPartition) -> Batch:
        """The partition's first batch, which is in flight from now on."""
        line = self._busy[partition]
        assert not line.has_gap, "a gap is closed before anything is sent behind it"
        batch = line.waiting.popleft()
        self._note_if_idle(line)
        batch.attempts += 1
        if self._is_idempotent and batch.base_sequence == NO_SEQUENCE:
            self._number(line, batch)
        line.in_flight.append(batch)
        return batch

    def _is_sendable(self, line: _Line, now_ms: int) -> bool:
        return not self._is_held_up(line) and self._due_ms(line) <= now_ms

    def _due_ms(self, line: _Line) -> int:
        """From when on the first batch need not wait for more records, or for another try."""
        head = line.waiting[0]
        lingers = not (
            self.is_hurried
            or head.attempts > 0
            or head.packed is not None
            or len(line.waiting) > 1
            or head.size_bytes >= self._settings.batch_size
        )
        return max(line.retry_at_ms, head.created_ms + self._settings.linger_ms if lingers else 0)

    def _is_held_up(self, line: _Line) -> bool:
        """Whether the first batch must wait for others of its partition to be answered."""
        in_flight = len(line.in_flight)
        # A repetition goes alone: were a later batch under way, it might be written before. So does the first
        # batch of an epoch: a broker that knows nothing of a producer accepts any sequence number.
        is_introduced = line.is_introduced or not self._is_idempotent
        is_alone = line.has_gap or line.waiting[0].attempts > 0 or not is_introduced
        return (
            in_flight > 0 if is_alone else in_flight >= self._settings.max_in_flight_requests_per_connection
        )

    def _number(self, line: _Line, batch: Batch) -> None:
        if line.producer_id < 0:
            assert self._producer is not None, "a producer id comes before the first batch"
            line.producer_id, line.producer_epoch = self._producer
            line.next_sequence = _FIRST_SEQUENCE
        batch.producer_id, batch.producer_epoch = line.producer_id, line.producer_epoch
        batch.base_sequence = line.next_sequence
        line.next_sequence = sequence_after(line.next_sequence, batch.count)

    def _start_new_epoch(self, line: _Line) -> None:
        assert not line.in_flight, "a new epoch starts when nothing of the old one is under way"
        # In another epoch the broker would not know them again, and might write them twice. That is looked at
        # only now, as what was under way when the gap came about may have been written, too.
        for batch in list(line.waiting):
            if batch.doubt is not None:
                line.waiting.remove(batch)
                self._settle(batch, Failed(batch.doubt))
        self._note_if_idle(line)
        line.has_gap = line.is_introduced = False
        line.next_sequence = _FIRST_SEQUENCE
        if line.producer_epoch < PRODUCER_EPOCH_MAX:
            line.producer_epoch += 1
        else:
            # Epochs are used up: the next id starts again at 0.
            line.producer_id, self._producer = -1, None
        for batch in line.waiting:
            batch.base_sequence = NO_SEQUENCE

    # ---------------------------------------------------------------- settling

    def succeeded(self, batch: Batch, *, base_offset: int, timestamp: int | None) -> None:
        """The broker has written the batch."""
        if batch.outcome is not None:
            return  # everything was given up meanwhile
        line = self._lines[batch.partition]
        line.in_flight.remove(batch)
        line.is_introduced = True
        self._settle(batch, Written(base_offset, timestamp))

    def failed(self, batch: Batch, error: ClientError, *, now_ms: int, retry_at_ms: int) -> None:
        """The broker has refused the batch, or its answer is lost."""
        if batch.outcome is not None:
            return
        line = self._lines[batch.partition]
        line.in_flight.remove(batch)
        code = error.code
        if code in _FATE_UNKNOWN:
            batch.doubt = error
        if code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            self._settle(batch, Written(UNKNOWN_OFFSET, None))
        elif code == ErrorCode.MESSAGE_TOO_LARGE and batch.count > 1 and batch.doubt is None:
            self._split(line, batch)
        elif self._may_retry(line, batch, code, now_ms):
            line.has_gap |= code == ErrorCode.UNKNOWN_PRODUCER_ID
            line.retry_at_ms = retry_at_ms
            self._put_back(line, batch)
        else:
            self._give_up(line, batch, error)

    def advance(self, now_ms: int) -> None:
        """Give up what waits longer than delivery.timeout.ms, and start new epochs where there are gaps.

        What is in flight does not expire: its answer comes, or is lost, soon enough.
        """
        timeout_ms = self._settings.delivery_timeout_ms
        for line in list(self._busy.values()):
            while line.waiting and line.waiting[0].created_ms + timeout_ms <= now_ms:
                batch = line.waiting.popleft()
                message = f"Not delivered within {timeout_ms} ms, after {batch.attempts} attempts."
                error = ClientError(ErrorCode.REQUEST_TIMED_OUT, message, where=batch.partition)
                self._give_up(line, batch, error)
            self._note_if_idle(line)
            if line.has_gap and not line.in_flight:
                self._start_new_epoch(line)

    def fail_all(self, error: ClientError) -> None:
        """Give up everything, because the producer ends."""
        for line in self._lines.values():
            for batch in (*line.in_flight, *line.waiting):
                self._settle(batch, Failed(error))
            line.in_flight.clear()
            line.waiting.clear()
        self._busy.clear()

    def _may_retry(self, line: _Line, batch: Batch, code: ErrorCode, now_ms: int) -> bool:
        is_late = batch.created_ms + self._settings.delivery_timeout_ms <= now_ms
        if batch.attempts > self._settings.retries or is_late:
            return False
        if code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            # Behind a batch that failed this is to be expected; for the first in line it means lost records.
            before = (each for each in (*line.in_flight, *line.waiting) if each.number < batch.number)
            return line.has_gap or any(before)
        return code.is_retriable or code == ErrorCode.UNKNOWN_PRODUCER_ID

    def _give_up(self, line: _Line, batch: Batch, error: ClientError) -> None:
        line.has_gap |= batch.base_sequence != NO_SEQUENCE
        self._settle(batch, Failed(error))

    def _split(self, line: _Line, batch: Batch) -> None:
        parts = batch.halves()
        for part in (parts.first, parts.second):
            self.held_bytes += part.size_bytes
            self.unsettled += 1
            self._put_back(line, part)
        self._settle(batch, parts)

    def _put_back(self, line: _Line, batch: Batch) -> None:
        """Among those that wait, in the order they were made."""
        at = sum(1 for each in line.waiting if each.number < batch.number)
        line.waiting.insert(at, batch)
        self._busy[batch.partition] = line

    def _settle(self, batch: Batch, outcome: Outcome) -> None:
        self.held_bytes -= batch.size_bytes
        self.unsettled -= 1
        batch.finish(outcome)

    def _note_if_idle(self, line: _Line) -> None:
        if not line.waiting:
            self._busy.pop(line.partition, None)
