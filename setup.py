"""Compiled modules are told what they are made of, so that stale ones are noticed; see `wire.compiled`.

Everything else about the build stands in pyproject.toml.
"""

from __future__ import annotations

import zlib
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext


class BuildWithChecksums(build_ext):
    """The usual, with the checksum of each module's source as a macro of its own."""

    def build_extension(self, ext: Extension) -> None:
        """Compile one."""
        (source,) = ext.sources
        ext.define_macros.append(("MOLDAU_SOURCE_CRC", f"{zlib.crc32(Path(source).read_bytes())}ul"))
        super().build_extension(ext)


setup(cmdclass={"build_ext": BuildWithChecksums})
