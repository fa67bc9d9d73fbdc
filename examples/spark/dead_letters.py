"""Dead letters: a `DeserializationExceptionHandler` that sends what it cannot read to a topic, and goes on.

Payments that are JSON of the right shape go to `payments-checked`. All others go to `payments-dead`, as
they came, with headers that say where they were and what was wrong, so that they can be looked at, mended
and sent again.
"""

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.streaming import StreamingQuery

# The last field is Spark's: the text, if it does not fit the others.
PAYMENT = "id STRING, amount DECIMAL(12, 2), _corrupt_record STRING"


def checked(records: DataFrame) -> DataFrame:
    """Every record with the topic it belongs to, and headers if that is the dead letters."""
    payment = sf.from_json(sf.col("value").cast("string"), PAYMENT)
    wrong = (
        sf.when(sf.col("value").isNull(), "no value")
        .when(payment["_corrupt_record"].isNotNull(), "not the JSON of a payment")
        .when(payment["id"].isNull(), "no id")
        .when(payment["amount"].isNull(), "no amount")
    )
    headers = sf.array(
        header("error", sf.col("wrong")),
        header("topic", sf.col("topic")),
        header("partition", sf.col("partition")),
        header("offset", sf.col("offset")),
    )
    return records.withColumn("wrong", wrong).select(
        sf.when(sf.col("wrong").isNull(), "payments-checked").otherwise("payments-dead").alias("topic"),
        "key",
        "value",
        sf.when(sf.col("wrong").isNotNull(), headers).alias("headers"),
    )


def header(name: str, value: Column) -> Column:
    """A header of a record, with its value as text."""
    return sf.struct(sf.lit(name).alias("key"), value.cast("string").cast("binary").alias("value"))


def pipeline(spark: SparkSession) -> StreamingQuery:
    """From `payments` to `payments-checked` and `payments-dead`."""
    records = (
        spark.readStream.format("moldau")
        .option("subscribe", "payments")
        .option("startingOffsets", "earliest")
        .load()
    )
    writer = checked(records).writeStream.queryName("payments").format("moldau")
    return writer.option("includeHeaders", "true").start()
