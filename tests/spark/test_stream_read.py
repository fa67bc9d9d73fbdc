"""Reading topics as a stream, with Spark and a broker."""

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from moldau.client import connect_sync
from moldau.testing import Cluster

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

Batches = dict[int, list[int]]
TIMEOUT_S = 120


def start(
    spark: "SparkSession",
    broker: Cluster,
    batches: Batches,
    checkpoint: Path,
    options: Mapping[str, str],
    *,
    is_now: bool = True,
) -> "StreamingQuery":
    """A query that notes the values of each batch; it ends by itself unless it is to run on."""

    def note(rows: "DataFrame", batch_id: int) -> None:
        batches[batch_id] = sorted(int(row.value) for row in rows.select("value").collect())

    given = {
        "kafka.bootstrap.servers": broker.bootstrap_servers,
        "startingOffsets": "earliest",
        "minOffsetsPerTask": "1",
        **options,
    }
    writer = spark.readStream.format("moldau").options(**given).load().writeStream.foreachBatch(note)
    writer = writer.option("checkpointLocation", str(checkpoint))
    return (
        writer.trigger(availableNow=True) if is_now else writer.trigger(processingTime="0 seconds")
    ).start()


def run(
    spark: "SparkSession", broker: Cluster, checkpoint: Path, **options: str
) -> tuple[Batches, "StreamingQuery"]:
    """Read what is there, to its end."""
    batches: Batches = {}
    query = start(spark, broker, batches, checkpoint, options)
    assert query.awaitTermination(TIMEOUT_S), "the query does not end"
    return batches, query


def send(broker: Cluster, topic: str, *numbers: int) -> None:
    with connect_sync(broker.bootstrap_servers) as client, client.producer() as producer:
        for number in numbers:
            producer.send(topic, b"%d" % number)


def wait_until(condition: Callable[[], object], what: str, query: "StreamingQuery | None" = None) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        if query is not None and query.exception() is not None:
            raise AssertionError(str(query.exception()))
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


def everything(batches: Batches) -> list[int]:
    return sorted(number for batch in batches.values() for number in batch)


def lag(broker: Cluster, group: str, topic: str) -> int:
    """What any Kafka tool would show."""
    with connect_sync(broker.bootstrap_servers) as client:
        committed = client.admin.group_offsets(group)
        ends = client.admin.list_offsets({(topic, partition): -1 for partition in range(2)})
    return sum(row.offset - (committed[at].offset if at in committed else 0) for at, row in ends.items())


def test_available_now_reads_all_in_batches_and_a_restart_goes_on(
    spark: "SparkSession", broker: Cluster, tmp_path: Path
) -> None:
    topic, group = broker.topic(partitions=2), f"reports {tmp_path.name}"
    options = {"subscribe": topic, "maxOffsetsPerTrigger": "20", "kafka.group.id": group}
    send(broker, topic, *range(50))
    batches, query = run(spark, broker, tmp_path, **options)
    assert everything(batches) == list(range(50))
    assert len(batches) >= 3
    assert max(map(len, batches.values())) <= 22
    progress = query.recentProgress
    assert json.loads(progress[-1].sources[0].latestOffset)[topic].keys() == {"0", "1"}
    assert lag(broker, group, topic) == 0

    send(broker, topic, *range(50, 60))
    batches, _ = run(spark, broker, tmp_path, **options)
    assert everything(batches) == list(range(50, 60))
    assert lag(broker, group, topic) == 0
    batches, _ = run(spark, broker, tmp_path, **options)
    assert everything(batches) == []


def test_the_first_batch_is_repeated_as_it_was(
    spark: "SparkSession", broker: Cluster, tmp_path: Path
) -> None:
    topic = broker.topic()
    batches: Batches = {}
    options = {"subscribe": topic, "startingOffsets": json.dumps({topic: {"0": -1}})}
    query = start(spark, broker, batches, tmp_path, options, is_now=False)
    wait_until(lambda: 0 in batches, "the query starts", query)
    query.stop()
    assert batches[0] == []
    # As if it had ended before it could note that the first batch is done, and records had come before that.
    (tmp_path / "commits" / "0").unlink()
    (tmp_path / "commits" / ".0.crc").unlink(missing_ok=True)
    first = tmp_path / "offsets" / "0"
    *head, position = first.read_text().splitlines()
    told = json.loads(position)
    told[topic]["0"] = 3
    first.write_text("\n".join([*head, json.dumps(told)]))
    (tmp_path / "offsets" / ".0.crc").unlink(missing_ok=True)
    send(broker, topic, *range(5))
    # By now these options have no offset for a partition, which does not matter any more.
    with connect_sync(broker.bootstrap_servers) as client:
        client.admin.add_partitions(topic, 2)

    batches, _ = run(spark, broker, tmp_path, **options)
    assert batches[0] == [0, 1, 2]
    assert everything(batches) == [0, 1, 2, 3, 4]


def test_a_running_query_takes_what_comes_and_survives_its_broker(
    spark: "SparkSession", broker: Cluster, tmp_path: Path
) -> None:
    stem = broker.topic()
    batches: Batches = {}
    options = {"subscribePattern": rf"{stem}.*", "groupIdPrefix": "live"}
    query = start(spark, broker, batches, tmp_path, options, is_now=False)
    try:
        send(broker, stem, 1, 2)
        wait_until(lambda: everything(batches) == [1, 2], "records come", query)
        with connect_sync(broker.bootstrap_servers) as client:
            client.admin.add_partitions(stem, 2)
        other = broker.topic(f"{stem}-other")
        send(broker, other, 3)
        wait_until(lambda: everything(batches) == [1, 2, 3], "new topics are read", query)
        broker.kill(1)
        broker.restart(1)
        send(broker, other, 4)
        wait_until(lambda: everything(batches) == [1, 2, 3, 4], "the query goes on", query)
        with connect_sync(broker.bootstrap_servers) as client:
            groups = [row.group_id for row in client.admin.list_groups() if row.group_id.startswith("live-")]
        (group,) = groups
        wait_until(lambda: lag(broker, group, stem) == 0, "progress is committed", query)
    finally:
        query.stop()
        broker.heal()


def test_a_loss_ends_the_query_and_is_told(spark: "SparkSession", broker: Cluster, tmp_path: Path) -> None:
    from pyspark.errors import StreamingQueryException

    topic = broker.topic()
    send(broker, topic, *range(5))
    run(spark, broker, tmp_path, subscribe=topic)
    send(broker, topic, *range(5, 15))
    with connect_sync(broker.bootstrap_servers) as client:
        client.admin.delete_records({(topic, 0): 9})
    with pytest.raises(StreamingQueryException) as failed:
        run(spark, broker, tmp_path, subscribe=topic)
    assert f"{topic}-0: offset 5 was to be read next, and the log begins at 9" in str(failed.value)
    assert "Set option failOnDataLoss to false" in str(failed.value)
    batches, _ = run(spark, broker, tmp_path, subscribe=topic, failOnDataLoss="false")
    assert everything(batches) == list(range(9, 15))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"subscribe": "nowhere"}, "Topic 'nowhere' does not exist"),
        ({"subscribe": "x", "endingOffsets": "latest"}, "Option endingOffsets is for batch queries"),
    ],
)
def test_a_mistake_ends_the_query_and_is_told(
    spark: "SparkSession", broker: Cluster, tmp_path: Path, options: dict[str, str], text: str
) -> None:
    from pyspark.errors import StreamingQueryException

    with pytest.raises(StreamingQueryException, match=text):
        run(spark, broker, tmp_path, **options)
