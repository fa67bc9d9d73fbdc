"""Sources that go on one record too late, or too early, when a query is started again.

Unlike other mutants these are data sources of their own, because Spark makes its sources in other processes.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from moldau.spark.datasource import MoldauDataSource
from moldau.spark.stream_source import StreamReader

Json = dict[str, Any]


class LateReader(StreamReader):
    """Is told where to go on by the checkpoint, and goes on elsewhere."""

    shift = 1
    _has_planned = False

    def partitions(self, start: Json, end: Json) -> list[InputPartition]:
        # The first batch that a process plans; a query that is new begins right.
        if not self._has_planned and "@is-beginning" not in start:
            start = {topic: self._shifted(topic, offsets, end) for topic, offsets in start.items()}
        self._has_planned = True
        return super().partitions(start, end)

    def _shifted(self, topic: str, offsets: Any, end: Json) -> Any:
        if topic.startswith("@"):
            return offsets
        return {
            partition: max(min(offset + self.shift, end[topic][partition]), 0)
            for partition, offset in offsets.items()
        }


class EarlyReader(LateReader):
    """The same in the other direction."""

    shift = -1


class Late(MoldauDataSource):
    """Leaves a record out."""

    @classmethod
    def name(cls) -> str:
        return "moldau-late"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        return LateReader(schema, self.options)


class Early(MoldauDataSource):
    """Reads a record twice."""

    @classmethod
    def name(cls) -> str:
        return "moldau-early"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        return EarlyReader(schema, self.options)
