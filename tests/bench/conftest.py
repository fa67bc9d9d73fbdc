"""Lets tests import `compare` alone of what lies in bench/.

On the path, the scripts there would hide those folders of tests that have the same names.
"""

import importlib.util
import sys
from pathlib import Path

_FOLDER = Path(__file__).parents[2] / "bench" / "compare"

if "compare" not in sys.modules:
    _SPEC = importlib.util.spec_from_file_location(
        "compare", _FOLDER / "__init__.py", submodule_search_locations=[str(_FOLDER)]
    )
    assert _SPEC is not None
    assert _SPEC.loader is not None
    sys.modules["compare"] = importlib.util.module_from_spec(_SPEC)
    _SPEC.loader.exec_module(sys.modules["compare"])
