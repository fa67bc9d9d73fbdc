"""What recovery finds counts as durable at once: a power cut takes what readers have seen since.

A process that was killed leaves in the page cache what it had not come to flush.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from moldau.node.partitions import Partitions, Replica


async def _believed(partitions: Partitions, opened: list[Replica]) -> None:
    for replica in opened:
        replica.log.flushed(replica.log.begin_flush())


@contextmanager
def applied() -> Iterator[None]:
    with patch.object(Partitions, "_flush_recovered", _believed):
        yield
