"""Word count: `lines.flatMapValues(split).groupBy((key, word) -> word).count().toStream().to("word-counts")`.

Every line of the topic `lines` is cut into words, and every word has its count in `word-counts`, a record
whenever it changes. The word is the key, so a compacted topic keeps the latest count of each: that is a
KTable, as a topic.
"""

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.streaming import StreamingQuery


def word_counts(lines: DataFrame) -> DataFrame:
    """The count of every word in the column `line`."""
    words = lines.select(sf.explode(sf.split(sf.lower("line"), r"\W+")).alias("word"))
    return words.where("word != ''").groupBy("word").count()


def write(batch: DataFrame, batch_id: int) -> None:
    """Append what a micro-batch has changed: sinks in Python have Spark's mode "update" only this way."""
    batch.write.format("moldau").option("topic", "word-counts").mode("append").save()


def pipeline(spark: SparkSession) -> StreamingQuery:
    """From `lines` to `word-counts`."""
    records = (
        spark.readStream.format("moldau")
        .option("subscribe", "lines")
        .option("startingOffsets", "earliest")
        .load()
    )
    counts = word_counts(records.select(sf.col("value").cast("string").alias("line")))
    rows = counts.select(sf.col("word").alias("key"), sf.col("count").cast("string").alias("value"))
    return rows.writeStream.queryName("word-counts").outputMode("update").foreachBatch(write).start()
