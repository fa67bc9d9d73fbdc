"""The examples as people run them: their own topics on a real broker, fed and read by a plain client."""

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from moldau.client import LATEST, ConsumerRecord, NewTopic, connect_sync
from moldau.spark.pipelines.functions import call, wait_for_queries
from moldau.spark.pipelines.hooks import Setup, hooked
from moldau.spark.pipelines.projects import find_project
from moldau.testing import Cluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

EXAMPLES = Path(__file__).parents[3] / "examples" / "spark"

Value = Mapping[str, Any] | str | None


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


class Examples:
    """Runs examples as `moldau pipeline run` does, in the session that there is."""

    def __init__(self, spark: "SparkSession", broker: Cluster, folder: Path) -> None:
        self._spark = spark
        self._servers = broker.bootstrap_servers
        self._folder = folder

    @contextmanager
    def running(self, name: str) -> Iterator["StreamingQuery"]:
        """The query of an example, which ends with the block."""
        with self._hooked(name) as setup:
            (query,) = setup.queries
            try:
                yield query
            finally:
                query.stop()

    def run(self, name: str) -> None:
        """An example that ends by itself."""
        with self._hooked(name) as setup:
            wait_for_queries(setup.queries, is_stopping=lambda: False, sleep=time.sleep)

    @contextmanager
    def _hooked(self, name: str) -> Iterator[Setup]:
        project = find_project(str(EXAMPLES / f"{name}.py"))
        setup = Setup(
            name=project.name,
            checkpoints=self._folder,
            defaults={"kafka.bootstrap.servers": self._servers},
        )
        with hooked(setup):
            call(project, self._spark)
            yield setup


@pytest.fixture
def examples(spark: "SparkSession", broker: Cluster, tmp_path: Path) -> Iterator[Examples]:
    """The examples; a setting that one of them or its test makes is not there any more after it."""
    before = spark.conf.getAll
    # What these do for many rows is not worth its time for a handful.
    spark.conf.set("spark.sql.codegen.wholeStage", "false")
    spark.conf.set("spark.sql.shuffle.partitions", "1")
    yield Examples(spark, broker, tmp_path / "checkpoints")
    for name, value in spark.conf.getAll.items():
        if name not in before:
            spark.conf.unset(name)
        elif value != before[name]:
            spark.conf.set(name, before[name])


def _encoded(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def _decoded(data: bytes | None) -> Any:
    if data is None:
        return None
    try:
        return json.loads(data)
    except ValueError:
        return data.decode()
