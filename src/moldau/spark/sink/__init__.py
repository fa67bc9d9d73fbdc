"""Rows into topics: what `write` and `writeStream` do for the format `moldau`."""

from moldau.spark.sink.writers import BatchSink, StreamSink

__all__ = ["BatchSink", "StreamSink"]
