"""Why a group was assigned anew, lately: who joined, left or was cast out, and what else changed."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from enum import StrEnum, unique
from typing import Final, NamedTuple

# Enough to see a storm, little enough to keep for every group.
_KEPT_MAX: Final = 32


@unique
class What(StrEnum):
    """The things that make a group be assigned anew."""

    JOINED = "joined"
    LEFT = "left"
    SUBSCRIBED = "subscribed to other topics"
    RETURNED = "came back after a restart"
    JOINED_ANEW = "joined again with another subscription"
    LEADER_JOINED = "leads the group, and asked to assign anew"
    MOVED = "the group was moved to the classic protocol"
    SESSION_OVER = "sent no heartbeat within the session timeout"
    REVOCATION_OVER = "gave up no partitions within the rebalance timeout"
    JOIN_OVER = "did not join again within the rebalance timeout"
    SYNC_OVER = "did not ask for its assignment within the rebalance timeout"
    TOPICS_CHANGED = "topics were created, deleted or changed"


class Cause(NamedTuple):
    """One thing that happened, and to whom; topics change by themselves."""

    what: What
    member_id: str | None = None
    # What tells the member apart for people: its instance, or its client and host.
    who: str | None = None


def person(instance_id: str | None, *, client_id: str, host: str) -> str:
    """What tells a member apart for people."""
    return instance_id or f"{client_id} at {host}"


class Rebalance(NamedTuple):
    """An epoch or a generation of a group that began, when and why."""

    wall_ms: int
    epoch: int
    causes: tuple[Cause, ...]


class Histories:
    """The latest rebalances of each group, as far as this broker was the coordinator."""

    def __init__(self) -> None:
        self._by_group: dict[str, deque[Rebalance]] = {}

    def add(self, group_id: str, *, wall_ms: int, epoch: int, causes: Iterable[Cause]) -> None:
        """A group has begun an epoch."""
        kept = self._by_group.setdefault(group_id, deque(maxlen=_KEPT_MAX))
        kept.append(Rebalance(wall_ms, epoch, tuple(causes)))

    def of(self, group_id: str) -> tuple[Rebalance, ...]:
        """What is known of a group, the oldest first."""
        return tuple(self._by_group.get(group_id, ()))

    def forget(self, group_id: str) -> None:
        """The group is gone."""
        self._by_group.pop(group_id, None)
