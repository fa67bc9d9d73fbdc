"""Writing batches into topics, with Spark and a broker."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from spark.topics import HEADERS, read

import moldau
from moldau.client.partitioners import by_murmur2_or_anywhere
from moldau.testing import Cluster

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


def save(frame: "DataFrame", broker: Cluster, *, mode: str = "append", **options: Any) -> None:
    writer = frame.write.format("moldau").option("kafka.bootstrap.servers", broker.bootstrap_servers)
    writer.options(**options).mode(mode).save()


def failure_of(frame: "DataFrame", broker: Cluster, **options: Any) -> str:
    """What is said when the frame cannot be written."""
    from pyspark.errors import PySparkException

    with pytest.raises(PySparkException) as error:
        save(frame, broker, **options)
    return str(error.value)


def test_rows_become_records_with_keys_headers_and_nulls(spark: "SparkSession", broker: Cluster) -> None:
    topic = broker.topic(partitions=2)
    frame = spark.sql(
        f"""
        select cast('full' as binary) key, cast('value' as binary) value, {HEADERS} headers
        union all select null, cast('no key' as binary), null
        union all select cast('tombstone' as binary), null, array()
        union all select cast('' as binary), cast('' as binary), null
        """
    )
    save(frame, broker, topic=topic)
    assert {(record.key, record.value, record.headers) for _, _, record in read(broker, topic)} == {
        (b"full", b"value", (("h", b"x"), ("n", None))),
        (None, b"no key", ()),
        (b"tombstone", None, ()),
        (b"", b"", ()),
    }


@pytest.mark.parametrize("kind", ["string", "binary"])
def test_a_frame_comes_back_as_it_was_written(spark: "SparkSession", broker: Cluster, kind: str) -> None:
    topic = broker.topic(partitions=3)
    frame = spark.range(2_000).selectExpr(
        f"cast(if(id % 10 = 0, null, concat('key ', id)) as {kind}) key",
        f"cast(if(id % 7 = 0, null, concat('Łódź ', id)) as {kind}) value",
        f"if(id % 3 = 0, {HEADERS}, null) headers",
    )
    save(frame, broker, topic=topic)
    reader = spark.read.format("moldau").option("kafka.bootstrap.servers", broker.bootstrap_servers)
    back = reader.options(subscribe=topic, includeHeaders="true").load()
    columns = [f"cast(key as {kind}) key", f"cast(value as {kind}) value", "headers"]
    assert sorted(map(str, back.selectExpr(*columns).collect())) == sorted(map(str, frame.collect()))


def test_keys_go_where_the_java_client_sends_them(spark: "SparkSession", broker: Cluster) -> None:
    topic = broker.topic(partitions=7)
    save(spark.range(500).selectExpr("concat('key ', id) key", "'' value"), broker, topic=topic)
    written = read(broker, topic)
    assert len(written) == 500
    for _, partition, record in written:
        assert partition == by_murmur2_or_anywhere(topic, record.key, 7)


def test_rows_of_a_partition_keep_their_order(spark: "SparkSession", broker: Cluster) -> None:
    topic = broker.topic(partitions=5)
    frame = spark.range(0, 60_000, 1, 1).selectExpr("cast(id % 97 as string) key", "cast(id as string) value")
    save(frame, broker, topic=topic)
    by_partition: dict[int, list[int]] = {}
    for _, partition, record in read(broker, topic):
        by_partition.setdefault(partition, []).append(int(record.value or b""))
    assert sum(map(len, by_partition.values())) == 60_000
    assert all(numbers == sorted(numbers) for numbers in by_partition.values())


def test_columns_say_which_topic_and_partition(spark: "SparkSession", broker: Cluster) -> None:
    one, other = broker.topic(partitions=3), broker.topic(partitions=2)
    frame = spark.range(100).selectExpr(
        f"if(id % 2 = 0, '{one}', '{other}') topic",
        "if(id % 2 = 0, cast(id % 3 as int), null) partition",
        "cast(id as string) key",
        "cast(id as string) value",
    )
    save(frame, broker)
    written = read(broker, one, other)
    assert len(written) == 100
    for topic, partition, record in written:
        number = int(record.value or b"")
        assert topic == (other if number % 2 else one)
        expected = by_murmur2_or_anywhere(topic, record.key, 2) if number % 2 else number % 3
        assert partition == expected


def test_the_option_topic_goes_before_the_column(spark: "SparkSession", broker: Cluster) -> None:
    topic = broker.topic()
    save(spark.sql("select cast(null as string) topic, 'v' value"), broker, topic=topic)
    assert [(name, record.value) for name, _, record in read(broker, topic)] == [(topic, b"v")]


def test_timestamps_are_those_of_writing_unless_asked_for(spark: "SparkSession", broker: Cluster) -> None:
    now, given = broker.topic(), broker.topic()
    frame = spark.sql("select 'v' value, timestamp'2001-09-09 01:46:40.123456' timestamp")
    save(frame, broker, topic=now)
    save(frame, broker, topic=given, includeTimestamp="true")
    assert [record.timestamp for _, _, record in read(broker, given)] == [1_000_000_000_123]
    assert [record.timestamp > 1_700_000_000_000 for _, _, record in read(broker, now)] == [True]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_settings_of_the_producer_are_passed_on(spark: "SparkSession", broker: Cluster, codec: str) -> None:
    topic = broker.topic()
    frame = spark.range(1_000).selectExpr("concat('value ', id) value")
    save(frame, broker, topic=topic, **{"kafka.compression.type": codec, "kafka.acks": "1"})
    assert len(read(broker, topic)) == 1_000


def test_an_empty_frame_writes_nothing(spark: "SparkSession", broker: Cluster) -> None:
    topic = broker.topic()
    save(spark.range(0).selectExpr("cast(id as string) value"), broker, topic=topic)
    assert read(broker, topic) == []


@pytest.mark.parametrize(
    ("columns", "options", "text"),
    [
        (["'k' key"], {"topic": "t"}, "There is no column 'value', which every record needs."),
        (["id value"], {"topic": "t"}, "Column 'value' is bigint, and must be string or binary: cast it"),
        (["'v' value"], {}, "There is neither an option 'topic' nor a column 'topic'"),
        (["'v' value"], {"topic": "a b"}, "Option topic is 'a b': "),
        (["'v' value"], {"topik": "t"}, "There is no option topik. Did you mean topic?"),
        (["'v' value"], {"topic": "t", "kafka.acks": "7"}, "Option kafka.acks: Invalid value '7'"),
        (
            ["'v' value"],
            {"topic": "t", "kafka.transactional.id": "x"},
            "Option kafka.transactional.id cannot",
        ),
        (["'v' value"], {"topic": "t", "kafka.partitioner": "fnv1a"}, "give them a column 'partition'"),
        (["'v' value"], {"topic": "t", "kafka.value.serializer": "x"}, "Values are bytes"),
        (
            ["'v' value"],
            {"topic": "t", "mode": "overwrite"},
            "A topic can only be added to: use mode('append')",
        ),
        (["'v' value", "9 partition"], {"topic": "?"}, "(without a key) has partition 9, and topic 'topic-"),
        (["'v' value", "cast(null as string) topic"], {}, "has no topic: its column 'topic' is null"),
    ],
)
def test_what_cannot_be_written_is_said_with_what_to_do(
    spark: "SparkSession", broker: Cluster, columns: list[str], options: dict[str, str], text: str
) -> None:
    # The last two are found by the tasks, which need a topic that is there.
    if options.get("topic") == "?":
        options = {"topic": broker.topic()}
    assert text in failure_of(spark.range(1).selectExpr(*columns), broker, **options)


def test_a_job_that_is_repeated_after_a_failure_writes_again_what_it_had_written(
    spark: "SparkSession", broker: Cluster
) -> None:
    """At least once: nothing is lost, and what the failed run wrote is there twice."""
    topic = broker.topic()
    frame = spark.range(0, 100_000, 1, 1).selectExpr("cast(id as string) value", "0 partition")
    spoilt = frame.selectExpr("value", "if(value = '99999', 77, partition) partition")
    assert "Row 100000 of task 0 (without a key) has partition 77" in failure_of(spoilt, broker, topic=topic)
    first_run = [int(record.value or b"") for _, _, record in read(broker, topic)]
    save(frame, broker, topic=topic)
    written = [int(record.value or b"") for _, _, record in read(broker, topic)]
    assert first_run == list(range(len(first_run)))
    assert written == [*first_run, *range(100_000)]


def test_a_broker_that_is_killed_while_a_job_writes_has_every_row_once(
    spark: "SparkSession", tmp_path: Path
) -> None:
    killed = tmp_path / "killed"

    def waiting_amid(batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        import time

        deadline = time.monotonic() + 60
        for number, batch in enumerate(batches):
            # By now more has come than the sink keeps to itself.
            while number == 4 and not killed.exists() and time.monotonic() < deadline:
                time.sleep(0.01)
            yield batch

    with moldau.cluster() as cluster:
        topic = cluster.topic(partitions=2)
        frame = spark.range(0, 120_000, 1, 2).selectExpr("lpad(id, 200, '0') value")
        is_over = threading.Event()

        def kill_once_something_is_written() -> None:
            while not is_over.is_set() and not read(cluster, topic):
                pass
            if not is_over.is_set():
                cluster.kill(1)
                killed.touch()
                cluster.restart(1)

        killing = threading.Thread(target=kill_once_something_is_written)
        killing.start()
        try:
            save(frame.mapInArrow(waiting_amid, "value string"), cluster, topic=topic)
        finally:
            is_over.set()
            killing.join()
        assert killed.exists(), "nothing was written before everything had to be"
        values = sorted(int(record.value or b"") for _, _, record in read(cluster, topic))
    assert values == list(range(120_000))


def test_a_broker_that_stays_away_ends_the_job_with_what_was_tried(spark: "SparkSession") -> None:
    with moldau.cluster() as cluster:
        topic = cluster.topic()
        cluster.kill(1)
        frame = spark.range(10).selectExpr("cast(id as string) value")
        said = failure_of(frame, cluster, topic=topic, **{"kafka.delivery.timeout.ms": "1000"})
        assert f"Tried {cluster.bootstrap_servers}: " in said
        assert "option kafka.bootstrap.servers" in said
