"""What makes Spark's Python workers quicker: they live on from task to task."""

from __future__ import annotations

import gc
import os
import socket
import stat
import sys
from contextlib import suppress
from functools import cache
from typing import Final

_DAEMON: Final = "pyspark.daemon"


@cache
def settle() -> None:
    """Tell the garbage collector, once a worker has loaded what it needs, that this will stay.

    Spark's daemon lets its workers collect garbage after every task. To walk through the modules of Spark and
    Arrow each time takes 30 ms of a processor, for nothing: a micro-batch may take less otherwise. Even to
    ask the collector how much it has put aside is such a walk, so that this is done once and remembered.
    """
    if _is_worker():
        gc.collect()
        gc.freeze()


class SentWithTasks:
    """What Spark sends to a worker with each task: once it is there, the task's input follows at once.

    Spark sends what a task is to do, and then its input. That waits until the first is acknowledged (Nagle),
    and Linux delays that for 40 ms while nothing is sent the other way: as long as a small micro-batch takes.
    """

    def __setstate__(self, state: dict[str, object]) -> None:
        vars(self).update(state)
        for connection in _connections_to_spark():
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)


@cache
def _connections_to_spark() -> tuple[socket.socket, ...]:
    """A worker has one, and at its first task no other; none where acknowledgements cannot be hurried."""
    if not (_is_worker() and hasattr(socket, "TCP_QUICKACK")):
        return ()
    found: dict[int, socket.socket] = {}
    for descriptor in map(int, os.listdir("/proc/self/fd")):
        # What the list was read with is closed by now.
        with suppress(OSError):
            status = os.fstat(descriptor)
            # Spark's worker has several descriptors of its connection.
            if stat.S_ISSOCK(status.st_mode) and status.st_ino not in found:
                found[status.st_ino] = socket.socket(fileno=os.dup(descriptor))
    families = socket.AF_INET, socket.AF_INET6
    return tuple(each for each in found.values() if each.family in families)


def _is_worker() -> bool:
    """Whether this process was forked by Spark's daemon; in others the collector is none of our business."""
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    return getattr(main, "name", "") == _DAEMON
