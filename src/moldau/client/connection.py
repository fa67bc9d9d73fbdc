"""One connection to a broker: requests go out at once, replies come back in the same order."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Generator, Mapping
from typing import Generic, TypeVar

from moldau import __version__
from moldau.client.errors import ClientError, check
from moldau.model.errors import ErrorCode, MalformedMessage
from moldau.wire.framing import Frame, Receiver, Requests
from moldau.wire.message import Request, Response
from moldau.wire.messages import ApiKey, spoken_versions
from moldau.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from moldau.wire.types import Versions
from moldau.world.ports import Address, Clock, Connection, ConnectionLost, Network

R = TypeVar("R", bound=Response)

REPLY_BYTES_MAX = 2**30
CLOSED_BY_BROKER = "the broker closed the connection"
_READ_BYTES = 64 * 1024
# A reply of this size is what was asked for; it gets its memory at once.
_TRUSTED_BYTES = 8 * 2**20
_API_VERSIONS_NEWEST = ApiVersionsRequest.declaration.versions.highest
_SOFTWARE_NAME = "moldau"


async def open_connection(
    address: Address, *, network: Network, clock: Clock, client_id: str, timeout_ms: int
) -> BrokerConnection:
    """Connect and agree on versions; ConnectionLost or TimeoutError if the broker cannot be talked to.

    Encryption is the network's business: one that speaks TLS gives connections that look just like these.
    """
    async with clock.timeout_ms(timeout_ms):
        connection = await _connected(address, network, clock, client_id)
        try:
            await connection.negotiate(_API_VERSIONS_NEWEST)
        except (ConnectionLost, MalformedMessage):
            # Some brokers hang up on, or garble their answer to, a version of ApiVersions from their future.
            connection = await _connected(address, network, clock, client_id)
            await connection.negotiate(0)
    return connection


async def _connected(address: Address, network: Network, clock: Clock, client_id: str) -> BrokerConnection:
    connection = BrokerConnection(address, clock=clock, client_id=client_id)
    await network.connect(address, connection)
    return connection


class BrokerConnection:
    """A connection as its users see it, and the Receiver that the network fills."""

    def __init__(self, address: Address, *, clock: Clock, client_id: str) -> None:
        self.address = address
        self.versions: Mapping[int, Versions] = {}
        self.features: Mapping[str, int] = {}
        self.is_writable = True
        self._clock = clock
        self._connection: Connection | None = None
        self._peer: Address | None = None
        self._requests = Requests(client_id)
        self._receiver = Receiver(
            bytearray(_READ_BYTES), frame_bytes_max=REPLY_BYTES_MAX, trusted_bytes=_TRUSTED_BYTES
        )
        self._waiting: deque[asyncio.Future[Response]] = deque()

    # ---------------------------------------------------------------- asking

    @property
    def is_open(self) -> bool:
        """Whether requests can be sent."""
        return self._connection is not None

    @property
    def in_flight(self) -> int:
        """How many requests wait for their replies."""
        return len(self._waiting)

    def version_of(self, request: type[Request]) -> int:
        """The newest version that both sides speak; UNSUPPORTED_VERSION if there is none."""
        api_key = request.declaration.key
        assert api_key is not None, f"{request.__name__} has no key"
        spoken, offered = spoken_versions(api_key), self.versions.get(api_key)
        if offered is not None:
            version = min(spoken.highest, offered.highest)
            if version >= max(spoken.lowest, offered.lowest):
                return version
        if self.versions and ApiKey.METADATA not in self.versions:
            raise ClientError(
                ErrorCode.UNSUPPORTED_VERSION,
                "This is the port of a controller, which serves no clients; connect to that of a broker.",
                where=str(self.address),
            )
        raise ClientError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"The broker offers {ApiKey(api_key).api_name} in versions {offered or 'none'}, "
            f"and the client speaks {spoken}.",
            where=str(self.address),
        )

    def ask(
        self, request: Request, reply: type[R], *, timeout_ms: int, version: int | None = None
    ) -> Awaitable[R]:
        """Send now, in the order of the calls; awaiting gives the reply."""
        chosen = self.version_of(type(request)) if version is None else version
        # The future exists before the bytes leave: a simulated peer may answer within the call.
        connection = self._connected()
        chunks = self._requests.encode(request, chosen)
        future: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        connection.send(chunks)  # type: ignore[arg-type]  # no request has slices of files
        return _Reply(self, future, reply, timeout_ms)

    def tell(self, request: Request, *, version: int) -> None:
        """Send what is not answered: a Produce request with acks=0."""
        connection = self._connected()
        chunks = self._requests.encode(request, version, is_answered=False)
        connection.send(chunks)  # type: ignore[arg-type]  # as above

    async def wait_for(self, future: asyncio.Future[Response], reply: type[R], timeout_ms: int) -> R:
        """What a reply in the making becomes; a broker that takes too long loses the connection."""
        try:
            async with self._clock.timeout_ms(timeout_ms):
                response = await future
        except TimeoutError:
            # The replies behind this one would be late too, and this one must not be taken for another's.
            self.lose(f"no {reply.__name__} came within {timeout_ms} ms")
            raise ClientError(
                ErrorCode.REQUEST_TIMED_OUT,
                f"No {reply.__name__} came within {timeout_ms} ms.",
                where=str(self.address),
            ) from None
        assert isinstance(response, reply)
        return response

    async def negotiate(self, version: int) -> None:
        """Learn what the broker speaks, asking in `version` or the newest below it that it knows."""
        timeout_ms = 2**31 - 1  # the caller has its own
        while True:
            request = ApiVersionsRequest(
                client_software_name=_SOFTWARE_NAME, client_software_version=__version__
            )
            response = await self.ask(request, ApiVersionsResponse, timeout_ms=timeout_ms, version=version)
            offered = {row.api_key: Versions(row.min_version, row.max_version) for row in response.api_keys}
            if response.error_code != ErrorCode.UNSUPPORTED_VERSION or version == 0:
                break
            known = offered.get(ApiKey.API_VERSIONS, Versions(0, 0))
            version = min(known.highest, version - 1)
        check(response.error_code, where=str(self.address))
        self.versions = offered
        self.features = {row.name: row.max_version_level for row in response.finalized_features}

    def close(self) -> None:
        """Send what is queued and end the connection; whoever still waits is told."""
        if self._connection is not None:
            self._connection.close()
        self._end("the connection was closed by this client")

    def lose(self, why: str) -> None:
        """End a connection that can no longer be trusted."""
        if self._connection is not None:
            self._connection.abort()
        self._end(why)

    def _connected(self) -> Connection:
        if self._connection is None:
            raise ConnectionLost(f"{self.address}: the connection is closed")
        return self._connection

    def _end(self, why: str) -> None:
        self._connection = None
        waiting, self._waiting = self._waiting, deque()
        for future in waiting:
            if not future.done():
                _fail(future, ConnectionLost(f"{self.address}: {why}"))

    # ---------------------------------------------------------------- what the network calls

    def connected(self, connection: Connection) -> None:
        """The connection is there."""
        self._connection = connection
        self._peer = connection.peer

    def buffer_to_fill(self, hint: int) -> memoryview:
        """Room for what arrives next."""
        return self._receiver.buffer_to_fill(hint)

    def filled(self, count: int) -> None:
        """Hand each complete reply to whoever waits for it."""
        try:
            for frame in self._receiver.filled(count):
                self._answer(frame)
        except MalformedMessage as error:
            self._fail_oldest(error)
            self.lose(f"the broker sent something unreadable: {error}")

    def pause_sending(self) -> None:
        """The broker reads slowly; those who send much look at `is_writable` first."""
        self.is_writable = False

    def resume_sending(self) -> None:
        """The queue has drained."""
        self.is_writable = True

    def disconnected(self, error: Exception | None) -> None:
        """The connection is gone."""
        # Where it happened is said by the name that was connected to.
        self._end(str(error).removeprefix(f"{self._peer}: ") if error else CLOSED_BY_BROKER)

    def _answer(self, frame: Frame) -> None:
        if frame.is_shared:
            # Records are views of the frame, and must outlive the next read.
            whole = bytes(memoryview(frame.buffer)[frame.start : frame.end])
            frame = Frame(whole, 0, len(whole), is_shared=False)
        response = self._requests.match(frame)
        future = self._waiting.popleft()
        if not future.done():
            future.set_result(response)

    def _fail_oldest(self, error: MalformedMessage) -> None:
        if self._waiting and not (oldest := self._waiting.popleft()).done():
            _fail(oldest, error)


class _Reply(Generic[R]):
    """A reply that is still to come; whoever was cancelled before awaiting it leaves nothing behind."""

    def __init__(
        self, connection: BrokerConnection, future: asyncio.Future[Response], reply: type[R], timeout_ms: int
    ) -> None:
        self._connection = connection
        self._future = future
        self._reply = reply
        self._timeout_ms = timeout_ms

    def __await__(self) -> Generator[object, None, R]:
        return self._connection.wait_for(self._future, self._reply, self._timeout_ms).__await__()


def _fail(future: asyncio.Future[Response], error: Exception) -> None:
    future.set_exception(error)
    # Looked at once, so that asyncio does not complain about a future that nobody awaits any more.
    future.exception()
