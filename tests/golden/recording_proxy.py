"""A TCP proxy that writes down every Kafka request that passes, with its response."""

import contextlib
import socket
import struct
import threading
from dataclasses import dataclass, field


@dataclass(slots=True)
class Exchange:
    """One request and what came back; a response of None never came."""

    listener: str
    api_key: int
    api_version: int
    correlation_id: int
    request: bytes
    response: bytes | None = None


@dataclass(slots=True)
class Recording:
    """Every exchange of all proxies, in the order of the requests."""

    exchanges: list[Exchange] = field(default_factory=list)


class RecordingProxy:
    """Listens on a loopback port of its own and passes everything on to `target_port`."""

    def __init__(self, recording: Recording, *, listener: str, target_port: int) -> None:
        self._recording = recording
        self._listener = listener
        self._target_port = target_port
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Stop accepting connections; open ones end with their peers."""
        self._server.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._server.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        try:
            broker = socket.create_connection(("127.0.0.1", self._target_port))
        except OSError:
            client.close()
            return
        waiting: dict[int, Exchange] = {}
        replies = threading.Thread(target=self._pass_responses, args=(broker, client, waiting), daemon=True)
        replies.start()
        with contextlib.suppress(OSError):
            while (frame := read_frame(client)) is not None:
                api_key, api_version, correlation_id = struct.unpack_from(">hhi", frame)
                exchange = Exchange(self._listener, api_key, api_version, correlation_id, frame)
                waiting[correlation_id] = exchange
                self._recording.exchanges.append(exchange)
                send_frame(broker, frame)
        _hang_up(broker)
        replies.join()
        client.close()
        broker.close()

    def _pass_responses(
        self, broker: socket.socket, client: socket.socket, waiting: dict[int, Exchange]
    ) -> None:
        with contextlib.suppress(OSError):
            while (frame := read_frame(broker)) is not None:
                exchange = waiting.pop(int.from_bytes(frame[:4], "big", signed=True))
                exchange.response = frame
                send_frame(client, frame)
        _hang_up(client)


def read_frame(connection: socket.socket) -> bytes | None:
    """The next length-prefixed frame without its length, or None at the end of the stream."""
    length = _read_exactly(connection, 4)
    return None if length is None else _read_exactly(connection, int.from_bytes(length, "big"))


def send_frame(connection: socket.socket, frame: bytes) -> None:
    """Send a frame behind its length."""
    connection.sendall(len(frame).to_bytes(4, "big") + frame)


def _read_exactly(connection: socket.socket, length: int) -> bytes | None:
    data = bytearray()
    while len(data) < length:
        piece = connection.recv(length - len(data))
        if not piece:
            return None
        data += piece
    return bytes(data)


def _hang_up(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
