"""Tumbling windows: `windowedBy(TimeWindows.ofSizeAndGrace(1 min, 2 min)).count().suppress(...)`.

Clicks are counted by page and by the minute in which they happened. The watermark is two minutes behind the
latest click that was seen. A click that comes late is counted as long as its minute ends after the
watermark; then the minute is closed, its counts are written, once, and what comes still later is dropped.
"""

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.streaming import StreamingQuery

CLICK = "page STRING, at TIMESTAMP"


def clicks_per_minute(clicks: DataFrame) -> DataFrame:
    """One row for every page and minute."""
    minute = sf.window("at", "1 minute")
    return clicks.withWatermark("at", "2 minutes").groupBy(minute, "page").count()


def pipeline(spark: SparkSession) -> StreamingQuery:
    """From `clicks` to `clicks-per-minute`."""
    records = (
        spark.readStream.format("moldau")
        .option("subscribe", "clicks")
        .option("startingOffsets", "earliest")
        .load()
    )
    click = sf.from_json(sf.col("value").cast("string"), CLICK)
    counts = clicks_per_minute(records.select(click.alias("click")).select("click.*"))
    return (
        counts.select(
            sf.col("page").alias("key"),
            sf.to_json(sf.struct("page", sf.col("window.start").alias("minute"), "count")).alias("value"),
        )
        .writeStream.queryName("clicks-per-minute")
        .outputMode("append")  # a window when it is closed; "update" would be every change, without suppress
        .format("moldau")
        .option("topic", "clicks-per-minute")
        .start()
    )
