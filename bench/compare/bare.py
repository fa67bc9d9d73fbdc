"""The bare limit: a server that takes bytes, writes them to a file and answers, without any protocol.

    python bench/compare/bare.py FILE

It prints the port at which it listens. The first byte of a connection says what it is for: `W` writes what
comes, `F` flushes it too before it answers, and each answer is how many bytes have come so far; `R` sends the
first bytes of the file, as many as the next eight bytes say; `E` empties the file. What a broker needs beyond
this is the price of being a broker.
"""

from __future__ import annotations

import os
import selectors
import socket
import struct
import sys
from pathlib import Path

from moldau.bench.pipeline import Line

COUNT = struct.Struct(">Q")
WRITE, WRITE_AND_FLUSH, READ, EMPTY = b"W", b"F", b"R", b"E"

_RECEIVE_BYTES = 256 * 1024


class BareLine(Line):
    """The client's side of a connection that writes: a request is answered when its last byte has come."""

    kind = WRITE
    _taken = 0

    def send(self) -> None:
        """Say first what the connection is for."""
        if not self._sent_bytes:
            self.socket.send(self.kind)
        super().send()

    def new_replies(self) -> int:
        """How many more requests the server has, as its last answer says."""
        end = len(self.replies) // COUNT.size * COUNT.size
        if not end:
            return 0
        before = self._taken
        self._taken = COUNT.unpack_from(self.replies, end - COUNT.size)[0] // self._frame_bytes
        return self._taken - before


class FlushedBareLine(BareLine):
    """The same, flushed to disk."""

    kind = WRITE_AND_FLUSH


def serve(path: Path) -> None:
    """Serve connections for ever."""
    room = memoryview(bytearray(_RECEIVE_BYTES))
    file = os.open(path, os.O_RDWR | os.O_CREAT)
    received: dict[socket.socket, int] = {}
    with (
        socket.create_server(("127.0.0.1", 0), backlog=1024) as listener,
        selectors.DefaultSelector() as poll,
    ):
        print(listener.getsockname()[1], flush=True)
        poll.register(listener, selectors.EVENT_READ)
        while True:
            for key, _ in poll.select():
                connected = key.fileobj
                assert isinstance(connected, socket.socket)
                if connected is listener:
                    accepted = listener.accept()[0]
                    accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    kind = accepted.recv(1)
                    if kind == READ:
                        send_file(accepted, file)
                    elif kind == EMPTY:
                        empty_file(accepted, file)
                    elif kind:
                        received[accepted] = 0
                        poll.register(accepted, selectors.EVENT_READ, kind == WRITE_AND_FLUSH)
                    continue
                count = connected.recv_into(room)
                if not count:
                    poll.unregister(connected)
                    connected.close()
                    del received[connected]
                    continue
                os.write(file, room[:count])
                if key.data:
                    os.fdatasync(file)
                received[connected] += count
                connected.send(COUNT.pack(received[connected]))


def send_file(connected: socket.socket, file: int) -> None:
    """Send the beginning of the file, as much as the client wants."""
    with connected:
        (left,) = COUNT.unpack(connected.recv(COUNT.size, socket.MSG_WAITALL))
        position = 0
        while left:
            sent = os.sendfile(connected.fileno(), file, position, min(left, 2**30))
            if not sent:
                return
            position += sent
            left -= sent


def empty_file(connected: socket.socket, file: int) -> None:
    """Forget what was written."""
    with connected:
        os.ftruncate(file, 0)
        os.lseek(file, 0, os.SEEK_SET)
        connected.send(EMPTY)


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
