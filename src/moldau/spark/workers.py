"""What is done once in every Python process that Spark starts for us."""

from __future__ import annotations

import gc
from functools import cache


@cache
def spare_collections() -> None:
    """Let the collector forget all that was imported; to be called once everything is.

    Spark's Python workers collect garbage after every task, and go through each object for it: 50 ms, several
    times in a micro-batch, for modules that never become garbage.
    """
    gc.collect()
    gc.freeze()
