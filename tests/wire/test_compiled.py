"""A compiled module that is left over from before an update is noticed, and its pure twin stands in."""

from __future__ import annotations

import re
import subprocess
import sys
import zlib
from importlib.machinery import ExtensionFileLoader, ModuleSpec
from pathlib import Path
from types import ModuleType

import pytest

from moldau.wire.compiled import why_stale
from moldau.wire.records import kernel

SOURCE = b"int x;\n"


def compiled_module(folder: Path, *, source_crc: int | None, source: bytes | None) -> ModuleType:
    """What a compiled module looks like to whoever asks about its origin."""
    module = ModuleType("_x")
    path = str(folder / "_x.cpython-311-x86_64-linux-gnu.so")
    module.__spec__ = ModuleSpec("_x", ExtensionFileLoader("_x", path), origin=path)
    if source is not None:
        (folder / "_x.c").write_bytes(source)
    if source_crc is not None:
        vars(module)["SOURCE_CRC"] = source_crc
    return module


@pytest.mark.parametrize(
    ("source_crc", "source", "is_stale"),
    [
        (zlib.crc32(SOURCE), SOURCE, False),
        (zlib.crc32(SOURCE), SOURCE + b"int y;\n", True),
        # Installed from a wheel, and compiled by hand.
        (zlib.crc32(SOURCE), None, False),
        (None, SOURCE, False),
    ],
)
def test_a_module_fits_the_source_beside_it(
    tmp_path: Path, source_crc: int | None, source: bytes | None, is_stale: bool
) -> None:
    module = compiled_module(tmp_path, source_crc=source_crc, source=source)
    why = why_stale(module, ["__name__"])
    assert why == ("it was compiled from another version of its source" if is_stale else None)


def test_a_module_has_all_that_is_asked_of_it() -> None:
    assert why_stale(ModuleType("_x"), ["__name__", "one", "two"]) == "it is too old, and lacks one, two"


def test_all_that_the_kernel_offers_is_asked_of_the_compiled_one() -> None:
    assert kernel.__file__ is not None
    taken = re.findall(r"^\w+ = implementation\.(\w+)$", Path(kernel.__file__).read_text(), re.MULTILINE)
    assert taken == list(kernel._NAMES)


@pytest.mark.parametrize(
    ("module", "names", "check"),
    [
        ("moldau.wire.records._kernel", ("validate", "decode"), "record kernel"),
        ("moldau.wire._decoder", (), "message decoder"),
    ],
)
def test_a_stale_module_is_passed_over_with_a_warning_and_doctor_says_it(
    module: str, names: tuple[str, ...], check: str
) -> None:
    script = f"""
import sys, types
stale = types.ModuleType({module!r})
vars(stale).update(dict.fromkeys({names!r}))
sys.modules[{module!r}] = stale
from moldau.cli import main
main(["doctor", "127.0.0.1:1"], prog_name="moldau")
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 5, done.stderr
    assert (
        f"RuntimeWarning: The compiled module {module} is not used: it is too old, and lacks " in done.stderr
    )
    assert "pip install -e . (or make" in done.stderr
    (line, fix) = done.stdout[done.stdout.index(f"  warning  {check}") :].splitlines()[:2]
    assert "There is a compiled one, but it is too old, and lacks " in line
    assert "Fix: In the directory of the sources, pip install -e ." in fix
