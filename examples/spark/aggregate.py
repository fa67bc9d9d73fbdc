"""Aggregate: `orders.groupByKey().aggregate(...)`, a KTable of totals that is kept up to date.

Every customer has a record in `totals` with the number of orders, their sum and the largest. It is written
again whenever an order comes, under the same key; a compacted topic keeps the latest, and table.py reads it
as a table.
"""

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.streaming import StreamingQuery

ORDER = "customer STRING, amount DECIMAL(12, 2)"


def totals(orders: DataFrame) -> DataFrame:
    """One row for every customer. There is no window and no watermark: every customer is kept for ever."""
    return orders.groupBy("customer").agg(
        sf.count("*").alias("orders"),
        sf.sum("amount").alias("amount"),
        sf.max("amount").alias("largest"),
    )


def write(batch: DataFrame, batch_id: int) -> None:
    """Append what a micro-batch has changed: sinks in Python have Spark's mode "update" only this way."""
    batch.write.format("moldau").option("topic", "totals").mode("append").save()


def pipeline(spark: SparkSession) -> StreamingQuery:
    """From `orders` to `totals`."""
    records = (
        spark.readStream.format("moldau")
        .option("subscribe", "orders")
        .option("startingOffsets", "earliest")
        .load()
    )
    order = sf.from_json(sf.col("value").cast("string"), ORDER)
    orders = records.select(order.alias("order")).select("order.*").where("customer IS NOT NULL")
    rows = totals(orders).select(
        sf.col("customer").alias("key"), sf.to_json(sf.struct("orders", "amount", "largest")).alias("value")
    )
    return rows.writeStream.queryName("totals").outputMode("update").foreachBatch(write).start()
