"""The format `moldau` with a stopwatch: what Spark's tasks spend in Moldau's code rather than in Spark's.

Each task appends a line to a file: the seconds that Spark waited for us, those that we waited for Spark, and
our CPU seconds, which are the Python worker's but for those of its main thread in Spark's code.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceWriter,
    InputPartition,
    WriterCommitMessage,
)

from moldau.spark.datasource import MoldauDataSource

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

NAME = "moldau-timed"
FOLDER = "timings"


class TimedSource(MoldauDataSource):
    """`moldau`, with an option `timings` for the folder where times go."""

    @classmethod
    def name(cls) -> str:
        """What stands in `format`."""
        return NAME

    def reader(self, schema: StructType) -> DataSourceReader:
        """Reads, and takes the time."""
        return TimedReader(super().reader(schema), self.options[FOLDER])

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Writes, and takes the time."""
        return TimedWriter(super().writer(schema, overwrite), self.options[FOLDER])


class Stopwatch:
    """Runs on for us or for Spark, for as long as a task takes."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._ours = self._theirs = self._their_cpu = 0.0
        self._since, self._cpu_since = time.perf_counter(), time.thread_time()
        self._cpu_began = time.process_time()

    def hand_over(self, *, to_spark: bool) -> None:
        """What has passed since the last call was the other's."""
        now, cpu_now = time.perf_counter(), time.thread_time()
        if to_spark:
            self._ours += now - self._since
        else:
            self._theirs += now - self._since
            self._their_cpu += cpu_now - self._cpu_since
        self._since, self._cpu_since = now, cpu_now

    def note(self) -> None:
        """Append what the task has spent."""
        our_cpu = time.process_time() - self._cpu_began - self._their_cpu
        # Lines of this length are written at once.
        with open(Path(self._folder) / f"{os.getpid()}.jsonl", "a") as file:
            file.write(json.dumps([self._ours, self._theirs, our_cpu]) + "\n")


class TimedReader(DataSourceReader):
    """A reader whose batches are waited for with a stopwatch."""

    def __init__(self, inner: DataSourceReader, folder: str) -> None:
        self._inner = inner
        self._folder = folder

    def partitions(self) -> Sequence[InputPartition]:
        """Those of the inner reader."""
        return self._inner.partitions()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The batches of the inner reader."""
        watch = Stopwatch(self._folder)
        for batch in self._inner.read(partition):
            watch.hand_over(to_spark=True)
            yield batch
            watch.hand_over(to_spark=False)
        watch.hand_over(to_spark=True)
        watch.note()


class TimedWriter(DataSourceArrowWriter):
    """A writer that waits for its batches with a stopwatch."""

    def __init__(self, inner: DataSourceWriter, folder: str) -> None:
        self._inner = inner
        self._folder = folder

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """What the inner writer does."""
        watch = Stopwatch(self._folder)

        def waited_for() -> Iterator[pa.RecordBatch]:
            watch.hand_over(to_spark=True)
            for batch in iterator:
                watch.hand_over(to_spark=False)
                yield batch
                watch.hand_over(to_spark=True)
            watch.hand_over(to_spark=False)

        message = self._inner.write(waited_for())
        watch.hand_over(to_spark=True)
        watch.note()
        return message

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """What the inner writer does."""
        self._inner.commit(messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """What the inner writer does."""
        self._inner.abort(messages)


def spent(folder: Path) -> tuple[float, float, float]:
    """Of all tasks: seconds in our code and in Spark's, and our CPU seconds."""
    lines = [json.loads(line) for path in folder.glob("*.jsonl") for line in path.read_text().splitlines()]
    ours, theirs, our_cpu = map(sum, zip(*lines, strict=True))
    return ours, theirs, our_cpu
