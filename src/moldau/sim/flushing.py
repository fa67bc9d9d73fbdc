"""Flushes that are asked for while one runs are the next one together, as in the thread of a real disk."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from moldau.world.flushing import merged
from moldau.world.ports import Flush


class FlushGroups:
    """Runs one flush at a time and gathers what arrives meanwhile into the next."""

    def __init__(self, carry_out: Callable[[Flush], Awaitable[None]]) -> None:
        self._carry_out = carry_out
        self._waiting: list[Flush] = []
        self._done: asyncio.Future[None] | None = None
        self._runner: asyncio.Task[None] | None = None

    async def flush(self, work: Flush) -> None:
        """Return once `work` is durable; a caller that gives up does not stop the group it is in."""
        loop = asyncio.get_running_loop()
        if self._done is None:
            self._done = loop.create_future()
        self._waiting.append(work)
        if self._runner is None:
            self._runner = loop.create_task(self._run(), name="flush")
        await asyncio.shield(self._done)

    async def _run(self) -> None:
        try:
            while self._done is not None:
                group, done = merged(self._waiting), self._done
                self._waiting, self._done = [], None
                await self._run_one(group, done)
        finally:
            self._runner = None

    async def _run_one(self, group: Flush, done: asyncio.Future[None]) -> None:
        try:
            await self._carry_out(group)
        except asyncio.CancelledError:
            done.cancel()
            raise
        except BaseException as error:  # noqa: BLE001  whatever it is belongs to those who wait, not to this task
            done.set_exception(error)
            # Every caller may have given up; then nobody is left to be told.
            done.exception()
        else:
            done.set_result(None)
