"""From files to a topic: what a source of Kafka Connect does.

CSV, JSON-lines and Parquet files that appear in the folders `incoming/csv`, `incoming/json` and
`incoming/parquet` become records of `orders`, one for each row, as JSON under the customer's name. Each
file is read once; let files appear there whole, by moving them. Make the folders first: `mkdir -p
incoming/{csv,json,parquet}`.
"""

from functools import reduce

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.streaming import StreamingQuery

ORDER = "id STRING, customer STRING, amount DOUBLE"
# Spark takes the columns of CSV by position; this lets it fail where a header says something else.
FORMATS = {"csv": {"header": "true", "enforceSchema": "false"}, "json": {}, "parquet": {}}


def orders(spark: SparkSession, folder: str) -> DataFrame:
    """The rows of all files, as a stream."""
    streams = [
        spark.readStream.format(name).schema(ORDER).options(**options).load(f"{folder}/{name}")
        for name, options in FORMATS.items()
    ]
    return reduce(DataFrame.unionByName, streams)


def pipeline(spark: SparkSession) -> StreamingQuery:
    """From files to `orders`; from elsewhere with --set spark.orders.folder=..."""
    return (
        orders(spark, str(spark.conf.get("spark.orders.folder", "incoming")))
        .select(
            sf.col("customer").alias("key"), sf.to_json(sf.struct("id", "customer", "amount")).alias("value")
        )
        .writeStream.queryName("files-to-orders")
        .format("moldau")
        .option("topic", "orders")
        .start()
    )
