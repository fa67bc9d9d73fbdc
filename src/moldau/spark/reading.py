"""What a task does: a range of offsets as Arrow batches, whatever happens to brokers meanwhile."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from logging import getLogger
from typing import TYPE_CHECKING, Final

from moldau.client import ClientError
from moldau.client.blocking import BlockingClient, BlockingConsumer
from moldau.client.settings import SettingValue
from moldau.model.errors import ErrorCode
from moldau.model.ids import uuid_to_text
from moldau.spark.columns import Columns
from moldau.spark.connections import shared_client
from moldau.spark.options import ReadOptions
from moldau.spark.plan.batches import Loss, told
from moldau.spark.plan.ranges import OffsetRange

if TYPE_CHECKING:
    import pyarrow as pa

log = getLogger(__name__)

_POLL_MS: Final = 1_000
# Nothing is gained by asking for less: what a task asks for, it reads.
_FETCH_SETTINGS: Final[Mapping[str, SettingValue]] = {
    "auto_offset_reset": "none",
    "max_partition_fetch_bytes": 8 * 2**20,
}


class DataLoss(Exception):
    """Records that were to be read are gone."""


class NothingCame(Exception):
    """Records that must be there did not come in time."""


def report_losses(losses: tuple[Loss, ...], options: ReadOptions) -> None:
    """Raise DataLoss, or say in the log what is lost, as the options want it."""
    if losses:
        text = told(losses)
        if options.fail_on_data_loss:
            raise DataLoss(f"{text}. Set option failOnDataLoss to false to go on with what is there.")
        log.warning("Records may be lost: %s. Going on with what is there (failOnDataLoss is false).", text)


@dataclass(frozen=True, slots=True)
class Task:
    """What one Spark task reads; `topic_id` is empty where nobody knows it."""

    range: OffsetRange
    topic_id: str


def read(task: Task, options: ReadOptions, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The records of a range; DataLoss where they are gone and the options say to fail then."""
    patience_s = options.poll_timeout_ms / 1_000
    client = shared_client(options.bootstrap_servers, options.settings, patience_s=patience_s)
    return _Reader(client, task, options).batches(Columns(task.range.place, schema))


class _Reader:
    def __init__(self, client: BlockingClient, task: Task, options: ReadOptions) -> None:
        self._client = client
        self._task = task
        self._options = options
        self._place = task.range.place
        self._position = task.range.start

    def batches(self, columns: Columns) -> Iterator[pa.RecordBatch]:
        end = self._task.range.end
        ends: dict[tuple[str, int], int] = {self._place: end}
        if not self._is_same_topic():
            return
        settings = {**_FETCH_SETTINGS, **self._options.settings}
        with self._client.consumer((), **settings) as consumer:
            consumer.assign({self._place: self._position}, until=ends)
            deadline_s = self._deadline_s()
            while self._position < end:
                try:
                    polled = consumer.poll_batches(timeout_ms=_POLL_MS, until=ends).get(self._place)
                except ClientError as error:
                    self._skip_what_is_lost(error, consumer)
                    continue
                if polled is not None:
                    self._position = polled.position
                    deadline_s = self._deadline_s()
                    yield from columns.batches(polled)
                elif not self._is_same_topic():
                    return
                elif time.monotonic() > deadline_s:
                    raise NothingCame(self._complaint())

    def _deadline_s(self) -> float:
        return time.monotonic() + self._options.poll_timeout_ms / 1_000

    def _is_same_topic(self) -> bool:
        """Whether the topic is still the one that was planned with; else its records are lost."""
        topic = self._place.topic
        try:
            found = uuid_to_text(self._client.topic(topic, timeout_ms=_POLL_MS).topic_id)
            if self._task.topic_id and found != self._task.topic_id:
                # The client lives longer than the query, and may know a topic that had the name before.
                found = uuid_to_text(self._client.admin.describe_topics(topic)[topic].topic_id)
        except ClientError as error:
            if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                return True  # nobody can say so at the moment
            self._lose(f"topic {topic!r} is gone")
            return False
        if self._task.topic_id and found != self._task.topic_id:
            self._lose(f"topic {topic!r} was deleted and created again")
            return False
        return True

    def _skip_what_is_lost(self, error: ClientError, consumer: BlockingConsumer) -> None:
        """Go on behind what the log no longer has, unless that is an error."""
        if error.code != ErrorCode.OFFSET_OUT_OF_RANGE:
            raise error
        start = self._client.admin.list_offsets({self._place: -2})[self._place].offset
        end = self._task.range.end
        if start <= self._position:
            self._lose(f"the log ends before offset {self._position}")
            self._position = end
            return
        self._lose(f"the log begins at offset {start}")
        self._position = min(start, end)
        consumer.assign({self._place: self._position}, until={self._place: end})

    def _lose(self, what: str) -> None:
        end = self._task.range.end
        asked = f"offsets {self._position} to {end - 1} were to be read"
        report_losses((Loss(self._place, f"{asked}, and {what}"),), self._options)

    def _complaint(self) -> str:
        options = self._options
        return (
            f"{self._place}: no record at or after offset {self._position} came within"
            f" {options.poll_timeout_ms} ms (option kafkaConsumer.pollTimeoutMs). Check that the brokers at"
            f" {options.bootstrap_servers} run."
        )
