"""A thread that flushes; what is asked for while it does is done together, as the next flush.

It stands between a producer and its acknowledgement, so there is as little as possible between the loop and
the thread: a queue one way, and one call the other way for all who wait.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import NamedTuple

from moldau.world.flushing import merged
from moldau.world.ports import Flush


class _Asked(NamedTuple):
    work: Flush
    done: asyncio.Future[None]
    loop: asyncio.AbstractEventLoop


class FlushThread:
    """The thread, which is there from the first flush until `close`."""

    def __init__(self, carry_out: Callable[[Flush], None]) -> None:
        self._carry_out = carry_out
        self._asked: SimpleQueue[_Asked | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    async def flush(self, work: Flush) -> None:
        """Return once `work` is durable; whoever gives up does not stop the others' flush."""
        if self._thread is None:
            # As a daemon, for a process that ends without `close` has promised nobody anything.
            self._thread = threading.Thread(target=self._run, name="flush", daemon=True)
            self._thread.start()
        loop = asyncio.get_running_loop()
        done = loop.create_future()
        self._asked.put(_Asked(work, done, loop))
        await done

    def close(self) -> None:
        """End the thread, once it has done what it was asked for."""
        if self._thread is not None:
            self._asked.put(None)
            self._thread.join()
            self._thread = None

    def _run(self) -> None:
        # Nothing of a group is held while the next is waited for, or files that were removed would stay open.
        while self._run_next():
            pass

    def _run_next(self) -> bool:
        """Carry out the next group; tells whether there will be more."""
        group, is_closing = self._next_group()
        if group:
            error: BaseException | None = None
            try:
                self._carry_out(merged(asked.work for asked in group) if len(group) > 1 else group[0].work)
            except BaseException as raised:  # noqa: BLE001  whatever it is belongs to those who wait
                error = raised
            # A node has one loop; where its end comes first, nobody waits any more.
            for loop in dict.fromkeys(asked.loop for asked in group):
                waiting = [asked.done for asked in group if asked.loop is loop]
                with contextlib.suppress(RuntimeError):
                    loop.call_soon_threadsafe(_tell, waiting, error)
        return not is_closing

    def _next_group(self) -> tuple[list[_Asked], bool]:
        """All that has been asked for, at least something; and whether there will be no more."""
        group: list[_Asked] = []
        asked = self._asked.get()
        while asked is not None:
            group.append(asked)
            try:
                asked = self._asked.get_nowait()
            except Empty:
                return group, False
        return group, True


def _tell(waiting: list[asyncio.Future[None]], error: BaseException | None) -> None:
    for done in waiting:
        if done.done():
            continue
        if error is None:
            done.set_result(None)
        else:
            done.set_exception(error)
