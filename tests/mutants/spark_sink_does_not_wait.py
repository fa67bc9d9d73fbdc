"""A sink that reports its rows as written before they are, as one does that waits for no acknowledgement.

Like `spark_source_off_by_one` it is a data source of its own.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSourceStreamWriter
from pyspark.sql.types import StructType

from moldau.spark.datasource import MoldauDataSource
from moldau.spark.sink import StreamSink
from moldau.spark.sink.task import TaskReport

if TYPE_CHECKING:
    import pyarrow as pa

# As records linger in a producer that nobody hurries.
_LINGER_S: Final = 3.0


class HastySink(StreamSink):
    """Its tasks succeed at once, and write a little later."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskReport:
        rows = list(iterator)
        later = threading.Timer(_LINGER_S, super().write, args=(iter(rows),))
        later.daemon = True
        later.start()
        return TaskReport(0)


class Hasty(MoldauDataSource):
    """`moldau` with that sink."""

    @classmethod
    def name(cls) -> str:
        return "moldau-hasty"

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        return HastySink(schema, self.options, overwrite)
