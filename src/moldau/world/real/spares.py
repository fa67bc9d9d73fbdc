"""Descriptors held back for the files of logs, which clients could otherwise take all for their sockets."""

from __future__ import annotations

import errno
import os

# A flush that cannot open a directory would fail the disk, so this many can be opened with nothing left.
SPARES = 16
OUT_OF_FILES = (errno.EMFILE, errno.ENFILE)


class SpareFiles:
    """Opens files of the disk, at the cost of a spare descriptor when there are no others; for any thread."""

    def __init__(self) -> None:
        self._held: list[int] = []
        self.refill()

    def __del__(self) -> None:
        self.close()

    def open(self, path: str, flags: int) -> int:
        """`os.open`, also while clients hold all that the system gives."""
        while True:
            try:
                return os.open(path, flags, 0o644)
            except OSError as error:
                # In another thread a client may be quicker than we are, so that one spare need not be enough.
                if error.errno not in OUT_OF_FILES or not self._held:
                    raise
                os.close(self._held.pop())

    def refill(self) -> None:
        """Hold back as many as there should be, or as there are; best called where one was just closed."""
        while len(self._held) < SPARES:
            try:
                self._held.append(os.open(os.devnull, os.O_RDONLY))
            except OSError:
                return

    def close(self) -> None:
        """Give all back."""
        while self._held:
            os.close(self._held.pop())
