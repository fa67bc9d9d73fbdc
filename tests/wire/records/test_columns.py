"""Batches as Arrow columns and back."""

import itertools
import sys
from types import ModuleType
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wire.records.samples import batches_of_records, records_of

from moldau.wire.records import kernel as chosen
from moldau.wire.records.batch import encode_batch, encode_end_transaction_marker
from moldau.wire.records.columns import arrow_schema, from_arrow, runs_in, to_arrow
from moldau.wire.records.compression import Codec
from moldau.wire.records.record import Record

if TYPE_CHECKING:
    import pyarrow as pa
else:
    pa = pytest.importorskip("pyarrow")


def rows_of(batch: "pa.RecordBatch") -> list[Record]:
    batch.validate(full=True)
    return [
        Record(
            row["offset"],
            timestamp,
            row["key"],
            row["value"],
            tuple((header["key"], header["value"]) for header in row["headers"]),
        )
        for row, timestamp in zip(
            batch.drop_columns(["timestamp"]).to_pylist(),
            batch.column("timestamp").cast(pa.int64()).to_pylist(),
            strict=True,
        )
    ]


@given(st.lists(batches_of_records().filter(bool), max_size=4))
def test_several_batches_become_one_set_of_columns(batches: list[list[Record]]) -> None:
    buffer = b"".join(encode_batch(records, base_offset=100) for records in batches)
    expected = [record._replace(attributes=0) for record in itertools.chain.from_iterable(batches)]
    assert rows_of(to_arrow(runs_in(buffer))) == expected


@pytest.mark.parametrize("codec", list(Codec))
def test_columns_of_a_fetch_skip_control_batches_and_what_is_outside_the_range(codec: Codec) -> None:
    records = records_of(60, base_offset=10)
    marker = encode_end_transaction_marker(
        is_commit=True, coordinator_epoch=1, timestamp=5, producer_id=1, producer_epoch=0, base_offset=70
    )
    later = records_of(10, base_offset=71)
    buffer = (
        encode_batch(records, codec=codec, base_offset=10)
        + marker
        + encode_batch(later, codec=codec, base_offset=71)
    )
    columns = to_arrow(runs_in(buffer + marker[:-1]), offset_from=15, offset_until=75)
    assert columns.schema == arrow_schema()
    assert rows_of(columns) == [*records[5:], *later[:4]]


def test_no_batches_are_columns_without_rows() -> None:
    columns = to_arrow([])
    assert (columns.num_rows, columns.schema) == (0, arrow_schema())


def test_log_append_time_fills_the_timestamp_column() -> None:
    columns = to_arrow(runs_in(encode_batch(records_of(20), log_append_time=1234)))
    assert set(columns.column("timestamp").cast(pa.int64()).to_pylist()) == {1234}


@given(batches_of_records().filter(bool), st.data())
def test_columns_and_slices_of_them_become_records_again(records: list[Record], data: st.DataObject) -> None:
    columns = to_arrow(runs_in(encode_batch(records, base_offset=100)))
    start = data.draw(st.integers(0, len(records) - 1))
    length = data.draw(st.integers(1, len(records) - start))
    encoded = from_arrow(columns.slice(start, length))
    expected = [
        record._replace(offset=index, attributes=0)
        for index, record in enumerate(records[start : start + length])
    ]
    assert chosen.decode(encoded.payload, encoded.row_count, 0, encoded.base_timestamp) == expected
    assert encoded.max_timestamp == max(record.timestamp for record in expected)


def test_a_frame_with_sparks_types_is_taken_as_it_is() -> None:
    columns = pa.record_batch(
        {
            "timestamp": pa.array([1_700_000_000_000_999, 1_700_000_001_000_000], pa.timestamp("us", "UTC")),
            "key": pa.array(["text", None]),
            "value": pa.array([b"large", None], pa.large_binary()),
        }
    )
    encoded = from_arrow(columns)
    assert chosen.decode(encoded.payload, 2, 0, encoded.base_timestamp) == [
        Record(0, 1_700_000_000_000, b"text", b"large"),
        Record(1, 1_700_000_001_000, None, None),
    ]


def test_columns_that_are_absent_or_null_throughout_are_null() -> None:
    columns = pa.record_batch(
        {"timestamp": pa.array([5], pa.int64()), "key": pa.nulls(1), "headers": pa.nulls(1)}
    )
    encoded = from_arrow(columns)
    assert chosen.decode(encoded.payload, 1, 0, encoded.base_timestamp) == [Record(0, 5, None, None)]


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        ({"timestamp": [None]}, "timestamp of a record is null"),
        ({"timestamp": []}, "at least one row"),
        ({"timestamp": [1], "headers": [[{"key": None, "value": b""}]]}, "key of a header is null"),
        ({"timestamp": [1], "headers": [[None]]}, "a header is null"),
    ],
)
def test_rows_that_are_no_records_are_refused(columns: dict[str, list[object]], text: str) -> None:
    header = pa.struct([("key", pa.string()), ("value", pa.binary())])
    types = {"timestamp": pa.int64(), "headers": pa.list_(header)}
    with pytest.raises(ValueError, match=text):
        from_arrow(pa.record_batch({name: pa.array(rows, types[name]) for name, rows in columns.items()}))


def test_a_slice_of_columns_is_refused_for_its_own_rows_only() -> None:
    header = pa.struct([("key", pa.string()), ("value", pa.binary())])
    headers = pa.array([[None], [{"key": "h", "value": b"x"}]], pa.list_(header))
    encoded = from_arrow(pa.record_batch({"timestamp": pa.array([1, 2]), "headers": headers}).slice(1))
    assert chosen.decode(encoded.payload, 1, 0, 2)[0].headers == (("h", b"x"),)


def test_a_header_key_that_is_not_utf_8_loses_characters_only() -> None:
    payload = b"\x16\x00\x00\x00\x01\x01\x02\x06a\xffb\x01"
    assert rows_of(to_arrow([(payload, 1, 0, 0, None)]))[0].headers == (("a\ufffdb", None),)


@pytest.mark.parametrize("count", [3, 200])
def test_both_kernels_lay_out_the_same_buffers(kernel: ModuleType, count: int) -> None:
    records = records_of(count)
    payload = kernel.encode(records, 0, records[0].timestamp)
    buffers = kernel.to_columns([(payload, count, 0, records[0].timestamp, None)])
    assert buffers == chosen.to_columns([(payload, count, 0, records[0].timestamp, None)])
    assert buffers.header_count == sum(len(record.headers) for record in records)


def test_without_numpy_the_twin_gives_the_same_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    from moldau.wire.records import pure

    records = records_of(100)
    payload = chosen.encode(records, 0, 0)
    run = (payload, 100, 0, 0, None)
    expected = pure.to_columns([run], 10, 90)
    monkeypatch.setitem(sys.modules, "numpy", None)
    assert pure.to_columns([run], 10, 90) == expected
    assert pure.validate(payload, 100) == chosen.validate(payload, 100)
