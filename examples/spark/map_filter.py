"""Map and filter: `readings.filter(isPlausible).mapValues(toFahrenheit).selectKey(sensor).to("fahrenheit")`.

JSON in, JSON out: `{"sensor": "attic", "celsius": 21.5}` becomes a record with the key `attic` and the
value `{"sensor": "attic", "fahrenheit": 70.7}`. Nothing is remembered from record to record, so nothing has
to be kept.
"""

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.streaming import StreamingQuery

READING = "sensor STRING, celsius DOUBLE"


def in_fahrenheit(readings: DataFrame) -> DataFrame:
    """The readings that can be true; what lacks a temperature cannot, for null is neither above nor below."""
    plausible = readings.where("celsius BETWEEN -90 AND 60")
    return plausible.select("sensor", sf.round(sf.col("celsius") * 9 / 5 + 32, 1).alias("fahrenheit"))


def pipeline(spark: SparkSession) -> StreamingQuery:
    """From `readings` to `fahrenheit`."""
    records = (
        spark.readStream.format("moldau")
        .option("subscribe", "readings")
        .option("startingOffsets", "earliest")
        .load()
    )
    # What is no JSON, or has another shape, becomes null; dead_letters.py keeps such records instead.
    reading = sf.from_json(sf.col("value").cast("string"), READING)
    readings = records.select(reading.alias("reading")).select("reading.*")
    return (
        in_fahrenheit(readings)
        .select(sf.col("sensor").alias("key"), sf.to_json(sf.struct("sensor", "fahrenheit")).alias("value"))
        .writeStream.queryName("fahrenheit")
        .format("moldau")
        .option("topic", "fahrenheit")
        .start()
    )
