"""The processes of a driver: all of its session, which it leads, and which holds none but its own."""

from __future__ import annotations

import contextlib
import os
import select
import signal
from dataclasses import dataclass
from typing import Final

from spark.chaos.plan import Role

_DEATH_TIMEOUT_MS: Final = 10_000

# How their command lines end. A daemon and the workers that it forks have the same.
_TASKS: Final = "pyspark.daemon pyspark.worker"
_SOURCE: Final = "python_streaming_source_runner"
_SINK: Final = "python_streaming_sink_runner"


@dataclass(frozen=True, slots=True)
class Process:
    """A process as /proc shows it."""

    pid: int
    parent: int
    group: int
    session: int
    command: str

    def __str__(self) -> str:
        return f"{self.pid} ({self.command})"


def of_session(session: int) -> list[Process]:
    """All that live in it now."""
    found = (_look(int(name)) for name in os.listdir("/proc") if name.isdigit())
    return sorted(
        (each for each in found if each is not None and each.session == session), key=lambda p: p.pid
    )


def in_role(role: Role, processes: list[Process]) -> list[Process]:
    """Those of a driver's processes that have a role."""
    workers = [each for each in processes if each.command.endswith(_TASKS)]
    pids = {each.pid for each in workers}
    match role:
        case Role.TASK | Role.TASKS:
            return [each for each in workers if each.parent in pids]
        case Role.DAEMON:
            return [each for each in workers if each.parent not in pids]
        case Role.SOURCE:
            return [each for each in processes if each.command.endswith(_SOURCE)]
        case Role.SINK:
            return [each for each in processes if each.command.endswith(_SINK)]


def kill(process: Process) -> bool:
    """Kill it as kill -9 does; False if it has ended before, be its number given to another by now or not."""
    try:
        handle = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return False
    try:
        # What holds the number now is held fast, so that this look is the last that is needed.
        now = _look(process.pid)
        if now is None or now.session != process.session:
            return False
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(handle, signal.SIGKILL)
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        assert poll.poll(_DEATH_TIMEOUT_MS), f"{process} does not die"
        return True
    finally:
        os.close(handle)


def _look(pid: int) -> Process | None:
    try:
        with open(f"/proc/{pid}/stat", errors="replace") as file:
            # The name, in parentheses, may hold anything.
            state, parent, group, session = file.read().rpartition(")")[2].split()[:4]
        with open(f"/proc/{pid}/cmdline", errors="replace") as file:
            command = file.read().rstrip("\0").replace("\0", " ")
    except (FileNotFoundError, ProcessLookupError):
        return None
    if state in "ZX":
        return None
    return Process(pid, int(parent), int(group), int(session), command)
