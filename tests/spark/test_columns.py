"""Batches of records as the columns that Spark's connector for Kafka has."""

from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from moldau.client.consumer import Polled
from moldau.client.fetched import read_fetched
from moldau.client.offsets import place_of
from moldau.model.settings.setting import InvalidSetting
from moldau.spark import columns
from moldau.spark.columns import Columns, arrow_schema, check_schema, source_schema
from moldau.wire.records.batch import encode_batch
from moldau.wire.records.compression import Codec
from moldau.wire.records.record import Headers, Record

PLACE = place_of(("clicks", 3))
ALL = source_schema(with_headers=True)


def record(offset: int, *, at: int = 1_700_000_000_123, headers: Headers = ()) -> Record:
    return Record(offset, at, b"k%d" % offset, b"v%d" % offset, headers)


def polled(*batches: bytes, start: int = 0, end: int | None = None) -> Polled:
    fetched = read_fetched(b"".join(batches), fetch_offset=start, aborted=(), check_crcs=True)
    return Polled(list(fetched.batches), start, fetched.next_offset if end is None else end)


def batches(*encoded: bytes, schema: StructType = ALL, **bounds: int) -> list[pa.RecordBatch]:
    found = list(Columns(PLACE, arrow_schema(schema)).batches(polled(*encoded, **bounds)))
    for each in found:
        each.validate(full=True)
        # To the letter: Spark refuses anything else, and reads the buffers as it expects them.
        assert each.schema.equals(arrow_schema(schema))
    return found


def rows(*encoded: bytes, **more: Any) -> list[dict[str, Any]]:
    return [row for each in batches(*encoded, **more) for row in each.to_pylist()]


def test_a_record_is_a_row_with_all_that_kafka_knows_of_it() -> None:
    (row,) = rows(encode_batch([record(0, headers=(("h", b"1"), ("h", None)))]))
    assert row.pop("timestamp").isoformat() == "2023-11-14T22:13:20.123000+00:00"
    assert row == {
        "key": b"k0",
        "value": b"v0",
        "topic": "clicks",
        "partition": 3,
        "offset": 0,
        "timestampType": 0,
        "headers": [{"key": "h", "value": b"1"}, {"key": "h", "value": None}],
    }


def test_keys_values_and_headers_may_be_missing() -> None:
    found = rows(encode_batch([Record(0, 5, None, None), record(1, headers=(("h", b""),))]))
    assert [row["key"] for row in found] == [None, b"k1"]
    assert [row["value"] for row in found] == [None, b"v1"]
    # As in Spark's connector: no headers are null, not an empty list.
    assert [row["headers"] for row in found] == [None, [{"key": "h", "value": b""}]]


def test_the_broker_s_time_is_told_from_the_producer_s() -> None:
    found = batches(
        encode_batch([record(0), record(1)]),
        encode_batch([record(2)], base_offset=2, log_append_time=1_700_000_000_999),
        encode_batch([record(3)], base_offset=3),
    )
    assert [row["timestampType"] for each in found for row in each.to_pylist()] == [0, 0, 1, 0]
    times = [row["timestamp"].microsecond for each in found for row in each.to_pylist()]
    assert times == [123_000, 123_000, 999_000, 123_000]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_only_the_range_is_there_though_batches_reach_beyond(codec: Codec) -> None:
    encoded = [
        encode_batch([record(n) for n in range(first, first + 5)], base_offset=first, codec=codec)
        for first in (0, 5, 10)
    ]
    assert [row["offset"] for row in rows(*encoded, start=3, end=12)] == list(range(3, 12))


def test_gaps_of_compaction_are_no_rows() -> None:
    encoded = encode_batch([record(10), record(13), record(17)], base_offset=10)
    assert [row["offset"] for row in rows(encoded, start=11, end=20)] == [13, 17]
    assert batches(encoded, start=14, end=16) == []


def test_batches_of_records_make_few_batches_of_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    encoded = [encode_batch([record(n)], base_offset=n) for n in range(100)]
    assert len(batches(*encoded)) == 1
    monkeypatch.setattr(columns, "BATCH_BYTES", 100)
    found = batches(*encoded)
    assert 10 <= len(found) < 100
    assert [row["offset"] for each in found for row in each.to_pylist()] == list(range(100))


def test_constant_columns_have_as_many_rows_as_there_are() -> None:
    made = Columns(PLACE, arrow_schema(ALL))
    for count in (3, 1, 5):
        (batch,) = made.batches(polled(encode_batch([record(n) for n in range(count)])))
        batch.validate(full=True)
        assert batch.column("topic").to_pylist() == ["clicks"] * count
        assert batch.column("partition").to_pylist() == [3] * count


@pytest.mark.parametrize("at", [-1, 0, 253_402_300_799_999])
def test_timestamps_are_microseconds(at: int) -> None:
    (batch,) = batches(encode_batch([record(0, at=at)]))
    assert batch.column("timestamp").view(pa.int64()).to_pylist() == [at * 1_000]


def test_a_timestamp_beyond_all_calendars_does_not_end_the_query() -> None:
    (batch,) = batches(encode_batch([record(0, at=5), record(1, at=2**62)]))
    assert batch.column("timestamp").view(pa.int64()).to_pylist() == [5_000, (2**63 - 1) // 1_000 * 1_000]


def test_columns_can_be_left_out_and_ordered_by_a_schema() -> None:
    schema = StructType([StructField("offset", LongType()), StructField("topic", StringType())])
    check_schema(schema)
    assert rows(encode_batch([record(0)]), schema=schema) == [{"offset": 0, "topic": "clicks"}]


def test_a_schema_with_another_column_is_refused() -> None:
    with pytest.raises(InvalidSetting, match="There is no column 'price': a topic has key, value, topic"):
        check_schema(StructType([StructField("price", LongType())]))


def test_a_schema_with_another_type_is_refused() -> None:
    with pytest.raises(InvalidSetting, match="Column 'offset' is bigint, not int: cast it after reading"):
        check_schema(StructType([StructField("offset", IntegerType())]))


def test_the_columns_are_those_of_spark_s_connector() -> None:
    assert source_schema(with_headers=True).simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,"
        "timestampType:int,headers:array<struct<key:string,value:binary>>>"
    )
    assert "headers" not in source_schema(with_headers=False).names
