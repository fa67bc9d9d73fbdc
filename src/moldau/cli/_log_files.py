"""What the files of a log directory hold, ours and Kafka's, read without touching them."""

from __future__ import annotations

import mmap
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, unique
from pathlib import Path
from typing import Final, NamedTuple

from moldau.log.index import AbortedTransaction
from moldau.log.producers import Producer, Producers
from moldau.model.errors import KafkaError, MalformedMessage
from moldau.wire.records.batch import decode_records, payload_of
from moldau.wire.records.header import (
    HEADER_BYTES,
    BatchHeader,
    Buffer,
    check_framing,
    crc_of,
    read_header,
)
from moldau.wire.records.record import Record

_OFFSET_ENTRY: Final = struct.Struct(">ii")
_TIME_ENTRY: Final = struct.Struct(">qi")
_ABORTED_ENTRY: Final = struct.Struct(">hqqqq")
_CHECKPOINT: Final = re.compile(r"(\d{20})-(\d{10})\.checkpoint")
_SEGMENT_FILE: Final = re.compile(r"(\d{20})\.[a-z]+")


@unique
class Kind(Enum):
    """What a file is, by its name."""

    LOG = "log"
    METADATA_SNAPSHOT = "metadata-snapshot"
    OFFSET_INDEX = "offset-index"
    TIME_INDEX = "time-index"
    TRANSACTION_INDEX = "transaction-index"
    PRODUCERS = "producers"
    RECENT_BATCHES = "recent-batches"
    TEXT = "text"


_KINDS: Final = {
    ".log": Kind.LOG,
    ".index": Kind.OFFSET_INDEX,
    ".timeindex": Kind.TIME_INDEX,
    ".txnindex": Kind.TRANSACTION_INDEX,
    ".snapshot": Kind.PRODUCERS,
    ".producers": Kind.RECENT_BATCHES,
}
_TEXTS: Final = (
    "leader-epoch-checkpoint",
    "partition.metadata",
    "quorum-state",
    "meta.properties",
    "recovery-point-offset-checkpoint",
    "replication-offset-checkpoint",
    "log-start-offset-checkpoint",
    "cleaner-offset-checkpoint",
    ".kafka_cleanshutdown",
)
# Space that was reserved for later, as Kafka does with log.preallocate: nothing is wrong with it.
ZEROS: Final = "zeros"
# What a file is called while it waits to be deleted or to take another's place.
_PASSING_SUFFIXES: Final = (".deleted", ".cleaned", ".swap", ".part")


class DamagedFile(Exception):
    """A file does not hold what its name says; the text says what is wrong, and where."""


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch and where it is; without records if nobody asked for them or they cannot be read."""

    position: int
    header: BatchHeader
    problem: str | None
    records: tuple[Record, ...] | None

    @property
    def is_crc_valid(self) -> bool:
        """Whether its bytes agree with its CRC."""
        return self.problem is None or not self.problem.startswith("CRC")


@dataclass(frozen=True, slots=True)
class Rest:
    """Bytes at the end of a log that are no whole batch."""

    position: int
    size: int
    problem: str


class IndexEntry(NamedTuple):
    """An entry of an offset index."""

    offset: int
    position: int


class TimeEntry(NamedTuple):
    """An entry of a time index."""

    timestamp: int
    offset: int


def kind_of(path: Path) -> Kind | None:
    """What a file is; None if it is none that a log directory has."""
    name = path.name
    for suffix in _PASSING_SUFFIXES:
        name = name.removesuffix(suffix)
    if _CHECKPOINT.fullmatch(name) or name == "bootstrap.checkpoint":
        return Kind.METADATA_SNAPSHOT
    if name in _TEXTS:
        return Kind.TEXT
    return _KINDS.get(Path(name).suffix) if _SEGMENT_FILE.fullmatch(name) else None


def base_offset_of(path: Path) -> int:
    """The offset in a file's name."""
    return int(path.name[:20])


def snapshot_of(path: Path) -> tuple[int, int] | None:
    """End offset and epoch of a metadata snapshot; None for the first one, bootstrap.checkpoint."""
    match = _CHECKPOINT.match(path.name)
    return None if match is None else (int(match[1]), int(match[2]))


def read_batches(path: Path, *, has_records: bool, bytes_max: int | None = None) -> Iterator[Batch | Rest]:
    """The batches of a segment or of a metadata snapshot, then what is at its end that is none."""
    with open(path, "rb") as file:
        size = file.seek(0, 2)
        if not size:
            return
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped, memoryview(mapped) as data:
            yield from _batches(data[: size if bytes_max is None else bytes_max], has_records=has_records)


def _batches(data: memoryview, *, has_records: bool) -> Iterator[Batch | Rest]:
    position, end = 0, len(data)
    while position < end:
        if end - position < HEADER_BYTES:
            yield Rest(position, end - position, "too few bytes for a batch")
            return
        header = read_header(data, position)
        try:
            check_framing(header)
        except MalformedMessage as error:
            rest = data[position:]
            what = ZEROS if not any(rest) else str(error)
            yield Rest(position, end - position, what)
            return
        if header.size_bytes > end - position:
            yield Rest(position, end - position, f"a batch of {header.size_bytes} bytes is cut off")
            return
        yield _batch(data, position, header, has_records=has_records)
        position += header.size_bytes


def _batch(data: Buffer, position: int, header: BatchHeader, *, has_records: bool) -> Batch:
    problem = None
    records = None
    crc = crc_of(data, position, header.size_bytes)
    if crc != header.crc:
        problem = f"CRC is {crc:#010x}, and the batch says {header.crc:#010x}"
    if has_records:
        try:
            records = tuple(decode_records(header, payload_of(data, position, header)))
        except (KafkaError, MalformedMessage) as error:
            problem = problem or str(error)
    return Batch(position, header, problem, records)


def read_offset_index(path: Path) -> list[IndexEntry]:
    """Its entries up to the space that Kafka reserves behind them."""
    base = base_offset_of(path)
    return [IndexEntry(base + offset, position) for offset, position in _entries(path, _OFFSET_ENTRY)]


def read_time_index(path: Path) -> list[TimeEntry]:
    """Its entries up to the space that Kafka reserves behind them."""
    base = base_offset_of(path)
    return [TimeEntry(timestamp, base + offset) for timestamp, offset in _entries(path, _TIME_ENTRY)]


def read_transaction_index(path: Path) -> list[AbortedTransaction]:
    """The aborted transactions whose markers are in the segment."""
    return [AbortedTransaction(*rest) for _, *rest in _entries(path, _ABORTED_ENTRY)]


def _entries(path: Path, entry: struct.Struct) -> list[tuple[int, ...]]:
    data = path.read_bytes()
    whole = len(data) - len(data) % entry.size
    entries: list[tuple[int, ...]] = []
    for fields in entry.iter_unpack(data[:whole]):
        if not any(fields):
            break
        entries.append(fields)
    else:
        if whole != len(data):
            raise DamagedFile(f"its {len(data)} bytes are no whole number of entries of {entry.size}")
    return entries


def read_producers(path: Path) -> list[Producer]:
    """The producers of a snapshot, or of the file that keeps more of their batches beside it."""
    snapshot, recent = path, None
    if kind_of(path) is Kind.RECENT_BATCHES:
        snapshot = Path(str(path).replace(".producers", ".snapshot"))
        recent = path.read_bytes()
        if not snapshot.exists():
            raise DamagedFile(f"{snapshot.name} is missing, to which it belongs")
    try:
        producers = Producers.from_snapshot(snapshot.read_bytes(), recent)
    except MalformedMessage as error:
        raise DamagedFile(str(error)) from error
    if recent is not None and not producers.is_complete:
        raise DamagedFile(f"it is damaged, or does not belong to {snapshot.name}")
    return list(producers)


def index_problems(path: Path) -> list[str]:
    """What an index says that the segment beside it does not; nothing if there is no segment."""
    segment = path.with_suffix(".log")
    if not segment.exists():
        return []
    batches = [batch for batch in read_batches(segment, has_records=False) if isinstance(batch, Batch)]
    kind = kind_of(path)
    if kind is Kind.OFFSET_INDEX:
        return list(_offset_index_problems(read_offset_index(path), batches))
    if kind is Kind.TIME_INDEX:
        return list(_time_index_problems(read_time_index(path), batches))
    return []


def _offset_index_problems(entries: list[IndexEntry], batches: list[Batch]) -> Iterator[str]:
    at = {batch.position: batch.header for batch in batches}
    for offset, position in entries:
        if position not in at:
            yield f"offset {offset} is said to be at {position}, where no batch begins"
        elif (last := at[position].last_offset) != offset:
            yield f"offset {offset} is said to be at {position}, where a batch ends with {last}"


def _time_index_problems(entries: list[TimeEntry], batches: list[Batch]) -> Iterator[str]:
    previous = -1
    ordered = iter(batches)
    latest = -1
    batch: Batch | None = None
    for timestamp, offset in entries:
        if timestamp <= previous:
            yield f"timestamp {timestamp} comes after {previous}"
        previous = max(previous, timestamp)
        while (batch is None or batch.header.last_offset < offset) and (batch := next(ordered, None)):
            latest = max(latest, batch.header.max_timestamp)
        if batch is None:
            yield f"offset {offset} is not in the segment"
            return
        if latest != timestamp:
            yield f"timestamp {timestamp} is said to be the latest up to {offset}, and {latest} is"
