"""Session windows: `groupByKey().windowedBy(SessionWindows.ofInactivityGapAndGrace(5 min, 10 min)).count()`.

What a visitor does without a pause of more than five minutes is one visit. An event that comes late may
join two visits into one, until the watermark has passed their end; then the visit is over, and written
once. (Kafka Streams writes visits that grow, and tombstones for those that were merged; here nobody sees a
visit before it is over.)
"""

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.streaming import StreamingQuery

VIEW = "visitor STRING, page STRING, at TIMESTAMP"


def visits(views: DataFrame) -> DataFrame:
    """One row for every visit; it lasts until five minutes after its last view."""
    visit = sf.session_window("at", "5 minutes").alias("visit")
    return (
        views.withWatermark("at", "10 minutes")
        .groupBy("visitor", visit)
        .agg(sf.count("*").alias("views"), sf.array_sort(sf.collect_set("page")).alias("pages"))
    )


def pipeline(spark: SparkSession) -> StreamingQuery:
    """From `views` to `visits`."""
    records = (
        spark.readStream.format("moldau")
        .option("subscribe", "views")
        .option("startingOffsets", "earliest")
        .load()
    )
    view = sf.from_json(sf.col("value").cast("string"), VIEW)
    return (
        visits(records.select(view.alias("view")).select("view.*"))
        .select(
            sf.col("visitor").alias("key"),
            sf.to_json(sf.struct("visit.start", "visit.end", "views", "pages")).alias("value"),
        )
        .writeStream.queryName("visits")
        .outputMode("append")  # the only mode that session windows have, besides "complete"
        .format("moldau")
        .option("topic", "visits")
        .start()
    )
