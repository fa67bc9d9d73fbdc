"""Where Spark looks for data sources: in every `pyspark_*`, so `format("moldau")` needs no registration."""

from moldau.spark.datasource import MoldauDataSource as DefaultSource

__all__ = ["DefaultSource"]
