"""How a broker speaks to the active controller, wherever that is: over the network, on this node too."""

from __future__ import annotations

import asyncio
from typing import Final

from moldau.model.errors import ErrorCode
from moldau.node.peers import Peers
from moldau.node.quorum import QuorumNode
from moldau.node.waiting import is_set_within
from moldau.wire.message import Request, Response
from moldau.world.ports import Address, Clock, ConnectionLost

_RETRY_MS: Final = 20


class ControllerChannel:
    """Finds the active controller, and asks it again while it is changing."""

    def __init__(self, quorum: QuorumNode, peers: Peers, clock: Clock, *, timeout_ms: int) -> None:
        self._quorum = quorum
        self._peers = peers
        self._clock = clock
        self._timeout_ms = timeout_ms
        self._woken = asyncio.Event()

    def wake(self) -> None:
        """The leader of the quorum, or what it has committed, is another: it may be time to ask again."""
        self._woken.set()

    async def ask(self, request: Request, *, version: int, timeout_ms: int | None = None) -> Response:
        """The active controller's response; ConnectionLost if none answers in time."""
        deadline_ms = self._clock.now_ms() + (self._timeout_ms if timeout_ms is None else timeout_ms)
        while True:
            self._woken.clear()
            left_ms = deadline_ms - self._clock.now_ms()
            if left_ms <= 0:
                raise ConnectionLost("there is no active controller")
            leader = self._quorum.quorum.leader if self._quorum.is_open else None
            if leader is not None:
                address = Address(leader.endpoint.host, leader.endpoint.port)
                try:
                    response = await self._peers.ask(address, request, version=version, timeout_ms=left_ms)
                except ConnectionLost:
                    pass
                else:
                    if getattr(response, "error_code", 0) != ErrorCode.NOT_CONTROLLER:
                        return response
            await is_set_within(self._woken, self._clock, _RETRY_MS)
