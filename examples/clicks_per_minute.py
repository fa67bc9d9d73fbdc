"""A pipeline: clicks by page and minute, into a compacted topic and into a table of Parquet files.

    moldau pipeline run examples/clicks_per_minute.py --set spark.clicks.table=file:///data/clicks-per-minute

It reads the topic `clicks`, whose values are JSON: {"id": 7, "page": "/home", "at": "2030-05-17T12:00:04Z"}.
"""

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf

CLICK = "id BIGINT, page STRING, at TIMESTAMP"
# A click may come two minutes, by its own clock, behind the latest one; then its minute is over.
LATENESS = "2 minutes"


def pipeline(spark: SparkSession) -> None:
    """Start both queries; `moldau pipeline run` sees to the rest."""
    table = str(spark.conf.get("spark.clicks.table", "clicks-per-minute"))
    write_table(clicks_per_minute(read_clicks(spark)), table)
    write_topic(clicks_per_minute(read_clicks(spark)), "clicks-per-minute")


def read_clicks(spark: SparkSession) -> DataFrame:
    """Rows of `id`, `page` and `at`."""
    records = spark.readStream.format("moldau").option("subscribe", "clicks")
    click = sf.from_json(sf.col("value").cast("string"), CLICK)
    return records.option("startingOffsets", "earliest").load().select(click.alias("click")).select("click.*")


def clicks_per_minute(clicks: DataFrame) -> DataFrame:
    """Rows of `page`, `minute` and `clicks`, by the time that stands in the click."""
    window = sf.window("at", "1 minute")
    counts = clicks.withWatermark("at", LATENESS).groupBy(window.alias("window"), "page")
    return counts.agg(sf.count("*").alias("clicks")).select(
        "page", sf.col("window.start").alias("minute"), "clicks"
    )


def write_table(counts: DataFrame, path: str) -> None:
    """Each count once, when its minute is over: Spark writes each micro-batch of Parquet exactly once."""
    counts.writeStream.queryName("table").outputMode("append").format("parquet").option("path", path).start()


def write_topic(counts: DataFrame, topic: str) -> None:
    """Each count as it grows: the last value of a key is what counts, and compaction keeps no other."""

    def write(batch: DataFrame, number: int) -> None:
        # Data sources in Python cannot be written to in update mode, except batch by batch.
        batch.write.format("moldau").mode("append").option("topic", topic).save()

    records = counts.select(json("page", "minute").alias("key"), json("clicks").alias("value"))
    records.writeStream.queryName("topic").outputMode("update").foreachBatch(write).start()


def json(*columns: str) -> Column:
    """These columns as a JSON object."""
    return sf.to_json(sf.struct(*columns))
