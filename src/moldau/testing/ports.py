"""Ports that nobody else is given, whether or not anything listens there yet, or again."""

from __future__ import annotations

import socket
from typing import Final

LOOPBACK: Final = "127.0.0.1"


class ReservedPort:
    """A port of the loopback interface that the kernel chose, kept until it is closed.

    It is bound by a socket that never listens. Linux then gives it to nobody who asks for any free port, but
    lets a server listen there that asks for this one, because both have SO_REUSEADDR. So a broker finds its
    port free when it starts and when it starts again, and while it is down clients are refused.
    """

    def __init__(self) -> None:
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind((LOOPBACK, 0))
        self.number: Final[int] = self._socket.getsockname()[1]
        self.address: Final = f"{LOOPBACK}:{self.number}"

    def close(self) -> None:
        """Let others have it."""
        self._socket.close()

    def is_served(self) -> bool:
        """Whether somebody listens there."""
        try:
            socket.create_connection((LOOPBACK, self.number)).close()
        except OSError:
            return False
        return True
