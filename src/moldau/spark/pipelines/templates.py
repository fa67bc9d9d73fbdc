"""What `moldau pipeline init` writes: for each kind, a small pipeline that works as it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_FUNCTION: Final = '''\
"""Clicks by page and minute, from the topic clicks to the topic click-counts."""

from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

CLICK = "page STRING, at TIMESTAMP"


def pipeline(spark: SparkSession) -> None:
    """Start the queries; whoever runs this waits for them, shows their progress and stops them."""
    records = (
        spark.readStream.format("moldau")
        .option("subscribe", "clicks")
        .option("startingOffsets", "earliest")
        .load()
    )
    click = sf.from_json(sf.col("value").cast("string"), CLICK)
    clicks = records.select(click.alias("click")).select("click.*")
    counts = (
        clicks.withWatermark("at", "1 minute")
        .groupBy(sf.window("at", "1 minute").alias("window"), "page")
        .count()
    )
    rows = counts.select(
        sf.to_json(sf.struct("page", sf.col("window.start").alias("minute"))).alias("key"),
        sf.to_json(sf.struct("count")).alias("value"),
    )
    # A count is written once, when its minute is over. The name says where the checkpoint is, so let it stay.
    rows.writeStream.queryName("counts").format("moldau").option("topic", "click-counts").start()
'''

_DECLARATIVE: Final = '''\
"""Clicks by page and minute, as a graph: a stream of clicks, a table of them, and a topic of counts."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

spark: SparkSession  # given by whoever runs the pipeline

CLICK = "page STRING, at TIMESTAMP"

dp.create_sink("click_counts_topic", "moldau", {"topic": "click-counts"})


def read_clicks() -> DataFrame:
    """What is in the topic clicks, as columns."""
    records = (
        spark.readStream.format("moldau")
        .option("subscribe", "clicks")
        .option("startingOffsets", "earliest")
        .load()
    )
    click = sf.from_json(sf.col("value").cast("string"), CLICK)
    return records.select(click.alias("click")).select("click.*")


@dp.table
def clicks() -> DataFrame:
    """Every click, in a table of Parquet files."""
    return read_clicks()


@dp.append_flow(target="click_counts_topic")
def counts() -> DataFrame:
    """A count for every page and minute, once the minute is over."""
    # Not from the table above: Spark looks for what has a watermark before the graph is complete.
    return (
        read_clicks()
        .withWatermark("at", "1 minute")
        .groupBy(sf.window("at", "1 minute").alias("window"), "page")
        .count()
        .select(
            sf.to_json(sf.struct("page", sf.col("window.start").alias("minute"))).alias("key"),
            sf.to_json(sf.struct("count")).alias("value"),
        )
    )


@dp.materialized_view
def pages() -> DataFrame:
    """How often each page was clicked; computed anew by every update."""
    return spark.read.table("clicks").groupBy("page").count()
'''

_SQL: Final = """\
-- Clicks by page and minute, from the topic clicks to the topic click-counts.

CREATE TEMPORARY VIEW records USING moldau OPTIONS (subscribe 'clicks', startingOffsets 'earliest');

-- Every click, in a table of Parquet files.
CREATE STREAMING TABLE clicks AS
SELECT click.page, click.at
FROM (SELECT from_json(CAST(value AS STRING), 'page STRING, at TIMESTAMP') AS click FROM STREAM records);

-- How often each page was clicked; computed anew by every update.
CREATE MATERIALIZED VIEW pages AS
SELECT page, count(*) AS count FROM clicks GROUP BY page;

-- A count for every page and minute, once the minute is over.
CREATE TABLE click_counts_topic USING moldau OPTIONS (topic 'click-counts');

CREATE FLOW counts AS INSERT INTO click_counts_topic BY NAME
SELECT
  to_json(struct(page, window.start AS minute)) AS key,
  to_json(struct(count(*) AS count)) AS value
FROM STREAM clicks WATERMARK at DELAY OF INTERVAL 1 MINUTE
GROUP BY page, window(at, '1 minute');
"""

_SPEC: Final = """\
# A pipeline of Spark's, which `spark-pipelines run` understands too if `storage` is given: the URL of a
# directory for checkpoints. Without it they are in moldau-pipelines/, with the tables.
name: {name}
libraries:
  - glob:
      include: transformations/**
# configuration:
#   spark.sql.shuffle.partitions: "2"
"""

_README: Final = """\
# {name}

```sh
moldau dev                                     # in a shell of its own: a broker, if there is none
moldau topic create clicks -p 2
moldau topic create click-counts -p 2 -c cleanup.policy=compact
moldau pipeline validate {name}
moldau pipeline run {name}                     # Ctrl-C stops it, and it goes on from there
```

Some clicks, from another shell:

```sh
moldau produce clicks '{{"page": "/home", "at": "2030-01-01T12:00:10Z"}}'
moldau produce clicks '{{"page": "/home", "at": "2030-01-01T12:05:00Z"}}'
moldau consume click-counts -f --from beginning --format '%k %s\\n'
moldau pipeline status {name}
```
"""

KINDS: Final = ("function", "declarative", "sql")


def project_files(kind: str, name: str) -> Mapping[str, str]:
    """The files of a new project, by path."""
    readme = {"README.md": _README.format(name=name)}
    spec = {"spark-pipeline.yml": _SPEC.format(name=name)}
    match kind:
        case "function":
            return {"pipeline.py": _FUNCTION, **readme}
        case "declarative":
            return {**spec, "transformations/clicks.py": _DECLARATIVE, **readme}
        case "sql":
            return {**spec, "transformations/clicks.sql": _SQL, **readme}
    raise ValueError(f"There is no kind {kind!r}.")
