"""From a topic to Parquet files: what a sink of Kafka Connect does, and what Kafka Streams leaves to it.

Every record of `clicks` becomes one row of a table in `clicks.parquet/`, in folders by day. Exactly one,
after crashes too: `_spark_metadata` there says which files count, and Spark reads no others. A run writes
what has come since the last one and ends, so that there are few large files; run it by the hour, or without
`availableNow` for ever.
"""

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.streaming import StreamingQuery

CLICK = "page STRING, at TIMESTAMP"


def rows(records: DataFrame) -> DataFrame:
    """A click and the place it came from, which makes it easy to say where a doubtful row is from."""
    click = sf.from_json(sf.col("value").cast("string"), CLICK)
    return records.select(
        click["page"].alias("page"),
        click["at"].alias("at"),
        sf.to_date(click["at"]).alias("day"),
        "partition",
        "offset",
    )


def pipeline(spark: SparkSession) -> StreamingQuery:
    """From `clicks` to a table of Parquet files; elsewhere with --set spark.clicks.path=..."""
    records = (
        spark.readStream.format("moldau")
        .option("subscribe", "clicks")
        .option("startingOffsets", "earliest")
        .load()
    )
    return (
        rows(records)
        .writeStream.queryName("clicks-to-parquet")
        .trigger(availableNow=True)
        .format("parquet")
        .partitionBy("day")
        .option("path", spark.conf.get("spark.clicks.path", "clicks.parquet"))
        .start()
    )
