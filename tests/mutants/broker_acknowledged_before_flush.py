"""A broker that commits what is only in the page cache (etcd #14370)."""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from moldau.replica.leader import Leader


@contextmanager
def applied() -> Iterator[None]:
    with patch.object(Leader, "needs_flush_to_commit", property(lambda self: False)):
        yield
