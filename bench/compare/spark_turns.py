"""Spark with the format `moldau` beside Spark with its own connector: one session, one broker, in turns."""

from __future__ import annotations

import ctypes
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import kafka_jars

from compare.results import CPU_UNIT, SERVER_CPU, Figure, Results
from compare.servers import MOLDAU, ROOT, Server, running
from moldau.bench.usage import cpu_of
from moldau.client import NewTopic, connect_sync

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

OURS, THEIRS = "moldau", "kafka"
SPARK_CPU = "Spark's CPU"
OUR_TIME = "tasks' time in Moldau's code"
OUR_CPU = "CPU in Moldau's code"
CORES = 2
_PARTITIONS = 4
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_PR_SET_CHILD_SUBREAPER = 36
# A micro-batch is this large, and the first few are not like the others.
_MICRO_BATCH_RECORDS = 1_000
_MICRO_BATCHES_SKIPPED = 3

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Scale:
    """How much is done in a turn."""

    megabytes: int
    micro_batches: int
    rounds: int


FULL = Scale(megabytes=100, micro_batches=20, rounds=5)
WARM_UP = Scale(megabytes=20, micro_batches=8, rounds=0)


class Bench:
    """What all turns have: a session, a broker, frames to write and topics to read."""

    def __init__(self, spark: SparkSession, server: Server, scratch: Path) -> None:
        self.spark = spark
        self.server = server
        self.scratch = scratch
        self.frames: dict[tuple[int, int], DataFrame] = {}
        self.topics: dict[tuple[int, int], str] = {}
        self._names = 0

    def new_topic(self) -> str:
        """An empty topic."""
        self._names += 1
        name = f"topic-{self._names}"
        with connect_sync(self.server.address) as client:
            client.admin.create_topics(NewTopic(name, partitions=_PARTITIONS))
        return name

    def forget(self, topic: str) -> None:
        """Delete a topic."""
        with connect_sync(self.server.address) as client:
            client.admin.delete_topics(topic)

    def check_count(self, topic: str, count: int) -> None:
        """RuntimeError unless the topic has so many records."""
        with connect_sync(self.server.address) as client:
            ends = client.admin.list_offsets({(topic, index): -1 for index in range(_PARTITIONS)})
        found = sum(end.offset for end in ends.values())
        if found != count:
            raise RuntimeError(f"{topic} has {found} records and should have {count}")

    def frame(self, record_bytes: int, megabytes: int) -> DataFrame:
        """Rows to write, computed before and kept in memory."""
        key = record_bytes, megabytes
        if key not in self.frames:
            count = count_of(record_bytes, megabytes)
            padding = f"repeat(sha2(cast(id as string), 256), {record_bytes // 64 + 1})"
            value = f"cast(substring({padding}, 1, {record_bytes}) as binary) value"
            rows = self.spark.range(0, count, 1, CORES).selectExpr(
                "cast(cast(id as string) as binary) key", value
            )
            self.frames[key] = rows.cache()
            rows.count()
        return self.frames[key]

    def filled_topic(self, record_bytes: int, megabytes: int) -> str:
        """A topic to read."""
        key = record_bytes, megabytes
        if key not in self.topics:
            self.topics[key] = self.new_topic()
            self.write(OURS, self.frame(record_bytes, megabytes), self.topics[key])
        return self.topics[key]

    def write(self, by: str, frame: DataFrame, topic: str, **options: str) -> None:
        """All rows into the topic."""
        writer = frame.write.format(by).option("kafka.bootstrap.servers", self.server.address)
        writer.options(topic=topic, **options).mode("append").save()

    def read(self, by: str, topic: str, **options: str) -> tuple[int, int]:
        """How many records the topic has, and how many bytes their values; every column is looked at."""
        reader = self.spark.read.format(by).option("kafka.bootstrap.servers", self.server.address)
        looked_at = (
            reader.options(subscribe=topic, **options)
            .load()
            .selectExpr(
                "count(1) records",
                "sum(length(value)) bytes",
                *("max(length(key))", "max(topic)", "max(partition)", "max(offset)"),
                *("max(timestamp)", "max(timestampType)"),
            )
        )
        [row] = looked_at.collect()
        return row.records, row.bytes


@dataclass(frozen=True, slots=True)
class Outcome:
    """One turn."""

    value: float
    records: int
    spark_cpu_s: float
    server_cpu_s: float


@dataclass(frozen=True, slots=True)
class Row:
    """One kind of work."""

    name: str
    group: str
    title: str
    reading: str
    unit: str
    is_more_better: bool
    run: Callable[[Bench, Scale, str], Outcome]
    # How many times as good we mean to be.
    aim: float
    record_bytes: int = 0
    timed: Callable[[Bench, Scale, Path], None] | None = None


# By row and contender, and by row and what it is a share of.
Collected = dict[tuple[str, str], list[Outcome | None]]
Shares = dict[tuple[str, str], list[float | None]]


def count_of(record_bytes: int, megabytes: int) -> int:
    """How many records that is."""
    return megabytes * 10**6 // record_bytes


def reading(record_bytes: int) -> Callable[[Bench, Scale, str], Outcome]:
    """A batch query over a topic."""

    def run(bench: Bench, scale: Scale, by: str) -> Outcome:
        count = count_of(record_bytes, scale.megabytes)
        topic = bench.filled_topic(record_bytes, scale.megabytes)
        with metered(bench) as meter:
            found = bench.read(by, topic)
        if found != (count, count * record_bytes):
            raise RuntimeError(f"{by} read {found[0]} records of {found[1]} bytes, not {count}")
        return meter.outcome(count / meter.seconds, count)

    return run


def timed_reading(record_bytes: int) -> Callable[[Bench, Scale, Path], None]:
    """The same with a stopwatch."""

    def run(bench: Bench, scale: Scale, folder: Path) -> None:
        topic = bench.filled_topic(record_bytes, scale.megabytes)
        bench.read("moldau-timed", topic, timings=str(folder))

    return run


def writing(record_bytes: int) -> Callable[[Bench, Scale, str], Outcome]:
    """A frame in memory into a topic."""

    def run(bench: Bench, scale: Scale, by: str) -> Outcome:
        count = count_of(record_bytes, scale.megabytes)
        frame = bench.frame(record_bytes, scale.megabytes)
        topic = bench.new_topic()
        with metered(bench) as meter:
            bench.write(by, frame, topic)
        bench.check_count(topic, count)
        bench.forget(topic)
        return meter.outcome(count / meter.seconds, count)

    return run


def timed_writing(record_bytes: int) -> Callable[[Bench, Scale, Path], None]:
    """The same with a stopwatch."""

    def run(bench: Bench, scale: Scale, folder: Path) -> None:
        topic = bench.new_topic()
        bench.write("moldau-timed", bench.frame(record_bytes, scale.megabytes), topic, timings=str(folder))
        bench.forget(topic)

    return run


def streaming(bench: Bench, scale: Scale, by: str) -> Outcome:
    """How long a small micro-batch takes from topic to topic."""
    topic, out = bench.filled_topic(100, WARM_UP.megabytes), bench.new_topic()
    servers = bench.server.address
    count = scale.micro_batches * _MICRO_BATCH_RECORDS
    durations: list[float] = []
    with tempfile.TemporaryDirectory(dir=bench.scratch) as checkpoint, metered(bench) as meter:
        reader = bench.spark.readStream.format(by).option("kafka.bootstrap.servers", servers)
        frame = reader.options(
            subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=str(_MICRO_BATCH_RECORDS)
        ).load()
        writer = (
            frame.select("key", "value").writeStream.format(by).option("kafka.bootstrap.servers", servers)
        )
        query = writer.option("topic", out).option("checkpointLocation", checkpoint).start()
        try:
            while len(durations) < scale.micro_batches:
                if query.exception() is not None:
                    raise RuntimeError(f"the stream of {by} failed: {query.exception()}")
                time.sleep(0.05)
                durations = [
                    each["durationMs"]["triggerExecution"]
                    for each in query.recentProgress
                    if each["numInputRows"] > 0
                ]
        finally:
            query.stop()
    # The topic stays: a stream is stopped in the midst of a micro-batch, and the connector's producer, which
    # the next turn shares, may have records left for it. Without the topic it would wait two minutes for it.
    return meter.outcome(statistics.median(durations[_MICRO_BATCHES_SKIPPED:]), count)


ROWS = (
    *(
        Row(
            f"read-{size}", "read", f"{title} records", "rate", "records/s", True,
            reading(size), aim, size, timed_reading(size),
        )
        for size, title, aim in ((100, "100 B", 0.6), (1_000, "1 KB", 1.0))
    ),
    *(
        Row(
            f"write-{size}", "write", f"{title} records", "rate", "records/s", True,
            writing(size), 1.0, size, timed_writing(size),
        )
        for size, title in ((100, "100 B"), (1_000, "1 KB"))
    ),
    Row(
        "micro-batch", "stream", f"micro-batches of {_MICRO_BATCH_RECORDS:,} records, topic to topic",
        "median time of one", "ms", False, streaming, 1.0,
    ),
)  # fmt: skip


def turns_total(rows: Sequence[Row], contenders: Sequence[str], rounds: int) -> int:
    """How often `tell` is called, for a progress bar."""
    timed = sum(row.timed is not None for row in rows)
    return 1 + len(rows) * len(contenders) * (rounds + 1) + timed * rounds


def compare(rows: Sequence[Row], scale: Scale, *, facts: dict[str, str], tell: Progress) -> Results:
    """Start Spark and a broker, let both formats take turns, and end everything."""
    results = Results(facts, scale.rounds)
    contenders, jars = contenders_here(results.missing)
    tell("starting Spark and a broker")
    with (
        tempfile.TemporaryDirectory(prefix="moldau-bench-") as folder,
        running(MOLDAU) as server,
        session(jars) as spark,
    ):
        bench = Bench(spark, server, Path(folder))
        for row, by in turns(rows, contenders, is_reversed=False):
            tell(f"warming up: {row.name}, {by}")
            take(bench, row, WARM_UP, by, [])
        collected: Collected = {}
        for number in range(scale.rounds):
            for row, by in turns(rows, contenders, is_reversed=number % 2 == 1):
                tell(f"round {number + 1} of {scale.rounds}: {row.name}, {by}")
                done = take(bench, row, scale, by, results.failures)
                collected.setdefault((row.name, by), []).append(done)
        shares: Shares = {}
        for number in range(scale.rounds):
            for row in rows:
                if row.timed is not None:
                    tell(f"round {number + 1} of {scale.rounds}: {row.name}, by stopwatch")
                    for name, percent in our_shares(bench, row, scale).items():
                        shares.setdefault((row.name, name), []).append(percent)
    results.figures.extend(figures(rows, collected, shares))
    return results


def contenders_here(missing: list[str]) -> tuple[list[str], list[Path]]:
    """Who can take part, and the jars that this needs; why the other cannot is noted."""
    try:
        jars = sorted(kafka_jars.spark_connector_jars().glob("*.jar"))
    except kafka_jars.Unavailable as why:
        missing.append(f"Spark's connector for Kafka: {why}")
        return [OURS], []
    return [OURS, THEIRS], jars


def turns(rows: Sequence[Row], contenders: Sequence[str], *, is_reversed: bool) -> Iterator[tuple[Row, str]]:
    """A round: for each row who takes a turn, and in which order."""
    for row in rows:
        for by in reversed(contenders) if is_reversed else contenders:
            yield row, by


def take(bench: Bench, row: Row, scale: Scale, by: str, failures: list[str]) -> Outcome | None:
    """One turn; None if it failed, which is noted."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        return row.run(bench, scale, by)
    except (RuntimeError, PySparkException, Py4JJavaError) as why:
        failures.append(f"{row.name}, {by}: {type(why).__name__}: {str(why).splitlines()[0]}")
        return None


def our_shares(bench: Bench, row: Row, scale: Scale) -> dict[str, float]:
    """Which percentage of the tasks' time was spent in our code, and of the CPU of Spark with its workers."""
    from compare.spark_timing import spent

    assert row.timed is not None
    with tempfile.TemporaryDirectory(dir=bench.scratch) as folder:
        with metered(bench) as meter:
            row.timed(bench, scale, Path(folder))
        ours, theirs, our_cpu = spent(Path(folder))
    return {OUR_TIME: 100 * ours / (ours + theirs), OUR_CPU: 100 * our_cpu / meter.spark_cpu_s}


def figures(rows: Sequence[Row], collected: Collected, shares: Shares) -> Iterator[Figure]:
    """Every reading of every row, CPU, and how much of the time was ours."""
    for row in rows:
        outcomes = {by: done for (name, by), done in collected.items() if name == row.name}
        figure = Figure(
            row.name, row.group, row.title, "spark", row.reading, row.unit, row.is_more_better,
            {
                by: [None if each is None else rounded(each.value) for each in done]
                for by, done in outcomes.items()
            },
        )  # fmt: skip
        yield figure
        for name, used in ((SPARK_CPU, "spark_cpu_s"), (SERVER_CPU, "server_cpu_s")):
            values = {
                by: [
                    None if each is None else rounded(getattr(each, used) * 1e6 / each.records)
                    for each in done
                ]
                for by, done in outcomes.items()
            }
            yield replace(figure, reading=name, unit=CPU_UNIT, is_more_better=False, values=values)
        for (name, share), percentages in shares.items():
            if name == row.name:
                ours = {OURS: [None if each is None else rounded(each) for each in percentages]}
                yield replace(figure, reading=share, unit="%", is_more_better=False, values=ours)


def rounded(value: float) -> float:
    """As many digits as a figure may mean."""
    return float(f"{value:.5g}")


# ---------------------------------------------------------------- the session, and what it uses


@contextmanager
def session(jars: Sequence[Path]) -> Iterator[SparkSession]:
    """Spark on two cores, as it comes but for what the machine is too small for."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    # Python workers import the stopwatch from here.
    paths = [str(ROOT / "bench"), str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    spark = (
        SparkSession.builder.master(f"local[{CORES}]")
        .appName("moldau bench")
        .config("spark.jars", ",".join(map(str, jars)))
        .config("spark.driver.memory", "2g")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.sql.shuffle.partitions", str(CORES))
        .getOrCreate()
    )
    from compare.spark_timing import TimedSource

    # A worker that outlives the daemon that forked it would be init's child, and its CPU nobody's.
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    spark.dataSource.register(TimedSource)
    try:
        yield spark
    finally:
        spark.stop()


class Meter:
    """What a turn took."""

    def __init__(self) -> None:
        self.seconds = self.spark_cpu_s = self.server_cpu_s = 0.0

    def outcome(self, value: float, records: int) -> Outcome:
        """The turn with its result."""
        return Outcome(value, records, self.spark_cpu_s, self.server_cpu_s)


@contextmanager
def metered(bench: Bench) -> Iterator[Meter]:
    """Let the clock run, and count the CPU of Spark with its Python workers and of the broker."""
    meter = Meter()
    server_s, spark_s = cpu_of(bench.server.pid), cpu_of_family(os.getpid(), without=bench.server.pid)
    began = time.perf_counter()
    yield meter
    meter.seconds = time.perf_counter() - began
    meter.server_cpu_s = cpu_of(bench.server.pid) - server_s
    meter.spark_cpu_s = cpu_of_family(os.getpid(), without=bench.server.pid) - spark_s


def cpu_of_family(pid: int, *, without: int) -> float:
    """CPU seconds of a process and all that descend from it and live, with those waited for."""
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for path in Path("/proc").iterdir():
        if not path.name.isdigit():
            continue
        try:
            fields = (path / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(path.name)] = int(fields[1])
        ticks[int(path.name)] = sum(map(int, fields[11:15]))

    def belongs(each: int) -> bool:
        while each not in (pid, without, 0, 1):
            each = parents.get(each, 0)
        return each == pid

    return sum(used for each, used in ticks.items() if belongs(each)) / _TICKS_PER_SECOND
