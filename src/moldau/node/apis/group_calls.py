"""The way of a call to the shards that decide on its groups, and of their replies back to the client."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from moldau.model.errors import ErrorCode, KafkaError
from moldau.node.apis.call import Call, Parts
from moldau.node.apis.refusals import REFUSALS
from moldau.node.coordinators import Waiter
from moldau.node.security import Operation, ResourceType
from moldau.wire.message import Request, Response

T = TypeVar("T")


class Caller(Waiter):
    """A call whose reply is just what a shard says."""

    __slots__ = ("call",)

    def __init__(self, call: Call) -> None:
        # The address as Java writes it, which is how tools show it.
        super().__init__(version=call.version, client_id=call.client_id, client_host=f"/{call.host}")
        self.call = call

    def told(self, reply: Response | KafkaError) -> None:
        """Give the reply to the client."""
        self.call.answer(self.response(reply))

    def response(self, reply: Response | KafkaError) -> Response:
        """The reply, with the error in its place if it is one."""
        if isinstance(reply, KafkaError):
            return REFUSALS[self.call.received.api_key](self.call, reply)
        return reply


def check(parts: Parts, call: Call, operation: Operation, group_id: str) -> None:
    """Refuse whoever may not do this to the group."""
    if not call.may(parts, operation, ResourceType.GROUP, group_id):
        raise KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED)


def ask_each(
    parts: Parts,
    call: Call,
    group_ids: list[str],
    operation: Operation,
    request: Callable[[str], Request],
    finish: Callable[[list[Response | KafkaError]], None],
) -> None:
    """Ask the shard of each group, and finish when all have answered; they may all be of one shard."""
    if not group_ids:
        finish([])
        return
    gathered = Gathered(len(group_ids), finish)
    for number, group_id in enumerate(group_ids):
        waiter = Contributor(call, gathered, number)
        if call.may(parts, operation, ResourceType.GROUP, group_id):
            parts.groups.ask(group_id, request(group_id), waiter)
        else:
            waiter.told(KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED))


class Gathered(Generic[T]):
    """Replies of several shards on their way into one."""

    __slots__ = ("_finish", "_missing", "_replies")

    def __init__(self, count: int, finish: Callable[[list[T]], None]) -> None:
        assert count > 0, "nobody would ever finish"
        self._replies: dict[int, T] = {}
        self._missing = count
        self._finish = finish

    def put(self, number: int, reply: T) -> None:
        """Take one reply in; with the last one all are there."""
        self._replies[number] = reply
        self._missing -= 1
        if not self._missing:
            self._finish([self._replies[each] for each in range(len(self._replies))])


class Contributor(Caller):
    """One of several whose replies are gathered."""

    __slots__ = ("_gathered", "_number")

    def __init__(self, call: Call, gathered: Gathered[Response | KafkaError], number: int) -> None:
        super().__init__(call)
        self._gathered = gathered
        self._number = number

    def told(self, reply: Response | KafkaError) -> None:
        """Put the reply in its place."""
        self._gathered.put(self._number, reply)
