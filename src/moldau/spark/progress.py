"""Tells a consumer group how far a query has come, so that every Kafka tool shows its lag."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from concurrent.futures import TimeoutError as FutureTimeout
from logging import getLogger
from typing import Final

from moldau.client import ClientError
from moldau.client.blocking import BlockingClient
from moldau.spark.plan.offsets import Offsets

log = getLogger(__name__)

_LAST_COMMIT_TIMEOUT_S: Final = 5.0
# A commit is a flush at the broker, which micro-batches of some milliseconds should not pay for.
_INTERVAL_S: Final = 1.0
# Brokers forget offsets that nobody commits for some days, of partitions too that only have nothing new.
_REPEAT_INTERVAL_S: Final = 3_600.0


class GroupProgress:
    """Commits to a group without members, once a second at most, and never holds the query up.

    The checkpoint is what counts for the query itself. So a commit that fails is told in the log, and the
    next one makes up for it.
    """

    def __init__(self, client: Callable[[], BlockingClient]) -> None:
        self._client = client
        self._told: Offsets = {}
        self._under_way: Future[None] | None = None
        self._next_s = self._repeat_s = 0.0

    def tell(self, group_id: str, offsets: Offsets) -> None:
        """Commit these offsets; if the last commit is not long ago or not done yet, a later call does it."""
        if self._is_free() and time.monotonic() >= self._next_s:
            self._commit(group_id, offsets)

    def finish(self, group_id: str, offsets: Offsets) -> None:
        """Commit what is left, and wait for it a little."""
        for _ in range(2):
            if self._under_way is not None:
                self._settle(_LAST_COMMIT_TIMEOUT_S)
            self._commit(group_id, offsets)

    def _commit(self, group_id: str, offsets: Offsets) -> None:
        now_s = time.monotonic()
        if now_s >= self._repeat_s:
            self._told, self._repeat_s = {}, now_s + _REPEAT_INTERVAL_S
        changed = {place: offset for place, offset in offsets.items() if self._told.get(place) != offset}
        self._told = dict(offsets)
        if changed:
            self._next_s = now_s + _INTERVAL_S
            self._under_way = self._client().start(
                lambda client: client.admin.alter_group_offsets(group_id, changed)
            )

    def _is_free(self) -> bool:
        if self._under_way is not None and self._under_way.done():
            self._settle(0)
        return self._under_way is None

    def _settle(self, timeout_s: float) -> None:
        assert self._under_way is not None
        try:
            self._under_way.result(timeout_s)
        except (ClientError, FutureTimeout, CancelledError) as error:
            self._told = {}
            log.warning("The progress of the query could not be committed to its group: %s", error)
        self._under_way = None
