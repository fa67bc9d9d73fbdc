"""Loading a lot of code quickly, for the commands that need all of a node."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def loading() -> Iterator[None]:
    """A block of imports, while which nobody looks for garbage: there is none, and none comes of it later."""
    gc.disable()
    try:
        yield
    finally:
        # The collector need not walk through all of it again and again while the node runs.
        gc.freeze()
        gc.enable()
