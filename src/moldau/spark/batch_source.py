"""Reading topics as a batch: offsets decided once, then one task for each range."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from moldau.spark.columns import arrow_schema, check_schema
from moldau.spark.errors import BadBound, told_plainly
from moldau.spark.options import ReadOptions, Use
from moldau.spark.plan.bounds import BackwardRange, Extent, plan_query
from moldau.spark.reading import Task, read, report_losses, tasks_of
from moldau.spark.topics import Topics
from moldau.spark.worker import SentWithTasks

if TYPE_CHECKING:
    import pyarrow as pa

# The module that Spark runs to push filters down, when spark.sql.python.filterPushdown.enabled is true.
_PUSHDOWN_WORKER: Final = "pyspark.sql.worker.data_source_pushdown_filters"

# A task finds out late that what it was to read is gone: perhaps long after its offsets were looked up.
_IF_OLD: Final = (
    " A DataFrame or view keeps the offsets that its first query found: if they are old, load() it anew, or"
    " create the view again."
)


def batch_reader(schema: StructType, options: Mapping[str, str]) -> BatchReader:
    """A reader, which is shown filters where Spark has any to show.

    With spark.sql.python.filterPushdown.enabled off, as it is by default, Spark fails a query whose reader
    has `pushFilters`. So only the process that Spark starts for pushing filters down sees one that has.
    """
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    is_pushing = _PUSHDOWN_WORKER in sys.modules or getattr(main, "name", "") == _PUSHDOWN_WORKER
    return FilteringReader(schema, options) if is_pushing else BatchReader(schema, options)


class BatchReader(SentWithTasks, DataSourceReader):
    """What Spark asks to read a batch."""

    @told_plainly
    def __init__(self, schema: StructType, options: Mapping[str, str]) -> None:
        check_schema(schema)
        self._schema = schema
        self._options = ReadOptions.parse(options, Use.BATCH)

    @told_plainly
    def partitions(self) -> list[InputPartition]:
        """The tasks, decided on the driver."""
        return [InputPartition(task) for task in plan_tasks(self._options)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task, on an executor."""
        task = partition.value
        # Where there is nothing to read, Spark runs one task all the same.
        if task is None:
            return iter(())
        return read(task, self._options, arrow_schema(self._schema), if_lost=_IF_OLD)


class FilteringReader(BatchReader):
    """The same for a query with filters.

    Spark keeps one plan of reading for all queries of a DataFrame, the last that was made, and makes one with
    every query that has filters. So each of these reads what the topics have by then. But what one query's
    filters ruled out would be missing from the others, and from the other half of a union or a join of a
    DataFrame with itself. Hence nothing is left out here before Spark plans per query (SPARK-58551).
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        """All of them are Spark's to apply."""
        return filters


def plan_tasks(options: ReadOptions) -> list[Task]:
    """What each task reads; DataLoss if some of it is gone and that is to be an error."""
    topics = Topics(options)
    found = topics.find()
    starts = topics.resolve(options.start, found.places, is_start=True)
    ends = topics.resolve(options.end, found.places, is_start=False)
    earliest, latest = topics.earliest(found.places), topics.latest(found.places)
    logs = {place: Extent(earliest[place], latest[place]) for place in found.places}
    try:
        batch = plan_query(starts, ends, logs)
    except BackwardRange as why:
        raise BadBound(f"{why}. Check the options that say where to start and to end.") from None
    report_losses(batch.losses, options)
    return tasks_of(batch.ranges, found.topic_ids, options)
