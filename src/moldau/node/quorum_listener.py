"""The server's side of the quorum's connections: requests in, replies out in their order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from moldau.model.errors import KafkaError, MalformedMessage
from moldau.wire import framing, message
from moldau.world.ports import Connection

REQUEST_BYTES_MAX: Final = 8 * 1024 * 1024
_BUFFER_BYTES: Final = 16 * 1024

Respond = Callable[[message.Response], None]
Forget = Callable[[], None]
# Takes a request and how to answer it; gives what to call if the connection is gone before that.
Serve = Callable[[message.Request, Respond], Forget]


class QuorumConnection:
    """A connection that another node has opened; it implements the Receiver port."""

    def __init__(self, serve: Serve) -> None:
        self._serve = serve
        self._frames = framing.Receiver(bytearray(_BUFFER_BYTES), frame_bytes_max=REQUEST_BYTES_MAX)
        self._replies = framing.Replies()
        self._waiting: dict[framing.Reply, Forget] = {}
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
                self._take(request)
        except (MalformedMessage, KafkaError):
            if self._connection is not None:
                self._connection.abort()

    def _take(self, request: framing.Request) -> None:
        place = self._replies.expect()

        def respond(response: message.Response) -> None:
            self._waiting.pop(place, None)
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

        self._waiting[place] = self._serve(request.body(), respond)

    def pause_sending(self) -> None:
        """Peers have one request under way on a connection, so that little piles up."""

    def resume_sending(self) -> None:
        """Peers have one request under way on a connection, so that little piles up."""

    def disconnected(self, error: Exception | None) -> None:
        """Nobody waits any more."""
        self._connection = None
        for forget in self._waiting.values():
            forget()
        self._waiting.clear()
