"""Lines from stdin as they come, without a thread: a terminal, a pipe, a file."""

from __future__ import annotations

import asyncio
import io
import os
import select
import stat
import sys
from collections.abc import AsyncIterator
from typing import Final

_READ_BYTES: Final = 256 * 1024


async def line_batches() -> AsyncIterator[list[bytes]]:
    """Lines without their ends, as many as have come; an empty list before it waits for more."""
    rest = b""
    async for chunk in _chunks():
        if not chunk:
            yield []
            continue
        *lines, rest = (rest + chunk).split(b"\n")
        if lines:
            yield lines
    if rest:
        yield [rest]


def stdin_bytes() -> int | None:
    """How much will come, where that is known."""
    try:
        status = os.fstat(sys.stdin.buffer.fileno())
    except io.UnsupportedOperation:
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None


async def _chunks() -> AsyncIterator[bytes]:
    """What can be read, up to the end; nothing where it has to wait."""
    stream = sys.stdin.buffer
    try:
        descriptor = stream.fileno()
    except io.UnsupportedOperation:
        # A stand-in that holds all there is.
        yield stream.read()
        return
    while True:
        if not select.select([descriptor], [], [], 0)[0]:
            yield b""
            await _readable(descriptor)
        chunk = os.read(descriptor, _READ_BYTES)
        if not chunk:
            return
        yield chunk


async def _readable(descriptor: int) -> None:
    """Wait until there is something to read; a file is always readable, so that it does not get here."""
    loop = asyncio.get_running_loop()
    ready = loop.create_future()
    loop.add_reader(descriptor, lambda: None if ready.done() else ready.set_result(None))
    try:
        await ready
    finally:
        loop.remove_reader(descriptor)
