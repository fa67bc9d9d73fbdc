"""Moments are seen in the files of queries."""

from pathlib import Path

import pytest
from spark.chaos import setup
from spark.chaos.plan import Moment
from spark.chaos.watching import Watch


class Files:
    """What a query and a broker would leave."""

    def __init__(self, folder: Path, query: str) -> None:
        self.folder, self.query = folder, query
        self.watch = Watch(folder, folder / "data", query)

    def touch(self, path: Path, data: bytes = b"") -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as file:
            file.write(data)

    def plan_batch(self, number: int) -> None:
        self.touch(setup.checkpoint(self.folder, self.query) / "offsets" / str(number))

    def commit_batch(self, number: int) -> None:
        self.touch(setup.checkpoint(self.folder, self.query) / "commits" / str(number))

    def log_batch(self, name: str) -> None:
        self.touch(setup.table(self.folder) / "_spark_metadata" / name)


@pytest.fixture
def copy(tmp_path: Path) -> Files:
    return Files(tmp_path, "copy")


@pytest.fixture
def table(tmp_path: Path) -> Files:
    return Files(tmp_path, "table")


def test_before_anything_is_there_no_batch_is_done(copy: Files) -> None:
    assert (copy.watch.planned(), copy.watch.committed()) == (-1, -1)
    assert copy.watch.sees(Moment.ANY).has_come()
    for moment in (Moment.BATCH, Moment.OFFSETS, Moment.WRITING, Moment.COMMITTED):
        assert not copy.watch.sees(moment).has_come()


def test_a_batch_runs_from_its_offsets_to_its_commit(copy: Files) -> None:
    sight = copy.watch.sees(Moment.BATCH)
    copy.plan_batch(0)
    assert sight.has_come()
    copy.commit_batch(0)
    assert not sight.has_come()
    copy.plan_batch(9)
    copy.plan_batch(10)
    assert copy.watch.planned() == 10
    assert sight.has_come()


def test_offsets_and_commits_are_seen_when_they_come_and_not_before(copy: Files) -> None:
    copy.plan_batch(0)
    copy.commit_batch(0)
    offsets, commits = copy.watch.sees(Moment.OFFSETS), copy.watch.sees(Moment.COMMITTED)
    # Spark writes them under another name first.
    copy.touch(setup.checkpoint(copy.folder, "copy") / "offsets" / ".1.tmp")
    assert not offsets.has_come()
    copy.plan_batch(1)
    assert offsets.has_come()
    assert not commits.has_come()
    copy.commit_batch(1)
    assert commits.has_come()


def test_a_topic_that_grows_is_written_to(copy: Files) -> None:
    log = copy.folder / "data" / "copy-1" / "00000000000000000000.log"
    copy.touch(log, b"batch")
    sight = copy.watch.sees(Moment.WRITING)
    assert not sight.has_come()
    copy.touch(log.with_suffix(".index"), b"index")
    copy.touch(copy.folder / "data" / "counts-0" / log.name, b"another topic")
    assert not sight.has_come()
    copy.touch(log, b"batch")
    assert sight.has_come()


def test_a_table_that_gets_a_file_is_written_to(table: Files) -> None:
    sight = table.watch.sees(Moment.WRITING)
    table.log_batch("0")
    assert not sight.has_come()
    table.touch(setup.table(table.folder) / "part-00000.snappy.parquet")
    assert sight.has_come()


@pytest.mark.parametrize("name", ["4", "4.compact"])
def test_the_log_of_a_table_is_seen_while_the_batch_is_not_done(table: Files, name: str) -> None:
    for number in range(4):
        table.plan_batch(number)
        table.log_batch(str(number))
        table.commit_batch(number)
    sight = table.watch.sees(Moment.LOGGED)
    table.plan_batch(4)
    assert not sight.has_come()
    table.log_batch(name)
    assert sight.has_come()
    again = table.watch.sees(Moment.LOGGED)
    table.log_batch("5")
    table.commit_batch(4)
    assert not again.has_come(), "too late"
