"""Deduplication: a processor with a window store of the ids that it has seen.

Events that come twice, because whoever sent them tried again, go on once. An id is remembered until the
watermark, an hour behind the latest event, is an hour past its event. So what is sent again within an hour
is always recognised, and what is remembered does not grow for ever.
"""

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.streaming import StreamingQuery

EVENT = "id STRING, at TIMESTAMP"


def distinct(events: DataFrame) -> DataFrame:
    """The first event of every id."""
    return events.withWatermark("at", "1 hour").dropDuplicatesWithinWatermark(["id"])


def pipeline(spark: SparkSession) -> StreamingQuery:
    """From `events` to `events-once`, keys and values as they are."""
    records = (
        spark.readStream.format("moldau")
        .option("subscribe", "events")
        .option("startingOffsets", "earliest")
        .load()
    )
    event = sf.from_json(sf.col("value").cast("string"), EVENT)
    events = records.select("key", "value", event.alias("event")).select("key", "value", "event.*")
    return (
        distinct(events)
        .select("key", "value")
        .writeStream.queryName("events-once")
        .format("moldau")
        .option("topic", "events-once")
        .start()
    )
