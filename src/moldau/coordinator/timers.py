"""Deadlines as data: what is to happen and when, and what of it is due."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Final, Generic, TypeVar

T = TypeVar("T")

_NEVER: Final = 1 << 62


class Timer(Generic[T]):
    """One thing that is to happen; its owner keeps it, and moves its deadline.

    A member that sends a heartbeat puts its deadline off, ten thousand members do so all the time, and hardly
    a deadline ever passes. So putting it off is an assignment; where the timer stands in the queue is looked
    at when its turn there comes.
    """

    __slots__ = ("_queued_ms", "deadline_ms", "what")

    def __init__(self, what: T) -> None:
        self.what: Final = what
        self.deadline_ms = _NEVER
        self._queued_ms = _NEVER

    @property
    def is_set(self) -> bool:
        """Whether it is to happen at all."""
        return self.deadline_ms != _NEVER

    def cancel(self) -> None:
        """Let it not happen."""
        self.deadline_ms = _NEVER


class Timers(Generic[T]):
    """The timers of a shard, in the order in which they have to be looked at."""

    __slots__ = ("_count", "_queue")

    def __init__(self) -> None:
        # The count keeps those of one millisecond in the order in which they were set.
        self._queue: list[tuple[int, int, Timer[T]]] = []
        self._count = 0

    def set(self, timer: Timer[T], deadline_ms: int) -> None:
        """Let it happen then, whatever was said before."""
        timer.deadline_ms = deadline_ms
        if deadline_ms < timer._queued_ms:
            self._enqueue(timer)

    def next_ms(self) -> int | None:
        """When there is something to look at; it may turn out to have been put off."""
        return self._queue[0][0] if self._queue else None

    def due(self, now_ms: int) -> T | None:
        """The next thing whose time has come, which is then no longer set; None if there is none yet."""
        queue = self._queue
        while queue and queue[0][0] <= now_ms:
            queued_ms, _, timer = heappop(queue)
            if timer._queued_ms != queued_ms:
                # It has been set to an earlier time since, and was queued again for that.
                continue
            timer._queued_ms = _NEVER
            if timer.deadline_ms <= now_ms:
                timer.deadline_ms = _NEVER
                return timer.what
            if timer.deadline_ms != _NEVER:
                self._enqueue(timer)
        return None

    def _enqueue(self, timer: Timer[T]) -> None:
        timer._queued_ms = timer.deadline_ms
        self._count += 1
        heappush(self._queue, (timer.deadline_ms, self._count, timer))
