"""The driver: three streaming queries that are kept running until they are told to finish.

    table    the inputs, as Parquet files
    copy     the inputs as they are, into a topic
    counts   how many inputs each key has had, into a topic: with foreachBatch, because Spark does not give
             data sources in Python what an aggregation has changed (output mode update)

A query that fails is started again from its checkpoint, as an operator would. Run as
`python -m spark.chaos.driver SETUP`.
"""

from __future__ import annotations

import json
import os
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final

from spark.chaos import setup
from spark.chaos.plan import QUERIES
from spark.chaos.setup import DATA_SOURCE, INPUT, Setup

from moldau.cli._parent import end_with
from moldau.testing.broker import PARENT_VARIABLE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

FAILURES_MAX: Final = 40
_POLL_S: Final = 0.1
_PAUSE_S: Final = 0.5
_BATCH_OFFSETS: Final = 2_000
_ERROR_CHARACTERS: Final = 600


def main(path: Path) -> int:
    """Run until there is nothing left to do, or somebody kills us."""
    end_with(int(os.environ[PARENT_VARIABLE]))
    given = Setup.read(path)
    folder = Path(given.folder)
    pipelines = Pipelines(session(given.master), given)
    pipelines.note("started")
    while not setup.finish(folder).exists():
        pipelines.keep_running()
        time.sleep(_POLL_S)
    pipelines.finish()
    pipelines.report()
    return 0


def session(master: str) -> SparkSession:
    """Spark, made to start soon rather than to run fast."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    settings = {
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.log.level": "ERROR",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        # Often, so that kills meet it.
        "spark.sql.streaming.fileSink.log.compactInterval": "4",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    builder = SparkSession.builder.master(master).appName("chaos")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


class Pipelines:
    """The queries, and what became of them in this life of the driver."""

    def __init__(self, spark: SparkSession, given: Setup) -> None:
        self._spark = spark
        self._given = given
        self._folder = Path(given.folder)
        self._queries: dict[str, StreamingQuery] = {}
        self._failures = 0

    def keep_running(self) -> None:
        """Start what does not run."""
        for name in QUERIES:
            query = self._queries.get(name)
            if query is None or not query.isActive:
                if query is not None:
                    self._note_failure(name, query)
                    time.sleep(_PAUSE_S)
                self._queries[name] = self._writer(name).trigger(processingTime="200 milliseconds").start()

    def finish(self) -> None:
        """Stop, read what there is with another trigger, and end."""
        for query in self._queries.values():
            query.stop()
        self.note("finishing")
        left = dict.fromkeys(QUERIES)
        while left:
            running = {name: self._writer(name).trigger(availableNow=True).start() for name in left}
            for name, query in running.items():
                while query.isActive:
                    time.sleep(_POLL_S)
                if query.exception() is None:
                    del left[name]
                else:
                    self._note_failure(name, query)

    def report(self) -> None:
        """Leave the rows of the table as Spark reads them, which looks into the sink's log for the files."""
        import pyarrow.parquet as pq

        found = self._spark.read.parquet(str(setup.table(self._folder)))
        pq.write_table(found.select("key", "number", "text").toArrow(), setup.rows(self._folder))
        listed = len(found.inputFiles())
        setup.done(self._folder).write_text(json.dumps({"files": listed}))
        self.note("finished")

    def note(self, event: str, **facts: str) -> None:
        """A line for those who look at this run later."""
        line = json.dumps({"life": self._given.life, "event": event, "at": time.time(), **facts})
        with open(setup.events(self._folder), "a") as events:
            events.write(f"{line}\n")

    def _note_failure(self, name: str, query: StreamingQuery) -> None:
        # The first of it; the log has the rest.
        text = str(query.exception() or "it has ended by itself")
        self.note("query failed", query=name, error=text[:_ERROR_CHARACTERS])
        self._failures += 1
        if self._failures > FAILURES_MAX:
            sys.exit(f"Error: queries have failed {self._failures} times. The last was {name}: {text}")

    def _writer(self, name: str) -> DataStreamWriter:
        match name:
            case "table":
                writer = self._parsed(name).writeStream.format("parquet")
                writer = writer.option("path", str(setup.table(self._folder)))
            case "copy":
                rows = self._inputs(name).select("key", "value").writeStream
                writer = rows.format(self._sink(name)).options(**self._into(name))
            case "counts":
                writer = self._counts(name).writeStream.outputMode("update").foreachBatch(self._write_batch)
            case _:
                raise AssertionError(name)
        return writer.queryName(name).option("checkpointLocation", str(setup.checkpoint(self._folder, name)))

    def _inputs(self, name: str) -> DataFrame:
        reader = self._spark.readStream.format(self._source(self._given.sources.get(name, DATA_SOURCE)))
        return reader.options(
            **{
                "kafka.bootstrap.servers": self._given.bootstrap_servers,
                "subscribe": INPUT,
                "startingOffsets": "earliest",
                "maxOffsetsPerTrigger": str(_BATCH_OFFSETS),
                "kafka.group.id": setup.group_of(name),
            }
        ).load()

    def _parsed(self, name: str) -> DataFrame:
        from pyspark.sql.functions import col, from_json

        value = from_json(col("value").cast("string"), "number long, text string")
        read = self._inputs(name).select(col("key").cast("string"), value.alias("input"))
        return read.select("key", "input.number", "input.text")

    def _counts(self, name: str) -> DataFrame:
        from pyspark.sql import functions as sql

        counted = (
            self._parsed(name)
            .groupBy("key")
            .agg(
                sql.count("number").alias("count"),
                sql.max("number").alias("last"),
                sql.sum("number").alias("sum"),
            )
        )
        return counted.select("key", sql.to_json(sql.struct("count", "last", "sum")).alias("value"))

    def _write_batch(self, rows: DataFrame, batch: int) -> None:
        rows.write.format(self._sink("counts")).options(**self._into("counts")).mode("append").save()

    def _into(self, topic: str) -> dict[str, str]:
        return {"kafka.bootstrap.servers": self._given.bootstrap_servers, "topic": topic}

    def _sink(self, name: str) -> str:
        return self._source(self._given.sinks.get(name, DATA_SOURCE))

    def _source(self, name: str) -> str:
        """A data source by the name that Spark knows it by; another one than Moldau's is registered."""
        if name == DATA_SOURCE:
            return name
        module, _, attribute = name.partition(":")
        source = getattr(import_module(module), attribute)
        self._spark.dataSource.register(source)
        return str(source.name())


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
