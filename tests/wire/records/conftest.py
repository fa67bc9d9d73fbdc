"""Both kernels, so that every statement about one is a statement about the other."""

import importlib
from types import ModuleType

import pytest


def load_compiled() -> ModuleType:
    try:
        return importlib.import_module("moldau.wire.records._kernel")
    except ImportError as why:
        pytest.skip(f"the compiled kernel is not there: {why}")


@pytest.fixture(params=["compiled", "pure"])
def kernel(request: pytest.FixtureRequest) -> ModuleType:
    """The compiled kernel, then its twin."""
    if request.param == "compiled":
        return load_compiled()
    return importlib.import_module("moldau.wire.records.pure")


@pytest.fixture
def compiled() -> ModuleType:
    """The compiled kernel; a test that asks for it is skipped without it."""
    return load_compiled()
