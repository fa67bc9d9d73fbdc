"""What a task does: its rows into batches, and every one of them acknowledged before the task succeeds."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import WriterCommitMessage

from moldau.client import ClientError
from moldau.client.blocking import BlockingProducer
from moldau.client.errors import is_worth_another_try
from moldau.client.metadata import TopicView
from moldau.client.producer import PackedDelivery, PackedFailed
from moldau.client.settings import ClientSettings
from moldau.model.errors import ErrorCode
from moldau.model.ids import TopicPartition
from moldau.spark.sink.chunks import chunked
from moldau.spark.sink.columns import Columns
from moldau.spark.sink.errors import BadTopic, NotWritten, described
from moldau.spark.sink.packing import Outgoing, packed
from moldau.spark.sink.placing import Placer, Topic
from moldau.wire.records.batch import Packed

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

# Large enough that batches for many partitions are full, small enough to stay in a processor's cache.
CHUNK_BYTES: Final = 4 * 2**20

# How long brokers must have said that there is no such topic, which one may say for a moment that has just
# started, or is making the topic. A task that is repeated has been told so already.
GONE_AFTER_S: Final = 10.0
_GONE_AGAIN_AFTER_S: Final = 1.0


@dataclass(slots=True)
class Written:
    """What a task wrote to one partition, and where; the offsets are -1 where the broker did not say."""

    records: int = 0
    first_offset: int = -1
    last_offset: int = -1


@dataclass(slots=True)
class TaskReport(WriterCommitMessage):
    """What a task tells the driver once all of its rows are acknowledged."""

    task: int
    written: dict[TopicPartition, Written] = field(default_factory=dict)

    @property
    def records(self) -> int:
        """How many rows the task wrote."""
        return sum(each.records for each in self.written.values())


class TaskWriter:
    """Writes the rows of one task."""

    def __init__(
        self,
        producer: BlockingProducer,
        columns: Columns,
        settings: ClientSettings,
        *,
        task: int,
        is_repeated: bool = False,
    ) -> None:
        self._producer = producer
        self._columns = columns
        self._settings = settings
        self._task = task
        self._gone_after_s = _GONE_AGAIN_AFTER_S if is_repeated else GONE_AFTER_S
        self._batch_bytes_max = min(settings.batch_size, settings.max_request_size)
        self._topics: dict[str, Topic] = {}
        self._placer = Placer(columns, self._topic, task=task, switch_bytes=self._batch_bytes_max)
        self._pending: list[_Pending] = []
        self._report = TaskReport(task)

    def write(self, batches: Iterable[pa.RecordBatch]) -> TaskReport:
        """Write them all; returns once the brokers have acknowledged everything."""
        first_row = 1
        for chunk in chunked(batches, bytes_max=CHUNK_BYTES):
            self._send(chunk, first_row)
            first_row += chunk.num_rows
            self._account()
        self._producer.flush()
        self._account()
        assert not self._pending, "all is settled after a flush"
        return self._report

    def _send(self, chunk: pa.RecordBatch, first_row: int) -> None:
        placed = self._placer.place(chunk, first_row)
        outgoing = [
            *packed(
                chunk,
                placed,
                self._columns,
                now_ms=time.time_ns() // 1_000_000,
                codec=self._settings.compression_type,
                bytes_max=self._batch_bytes_max,
            )
        ]
        for batch in outgoing:
            if batch.packed.size_bytes > self._settings.max_request_size:
                raise NotWritten(
                    f"{self._first_row(batch.packed, 0, batch.rows, first_row)} is too large: its record has"
                    f" {batch.packed.size_bytes} bytes, and option kafka.max.request.size allows"
                    f" {self._settings.max_request_size}."
                )
        try:
            deliveries = self._producer.send_packed([(b.topic, b.partition, b.packed) for b in outgoing])
        except ClientError as error:
            # What stands before those that wait is what went wrong.
            self._account()
            raise NotWritten(f"Rows of task {self._task} could not be sent: {error}") from None
        self._pending += [
            _Pending(delivery, batch, first_row) for delivery, batch in zip(deliveries, outgoing, strict=True)
        ]

    def _account(self) -> None:
        """Note what is acknowledged by now; NotWritten if something was refused or given up."""
        waiting: list[_Pending] = []
        for pending in self._pending:
            if not pending.delivery.is_settled():
                waiting.append(pending)
                continue
            try:
                ranges = pending.delivery.result()
            except PackedFailed as error:
                raise NotWritten(self._complaint(error, pending)) from None
            for each in ranges:
                written = self._report.written.setdefault(each.partition, Written())
                written.records += each.count
                if each.offset >= 0:
                    last = each.offset + each.count - 1
                    is_first = written.first_offset < 0
                    written.first_offset = each.offset if is_first else min(written.first_offset, each.offset)
                    written.last_offset = max(written.last_offset, last)
        self._pending = waiting

    def _complaint(self, error: PackedFailed, pending: _Pending) -> str:
        row = self._first_row(error.packed, error.first, pending.batch.rows, pending.first_row)
        others = f" and {error.count - 1} behind it" if error.count > 1 else ""
        return f"{row}{others} could not be written: {error}"

    def _first_row(self, records: Packed, first: int, rows: NDArray[np.int64], first_row: int) -> str:
        return described(first_row + int(rows[first]), self._task, records.records()[0].key)

    def _topic(self, name: str, partition: int) -> Topic:
        known = self._topics.get(name)
        if known is None or partition >= known.partition_count:
            try:
                view = self._look_up(name, partition if partition >= 0 else None)
            except ClientError as error:
                raise BadTopic(_why_no_topic(name, error)) from None
            known = self._topics[name] = Topic(len(view.partitions), view.available)
        return known

    def _look_up(self, name: str, partition: int | None) -> TopicView:
        """The topic: brokers that are away are waited for, those that deny it are believed before long."""
        deadline_s = time.monotonic() + self._settings.max_block_ms / 1_000
        denied_since_s: float | None = None
        delay_ms = self._settings.retry_backoff_ms
        while True:
            try:
                return self._producer.topic(name, partition=partition, timeout_ms=0)
            except ClientError as error:
                now_s = time.monotonic()
                if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    denied_since_s = None
                elif denied_since_s is None:
                    denied_since_s = now_s
                is_gone = denied_since_s is not None and now_s - denied_since_s >= self._gone_after_s
                if is_gone or now_s >= deadline_s or not is_worth_another_try(error):
                    raise
            time.sleep(delay_ms / 1_000)
            delay_ms = min(2 * delay_ms, max(delay_ms, self._settings.retry_backoff_max_ms))


@dataclass(frozen=True, slots=True)
class _Pending:
    """A batch whose fate is open, and the number of the first row of the chunk that it came from."""

    delivery: PackedDelivery
    batch: Outgoing
    first_row: int


def _why_no_topic(name: str, error: ClientError) -> str:
    if error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return f"topic {name!r} does not exist. Check the name, or create the topic."
    return f"topic {name!r} cannot be had: {error}"
