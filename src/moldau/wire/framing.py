"""A connection without its socket: bytes in, whole requests out, replies in order.

A frame is an int32 size and as many bytes. All connections of a loop read into one shared buffer, and frames
that arrive whole are parsed where they lie. A connection has memory of its own only for a frame that has not
arrived completely, and never much more than has arrived of it, whatever its size claims to be; unless it
trusts its peer, or finds memory that the last large frame has left: then large frames do not move while they
grow.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Final, NamedTuple

from moldau.model.errors import ErrorCode, MalformedMessage
from moldau.wire import message
from moldau.wire.compiler import Chunk, Decoder, Encoder, decoder, encoder
from moldau.wire.messages import (
    REQUESTS,
    RESPONSES,
    ApiKey,
    request_header_version,
    response_header_version,
    spoken_versions,
)
from moldau.wire.messages.header import RequestHeader, ResponseHeader

_SIZE = struct.Struct(">i")
_SIZE_BYTES: Final = _SIZE.size
_INT16 = struct.Struct(">h")
# The first fields of a request's header, which never change: API key, version, correlation id.
_HEADER_START = struct.Struct(">hhi")
# The size of a response and the field that every version of its header begins with, the correlation id.
_RESPONSE_START = struct.Struct(">ii")
_CORRELATION_ID_BYTES = 4
_WITH_RECORDS = frozenset((ApiKey.FETCH, ApiKey.FETCH_SNAPSHOT, ApiKey.SHARE_FETCH))
_OWN_BYTES_MIN = 4096
# Enough for producers with usual settings that send at the same time.
_SPARES_MAX = 4
_SPARE_BYTES_MAX = 2 * 2**20
# Shorter chunks are joined before they are sent; copying longer ones costs more than sending them apart.
_JOINED_BYTES_MAX = 8192
_CORRELATION_IDS = 2**31


class Frame(NamedTuple):
    """The bytes of one request or response, without its size.

    The bytes of a shared frame are gone with the next frame on any connection of the loop.
    """

    buffer: bytes | bytearray
    start: int
    end: int
    is_shared: bool


class Spares:
    """Memory that large frames leave for the next ones, of all connections of a loop.

    New memory is cleared by Python and mapped by the kernel page by page, which takes longer than the frame.
    """

    def __init__(self) -> None:
        self._free: list[bytearray] = []

    def take(self, size: int) -> bytearray | None:
        """Memory of at least so many bytes, if there is any."""
        for number, buffer in enumerate(self._free):
            if len(buffer) >= size:
                return self._free.pop(number)
        return None

    def give(self, buffer: bytearray) -> None:
        """Leave memory that nobody looks at any more; of too much, the smallest piece is dropped."""
        if len(buffer) <= _SPARE_BYTES_MAX:
            self._free.append(buffer)
            self._free.sort(key=len)
            del self._free[:-_SPARES_MAX]


class Receiver:
    """Cuts what arrives on one connection into frames; made for `asyncio.BufferedProtocol`."""

    def __init__(
        self,
        shared: bytearray,
        *,
        frame_bytes_max: int,
        trusted_bytes: int = _OWN_BYTES_MIN,
        spares: Spares | None = None,
    ) -> None:
        """Frames of up to `trusted_bytes` get their memory at once, others as they arrive.

        With `spares`, every frame is shared.
        """
        assert len(shared) > _SIZE.size
        self._trusted_bytes = trusted_bytes
        self._spares = spares
        self._shared = shared
        self._frame_bytes_max = frame_bytes_max
        # The unfinished frame with its size in front, how much of it is there, and how much has room.
        self._own: bytearray | None = None
        self._own_bytes = 0
        self._own_room = 0

    @property
    def owned_bytes(self) -> int:
        """How much memory this connection holds."""
        return 0 if self._own is None else self._own_room

    def buffer_to_fill(self, size_hint: int = -1) -> memoryview:
        """Where the next read should put its bytes; never empty."""
        if self._own is None:
            return memoryview(self._shared)
        if self._own_bytes == self._own_room:
            self._move(memoryview(self._own)[: self._own_bytes])
        return memoryview(self._own)[self._own_bytes : self._own_room]

    def filled(self, count: int) -> Iterator[Frame]:
        """The frames that `count` more bytes complete; to be exhausted before the next read."""
        if self._own is not None:
            self._own_bytes += count
            yield from self._finished(self._own)
            return
        shared, position = self._shared, 0
        while count - position >= _SIZE_BYTES:
            start = position + _SIZE_BYTES
            end = start + self._checked_size(shared, position)
            if end > count:
                break
            # As the class itself makes one, without a call of its own: this is done for every request.
            yield tuple.__new__(Frame, (shared, start, end, True))
            position = end
        if position < count:
            self._move(memoryview(self._shared)[position:count])

    def _finished(self, own: bytearray) -> Iterator[Frame]:
        if self._own_bytes < _SIZE.size:
            return
        end = _SIZE.size + self._checked_size(own, 0)
        if self._own_bytes == end:
            self._own, self._own_bytes = None, 0
            yield Frame(own, _SIZE.size, end, is_shared=self._spares is not None)
            if self._spares is not None:
                self._spares.give(own)

    def _move(self, held: memoryview) -> None:
        """Have the beginning of a frame in memory of its own, with room for more of it.

        Room for as much again as has come, but not beyond the frame: the next is read in place.
        """
        whole, own = _SIZE.size, None
        if len(held) >= _SIZE.size:
            whole += self._checked_size(held, 0)
            own = self._spares.take(whole) if self._spares is not None else None
        if own is None:
            room = min(whole, max(2 * len(held), self._trusted_bytes))
            own = bytearray(room)
        else:
            room = whole
        own[: len(held)] = held
        self._own, self._own_bytes, self._own_room = own, len(held), room

    def _checked_size(self, buffer: bytearray | memoryview, position: int) -> int:
        size: int = _SIZE.unpack_from(buffer, position)[0]
        if not 0 <= size <= self._frame_bytes_max:
            raise MalformedMessage(
                f"a frame of {size} bytes, where at most {self._frame_bytes_max} are allowed"
            )
        return size


# ---------------------------------------------------------------- the server's side


class Request(NamedTuple):
    """A request whose header was read and whose body was not."""

    api_key: ApiKey
    version: int
    correlation_id: int
    client_id: str | None
    frame: Frame
    body_start: int

    def body(self) -> message.Request:
        """The body; its records are views into the frame."""
        decode = _dialects[self.api_key, self.version].decode_body
        return decode(self.frame.buffer, self.body_start, self.frame.end)[0]


@dataclass(frozen=True, slots=True)
class UnservedRequest:
    """A request for an API or version that we do not speak, so that its header cannot be trusted further.

    A client that asked for ApiVersions gets an answer in version 0; for others the connection is closed.
    """

    api_key: int
    version: int
    correlation_id: int


def read_request(frame: Frame) -> Request | UnservedRequest:
    """The request in a frame."""
    buffer, start, end, _ = frame
    if end - start < _HEADER_START.size:
        raise MalformedMessage(f"a request of {end - start} bytes is shorter than its header")
    api_key, version, correlation_id = _HEADER_START.unpack_from(buffer, start)
    dialect = _dialects.get((api_key, version)) or _learn(api_key, version)
    if dialect is None:
        return UnservedRequest(api_key, version, correlation_id)
    header, body_start = dialect.decode_header(buffer, start, end)
    return tuple.__new__(
        Request, (dialect.api_key, version, correlation_id, header.client_id, frame, body_start)
    )


class _Dialect(NamedTuple):
    """One API in one version, and what reads it."""

    api_key: ApiKey
    decode_header: Decoder[RequestHeader]
    decode_body: Decoder[message.Request]


# Found with one look per request. What is not spoken is not kept, or clients could fill it with nonsense.
_dialects: Final[dict[tuple[int, int], _Dialect]] = {}


def _learn(api_key: int, version: int) -> _Dialect | None:
    if api_key not in REQUESTS or not spoken_versions(api_key).includes(version):
        return None
    dialect = _dialects[api_key, version] = _Dialect(
        ApiKey(api_key),
        decoder(RequestHeader, request_header_version(api_key, version)),
        decoder(REQUESTS[api_key], version),
    )
    return dialect


class Reply:
    """The place of one reply in its connection's order."""

    __slots__ = ("chunks",)

    def __init__(self) -> None:
        self.chunks: list[Chunk] | None = None

    def complete(self, chunks: list[Chunk]) -> None:
        """Give the whole frame, from `encode_response`; none if the client expects no reply."""
        assert self.chunks is None, "a request is answered once"
        self.chunks = chunks


class Replies:
    """The replies of one connection, completed in any order and sent in the order of the requests."""

    def __init__(self) -> None:
        self._waiting: deque[Reply] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def expect(self) -> Reply:
        """Take the next place in the order, when a request arrives."""
        reply = Reply()
        self._waiting.append(reply)
        return reply

    def sendable(self) -> list[Chunk]:
        """What can be sent now: all replies up to the first that is not complete, for one write."""
        chunks: list[Chunk] = []
        while self._waiting and self._waiting[0].chunks is not None:
            chunks += self._waiting.popleft().chunks or ()
        return chunks


def encode_response(
    response: message.Response, *, api_key: int, version: int, correlation_id: int
) -> list[Chunk]:
    """A whole frame; records are passed on, not copied."""
    tags, encode = _response_writers(type(response), api_key, version)
    body: list[Chunk] = []
    encode(response, body)
    if api_key not in _WITH_RECORDS:
        # Nearly all responses are short: one copy is cheaper than a look at each chunk.
        whole = b"".join(body)  # type: ignore[arg-type]
        size = _CORRELATION_ID_BYTES + len(tags) + len(whole)
        return [_RESPONSE_START.pack(size, correlation_id) + tags + whole]
    size = _CORRELATION_ID_BYTES + len(tags) + sum(map(len, body))
    return list(_joined([_RESPONSE_START.pack(size, correlation_id), tags, *body]))


def decode_response(content: bytes, *, api_key: int, version: int) -> message.Response:
    """The body of a response that somebody else has encoded; a frame without its size."""
    position = _CORRELATION_ID_BYTES + response_header_version(api_key, version)
    return decoder(RESPONSES[api_key], version)(content, position, len(content))[0]


@cache
def _response_writers(cls: type[message.Response], api_key: int, version: int) -> tuple[bytes, Encoder]:
    """The tags in a response's header, of which there are none yet, and what writes its body."""
    return b"\0" * response_header_version(api_key, version), encoder(cls, version)


# ---------------------------------------------------------------- the client's side


class Requests:
    """The requests of one connection that wait for a response; a broker answers them in order."""

    def __init__(self, client_id: str | None) -> None:
        self._client_id = client_id
        self._correlation_id = 0
        self._waiting: deque[tuple[int, int, int]] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def encode(self, request: message.Request, version: int, *, is_answered: bool = True) -> list[Chunk]:
        """The frame of the next request; a produce request with acks=0 is not answered."""
        api_key = type(request).declaration.key
        assert api_key is not None, f"{type(request).__name__} has no key"
        correlation_id, self._correlation_id = (
            self._correlation_id,
            (self._correlation_id + 1) % _CORRELATION_IDS,
        )
        chunks = encode_request(
            request, version=version, correlation_id=correlation_id, client_id=self._client_id
        )
        if is_answered:
            self._waiting.append((api_key, version, correlation_id))
        return chunks

    def match(self, frame: Frame) -> message.Response:
        """The response in a frame, which must be to the oldest request."""
        if not self._waiting:
            raise MalformedMessage("a response to no request")
        api_key, version, correlation_id = self._waiting.popleft()
        buffer, start, end, _ = frame
        decode_header = decoder(ResponseHeader, response_header_version(api_key, version))
        header, position = decode_header(buffer, start, end)
        if header.correlation_id != correlation_id:
            raise MalformedMessage(f"a response to request {header.correlation_id}, not to {correlation_id}")
        if api_key == ApiKey.API_VERSIONS and _says_unsupported(buffer, position, end):
            # The broker does not know the version we asked in, and falls back to the one all clients know.
            version = 0
        return decoder(RESPONSES[api_key], version)(buffer, position, end)[0]


def encode_request(
    request: message.Request, *, version: int, correlation_id: int, client_id: str | None
) -> list[Chunk]:
    """A whole frame; records are passed on, not copied."""
    api_key = type(request).declaration.key
    assert api_key is not None, f"{type(request).__name__} has no key"
    header = RequestHeader(
        request_api_key=api_key,
        request_api_version=version,
        correlation_id=correlation_id,
        client_id=client_id,
    )
    body: list[Chunk] = []
    encoder(RequestHeader, request_header_version(api_key, version))(header, body)
    encoder(type(request), version)(request, body)
    return _framed(body)


def _says_unsupported(buffer: bytes | bytearray, position: int, end: int) -> bool:
    if end - position < _INT16.size:
        return False
    error_code: int = _INT16.unpack_from(buffer, position)[0]
    return error_code == ErrorCode.UNSUPPORTED_VERSION


def _framed(body: list[Chunk]) -> list[Chunk]:
    """`body` behind its size, with short chunks joined."""
    return list(_joined([_SIZE.pack(sum(map(len, body))), *body]))


def _joined(chunks: Iterable[Chunk]) -> Iterator[Chunk]:
    short: list[bytes | bytearray | memoryview] = []
    for chunk in chunks:
        if isinstance(chunk, bytes | bytearray | memoryview) and len(chunk) <= _JOINED_BYTES_MAX:
            short.append(chunk)
        else:
            if short:
                yield b"".join(short)
                short = []
            yield chunk
    if short:
        yield b"".join(short)
