"""A log that forgets its producers along with deleted segments (Redpanda #5355, KAFKA-14034)."""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from moldau.log.log import Log

delete_segments = Log.delete_segments


def delete_segments_and_producers(self: Log, now_ms: int) -> int:
    deleted = delete_segments(self, now_ms)
    if deleted:
        self._forget_snapshots(self._snapshots)
        self._load_producers()
    return deleted


@contextmanager
def applied() -> Iterator[None]:
    with patch.object(Log, "delete_segments", delete_segments_and_producers):
        yield
