"""A process that ends with the one that started it, however that ends."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from typing import Final

_PR_SET_PDEATHSIG: Final = 1


def end_with(parent_id: int) -> None:
    """Have the kernel kill this process when the thread that started it ends; at once if that is over."""
    library = ctypes.CDLL(None, use_errno=True)
    if library.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    # Who died before we asked is not told to us.
    if os.getppid() != parent_id:
        sys.exit(f"Error: The process {parent_id}, with which this one was to end, has ended.")
