"""Files to topics, and topics to files."""

from pathlib import Path
from typing import TYPE_CHECKING

from spark.examples.conftest import Examples, Topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_rows_of_files_of_three_formats_become_records(
    spark: "SparkSession", examples: Examples, topics: Topics, tmp_path: Path
) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    topics.create("orders", partitions=2)
    for name in ("csv", "json", "parquet"):
        (tmp_path / "incoming" / name).mkdir(parents=True)
    incoming = tmp_path / "incoming"
    (incoming / "csv" / "1.csv").write_text('id,customer,amount\nc1,"Ada, Countess",1.5\nc2,bob,\n')
    (incoming / "json" / "1.json").write_text('{"id": "j1", "customer": "bob", "amount": 2}\n{"id": "j2"}\n')
    table = pa.table({"id": ["p1", "p2"], "customer": ["cyd", "cyd"], "amount": [3.0, 4.0]})
    pq.write_table(table, incoming / "parquet" / "1.parquet")
    spark.conf.set("spark.orders.folder", str(incoming))
    with examples.running("files_to_topic") as query:
        query.processAllAvailable()
        first = topics.read_pairs("orders")
        assert sorted(first, key=lambda pair: pair[1]["id"]) == [
            ("Ada, Countess", {"id": "c1", "customer": "Ada, Countess", "amount": 1.5}),
            ("bob", {"id": "c2", "customer": "bob"}),
            ("bob", {"id": "j1", "customer": "bob", "amount": 2.0}),
            (None, {"id": "j2"}),
            ("cyd", {"id": "p1", "customer": "cyd", "amount": 3.0}),
            ("cyd", {"id": "p2", "customer": "cyd", "amount": 4.0}),
        ]
        (tmp_path / "2.json").write_text('{"id": "j3", "customer": "ada", "amount": 5}\n')
        (tmp_path / "2.json").rename(incoming / "json" / "2.json")
        query.processAllAvailable()
        values = topics.read_values("orders")
    assert len(values) == len(first) + 1
    assert sum(value["id"] == "j3" for value in values) == 1


def test_every_record_of_a_topic_is_one_row_of_the_table_however_often_it_runs(
    spark: "SparkSession", examples: Examples, topics: Topics, tmp_path: Path
) -> None:
    topics.create("clicks", partitions=2)
    path = str(tmp_path / "clicks.parquet")
    spark.conf.set("spark.clicks.path", path)
    pages = [f"/page/{number}" for number in range(40)]

    def run(hour: int) -> None:
        day = 1 + hour // 24
        at = f"2030-01-{day:02}T{hour % 24:02}:00:00Z"
        topics.write_pairs("clicks", *((page, {"page": page, "at": at}) for page in pages))
        examples.run("topic_to_parquet")

    run(hour=23)
    run(hour=24)
    rows = spark.read.parquet(path).collect()
    assert sorted((row.page, str(row.day)) for row in rows) == sorted(
        (page, day) for page in pages for day in ("2030-01-01", "2030-01-02")
    )
    assert len({(row.partition, row.offset) for row in rows}) == len(rows) == 80
    assert {row.partition for row in rows} == {0, 1}
