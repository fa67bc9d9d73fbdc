"""A group that forgets who has a partition which is given back while it was to be given up (KAFKA-16147)."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from unittest.mock import patch

from moldau.coordinator.group.consumer.group import ConsumerGroup
from moldau.coordinator.group.consumer.member import CurrentAssignment

_put_current = ConsumerGroup.put_current


@contextmanager
def applied() -> Iterator[None]:
    with patch.object(ConsumerGroup, "put_current", put_current):
        yield


def put_current(self: ConsumerGroup, member_id: str, current: CurrentAssignment) -> None:
    old = self.members.get(member_id)
    if old is None:
        _put_current(self, member_id, current)
        return
    # Held first and released after: what is in both is nobody's.
    self._hold(member_id, current)
    self._release(member_id, old.current)
    self.members[member_id] = replace(old, current=current)
