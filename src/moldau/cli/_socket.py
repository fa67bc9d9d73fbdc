"""One connection to a broker over a plain socket, for questions that any broker can answer at once.

The client of `moldau.client` can do all this and much more, but loading it and asyncio takes longer than a
short command may.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final, TypeVar

from moldau.cli._errors import Failure, OutOfReach, too_large, unreachable
from moldau.model.errors import ErrorCode, MalformedMessage
from moldau.wire.compiler import UnencodableMessage
from moldau.wire.framing import Receiver, Requests
from moldau.wire.message import Request, Response
from moldau.wire.messages import ApiKey, spoken_versions
from moldau.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

R = TypeVar("R", bound=Response)

_CLIENT_ID: Final = "moldau-cli"
_READ_BYTES: Final = 64 * 1024
_REPLY_BYTES_MAX: Final = 2**30


@contextmanager
def open_socket(addresses: Iterable[tuple[str, int]], *, timeout_s: float) -> Iterator[SocketConnection]:
    """A connection to the first broker that answers; Failure if none does."""
    tried = []
    for host, port in addresses:
        try:
            connected = socket.create_connection((host, port), timeout=timeout_s)
        except OSError as error:
            tried.append(f"{host}:{port}: {error.strerror or error}")
            continue
        with connected:
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            yield SocketConnection(connected, timeout_s=timeout_s, name=f"{host}:{port}")
            return
    raise unreachable(f"No broker could be reached. Tried {'; '.join(tried)}.")


class SocketConnection:
    """Asks one thing after the other, in the newest versions that both sides speak."""

    def __init__(self, connected: socket.socket, *, timeout_s: float, name: str) -> None:
        self._socket = connected
        self._timeout_s = timeout_s
        self._name = name
        self._requests = Requests(_CLIENT_ID)
        self._receiver = Receiver(bytearray(_READ_BYTES), frame_bytes_max=_REPLY_BYTES_MAX)
        self._versions = self._negotiated()

    def ask(self, request: Request, reply: type[R]) -> R:
        """The reply to a request; errors inside it are the caller's."""
        api_key = type(request).declaration.key
        assert api_key is not None, f"{type(request).__name__} has no key"
        spoken = spoken_versions(api_key)
        lowest, highest = self._versions.get(api_key, (0, -1))
        version = min(spoken.highest, highest)
        if version < max(spoken.lowest, lowest):
            if ApiKey.METADATA not in self._versions:
                raise Failure(
                    f"{self._name}: This is the port of a controller, which serves no clients;"
                    " connect to that of a broker."
                )
            raise Failure(f"The broker at {self._name} does not serve {ApiKey(api_key).api_name}.")
        response = self._exchange(request, version)
        assert isinstance(response, reply)
        return response

    def _negotiated(self) -> dict[int, tuple[int, int]]:
        request = ApiVersionsRequest(client_software_name=_CLIENT_ID, client_software_version="1")
        response = self._exchange(request, ApiVersionsRequest.declaration.versions.highest)
        assert isinstance(response, ApiVersionsResponse)
        if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
            response = self._exchange(ApiVersionsRequest(), 0)
            assert isinstance(response, ApiVersionsResponse)
        return {row.api_key: (row.min_version, row.max_version) for row in response.api_keys}

    def _exchange(self, request: Request, version: int) -> Response:
        deadline = time.monotonic() + self._timeout_s
        try:
            for chunk in self._requests.encode(request, version):
                assert isinstance(chunk, bytes | bytearray | memoryview), "no request has slices of files"
                self._socket.sendall(chunk)
            while True:
                self._socket.settimeout(max(deadline - time.monotonic(), 0.001))
                count = self._socket.recv_into(self._receiver.buffer_to_fill())
                if count == 0:
                    raise unreachable(f"The broker at {self._name} closed the connection.")
                for frame in self._receiver.filled(count):
                    return self._requests.match(frame)
        except TimeoutError:
            raise OutOfReach(
                f"The broker at {self._name} did not answer within {self._timeout_s:g} s."
            ) from None
        except UnencodableMessage as error:
            raise too_large(error) from error
        except MalformedMessage as error:
            raise OutOfReach(
                f"What listens at {self._name} does not speak Kafka's protocol: {error}."
            ) from error
        except OSError as error:
            raise unreachable(f"The connection to {self._name} broke: {error.strerror or error}.") from error
