"""Hopping windows: `windowedBy(TimeWindows.ofSizeAndGrace(10 min, 5 min).advanceBy(5 min)).aggregate(...)`.

The mean speed on every road over ten minutes, computed anew every five: each measurement is in two windows.
A window is written whenever it changes, so the first figures are there at once and late measurements
correct them, until the watermark has passed the end of the window. Road and window are the key, so a
compacted topic keeps the latest figure of each.
"""

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.streaming import StreamingQuery

MEASUREMENT = "road STRING, speed DOUBLE, at TIMESTAMP"


def mean_speeds(measurements: DataFrame) -> DataFrame:
    """One row for every road and window; the windows overlap."""
    window = sf.window("at", windowDuration="10 minutes", slideDuration="5 minutes")
    return (
        measurements.withWatermark("at", "5 minutes")
        .groupBy("road", window)
        .agg(sf.round(sf.avg("speed"), 1).alias("speed"), sf.count("*").alias("measurements"))
    )


def write(batch: DataFrame, batch_id: int) -> None:
    """Append what a micro-batch has changed: sinks in Python have Spark's mode "update" only this way."""
    batch.write.format("moldau").option("topic", "speeds").mode("append").save()


def pipeline(spark: SparkSession) -> StreamingQuery:
    """From `measurements` to `speeds`."""
    records = (
        spark.readStream.format("moldau")
        .option("subscribe", "measurements")
        .option("startingOffsets", "earliest")
        .load()
    )
    measurement = sf.from_json(sf.col("value").cast("string"), MEASUREMENT)
    speeds = mean_speeds(records.select(measurement.alias("measurement")).select("measurement.*"))
    rows = speeds.select(
        sf.to_json(sf.struct("road", "window.start", "window.end")).alias("key"),
        sf.to_json(sf.struct("speed", "measurements")).alias("value"),
    )
    return rows.writeStream.queryName("speeds").outputMode("update").foreachBatch(write).start()
