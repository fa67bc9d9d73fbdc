"""Stream-stream join: `orders.leftJoin(payments, ..., JoinWindows.ofTimeDifferenceAndGrace(30 min, 10 min))`.

Every order meets the payments for it that were made within half an hour of it. One that nobody has paid by
then is written without a payment, as soon as the watermark says that none can come any more. Both sides are
kept until then and no longer, which is why both have a watermark and the times are part of the condition.
"""

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.streaming import StreamingQuery

ORDER = "id STRING, amount DECIMAL(12, 2), at TIMESTAMP"
PAYMENT = "order_id STRING, method STRING, at TIMESTAMP"


def with_payments(orders: DataFrame, payments: DataFrame) -> DataFrame:
    """A row for every order and payment of it, or for an order that has none; "inner" leaves those out."""
    left = orders.withColumnRenamed("at", "ordered_at").withWatermark("ordered_at", "10 minutes")
    right = payments.withColumnRenamed("at", "paid_at").withWatermark("paid_at", "10 minutes")
    matches = sf.expr("id = order_id AND paid_at BETWEEN ordered_at AND ordered_at + INTERVAL 30 MINUTES")
    return left.join(right, matches, "leftOuter")


def pipeline(spark: SparkSession) -> StreamingQuery:
    """From `orders` and `payments` to `orders-paid`."""

    def values(topic: str, schema: str) -> DataFrame:
        reader = spark.readStream.format("moldau").option("subscribe", topic)
        records = reader.option("startingOffsets", "earliest").load()
        return records.select(sf.from_json(sf.col("value").cast("string"), schema).alias("value")).select(
            "value.*"
        )

    return (
        with_payments(values("orders", ORDER), values("payments", PAYMENT))
        .select(
            sf.col("id").alias("key"),
            sf.to_json(sf.struct("amount", "method", "ordered_at", "paid_at")).alias("value"),
        )
        .writeStream.queryName("orders-paid")
        .outputMode("append")
        .format("moldau")
        .option("topic", "orders-paid")
        .start()
    )
