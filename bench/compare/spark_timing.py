"""How long Spark's tasks spend in Moldau's code rather than in Spark's: the format `moldau`, with a stopwatch.

Each task appends a line to a file: the seconds that Spark waited for us, and those that we waited for Spark.
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
        began = time.perf_counter()
        batches = self._inner.read(partition)
        ours, theirs = time.perf_counter() - began, 0.0
        while True:
            began = time.perf_counter()
            batch = next(batches, None)
            taken = time.perf_counter()
            ours += taken - began
            if batch is None:
                break
            yield batch
            theirs += time.perf_counter() - taken
        note(self._folder, ours=ours, theirs=theirs)


class TimedWriter(DataSourceArrowWriter):
    """A writer that waits for its batches with a stopwatch."""

    def __init__(self, inner: DataSourceWriter, folder: str) -> None:
        self._inner = inner
        self._folder = folder

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """What the inner writer does."""
        theirs = 0.0

        def waited_for() -> Iterator[pa.RecordBatch]:
            nonlocal theirs
            while True:
                began = time.perf_counter()
                batch = next(iterator, None)
                theirs += time.perf_counter() - began
                if batch is None:
                    return
                yield batch

        began = time.perf_counter()
        message = self._inner.write(waited_for())
        note(self._folder, ours=time.perf_counter() - began - theirs, theirs=theirs)
        return message

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """What the inner writer does."""
        self._inner.commit(messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """What the inner writer does."""
        self._inner.abort(messages)


def note(folder: str, *, ours: float, theirs: float) -> None:
    """Append what a task has spent; lines of this length are written at once."""
    with open(Path(folder) / f"{os.getpid()}.jsonl", "a") as file:
        file.write(json.dumps([ours, theirs]) + "\n")


def share_of(folder: Path) -> float:
    """Which part of all tasks' time was ours; what was noted is gone then."""
    ours = theirs = 0.0
    for path in folder.glob("*.jsonl"):
        for line in path.read_text().splitlines():
            our, their = json.loads(line)
            ours, theirs = ours + our, theirs + their
        path.unlink()
    return ours / (ours + theirs)
