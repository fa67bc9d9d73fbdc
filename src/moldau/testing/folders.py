"""Temporary folders that go away: with their owner, or, if it was killed, when the next one is made."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from pathlib import Path
from typing import Final

_PREFIX: Final = "moldau-cluster-"


class TemporaryFolder:
    """A folder that is locked as long as its owner lives; what nobody has locked is nobody's."""

    def __init__(self) -> None:
        remove_abandoned_folders()
        while True:
            self.path = Path(tempfile.mkdtemp(prefix=_PREFIX))
            lock = _lock(self.path)
            if lock is not None:
                break
            # Somebody who cleans up found it before it was locked.
        self._lock: int | None = lock

    def remove(self) -> None:
        """Remove it with all that is in it."""
        if self._lock is not None:
            shutil.rmtree(self.path, ignore_errors=True)
            os.close(self._lock)
            self._lock = None


def remove_abandoned_folders() -> None:
    """Remove what was left by owners who could not."""
    for path in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        lock = _lock(path)
        if lock is not None:
            shutil.rmtree(path, ignore_errors=True)
            os.close(lock)


def _lock(path: Path) -> int | None:
    """Take the lock of a folder; None if it is taken, not ours or gone."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return None
    with contextlib.suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Whoever had it may have removed the folder just before.
        if os.stat(path).st_ino == os.fstat(descriptor).st_ino:
            return descriptor
    os.close(descriptor)
    return None
