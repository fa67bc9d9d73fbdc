"""One member of a group, from outside: what it has told, and what may be done to it.

A member is a child process with one client in it. Its last argument is an object in JSON that says which
group it joins and how. On its output it tells events, one line of JSON each, with the time `at` which they
happened, in ms: partitions are `assigned`, `revoked` or `lost`, a record is `read`, or offsets are
`committed`, which a member does after every few records. It leaves its group when its input ends.
"""

from __future__ import annotations

import json
import signal
import subprocess
import tempfile
import threading
import time
from dataclasses import dataclass
from typing import Any, Literal

from clients.drivers.driver import GroupProtocol, Unsupported
from clients.members import COMMANDS, WITH_NEW_PROTOCOL, environment

SESSION_TIMEOUT_MS = 6_000
HEARTBEAT_INTERVAL_MS = 1_000
LEAVE_TIMEOUT_S = 30


@dataclass(frozen=True, slots=True)
class Rebalanced:
    """Partitions came or went."""

    at: int
    kind: Literal["assigned", "revoked", "lost"]
    partitions: frozenset[int]


@dataclass(frozen=True, slots=True)
class Read:
    """A record was processed."""

    at: int
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class Committed:
    """The coordinator took the offsets that the group goes on from, by partition."""

    at: int
    offsets: dict[int, int]


@dataclass(frozen=True, slots=True)
class Disturbed:
    """The process was killed or paused, so that it cannot tell when its partitions go to somebody else."""

    at: int


Event = Rebalanced | Read | Committed | Disturbed


class Member:
    """A client in a group, running."""

    def __init__(
        self, client: str, bootstrap: str, *, group: str, topic: str, protocol: GroupProtocol = "classic"
    ) -> None:
        self.name = f"{client} ({protocol})"
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115  # closed with the member
        settings = {
            "bootstrap": bootstrap,
            "group": group,
            "topic": topic,
            "protocol": protocol,
            "session_timeout_ms": SESSION_TIMEOUT_MS,
            "heartbeat_interval_ms": HEARTBEAT_INTERVAL_MS,
        }
        self._process = subprocess.Popen(
            [*COMMANDS[client](), json.dumps(settings)],
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            encoding="utf-8",
        )
        # Only ever appended to, by the thread that reads or where the process is disturbed.
        self.events: list[Event] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def owned(self) -> frozenset[int]:
        """The partitions that it has, as far as it has told."""
        found: frozenset[int] = frozenset()
        for event in list(self.events):
            match event:
                case Rebalanced(kind="assigned", partitions=partitions):
                    found |= partitions
                case Rebalanced(partitions=partitions):
                    found -= partitions
                case Disturbed():
                    found = frozenset()
        return found

    def read(self) -> list[tuple[int, int]]:
        """Partition and offset of all that it has processed, in order."""
        return [(event.partition, event.offset) for event in list(self.events) if isinstance(event, Read)]

    def committed(self) -> dict[int, int]:
        """The last offsets that it has committed."""
        found: dict[int, int] = {}
        for event in list(self.events):
            if isinstance(event, Committed):
                found |= event.offsets
        return found

    def pause(self) -> None:
        """Stop the process where it is."""
        self._process.send_signal(signal.SIGSTOP)
        self._disturb()

    def resume(self) -> None:
        """Let a paused process go on."""
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """End the process without a word to anybody."""
        self._process.kill()
        self._process.wait()
        self._reader.join()
        self._disturb()

    def leave(self) -> None:
        """Leave the group as a client should."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            status = self._process.wait(timeout=LEAVE_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise AssertionError(f"{self.name} does not leave: {self.said()}") from None
        self._reader.join()
        assert status == 0, f"{self.name} ended with {status}: {self.said()}"

    def is_running(self) -> bool:
        """Whether the process is there."""
        return self._process.poll() is None

    def close(self) -> None:
        """End the process if it is still there."""
        if self.is_running():
            self._process.kill()
            self._process.wait()
        self._reader.join()
        self._stderr.close()

    def said(self) -> str:
        """The last that the client has logged."""
        self._stderr.seek(0)
        return self._stderr.read().decode(errors="replace")[-3000:]

    def _disturb(self) -> None:
        self.events.append(Disturbed(int(time.time() * 1000)))

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.events.append(_event(json.loads(line)))


def read_in_group(
    client: str,
    bootstrap: str,
    topic: str,
    *,
    group: str,
    count: int,
    timeout_ms: int,
    protocol: GroupProtocol,
) -> list[tuple[int, int]]:
    """Partition and offset of the records that a new member reads and commits before it leaves."""
    if protocol == "consumer" and client not in WITH_NEW_PROTOCOL:
        raise Unsupported("it does not know the new protocol of groups, or does not offer it yet")
    member = Member(client, bootstrap, group=group, topic=topic, protocol=protocol)
    try:
        deadline = time.monotonic() + timeout_ms / 1000
        while len(member.read()) < count or not _has_committed_all(member):
            assert member.is_running(), f"{member.name} ended: {member.said()}"
            if time.monotonic() > deadline:
                break
            time.sleep(0.02)
        member.leave()
        return member.read()
    finally:
        member.close()


def _has_committed_all(member: Member) -> bool:
    committed = member.committed()
    return all(offset < committed.get(partition, 0) for partition, offset in member.read())


def _event(told: dict[str, Any]) -> Event:
    match told:
        case {"event": "assigned" | "revoked" | "lost" as kind, "partitions": [*partitions], "at": int(at)}:
            return Rebalanced(at, kind, frozenset(int(each) for each in partitions))
        case {"event": "read", "partition": int(partition), "offset": int(offset), "at": int(at)}:
            return Read(at, partition, offset)
        case {"event": "committed", "offsets": dict(offsets), "at": int(at)}:
            return Committed(at, {int(partition): int(offset) for partition, offset in offsets.items()})
    raise AssertionError(f"a member told {told}")
