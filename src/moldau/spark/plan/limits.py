"""How much a micro-batch takes of what has come."""

from __future__ import annotations

from dataclasses import dataclass

from moldau.spark.plan.offsets import Offsets

NO_LIMIT = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Limits:
    """About how many offsets a micro-batch has at most, and how many are worth waiting for how long."""

    offsets_max: int = NO_LIMIT
    offsets_min: int = 0
    delay_ms_max: int = 0

    def end(self, starts: Offsets, latest: Offsets, *, waited_ms: int) -> Offsets | None:
        """Where a micro-batch ends; None if it is to wait for more."""
        if waited_ms < self.delay_ms_max and available(starts, latest) < self.offsets_min:
            return None
        return share_out(self.offsets_max, starts, latest)


def available(starts: Offsets, latest: Offsets) -> int:
    """How many offsets there are to read."""
    return sum(max(end - starts[place], 0) for place, end in latest.items())


def share_out(limit: int, starts: Offsets, latest: Offsets) -> Offsets:
    """Ends by which each partition has its share of the limit, by what it has to offer, at least one offset.

    Small partitions are not starved, so there may be a few more than the limit.
    """
    total = available(starts, latest)
    if total <= limit:
        return latest
    ends: dict[object, int] = {}
    for place, end in latest.items():
        size = end - starts[place]
        ends[place] = end if size <= 0 else starts[place] + max(limit * size // total, 1)
    return ends  # type: ignore[return-value]
