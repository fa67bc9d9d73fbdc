"""How Spark finds the data source, and what that costs those who do not use it."""

import json
import pickle
import subprocess
import sys

import pytest
from pyspark.sql.datasource import CaseInsensitiveDict, DataSourceReader
from pyspark.sql.types import StructType

import pyspark_moldau
from moldau.spark.batch_source import BatchReader, FilteringReader, batch_reader
from moldau.spark.columns import source_schema
from moldau.spark.datasource import MoldauDataSource
from moldau.spark.stream_source import StreamReader

OPTIONS = CaseInsensitiveDict({"kafka.bootstrap.servers": "localhost:9092", "subscribe": "clicks"})
PUSHDOWN_WORKER = "pyspark.sql.worker.data_source_pushdown_filters"


def test_spark_finds_it_by_its_name() -> None:
    assert pyspark_moldau.DefaultSource.name() == "moldau"


def test_whoever_does_not_use_it_loads_little() -> None:
    script = (
        "import json, sys, pyspark.sql.datasource\n"
        "before = set(sys.modules)\n"
        "import pyspark_moldau\n"
        "print(json.dumps(sorted(set(sys.modules) - before)))"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    loaded = json.loads(run.stdout)
    assert "moldau.spark.datasource" in loaded
    heavy = ("asyncio", "pyarrow", "pandas", "numpy", "moldau.client", "moldau.wire")
    assert [name for name in loaded if name.startswith(heavy)] == []


def test_it_travels_to_spark_and_back_by_name() -> None:
    source = pickle.loads(pickle.dumps(MoldauDataSource(OPTIONS)))
    assert source.schema() == source_schema(with_headers=False)
    assert isinstance(source.streamReader(source.schema()), StreamReader)


def test_headers_are_a_column_when_asked_for() -> None:
    source = MoldauDataSource(CaseInsensitiveDict({**OPTIONS, "includeHeaders": "true"}))
    assert source.schema() == source_schema(with_headers=True)


def reader_of(schema: StructType) -> DataSourceReader:
    return MoldauDataSource(OPTIONS).reader(schema)


def test_spark_sees_no_way_to_push_filters_down_where_it_does_not_push_any() -> None:
    reader = reader_of(source_schema(with_headers=False))
    assert type(reader) is BatchReader
    # What Spark looks at before it refuses a query while pushing down is off.
    assert reader.pushFilters.__func__ is DataSourceReader.pushFilters  # type: ignore[attr-defined]


def test_spark_sees_one_where_it_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, PUSHDOWN_WORKER, sys.modules[__name__])
    assert type(batch_reader(source_schema(with_headers=False), OPTIONS)) is FilteringReader
