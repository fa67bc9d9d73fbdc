"""A coordinator that believes a request which its member gave up on, and which says what was true then."""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from moldau.coordinator.group.consumer.sessions import Sessions


@contextmanager
def applied() -> Iterator[None]:
    with patch.object(Sessions, "is_late", lambda *_: False):
        yield
