"""Reading topics as a batch, with Spark and a broker."""

from typing import TYPE_CHECKING, Any

from moldau.client import connect_sync
from moldau.testing import Cluster

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def frame(spark: "SparkSession", broker: Cluster, **options: Any) -> "DataFrame":
    reader = spark.read.format("moldau").option("kafka.bootstrap.servers", broker.bootstrap_servers)
    return reader.options(**options).load()


def fill(broker: Cluster, topic: str, count: int) -> None:
    with connect_sync(broker.bootstrap_servers) as client, client.producer() as producer:
        for number in range(count):
            producer.send(topic, f"value {number}".encode(), key=f"key {number}".encode())


def test_every_record_is_a_row(spark: "SparkSession", broker: Cluster) -> None:
    topic = broker.topic(partitions=3)
    fill(broker, topic, 1000)
    rows = frame(spark, broker, subscribe=topic).collect()
    assert sorted(bytes(row.value) for row in rows) == sorted(b"value %d" % n for n in range(1000))
    assert all(
        bytes(row.key).removeprefix(b"key ") == bytes(row.value).removeprefix(b"value ") for row in rows
    )
    assert {row.topic for row in rows} == {topic}
    assert {row.partition for row in rows} == {0, 1, 2}
