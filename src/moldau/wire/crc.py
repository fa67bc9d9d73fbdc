"""CRC-32C, by the compiled part of the library of that name.

The library's package loads forty modules of Python's to tell its own version, so that its compiled part
is found and loaded without it: that is a twentieth of a broker's start.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from typing import Final

Crc32c = Callable[..., int]


def _compiled() -> Crc32c | None:
    package = find_spec("crc32c")
    places = None if package is None else package.submodule_search_locations
    spec = PathFinder.find_spec("_crc32c", places)
    if spec is None or spec.loader is None:
        return None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    found: Crc32c | None = getattr(module, "crc32c", None)
    return found


def _whole() -> Crc32c:
    import crc32c

    return crc32c.crc32c


crc32c: Final[Crc32c] = _compiled() or _whole()
