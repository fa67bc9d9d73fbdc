"""A new coordinator that answers before its state is loaded, as in Redpanda #7544 a new leader did."""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from moldau.node.coordinators import Coordinators, Led
from moldau.node.partitions import Replica
from moldau.replica.leader import Leader

_init = Led.__init__


@contextmanager
def applied() -> Iterator[None]:
    with patch.object(Led, "__init__", init):
        yield


def init(self: Led, coordinators: Coordinators, replica: Replica, leader: Leader) -> None:
    _init(self, coordinators, replica, leader)
    self._is_loaded = True
