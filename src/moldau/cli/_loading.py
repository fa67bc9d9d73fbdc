"""Loading a lot of code, for the commands that need all of a node: quickly, and ready to be told to stop."""

from __future__ import annotations

import gc
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

import click

STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


def end_quietly_until_served() -> None:
    """Until the node itself listens to them, signals end the command as they will end the node: in order.

    There is nothing yet that would have to be put in order.
    """
    # Other threads may not say what signals do.
    if threading.current_thread() is threading.main_thread():
        click.get_current_context().with_resource(_ended_by_signals())


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    def end(number: int, frame: FrameType | None) -> None:
        sys.exit(0)

    before = {number: signal.signal(number, end) for number in STOP_SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


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
