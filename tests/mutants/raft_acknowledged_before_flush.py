"""Replicas that report as durable what is only in the page cache (etcd #14370, NATS #7564)."""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from moldau.node.quorum import QuorumNode
from moldau.raft.events import Flushed


async def flush_log(self: QuorumNode) -> None:
    while self.view.log.is_dirty:
        work = self.view.log.begin_flush()
        self.view.log.flushed(work)
        self._tell(Flushed())
        await self._flush(work.flush)
    self._is_flushing = False


@contextmanager
def applied() -> Iterator[None]:
    with patch.object(QuorumNode, "_flush_log", flush_log):
        yield
