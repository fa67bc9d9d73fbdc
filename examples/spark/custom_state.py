"""Custom state: the Processor API, with a state store and a punctuator.

Sensors report now and then. One that has been silent for ten minutes is reported, and again when it is
back. Of every sensor Spark keeps what the processor below tells it to keep, and a timer that fires when the
watermark has passed it. Time is that of the reports, not of a clock: a topic that is read again gives the
same notices.
"""

from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle, StreamingQuery

REPORT = "sensor STRING, at TIMESTAMP"
NOTICE = "sensor STRING, state STRING, since_ms LONG"
SILENCE_MS = 10 * 60 * 1000
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


class Watch(StatefulProcessor):
    """One sensor's last report, and whether it has been said that there are no more."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Before the first row of a batch."""
        self.handle = handle
        self.last = handle.getValueState("last", "at_ms LONG, is_silent BOOLEAN")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        """The reports of one sensor in a batch, in any order."""
        times = [row.at_ms for row in rows]
        known_ms, is_silent = self.last.get() or (0, False)
        if is_silent:
            yield Row(sensor=key[0], state="back", since_ms=min(times))
        elif known_ms:
            self.handle.deleteTimer(known_ms + SILENCE_MS)
        last_ms = max(known_ms, *times)
        self.last.update((last_ms, False))
        self.handle.registerTimer(last_ms + SILENCE_MS)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:
        """Nothing has come for ten minutes."""
        last_ms, _ = self.last.get() or (0, False)
        self.last.update((last_ms, True))
        yield Row(sensor=key[0], state="silent", since_ms=last_ms)


def notices(reports: DataFrame) -> DataFrame:
    """A row whenever a sensor falls silent or comes back."""
    return (
        reports.withWatermark("at", "1 minute")
        .withColumn("at_ms", sf.unix_millis("at"))
        .groupBy("sensor")
        .transformWithState(Watch(), outputStructType=NOTICE, outputMode="append", timeMode="EventTime")
        .select("sensor", "state", sf.timestamp_millis("since_ms").alias("since"))
    )


def pipeline(spark: SparkSession) -> StreamingQuery:
    """From `reports` to `notices`."""
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", ROCKSDB)  # custom state needs it
    records = (
        spark.readStream.format("moldau")
        .option("subscribe", "reports")
        .option("startingOffsets", "earliest")
        .load()
    )
    report = sf.from_json(sf.col("value").cast("string"), REPORT)
    return (
        notices(records.select(report.alias("report")).select("report.*").where("sensor IS NOT NULL"))
        .select(
            sf.col("sensor").alias("key"), sf.to_json(sf.struct("sensor", "state", "since")).alias("value")
        )
        .writeStream.queryName("notices")
        .outputMode("append")
        .format("moldau")
        .option("topic", "notices")
        .start()
    )
