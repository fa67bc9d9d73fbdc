"""Spark's own connector for Kafka on a Moldau broker, and that ours does the same where both do something."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from spark.topics import HEADERS, read

from moldau.testing import Cluster

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.usefixtures("kafka_connector")


def load(spark: "SparkSession", broker: Cluster, topic: str, *, by: str = "kafka") -> "DataFrame":
    reader = spark.read.format(by).option("kafka.bootstrap.servers", broker.bootstrap_servers)
    return reader.options(subscribe=topic, includeHeaders="true").load()


def save(frame: "DataFrame", broker: Cluster, topic: str, *, by: str = "kafka", **options: Any) -> None:
    writer = frame.write.format(by).option("kafka.bootstrap.servers", broker.bootstrap_servers)
    writer.options(topic=topic, **options).mode("append").save()


def refusals() -> tuple[type[Exception], ...]:
    """What a query that Spark or one of its tasks refuses may raise."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    return PySparkException, Py4JJavaError


def frame_of(spark: "SparkSession", count: int) -> "DataFrame":
    return spark.range(count).selectExpr(
        "if(id % 10 = 0, null, cast(concat('key ', id) as binary)) key",
        "if(id % 7 = 0, null, cast(concat('value ', id) as binary)) value",
        f"if(id % 3 = 0, {HEADERS}, null) headers",
    )


def rows_of(frame: "DataFrame", *columns: str) -> list[str]:
    return sorted(map(str, frame.select(*columns).collect()))


@pytest.mark.parametrize("codec", ["none", "lz4", "zstd"])
def test_it_writes_and_reads_batches(spark: "SparkSession", broker: Cluster, codec: str) -> None:
    topic = broker.topic(partitions=3)
    frame = frame_of(spark, 3_000)
    save(frame, broker, topic, **{"kafka.compression.type": codec})
    columns = ("key", "value", "headers")
    assert rows_of(load(spark, broker, topic), *columns) == rows_of(frame, *columns)


def test_it_reads_and_writes_streams(spark: "SparkSession", broker: Cluster, tmp_path: Path) -> None:
    into, out = broker.topic(partitions=3), broker.topic(partitions=2)
    for first in (0, 500):
        numbers = spark.range(first, first + 500).selectExpr(
            "cast(id as string) key", "cast(id as string) value"
        )
        save(numbers, broker, into)
        reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", broker.bootstrap_servers)
        frame = reader.options(
            subscribe=into, startingOffsets="earliest", maxOffsetsPerTrigger="200", failOnDataLoss="true"
        ).load()
        writer = frame.select("key", "value").writeStream.format("kafka").trigger(availableNow=True)
        writer.option("kafka.bootstrap.servers", broker.bootstrap_servers).option("topic", out)
        query = writer.option("checkpointLocation", str(tmp_path)).start()
        query.awaitTermination()
        written = sorted(int(record.value or b"") for _, _, record in read(broker, out))
        assert written == list(range(first + 500))


def test_what_one_writes_the_other_reads_with_the_same_columns(
    spark: "SparkSession", broker: Cluster
) -> None:
    frame = frame_of(spark, 1_000)
    for writing in ("kafka", "moldau"):
        topic = broker.topic(partitions=3)
        save(frame, broker, topic, by=writing)
        theirs, ours = (load(spark, broker, topic, by=reading) for reading in ("kafka", "moldau"))
        assert ours.schema.simpleString() == theirs.schema.simpleString()
        assert rows_of(ours, *ours.columns) == rows_of(theirs, *theirs.columns)


def test_both_send_each_key_to_the_same_partition(spark: "SparkSession", broker: Cluster) -> None:
    keys = spark.range(2_000).selectExpr(
        "case when id % 2 = 0 then cast(concat('schlüssel ', id) as binary) else unhex(hex(id * id)) end key",
        "cast(id as string) value",
    )
    places = []
    for writing in ("kafka", "moldau"):
        topic = broker.topic(partitions=11)
        save(keys, broker, topic, by=writing)
        places.append(
            sorted((partition, record.key, record.value) for _, partition, record in read(broker, topic))
        )
    assert places[0] == places[1]
    assert len(places[0]) == 2_000


@pytest.mark.parametrize(
    "columns",
    [
        ["'k' key"],
        ["1 value"],
        ["'v' value", "1L key"],
        ["'v' value", "1L partition"],
        ["'v' value", "array('h') headers"],
        ["'v' Value"],
        ["'v' value", "-1 partition"],
        [
            "'v' value",
            "array(named_struct('key', cast(null as string), 'value', cast('' as binary))) headers",
        ],
    ],
)
def test_both_refuse_the_same_columns(spark: "SparkSession", broker: Cluster, columns: list[str]) -> None:
    topic = broker.topic()
    for writing in ("kafka", "moldau"):
        with pytest.raises(refusals()):
            save(spark.range(1).selectExpr(*columns), broker, topic, by=writing)
    assert read(broker, topic) == []


def test_both_refuse_a_row_without_a_topic(spark: "SparkSession", broker: Cluster) -> None:
    frame = spark.sql("select 'v' value, cast(null as string) topic")
    for writing in ("kafka", "moldau"):
        writer = frame.write.format(writing).option("kafka.bootstrap.servers", broker.bootstrap_servers)
        with pytest.raises(refusals()):
            writer.mode("append").save()
