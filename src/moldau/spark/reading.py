"""What a task does: ranges of offsets as Arrow batches, whatever happens to brokers meanwhile."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from logging import getLogger
from typing import TYPE_CHECKING, Final

from moldau.client import EARLIEST, ClientError
from moldau.client.blocking import BlockingClient, BlockingConsumer
from moldau.client.settings import SettingValue
from moldau.model.errors import ErrorCode
from moldau.model.ids import TopicPartition, uuid_to_text
from moldau.spark.ahead import one_ahead
from moldau.spark.columns import Columns
from moldau.spark.connections import shared_client
from moldau.spark.consumers import borrowed_consumer
from moldau.spark.errors import DataLoss, NothingCame, rows_told_plainly
from moldau.spark.options import ReadOptions
from moldau.spark.plan.batches import Loss, told
from moldau.spark.plan.ranges import OffsetRange, cut_into_tasks
from moldau.spark.worker import settle

if TYPE_CHECKING:
    import pyarrow as pa

log = getLogger(__name__)

_POLL_MS: Final = 1_000
# How long brokers must have said that there is no such topic: one that lags behind may say so for a moment.
_GONE_AFTER_MS: Final = 5_000
_SHOWN_MAX: Final = 5
# Nothing is gained by asking for less: what a task asks for, it reads.
_FETCH_SETTINGS: Final[Mapping[str, SettingValue]] = {
    "auto_offset_reset": "none",
    "max_partition_fetch_bytes": 4 * 2**20,
}


def report_losses(losses: tuple[Loss, ...], options: ReadOptions, *, if_lost: str = "") -> None:
    """Raise DataLoss, or say in the log what is lost, as the options want it.

    `if_lost` is what else can be done about it.
    """
    if losses:
        text = told(losses)
        if options.fail_on_data_loss:
            what_to_do = f"Set option failOnDataLoss to false to go on with what is there.{if_lost}"
            raise DataLoss(f"{text}. {what_to_do}")
        log.warning("Records may be lost: %s. Going on with what is there (failOnDataLoss is false).", text)


def fetch_settings(options: ReadOptions) -> dict[str, SettingValue]:
    """The settings that a query's consumers have."""
    return {**_FETCH_SETTINGS, **options.settings}


@dataclass(frozen=True, slots=True)
class Task:
    """What one Spark task reads: ranges of different partitions, and the ids of their topics if known."""

    ranges: tuple[OffsetRange, ...]
    topic_ids: Mapping[str, str]


def tasks_of(ranges: Sequence[OffsetRange], topic_ids: Mapping[str, str], options: ReadOptions) -> list[Task]:
    """The ranges cut into tasks, as the options want it."""
    tasks = cut_into_tasks(
        ranges,
        tasks_min=options.tasks_min,
        records_max=options.task_records_max,
        offsets_min=options.task_offsets_min,
    )
    return [
        Task(task, {topic: topic_ids[topic] for each in task if (topic := each.place.topic) in topic_ids})
        for task in tasks
    ]


def read(
    task: Task, options: ReadOptions, schema: pa.Schema, *, if_lost: str = ""
) -> Iterator[pa.RecordBatch]:
    """The records of a task; DataLoss where they are gone and the options say to fail then."""
    reader = _Reader(task, options, if_lost=if_lost)
    return rows_told_plainly(one_ahead(reader.batches(schema), stop=reader.stop))


class _Stopped(Exception):
    """Nobody wants the rest."""


class _Reader:
    def __init__(self, task: Task, options: ReadOptions, *, if_lost: str) -> None:
        self._options = options
        self._if_lost = if_lost
        self._topic_ids = task.topic_ids
        # What is not read yet, by partition.
        self._left = {each.place: each for each in task.ranges}
        self._is_stopped = False

    def stop(self) -> None:
        """Wait for nothing more; called by another thread than the one that reads."""
        self._is_stopped = True

    @cached_property
    def _client(self) -> BlockingClient:
        options = self._options
        patience_s = options.poll_timeout_ms / 1_000
        return shared_client(options.bootstrap_servers, options.settings, patience_s=patience_s)

    def batches(self, schema: pa.Schema) -> Generator[pa.RecordBatch]:
        columns = {place: Columns(place, schema) for place in self._left}
        self._give_up_lost_topics()
        with borrowed_consumer(self._client, fetch_settings(self._options)) as consumer:
            self._assign(consumer)
            deadline_s = self._deadline_s()
            while self._left:
                if self._is_stopped:
                    raise _Stopped
                try:
                    arrived = consumer.poll_batches(timeout_ms=_POLL_MS, until=self._ends())
                except ClientError as error:
                    self._skip_what_is_lost(error)
                    self._assign(consumer)
                    continue
                # Before anything is given out: another topic under the same name is not what was meant.
                if self._give_up_lost_topics():
                    self._assign(consumer)
                for place, polled in arrived.items():
                    if place in self._left:
                        self._advance(place, polled.position)
                        yield from columns[place].batches(polled)
                if arrived:
                    deadline_s = self._deadline_s()
                elif time.monotonic() > deadline_s:
                    raise NothingCame(self._complaint())
        settle()

    def _assign(self, consumer: BlockingConsumer) -> None:
        starts: dict[tuple[str, int], int] = {place: left.start for place, left in self._left.items()}
        consumer.assign(starts, until=self._ends())

    def _ends(self) -> dict[tuple[str, int], int]:
        return {place: left.end for place, left in self._left.items()}

    def _deadline_s(self) -> float:
        return time.monotonic() + self._options.poll_timeout_ms / 1_000

    def _advance(self, place: TopicPartition, position: int) -> None:
        left = replace(self._left.pop(place), start=position)
        if left.size > 0:
            self._left[place] = left

    def _give_up_lost_topics(self) -> bool:
        """Whether topics are not those any more that were planned with, so that their records are lost."""
        lost = {
            topic: why for topic in {place.topic: None for place in self._left} if (why := self._lost(topic))
        }
        for place in [place for place in self._left if place.topic in lost]:
            self._lose(place, lost[place.topic])
            del self._left[place]
        return bool(lost)

    def _lost(self, topic: str) -> str:
        """Why nothing more of a topic can be read; empty if it can, or if nobody knows at the moment."""
        try:
            found = uuid_to_text(self._client.topic(topic, timeout_ms=_GONE_AFTER_MS).topic_id)
            if found != self._topic_ids.get(topic, found):
                # The client lives longer than the query, and may know a topic that had the name before.
                found = uuid_to_text(self._client.admin.describe_topics(topic)[topic].topic_id)
        except ClientError as error:
            return "the topic is gone" if error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION else ""
        planned = self._topic_ids.get(topic, found)
        return "" if planned == found else "the topic was deleted and created again"

    def _skip_what_is_lost(self, error: ClientError) -> None:
        """Go on behind what the log no longer has, unless that is an error."""
        place = error.where
        if error.code != ErrorCode.OFFSET_OUT_OF_RANGE or not isinstance(place, TopicPartition):
            raise error
        left = self._left.get(place)
        if left is None:
            return
        begins = self._client.admin.list_offsets({place: EARLIEST})[place].offset
        if begins > left.start:
            self._lose(place, f"the log begins at offset {begins}")
            self._advance(place, min(begins, left.end))
        else:
            self._lose(place, f"the log ends before offset {left.start}")
            del self._left[place]

    def _lose(self, place: TopicPartition, what: str) -> None:
        left = self._left[place]
        asked = f"offsets {left.start} to {left.end - 1} were to be read"
        report_losses((Loss(place, f"{asked}, and {what}"),), self._options, if_lost=self._if_lost)

    def _complaint(self) -> str:
        options = self._options
        waiting = ", ".join(map(str, list(self._left.values())[:_SHOWN_MAX]))
        return (
            f"No record of {waiting} came within {options.poll_timeout_ms} ms (option"
            f" kafkaConsumer.pollTimeoutMs). Check that the brokers at {options.bootstrap_servers} run."
        )
