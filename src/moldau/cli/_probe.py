"""What is found at an address, from this machine: nothing, something else, or a broker that speaks."""

from __future__ import annotations

import contextlib
import errno
import socket
import ssl
import struct
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from moldau.model.errors import MalformedMessage
from moldau.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from moldau.wire.messages.header import RequestHeader

REFUSED: Final = "connection refused"
TIMED_OUT: Final = "no answer"
ENDED_AFTER_HANDSHAKE: Final = "the connection was ended right after the handshake"

_CORRELATION_ID: Final = 0x4D6F6C64
_REPLY_BYTES_MAX: Final = 2**20
_SHOWN_BYTES: Final = 16
# Whoever says nothing to a frame, or hangs up on it, may wait for a line: the web does, and others answer
# that they do not know this one.
_LINE: Final = b"GET / HTTP/1.0\r\n\r\n"
# How long somebody is waited for who has let us in before, and was not understood.
_SECOND_LOOK_S_MAX: Final = 3.0
# What a TLS server answers to whoever does not speak TLS: an alert, of any version.
_TLS_ALERT: Final = b"\x15\x03"


@dataclass(frozen=True, slots=True)
class Unresolved:
    """The name leads nowhere."""

    why: str


@dataclass(frozen=True, slots=True)
class Unconnected:
    """Nobody lets us in: each address that the name stands for, and why."""

    tried: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Silent:
    """Somebody lets us in, and then says nothing."""


@dataclass(frozen=True, slots=True)
class HangsUp:
    """Somebody lets us in, and ends the connection when we speak."""


@dataclass(frozen=True, slots=True)
class Foreign:
    """Somebody answers, but not in Kafka's protocol."""

    first_bytes: bytes


@dataclass(frozen=True, slots=True)
class WantsTls:
    """We spoke in plaintext to somebody who speaks TLS."""


@dataclass(frozen=True, slots=True)
class WantsPlaintext:
    """We spoke TLS to a broker that speaks in plaintext."""


@dataclass(frozen=True, slots=True)
class TlsFailed:
    """Both speak TLS, and one does not trust the other."""

    why: str


@dataclass(frozen=True, slots=True)
class Answers:
    """A node that speaks Kafka's protocol, with the versions it serves; `passed_over` did not let us in."""

    apis: Mapping[int, tuple[int, int]]
    address: str
    passed_over: Mapping[str, str]
    milliseconds: float


SocketAddress = tuple[str, int] | tuple[str, int, int, int] | tuple[int, bytes]
Outcome = (
    Unresolved | Unconnected | Silent | HangsUp | Foreign | WantsTls | WantsPlaintext | TlsFailed | Answers
)


def probe(host: str, port: int, *, tls: ssl.SSLContext | None, timeout_s: float) -> Outcome:
    """Go there and ask for the versions that are served."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        return Unresolved(getattr(error, "strerror", None) or str(error))
    tried: dict[str, str] = {}
    for family, _, _, _, address in found:
        try:
            connected = _connect(family, address, timeout_s)
        except OSError as error:
            tried[str(address[0])] = _why(error)
            continue
        with connected:
            place = _Place(family, address, host, timeout_s)
            if tls is not None:
                return _speak_tls(place, connected, tls, tried)
            return _speak_plaintext(place, connected, tried)
    return Unconnected(tried)


@contextlib.contextmanager
def open_connection(
    host: str, port: int, *, tls: ssl.SSLContext | None, timeout_s: float
) -> Iterator[socket.socket]:
    """A connection to where a probe has found a node."""
    with socket.create_connection((host, port), timeout=timeout_s) as connected:
        if tls is None:
            yield connected
        else:
            with tls.wrap_socket(connected, server_hostname=host) as wrapped:
                yield wrapped


# ---------------------------------------------------------------- speaking


@dataclass(frozen=True, slots=True)
class _Place:
    """One of the addresses that a name stands for."""

    family: int
    address: SocketAddress
    host: str
    timeout_s: float

    def connect_again(self) -> socket.socket:
        return _connect(self.family, self.address, min(self.timeout_s, _SECOND_LOOK_S_MAX))


def _connect(family: int, address: SocketAddress, timeout_s: float) -> socket.socket:
    connected = socket.socket(family, socket.SOCK_STREAM)
    connected.settimeout(timeout_s)
    try:
        connected.connect(address)
    except OSError:
        connected.close()
        raise
    return connected


def _speak_plaintext(place: _Place, connected: socket.socket, passed_over: Mapping[str, str]) -> Outcome:
    outcome = _ask_versions(place, connected, passed_over)
    if not isinstance(outcome, HangsUp | Silent | Foreign):
        return outcome
    # Some servers take no other connection before this one has ended.
    connected.close()
    if _is_tls_spoken(place, outcome):
        return WantsTls()
    if not isinstance(outcome, Foreign) and (answer := _answer_to_a_line(place)):
        return Foreign(answer)
    return outcome


def _speak_tls(
    place: _Place, connected: socket.socket, tls: ssl.SSLContext, passed_over: Mapping[str, str]
) -> Outcome:
    try:
        with tls.wrap_socket(connected, server_hostname=place.host) as wrapped:
            outcome = _ask_versions(place, wrapped, passed_over)
            # In TLS 1.3 a broker judges a client when the client believes that all is well.
            return TlsFailed(ENDED_AFTER_HANDSHAKE) if isinstance(outcome, HangsUp) else outcome
    except ssl.SSLCertVerificationError as error:
        return TlsFailed(error.verify_message)
    except TimeoutError:
        return Silent()
    except OSError as error:
        with contextlib.suppress(OSError), place.connect_again() as again:
            if isinstance(_ask_versions(place, again, passed_over), Answers):
                return WantsPlaintext()
        return TlsFailed(_tls_reason(error))


def _ask_versions(place: _Place, connected: socket.socket, passed_over: Mapping[str, str]) -> Outcome:
    """Ask in version 0, which everybody understands."""
    header = RequestHeader(
        request_api_key=ApiVersionsRequest.declaration.key or 0,
        request_api_version=0,
        correlation_id=_CORRELATION_ID,
        client_id="moldau-doctor",
    )
    frame = header.encode(1) + ApiVersionsRequest().encode(0)
    began = time.monotonic()
    data = b""
    try:
        connected.sendall(struct.pack(">i", len(frame)) + frame)
        while (missing := bytes_missing(data)) > 0:
            chunk = connected.recv(missing)
            if not chunk:
                return Foreign(data[:_SHOWN_BYTES]) if data else HangsUp()
            data += chunk
    except TimeoutError:
        return Foreign(data[:_SHOWN_BYTES]) if data else Silent()
    except ssl.SSLError as error:
        return TlsFailed(_tls_reason(error))
    except OSError:
        return HangsUp()
    milliseconds = (time.monotonic() - began) * 1000
    apis = read_versions(data)
    if apis is None:
        return Foreign(data[:_SHOWN_BYTES])
    return Answers(apis, str(place.address[0]), dict(passed_over), milliseconds)


def bytes_missing(data: bytes) -> int:
    """How much of a reply is still to come; nothing, where it cannot be one."""
    if len(data) < 8:
        return 8 - len(data)
    size, correlation_id = struct.unpack_from(">ii", data)
    if correlation_id != _CORRELATION_ID or not 4 <= size <= _REPLY_BYTES_MAX:
        return 0
    return int(size) + 4 - len(data)


def read_versions(data: bytes) -> dict[int, tuple[int, int]] | None:
    """The versions in a reply; None if it is none of Kafka's."""
    if len(data) < 8 or struct.unpack_from(">i", data, 4)[0] != _CORRELATION_ID:
        return None
    try:
        reply = ApiVersionsResponse.decode(data[8:], 0)
    except MalformedMessage:
        return None
    return {row.api_key: (row.min_version, row.max_version) for row in reply.api_keys}


def _is_tls_spoken(place: _Place, outcome: Outcome) -> bool:
    """Whether somebody who did not understand us speaks TLS."""
    if isinstance(outcome, Foreign):
        return outcome.first_bytes.startswith(_TLS_ALERT)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with place.connect_again() as again, context.wrap_socket(again):
            return True
    except ssl.SSLError as error:
        # Whoever answers with an alert speaks TLS too.
        return "ALERT" in (error.reason or "")
    except OSError:
        return False


def _answer_to_a_line(place: _Place) -> bytes:
    """What somebody says who did not understand a frame, if anything."""
    with contextlib.suppress(OSError), place.connect_again() as again:
        again.sendall(_LINE)
        return again.recv(_SHOWN_BYTES)
    return b""


# ---------------------------------------------------------------- reasons


def _why(error: OSError) -> str:
    if isinstance(error, TimeoutError):
        return TIMED_OUT
    if error.errno == errno.ECONNREFUSED:
        return REFUSED
    return (error.strerror or str(error)).lower()


def _tls_reason(error: OSError) -> str:
    if isinstance(error, ssl.SSLError) and error.reason:
        return error.reason.lower().replace("_", " ")
    return (error.strerror or str(error)).lower()
