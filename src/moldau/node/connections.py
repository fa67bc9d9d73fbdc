"""The server's side of connections: requests in, replies out in their order, and no client harms another.

A request is begun when all before it on its connection have been answered, or have at least taken effect:
batches of one connection are appended in the order in which they came, and their replies may wait together.
Whatever else waits holds the line, and what comes behind it stays in the socket.

A connection works in turns: when its requests have kept the loop busy for a while, others are served first.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Final

from moldau.model.errors import KafkaError, MalformedMessage
from moldau.node.apis import dispatch, versions
from moldau.node.apis.call import Call, Parts
from moldau.node.apis.table import Api, Metered
from moldau.node.config import ListenerConfig
from moldau.node.logs import get_logger
from moldau.node.metrics import RequestMetrics
from moldau.node.quotas import QuotaKind
from moldau.node.security import ANONYMOUS, USER, Principal
from moldau.wire import framing
from moldau.wire.compiler import Chunk
from moldau.wire.message import Response
from moldau.wire.messages import ApiKey
from moldau.world.ports import Connection, Scope

log = get_logger(__name__)

SHARED_BUFFER_BYTES: Final = 256 * 1024
# A client may have so many requests under way on one connection before no more are read from it.
_OVERLAPPING_MAX: Final = 500
# So long may the requests of one connection keep all others waiting; the last of them is not cut short.
_TURN_US: Final = 2_000
# A frame that was begun must come at this pace, once it has had some time.
_FRAME_PATIENCE_MS_MAX: Final = 30_000
_FRAME_BYTES_PER_SECOND: Final = 1_024


@dataclass(frozen=True, slots=True)
class Limits:
    """What clients may use in all."""

    request_bytes_max: int
    connections_max: int
    connections_per_host_max: int
    idle_ms_max: int
    unfinished_bytes_max: int
    """Memory for requests that have not arrived completely, of all connections together."""

    @property
    def frame_patience_ms(self) -> int:
        """How long a frame may come as slowly as it likes: no longer than silence is borne."""
        return min(_FRAME_PATIENCE_MS_MAX, self.idle_ms_max)


class Server:
    """What the connections of one node share."""

    def __init__(
        self, parts: Parts, scope: Scope, limits: Limits, *, fail: Callable[[BaseException], None]
    ) -> None:
        self.parts = parts
        self.scope = scope
        self.limits = limits
        self.fail = fail
        """Told of an exception that nobody answers: the node stops."""
        self.shared = bytearray(SHARED_BUFFER_BYTES)
        self.spares = framing.Spares()
        self.unfinished_bytes = 0
        self.connections: dict[ClientConnection, None] = {}
        self._by_host: dict[str, int] = {}
        self._starved: dict[ClientConnection, None] = {}
        self._metrics: dict[ApiKey, RequestMetrics] = {}

    def accept(self, listener: ListenerConfig, apis: Mapping[int, Api]) -> ClientConnection:
        """A new connection of a listener."""
        return ClientConnection(self, listener, apis)

    def metrics_of(self, key: ApiKey) -> RequestMetrics:
        """Where the requests of an API are counted."""
        found = self._metrics.get(key)
        if found is None:
            found = self._metrics[key] = RequestMetrics(self.parts.metrics, key.api_name)
        return found

    def opened(self, connection: ClientConnection) -> str | None:
        """Count a connection in; gives why it cannot be had."""
        host, limits = connection.host, self.limits
        if len(self.connections) >= limits.connections_max:
            return "too many connections"
        if self._by_host.get(host, 0) >= limits.connections_per_host_max:
            return "too many connections of this host"
        self.connections[connection] = None
        self._by_host[host] = self._by_host.get(host, 0) + 1
        return None

    def closed(self, connection: ClientConnection) -> None:
        """Count a connection out."""
        if connection not in self.connections:
            return
        del self.connections[connection]
        self._starved.pop(connection, None)
        self._by_host[connection.host] -= 1
        if not self._by_host[connection.host]:
            del self._by_host[connection.host]

    def has_memory_for(self, connection: ClientConnection, growth: int) -> bool:
        """Count the memory of unfinished requests; without any left, a connection waits for others."""
        self.unfinished_bytes += growth
        if self.unfinished_bytes > self.limits.unfinished_bytes_max and growth > 0:
            self._starved[connection] = None
            return False
        if growth < 0 and self._starved:
            starved, self._starved = self._starved, {}
            for each in starved:
                each.fed()
        return True

    def sweep(self, now_ms: int) -> None:
        """Close the connections that are idle, and those whose request does not come."""
        for connection in list(self.connections):
            connection.close_if_overdue(now_ms)


class ClientConnection:
    """One connection; it implements the Receiver port."""

    __slots__ = (
        "_apis",
        "_clock",
        "_connection",
        "_frame_since_ms",
        "_frames",
        "_heard_ms",
        "_holding",
        "_is_clogged",
        "_is_ending",
        "_is_muted",
        "_is_reading",
        "_is_resuming",
        "_is_starved",
        "_is_taking",
        "_listener",
        "_principal",
        "_queue",
        "_replies",
        "_server",
        "_unfinished",
        "host",
    )

    def __init__(self, server: Server, listener: ListenerConfig, apis: Mapping[int, Api]) -> None:
        self._server = server
        self._clock = server.parts.world.clock
        self._listener = listener
        self._apis = apis
        self._frames = framing.Receiver(
            server.shared, frame_bytes_max=server.limits.request_bytes_max, spares=server.spares
        )
        self._replies = framing.Replies()
        self._queue: deque[framing.Frame] = deque()
        self._connection: Connection | None = None
        self._principal: Principal = ANONYMOUS
        self._holding: Holding | None = None
        self._unfinished = 0
        self._heard_ms = 0
        self._frame_since_ms = 0
        self._is_reading = True
        self._is_clogged = False
        self._is_ending = False
        self._is_muted = False
        self._is_resuming = False
        self._is_starved = False
        self._is_taking = False
        self.host = ""

    # ------------------------------------------------------------ the Receiver port

    def connected(self, connection: Connection) -> None:
        """The connection is there."""
        server = self._server
        self._connection = connection
        self.host = connection.peer.host
        if connection.peer_subject is not None:
            self._principal = Principal(USER, connection.peer_subject)
        now_ms = self._clock.now_ms()
        self._heard_ms = now_ms
        refusal = server.opened(self)
        if refusal is not None:
            log.limited(refusal, key=self.host, now_ms=now_ms, host=self.host)
            connection.abort()
            return
        delay_ms = server.parts.quotas.record_connection(self.host, now_ms)
        if delay_ms:
            self._mute(delay_ms)

    def buffer_to_fill(self, hint: int) -> memoryview:
        """Room for what arrives next."""
        return self._frames.buffer_to_fill(hint)

    def filled(self, count: int) -> None:
        """Requests, or a part of one, have arrived; what cannot be read ends the connection."""
        if self._has_ended():
            return
        now_us = self._clock.now_us()
        self._heard_ms = now_us // 1000
        turn_ends_us = now_us + _TURN_US
        kept = None
        self._is_taking = True
        try:
            for frame in self._frames.filled(count):
                if not self._queue and now_us < turn_ends_us and self._may_take():
                    self._take(frame, now_us)
                    now_us = self._clock.now_us()
                else:
                    # A frame that is not the first that has come reaches beyond what came last.
                    kept = kept or _Kept(frame, end=max(frame.end, count))
                    self._queue.append(kept.own(frame))
                if self._has_ended():
                    break
        except (MalformedMessage, KafkaError) as error:
            self.break_off(str(error))
            return
        except Exception as error:  # noqa: BLE001  a bug stops the node, it does not just drop a client
            self._server.fail(error)
            return
        finally:
            self._is_taking = False
        owned = self._frames.owned_bytes
        if owned != self._unfinished:
            if not self._unfinished:
                self._frame_since_ms = self._heard_ms
            growth, self._unfinished = owned - self._unfinished, owned
            self._is_starved = not self._server.has_memory_for(self, growth)
        self._send()
        self._update_reading()

    def pause_sending(self) -> None:
        """The client reads slowly: it is asked for no more until it has read what it asked for."""
        self._is_clogged = True
        self._update_reading()

    def resume_sending(self) -> None:
        """The client has read."""
        self._is_clogged = False
        self._update_reading()

    def disconnected(self, error: Exception | None) -> None:
        """Nobody waits any more."""
        self._is_ending = True
        self._connection = None
        self._server.has_memory_for(self, -self._unfinished)
        self._unfinished = 0
        self._server.closed(self)
        self._queue.clear()
        if self._holding is not None:
            self._holding.cancel()
            self._holding = None

    # ------------------------------------------------------------ taking requests

    def _take(self, frame: framing.Frame, began_us: int) -> None:
        request = framing.read_request(frame)
        if isinstance(request, framing.UnservedRequest):
            self._refuse_unserved(request)
            return
        api = self._apis.get(request.api_key)
        if api is None:
            raise MalformedMessage(
                f"{request.api_key.api_name} is not served at listener {self._listener.name}"
            )
        call = Call(
            request,
            request.body(),
            asker=self,
            principal=self._principal,
            host=self.host,
            listener=self._listener,
            began_us=began_us,
        )
        call.place = self._replies.expect()
        answer = dispatch.begin(self._server.parts, api, call)
        if answer is None:
            if not api.overlaps and call.place.chunks is None:
                self._holding = Holding(call)
            return
        if isinstance(answer, Response):
            self.answered(call, answer)
            return
        holding = Holding()
        if not api.overlaps:
            self._holding = holding
        holding.task = self._server.scope.start(
            self._finish(api, call, answer, holding), name=f"{request.api_key.api_name} for {self.host}"
        )

    def _refuse_unserved(self, request: framing.UnservedRequest) -> None:
        if request.api_key != ApiKey.API_VERSIONS:
            raise MalformedMessage(f"API {request.api_key} in version {request.version} is not served")
        self._replies.expect().complete(
            framing.encode_response(
                versions.unsupported(),
                api_key=ApiKey.API_VERSIONS,
                version=0,
                correlation_id=request.correlation_id,
            )
        )

    async def _finish(
        self, api: Api, call: Call, answer: Coroutine[object, object, Response | None], holding: Holding
    ) -> None:
        response = await dispatch.finish(api, call, answer)
        if response is not None:
            self.answered(call, response)
        if self._holding is holding:
            self._holding = None
            self._take_queued()

    def _may_take(self) -> bool:
        """Whether a request may begin now: it would be answered, and the client reads its answers."""
        return (
            self._holding is None
            and not self._is_ending
            and not self._is_clogged
            and not self._is_muted
            and len(self._replies) <= _OVERLAPPING_MAX
        )

    async def _resume(self) -> None:
        """Take the next turn with what has come and was not begun."""
        self._is_resuming = False
        self._take_queued()

    def _take_queued(self) -> None:
        now_us = self._clock.now_us()
        turn_ends_us = now_us + _TURN_US
        self._is_taking = True
        try:
            while self._queue and now_us < turn_ends_us and self._may_take():
                self._take(self._queue.popleft(), now_us)
                now_us = self._clock.now_us()
        except (MalformedMessage, KafkaError) as error:
            self.break_off(str(error))
        finally:
            self._is_taking = False
        self._send()
        self._update_reading()

    # ------------------------------------------------------------ answering

    def answered(self, call: Call, response: Response | None) -> None:
        """Send the response, when its turn comes; None if the client expects none."""
        if self._connection is None:
            # Whoever asked is gone.
            return
        request = call.received
        now_us = self._clock.now_us()
        chunks: list[Chunk] = []
        if response is not None:
            throttle_ms = self._metered(call, response, now_us)
            chunks = framing.encode_response(
                response,
                api_key=request.api_key,
                version=request.version,
                correlation_id=request.correlation_id,
            )
            if throttle_ms:
                self._mute(throttle_ms)
        call.place.complete(chunks)
        size_bytes = len(chunks[0]) if len(chunks) == 1 else sum(map(len, chunks))
        self._counted(call, response, size_bytes=size_bytes, now_us=now_us)
        if self._holding is not None and self._holding.call is call:
            self._holding = None
            if not self._is_taking:
                self._take_queued()
        elif not self._is_taking:
            self._send()
            self._update_reading()

    def answered_encoded(self, call: Call, response: bytes) -> None:
        """Send a response that the controller has encoded, header and body."""
        if self._connection is None:
            return
        call.place.complete([len(response).to_bytes(4, "big"), response])
        decoded = framing.decode_response(response, api_key=call.received.api_key, version=call.version)
        self._counted(call, decoded, size_bytes=len(response), now_us=self._clock.now_us())
        throttle_ms: int = getattr(decoded, "throttle_time_ms", 0)
        if throttle_ms:
            self._mute(throttle_ms)
        if not self._is_taking:
            self._send()

    def _counted(self, call: Call, response: Response | None, *, size_bytes: int, now_us: int) -> None:
        frame = call.received.frame
        metrics = self._server.metrics_of(call.received.api_key)
        metrics.answered(
            seconds=(now_us - call.began_us) / 1_000_000,
            request_bytes=frame.end - frame.start,
            response_bytes=size_bytes,
        )
        for error in dispatch.errors_of(response) if response is not None else ():
            metrics.failed(error)

    def _has_ended(self) -> bool:
        return self._is_ending

    def break_off(self, why: str) -> None:
        """End the connection, where Kafka does so instead of answering."""
        connection = self._connection
        if connection is None:
            return
        now_ms = self._clock.now_ms()
        log.limited("connection closed", key=self.host, now_ms=now_ms, host=self.host, why=why)
        self._is_ending = True
        # What was answered before it is still for the client.
        self._send()
        connection.close()

    def _metered(self, call: Call, response: Response, now_us: int) -> int:
        """Count the request towards quotas; gives for how long the client has to pause, and tells it."""
        parts = self._server.parts
        api = self._apis[call.received.api_key]
        quotas = parts.quotas
        if api.metered is Metered.EXEMPT or not quotas.is_configured:
            return 0
        now_ms = now_us // 1000
        user, client_id = call.principal.name, call.client_id
        took_us = now_us - call.began_us if self._is_taking else 0
        throttle_ms = quotas.record(
            QuotaKind.REQUEST_NANOSECONDS,
            user=user,
            client_id=client_id,
            amount=took_us * 1000,
            now_ms=now_ms,
        )
        if api.metered is Metered.PRODUCED:
            frame = call.received.frame
            size = frame.end - frame.start
            produced_ms = quotas.record(
                QuotaKind.PRODUCE_BYTES, user=user, client_id=client_id, amount=size, now_ms=now_ms
            )
            throttle_ms = max(throttle_ms, produced_ms)
        elif api.metered is Metered.FETCHED:
            size = dispatch.size_of(response)
            fetched_ms = quotas.record(
                QuotaKind.FETCH_BYTES, user=user, client_id=client_id, amount=size, now_ms=now_ms
            )
            throttle_ms = max(throttle_ms, fetched_ms)
        if throttle_ms:
            response.throttle_time_ms = throttle_ms  # type: ignore[attr-defined]  # all that is metered has it
        return throttle_ms

    def _send(self) -> None:
        connection = self._connection
        if connection is None:
            return
        chunks = self._replies.sendable()
        if chunks:
            try:
                connection.send(chunks)  # type: ignore[arg-type]
            except OSError as error:
                # A slice of a file could not be read: half a response helps nobody.
                log.error("records cannot be read", error=str(error))
                connection.abort()

    # ------------------------------------------------------------ reading no faster than answering

    def _update_reading(self) -> None:
        connection = self._connection
        if connection is None:
            return
        should_read = not (
            self._is_clogged
            or self._is_muted
            or self._is_starved
            or self._queue
            or len(self._replies) > _OVERLAPPING_MAX
        )
        if should_read != self._is_reading:
            self._is_reading = should_read
            if should_read:
                self._frame_since_ms = self._clock.now_ms()
                connection.resume_reading()
            else:
                connection.pause_reading()
        if self._queue and not self._is_resuming and self._may_take():
            self._is_resuming = True
            self._server.scope.start(self._resume(), name=f"next turn of {self.host}")

    def fed(self) -> None:
        """There is memory again."""
        self._is_starved = False
        self._update_reading()

    def _mute(self, duration_ms: int) -> None:
        """Read nothing for a while: the response is out, and tells the client to pause (KIP-219)."""
        self._is_muted = True
        self._update_reading()
        self._server.scope.start(self._unmute(duration_ms), name=f"unmute {self.host}")

    async def _unmute(self, duration_ms: int) -> None:
        await self._clock.sleep_ms(duration_ms)
        self._is_muted = False
        self._update_reading()

    def close_if_overdue(self, now_ms: int) -> None:
        """Close the connection if it is idle, or if what it has begun to send does not come."""
        connection = self._connection
        if connection is None:
            return
        # While nothing is read from the client for other reasons, the rest of the frame may well be there.
        if self._unfinished and (self._is_reading or self._is_starved):
            overdue_ms = now_ms - self._frame_since_ms - self._server.limits.frame_patience_ms
            pace_bytes = overdue_ms * _FRAME_BYTES_PER_SECOND // 1000
            if overdue_ms > 0 and self._unfinished < pace_bytes + _FRAME_BYTES_PER_SECOND:
                log.limited("unfinished request", key=self.host, now_ms=now_ms, host=self.host)
                connection.abort()
        elif now_ms - self._heard_ms > self._server.limits.idle_ms_max and not len(self._replies):
            connection.abort()


class Holding:
    """A request that is answered later, and holds the line until then."""

    __slots__ = ("call", "task")

    def __init__(self, call: Call | None = None) -> None:
        self.call = call
        """Whose answer ends it, unless the end of a task does."""
        self.task: object = None

    def cancel(self) -> None:
        """Nobody waits for it any more."""
        with contextlib.suppress(AttributeError):
            self.task.cancel()  # type: ignore[attr-defined]


class _Kept:
    """What is left of a shared buffer from one frame on, in memory of its own, where frames may wait."""

    __slots__ = ("_buffer", "_start")

    def __init__(self, first: framing.Frame, *, end: int) -> None:
        self._start = first.start
        self._buffer = bytearray(memoryview(first.buffer)[first.start : end])

    def own(self, frame: framing.Frame) -> framing.Frame:
        """The same frame here."""
        start = self._start
        return framing.Frame(self._buffer, frame.start - start, frame.end - start, is_shared=False)
