"""Topics that are deleted and created again under the same name, while Spark's workers live on."""

from typing import TYPE_CHECKING

from moldau.client import connect_sync
from moldau.testing import Cluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_query_reads_the_topic_that_there_is_now(spark: "SparkSession", broker: Cluster) -> None:
    topic = broker.topic()
    reader = spark.read.format("moldau").option("kafka.bootstrap.servers", broker.bootstrap_servers)
    for value in (b"first", b"second"):
        with connect_sync(broker.bootstrap_servers) as client, client.producer() as producer:
            producer.send(topic, value)
        # Twice as many tasks as there are cores, so that every worker reads.
        frame = reader.option("subscribe", topic).load()
        rows = frame.union(frame).union(frame).union(frame).collect()
        assert {bytes(row.value) for row in rows} == {value}
        broker.delete_topic(topic)
        broker.topic(topic)
