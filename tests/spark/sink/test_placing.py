"""Where rows go: by option or column, by key as the Java client has it, by column, or anywhere."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from spark.sink.rows import columns_in, placer, rows

from moldau.client.partitioners import by_murmur2_or_anywhere
from moldau.spark.sink.errors import BadRow, BadTopic
from moldau.spark.sink.placing import Placer, Topic, record_sizes
from moldau.wire.records.columns import from_arrow


@given(st.lists(st.binary(max_size=40), min_size=1), st.sampled_from([1, 3, 64]), st.integers(0, 3))
def test_keys_go_where_the_java_client_sends_them(keys: list[bytes], count: int, skipped: int) -> None:
    chunk = rows(key=keys, value=keys).slice(min(skipped, len(keys) - 1))
    placed = placer(columns_in(chunk, topic="t"), {"t": count}).place(chunk, 1)
    expected = [by_murmur2_or_anywhere("t", key, count) for key in chunk.column("key").to_pylist()]
    assert placed.partition.tolist() == expected


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.large_binary()])
def test_it_does_not_matter_which_kind_of_string_a_key_is(kind: pa.DataType) -> None:
    keys = ["Łódź", "", "key", "x" * 100]
    chunk = pa.record_batch({"key": pa.array(keys, pa.string()).cast(kind), "value": pa.nulls(4)})
    placed = placer(columns_in(chunk, topic="t"), {"t": 7}).place(chunk, 1)
    assert placed.partition.tolist() == [by_murmur2_or_anywhere("t", key.encode(), 7) for key in keys]


def test_rows_without_a_key_stay_together_until_a_batch_is_full_and_then_go_to_the_next_partition() -> None:
    chunk = rows(value=[b"x" * 64] * 35)  # 100 bytes each
    place = placer(columns_in(chunk, topic="t"), {"t": 3}, switch_bytes=1_000).place
    assert place(chunk, 1).partition.tolist() == [0] * 10 + [1] * 10 + [2] * 10 + [0] * 5
    # The next chunk goes on where this one has ended.
    assert place(chunk, 36).partition.tolist()[:6] == [0] * 5 + [1]


def test_every_task_begins_at_another_partition() -> None:
    chunk = rows(value=[b"x"])
    columns = columns_in(chunk, topic="t")
    starts = [placer(columns, {"t": 3}, task=task).place(chunk, 1).partition.tolist() for task in range(4)]
    assert starts == [[0], [1], [2], [0]]


def test_null_keys_among_others_go_anywhere() -> None:
    chunk = rows(key=[b"a", None, b"a", None], value=[b""] * 4)
    placed = placer(columns_in(chunk, topic="t"), {"t": 9}, task=4).place(chunk, 1)
    by_key = by_murmur2_or_anywhere("t", b"a", 9)
    assert placed.partition.tolist() == [by_key, 4, by_key, 4]


def test_rows_that_may_go_anywhere_avoid_partitions_without_a_leader() -> None:
    chunk = rows(value=[b"x" * 64] * 4)
    columns = columns_in(chunk, topic="t")
    place = Placer(columns, lambda name, _: Topic(5, (1, 4)), task=0, switch_bytes=100).place
    assert place(chunk, 1).partition.tolist() == [1, 4, 1, 4]


def test_the_column_partition_goes_before_the_key_and_null_leaves_it_to_the_key() -> None:
    chunk = rows(key=[b"a", b"a", b"a"], value=[b""] * 3, partition=[2, None, 0])
    placed = placer(columns_in(chunk, topic="t"), {"t": 3}).place(chunk, 1)
    assert placed.partition.tolist() == [2, by_murmur2_or_anywhere("t", b"a", 3), 0]
    nulls = rows(key=[b"a"], value=[b""], partition=[None])
    assert placer(columns_in(nulls, topic="t"), {"t": 3}).place(nulls, 1).partition.tolist() == [
        by_murmur2_or_anywhere("t", b"a", 3)
    ]


def test_the_column_topic_sends_each_row_to_its_topic_with_the_partitions_of_that() -> None:
    topics = ["small", "large", "small", "large"] * 50
    keys = [b"%d" % number for number in range(200)]
    chunk = rows(key=keys, value=keys, topic=topics)
    placed = placer(columns_in(chunk), {"small": 2, "large": 50}).place(chunk, 1)
    assert [placed.topics[code] for code in placed.topic] == topics
    for key, topic, partition in zip(keys, topics, placed.partition.tolist(), strict=True):
        assert partition == by_murmur2_or_anywhere(topic, key, 2 if topic == "small" else 50)


def test_a_topic_that_lacks_a_partition_is_looked_up_again() -> None:
    asked: list[tuple[str, int]] = []

    def lookup(name: str, partition: int) -> Topic:
        asked.append((name, partition))
        return Topic(8, tuple(range(8)))

    chunk = rows(value=[b""] * 2, partition=[None, 7])
    placed = Placer(columns_in(chunk, topic="t"), lookup, task=0, switch_bytes=1).place(chunk, 1)
    assert placed.partition.tolist()[1] == 7
    assert asked == [("t", 7)]


def test_a_row_without_a_topic_is_named() -> None:
    chunk = rows(key=[b"first", b"second"], value=[b""] * 2, topic=["t", None])
    with pytest.raises(BadRow) as error:
        placer(columns_in(chunk), {"t": 1}, task=5).place(chunk, 101)
    assert str(error.value) == (
        "Row 102 of task 5 (key 'second') has no topic: its column 'topic' is null."
        " Fill it, or use the option 'topic'."
    )


@pytest.mark.parametrize("header", [None, {"key": None, "value": b"x"}])
def test_a_row_with_a_header_that_is_none_is_named(header: object) -> None:
    good = [{"key": "h", "value": None}]
    chunk = rows(value=[b""] * 5, headers=[[header], good, None, [], [*good, header]])
    with pytest.raises(
        BadRow, match=r"Row 5 of task 0 \(without a key\) has a header that is null, or has no key"
    ):
        placer(columns_in(chunk, topic="t"), {"t": 3}).place(chunk.slice(1), 2)
    fine = chunk.slice(1, 3)
    assert placer(columns_in(fine, topic="t"), {"t": 3}).place(fine, 1).partition.tolist() == [0, 0, 0]


@pytest.mark.parametrize("partition", [-1, 3, 2**31 - 1, -(2**31)])
def test_a_row_with_a_partition_that_is_not_there_is_named(partition: int) -> None:
    chunk = rows(key=[None, b"\xffkey" + b"x" * 100], value=[b""] * 2, partition=[0, partition])
    with pytest.raises(BadRow) as error:
        placer(columns_in(chunk, topic="t"), {"t": 3}).place(chunk, 1)
    assert str(error.value) == (
        f"Row 2 of task 0 (key '\\\\xffkey{'x' * 36}'...) has partition {partition},"
        " and topic 't' has 3 partitions, from 0 on."
    )


def test_a_topic_that_cannot_be_had_is_named_by_option_or_row() -> None:
    def lookup(name: str, partition: int) -> Topic:
        raise BadTopic(f"topic {name!r} does not exist")

    by_option = rows(value=[b""])
    with pytest.raises(BadTopic, match=r"^Option 'topic': topic 't' does not exist$"):
        Placer(columns_in(by_option, topic="t"), lookup, task=0, switch_bytes=1).place(by_option, 1)
    by_column = rows(value=[b""], topic=["t"])
    with pytest.raises(
        BadRow, match=r"^Row 9 of task 0 \(without a key\) cannot be written: topic 't' does no"
    ):
        Placer(columns_in(by_column), lookup, task=0, switch_bytes=1).place(by_column, 9)


@given(
    st.lists(
        st.tuples(
            st.none() | st.binary(max_size=200),
            st.none() | st.binary(max_size=200),
            st.none()
            | st.lists(st.tuples(st.text(max_size=9), st.none() | st.binary(max_size=9)), max_size=3),
        ),
        min_size=1,
        max_size=20,
    ),
    st.integers(0, 5),
)
def test_no_record_is_larger_than_was_said_and_not_much_smaller(
    contents: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]] | None]], skipped: int
) -> None:
    keys, values, headers = zip(*contents, strict=True)
    lists = [None if each is None else [{"key": k, "value": v} for k, v in each] for each in headers]
    chunk = rows(key=keys, value=values, headers=lists).slice(min(skipped, len(contents) - 1))
    sizes = record_sizes(chunk, columns_in(chunk, topic="t"))
    timed = chunk.append_column("timestamp", pa.array(np.zeros(chunk.num_rows, np.int64)))
    for row, said in enumerate(sizes.tolist()):
        size = len(from_arrow(timed.slice(row, 1)).payload)
        header_count = len(lists[len(lists) - chunk.num_rows + row] or ())
        assert size <= said <= size + 36 + 10 * header_count
