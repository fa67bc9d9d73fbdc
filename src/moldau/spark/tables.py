"""A compacted topic as a table: the latest value of every key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_NEEDED: Final = ("key", "value", "offset")


def latest(records: DataFrame) -> DataFrame:
    """The last record of every key, and none for a key whose last record is a tombstone.

    For a batch read from the beginning of a topic, with the columns that are left of it. As in compaction,
    last means the highest offset, whatever the timestamps say. A record without a key cannot be replaced,
    and is in no table.
    """
    from pyspark.sql.functions import col, max_by, struct

    lacking = [name for name in _NEEDED if name not in records.columns]
    if lacking:
        raise ValueError(
            f"The latest values need the column {lacking[0]}, and there is {', '.join(records.columns)}."
        )
    if records.isStreaming:
        raise ValueError("The latest values are those of a batch: use spark.read, for a stream has no end.")
    whole = [name for name in ("topic", "key") if name in records.columns]
    rest = struct(*(name for name in records.columns if name not in whole))
    newest = records.where(col("key").isNotNull()).groupBy(*whole).agg(max_by(rest, "offset").alias("newest"))
    rows = newest.select(*whole, "newest.*").where(col("value").isNotNull())
    return rows.select(*records.columns)
