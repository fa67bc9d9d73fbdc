"""A coordinator that takes a heartbeat without partitions for one that says that all were given up."""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from moldau.coordinator.group.consumer import reconcile
from moldau.coordinator.group.consumer.member import Epochs
from moldau.coordinator.group.consumer.reconcile import Owned

_may_still_read = reconcile._may_still_read


@contextmanager
def applied() -> Iterator[None]:
    with patch.object(reconcile, "_may_still_read", may_still_read):
        yield


def may_still_read(partitions: Epochs, owned: Owned | None) -> bool:
    return _may_still_read(partitions, owned or {})
