"""A coordinator that answers commits, and whoever asks for them, when they are in the page cache alone.

So a commit has succeeded, and the next fetch of offsets is stale (Redpanda #9571, #10669).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from moldau.node.coordinators import Led, Told


@contextmanager
def applied() -> Iterator[None]:
    with patch.object(Led, "_tell_when_committed", tell_at_once):
        yield


def tell_at_once(self: Led, replies: tuple[Told, ...] | list[Told]) -> None:
    for waiter, reply in replies:
        waiter.told(reply)
