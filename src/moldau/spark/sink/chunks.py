"""Arrow batches of any size as chunks of about the same: memory has a bound, and batches are full."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa


def chunked(batches: Iterable[pa.RecordBatch], *, bytes_max: int) -> Iterator[pa.RecordBatch]:
    """The same rows in the same order: what is small is put together, what is large is cut."""
    gathered: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        for piece in _pieces(batch, bytes_max):
            if gathered and size + piece.nbytes > bytes_max:
                yield _together(gathered)
                gathered, size = [], 0
            gathered.append(piece)
            size += piece.nbytes
    if gathered:
        yield _together(gathered)


def _pieces(batch: pa.RecordBatch, bytes_max: int) -> Iterator[pa.RecordBatch]:
    """Slices, by the average size of the batch's rows."""
    rows = batch.num_rows
    count = max(-(-batch.nbytes // bytes_max), 1)
    step = max(-(-rows // count), 1)
    for start in range(0, rows, step):
        yield batch.slice(start, step)


def _together(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    import pyarrow as pa

    if len(batches) == 1:
        return batches[0]
    [whole] = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return whole
