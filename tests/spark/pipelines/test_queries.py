"""How the queries of a pipeline are set up and ended; with Spark, without a process of their own."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from moldau.spark.pipelines.hooks import FORMAT, Access, NotStarted, PipelineMistake, Setup, hooked
from moldau.spark.pipelines.stopping import active_queries, finish_batches
from moldau.testing import Cluster

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DEADLINE_S = 120.0
STOPS = 10


@pytest.fixture
def setup(tmp_path: Path, broker: Cluster) -> Setup:
    return Setup(
        name="shop",
        checkpoints=tmp_path / "checkpoints",
        defaults={"kafka.bootstrap.servers": broker.bootstrap_servers},
        stream_defaults={"groupIdPrefix": "shop"},
    )


@pytest.fixture(autouse=True)
def no_query_is_left(spark: "SparkSession") -> Iterator[None]:
    yield
    for query in spark.streams.active:
        query.stop()


def rate(spark: "SparkSession") -> "DataFrame":
    return spark.readStream.format("rate").option("rowsPerSecond", "100").load()


def until(condition: Any) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def newest(log: Path) -> int:
    return max((int(path.name) for path in log.glob("[0-9]*") if path.name.isdigit()), default=-1)


# ---------------------------------------------------------------- setting up


def test_queries_keep_their_checkpoints_under_their_names(setup: Setup, spark: "SparkSession") -> None:
    with hooked(setup):
        rate(spark).writeStream.format("noop").start()
        rate(spark).writeStream.format("noop").queryName("by/name").start()
        rate(spark).writeStream.start(format="noop", queryName="in start")
    assert setup.names == ["shop", "by/name", "in start"]
    assert [query.name for query in setup.queries] == setup.names
    until(
        lambda: all(
            (setup.checkpoints / name / "metadata").exists() for name in ("shop", "by_name", "in_start")
        )
    )


def test_a_checkpoint_that_was_chosen_is_kept(setup: Setup, spark: "SparkSession", tmp_path: Path) -> None:
    with hooked(setup):
        rate(spark).writeStream.format("noop").option("checkpointLocation", str(tmp_path / "own")).start()
    until((tmp_path / "own" / "metadata").exists)
    assert not setup.checkpoints.exists()


def test_two_queries_without_names_could_not_be_told_apart(setup: Setup, spark: "SparkSession") -> None:
    setup.is_dry = True
    with hooked(setup):
        rate(spark).writeStream.format("noop").start()
        with pytest.raises(PipelineMistake, match="two queries have no name"):
            rate(spark).writeStream.format("noop").start()
        rate(spark).writeStream.format("noop").queryName("x").start()
        with pytest.raises(PipelineMistake, match="two queries are called 'x'"):
            rate(spark).writeStream.format("noop").queryName("x").start()


def test_the_trigger_is_that_of_the_command_line(setup: Setup, spark: "SparkSession", topic: str) -> None:
    setup.trigger = {"availableNow": True}
    with hooked(setup):
        rows = spark.readStream.format(FORMAT).option("subscribe", topic).load()
        rows.writeStream.format("noop").trigger(processingTime="1 hour").start()
    (query,) = setup.queries
    # Else it would wait for an hour, and for ever.
    assert query.awaitTermination(int(DEADLINE_S))


def test_what_reads_and_writes_topics_knows_the_cluster(
    setup: Setup, spark: "SparkSession", topic: str, broker: Cluster, tmp_path: Path
) -> None:
    with hooked(setup):
        row = spark.createDataFrame([("a",)], "value STRING")
        row.write.format(FORMAT).mode("append").option("topic", topic).save()
        row.write.mode("append").save(format=FORMAT, topic=topic)
        assert spark.read.format(FORMAT).option("subscribe", topic).load().count() == 2
        assert spark.read.load(format=FORMAT, subscribe=topic).count() == 2
        spark.readStream.format(FORMAT).option("subscribe", topic).option("groupIdPrefix", "own").load()
        spark.readStream.load(format=FORMAT, subscribe=topic)
        spark.read.option("header", "true").schema("a INT").load(format="csv", path=str(tmp_path))
    cluster = {"kafka.bootstrap.servers": broker.bootstrap_servers}
    assert setup.accesses == [
        Access("write", FORMAT, {"topic": topic, **cluster}, False),
        Access("read", FORMAT, {"subscribe": topic, **cluster}, False),
        Access("read", FORMAT, {"subscribe": topic, "groupIdPrefix": "own", **cluster}, True),
        Access("read", FORMAT, {"subscribe": topic, "groupIdPrefix": "shop", **cluster}, True),
        Access("read", "csv", {"header": "true"}, False),
    ]


def test_a_cluster_that_was_named_is_kept(setup: Setup, spark: "SparkSession") -> None:
    from pyspark.errors import AnalysisException

    with hooked(setup):
        reader = spark.read.format(FORMAT).option("subscribe", "x")
        reader = reader.option("KAFKA.bootstrap.SERVERS", "no address")
        with pytest.raises(AnalysisException, match="no address"):
            reader.load()


def test_a_dry_run_sets_up_everything_and_does_nothing(
    setup: Setup, spark: "SparkSession", topic: str, tmp_path: Path
) -> None:
    setup.is_dry = True
    with hooked(setup):
        rows = spark.readStream.format(FORMAT).option("subscribe", topic).load()
        query: object = rows.writeStream.format("parquet").option("path", str(tmp_path / "out")).start()
        assert isinstance(query, NotStarted)
        assert query.awaitTermination()
        spark.range(3).write.parquet(str(tmp_path / "out"))
        spark.range(3).write.format("parquet").save(str(tmp_path / "out"))
        spark.range(3).write.saveAsTable("never_written")
    assert spark.streams.active == []
    assert not (tmp_path / "out").exists()
    assert not spark.catalog.tableExists("never_written")


def test_a_dry_run_leaves_out_what_may_write_in_sql(
    setup: Setup, spark: "SparkSession", tmp_path: Path
) -> None:
    setup.is_dry = True
    out, rows = tmp_path / "out", spark.range(3)
    writing = [
        f"INSERT OVERWRITE DIRECTORY '{out}' USING csv SELECT 1 AS a",
        f"CREATE TABLE never_made USING csv LOCATION '{out}' AS SELECT 1 AS a",
        f"EXECUTE IMMEDIATE 'INSERT OVERWRITE DIRECTORY \\'{out}\\' USING csv SELECT 1 AS a'",
        f"BEGIN INSERT OVERWRITE DIRECTORY '{out}' USING csv SELECT 1 AS a; END",
        f"WITH one AS (SELECT 1 AS a) INSERT OVERWRITE DIRECTORY '{out}' USING csv SELECT * FROM one",
    ]
    with hooked(setup):
        for text in writing:
            assert spark.sql(text).collect() == []
        spark.sql(f"INSERT OVERWRITE DIRECTORY '{out}' USING csv SELECT :a AS a", {"a": 1})
        spark.sql("INSERT OVERWRITE DIRECTORY :out USING csv SELECT 1 AS a", {"out": str(out)})
        spark.sql("INSERT OVERWRITE DIRECTORY {out} USING csv SELECT * FROM {rows}", out=str(out), rows=rows)
    assert not out.exists()
    assert not spark.catalog.tableExists("never_made")
    assert setup.left_out[:5] == writing
    assert len(setup.left_out) == 8


def test_a_dry_run_runs_what_writes_nothing_in_sql(setup: Setup, spark: "SparkSession") -> None:
    from pyspark.errors import AnalysisException, ParseException

    setup.is_dry = True
    with hooked(setup):
        assert spark.sql("SELECT 1 AS a").columns == ["a"]
        spark.sql("CREATE OR REPLACE TEMPORARY VIEW two AS SELECT 2 AS a")
        assert [row.a for row in spark.sql("SELECT a FROM two WHERE a = :a", {"a": 2}).collect()] == [2]
        assert spark.sql("SELECT * FROM {rows}", rows=spark.range(3)).count() == 3
        spark.sql("SET spark.shop.size = 3")
        spark.sql("DROP VIEW two")
        with pytest.raises(ParseException):
            spark.sql("SELEC 1")
    assert setup.left_out == ["DROP VIEW two"]
    spark.sql("DROP VIEW two")
    assert spark.conf.get("spark.shop.size") == "3"
    spark.conf.unset("spark.shop.size")
    setup.left_out.clear()
    with hooked(setup), pytest.raises(AnalysisException, match="nope"):
        spark.sql("INSERT OVERWRITE DIRECTORY '/never' USING csv SELECT nope")


def test_a_dry_run_makes_tables_where_they_are_forgotten(
    setup: Setup, spark: "SparkSession", tmp_path: Path
) -> None:
    setup.is_dry = True
    with hooked(setup):
        spark.sql("CREATE TABLE left_out (a INT) USING parquet")
    assert not spark.catalog.tableExists("left_out")
    warehouse = spark.conf.get("spark.sql.warehouse.dir")
    assert warehouse is not None
    setup.checkpoints = Path(warehouse.removeprefix("file:")) / "checkpoints"
    with hooked(setup):
        spark.sql("CREATE TABLE made (a INT) USING parquet")
        spark.sql("INSERT INTO made SELECT 1")
        assert spark.table("made").collect() == []
    spark.sql("DROP TABLE made")
    assert setup.left_out == [
        "CREATE TABLE left_out (a INT) USING parquet",
        "INSERT INTO made SELECT 1",
    ]


def test_what_was_changed_for_a_pipeline_is_as_it_was(setup: Setup) -> None:
    from pyspark.sql.readwriter import DataFrameReader, DataFrameWriter
    from pyspark.sql.streaming.readwriter import DataStreamReader, DataStreamWriter

    methods = [(DataStreamWriter, "start"), (DataStreamReader, "load"), (DataFrameReader, "load")]
    methods += [(DataFrameWriter, "save"), (DataFrameWriter, "parquet")]
    before = [getattr(owner, name) for owner, name in methods]
    setup.is_dry = True
    with hooked(setup):
        assert all(getattr(owner, name) != was for (owner, name), was in zip(methods, before, strict=True))
    assert [getattr(owner, name) for owner, name in methods] == before


# ---------------------------------------------------------------- ending


def slow_query(spark: "SparkSession", folder: Path, wait: Callable[[], object]) -> Any:
    def write(rows: "DataFrame", number: int) -> None:
        wait()

    writer = rate(spark).writeStream.foreachBatch(write).queryName("slow")
    return writer.option("checkpointLocation", str(folder)).start()


def test_a_query_finishes_its_micro_batch_and_begins_no_other(spark: "SparkSession", tmp_path: Path) -> None:
    query = slow_query(spark, tmp_path, lambda: time.sleep(2.0))
    until(lambda: (tmp_path / "offsets").exists() and newest(tmp_path / "offsets") >= 1)
    under_way = newest(tmp_path / "offsets")
    assert finish_batches(spark._jsparkSession, deadline_s=time.monotonic() + DEADLINE_S) == []
    assert not query.isActive
    assert query.exception() is None
    assert newest(tmp_path / "commits") == newest(tmp_path / "offsets")
    assert newest(tmp_path / "offsets") in (under_way, under_way + 1)
    assert active_queries(spark._jsparkSession) == []


def test_a_micro_batch_that_is_being_planned_is_done_too(spark: "SparkSession", tmp_path: Path) -> None:
    """What is marked as ended between the offsets of a micro-batch and its first task, Spark interrupts."""
    is_planning, go_on, checkpoint = tmp_path / "is planning", tmp_path / "go on", tmp_path / "checkpoint"
    register_slow_planner(spark, checkpoint / "offsets" / "0", is_planning, go_on)
    writer = spark.readStream.format("slow-planner").load().writeStream.format("parquet")
    query = writer.option("checkpointLocation", str(checkpoint)).start(str(tmp_path / "table"))
    until(is_planning.exists)
    assert newest(checkpoint / "offsets") == 0
    with ThreadPoolExecutor() as threads:
        stopping = threads.submit(
            finish_batches, spark._jsparkSession, deadline_s=time.monotonic() + DEADLINE_S
        )
        # It has looked at the query many times.
        time.sleep(0.5)
        assert not stopping.done()
        go_on.touch()
        assert stopping.result() == []
    assert query.exception() is None
    assert [row.number for row in spark.read.parquet(str(tmp_path / "table")).collect()] == [0]
    assert newest(checkpoint / "commits") == newest(checkpoint / "offsets") == 0


def test_however_often_queries_are_stopped_no_micro_batch_is_left_over(
    spark: "SparkSession", topic: str, broker: Cluster, tmp_path: Path
) -> None:
    """Without pauses between micro-batches, a query is at another place in one each time it is stopped."""
    servers = {"kafka.bootstrap.servers": broker.bootstrap_servers}
    rows = spark.readStream.format("rate-micro-batch").options(rowsPerBatch=10, numPartitions=1).load()
    texts = rows.selectExpr("CAST(value AS STRING) AS value")
    # With a watermark, Spark makes micro-batches without any input too.
    counts = rows.withWatermark("timestamp", "0 seconds").groupBy("timestamp").count()
    writers = {
        "files": rows.writeStream.format("parquet").option("path", str(tmp_path / "table")),
        "topic": texts.writeStream.format(FORMAT).options(topic=topic, **servers),
        "counts": counts.writeStream.format("noop").outputMode("append"),
    }
    done = dict.fromkeys(writers, -1)
    for moment in range(STOPS):
        for name, writer in writers.items():
            writer.option("checkpointLocation", str(tmp_path / name)).start()
        until(lambda seen=done: all(newest(tmp_path / name / "commits") > seen[name] for name in seen))
        time.sleep(moment * 0.013)
        assert finish_batches(spark._jsparkSession, deadline_s=time.monotonic() + DEADLINE_S) == []
        done = {name: newest(tmp_path / name / "commits") for name in writers}
        assert {name: newest(tmp_path / name / "offsets") for name in writers} == done
    # What was never interrupted is there once, in a topic as well.
    written = spark.read.parquet(str(tmp_path / "table")).collect()
    assert sorted(row.value for row in written) == [*range(10 * (done["files"] + 1))]
    copied = spark.read.format(FORMAT).options(subscribe=topic, **servers).load().collect()
    assert sorted(int(row.value) for row in copied) == [*range(10 * (done["topic"] + 1))]


def register_slow_planner(spark: "SparkSession", offsets: Path, is_planning: Path, go_on: Path) -> None:
    """A source whose first micro-batch stays between its offsets and its first task until it may go on."""
    from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

    class Reader(DataSourceStreamReader):
        def initialOffset(self) -> dict[str, int]:  # noqa: N802
            # Spark asks before it writes the offsets down, and then again.
            if offsets.exists():
                is_planning.touch()
                while not go_on.exists():
                    time.sleep(0.01)
            return {"number": 0}

        def latestOffset(self, start: dict[str, int], limit: object) -> dict[str, int]:  # noqa: N802
            return {"number": 1}

        def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
            return [InputPartition(number) for number in range(start["number"], end["number"])]

        def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
            yield (partition.value,)

    class SlowPlanner(DataSource):
        @classmethod
        def name(cls) -> str:
            return "slow-planner"

        def schema(self) -> str:
            return "number INT"

        def streamReader(self, schema: object) -> Reader:  # noqa: N802
            return Reader()

    spark.dataSource.register(SlowPlanner)


def test_a_query_whose_source_does_not_answer_is_not_waited_for(
    spark: "SparkSession", tmp_path: Path
) -> None:
    """As one whose brokers are away, which would be asked for a minute."""
    is_silent, is_asked, checkpoint = tmp_path / "is silent", tmp_path / "is asked", tmp_path / "checkpoint"
    count = tmp_path / "count"
    count.write_text("3")
    register_counter(spark, count, is_silent, is_asked)

    def start() -> Any:
        writer = spark.readStream.format("counter").load().writeStream.format("parquet").queryName("silent")
        return writer.option("checkpointLocation", str(checkpoint)).start(str(tmp_path / "table"))

    query = start()
    until(lambda: newest(checkpoint / "commits") == 0)
    is_silent.touch()
    until(is_asked.exists)
    unanswered: list[str] = []
    deadline_s = time.monotonic() + DEADLINE_S
    assert finish_batches(spark._jsparkSession, deadline_s=deadline_s, unanswered=unanswered.append) == []
    assert time.monotonic() < deadline_s
    assert unanswered == ["silent"]
    assert not query.isActive
    assert query.exception() is None
    # It goes on where it was, and nothing is done again.
    assert newest(checkpoint / "commits") == newest(checkpoint / "offsets") == 0
    count.write_text("5")
    is_silent.unlink()
    query = start()
    until(lambda: newest(checkpoint / "commits") == 1)
    query.stop()
    written = spark.read.parquet(str(tmp_path / "table")).collect()
    assert sorted(row.number for row in written) == [0, 1, 2, 3, 4]


def test_a_query_whose_source_does_not_answer_at_its_beginning_is_not_waited_for(
    spark: "SparkSession", tmp_path: Path
) -> None:
    """As those of a graph, of which each update begins anew."""
    is_silent, is_asked, count = tmp_path / "is silent", tmp_path / "is asked", tmp_path / "count"
    count.write_text("3")
    register_counter(spark, count, is_silent, is_asked)
    is_silent.touch()
    writer = spark.readStream.format("counter").load().writeStream.format("noop").queryName("silent")
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
    query = writer.start()
    until(is_asked.exists)
    unanswered: list[str] = []
    deadline_s = time.monotonic() + DEADLINE_S
    assert finish_batches(spark._jsparkSession, deadline_s=deadline_s, unanswered=unanswered.append) == []
    assert time.monotonic() < deadline_s
    assert unanswered == ["silent"]
    assert query.exception() is None
    assert newest(tmp_path / "checkpoint" / "offsets") == -1
    is_silent.unlink()


def register_counter(spark: "SparkSession", count: Path, is_silent: Path, is_asked: Path) -> None:
    """A source of as many numbers as stand in a file, which can be silenced."""
    from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
    from pyspark.sql.streaming.datasource import ReadAllAvailable, SupportsTriggerAvailableNow

    def answer() -> None:
        while is_silent.exists():
            is_asked.touch()
            time.sleep(0.01)

    class Reader(DataSourceStreamReader, SupportsTriggerAvailableNow):
        def initialOffset(self) -> dict[str, int]:  # noqa: N802
            return {"number": 0}

        def latestOffset(self, start: dict[str, int], limit: object) -> dict[str, int]:  # noqa: N802
            answer()
            return {"number": int(count.read_text())}

        def getDefaultReadLimit(self) -> ReadAllAvailable:  # noqa: N802
            return ReadAllAvailable()

        def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
            answer()

        def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
            return [InputPartition(number) for number in range(start["number"], end["number"])]

        def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
            yield (partition.value,)

    class Counter(DataSource):
        @classmethod
        def name(cls) -> str:
            return "counter"

        def schema(self) -> str:
            return "number INT"

        def streamReader(self, schema: object) -> Reader:  # noqa: N802
            return Reader()

    spark.dataSource.register(Counter)


def test_a_query_that_takes_too_long_is_cut_off_and_named(spark: "SparkSession", tmp_path: Path) -> None:
    go_on, is_writing = threading.Event(), threading.Event()

    def write_slowly() -> None:
        is_writing.set()
        go_on.wait(DEADLINE_S)

    query = slow_query(spark, tmp_path, write_slowly)
    assert is_writing.wait(DEADLINE_S)
    try:
        assert finish_batches(spark._jsparkSession, deadline_s=time.monotonic() + 1.0) == ["slow"]
    finally:
        go_on.set()
    assert query.awaitTermination(int(DEADLINE_S))


def test_who_waits_for_a_query_hears_of_its_end_at_once(spark: "SparkSession", tmp_path: Path) -> None:
    """As the update of a graph does, without which there is no end to the stopping."""

    def fail() -> None:
        # It is being stopped by then.
        time.sleep(1.0)
        raise RuntimeError("on its own")

    query = slow_query(spark, tmp_path, fail)
    until(lambda: newest(tmp_path / "offsets") == 0)
    with ThreadPoolExecutor() as threads:
        waiting = threads.submit(query._jsq.awaitTermination)
        deadline_s = time.monotonic() + DEADLINE_S
        assert finish_batches(spark._jsparkSession, deadline_s=deadline_s, is_over=waiting.done) == []
    assert "on its own" in str(waiting.exception())
    assert time.monotonic() < deadline_s


def test_a_query_that_waits_for_its_trigger_is_not_waited_for(spark: "SparkSession", tmp_path: Path) -> None:
    writer = rate(spark).writeStream.format("noop").trigger(processingTime="1 hour")
    query = writer.option("checkpointLocation", str(tmp_path)).start()
    until(lambda: query.status["message"].startswith("Waiting for next trigger"))
    assert finish_batches(spark._jsparkSession, deadline_s=time.monotonic() + DEADLINE_S) == []
    assert query.awaitTermination(int(DEADLINE_S))


def test_a_query_without_micro_batches_is_ended_at_once(spark: "SparkSession", tmp_path: Path) -> None:
    writer = rate(spark).writeStream.format("noop").trigger(continuous="1 second")
    query = writer.option("checkpointLocation", str(tmp_path)).start()
    until(lambda: newest(tmp_path / "commits") >= 0)
    assert finish_batches(spark._jsparkSession, deadline_s=time.monotonic() + DEADLINE_S) == []
    assert query.exception() is None


def test_progress_is_what_spark_really_says(
    spark: "SparkSession", topic: str, broker: Cluster, tmp_path: Path
) -> None:
    from moldau.spark.pipelines.progress import Progress

    with_servers = {"kafka.bootstrap.servers": broker.bootstrap_servers}
    rows = spark.createDataFrame([(str(number),) for number in range(50)], "value STRING")
    rows.write.format(FORMAT).mode("append").options(topic=topic, **with_servers).save()
    read = spark.readStream.format(FORMAT).options(
        subscribe=topic, startingOffsets="earliest", **with_servers
    )
    counts = read.load().groupBy("value").count()
    writer = counts.writeStream.format("noop").outputMode("update").queryName("counts")
    query = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
    query.awaitTermination(int(DEADLINE_S))
    progress = Progress()
    for report in query.recentProgress:
        progress.batch(json.loads(report.json), now_ms=1)
    (seen,) = progress.queries.values()
    assert (seen.name, seen.rows_in, seen.state_rows, seen.lag) == ("counts", 50, 50, 0)
    assert seen.batch_ms > 0
    assert [str(place) for place in seen.positions] == [f"{topic}-0"]


def test_how_far_a_query_was_is_known_while_its_first_micro_batch_runs(
    spark: "SparkSession", topic: str, broker: Cluster, tmp_path: Path
) -> None:
    from moldau.spark.pipelines.checkpoints import logged
    from moldau.spark.pipelines.progress import Progress

    go_on, is_writing = threading.Event(), threading.Event()
    servers = {"kafka.bootstrap.servers": broker.bootstrap_servers}

    def write(count: int) -> None:
        rows = spark.createDataFrame([(str(number),) for number in range(count)], "value STRING")
        rows.write.format(FORMAT).mode("append").options(topic=topic, **servers).save()

    def wait(rows: "DataFrame", number: int) -> None:
        is_writing.set()
        assert go_on.wait(DEADLINE_S)

    def start() -> Any:
        read = spark.readStream.format(FORMAT).options(subscribe=topic, startingOffsets="earliest", **servers)
        writer = read.load().writeStream.foreachBatch(wait).queryName("slow")
        return writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()

    def lag() -> int | None:
        (query,) = active_queries(spark._jsparkSession)
        progress = Progress()
        progress.resumed("slow", logged(query))
        return progress.queries["slow"].lag

    for number, (more, expected) in enumerate([(50, 50), (7, 7)]):
        write(more)
        query = start()
        try:
            assert is_writing.wait(DEADLINE_S)
            assert newest(tmp_path / "offsets") == number
            assert lag() == expected
        finally:
            go_on.set()
        assert query.awaitTermination(int(DEADLINE_S))
        is_writing.clear()
        go_on.clear()
