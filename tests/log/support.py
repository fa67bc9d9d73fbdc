"""Batches to append, and what a node does around a log: flushing, checkpointing, restarting, crashing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from moldau.log.compaction import Compaction
from moldau.log.config import LogConfig
from moldau.log.log import AppendResult, Log
from moldau.log.producers import Origin
from moldau.model.settings.resolve import Layer, Source, resolve
from moldau.model.settings.setting import Scope
from moldau.sim.disk import SimDisk, Survives
from moldau.sim.randomness import Seeded
from moldau.wire.records.batch import decode_batch, encode_batch, encode_end_transaction_marker
from moldau.wire.records.compression import Codec
from moldau.wire.records.header import BatchHeader, iter_headers
from moldau.wire.records.record import Record

PATH = "orders-0"
NOW_MS = 1_700_000_000_000
SECRET = bytes(range(16))
Pairs = Sequence[tuple[bytes | None, bytes | None]]


def settings(topic: Mapping[str, str] | None = None, broker: Mapping[str, str] | None = None) -> LogConfig:
    """The configuration that follows from texts, as an operator would write them."""
    return LogConfig.of(
        resolve(Scope.TOPIC, Layer(Source.TOPIC, topic or {})),
        resolve(
            Scope.BROKER, Layer(Source.STATIC, {"node.id": "1", "process.roles": "broker", **(broker or {})})
        ),
    )


def batch(
    records: int | Pairs = 1,
    *,
    timestamp: int = NOW_MS,
    step_ms: int = 0,
    size: int = 0,
    codec: Codec = Codec.NONE,
    base_offset: int = 0,
    leader_epoch: int = -1,
    producer: tuple[int, int, int] | None = None,
    is_transactional: bool = False,
    log_append_time: int | None = None,
) -> bytearray:
    """A batch of some records, or of (key, value) pairs; `producer` is (id, epoch, first sequence number)."""
    pairs = [(b"k", b"v" * size)] * records if isinstance(records, int) else records
    producer_id, producer_epoch, sequence = producer or (-1, -1, -1)
    return bytearray(
        encode_batch(
            [
                Record(base_offset + number, timestamp + number * step_ms, key, value)
                for number, (key, value) in enumerate(pairs)
            ],
            codec=codec,
            base_offset=base_offset,
            leader_epoch=leader_epoch,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=sequence,
            is_transactional=is_transactional,
            log_append_time=log_append_time,
        )
    )


def marker(
    producer_id: int,
    epoch: int,
    *,
    is_commit: bool,
    coordinator_epoch: int = 0,
    timestamp: int = NOW_MS,
    base_offset: int = 0,
    leader_epoch: int = -1,
) -> bytearray:
    """The end of a transaction."""
    return bytearray(
        encode_end_transaction_marker(
            is_commit=is_commit,
            coordinator_epoch=coordinator_epoch,
            timestamp=timestamp,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_offset=base_offset,
            leader_epoch=leader_epoch,
        )
    )


class Keeper:
    """One log on one simulated disk, with the checkpoints that a node would keep for it."""

    def __init__(self, config: LogConfig | None = None, *, disk: SimDisk | None = None) -> None:
        self.config = config or LogConfig()
        self.disk = disk or SimDisk()
        self.now_ms = NOW_MS
        self.recovery_point = 0
        self.high_watermark = 0
        self.log_start = 0
        self.cleaned_end = 0
        self.log = self._open(is_clean=False)

    # ------------------------------------------------------------ writing

    def append(self, *batches: bytearray, epoch: int = 0, origin: Origin = Origin.CLIENT) -> AppendResult:
        """Append each of the batches as the leader; the result is that of the last."""
        results = [
            self.log.append_as_leader(data, leader_epoch=epoch, now_ms=self.now_ms, origin=origin)
            for data in batches
        ]
        return results[-1]

    def end_transaction(self, producer_id: int, epoch: int, *, is_commit: bool) -> AppendResult:
        """Append a marker, as the coordinator asks for it."""
        data = marker(producer_id, epoch, is_commit=is_commit, timestamp=self.now_ms)
        return self.append(data, origin=Origin.COORDINATOR)

    def apply_retention(self, now_ms: int) -> int:
        """Delete what the settings no longer keep; how many segments that were."""
        self.log.advance_log_start(self.log.start_after_retention(now_ms))
        self.checkpoint()
        return self.log.delete_segments(now_ms)

    def commit(self) -> None:
        """Flush, and count everything as committed."""
        self.flush()
        self.log.advance_high_watermark(self.log.log_end_offset)
        self.checkpoint()

    def flush(self) -> None:
        """Make everything durable, checkpoints included."""
        work = self.log.begin_flush()
        self.disk.flush_blocking(work.flush)
        self.log.flushed(work)
        self.checkpoint()

    def checkpoint(self) -> None:
        """Remember what the data directory's checkpoints hold."""
        self.recovery_point = self.log.recovery_point
        self.high_watermark = self.log.high_watermark
        self.log_start = self.log.log_start_offset
        self.cleaned_end = self.log.cleaned_end_offset

    def truncate(self, offset: int) -> None:
        """Truncate with all the duties that come with it."""
        end = self.log.end_after_truncation(offset)
        self.recovery_point = min(self.recovery_point, end)
        self.high_watermark = min(self.high_watermark, end)
        self.log.truncate_to(offset)
        self.flush()

    def compact(self, *, keys_max: int = 1000, step_bytes: int = 1 << 20) -> Compaction:
        """Run a whole compaction."""
        compaction = Compaction(self.log, now_ms=self.now_ms, keys_max=keys_max, secret=SECRET)
        while not compaction.is_done:
            work = compaction.step(step_bytes)
            if work is not None:
                self.disk.flush_blocking(work)
        return compaction

    # ------------------------------------------------------------ restarting

    def restart(self) -> Log:
        """Close the log properly and open it again."""
        work = self.log.close()
        self.disk.flush_blocking(work.flush)
        self.log.flushed(work)
        self.checkpoint()
        self.log = self._open(is_clean=True)
        return self.log

    def crash(self, survives: Survives = Survives.EVERYTHING, seed: int = 0) -> Log:
        """Lose what a crash may lose, and open what is left."""
        self.disk = self.disk.crash(survives, Seeded(seed))
        self.log = self._open(is_clean=False)
        return self.log

    def reconfigure(self, **changes: object) -> None:
        """Change the log's settings."""
        self.log.config = self.config = replace(self.config, **changes)  # type: ignore[arg-type]

    def _open(self, *, is_clean: bool) -> Log:
        return Log.open(
            self.disk,
            PATH,
            self.config,
            recovery_point=self.recovery_point,
            is_clean=is_clean,
            now_ms=self.now_ms,
            log_start_offset=self.log_start,
            high_watermark=self.high_watermark,
            cleaned_end_offset=self.cleaned_end,
        )

    # ------------------------------------------------------------ looking

    def names(self, suffix: str = "") -> list[str]:
        """The files of the log."""
        return [name for name in self.disk.list(PATH) if name.endswith(suffix)]

    def headers(self) -> list[BatchHeader]:
        """The headers of all batches."""
        return [header for data in self._pieces() for _, header in iter_headers(data)]

    def records(self) -> list[Record]:
        """All records, control records among them."""
        return [record for data in self._pieces() for record in records_in(data)]

    def committed(self) -> list[Record]:
        """What a consumer sees that reads committed data, up to the last stable offset."""
        return committed_records(self.log)

    def _pieces(self) -> Iterable[bytes]:
        offset = self.log.log_start_offset
        while True:
            data = self.log.read(offset, bytes_max=1 << 20, end_limit=self.log.log_end_offset)
            if data.records is None:
                return
            yield data.records.read()
            offset = data.end_offset


def records_in(data: bytes) -> list[Record]:
    """The records of whole batches."""
    return [
        record
        for position, header in iter_headers(data)
        if header.count
        for record in decode_batch(data[position : position + header.size_bytes])[1]
    ]


def committed_records(log: Log) -> list[Record]:
    """Read as a consumer with isolation.level=read_committed does, by the rules of the client."""
    found: list[Record] = []
    offset = log.log_start_offset
    while True:
        data = log.read(offset, bytes_max=1 << 20, end_limit=log.last_stable_offset, with_aborted=True)
        if data.records is None:
            return found
        aborted = list(data.aborted)
        skipped: dict[int, None] = {}
        raw = data.records.read()
        for position, header in iter_headers(raw):
            while aborted and aborted[0].first_offset <= header.last_offset:
                skipped[aborted.pop(0).producer_id] = None
            if header.is_control:
                if (
                    header.count
                    and records_in(raw[position : position + header.size_bytes])[0].key == b"\0\0\0\0"
                ):
                    skipped.pop(header.producer_id, None)
            elif header.count and not (header.is_transactional and header.producer_id in skipped):
                found += (
                    record
                    for record in records_in(raw[position : position + header.size_bytes])
                    if record.offset >= offset
                )
        offset = data.end_offset
