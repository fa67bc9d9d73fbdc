"""Reading topics as a batch: offsets decided once, then one task for each range."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from moldau.spark.columns import arrow_schema, check_schema
from moldau.spark.options import ReadOptions, Use
from moldau.spark.plan.ranges import OffsetRange, split
from moldau.spark.reading import Task, read
from moldau.spark.topics import Topics

if TYPE_CHECKING:
    import pyarrow as pa


class BatchReader(DataSourceReader):
    """What Spark asks to read a batch."""

    def __init__(self, schema: StructType, options: Mapping[str, str]) -> None:
        check_schema(schema)
        self._schema = schema
        self._options = ReadOptions.parse(options, Use.BATCH)

    def partitions(self) -> list[InputPartition]:
        """The tasks, decided on the driver."""
        topics = Topics(self._options)
        found = topics.find()
        starts = topics.resolve(self._options.start, found.places, is_start=True)
        ends = topics.resolve(self._options.end, found.places, is_start=False)
        ranges = [OffsetRange(place, starts[place], ends[place]) for place in found.places]
        pieces = split(ranges, tasks_min=self._options.tasks_min, records_max=self._options.task_records_max)
        return [InputPartition(Task(piece, found.topic_ids[piece.place.topic])) for piece in pieces]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task, on an executor."""
        task = partition.value
        # Where there is nothing to read, Spark runs one task all the same.
        return iter(()) if task is None else read(task, self._options, arrow_schema(self._schema))
