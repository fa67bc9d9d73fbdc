"""Which process is meant by a number that the system gives to another one as soon as the first has ended."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_STAT_START_FIELD: Final = 19  # of those after the name: field 22 of proc(5)
_PS_TIMEOUT_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class ProcessId:
    """A process: its number, and when it was started, in whatever unit the system tells it."""

    pid: int
    started: str

    def is_alive(self) -> bool:
        """Whether this very process still runs."""
        return started_at(self.pid) == self.started


def identify(pid: int) -> ProcessId | None:
    """The process that has this number now, if one has."""
    started = started_at(pid)
    return None if started is None else ProcessId(pid, started)


def started_at(pid: int) -> str | None:
    """When the process was started; None if there is none, or only what is left of it for its parent."""
    stat = Path(f"/proc/{pid}/stat")
    if stat.parent.parent.joinpath("self").exists():
        try:
            # The name of the program may hold spaces and parentheses.
            fields = stat.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            return None
        return None if fields[0] in ("Z", "X") else f"{_boot_id()}/{fields[_STAT_START_FIELD]}"
    return _from_ps(pid)


def _boot_id() -> str:
    # Start times count from when the machine was started.
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()[:8]
    except OSError:
        return ""


def _from_ps(pid: int) -> str | None:
    said = subprocess.run(
        ["ps", "-o", "stat=,lstart=", "-p", str(pid)],
        capture_output=True,
        text=True,
        check=False,
        timeout=_PS_TIMEOUT_S,
        env={**os.environ, "LC_ALL": "C"},
    ).stdout.split(maxsplit=1)
    return said[1].strip() if len(said) == 2 and not said[0].startswith("Z") else None
