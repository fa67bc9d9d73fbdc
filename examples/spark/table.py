"""A compacted topic as a table: `builder.globalTable("customers")`, and queries of its store.

The latest value of every key is a row. A key whose latest value is null, a tombstone, has been deleted and
has none. Whoever queries it gets the table as the topic has it at that moment, whether the broker has
compacted it yet or not; but in a session without spark.sql.python.filterPushdown.enabled, which
`moldau pipeline run` turns on, as it was at the first query.
"""

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from moldau.spark.tables import latest

CUSTOMER = "name STRING, city STRING"


def customers(records: DataFrame) -> DataFrame:
    """The customers that there are now."""
    customer = sf.from_json(sf.col("value").cast("string"), CUSTOMER)
    rows = latest(records).select(sf.col("key").cast("string").alias("id"), customer.alias("customer"))
    return rows.select("id", "customer.*")


def pipeline(spark: SparkSession) -> None:
    """Show how many customers live where; this is a batch, and ends."""
    records = spark.read.format("moldau").option("subscribe", "customers").load()
    customers(records).createOrReplaceTempView("customers")
    spark.sql("SELECT city, count(*) AS customers FROM customers GROUP BY city ORDER BY city").show()
