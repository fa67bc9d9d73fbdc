"""How a Python worker settles down."""

import gc
import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from types import ModuleType

import pytest

from moldau.spark.worker import settle


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
