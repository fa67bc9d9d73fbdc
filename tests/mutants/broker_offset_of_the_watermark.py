"""A broker that tells where a batch is by what is committed: two that wait together share an offset.

Redpanda #3003: the offsets of the log and those that clients see were different ones, and the first were
translated into the second too early.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from moldau.replica.leader import Appended, Leader
from moldau.wire.records.header import Buffer

append = Leader.append


def append_at_the_watermark(self: Leader, batch: Buffer, *, needs_all: bool, now_ms: int) -> Appended:
    committed = self.log.high_watermark
    return append(self, batch, needs_all=needs_all, now_ms=now_ms)._replace(first_offset=committed)


@contextmanager
def applied() -> Iterator[None]:
    with patch.object(Leader, "append", append_at_the_watermark):
        yield
