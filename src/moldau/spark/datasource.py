"""The data source `moldau`, as Spark finds it: options in, readers and writers out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from moldau.spark.errors import told_plainly

if TYPE_CHECKING:
    from collections.abc import MutableMapping


class MoldauDataSource(DataSource):
    """`spark.read.format("moldau")`, and `readStream`, `write`, `writeStream`."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        from moldau.spark.options import with_defaults

        super().__init__(with_defaults(options))

    @classmethod
    def name(cls) -> str:
        """What stands in `format`."""
        return "moldau"

    @told_plainly
    def schema(self) -> StructType:
        """The columns of a topic, for a query that names none."""
        from moldau.spark.columns import source_schema
        from moldau.spark.options import ReadOptions

        # Here rather than later, so that what is wrong shows with `load`.
        options = ReadOptions.parse(self.options, use=None)
        return source_schema(with_headers=options.include_headers)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Reads a batch."""
        from moldau.spark.batch_source import batch_reader

        return batch_reader(schema, self.options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """Reads micro-batches."""
        from moldau.spark.stream_source import StreamReader

        return StreamReader(schema, self.options)

    @told_plainly
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Writes a batch."""
        from moldau.spark.sink import BatchSink

        return BatchSink(schema, self.options, overwrite)

    @told_plainly
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        """Writes micro-batches."""
        from moldau.spark.sink import StreamSink

        return StreamSink(schema, self.options, overwrite)
