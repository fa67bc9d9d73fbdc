"""The sinks that Spark calls: made and committed on the driver, written with on executors.

Spark makes a sink anew for every micro-batch and sends it to the tasks; for the commit it makes another. What
the two must share therefore travels with the sink to the tasks, and with their reports back to the commit.
`docs/decisions/0009-exactly-once-sink.md` says what will travel there for transactions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from logging import getLogger
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from moldau.client.settings import ClientSettings
from moldau.model.settings.setting import InvalidSetting
from moldau.spark.errors import told_plainly
from moldau.spark.options import WriteOptions
from moldau.spark.sink.columns import columns_of
from moldau.spark.sink.task import TaskReport
from moldau.spark.worker import SentWithTasks, settle

if TYPE_CHECKING:
    import pyarrow as pa

log = getLogger(__name__)


class _Sink(SentWithTasks):
    """What batches and streams have in common."""

    def __init__(self, schema: StructType, options: Mapping[str, str]) -> None:
        self._options = WriteOptions.parse(options)
        self._columns = columns_of(
            schema, topic=self._options.topic, with_timestamp=self._options.include_timestamp
        )
        settle()

    @told_plainly
    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskReport:
        """Write the rows of one task, on an executor."""
        from pyspark import TaskContext

        from moldau.spark.sink.producers import borrowed_producer, producer_settings
        from moldau.spark.sink.task import TaskWriter

        context = TaskContext.get()
        task = 0 if context is None else context.partitionId()
        is_repeated = context is not None and context.attemptNumber() > 0
        with borrowed_producer(self._options) as producer:
            settings = ClientSettings.parse(producer_settings(self._options))
            writer = TaskWriter(producer, self._columns, settings, task=task, is_repeated=is_repeated)
            report = writer.write(iterator)
        settle()
        return report


class BatchSink(_Sink, DataSourceArrowWriter):
    """What Spark asks to write a batch."""

    def __init__(self, schema: StructType, options: Mapping[str, str], overwrite: bool) -> None:
        if overwrite:
            raise InvalidSetting("A topic can only be added to: use mode('append'), not mode('overwrite').")
        super().__init__(schema, options)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Called once all tasks have succeeded."""
        _say_at_least_once()
        log.info("Written: %s.", _summary(messages))

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Called when the job has failed."""
        log.warning("The job failed. %s", _what_stays(messages))


class StreamSink(_Sink, DataSourceStreamArrowWriter):
    """What Spark asks to write micro-batches; in complete mode each has all rows, as with Kafka."""

    def __init__(self, schema: StructType, options: Mapping[str, str], overwrite: bool) -> None:
        super().__init__(schema, options)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Called once all tasks of a micro-batch have succeeded."""
        _say_at_least_once()
        log.debug("Micro-batch %d written: %s.", batchId, _summary(messages))

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Called when a micro-batch has failed."""
        log.warning("Micro-batch %d failed. %s", batchId, _what_stays(messages))


@cache
def _say_at_least_once() -> None:
    """Once in each process."""
    log.info(
        "The sink is at-least-once: when a task or a micro-batch is repeated, its records are written again."
    )


def _summary(messages: Sequence[WriterCommitMessage | None]) -> str:
    by_topic: Counter[str] = Counter()
    for report in messages:
        if isinstance(report, TaskReport):
            for place, written in report.written.items():
                by_topic[place.topic] += written.records
    return ", ".join(f"{count} records to {topic}" for topic, count in sorted(by_topic.items())) or "nothing"


def _what_stays(messages: Sequence[WriterCommitMessage | None]) -> str:
    return (
        f"What was written stays ({_summary(messages)}, and perhaps some of the tasks that failed), and is"
        " written again if it is repeated."
    )
