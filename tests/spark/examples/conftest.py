"""The examples as people run them: their own topics on a real broker, fed and read by a plain client."""

import importlib.util
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

from moldau.client import LATEST, ConsumerRecord, NewTopic, connect_sync
from moldau.testing import Cluster

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

EXAMPLES = Path(__file__).parents[3] / "examples" / "spark"

Value = Mapping[str, Any] | str | None


def example(name: str) -> ModuleType:
    """An example, loaded from its file."""
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None, f"there is no example {name}"
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Topics:
    """The topics of one test, under the names that the example gives them."""

    def __init__(self, broker: Cluster) -> None:
        self._client = connect_sync(broker.bootstrap_servers)
        self._names: list[str] = []

    def create(self, *names: str, partitions: int = 1, **configs: str) -> None:
        """New topics; the names of settings may have "_" for "."."""
        settings = {name.replace("_", "."): value for name, value in configs.items()}
        self._client.admin.create_topics(
            *(NewTopic(name, partitions=partitions, configs=settings) for name in names)
        )
        self._names += names

    def write(self, topic: str, *values: Value, key: str | None = None) -> None:
        """Records, in this order."""
        self.write_pairs(topic, *((key, value) for value in values))

    def write_pairs(self, topic: str, *pairs: tuple[str | None, Value]) -> None:
        """Records with keys, in this order within a partition."""
        with self._client.producer() as producer:
            for key, value in pairs:
                text = value if isinstance(value, str) or value is None else json.dumps(value)
                producer.send(topic, _encoded(text), key=_encoded(key))

    def read(self, topic: str) -> list[ConsumerRecord]:
        """All records of a topic, each partition in its order."""
        ends = self._client.admin.list_offsets(
            {(topic, index): LATEST for index in self._client.admin.describe_topics(topic)[topic].partitions}
        )
        left = sum(row.offset for row in ends.values())
        with self._client.consumer([topic], auto_offset_reset="earliest") as consumer:
            return list(islice(consumer, left))

    def read_pairs(self, topic: str) -> list[tuple[Any, Any]]:
        """The same, as keys and values; what is JSON is decoded."""
        return [(_decoded(record.key), _decoded(record.value)) for record in self.read(topic)]

    def read_values(self, topic: str) -> list[Any]:
        """The same, as values."""
        return [_decoded(record.value) for record in self.read(topic)]

    def close(self) -> None:
        if self._names:
            self._client.admin.delete_topics(*self._names)
        self._client.close()


@pytest.fixture
def topics(broker: Cluster) -> Iterator[Topics]:
    """Topics that are gone after the test."""
    made = Topics(broker)
    yield made
    made.close()


@pytest.fixture(autouse=True)
def settings(spark: "SparkSession", tmp_path: Path) -> Iterator[None]:
    """Checkpoints of its own for every test; and what an example sets is not set after it."""
    before = spark.conf.getAll
    spark.conf.set("spark.sql.streaming.checkpointLocation", str(tmp_path / "checkpoints"))
    yield
    for name, value in spark.conf.getAll.items():
        if name not in before:
            spark.conf.unset(name)
        elif value != before[name]:
            spark.conf.set(name, before[name])


@contextmanager
def running(query: "StreamingQuery") -> Iterator["StreamingQuery"]:
    """A query, and its end."""
    try:
        yield query
    finally:
        query.stop()


def _encoded(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def _decoded(data: bytes | None) -> Any:
    if data is None:
        return None
    try:
        return json.loads(data)
    except ValueError:
        return data.decode()


# INTERIM
@pytest.fixture(autouse=True)
def default_servers(broker, monkeypatch):
    from pyspark.sql import DataFrameReader, DataFrameWriter
    from pyspark.sql.streaming import DataStreamReader, DataStreamWriter

    for kind in (DataFrameReader, DataFrameWriter, DataStreamReader, DataStreamWriter):

        def format(self, source, original=kind.format):
            original(self, source)
            return (
                self.option("kafka.bootstrap.servers", broker.bootstrap_servers)
                if source == "moldau"
                else self
            )

        monkeypatch.setattr(kind, "format", format)
