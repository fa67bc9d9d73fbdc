"""An asyncio loop that knows how many sockets its turn has to serve, and what is left for the turn's end.

A reply wakes the process that waits for it, which costs several times what sending it does. Where many
clients are served in a turn, all replies leave together at its end: then most of those that would be woken
are awake.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable


class CountingSelector(selectors.DefaultSelector):
    """The selector of the system, which also says how much it found the last time."""

    ready_count = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Wait until something can be read or written."""
        ready = super().select(timeout)
        self.ready_count = len(ready)
        return ready


class TurnLoop(asyncio.SelectorEventLoop):
    """A loop whose connections may leave their replies to the end of a turn."""

    def __init__(self) -> None:
        self._counting = CountingSelector()
        self._left: list[Callable[[], None]] = []
        super().__init__(self._counting)

    @property
    def is_crowded(self) -> bool:
        """Whether this turn serves more than one socket."""
        return self._counting.ready_count > 1

    def at_end_of_turn(self, work: Callable[[], None]) -> None:
        """Have `work` done once all that can be read now has been."""
        if not self._left:
            # Before anything that the next look at the sockets finds.
            self.call_soon(self._do_what_is_left)
        self._left.append(work)

    def _do_what_is_left(self) -> None:
        left, self._left = self._left, []
        for work in left:
            work()
