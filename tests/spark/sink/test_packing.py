"""Rows become batches of one partition each, with every row once and in order."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from spark.sink.rows import columns_in, placer, records_of, rows

from moldau.spark.sink.packing import Outgoing, packed
from moldau.wire.records.compression import Codec

NOW_MS = 1_700_000_000_000


def pack(
    chunk: pa.RecordBatch,
    counts: dict[str, int],
    *,
    topic: str | None = None,
    with_timestamp: bool = False,
    codec: Codec = Codec.NONE,
    bytes_max: int = 10_000,
) -> list[Outgoing]:
    columns = columns_in(chunk, topic=topic, with_timestamp=with_timestamp)
    placed = placer(columns, counts).place(chunk, 1)
    return [*packed(chunk, placed, columns, now_ms=NOW_MS, codec=codec, bytes_max=bytes_max)]


@given(
    st.lists(
        st.tuples(st.sampled_from(["a", "b", "c"]), st.none() | st.integers(0, 4), st.integers(0, 300)),
        min_size=1,
        max_size=60,
    ),
    st.sampled_from([1, 500, 5_000]),
    st.sampled_from(list(Codec)),
)
def test_every_row_is_in_a_batch_of_its_partition_once_and_in_order(
    contents: list[tuple[str, int | None, int]], bytes_max: int, codec: Codec
) -> None:
    topics, partitions, sizes = zip(*contents, strict=True)
    values = [b"%d " % row + b"x" * size for row, size in enumerate(sizes)]
    keys = [b"%d" % (row % 7) for row in range(len(values))]
    chunk = rows(key=keys, value=values, topic=topics, partition=partitions)
    counts = {"a": 5, "b": 6, "c": 7}
    outgoing = pack(chunk, counts, codec=codec, bytes_max=bytes_max)
    placed = placer(columns_in(chunk), counts).place(chunk, 1)
    expected: dict[tuple[str, int], list[bytes]] = {}
    for row, value in enumerate(values):
        expected.setdefault((topics[row], int(placed.partition[row])), []).append(value)
    found = records_of(outgoing)
    assert {place: [record.value for record in records] for place, records in found.items()} == expected
    for batch in outgoing:
        assert [record.value for record in batch.packed.records()] == [values[row] for row in batch.rows]
        assert batch.packed.codec == codec


def test_batches_are_as_large_as_they_may_be_and_a_larger_row_is_alone() -> None:
    values = [b"x" * 64] * 10 + [b"y" * 2_000] + [b"x" * 64] * 3  # 100 bytes each, and 2036
    outgoing = pack(rows(value=values, partition=[0] * 14), {"t": 1}, topic="t", bytes_max=500)
    assert [batch.packed.count for batch in outgoing] == [5, 5, 1, 3]


def test_nulls_headers_and_times_arrive_as_they_are() -> None:
    chunk = rows(
        key=[None, b"", b"k"],
        value=[b"v", None, b""],
        headers=[[{"key": "h", "value": None}, {"key": "h", "value": b"x"}], None, []],
        timestamp=[None, 5_999, 7_000],
        partition=[0, 0, 0],
    )
    [batch] = pack(chunk, {"t": 1}, topic="t", with_timestamp=True)
    assert [(r.key, r.value, r.headers, r.timestamp) for r in batch.packed.records()] == [
        (None, b"v", (("h", None), ("h", b"x")), NOW_MS),
        (b"", None, (), 5),
        (b"k", b"", (), 7),
    ]


@pytest.mark.parametrize("kind", [pa.timestamp("us"), pa.null()])
def test_a_time_may_have_no_zone_and_a_column_may_be_void(kind: pa.DataType) -> None:
    chunk = pa.record_batch({"value": pa.nulls(1), "key": pa.nulls(1), "timestamp": pa.nulls(1).cast(kind)})
    [batch] = pack(chunk, {"t": 1}, topic="t", with_timestamp=True)
    [record] = batch.packed.records()
    assert (record.key, record.value, record.timestamp) == (None, None, NOW_MS)


def test_without_a_request_for_it_the_time_is_that_of_writing() -> None:
    [batch] = pack(rows(value=[b"v"], timestamp=[1]), {"t": 1}, topic="t")
    assert [record.timestamp for record in batch.packed.records()] == [NOW_MS]


def test_more_places_than_short_integers_can_count_are_told_apart() -> None:
    chunk = rows(value=[b"a", b"b", b"c"], partition=[69_999, 4_463, 69_999])
    found = records_of(pack(chunk, {"t": 70_000}, topic="t"))
    assert {place: [r.value for r in records] for place, records in found.items()} == {
        ("t", 4_463): [b"b"],
        ("t", 69_999): [b"a", b"c"],
    }
