"""Arrow batches of any size become chunks of about the same size, with the same rows in the same order."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from spark.sink.rows import rows

from moldau.spark.sink.chunks import chunked


@given(
    st.lists(st.lists(st.integers(0, 300), max_size=30), max_size=8),
    st.sampled_from([1, 100, 1_000, 10**6]),
)
def test_chunks_have_all_rows_in_their_order(batches: list[list[int]], bytes_max: int) -> None:
    values = [[b"%d" % size * size for size in batch] for batch in batches]
    chunks = [*chunked([rows(value=batch) for batch in values], bytes_max=bytes_max)]
    assert [value for chunk in chunks for value in chunk.column("value").to_pylist()] == [
        value for batch in values for value in batch
    ]
    assert all(chunk.num_rows for chunk in chunks)


@pytest.mark.parametrize(("batch_rows", "count"), [(10, 1_000), (10_000, 1)])
def test_chunks_are_about_as_large_as_asked_for(batch_rows: int, count: int) -> None:
    batches = (rows(value=[b"x" * 100] * batch_rows) for _ in range(count))
    sizes = [chunk.nbytes for chunk in chunked(batches, bytes_max=100_000)]
    assert max(sizes) <= 101_000
    assert sum(size < 50_000 for size in sizes) <= 1


def test_what_is_just_right_is_not_copied() -> None:
    batch = rows(value=[b"x" * 100] * 10)
    [chunk] = chunked([batch], bytes_max=10_000)
    assert chunk.column("value").buffers()[2].address == batch.column("value").buffers()[2].address


def test_a_batch_without_rows_is_nothing() -> None:
    assert [*chunked([rows(value=[])], bytes_max=10)] == []
    [chunk] = chunked([rows(value=[]), rows(value=[b"a"]), rows(value=[])], bytes_max=10_000)
    assert chunk.equals(pa.record_batch({"value": pa.array([b"a"], pa.binary())}))
