"""Branch and merge: `web.merge(app).split().branch(isLarge, ...).defaultBranch(...)`.

The orders of two topics become one stream, and each goes to a topic by its amount. A column `topic` says
where a row goes, so one query writes to all branches and reads its input once.
"""

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.streaming import StreamingQuery

ORDER = "amount DOUBLE"
LARGE = 1000


def merged(web: DataFrame, app: DataFrame) -> DataFrame:
    """Both streams as one, with where each order came from."""
    # If nobody asks where: .option("subscribe", "orders-web,orders-app") reads both as one.
    return web.withColumn("origin", sf.lit("web")).unionByName(app.withColumn("origin", sf.lit("app")))


def branched(orders: DataFrame) -> DataFrame:
    """The same rows, with the topic of the first branch that wants them."""
    order = sf.from_json(sf.col("value").cast("string"), ORDER)
    return orders.select(
        sf.when(order["amount"] >= LARGE, "orders-large").otherwise("orders-other").alias("topic"),
        "key",
        "value",
        sf.array(
            sf.struct(sf.lit("origin").alias("key"), sf.col("origin").cast("binary").alias("value"))
        ).alias("headers"),
    )


def pipeline(spark: SparkSession) -> StreamingQuery:
    """From `orders-web` and `orders-app` to `orders-large` and `orders-other`."""

    def records(topic: str) -> DataFrame:
        reader = spark.readStream.format("moldau").option("subscribe", topic)
        return reader.option("startingOffsets", "earliest").load().select("key", "value")

    return (
        branched(merged(records("orders-web"), records("orders-app")))
        .writeStream.queryName("branches")
        .format("moldau")
        .option("includeHeaders", "true")
        .start()
    )
