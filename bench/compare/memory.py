"""Memory that was touched before the clock runs.

A virtual machine may get a page of its memory from the host only when it first touches it, which takes many
times as long as writing the page. Whoever happens to write first would pay for all.
"""

from __future__ import annotations

import mmap
import os
from typing import Final

GIB: Final = 2**30
# Enough for the files that one round leaves in the page cache.
_BYTES_MAX: Final = 8 * GIB
_STEP_BYTES: Final = GIB // 4
_SPARED: Final = 0.5


def touch_free_memory(bytes_max: int = _BYTES_MAX) -> int:
    """Touch free memory once, half of what there is at the most; gives how much that was."""
    available = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    pieces = []
    for _ in range(int(min(bytes_max, available * _SPARED)) // _STEP_BYTES):
        # They are held until the last is there, or the same pages would be touched again and again.
        pieces.append(mmap.mmap(-1, _STEP_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_POPULATE))
    touched = len(pieces) * _STEP_BYTES
    for piece in pieces:
        piece.close()
    return touched
