"""Rows in Arrow as Spark hands them to the sink, and the records that come of them."""

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from moldau.spark.sink.columns import Columns
from moldau.spark.sink.packing import Outgoing
from moldau.spark.sink.placing import Placer, Topic
from moldau.wire.records.record import Record

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
TYPES = {"key": pa.binary(), "value": pa.binary(), "headers": HEADERS, "topic": pa.string()}
TYPES |= {"partition": pa.int32(), "timestamp": pa.timestamp("us", "UTC")}


def rows(**columns: Sequence[object]) -> pa.RecordBatch:
    """Rows with the types that Spark sends."""
    return pa.record_batch({name: pa.array(values, TYPES[name]) for name, values in columns.items()})


def columns_in(chunk: pa.RecordBatch, *, topic: str | None = None, with_timestamp: bool = False) -> Columns:
    """All columns that the chunk has."""
    names = chunk.schema.names
    return Columns(
        topic=topic,
        has_key="key" in names,
        has_headers="headers" in names,
        has_partition="partition" in names,
        has_timestamp=with_timestamp,
    )


def placer(columns: Columns, counts: dict[str, int], **chosen: Any) -> Placer:
    """A placer in a cluster that has these topics, with so many partitions."""
    settings = {"task": 0, "switch_bytes": 1_000, **chosen}
    return Placer(columns, lambda name, _: Topic(counts[name], tuple(range(counts[name]))), **settings)


def records_of(outgoing: Iterable[Outgoing]) -> dict[tuple[str, int], list[Record]]:
    """What arrives in each partition, in the order in which it is sent."""
    found: dict[tuple[str, int], list[Record]] = {}
    for batch in outgoing:
        found.setdefault((batch.topic, batch.partition), []).extend(batch.packed.records())
    return found
