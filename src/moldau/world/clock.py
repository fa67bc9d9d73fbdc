"""Waiting on the time of whichever asyncio loop is running; both worlds share this."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager


class LoopClock:
    """The Clock port on the running loop's time, with a calendar given to it."""

    def __init__(self, wall_ms: Callable[[], int]) -> None:
        self._wall_ms = wall_ms

    def now_ms(self) -> int:
        """Milliseconds that only rise; of no meaning outside this node."""
        return int(asyncio.get_running_loop().time() * 1000)

    def now_us(self) -> int:
        """The same in microseconds."""
        return int(asyncio.get_running_loop().time() * 1_000_000)

    def wall_ms(self) -> int:
        """Milliseconds since 1970; may jump either way."""
        return self._wall_ms()

    async def sleep_ms(self, duration_ms: int) -> None:
        """Return after `duration_ms`."""
        await asyncio.sleep(duration_ms / 1000)

    def timeout_ms(self, duration_ms: int) -> AbstractAsyncContextManager[object]:
        """A block that raises TimeoutError if it is not left within `duration_ms`."""
        return asyncio.timeout(duration_ms / 1000)
