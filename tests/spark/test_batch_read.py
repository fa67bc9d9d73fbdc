"""Reading topics as a batch, with Spark and a broker."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from moldau.client import connect_sync
from moldau.spark.tables import latest
from moldau.testing import Cluster

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


def frame(spark: "SparkSession", broker: Cluster, **options: str) -> "DataFrame":
    reader = spark.read.format("moldau").option("kafka.bootstrap.servers", broker.bootstrap_servers)
    return reader.options(**options).load()


def fill(broker: Cluster, topic: str, count: int, *, partitions: int = 1) -> None:
    """Records with their number as value and in seconds as time, over the partitions in turn."""
    with connect_sync(broker.bootstrap_servers) as client, client.producer() as producer:
        for number in range(count):
            producer.send(
                topic,
                b"%d" % number,
                key=b"key %d" % number,
                partition=number % partitions,
                timestamp=1_700_000_000_000 + 1_000 * number,
                headers=[("half", b"%d" % (number // 2))] if number % 2 else [],
            )


def values(rows: "DataFrame") -> list[int]:
    return sorted(int(row.value) for row in rows.select("value").collect())


@pytest.fixture(scope="module")
def filled(broker: Cluster) -> str:
    """A topic with 60 records in three partitions."""
    topic = broker.topic(partitions=3)
    fill(broker, topic, 60, partitions=3)
    return topic


def test_every_record_is_a_row(spark: "SparkSession", broker: Cluster, filled: str) -> None:
    rows = frame(spark, broker, subscribe=filled, includeHeaders="true").collect()
    assert len(rows) == 60
    for row in rows:
        number = int(row.value)
        assert bytes(row.key) == b"key %d" % number
        assert (row.topic, row.partition, row.offset) == (filled, number % 3, number // 3)
        assert row.timestamp == datetime.fromtimestamp(1_700_000_000 + number, UTC).replace(tzinfo=None)
        assert row.timestampType == 0
        headers = row.headers and [(header.key, bytes(header.value)) for header in row.headers]
        assert headers == ([("half", b"%d" % (number // 2))] if number % 2 else None)


def test_headers_are_there_when_asked_for(spark: "SparkSession", broker: Cluster, filled: str) -> None:
    assert frame(spark, broker, subscribe=filled).columns == [
        *("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
    ]


def test_a_schema_picks_columns(spark: "SparkSession", broker: Cluster, filled: str) -> None:
    reader = spark.read.format("moldau").schema("offset long, value binary")
    rows = reader.options(subscribe=filled, **{"kafka.bootstrap.servers": broker.bootstrap_servers}).load()
    assert rows.columns == ["offset", "value"]
    assert values(rows) == list(range(60))


def test_an_empty_topic_is_an_empty_table(spark: "SparkSession", broker: Cluster, topic: str) -> None:
    assert frame(spark, broker, subscribe=topic).count() == 0


def test_ranges_are_read_in_parallel(spark: "SparkSession", broker: Cluster, filled: str) -> None:
    rows = frame(spark, broker, subscribe=filled, minPartitions="6")
    assert rows.rdd.getNumPartitions() == 6
    assert values(rows) == list(range(60))


def test_sql_reads_a_topic_too(spark: "SparkSession", broker: Cluster, filled: str) -> None:
    spark.sql(
        f"CREATE TEMPORARY VIEW clicks USING moldau OPTIONS"
        f" (`kafka.bootstrap.servers` '{broker.bootstrap_servers}', subscribe '{filled}')"
    )
    (row,) = spark.sql("SELECT count(*) AS n, max(offset) AS last FROM clicks WHERE partition = 2").collect()
    assert (row.n, row.last) == (20, 19)


def test_a_table_of_a_catalog_says_to_make_a_view(
    spark: "SparkSession", broker: Cluster, filled: str, tmp_path: Path
) -> None:
    from pyspark.errors import PySparkException

    spark.sql(f"CREATE DATABASE shop LOCATION '{tmp_path}'")
    try:
        spark.sql(
            f"CREATE TABLE shop.clicks USING moldau OPTIONS"
            f" (`kafka.bootstrap.servers` '{broker.bootstrap_servers}', subscribe '{filled}')"
        )
        # Spark gives the options of such a table to its making, and not to its queries.
        with pytest.raises(PySparkException) as failed:
            spark.table("shop.clicks").count()
    finally:
        spark.sql("DROP DATABASE shop CASCADE")
    assert "Use CREATE TEMPORARY VIEW ... USING moldau OPTIONS (...) in place of" in said(failed.value)


# ------------------------------------------------------------------------------------------------ filters


@pytest.fixture
def no_pushdown(spark: "SparkSession") -> Iterator[None]:
    """Spark as it is by default."""
    spark.conf.set(PUSHDOWN, False)
    yield
    spark.conf.set(PUSHDOWN, True)


# What they leave, and in how many partitions of the topic something is read if they are pushed down.
PUSHED = {
    "partition = 1": (range(1, 60, 3), 1),
    "partition <> 1 AND topic IS NOT NULL": ([n for n in range(60) if n % 3 != 1], 2),
    "topic LIKE 'nothing%'": ([], 1),
    "offset BETWEEN 5 AND 7": (range(15, 24), 3),
    "partition IN (0, 2) AND offset > 17": ([54, 57, 56, 59], 2),
    "offset IN (3, 12)": ([9, 10, 11, 36, 37, 38], 3),
    "timestamp >= '2023-11-14 22:13:50'": (range(30, 60), 3),
    "timestamp > '2023-11-14 22:13:50' AND timestamp < '2023-11-14 22:13:55'": (range(31, 35), 3),
    "timestamp > '2033-11-14 22:13:50'": ([], 1),
    "partition = 1 OR offset = 0": ([0, 2, *range(1, 60, 3)], 3),
    "key = CAST('key 7' AS BINARY)": ([7], 3),
    "timestampType = 0 AND partition = 0": (range(0, 60, 3), 1),
}


@pytest.mark.parametrize("condition", PUSHED)
def test_filters_spare_reading_where_that_is_asked_for(
    spark: "SparkSession", broker: Cluster, filled: str, condition: str
) -> None:
    expected, tasks = PUSHED[condition]
    options = {"subscribe": filled, "minOffsetsPerTask": "1", "pushFilters": "true"}
    rows = frame(spark, broker, **options).where(condition)
    assert values(rows) == sorted(expected)
    # None at all takes one task.
    assert rows.rdd.getNumPartitions() == tasks


FILTERS = {
    "partition = 1": range(1, 60, 3),
    "partition <> 1 AND topic IS NOT NULL": [n for n in range(60) if n % 3 != 1],
    "topic LIKE 'nothing%'": [],
    "partition IN (0, 2) AND offset > 17": [54, 56, 57, 59],
    "timestamp > '2023-11-14 22:13:50' AND timestamp < '2023-11-14 22:13:55'": range(31, 35),
    "key = CAST('key 7' AS BINARY)": [7],
}


@pytest.mark.parametrize("condition", FILTERS)
def test_filters_choose_rows(spark: "SparkSession", broker: Cluster, filled: str, condition: str) -> None:
    assert values(frame(spark, broker, subscribe=filled).where(condition)) == list(FILTERS[condition])


@pytest.mark.usefixtures("no_pushdown")
def test_filters_choose_rows_where_they_are_not_pushed_down(
    spark: "SparkSession", broker: Cluster, filled: str
) -> None:
    rows = frame(spark, broker, subscribe=filled)
    assert values(rows.where("partition = 1 AND offset > 17 AND timestamp >= '2023-11-14 22:13:50'")) == [
        55,
        58,
    ]


def test_what_one_query_filters_out_is_there_for_others(
    spark: "SparkSession", broker: Cluster, filled: str
) -> None:
    rows = frame(spark, broker, subscribe=filled)
    some, others = rows.where("partition = 0 AND offset < 5"), rows.where("partition = 1")
    assert some.count() == 5
    assert rows.count() == 60
    assert values(some.union(others)) == sorted([*range(0, 15, 3), *range(1, 60, 3)])
    assert some.alias("a").join(others.alias("b"), "offset").count() == 5


# ------------------------------------------------------------------------------------------------ again


@pytest.mark.usefixtures("no_pushdown")
def test_a_table_keeps_the_offsets_of_its_first_query_until_it_is_loaded_anew(
    spark: "SparkSession", broker: Cluster, topic: str
) -> None:
    fill(broker, topic, 3)
    rows = frame(spark, broker, subscribe=topic)
    make_view = (
        f"CREATE OR REPLACE TEMPORARY VIEW kept USING moldau OPTIONS"
        f" (`kafka.bootstrap.servers` '{broker.bootstrap_servers}', subscribe '{topic}')"
    )
    spark.sql(make_view)
    assert (rows.count(), spark.table("kept").count()) == (3, 3)
    fill(broker, topic, 2)
    # Not what one would wish: Spark asks a data source in Python once, and only it could ask again.
    assert (rows.count(), spark.table("kept").count()) == (3, 3)
    assert rows.where("offset >= 0").count() == 3
    spark.sql(make_view)
    assert (frame(spark, broker, subscribe=topic).count(), spark.table("kept").count()) == (5, 5)


def test_a_query_with_a_filter_looks_up_the_offsets_where_spark_pushes_filters_down(
    spark: "SparkSession", broker: Cluster, topic: str
) -> None:
    fill(broker, topic, 3)
    rows = frame(spark, broker, subscribe=topic)
    rows.createOrReplaceTempView("kept")
    spark.sql("CREATE OR REPLACE TEMPORARY VIEW fresh AS SELECT * FROM kept WHERE offset >= 0")
    assert (rows.count(), spark.table("fresh").count()) == (3, 3)
    fill(broker, topic, 2)
    assert rows.count() == 3
    assert spark.table("fresh").count() == 5
    assert latest(rows).count() == 3, "a table of the latest values always has filters"
    fill(broker, topic, 1)
    assert rows.where("key IS NOT NULL").count() == 6


# ------------------------------------------------------------------------------------------------ mistakes


def said(error: BaseException) -> str:
    """The last line of the Python error that Spark passes on."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    return next(line for line in reversed(lines) if line.startswith("moldau."))


MISTAKES = {
    "a typo": ({"startingOffset": "earliest"}, "Did you mean startingOffsets?"),
    "a bad number": ({"minPartitions": "many"}, "Option minPartitions is 'many': it must be a whole number"),
    "bad JSON": ({"startingOffsets": "{"}, "Option startingOffsets is '{': it is no JSON"),
    "another way to subscribe": ({"assign": "{}"}, "but subscribe and assign are"),
    "a bad setting": ({"kafka.isolation.level": "x"}, "Option kafka.isolation.level: Invalid value 'x'"),
}


@pytest.mark.parametrize("what", MISTAKES)
def test_a_mistake_in_the_options_shows_when_the_table_is_made(
    spark: "SparkSession", broker: Cluster, filled: str, what: str
) -> None:
    from pyspark.errors import PySparkException

    options, text = MISTAKES[what]
    with pytest.raises(PySparkException) as failed:
        frame(spark, broker, subscribe=filled, **options)
    assert text in said(failed.value)


def test_a_topic_that_does_not_exist_is_named(spark: "SparkSession", broker: Cluster) -> None:
    from pyspark.errors import PySparkException

    with pytest.raises(PySparkException) as failed:
        frame(spark, broker, subscribe="nowhere").count()
    assert "Topic 'nowhere' does not exist" in said(failed.value)


def test_a_broker_that_is_not_there_is_named(spark: "SparkSession") -> None:
    from pyspark.errors import PySparkException

    reader = spark.read.format("moldau").option("kafka.bootstrap.servers", "127.0.0.1:1")
    with pytest.raises(PySparkException) as failed:
        reader.option("subscribe", "clicks").option("fetchOffset.retryIntervalMs", "10").load().count()
    assert "No broker could be reached. Tried 127.0.0.1:1" in said(failed.value)
    assert "option kafka.bootstrap.servers ('127.0.0.1:1') is right" in said(failed.value)


def test_a_loss_in_a_task_is_told(spark: "SparkSession", broker: Cluster, topic: str) -> None:
    from pyspark.errors import PySparkException

    fill(broker, topic, 10)
    rows = frame(spark, broker, subscribe=topic)
    # Planned by now, because the number of partitions is.
    assert rows.rdd.getNumPartitions() == 1
    with connect_sync(broker.bootstrap_servers) as client:
        client.admin.delete_records({(topic, 0): 4})
    with pytest.raises(PySparkException) as failed:
        rows.collect()
    assert f"{topic}-0: offsets 0 to 9 were to be read, and the log begins at offset 4" in said(failed.value)
    assert "they are old, load() it anew, or create the view again." in said(failed.value)
