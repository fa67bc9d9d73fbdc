"""What makes Spark's Python workers quicker: they live on from task to task."""

from __future__ import annotations

import gc
import sys
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


def _is_worker() -> bool:
    """Whether this process was forked by Spark's daemon; in others the collector is none of our business."""
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    return getattr(main, "name", "") == _DAEMON
