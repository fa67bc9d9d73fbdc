"""How a Python worker settles down."""

import gc
import pickle
import socket
import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from types import ModuleType

import pytest

from moldau.spark import worker
from moldau.spark.worker import SentWithTasks, settle


@pytest.fixture(autouse=True)
def unfrozen() -> Iterator[None]:
    gc.unfreeze()
    settle.cache_clear()
    yield
    gc.unfreeze()
    settle.cache_clear()


def pretend_to_be(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    main = ModuleType("__main__")
    main.__spec__ = ModuleSpec(module, None)
    monkeypatch.setitem(sys.modules, "__main__", main)


def test_a_worker_of_spark_keeps_what_it_has_loaded_from_the_collector(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pretend_to_be("pyspark.daemon", monkeypatch)
    settle()
    frozen = gc.get_freeze_count()
    assert frozen > 1_000
    # Once: what a later task makes is garbage some day.
    kept: list[list[int]] = [[] for _ in range(10_000)]
    settle()
    assert gc.get_freeze_count() <= frozen
    del kept


@pytest.mark.parametrize("module", ["pytest.__main__", "pyspark.sql.worker.plan_data_source_read"])
def test_other_processes_are_left_alone(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_to_be(module, monkeypatch)
    settle()
    assert gc.get_freeze_count() == 0


@pytest.fixture
def from_spark() -> Iterator[socket.socket]:
    """A connection whose acknowledgements are in no hurry."""
    worker._connections_to_spark.cache_clear()
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()[:2]),
        server.accept()[0] as accepted,
    ):
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 0)
        yield accepted
    for each in worker._connections_to_spark():
        each.close()
    worker._connections_to_spark.cache_clear()


class Sent(SentWithTasks):
    def __init__(self) -> None:
        self.what = "to do"


def is_hurried(connection: socket.socket) -> bool:
    return connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK) == 1


@pytest.mark.skipif(not hasattr(socket, "TCP_QUICKACK"), reason="acknowledgements are hurried on Linux only")
def test_what_comes_with_a_task_hurries_the_acknowledgements_to_spark(
    from_spark: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend_to_be("pyspark.daemon", monkeypatch)
    assert not is_hurried(from_spark)
    sent = pickle.dumps(Sent())
    assert pickle.loads(sent).what == "to do"
    assert is_hurried(from_spark)
    # With every task: Linux goes back to being slow by itself.
    from_spark.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 0)
    pickle.loads(sent)
    assert is_hurried(from_spark)


@pytest.mark.skipif(not hasattr(socket, "TCP_QUICKACK"), reason="acknowledgements are hurried on Linux only")
def test_the_connections_of_other_processes_are_left_alone(from_spark: socket.socket) -> None:
    assert pickle.loads(pickle.dumps(Sent())).what == "to do"
    assert not is_hurried(from_spark)
