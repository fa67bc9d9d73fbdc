"""The Disk port on a directory of the operating system."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import platform
import re
from collections.abc import Callable, Sequence

from moldau.world.flushing import directories_of
from moldau.world.paths import parts_of
from moldau.world.ports import Buffer, DiskFailed, Flush
from moldau.world.real.flushing import FlushThread
from moldau.world.real.spares import SpareFiles

# Above so many, one syncfs costs less than an fsync each.
FSYNCS_MAX = 8
# The kernel takes no more buffers in one call.
BUFFERS_PER_WRITE_MAX = 1024
# What is said of a path that has been removed, and perhaps replaced higher up by a file.
IS_GONE = (FileNotFoundError, NotADirectoryError)


class RealDisk:
    """A data directory; made, with its parents, if it is not there."""

    def __init__(self, directory: str) -> None:
        self.directory = os.path.abspath(directory)
        os.makedirs(self.directory, exist_ok=True)
        self.is_failed = False
        self._lock_fd: int | None = None
        self._spares = SpareFiles()
        self._flushes = FlushThread(self.flush_blocking)

    def open(self, path: str, *, create: bool = False) -> RealFile:
        """Open for reading and writing; FileNotFoundError unless it exists or `create`."""
        if create:
            self.check_writable()
        fd = self._spares.open(self._full(path), os.O_RDWR | (os.O_CREAT if create else 0))
        return RealFile(self, path, fd)

    def exists(self, path: str) -> bool:
        """Whether a file or directory of that name is there."""
        return os.path.exists(self._full(path))

    def make_directory(self, path: str) -> None:
        """Make it and what is missing above it; no error if it is there."""
        self.check_writable()
        os.makedirs(self._full(path), exist_ok=True)

    def rename(self, old: str, new: str) -> None:
        """Give a file or directory another name, replacing a file that has it."""
        self.check_writable()
        os.rename(self._full(old), self._full(new))

    def remove(self, path: str) -> None:
        """Remove a file, or a directory with everything in it; no error if it is gone."""
        self.check_writable()
        full = self._full(path)
        with contextlib.suppress(*IS_GONE):
            if not os.path.isdir(full):
                os.unlink(full)
                return
            for name in sorted(os.listdir(full)):
                self.remove(f"{path}/{name}")
            os.rmdir(full)

    def free_bytes(self) -> int:
        """How much room is left."""
        figures = os.statvfs(self.directory)
        return figures.f_bavail * figures.f_frsize

    async def flush(self, work: Flush) -> None:
        """Make `work` durable in a thread; flushes asked for while one runs are done together."""
        self.check_writable()
        await self._flushes.flush(work)

    def flush_blocking(self, work: Flush) -> None:
        """The same, holding the loop."""
        self.check_writable()
        try:
            self._sync_files([file for file in work.files if isinstance(file, RealFile)])
            for old, new in work.renames:
                with contextlib.suppress(*IS_GONE):
                    os.rename(self._full(old), self._full(new))
            self._sync_directories(directories_of(work))
        except OSError as error:
            # Never tried again: the kernel may have dropped the pages, and would say yes the second time.
            self.is_failed = True
            raise DiskFailed(f"{self.directory}: {error.strerror}") from error

    def lock(self) -> None:
        """Claim the directory for this process until it ends; OSError if another one has it."""
        fd = os.open(self._full(".lock"), os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(fd)
            raise
        self._lock_fd = fd

    def close(self) -> None:
        """Give back the lock and the thread; a flush that runs is waited for."""
        self._flushes.close()
        self._spares.close()
        if self._lock_fd is not None:
            os.close(self._lock_fd)
            self._lock_fd = None

    def check_writable(self) -> None:
        """Raise DiskFailed if a flush has failed."""
        if self.is_failed:
            raise DiskFailed(f"{self.directory}: an earlier flush failed")

    def list(self, path: str) -> list[str]:
        """The names in a directory, sorted; those of directories end with "/"."""
        with os.scandir(self._full(path)) as entries:
            return sorted(f"{entry.name}/" if entry.is_dir() else entry.name for entry in entries)

    def _full(self, path: str) -> str:
        return os.path.join(self.directory, *parts_of(path))

    def _sync_files(self, files: Sequence[RealFile]) -> None:
        if len(files) > FSYNCS_MAX and SYNCFS is not None:
            SYNCFS(files[0].fd)
        else:
            for file in files:
                os.fdatasync(file.fd)

    def _sync_directories(self, paths: Sequence[str]) -> None:
        for path in paths:
            try:
                fd = self._spares.open(self._full(path), os.O_RDONLY | os.O_DIRECTORY)
            except IS_GONE:
                continue
            try:
                if len(paths) > FSYNCS_MAX and SYNCFS is not None:
                    SYNCFS(fd)
                    return
                os.fsync(fd)
            finally:
                os.close(fd)
                self._spares.refill()


class RealFile:
    """An open file; its descriptor is closed with the last reference to it."""

    def __init__(self, disk: RealDisk, path: str, fd: int) -> None:
        self.path = path
        self.fd = fd
        self._disk = disk
        self._is_closed = False
        # Where the next append goes. A file is written through one of its open files only, so that nobody
        # has to ask the kernel each time.
        self._end: int | None = None

    def __del__(self) -> None:
        os.close(self.fd)

    def size(self) -> int:
        """Its length in bytes."""
        return os.fstat(self.fd).st_size

    def append(self, chunks: Sequence[Buffer]) -> int:
        """Write `chunks` at the end; gives the position they start at."""
        if self._is_closed or self._disk.is_failed:
            self._check_writable()
        position = self.size() if self._end is None else self._end
        self._end = None
        try:
            written = write_all(self.fd, chunks, position)
        except OSError:
            self._cut_off(position)
            raise
        self._end = position + written
        return position

    def write_at(self, position: int, data: Buffer) -> None:
        """Overwrite bytes in place."""
        self._check_writable()
        self._end = None
        write_all(self.fd, [data], position)

    def read(self, position: int, size: int) -> bytes:
        """Up to `size` bytes at `position`; fewer only at the end of the file."""
        data = os.pread(self.fd, size, position)
        # One read ends early only at the end of the file, at a signal, or above two gigabytes.
        while len(data) < size and (more := os.pread(self.fd, size - len(data), position + len(data))):
            data += more
        return data

    def truncate(self, size: int) -> None:
        """Cut the file to `size` bytes."""
        self._check_writable()
        self._end = None
        os.ftruncate(self.fd, size)

    def close(self) -> None:
        """Write no more; it can be read and flushed until the last reference, say of a slice, is gone."""
        self._is_closed = True

    def _cut_off(self, size: int) -> None:
        try:
            os.ftruncate(self.fd, size)
        except OSError as error:
            self._disk.is_failed = True
            raise DiskFailed(f"{self.path}: half a write could not be undone") from error

    def _check_writable(self) -> None:
        if self._is_closed:
            raise ValueError(f"{self.path} is closed")
        self._disk.check_writable()


def write_all(fd: int, chunks: Sequence[Buffer], position: int) -> int:
    """Write all of `chunks` at `position`, in one call if the kernel lets us; gives how many bytes."""
    start = position
    if len(chunks) == 1:
        written = os.pwritev(fd, chunks, position)
        if written == len(chunks[0]):
            return written
        position, chunks = position + written, [memoryview(chunks[0]).cast("B")[written:]]
    left = [view for chunk in chunks if (view := memoryview(chunk).cast("B"))]
    while left:
        written = os.pwritev(fd, left[:BUFFERS_PER_WRITE_MAX], position)
        position += written
        done = 0
        while done < len(left) and written >= len(left[done]):
            written -= len(left[done])
            done += 1
        left = left[done:]
        if written:
            left[0] = left[0][written:]
    return position - start


def find_syncfs() -> Callable[[int], None] | None:
    """syncfs(2), which Python lacks; None where it does not exist or does not report errors."""
    version = re.match(r"(\d+)\.(\d+)", platform.release())
    # Before Linux 5.8 it returns success even if pages were lost.
    if version is None or (int(version[1]), int(version[2])) < (5, 8):
        return None
    library = ctypes.CDLL(None, use_errno=True)
    if not hasattr(library, "syncfs"):
        return None

    def syncfs(fd: int) -> None:
        if library.syncfs(fd) != 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))

    return syncfs


SYNCFS = find_syncfs()
