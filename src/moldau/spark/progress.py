"""Tells a consumer group how far a query has come, so that every Kafka tool shows its lag."""

from __future__ import annotations

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


class GroupProgress:
    """Commits to a group without members, one commit at a time, and never holds the query up.

    The checkpoint is what counts for the query itself. So a commit that fails is told in the log, and the
    next one makes up for it.
    """

    def __init__(self, client: Callable[[], BlockingClient]) -> None:
        self._client = client
        self._told: Offsets = {}
        self._under_way: Future[None] | None = None

    def tell(self, group_id: str, offsets: Offsets) -> None:
        """Commit these offsets soon; while an earlier commit is under way they wait for the next call."""
        if not offsets or offsets == self._told or not self._is_free():
            return
        changed = {place: offset for place, offset in offsets.items() if self._told.get(place) != offset}
        self._told = dict(offsets)
        if changed:
            self._under_way = self._client().start(
                lambda client: client.admin.alter_group_offsets(group_id, changed)
            )

    def finish(self, group_id: str, offsets: Offsets) -> None:
        """Commit what is left, and wait for it a little."""
        for _ in range(2):
            if self._under_way is not None:
                self._settle(_LAST_COMMIT_TIMEOUT_S)
            self.tell(group_id, offsets)

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
