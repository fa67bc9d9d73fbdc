"""The latest value of every key, as batches of records have it."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from moldau.spark.tables import latest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
COLUMNS = "key BINARY, value BINARY, topic STRING, partition INT, offset LONG, timestamp TIMESTAMP"


def frame(spark: "SparkSession", *records: tuple[bytes | None, bytes | None, str, int]) -> "DataFrame":
    rows: list[tuple[Any, ...]] = [
        # The later the offset, the earlier the timestamp: producers may set what they like.
        (key, value, topic, 0, offset, NOON.replace(minute=59 - offset))
        for key, value, topic, offset in records
    ]
    return spark.createDataFrame(rows, COLUMNS)


def test_the_last_value_of_a_key_counts_and_a_tombstone_deletes(spark: "SparkSession") -> None:
    records = frame(
        spark,
        (b"a", b"3", "t", 3),
        (b"a", b"1", "t", 1),
        (b"gone", b"4", "t", 4),
        (b"gone", None, "t", 5),
        (b"back", None, "t", 6),
        (b"back", b"", "t", 7),
        (None, b"8", "t", 8),
        (b"a", b"0", "other", 9),
    )
    rows = latest(records)
    assert rows.schema == records.schema
    found = sorted((row.topic, bytes(row.key), bytes(row.value), row.offset) for row in rows.collect())
    assert found == [("other", b"a", b"0", 9), ("t", b"a", b"3", 3), ("t", b"back", b"", 7)]
    chosen = latest(records.where("topic = 't'").select("offset", "value", "key"))
    assert chosen.columns == ["offset", "value", "key"]
    assert sorted((bytes(row.key), row.offset) for row in chosen.collect()) == [(b"a", 3), (b"back", 7)]


def test_what_has_no_latest_value_is_told_what_to_do(spark: "SparkSession") -> None:
    with pytest.raises(ValueError, match="column offset, and there is key, value"):
        latest(frame(spark).select("key", "value"))
    stream = spark.readStream.format("rate").load().selectExpr("value", "value AS key", "value AS offset")
    with pytest.raises(ValueError, match=r"use spark\.read"):
        latest(stream)
