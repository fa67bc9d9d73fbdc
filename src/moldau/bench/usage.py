"""What a process of this machine has used so far, as /proc tells it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
# Where utime, stime and the number of threads stand behind the command's name, which may contain anything.
_UTIME_AT, _STIME_AT, _THREADS_AT = 11, 12, 17


@dataclass(frozen=True, slots=True)
class Usage:
    """CPU seconds of all threads since the process began, and memory now."""

    user_s: float
    system_s: float
    resident_bytes: int
    peak_resident_bytes: int
    threads: int

    @property
    def cpu_s(self) -> float:
        """User and system together."""
        return self.user_s + self.system_s


def usage(pid: int) -> Usage:
    """What a process has used; ProcessLookupError if it is gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        status = Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        raise ProcessLookupError(pid) from None
    return Usage(
        user_s=int(stat[_UTIME_AT]) / _TICKS_PER_SECOND,
        system_s=int(stat[_STIME_AT]) / _TICKS_PER_SECOND,
        resident_bytes=_bytes(status, "VmRSS"),
        peak_resident_bytes=_bytes(status, "VmHWM"),
        threads=int(stat[_THREADS_AT]),
    )


def cpu_of(pid: int) -> float:
    """CPU seconds of a process so far."""
    return usage(pid).cpu_s


def _bytes(status: str, field: str) -> int:
    for line in status.splitlines():
        name, _, rest = line.partition(":")
        if name == field:
            return int(rest.split()[0]) * 1024
    # A process that has ended but was not waited for has no memory.
    return 0
