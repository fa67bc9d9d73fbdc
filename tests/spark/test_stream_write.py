"""Writing streams into topics, with Spark and a broker."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from spark.topics import read

from moldau.client import connect_sync
from moldau.testing import Cluster

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


@pytest.fixture
def run(spark: "SparkSession", broker: Cluster, tmp_path: Path) -> "Callable[..., StreamingQuery]":
    """Runs a stream into a topic until nothing is left to read, with a checkpoint that outlives the query."""

    def run(frame: "DataFrame", topic: str, *, output_mode: str = "append") -> "StreamingQuery":
        writer = frame.writeStream.format("moldau").outputMode(output_mode).trigger(availableNow=True)
        writer.option("kafka.bootstrap.servers", broker.bootstrap_servers).option("topic", topic)
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        query.awaitTermination()
        return query

    return run


def source(spark: "SparkSession", broker: Cluster, topic: str, **options: str) -> "DataFrame":
    reader = spark.readStream.format("moldau").option("kafka.bootstrap.servers", broker.bootstrap_servers)
    return reader.options(subscribe=topic, startingOffsets="earliest", **options).load()


def fill(broker: Cluster, topic: str, numbers: range) -> None:
    with connect_sync(broker.bootstrap_servers) as client, client.producer() as producer:
        for number in numbers:
            producer.send(topic, b"%d" % number, key=b"key %d" % (number % 50))


def numbers_in(broker: Cluster, topic: str) -> list[int]:
    return sorted(int(record.value or b"") for _, _, record in read(broker, topic))


def test_a_stream_that_is_restarted_goes_on_where_it_was(
    spark: "SparkSession", broker: Cluster, run: "Callable[..., StreamingQuery]"
) -> None:
    into, out = broker.topic(partitions=3), broker.topic(partitions=2)
    for first in (0, 1_000, 2_000):
        fill(broker, into, range(first, first + 1_000))
        frame = source(spark, broker, into, maxOffsetsPerTrigger="400").select("key", "value")
        run(frame, out)
        assert numbers_in(broker, out) == list(range(first + 1_000))


def test_a_micro_batch_that_fails_is_written_again_when_the_stream_is_restarted(
    spark: "SparkSession", broker: Cluster, run: "Callable[..., StreamingQuery]", tmp_path: Path
) -> None:
    """At least once: what the failed attempt wrote is there twice, and nothing is missing."""
    from pyspark.errors import StreamingQueryException
    from pyspark.sql.functions import udf

    into, out = broker.topic(), broker.topic()
    fill(broker, into, range(30_000))
    marker = tmp_path / "has failed"

    def fail_once(value: bytes) -> bytes:
        if value == b"29999" and not marker.exists():
            marker.touch()
            raise RuntimeError("the machine is on fire")
        return value

    frame = source(spark, broker, into).select(udf(fail_once, "binary")("value").alias("value"))
    with pytest.raises(StreamingQueryException, match="the machine is on fire"):
        run(frame, out)
    written_before = numbers_in(broker, out)
    run(frame, out)
    written = numbers_in(broker, out)
    assert sorted(set(written)) == list(range(30_000))
    assert written == sorted([*written_before, *range(30_000)])


def test_complete_mode_writes_the_whole_result_with_every_micro_batch(
    spark: "SparkSession", broker: Cluster, run: "Callable[..., StreamingQuery]"
) -> None:
    into, out = broker.topic(), broker.topic()
    for count in (100, 150):
        fill(broker, into, range(count))
        counts = source(spark, broker, into).groupBy("key").count()
        run(counts.selectExpr("key", "cast(count as string) value"), out, output_mode="complete")
    written = read(broker, out)
    assert len(written) == 100
    latest = {record.key: record.value for _, _, record in written}
    assert latest == {b"key %d" % key: b"5" for key in range(50)}


def test_update_mode_is_refused_by_spark_and_had_by_foreach_batch(
    spark: "SparkSession", broker: Cluster, run: "Callable[..., StreamingQuery]", tmp_path: Path
) -> None:
    """Sinks in Python cannot say that they take updates."""
    from pyspark.errors import StreamingQueryException

    into, out = broker.topic(), broker.topic()
    fill(broker, into, range(100))
    counts = (
        source(spark, broker, into).groupBy("key").count().selectExpr("key", "cast(count as string) value")
    )
    with pytest.raises(StreamingQueryException, match="moldau does not support Update mode"):
        run(counts, out, output_mode="update")

    def write(frame: "DataFrame", batch_id: int) -> None:
        writer = frame.write.format("moldau").option("kafka.bootstrap.servers", broker.bootstrap_servers)
        writer.option("topic", out).mode("append").save()

    for count in (0, 1):
        fill(broker, into, range(count))
        writer = counts.writeStream.foreachBatch(write).outputMode("update").trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(tmp_path / "each")).start()
        query.awaitTermination()
    written = [(record.key, record.value) for _, _, record in read(broker, out)]
    assert len(written) == 51
    assert written[-1] == (b"key 0", b"3")


def test_a_bad_row_ends_the_stream_with_its_name(
    spark: "SparkSession", broker: Cluster, run: "Callable[..., StreamingQuery]"
) -> None:
    from pyspark.errors import StreamingQueryException

    into, out = broker.topic(), broker.topic()
    fill(broker, into, range(10))
    frame = source(spark, broker, into).selectExpr("key", "value", "if(value = '7', 5, 0) partition")
    with pytest.raises(StreamingQueryException) as error:
        run(frame, out)
    assert "Row 8 of task 0 (key 'key 7') has partition 5" in str(error.value)
    assert f"topic {out!r} has 1 partitions" in str(error.value)


def test_columns_that_are_wrong_are_said_before_anything_is_written(
    spark: "SparkSession", broker: Cluster, run: "Callable[..., StreamingQuery]"
) -> None:
    from pyspark.errors import StreamingQueryException

    into, out = broker.topic(), broker.topic()
    fill(broker, into, range(1))
    with pytest.raises(
        StreamingQueryException, match="Column 'value' is bigint, and must be string or binary"
    ):
        run(source(spark, broker, into).selectExpr("offset value"), out)
