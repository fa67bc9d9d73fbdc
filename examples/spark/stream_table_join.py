"""Stream-table join: `orders.leftJoin(builder.table("customers"), ...)`.

Every order gets the name and city that its customer has when the order is processed. The table is a
compacted topic; it is read again for every micro-batch, so changes and tombstones count from the next one
on. That suits tables that are read in a second or two; custom_state.py shows how to keep what one knows
between the batches instead.
"""

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.streaming import StreamingQuery

from moldau.spark.tables import latest

ORDER = "id STRING, customer STRING, amount DECIMAL(12, 2)"
CUSTOMER = "name STRING, city STRING"


def with_customers(orders: DataFrame, customers: DataFrame) -> DataFrame:
    """Every order; name and city are null if there is no such customer. "inner" leaves such orders out."""
    return orders.join(customers, "customer", "left")


def pipeline(spark: SparkSession) -> StreamingQuery:
    """From `orders` and the table `customers` to `orders-enriched`."""
    reader = (
        spark.readStream.format("moldau").option("subscribe", "orders").option("startingOffsets", "earliest")
    )
    order = sf.from_json(sf.col("value").cast("string"), ORDER)
    orders = reader.load().select(order.alias("order")).select("order.*")

    def write(batch: DataFrame, batch_id: int) -> None:
        """Join and append the orders of one micro-batch."""
        records = spark.read.format("moldau").option("subscribe", "customers").load()
        customer = sf.from_json(sf.col("value").cast("string"), CUSTOMER)
        table = latest(records).select(sf.col("key").cast("string").alias("customer"), customer.alias("of"))
        rows = with_customers(batch, table.select("customer", "of.*"))
        value = sf.to_json(sf.struct("customer", "name", "city", "amount"))
        rows = rows.select(sf.col("id").alias("key"), value.alias("value"))
        rows.write.format("moldau").option("topic", "orders-enriched").mode("append").save()

    return orders.writeStream.queryName("orders-enriched").foreachBatch(write).start()
