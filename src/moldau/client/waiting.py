"""Waiting for something to change, and seeing to it that it does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine

from moldau.world.ports import Clock, Scope


class Signal:
    """Something has changed since the last look; unlike a condition it is not missed while nobody waits."""

    def __init__(self) -> None:
        self._is_set = False
        self._waiting: list[asyncio.Future[None]] = []

    def set(self) -> None:
        """Wake whoever waits; if nobody does, the next to wait returns at once."""
        if self._waiting:
            self.set_for_all()
        else:
            self._is_set = True

    def set_for_all(self) -> None:
        """Wake those who wait now, and nobody later."""
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)

    async def wait(self) -> None:
        """Return at the next signal, or at once after one that nobody has seen."""
        if self._is_set:
            self._is_set = False
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        try:
            await future
        except asyncio.CancelledError:
            self._waiting = [each for each in self._waiting if each is not future]
            raise

    async def wait_at_most(self, clock: Clock, timeout_ms: int | None) -> bool:
        """The same, but no longer than `timeout_ms`; tells whether there was a signal."""
        if timeout_ms is None:
            await self.wait()
            return True
        try:
            async with clock.timeout_ms(timeout_ms):
                await self.wait()
        except TimeoutError:
            return False
        return True


class Errands:
    """Things to be done beside a loop, each once at a time however often it is asked for."""

    def __init__(self, scope: Scope, *, owner: str, on_done: Callable[[], None]) -> None:
        self._scope = scope
        self._owner = owner
        self._on_done = on_done
        self._running: dict[str, None] = {}

    def run(self, name: str, errand: Callable[[], Coroutine[object, object, None]]) -> None:
        """Start it, unless it is under way."""
        if name not in self._running:
            self._running[name] = None
            self._scope.start(self._finish(name, errand), name=f"{self._owner}: {name}")

    async def _finish(self, name: str, errand: Callable[[], Coroutine[object, object, None]]) -> None:
        try:
            await errand()
        finally:
            del self._running[name]
            self._on_done()
