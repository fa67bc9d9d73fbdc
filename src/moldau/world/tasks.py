"""Tasks that belong to a block and end with it, in the order they were started; both worlds share this.

`asyncio.TaskGroup` keeps its tasks in a set and cancels them in the order of their addresses, which no replay
can repeat. A scope keeps them in a dict.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine, Generator
from types import TracebackType
from typing import Generic, TypeVar

T = TypeVar("T")


class Started(Generic[T]):
    """A task of a scope; awaiting it gives its result, or the exception that would else end the owner."""

    def __init__(self, task: asyncio.Task[T]) -> None:
        self.task = task
        self.is_awaited = False

    def __await__(self) -> Generator[object, None, T]:
        self.is_awaited = True
        return (yield from self.task.__await__())

    def cancel(self) -> None:
        """End it before its scope does."""
        self.task.cancel()


class TaskScope:
    """A block that owns tasks: leaving it cancels them in the order they were started, and waits for them.

    A task that fails while nobody awaits it ends the block: the owner is cancelled, and the block raises what
    the task raised.
    """

    def __init__(self) -> None:
        # A dict, for its order.
        self._running: dict[asyncio.Task[object], Started[object]] = {}
        self._owner: asyncio.Task[object] | None = None
        self._failure: BaseException | None = None
        self._is_ending = False
        self._has_cancelled_owner = False

    def start(self, work: Coroutine[object, object, T], *, name: str) -> Started[T]:
        """Run `work` beside the caller; an exception that nobody awaits ends the owner."""
        assert self._owner is not None, "a scope starts tasks only inside its block"
        assert not self._is_ending, f"{name} is started in a scope that is ending"
        task = asyncio.get_running_loop().create_task(work, name=name)
        started = Started(task)
        self._running[task] = started  # type: ignore[assignment]
        task.add_done_callback(self._on_done)
        return started

    @property
    def has_failed(self) -> bool:
        """Whether a task has failed, for which the block is being ended."""
        return self._failure is not None

    async def __aenter__(self) -> TaskScope:
        self._owner = asyncio.current_task()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        assert self._owner is not None
        self._is_ending = True
        was_cancelled = await self._end_all() or kind is asyncio.CancelledError
        if self._has_cancelled_owner:
            if not was_cancelled:
                # The block ended before its own cancellation reached it; that must not hit what comes after.
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.sleep(0)
            was_cancelled = self._owner.uncancel() > 0
            kind = None if kind is asyncio.CancelledError else kind
        if was_cancelled:
            raise asyncio.CancelledError
        # What the block itself raises says more about it than what its tasks did.
        if self._failure is not None and kind is None:
            raise self._failure
        return False

    async def _end_all(self) -> bool:
        """Cancel what runs and wait for it; tells whether the owner was cancelled meanwhile."""
        was_cancelled = False
        for task in list(self._running):
            task.cancel()
        for task in list(self._running):
            while not task.done():
                try:
                    await asyncio.wait((task,))
                except asyncio.CancelledError:
                    was_cancelled = True
        return was_cancelled

    def _on_done(self, task: asyncio.Task[object]) -> None:
        started = self._running.pop(task)
        if task.cancelled() or started.is_awaited or (error := task.exception()) is None:
            return
        if self._failure is None:
            self._failure = error
        if not self._is_ending and not self._has_cancelled_owner:
            assert self._owner is not None
            self._has_cancelled_owner = True
            self._owner.cancel()


class ScopedTasks:
    """The part of the Tasks port that is the same in both worlds."""

    def scope(self) -> TaskScope:
        """A block that owns the tasks started in it."""
        return TaskScope()
