"""A coordinator that takes commits of members who are members no more, or were in another epoch."""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from moldau.coordinator.group.classic.group import ClassicGroup
from moldau.coordinator.group.consumer.group import ConsumerGroup


@contextmanager
def applied() -> Iterator[None]:
    with (
        patch.object(ClassicGroup, "check_commit", lambda *_, **__: None),
        patch.object(ConsumerGroup, "check_commit", lambda *_, **__: None),
    ):
        yield
