"""The rows of a chunk as batches of one partition each, in the order of the rows, encoded and compressed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from moldau.spark.sink.columns import HEADERS, KEY, TIMESTAMP, VALUE, Columns
from moldau.spark.sink.placing import Placed
from moldau.wire.records.batch import Packed, pack
from moldau.wire.records.columns import from_arrow
from moldau.wire.records.compression import Codec

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A batch, where it goes, and which rows of its chunk it holds."""

    topic: str
    partition: int
    packed: Packed
    rows: Ints


def packed(
    chunk: pa.RecordBatch, placed: Placed, columns: Columns, *, now_ms: int, codec: Codec, bytes_max: int
) -> Iterator[Outgoing]:
    """Batches of at most `bytes_max` bytes before compression, or of a single row that is larger."""
    if not chunk.num_rows:
        return
    places = placed.topic * (int(placed.partition.max()) + 1) + placed.partition
    order, places = _by_place(places)
    records = _records(chunk, columns, now_ms)
    sizes = placed.size_bytes
    if order is None:
        order = np.arange(chunk.num_rows)
    else:
        records, sizes = records.take(order), sizes[order]
    for start, end in _cuts(places, sizes, bytes_max):
        first = int(order[start])
        yield Outgoing(
            placed.topics[placed.topic[first]],
            int(placed.partition[first]),
            pack(from_arrow(records.slice(start, end - start)), codec=codec),
            order[start:end],
        )


def _by_place(places: Ints) -> tuple[Ints | None, Ints]:
    """The rows ordered by place and, of one place, as they came; None where they are so already."""
    if (places[1:] >= places[:-1]).all():
        return None, places
    # numpy sorts short integers by radix: linear, and stable.
    short = places.astype(np.uint16) if int(places.max()) < 2**16 else places
    order = np.argsort(short, kind="stable")
    return order, places[order]


def _cuts(places: Ints, sizes: Ints, bytes_max: int) -> Iterator[tuple[int, int]]:
    """From where to where each batch reaches: to the end of its place, or of its room."""
    ends = sizes.cumsum()
    borders = [*(np.flatnonzero(places[1:] != places[:-1]) + 1).tolist(), len(places)]
    start = 0
    for border in borders:
        while start < border:
            before = int(ends[start - 1]) if start else 0
            full = int(np.searchsorted(ends, before + bytes_max, side="right"))
            end = min(max(full, start + 1), border)
            yield start, end
            start = end


def _records(chunk: pa.RecordBatch, columns: Columns, now_ms: int) -> pa.RecordBatch:
    """The columns that `from_arrow` takes."""
    import pyarrow as pa

    if columns.has_timestamp:
        given = chunk.column(TIMESTAMP)
        if pa.types.is_null(given.type):
            given = given.cast(pa.timestamp("ms"))
        # Spark has microseconds; Kafka's milliseconds are the whole ones.
        times = given.cast(pa.timestamp("ms", given.type.tz), safe=False).cast(pa.int64()).fill_null(now_ms)
    else:
        times = pa.array(np.full(chunk.num_rows, now_ms, np.int64))
    made = {TIMESTAMP: times, VALUE: chunk.column(VALUE)}
    if columns.has_key:
        made[KEY] = chunk.column(KEY)
    if columns.has_headers:
        made[HEADERS] = chunk.column(HEADERS)
    return pa.RecordBatch.from_arrays([*made.values()], names=[*made])
