"""Record batches as the columns of Spark's connector for Kafka, in Arrow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Final

from moldau.client.consumer import Polled
from moldau.model.ids import TopicPartition
from moldau.model.settings.setting import InvalidSetting
from moldau.wire.records.record import Run

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

# Spark's numbers for where a timestamp comes from.
CREATE_TIME: Final = 0
LOG_APPEND_TIME: Final = 1

# Large enough that what a batch costs is shared by many rows, small enough to stay in a processor's cache.
BATCH_BYTES: Final = 4 * 2**20


def source_schema(*, with_headers: bool) -> StructType:
    """The columns of a topic."""
    from pyspark.sql.types import (
        ArrayType,
        BinaryType,
        IntegerType,
        LongType,
        StringType,
        StructField,
        StructType,
        TimestampType,
    )

    header = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
    columns = [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
    ]
    if with_headers:
        columns.append(StructField("headers", ArrayType(header)))
    return StructType(columns)


def check_schema(asked: StructType) -> None:
    """Raise InvalidSetting unless a schema that a user gave picks among the columns of a topic."""
    known = {field.name: field.dataType for field in source_schema(with_headers=True).fields}
    for field in asked.fields:
        if field.name not in known:
            raise InvalidSetting(
                f"There is no column {field.name!r}: a topic has {', '.join(known)}."
                " A schema may leave some out."
            )
        if field.dataType != known[field.name]:
            raise InvalidSetting(
                f"Column {field.name!r} is {known[field.name].simpleString()}, not"
                f" {field.dataType.simpleString()}: cast it after reading."
            )


def arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow types that Spark expects of a data source with this schema."""
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(schema, timezone="UTC")


class Columns:
    """Makes the columns of one partition; what is the same in all rows is made once."""

    def __init__(self, place: TopicPartition, schema: pa.Schema) -> None:
        self._place = place
        self._schema = schema
        self._constants: dict[str, pa.Array] = {}

    def batches(self, polled: Polled) -> Iterator[pa.RecordBatch]:
        """The rows of what was polled."""
        for timestamp_type, runs in _groups(polled):
            batch = self._batch(runs, polled, timestamp_type)
            if batch.num_rows:
                yield batch

    def _batch(self, runs: Iterable[Run], polled: Polled, timestamp_type: int) -> pa.RecordBatch:
        import pyarrow as pa

        from moldau.wire.records.columns import to_arrow

        read = to_arrow(runs, offset_from=polled.offset_from, offset_until=polled.position)
        length = read.num_rows
        arrays: list[pa.Array] = []
        for name in self._schema.names:
            match name:
                case "topic":
                    arrays.append(self._constant(name, self._place.topic, length))
                case "partition":
                    arrays.append(self._constant(name, self._place.partition, length))
                case "timestampType":
                    arrays.append(self._constant(f"{name} {timestamp_type}", timestamp_type, length))
                case "timestamp":
                    arrays.append(_microseconds(read.column(name)))
                case "headers":
                    arrays.append(_headers(read.column(name), self._header_type))
                case _:
                    arrays.append(read.column(name))
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _constant(self, name: str, value: str | int, length: int) -> pa.Array:
        import pyarrow as pa

        made = self._constants.get(name)
        if made is None or len(made) < length:
            kind = pa.string() if isinstance(value, str) else pa.int32()
            made = self._constants[name] = pa.repeat(pa.scalar(value, kind), length)
        return made.slice(0, length)

    @cached_property
    def _header_type(self) -> pa.DataType:
        return self._schema.field("headers").type


def _groups(polled: Polled) -> Iterator[tuple[int, list[Run]]]:
    """Batches that can be one: of one timestamp type, and not too large together."""
    runs: list[Run] = []
    size, kind = 0, CREATE_TIME
    for batch in polled.batches:
        next_kind = LOG_APPEND_TIME if batch.header.is_log_append_time else CREATE_TIME
        if runs and (next_kind != kind or size >= BATCH_BYTES):
            yield kind, runs
            runs, size = [], 0
        kind = next_kind
        run = batch.run()
        runs.append(run)
        size += len(run[0])
    if runs:
        yield kind, runs


def _microseconds(milliseconds: pa.Array) -> pa.Array:
    import pyarrow as pa
    import pyarrow.compute as pc

    whole = milliseconds.view(pa.int64())
    try:
        micros = pc.multiply_checked(whole, 1_000)
    except pa.ArrowInvalid:
        # Nobody means the year 294247; what such a timestamp becomes matters less than that reading goes on.
        limit = (2**63 - 1) // 1_000
        micros = pc.multiply(pc.max_element_wise(pc.min_element_wise(whole, limit), -limit), 1_000)
    return micros.view(pa.timestamp("us", "UTC"))


def _headers(headers: pa.Array, kind: pa.DataType) -> pa.Array:
    """The same headers, and null for a record that has none, as Spark's connector has it."""
    import pyarrow as pa
    import pyarrow.compute as pc

    structs = headers.values
    same = pa.StructArray.from_arrays(
        [structs.field("key"), structs.field("value")], fields=list(kind.value_type)
    )
    length = len(headers)
    _, offsets = headers.buffers()[:2]
    bounds = pa.Array.from_buffers(pa.int32(), length + 1, [None, offsets])
    has_some = pc.not_equal(bounds.slice(1), bounds.slice(0, length))
    return pa.Array.from_buffers(kind, length, [has_some.buffers()[1], offsets], children=[same])
