"""Reading topics as a stream: what Spark asks the driver's side of the source, batch after batch."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from secrets import token_hex
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from moldau.client import ClientError
from moldau.spark.columns import arrow_schema, check_schema
from moldau.spark.errors import BadCheckpoint, told_plainly
from moldau.spark.options import ReadOptions, Use
from moldau.spark.plan.batches import Logs, capped, is_new, lacks, plan_batch, starts_of
from moldau.spark.plan.limits import NO_LIMIT, Limits
from moldau.spark.plan.offsets import BEGINNING, BadOffsets, Json, Position, offsets_to_json
from moldau.spark.progress import GroupProgress
from moldau.spark.reading import Task, read, report_losses, tasks_of
from moldau.spark.topics import Found, Topics
from moldau.spark.worker import SentWithTasks

if TYPE_CHECKING:
    import pyarrow as pa


# A query that waits looks for records every few milliseconds; new partitions may take a little longer.
_FIND_INTERVAL_S: Final = 1.0
_LOOK_TIMEOUT_MS: Final = 1_000


class StreamReader(SentWithTasks, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """What Spark asks to read a stream.

    Spark makes one in a process that lives as long as the query, and others whose `read` goes to the workers.
    Whatever is wrong with the options is said by the first method that needs them: were it said here, Spark
    would hide it behind an error of its own.
    """

    def __init__(self, schema: StructType, options: Mapping[str, str]) -> None:
        self._schema = schema
        self._given = options

    @cached_property
    def _options(self) -> ReadOptions:
        check_schema(self._schema)
        return ReadOptions.parse(self._given, Use.STREAM)

    @cached_property
    def _stream(self) -> Stream:
        return Stream(self._options)

    @told_plainly
    def initialOffset(self) -> Json:  # noqa: N802
        """The beginning, wherever that is: Spark asks this also where a checkpoint knows it already."""
        return BEGINNING.to_json()

    @told_plainly
    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:  # noqa: N802
        """Where the batch ends that begins at `start`; `start` itself if there is nothing to read."""
        position = _position(start)
        end = self._stream.end_of_batch(position, _limits(self._options, limit))
        return start if end is None else end.to_json()

    @told_plainly
    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """What `latestOffset` is given unless the trigger wants all; our own options say the rest."""
        options = self._options
        if options.trigger_offsets_max is None and options.trigger_offsets_min is None:
            return ReadAllAvailable()
        return ReadMaxRows(options.trigger_offsets_max or NO_LIMIT)

    def reportLatestOffset(self) -> Json | None:  # noqa: N802
        """Where the logs ended when the last batch was planned."""
        latest = self._stream.latest
        return None if latest is None else offsets_to_json(latest.offsets)

    @told_plainly
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Read what is there now, and then end."""
        self._stream.take_snapshot()

    @told_plainly
    def partitions(self, start: Json, end: Json) -> list[InputPartition]:
        """The tasks of a batch."""
        tasks = self._stream.tasks(_position(start), _position(end))
        return [InputPartition(task) for task in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task, on an executor."""
        return read(partition.value, self._options, arrow_schema(self._schema))

    @told_plainly
    def commit(self, end: Json) -> None:
        """All up to here is done with."""
        self._stream.processed(_position(end))

    def stop(self) -> None:
        """The query ends."""
        if "_stream" in vars(self):
            self._stream.finish()


class Stream:
    """A query that runs: what it knows from batch to batch."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._topics = Topics(options)
        self._progress = GroupProgress(lambda: self._topics.client)
        self._snapshot: Position | None = None
        self._done: Position | None = None
        self._found: Found | None = None
        self._find_again_s = 0.0
        # When the last batch was let go; None before the first.
        self._triggered_s: float | None = None
        self.latest: Position | None = None

    @cached_property
    def beginning(self) -> Position:
        """Where the query begins if it is new; looked up once, when its first batch is planned."""
        found = self._topics.find()
        offsets = self._topics.resolve(self._options.start, found.places, is_start=True)
        return Position(offsets, found.topic_ids, query=_new_name(), is_beginning=True)

    def take_snapshot(self) -> None:
        """Let the query end where the logs end now."""
        self._snapshot = self._look(is_afresh=True)

    def end_of_batch(self, start: Position, limits: Limits) -> Position | None:
        """Where the batch from `start` ends; None if there is none to be made yet."""
        if start.is_beginning:
            start = self.beginning
        else:
            # Spark goes on from where all is processed.
            self.processed(start)
        latest = self.latest = self._latest(start)
        new = [place for place in latest.offsets if is_new(start, latest, place)]
        starts = starts_of(start, latest, self._topics.earliest(new))
        if self._snapshot is not None:
            # There may never be more to wait for.
            limits = replace(limits, offsets_min=0)
        ends = limits.end(starts, latest.offsets, waited_ms=self._waited_ms(limits))
        if ends is None:
            return None
        is_same = ends == start.offsets and latest.topic_ids == start.topic_ids
        if is_same and not start.is_beginning:
            if self._snapshot is not None:
                # The query ends now: Spark ends this process with SIGTERM, which leaves `stop` no time.
                self.finish()
            return None
        self._triggered_s = time.monotonic()
        return Position(
            ends,
            latest.topic_ids,
            query=start.query or self.beginning_name,
            beginning=start.offsets if start.is_beginning else None,
        )

    def tasks(self, start: Position, end: Position) -> list[Task]:
        """What a batch reads; DataLoss if some of it is gone and that is to be an error."""
        if start.is_beginning:
            # The first batch, perhaps repeated after a restart, when topics may be others than they were.
            # Only Spark's connector for Kafka has not noted in its end where it began.
            start = self.beginning if end.beginning is None else end.beginning_of_query()
        found = self._found = self._topics.find(missing_ok=True)
        earliest = self._topics.earliest(place for place in found.places if place in end.offsets)
        batch = plan_batch(start, end, Logs(earliest, found.topic_ids))
        report_losses(batch.losses, self._options)
        return tasks_of(batch.ranges, end.topic_ids, self._options)

    def processed(self, position: Position) -> None:
        """Commit to the group."""
        self._done = position
        self._progress.tell(self._group_id(position), position.offsets)

    def finish(self) -> None:
        """Commit what is processed, and wait for that."""
        if self._done is not None:
            self._progress.finish(self._group_id(self._done), self._done.offsets)

    @cached_property
    def beginning_name(self) -> str:
        """The name of a query that was begun by Spark's own connector, and had none."""
        return _new_name()

    def _group_id(self, position: Position) -> str:
        options = self._options
        return options.group_id or f"{options.group_id_prefix}-{position.query or self.beginning_name}"

    def _latest(self, start: Position) -> Position:
        """Where the logs end, or did when a snapshot was taken.

        A broker may for a moment know less than others do, so what seems to be lost is asked again.
        """
        latest = self._snapshot or self._look()
        for _ in range(self._options.offset_retries):
            if not lacks(latest, start):
                break
            time.sleep(self._options.offset_retry_interval_ms / 1_000)
            latest = self._look(is_afresh=True)
            if self._snapshot is not None:
                latest = capped(latest, at=self._snapshot, start=start)
        return latest

    def _look(self, *, is_afresh: bool = False) -> Position:
        now_s = time.monotonic()
        if self._found is not None and not is_afresh and now_s < self._find_again_s:
            with suppress(ClientError):
                return self._ends_of(self._found, timeout_ms=_LOOK_TIMEOUT_MS)
        # Now for sure: a topic may be gone.
        self._found = self._topics.find(missing_ok=True)
        self._find_again_s = now_s + _FIND_INTERVAL_S
        return self._ends_of(self._found)

    def _ends_of(self, found: Found, *, timeout_ms: int | None = None) -> Position:
        return Position(self._topics.latest(found.places, timeout_ms=timeout_ms), found.topic_ids)

    def _waited_ms(self, limits: Limits) -> int:
        if self._triggered_s is None:
            return limits.delay_ms_max
        return int((time.monotonic() - self._triggered_s) * 1_000)


def _position(told: Json) -> Position:
    try:
        return Position.from_json(told)
    except BadOffsets as why:
        raise BadCheckpoint(f"{why}. Check that the checkpoint is one of this query.") from None


def _limits(options: ReadOptions, limit: ReadLimit) -> Limits:
    match limit:
        case ReadMaxRows(max_rows=most):
            return Limits(most, options.trigger_offsets_min or 0, options.trigger_delay_ms_max)
        case _:
            return Limits()


def _new_name() -> str:
    return token_hex(6)
