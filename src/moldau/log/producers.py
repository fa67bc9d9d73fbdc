"""What a log knows of its producers: enough to tell a repeated batch, and which transactions are open.

The state follows from the log alone, so that a follower, a restart and a truncation arrive at the same one.
Kafka's snapshot keeps the last batch of each producer. A second file beside it keeps all five, and the
transactions that ended but are not committed yet; it counts only if it was written with that snapshot.
"""

from __future__ import annotations

import struct
from bisect import insort
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final, NamedTuple

from moldau.log.index import AbortedTransaction
from moldau.model.errors import ErrorCode, KafkaError, MalformedMessage
from moldau.model.ids import SEQUENCE_MAX
from moldau.wire.crc import crc32c
from moldau.wire.records.batch import (
    ControlType,
    control_type,
    coordinator_epoch_of,
    decode_records,
    payload_of,
)
from moldau.wire.records.header import NO_PRODUCER_EPOCH, NO_SEQUENCE, BatchHeader, Buffer

BATCHES_MAX: Final = 5
NO_COORDINATOR_EPOCH: Final = -1
# From transactions v2 on (KIP-890) a marker has an epoch of its own, so that a late one can be told.
STRICT_TRANSACTION_VERSION: Final = 2


class Origin(Enum):
    """Who appends, which decides what is checked."""

    CLIENT = "client"
    COORDINATOR = "coordinator"
    REPLICATION = "replication"


class ProducedBatch(NamedTuple):
    """A batch as far as its repetition must be recognised."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_sequence(self) -> int:
        """Sequence number of its first record."""
        if self.last_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.last_sequence - self.offset_delta) & SEQUENCE_MAX

    @property
    def first_offset(self) -> int:
        """Offset of its first record."""
        return self.last_offset - self.offset_delta


@dataclass(frozen=True, slots=True)
class Producer:
    """The state of one producer in one log."""

    producer_id: int
    epoch: int = NO_PRODUCER_EPOCH
    batches: tuple[ProducedBatch, ...] = ()
    """The last five of this epoch, oldest first; none after a marker that raised the epoch."""
    coordinator_epoch: int = NO_COORDINATOR_EPOCH
    last_timestamp: int = -1
    transaction_first_offset: int | None = None

    @property
    def last_sequence(self) -> int:
        """The sequence number after which the next one is expected."""
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def last_data_offset(self) -> int | None:
        """Where the last batch ended; None if only a marker is known of this epoch."""
        return self.batches[-1].last_offset if self.batches else None


class Marker(NamedTuple):
    """The end of a transaction, as its control batch says it."""

    is_abort: bool
    coordinator_epoch: int


class EndedTransaction(NamedTuple):
    """A transaction that had records in this log, and has ended."""

    producer_id: int
    first_offset: int
    last_offset: int
    is_aborted: bool


class StartedTransaction(NamedTuple):
    """A transaction whose first records arrive."""

    producer_id: int
    first_offset: int


def read_marker(buffer: Buffer, position: int, header: BatchHeader) -> Marker | None:
    """What the control batch at `position` says of a transaction; None if it says nothing of one."""
    if not header.is_control or not header.has_producer_id or header.count == 0:
        return None
    record = decode_records(header, payload_of(buffer, position, header))[0]
    kind = control_type(record.key)
    if kind not in (ControlType.ABORT, ControlType.COMMIT):
        return None
    return Marker(is_abort=kind is ControlType.ABORT, coordinator_epoch=coordinator_epoch_of(record.value))


class Producers:
    """All producers of one log, and the transactions that hold back its last stable offset."""

    def __init__(self) -> None:
        self._producers: dict[int, Producer] = {}
        self._open: list[StartedTransaction] = []
        self._unreplicated: list[EndedTransaction] = []
        self.is_complete = True
        """Whether this is all that was known, and not only what Kafka's snapshot holds."""

    def __len__(self) -> int:
        return len(self._producers)

    def __iter__(self) -> Iterator[Producer]:
        return iter(self._producers.values())

    def get(self, producer_id: int) -> Producer | None:
        """A producer's state, if it is known."""
        return self._producers.get(producer_id)

    def duplicate_of(self, header: BatchHeader) -> ProducedBatch | None:
        """The batch that a producer is sending again, if it is one of its last five."""
        producer = self._producers.get(header.producer_id)
        if producer is None or producer.epoch != header.producer_epoch:
            return None
        for batch in producer.batches:
            if batch.last_sequence == header.last_sequence and batch.first_sequence == header.base_sequence:
                return batch
        return None

    def update(self, origin: Origin, *, transaction_version: int = 0) -> Update:
        """A change to be built batch by batch, and then applied or forgotten."""
        return Update(self, origin, transaction_version)

    def apply(self, update: Update) -> list[AbortedTransaction]:
        """Take over a change; gives the transactions that it aborted."""
        self._producers.update(update.changed)
        aborted = []
        for event in update.events:
            if isinstance(event, StartedTransaction):
                insort(self._open, event, key=_first_offset)
                continue
            self._open = [started for started in self._open if started.producer_id != event.producer_id]
            if event.is_aborted:
                stable = self._open[0].first_offset if self._open else event.last_offset + 1
                aborted.append(
                    AbortedTransaction(event.producer_id, event.first_offset, event.last_offset, stable)
                )
            insort(self._unreplicated, event, key=_first_offset)
        return aborted

    def first_unstable_offset(self, high_watermark: int) -> int | None:
        """Start of the earliest transaction that is open, or whose marker is not committed yet."""
        self._forget_replicated(high_watermark)
        firsts = [ended.first_offset for ended in self._unreplicated[:1]]
        firsts += (started.first_offset for started in self._open[:1])
        return min(firsts, default=None)

    def _forget_replicated(self, high_watermark: int) -> None:
        if self._unreplicated:
            self._unreplicated = [
                ended for ended in self._unreplicated if ended.last_offset >= high_watermark
            ]

    def expire(self, *, now_ms: int, expiration_ms: int) -> None:
        """Forget producers that were silent for `expiration_ms`, unless they have a transaction open."""
        self._producers = {
            producer.producer_id: producer
            for producer in self._producers.values()
            if producer.transaction_first_offset is not None
            or now_ms - producer.last_timestamp < expiration_ms
        }

    # ------------------------------------------------------------ files

    def to_snapshot(self, high_watermark: int) -> tuple[bytes, bytes | None]:
        """Kafka's snapshot, and the file beside it unless there is no producer."""
        self._forget_replicated(high_watermark)
        entries = b"".join(
            _SNAPSHOT_ENTRY.pack(
                producer.producer_id,
                producer.epoch,
                *(producer.batches[-1][:3] if producer.batches else (NO_SEQUENCE, -1, 0)),
                producer.last_timestamp,
                producer.coordinator_epoch,
                -1 if producer.transaction_first_offset is None else producer.transaction_first_offset,
            )
            for producer in self._producers.values()
        )
        snapshot = _sealed(_SNAPSHOT_VERSION, _COUNT.pack(len(self._producers)) + entries)
        if not self._producers:
            return snapshot, None
        recent = [_crc_field(snapshot), _COUNT.pack(len(self._producers))]
        for producer in self._producers.values():
            recent.append(_RECENT_PRODUCER.pack(producer.producer_id, len(producer.batches)))
            recent += (_RECENT_BATCH.pack(*batch) for batch in producer.batches)
        recent += (_ENDED_TRANSACTION.pack(*ended) for ended in self._unreplicated)
        return snapshot, _sealed(_RECENT_VERSION, b"".join(recent))

    @classmethod
    def from_snapshot(cls, snapshot: bytes, recent: bytes | None) -> Producers:
        """The state that a snapshot holds; MalformedMessage if it is damaged."""
        body = _unsealed(snapshot, _SNAPSHOT_VERSION)
        try:
            (count,) = _COUNT.unpack_from(body)
            entries = list(_SNAPSHOT_ENTRY.iter_unpack(body[_COUNT.size :]))
        except struct.error as error:
            raise MalformedMessage(f"producer snapshot: {error}") from None
        if count != len(entries):
            raise MalformedMessage(f"producer snapshot: {count} entries announced, {len(entries)} found")
        producers = cls()
        found = None if recent is None else _read_recent(recent, snapshot)
        producers.is_complete = found is not None or not entries
        older, producers._unreplicated = found or ({}, [])
        for (
            producer_id,
            epoch,
            sequence,
            offset,
            delta,
            timestamp,
            coordinator_epoch,
            first_offset,
        ) in entries:
            last = () if offset < 0 else (ProducedBatch(sequence, offset, delta, timestamp),)
            producers._producers[producer_id] = Producer(
                producer_id,
                epoch,
                older.get(producer_id, last),
                coordinator_epoch,
                timestamp,
                None if first_offset < 0 else first_offset,
            )
            if first_offset >= 0:
                insort(producers._open, StartedTransaction(producer_id, first_offset), key=_first_offset)
        return producers


class Update:
    """A change of producers' states that checks each batch against those before it."""

    def __init__(self, producers: Producers, origin: Origin, transaction_version: int) -> None:
        self.changed: dict[int, Producer] = {}
        self.events: list[StartedTransaction | EndedTransaction] = []
        self._producers = producers
        self._origin = origin
        self._is_strict = transaction_version >= STRICT_TRANSACTION_VERSION

    def add(self, header: BatchHeader, marker: Marker | None) -> None:
        """Take in one batch; KafkaError if its producer may not write it."""
        producer_id = header.producer_id
        known = self.changed.get(producer_id) or self._producers.get(producer_id)
        producer = known or Producer(producer_id)
        if marker is not None:
            self.changed[producer_id] = self._after_marker(producer, header, marker)
        elif header.is_control:
            # The marker of a transaction that compaction has removed: what is left of it is the epoch.
            self.changed[producer_id] = _in_epoch(producer, header.producer_epoch)
        else:
            self.changed[producer_id] = self._after_data(producer, header)

    def _after_data(self, producer: Producer, header: BatchHeader) -> Producer:
        if self._origin is not Origin.REPLICATION:
            if header.producer_epoch < producer.epoch:
                raise _stale_epoch(producer, header)
            if self._origin is Origin.CLIENT:
                self._check_sequence(producer, header)
            if producer.transaction_first_offset is not None and not header.is_transactional:
                raise KafkaError(
                    ErrorCode.INVALID_TXN_STATE,
                    f"producer {producer.producer_id} has a transaction open and writes outside of it",
                )
        batch = ProducedBatch(
            header.last_sequence, header.last_offset, header.last_offset_delta, header.max_timestamp
        )
        current = _in_epoch(producer, header.producer_epoch)
        first_offset = current.transaction_first_offset
        if first_offset is None and header.is_transactional:
            first_offset = header.base_offset
            self.events.append(StartedTransaction(producer.producer_id, first_offset))
        # Spelt out, as this is done for every batch and `replace` is slow.
        return Producer(
            producer.producer_id,
            current.epoch,
            (*current.batches, batch)[-BATCHES_MAX:],
            current.coordinator_epoch,
            header.max_timestamp,
            first_offset,
        )

    def _check_sequence(self, producer: Producer, header: BatchHeader) -> None:
        sequence = header.base_sequence
        if producer.epoch == NO_PRODUCER_EPOCH:
            # Retention or expiry has taken what was known, so anything may follow; but a transaction of the
            # second kind starts at 0, or a late request would begin one that nobody ends.
            if self._is_strict and header.is_transactional and sequence != 0:
                raise _out_of_order(header, "0, as nothing is known of the producer")
        elif header.producer_epoch != producer.epoch:
            if sequence != 0:
                raise _out_of_order(header, "0 in a new epoch")
        elif sequence != (producer.last_sequence + 1) & SEQUENCE_MAX:
            raise _out_of_order(header, f"the one after {producer.last_sequence}")

    def _after_marker(self, producer: Producer, header: BatchHeader, marker: Marker) -> Producer:
        first_offset = producer.transaction_first_offset
        if self._origin is not Origin.REPLICATION:
            # With the epoch of the last marker and nothing open it is that marker again (KAFKA-19999).
            is_late = self._is_strict and header.producer_epoch == producer.epoch and first_offset is not None
            if header.producer_epoch < producer.epoch or is_late:
                raise _stale_epoch(producer, header)
            if marker.coordinator_epoch < producer.coordinator_epoch:
                raise KafkaError(
                    ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                    f"coordinator epoch {marker.coordinator_epoch} of producer {producer.producer_id}"
                    f" is older than {producer.coordinator_epoch}",
                )
        if first_offset is not None:
            self.events.append(
                EndedTransaction(producer.producer_id, first_offset, header.base_offset, marker.is_abort)
            )
        return replace(
            _in_epoch(producer, header.producer_epoch),
            coordinator_epoch=marker.coordinator_epoch,
            last_timestamp=header.max_timestamp,
            transaction_first_offset=None,
        )


def _in_epoch(producer: Producer, epoch: int) -> Producer:
    """The producer as it starts, or goes on, in an epoch: sequence numbers do not outlive one."""
    return producer if producer.epoch == epoch else replace(producer, epoch=epoch, batches=())


def _first_offset(transaction: StartedTransaction | EndedTransaction) -> int:
    return transaction.first_offset


def _stale_epoch(producer: Producer, header: BatchHeader) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_PRODUCER_EPOCH,
        f"epoch {header.producer_epoch} of producer {producer.producer_id} is stale, it has {producer.epoch}",
    )


def _out_of_order(header: BatchHeader, expected: str) -> KafkaError:
    return KafkaError(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        f"producer {header.producer_id} sends sequence number {header.base_sequence}, expected is {expected}",
    )


# ---------------------------------------------------------------- file formats

_SNAPSHOT_VERSION: Final = 1
_RECENT_VERSION: Final = 1
_SEAL: Final = struct.Struct(">hI")
_COUNT: Final = struct.Struct(">i")
_CRC: Final = struct.Struct(">I")
_SNAPSHOT_ENTRY: Final = struct.Struct(">qhiqiqiq")
_RECENT_PRODUCER: Final = struct.Struct(">qb")
_RECENT_BATCH: Final = struct.Struct(">iqiq")
_ENDED_TRANSACTION: Final = struct.Struct(">qqq?")


def _sealed(version: int, body: bytes) -> bytes:
    return _SEAL.pack(version, crc32c(body)) + body


def _unsealed(data: bytes, version: int) -> bytes:
    if len(data) < _SEAL.size:
        raise MalformedMessage(f"a producer snapshot is cut off after {len(data)} bytes")
    found, crc = _SEAL.unpack_from(data)
    body = data[_SEAL.size :]
    if found != version or crc != crc32c(body):
        raise MalformedMessage(f"a producer snapshot of version {found} is damaged or unknown")
    return body


def _crc_field(sealed: bytes) -> bytes:
    return sealed[_SEAL.size - _CRC.size : _SEAL.size]


def _read_recent(
    recent: bytes, snapshot: bytes
) -> tuple[dict[int, tuple[ProducedBatch, ...]], list[EndedTransaction]] | None:
    """The last batches of all producers; None if the file is damaged or belongs to another snapshot."""
    try:
        body = _unsealed(recent, _RECENT_VERSION)
        if body[: _CRC.size] != _crc_field(snapshot):
            return None
        batches: dict[int, tuple[ProducedBatch, ...]] = {}
        (producer_count,) = _COUNT.unpack_from(body, _CRC.size)
        position = _CRC.size + _COUNT.size
        for _ in range(producer_count):
            producer_id, count = _RECENT_PRODUCER.unpack_from(body, position)
            position += _RECENT_PRODUCER.size
            end = position + count * _RECENT_BATCH.size
            batches[producer_id] = tuple(
                ProducedBatch(*fields) for fields in _RECENT_BATCH.iter_unpack(body[position:end])
            )
            position = end
        return batches, [
            EndedTransaction(*ended) for ended in _ENDED_TRANSACTION.iter_unpack(body[position:])
        ]
    except (MalformedMessage, struct.error):
        return None
