"""Whether a compiled module is that of the code around it, or is left over from before an update.

An editable install compiles once, and whoever pulls new code afterwards has new Python beside an old module.
"""

from __future__ import annotations

import warnings
import zlib
from collections.abc import Iterable
from importlib.machinery import ExtensionFileLoader
from types import ModuleType
from typing import Final

HOW_TO_REBUILD: Final = "pip install -e . (or make, where it was built by that) compiles it anew"


def why_stale(module: ModuleType, names: Iterable[str]) -> str | None:
    """Why a compiled module, which must have these names, cannot be used; None if it can."""
    missing = [name for name in names if not hasattr(module, name)]
    if missing:
        return f"it is too old, and lacks {', '.join(missing)}"
    source_crc = getattr(module, "SOURCE_CRC", None)
    source = _source_beside(module)
    # A module that was built without setup.py does not know, and an installed one has no source beside it.
    if source_crc is not None and source is not None and source_crc != zlib.crc32(source):
        return "it was compiled from another version of its source"
    return None


def warn_of_stale(name: str, why: str) -> None:
    """Say that the pure twin stands in for a module, and what to do about it."""
    warnings.warn(
        f"The compiled module {name} is not used: {why}. Pure Python does its work many times more slowly;"
        f" {HOW_TO_REBUILD}.",
        RuntimeWarning,
        stacklevel=3,
    )


def _source_beside(module: ModuleType) -> bytes | None:
    spec = module.__spec__
    if spec is None or spec.origin is None or not isinstance(spec.loader, ExtensionFileLoader):
        return None
    folder, slash, file = spec.origin.rpartition("/")
    try:
        # Asked of the import system, which has just read the module from the same folder.
        return spec.loader.get_data(f"{folder}{slash}{file.partition('.')[0]}.c")
    except OSError:
        return None
