"""Reading topics as a batch: offsets decided once, then one task for each range."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from pyspark.sql import datasource as spark_filters
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from moldau.client.offsets import NO_OFFSET
from moldau.spark.columns import arrow_schema, check_schema
from moldau.spark.errors import BadBound, told_plainly
from moldau.spark.options import ReadOptions, Use
from moldau.spark.plan.batches import Batch
from moldau.spark.plan.bounds import BackwardRange, Extent, plan_query
from moldau.spark.plan.filters import EVERYTHING, Condition, Operator, Restriction, restrict
from moldau.spark.plan.ranges import OffsetRange
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


_OPERATORS: Final[Mapping[type[Filter], Operator]] = {
    spark_filters.EqualTo: "=",
    spark_filters.EqualNullSafe: "<=>",
    spark_filters.GreaterThan: ">",
    spark_filters.GreaterThanOrEqual: ">=",
    spark_filters.LessThan: "<",
    spark_filters.LessThanOrEqual: "<=",
    spark_filters.In: "in",
    spark_filters.IsNull: "is null",
    spark_filters.IsNotNull: "is not null",
    spark_filters.StringStartsWith: "starts with",
    spark_filters.StringEndsWith: "ends with",
    spark_filters.StringContains: "contains",
}


def batch_reader(schema: StructType, options: Mapping[str, str]) -> BatchReader:
    """A reader, which takes filters where Spark has any to give.

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
        self._restriction = EVERYTHING

    @told_plainly
    def partitions(self) -> list[InputPartition]:
        """The tasks, decided on the driver."""
        return [InputPartition(task) for task in plan_tasks(self._options, self._restriction)]

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
    DataFrame with itself, until Spark plans per query (SPARK-58551). Hence nothing is left out here, unless
    the user says that there are no others.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        """Read no more than they let pass, if that is wanted; gives back those that Spark has to apply."""
        if not self._options.pushes_filters:
            return filters
        known = [(each, condition) for each in filters if (condition := _condition(each)) is not None]
        self._restriction, kept = restrict(condition for _, condition in known)
        # By identity: two equal filters are two filters.
        done = {id(each) for (each, _), is_kept in zip(known, kept, strict=True) if is_kept}
        return [each for each in filters if id(each) not in done]


def plan_tasks(options: ReadOptions, restriction: Restriction = EVERYTHING) -> list[Task]:
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
    return tasks_of(_restricted(batch, restriction, topics), found.topic_ids, options)


def _restricted(batch: Batch, restriction: Restriction, topics: Topics) -> list[OffsetRange]:
    ranges = [each for each in batch.ranges if restriction.has(each.place)]
    if restriction.time_min_ms is None:
        return [restriction.cut(each) for each in ranges]
    firsts = topics.first_since(dict.fromkeys((each.place for each in ranges), restriction.time_min_ms))
    return [
        restriction.cut(
            each, first_in_time=each.end if firsts[each.place] == NO_OFFSET else firsts[each.place]
        )
        for each in ranges
    ]


def _condition(given: Filter) -> Condition | None:
    """A filter of Spark's in our words; None for one that says nothing to us."""
    is_negated = isinstance(given, spark_filters.Not)
    inner = given.child if isinstance(given, spark_filters.Not) else given
    operator = _OPERATORS.get(type(inner))
    path: tuple[str, ...] = getattr(inner, "attribute", ())
    if operator is None or len(path) != 1:
        return None
    value = getattr(inner, "value", None)
    plain = tuple(map(_plain, value)) if isinstance(value, tuple | list) else _plain(value)
    return Condition(path[0], operator, plain, is_negated)


def _plain(value: object) -> object:
    """A timestamp as microseconds since 1970, anything else as it is."""
    if not isinstance(value, datetime) or value.tzinfo is None:
        return value
    since = value.astimezone(UTC) - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
