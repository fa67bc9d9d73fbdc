"""Connections to other nodes: one question at a time on each, with a deadline."""

from __future__ import annotations

import asyncio
from typing import Final

from moldau.model.errors import MalformedMessage
from moldau.wire import framing, message
from moldau.world.ports import Address, Clock, Connection, ConnectionLost, Network

FRAME_BYTES_MAX: Final = 100 * 1024 * 1024
_BUFFER_BYTES: Final = 16 * 1024


class Peers:
    """Asks other nodes; keeps connections that are idle, and breaks those whose answer did not come."""

    def __init__(self, network: Network, clock: Clock, *, client_id: str) -> None:
        self._network = network
        self._clock = clock
        self._client_id = client_id
        self._idle: dict[Address, list[PeerConnection]] = {}

    async def ask(
        self, to: Address, request: message.Request, *, version: int, timeout_ms: int
    ) -> message.Response:
        """The response; ConnectionLost if it does not come in time."""
        connection: PeerConnection | None = None
        try:
            async with self._clock.timeout_ms(timeout_ms):
                connection = await self._connection(to)
                response = await connection.ask(request, version)
        except TimeoutError:
            raise ConnectionLost(f"no answer from {to} within {timeout_ms} ms") from None
        else:
            self._idle.setdefault(to, []).append(connection)
            connection = None
            return response
        finally:
            # Whatever went wrong, the next answer on it would be to this question.
            if connection is not None:
                connection.abort()

    async def _connection(self, to: Address) -> PeerConnection:
        idle = self._idle.get(to, [])
        while idle:
            connection = idle.pop()
            if connection.is_open:
                return connection
        connection = PeerConnection(self._client_id)
        await self._network.connect(to, connection)
        return connection


class PeerConnection:
    """A connection that this node has opened."""

    def __init__(self, client_id: str) -> None:
        self.is_open = False
        self._requests = framing.Requests(client_id)
        # A buffer of its own: the answer is read after other connections have received something.
        self._frames = framing.Receiver(bytearray(_BUFFER_BYTES), frame_bytes_max=FRAME_BYTES_MAX)
        self._connection: Connection | None = None
        self._answer: asyncio.Future[message.Response] | None = None

    async def ask(self, request: message.Request, version: int) -> message.Response:
        """Send a request and wait for its response."""
        if self._connection is None or not self.is_open:
            raise ConnectionLost("the connection is closed")
        self._answer = asyncio.get_running_loop().create_future()
        self._connection.send(self._requests.encode(request, version))  # type: ignore[arg-type]
        return await self._answer

    def abort(self) -> None:
        """Break the connection."""
        self.is_open = False
        if self._connection is not None:
            self._connection.abort()

    # ------------------------------------------------------------ the Receiver port

    def connected(self, connection: Connection) -> None:
        """The connection is there."""
        self._connection = connection
        self.is_open = True

    def buffer_to_fill(self, hint: int) -> memoryview:
        """Room for what arrives next."""
        return self._frames.buffer_to_fill(hint)

    def filled(self, count: int) -> None:
        """A response, or a part of one, has arrived."""
        try:
            for frame in self._frames.filled(count):
                response = self._requests.match(frame)
                if self._answer is not None and not self._answer.done():
                    self._answer.set_result(response)
        except MalformedMessage as error:
            self.abort()
            self.disconnected(error)

    def pause_sending(self) -> None:
        """There is one request at a time, so that nothing piles up."""

    def resume_sending(self) -> None:
        """There is one request at a time, so that nothing piles up."""

    def disconnected(self, error: Exception | None) -> None:
        """Whoever waits for an answer waits in vain."""
        self.is_open = False
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(ConnectionLost(str(error or "the peer closed the connection")))
