"""Whether a node lives, and whether clients should come to it, as those who start and stop nodes ask."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

# A loop that has not come round for so long is stuck, or as good as that.
STUCK_MS: Final = 10_000


class Health:
    """What the parts of a node have said of their state."""

    __slots__ = ("_obstacle", "beat_ms", "has_failed", "is_leaving", "is_serving")

    def __init__(self, obstacle: Callable[[], str | None]) -> None:
        self.is_serving = False
        """Whether the listeners have been opened."""
        self.is_leaving = False
        self.has_failed = False
        self.beat_ms: int | None = None
        """When the loop last came round to somebody who only waits for that."""
        self._obstacle = obstacle
        """Asked for what keeps an open node from serving, such as that the controller has fenced it."""

    def why_dead(self, now_ms: int) -> str | None:
        """Why the process should be ended and started again; None if it need not be."""
        if self.has_failed:
            return "a part of the node has failed"
        if self.beat_ms is not None and now_ms - self.beat_ms > STUCK_MS:
            return f"the event loop has been busy for {now_ms - self.beat_ms} ms"
        return None

    def why_not_ready(self, now_ms: int) -> str | None:
        """Why clients should look elsewhere for now; None if they need not."""
        if self.is_leaving:
            return "the node is shutting down"
        if not self.is_serving:
            return "the node is starting"
        return self.why_dead(now_ms) or self._obstacle()
