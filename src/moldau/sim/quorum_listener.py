"""A listener for replicas of the quorum that run without the rest of a node; replies leave in order."""

from __future__ import annotations

import asyncio
from typing import Final

from moldau.model.errors import KafkaError, MalformedMessage
from moldau.node.quorum import QuorumNode
from moldau.wire import framing
from moldau.world.ports import Address, Connection, Scope, World

REQUEST_BYTES_MAX: Final = 8 * 1024 * 1024
_BUFFER_BYTES: Final = 16 * 1024


async def listen(world: World, address: Address, node: QuorumNode, scope: Scope) -> None:
    """Let `node` answer other replicas at `address`, in tasks of `scope`."""
    await world.network.listen(address, lambda: QuorumConnection(node, scope))


class QuorumConnection:
    """A connection that another replica has opened; it implements the Receiver port."""

    def __init__(self, node: QuorumNode, scope: Scope) -> None:
        self._node = node
        self._scope = scope
        self._frames = framing.Receiver(bytearray(_BUFFER_BYTES), frame_bytes_max=REQUEST_BYTES_MAX)
        self._replies = framing.Replies()
        # Those who answer, in the order in which they were asked.
        self._answering: dict[asyncio.Task[None], None] = {}
        self._connection: Connection | None = None

    def connected(self, connection: Connection) -> None:
        """The connection is there."""
        self._connection = connection

    def buffer_to_fill(self, hint: int) -> memoryview:
        """Room for what arrives next."""
        return self._frames.buffer_to_fill(hint)

    def filled(self, count: int) -> None:
        """Requests, or a part of one, have arrived; what cannot be read ends the connection."""
        try:
            for frame in self._frames.filled(count):
                request = framing.read_request(frame)
                if isinstance(request, framing.UnservedRequest):
                    raise MalformedMessage(f"API {request.api_key} in version {request.version}")
                place = self._replies.expect()
                self._scope.start(self._answer(place, request), name="answer another replica")
        except MalformedMessage:
            self._abort()

    async def _answer(self, place: framing.Reply, request: framing.Request) -> None:
        if self._connection is None:
            return
        me = asyncio.current_task()
        assert me is not None
        self._answering[me] = None
        try:
            response = await self._node.serve(request.body(), version=request.version)
        except (MalformedMessage, KafkaError):
            self._abort()
            return
        finally:
            self._answering.pop(me, None)
        place.complete(
            framing.encode_response(
                response,
                api_key=request.api_key,
                version=request.version,
                correlation_id=request.correlation_id,
            )
        )
        if self._connection is not None:
            self._connection.send(self._replies.sendable())  # type: ignore[arg-type]

    def pause_sending(self) -> None:
        """Peers have one request under way on a connection, so that little piles up."""

    def resume_sending(self) -> None:
        """Peers have one request under way on a connection, so that little piles up."""

    def disconnected(self, error: Exception | None) -> None:
        """Nobody waits any more."""
        self._connection = None
        for answering in list(self._answering):
            answering.cancel()

    def _abort(self) -> None:
        if self._connection is not None:
            self._connection.abort()
