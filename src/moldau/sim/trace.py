"""What happened in a simulation: a digest over all of it, and the last of it for people."""

from __future__ import annotations

import hashlib
from collections import Counter, deque
from dataclasses import dataclass

EVENTS_KEPT = 400


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened at a moment, on a node or to it."""

    time_us: int
    place: str
    what: str

    def __str__(self) -> str:
        return f"{self.time_us / 1_000_000:>12.6f}  {self.place:<12} {self.what}"


class Trace:
    """Takes in every event of a run; equal runs have equal digests, in any process."""

    def __init__(self) -> None:
        self._digest = hashlib.sha256()
        self.event_count = 0
        self.time_us_last = 0
        # Steps of the loop are too many to show; what a person wants to read is kept apart.
        self.notable: deque[Event] = deque(maxlen=EVENTS_KEPT)
        self.kinds: Counter[str] = Counter()

    def step(self, time_us: int, place: str, what: str) -> None:
        """A callback ran."""
        self.event_count += 1
        self.time_us_last = time_us
        self._digest.update(f"{time_us} {place} {what}\n".encode())

    def note(self, time_us: int, place: str, kind: str, detail: str = "") -> None:
        """Something happened that tells the story: a fault, a connection, a claim of the workload."""
        what = f"{kind} {detail}".rstrip()
        self.step(time_us, place, what)
        self.kinds[kind] += 1
        self.notable.append(Event(time_us, place, what))

    def hexdigest(self) -> str:
        """The digest of everything so far."""
        return self._digest.hexdigest()
