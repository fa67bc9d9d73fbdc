"""A checkpoint that calls durable what is only written: after a crash, what never was is taken for damaged.

etcd #13766 in the other order: the index was ahead of what had been applied.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from moldau.log.log import Log


@contextmanager
def applied() -> Iterator[None]:
    with patch.object(Log, "recovery_point", property(lambda self: self.log_end_offset)):
        yield
