"""Waiting: producers for their records to be committed, readers for something to read, all for some time."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from moldau.model.errors import ErrorCode
from moldau.world.ports import Clock

Told = Callable[[ErrorCode], None]


async def is_set_within(woken: asyncio.Event, clock: Clock, duration_ms: int) -> bool:
    """Wait for an event, but not for longer than that; tells whether it came."""
    try:
        async with clock.timeout_ms(max(duration_ms, 0)):
            await woken.wait()
    except TimeoutError:
        return False
    return True


class _Commit(NamedTuple):
    end_offset: int
    deadline_ms: int
    told: Told


class Waiting:
    """Those who wait for one partition."""

    __slots__ = ("_commits", "_crowds", "_readers")

    def __init__(self, crowds: dict[Waiting, None]) -> None:
        # All that have somebody waiting for a commit: of many partitions few are in use at a time.
        self._crowds = crowds
        # In the order of their offsets, because that is the order in which they were appended; a repetition
        # of an older batch that is not committed yet waits a little longer than it need.
        self._commits: deque[_Commit] = deque()
        self._readers: dict[asyncio.Event, None] = {}

    def __bool__(self) -> bool:
        return bool(self._commits or self._readers)

    def for_commit(self, end_offset: int, *, deadline_ms: int, told: Told) -> None:
        """Have `told` called once everything before `end_offset` is committed, or it never will be."""
        self._crowds[self] = None
        self._commits.append(_Commit(end_offset, deadline_ms, told))

    def for_records(self, woken: asyncio.Event) -> None:
        """Have an event set whenever there may be more to read."""
        self._readers[woken] = None

    def no_longer(self, woken: asyncio.Event) -> None:
        """Take a reader away."""
        self._readers.pop(woken, None)

    def committed(self, high_watermark: int) -> None:
        """Tell all whose records are committed, and whoever reads."""
        commits = self._commits
        while commits and commits[0].end_offset <= high_watermark:
            commits.popleft().told(ErrorCode.NONE)
        for woken in self._readers:
            woken.set()

    def expire(self, now_ms: int) -> None:
        """Tell those whose time is over; their records stay, and may be committed yet."""
        if not self._commits:
            del self._crowds[self]
            return
        if not any(commit.deadline_ms <= now_ms for commit in self._commits):
            return
        expired = [commit for commit in self._commits if commit.deadline_ms <= now_ms]
        self._commits = deque(commit for commit in self._commits if commit.deadline_ms > now_ms)
        for commit in expired:
            commit.told(ErrorCode.REQUEST_TIMED_OUT)

    def give_up(self, error: ErrorCode) -> None:
        """Send everybody away: the partition is not led here any more."""
        commits, self._commits = self._commits, deque()
        for commit in commits:
            commit.told(error)
        for woken in self._readers:
            woken.set()
