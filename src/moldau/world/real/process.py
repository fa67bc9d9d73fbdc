"""What the operating system says of this process."""

from __future__ import annotations

import os
import resource


def cpu_seconds() -> float:
    """The time that the processors have worked for this process."""
    times = os.times()
    return times.user + times.system


def resident_bytes() -> int:
    """The memory that is really there; 0 where the system does not say."""
    try:
        with open("/proc/self/statm", "rb") as statm:
            pages = int(statm.read().split()[1])
    except (OSError, ValueError, IndexError):
        return 0
    return pages * resource.getpagesize()


def open_files() -> int:
    """Files and sockets that are open; 0 where the system does not say."""
    try:
        # The directory itself is open while it is read.
        return len(os.listdir("/proc/self/fd")) - 1
    except OSError:
        return 0


def open_files_max() -> float:
    """How many may be open."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return float("inf") if limit == resource.RLIM_INFINITY else limit
