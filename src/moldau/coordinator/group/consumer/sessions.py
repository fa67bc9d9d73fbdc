"""Who was heard of when: the deadlines of the members of consumer groups, which are in no log."""

from __future__ import annotations

from dataclasses import dataclass

from moldau.coordinator.timers import Timer, Timers


@dataclass(frozen=True, slots=True)
class Over:
    """The time of a member is over."""

    group_id: str
    member_id: str


class SessionOver(Over):
    """It was not heard of."""

    __slots__ = ()


class RevocationOver(Over):
    """It did not say that it gave up what it was to give up."""

    __slots__ = ()


class JoinOver(Over):
    """A classic member was told to join again, and did not."""

    __slots__ = ()


class SyncOver(Over):
    """A classic member has joined, and did not ask for its assignment."""

    __slots__ = ()


class Sessions:
    """The deadlines of all members of a shard's consumer groups."""

    def __init__(self, timers: Timers[object]) -> None:
        self._timers = timers
        self._by_member: dict[tuple[str, str], dict[type[Over], Timer[object]]] = {}
        # The newest connection over which a member was heard of.
        self._connections: dict[tuple[str, str], int] = {}

    def expect(self, kind: type[Over], group_id: str, member_id: str, deadline_ms: int) -> None:
        """Have something of a member by then; a later deadline takes the place of an earlier one."""
        timers = self._by_member.setdefault((group_id, member_id), {})
        timer = timers.get(kind)
        if timer is None:
            timer = timers[kind] = Timer(kind(group_id, member_id))
        self._timers.set(timer, deadline_ms)

    def is_expected(self, kind: type[Over], group_id: str, member_id: str) -> bool:
        """Whether something is expected of a member."""
        timer = self._by_member.get((group_id, member_id), {}).get(kind)
        return timer is not None and timer.is_set

    def expect_no_more(self, kind: type[Over], group_id: str, member_id: str) -> None:
        """It has come, or is not needed any more."""
        timer = self._by_member.get((group_id, member_id), {}).get(kind)
        if timer is not None:
            timer.cancel()

    def forget(self, group_id: str, member_id: str) -> None:
        """The member is gone."""
        for timer in self._by_member.pop((group_id, member_id), {}).values():
            timer.cancel()
        self._connections.pop((group_id, member_id), None)

    def is_late(self, group_id: str, member_id: str, connection: int) -> bool:
        """Whether the member has gone on to a newer connection, so that this request is one it gave up."""
        return connection < self._connections.get((group_id, member_id), connection)

    def heard_over(self, group_id: str, member_id: str, connection: int) -> None:
        """The member uses this connection now."""
        self._connections[group_id, member_id] = connection
