"""Batches as Arrow record batches and back: offset, timestamp, key, value, headers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from moldau.wire.records import kernel
from moldau.wire.records.batch import payload_of, run_of
from moldau.wire.records.compression import DECOMPRESSED_BYTES_MAX
from moldau.wire.records.header import Buffer, check_crc, iter_headers
from moldau.wire.records.record import Encoded, HeaderColumn, Run, Strings

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray


def arrow_schema() -> pa.Schema:
    """The columns of `to_arrow`, which are also what `from_arrow` takes (without the offsets)."""
    import pyarrow as pa

    header = pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())])
    return pa.schema(
        [
            pa.field("offset", pa.int64(), nullable=False),
            pa.field("timestamp", pa.timestamp("ms"), nullable=False),
            pa.field("key", pa.binary()),
            pa.field("value", pa.binary()),
            pa.field("headers", pa.list_(pa.field("item", header, nullable=False)), nullable=False),
        ]
    )


def runs_in(buffer: Buffer, *, bytes_max: int = DECOMPRESSED_BYTES_MAX) -> Iterable[Run]:
    """The data batches of a fetched buffer, checked and decompressed; control batches are left out."""
    for position, header in iter_headers(buffer):
        if header.is_control:
            continue
        check_crc(buffer, position, header)
        yield run_of(header, payload_of(buffer, position, header, bytes_max=bytes_max))


def to_arrow(
    runs: Iterable[Run], *, offset_from: int = -(2**63), offset_until: int = 2**63 - 1
) -> pa.RecordBatch:
    """Several batches as one set of columns, without the records outside the range of offsets."""
    import pyarrow as pa

    buffers = kernel.to_columns(runs, offset_from, offset_until)
    schema = arrow_schema()
    length = buffers.length

    def column(kind: pa.DataType, count: int, *parts: Buffer | None) -> pa.Array:
        return pa.Array.from_buffers(kind, count, [None if p is None else pa.py_buffer(p) for p in parts])

    header_keys = column(
        pa.binary(), buffers.header_count, None, buffers.header_key_offsets, buffers.header_key_data
    )
    header_values = column(
        pa.binary(),
        buffers.header_count,
        buffers.header_value_validity,
        buffers.header_value_offsets,
        buffers.header_value_data,
    )
    headers_type = schema.field("headers").type
    headers = pa.StructArray.from_arrays(
        [_as_text(header_keys), header_values], fields=list(headers_type.value_type)
    )
    return pa.RecordBatch.from_arrays(
        [
            column(pa.int64(), length, None, buffers.offset),
            column(pa.timestamp("ms"), length, None, buffers.timestamp),
            column(pa.binary(), length, buffers.key_validity, buffers.key_offsets, buffers.key_data),
            column(pa.binary(), length, buffers.value_validity, buffers.value_offsets, buffers.value_data),
            pa.Array.from_buffers(
                headers_type, length, [None, pa.py_buffer(buffers.header_offsets)], children=[headers]
            ),
        ],
        schema=schema,
    )


def from_arrow(batch: pa.RecordBatch) -> Encoded:
    """Rows as records with offsets from 0 on; of the columns only `timestamp` must be there."""
    import pyarrow as pa

    names = batch.schema.names
    timestamps = batch.column("timestamp")
    if timestamps.null_count:
        raise ValueError("the timestamp of a record is null")
    if timestamps.type != pa.int64():
        # Spark has microseconds; Kafka's milliseconds are the whole ones.
        timestamps = timestamps.cast(pa.timestamp("ms", timestamps.type.tz), safe=False)
    keys = _strings(batch.column("key")) if "key" in names else None
    values = _strings(batch.column("value")) if "value" in names else None
    headers = _headers(batch.column("headers")) if "headers" in names else None
    payload, base_timestamp, max_timestamp = kernel.from_columns(
        batch.num_rows, timestamps.offset, timestamps.buffers()[1], keys, values, headers
    )
    return Encoded(payload, batch.num_rows, base_timestamp, max_timestamp)


def key_hashes(column: pa.Array) -> NDArray[np.int32]:
    """For each key what the Java client takes modulo the number of partitions; -1 where it is null."""
    import numpy as np

    return np.frombuffer(kernel.hash_keys(len(column), _strings(column)), np.int32)


def _as_text(keys: pa.Array) -> pa.Array:
    """Header keys as strings; those that are not UTF-8 lose characters, as they do in Kafka."""
    import pyarrow as pa

    try:
        return keys.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([key.decode("utf-8", "replace") for key in keys.to_pylist()], pa.string())


def _strings(column: pa.Array) -> Strings | None:
    import pyarrow as pa

    if pa.types.is_null(column.type):
        return None
    if column.type not in (pa.binary(), pa.string()):
        column = column.cast(pa.binary())
    validity, offsets, data = column.buffers()
    return column.offset, validity, offsets, data


def _headers(column: pa.Array) -> HeaderColumn | None:
    import pyarrow as pa

    if pa.types.is_null(column.type):
        return None
    validity, offsets = column.buffers()[:2]
    structs = column.values  # of the whole array: the offsets of a slice still refer to it
    if structs.null_count and column.flatten().null_count:
        raise ValueError("a header is null")
    keys, values = _strings(structs.field("key")), _strings(structs.field("value"))
    if not len(structs) or keys is None:
        return None
    if values is None:
        values = _strings(pa.nulls(len(structs), pa.binary()))
        assert values is not None
    return column.offset, validity, offsets, len(structs), keys, values
