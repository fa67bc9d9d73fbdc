"""What processes of this machine have used: CPU time between two moments, and memory now."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# The kernel's number for "CPU time of all threads" in the id of a process's clock.
_PROCESS_CLOCK = 2


def cpu_of(pid: int) -> float:
    """CPU seconds of a process so far, user and system, of all threads that it has or had.

    /proc says the same in steps of 10 ms, which is too coarse for rounds of less than a second.
    """
    try:
        return time.clock_gettime(~pid << 3 | _PROCESS_CLOCK)
    except OSError:
        raise ProcessLookupError(pid) from None


def resident_bytes(pid: int) -> int:
    """The memory of a process that is in RAM, with what it shares with others."""
    return _status_bytes(pid, "VmRSS")


def peak_resident_bytes(pid: int) -> int:
    """The most that it ever was."""
    return _status_bytes(pid, "VmHWM")


class Meter:
    """Time and CPU while the clock runs, of this process and, if it is on this machine, of the server."""

    def __init__(self, server_pid: int | None = None) -> None:
        self.seconds = 0.0
        self.client_cpu_s = 0.0
        self.server_cpu_s = 0.0 if server_pid is not None else None
        self._server_pid = server_pid

    @contextmanager
    def running(self) -> Iterator[None]:
        """Let the clock run; what was counted before is added to."""
        pid = self._server_pid
        server_s = 0.0 if pid is None else cpu_of(pid)
        client_s, began = time.process_time(), time.perf_counter()
        yield
        self.seconds += time.perf_counter() - began
        self.client_cpu_s += time.process_time() - client_s
        if self.server_cpu_s is not None and pid is not None:
            self.server_cpu_s += cpu_of(pid) - server_s


def _status_bytes(pid: int, field: str) -> int:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        raise ProcessLookupError(pid) from None
    for line in status.splitlines():
        name, _, rest = line.partition(":")
        if name == field:
            return int(rest.split()[0]) * 1024
    # A process that has ended but was not waited for has no memory.
    return 0
