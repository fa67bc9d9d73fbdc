"""The bare limit: a server that takes bytes, writes them to a file and answers, without any protocol.

    python bench/compare/bare.py FILE

It prints the port at which it listens. The first byte of a connection says what it is for: `W` writes what
comes, `F` flushes it too before it answers, and each answer is how many bytes have come so far; `T` writes
what comes and sends it back; `R` sends the first bytes of the file, as many as the next eight bytes say; `E`
empties the file. What a broker needs beyond this is the price of being a broker.
"""

from __future__ import annotations

import os
import selectors
import socket
import struct
import sys
from pathlib import Path

COUNT = struct.Struct(">Q")
WRITE, WRITE_AND_FLUSH, THROUGH, READ, EMPTY = b"W", b"F", b"T", b"R", b"E"

_RECEIVE_BYTES = 256 * 1024


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
                        poll.register(accepted, selectors.EVENT_READ, kind)
                    continue
                count = connected.recv_into(room)
                if not count:
                    poll.unregister(connected)
                    connected.close()
                    del received[connected]
                    continue
                os.write(file, room[:count])
                if key.data == THROUGH:
                    connected.sendall(room[:count])
                    continue
                if key.data == WRITE_AND_FLUSH:
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
