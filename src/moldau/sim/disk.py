"""A disk in memory that forgets at a power cut what a real one may forget, and fails when told to.

The page cache is kept apart from the durable bytes. What survives a power cut, where `Survives.SOME` draws:

- A file's bytes reach the platter in sectors of 512 bytes, each for itself: of every sector that was written
  since the last flush, any version that it has had may be there. A sector that never arrived reads as zeros
  if it is new, and as before if it is not.
- A file's length follows its own journal: some prefix of the appends and truncations since the last flush has
  happened. A length may arrive without its bytes. Bytes that a truncation has cut off whole sectors of do not
  come back once that truncation is durable, and the bytes written after it are not there before it is.
- Names follow a journal for each directory: some prefix of what was made, renamed and removed in it since its
  last flush has happened. A rename is one step; across two directories it happens in both or in neither.
  Directories do not wait for each other, nor for the bytes of their files: a name may arrive before the
  bytes, and the bytes of a file whose name was never flushed are gone with it.

ext4, with one journal for all, permits less than this; other file systems come close to it.
"""

from __future__ import annotations

import copy
import enum
import errno
import os
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from moldau.sim.flushing import FlushGroups
from moldau.sim.randomness import Seeded
from moldau.world.flushing import directories_of
from moldau.world.paths import parts_of
from moldau.world.ports import Buffer, DiskFailed, Flush

SECTOR_BYTES = 512
OPERATIONS_KEPT = 1000

OperationKind = Literal["create", "write", "truncate", "fsync", "mkdir", "rename", "unlink"]
FaultKind = Literal["read", "write", "fsync"]


class PowerCut(BaseException):
    """The machine is off; not an Exception, so that nothing under test can take it for an answer."""


class Survives(enum.Enum):
    """What of the unflushed changes a crash leaves."""

    NOTHING = "nothing"
    EVERYTHING = "everything"  # kill -9: the page cache stays, and stays volatile
    SOME = "some"


@dataclass(frozen=True, slots=True)
class Operation:
    """One change that the disk was asked for."""

    number: int
    kind: OperationKind
    path: str
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.path} {self.detail}".rstrip()


class SimDisk:
    """The Disk port in memory; see the module's words for what a crash may do to it."""

    def __init__(
        self,
        randomness: Seeded | None = None,
        *,
        sleep_ms: Callable[[int], Awaitable[None]] | None = None,
        flush_ms: tuple[int, int] = (0, 0),
        capacity_bytes: int = 1 << 40,
    ) -> None:
        self.capacity_bytes = capacity_bytes
        self.flush_ms = flush_ms
        self.operation_count = 0
        self.operations: deque[Operation] = deque(maxlen=OPERATIONS_KEPT)
        self.on_operation: Callable[[Operation], None] | None = None
        self._randomness = randomness or Seeded(0)
        self._sleep_ms = sleep_ms
        self._root = DirectoryNode()
        self._renamings: list[Renaming] = []  # changes of names, in order, not yet durable
        self._sequence = 0
        self._stop_at: int | None = None
        self._is_off = False
        self._is_failed = False
        self._is_locked = False
        self._faults: list[Fault] = []
        self._flushes = FlushGroups(self._carry_out)

    # ------------------------------------------------------------ the port

    def open(self, path: str, *, create: bool = False) -> SimFile:
        """Open for reading and writing; FileNotFoundError unless it exists or `create`."""
        self._check_power()
        directory, name = self._parent(path)
        node = directory.cached.get(name)
        if isinstance(node, DirectoryNode):
            raise IsADirectoryError(errno.EISDIR, "is a directory", path)
        if node is None:
            if not create:
                raise FileNotFoundError(errno.ENOENT, "no such file", path)
            self._begin("create", path)
            node = FileNode()
            self._change_names((directory, name, node))
        return SimFile(self, path, node)

    def exists(self, path: str) -> bool:
        """Whether a file or directory of that name is there."""
        self._check_power()
        return self._find(path) is not None

    def make_directory(self, path: str) -> None:
        """Make it and what is missing above it; no error if it is there."""
        self._check_power()
        directory, made = self._root, ""
        for name in parts_of(path):
            made = f"{made}/{name}" if made else name
            node = directory.cached.get(name)
            if isinstance(node, FileNode) and parts_of(made) == parts_of(path):
                raise FileExistsError(errno.EEXIST, "a file has that name", made)
            if isinstance(node, FileNode):
                raise NotADirectoryError(errno.ENOTDIR, "a file has that name", made)
            if node is None:
                self._begin("mkdir", made)
                node = DirectoryNode()
                self._change_names((directory, name, node))
            directory = node

    def rename(self, old: str, new: str) -> None:
        """Give a file or directory another name, replacing a file that has it."""
        self._check_power()
        source, old_name = self._parent(old)
        target, new_name = self._parent(new)
        node, replaced = source.cached.get(old_name), target.cached.get(new_name)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", old)
        if node is replaced:
            return
        if parts_of(new)[: len(parts_of(old))] == parts_of(old):
            raise OSError(errno.EINVAL, "a directory cannot move into itself", new)
        if isinstance(replaced, DirectoryNode) and isinstance(node, FileNode):
            raise IsADirectoryError(errno.EISDIR, "a directory has that name", new)
        if isinstance(replaced, DirectoryNode) and replaced.cached:
            raise OSError(errno.ENOTEMPTY, "a directory that is not empty has that name", new)
        if isinstance(replaced, FileNode) and isinstance(node, DirectoryNode):
            raise NotADirectoryError(errno.ENOTDIR, "a file has that name", new)
        self._begin("rename", old, f"-> {new}")
        self._change_names((source, old_name, None), (target, new_name, node))

    def remove(self, path: str) -> None:
        """Remove a file, or a directory with everything in it; no error if it is gone."""
        self._check_power()
        node = self._find(path)
        if node is None:
            return
        if isinstance(node, DirectoryNode):
            for name in sorted(node.cached):
                self.remove(f"{path}/{name}")
        directory, name = self._parent(path)
        self._begin("unlink", path)
        self._change_names((directory, name, None))

    def free_bytes(self) -> int:
        """How much room is left."""
        return self.capacity_bytes - sum(len(node.cached) for _, node in files_below(self._root))

    async def flush(self, work: Flush) -> None:
        """Make `work` durable after some time; flushes asked for while one runs are done together."""
        self._check_writable()
        await self._flushes.flush(work)

    def flush_blocking(self, work: Flush) -> None:
        """The same, at once."""
        self._check_writable()
        for fsync in self._fsyncs(work):
            fsync(self._sequence)

    def lock(self) -> None:
        """Claim the directory for this process until it ends; OSError if another one has it."""
        if self._is_locked:
            raise BlockingIOError(errno.EWOULDBLOCK, "the directory is locked")
        self.open(".lock", create=True)
        self._is_locked = True

    def list(self, path: str) -> list[str]:
        """The names in a directory, sorted; those of directories end with "/"."""
        self._check_power()
        directory = self._directory(path)
        return sorted(
            f"{name}/" if isinstance(node, DirectoryNode) else name for name, node in directory.cached.items()
        )

    # ------------------------------------------------------------ crashes

    def crash(self, survives: Survives, randomness: Seeded | None = None) -> SimDisk:
        """The disk as the next process finds it; this one stays as it is, so that many ends can be tried."""
        image = SimDisk(
            self._randomness.fork("crash"),
            sleep_ms=self._sleep_ms,
            flush_ms=self.flush_ms,
            capacity_bytes=self.capacity_bytes,
        )
        image.on_operation = self.on_operation
        image._sequence = self._sequence
        if survives is Survives.EVERYTHING:
            image._root, image._renamings = copy.deepcopy((self._root, self._renamings))
        elif survives is Survives.NOTHING:
            image._root = durable_image(self._root, keep_file=lambda node: bytearray(node.durable))
        else:
            chance = randomness or self._randomness
            root, renamings = copy.deepcopy((self._root, self._renamings))
            keep_some_names(renamings, chance)
            image._root = durable_image(root, keep_file=lambda node: some_sectors(node, chance))
        return image

    def stop_at(self, operation: int) -> None:
        """Cut the power when the `operation`-th change, counted from the disk's beginning, is asked for."""
        self._stop_at = operation

    def power_off(self) -> None:
        """Cut the power now: every later call raises PowerCut."""
        self._is_off = True

    # ------------------------------------------------------------ faults

    def fail(
        self, kind: FaultKind, *, path: str | None = None, code: int = errno.EIO, times: int = 1
    ) -> None:
        """Let the next calls of a kind fail with OSError, on any path or on one."""
        self._faults += [Fault(kind, path, code)] * times

    def forget_faults(self) -> None:
        """Let nothing fail that has not failed yet."""
        self._faults.clear()

    def flip_bit(self, path: str, position: int, *, bit: int = 0) -> None:
        """Rot: change one bit of a file, in the cache and on the platter."""
        node = self._find(path)
        assert isinstance(node, FileNode), path
        stored = [(node.cached, 0), (node.durable, 0), *((c.data, c.start) for c in node.changes)]
        for data, start in stored:
            if start <= position < start + len(data):
                data[position - start] ^= 1 << bit

    @property
    def is_failed(self) -> bool:
        """Whether a flush has failed, so that nothing is written any more."""
        return self._is_failed

    def paths(self) -> Sequence[str]:
        """Every file, in the order of the names."""
        return [path for path, _ in files_below(self._root)]

    # ------------------------------------------------------------ within

    def _check_power(self) -> None:
        if self._is_off:
            raise PowerCut("the machine is off")

    def _check_writable(self) -> None:
        self._check_power()
        if self._is_failed:
            raise DiskFailed("an earlier flush failed")

    def _begin(self, kind: OperationKind, path: str, detail: str = "") -> None:
        """Count a change that is about to be made, unless the power goes first."""
        self._check_writable()
        self.operation_count += 1
        operation = Operation(self.operation_count, kind, path, detail)
        self.operations.append(operation)
        if self.on_operation:
            self.on_operation(operation)
        if self.operation_count == self._stop_at:
            self._is_off = True
            raise PowerCut(f"before operation {operation.number}: {operation}")
        self._check_fault("fsync" if kind == "fsync" else "write", path)

    def _check_fault(self, kind: FaultKind, path: str) -> None:
        for fault in self._faults:
            if fault.kind == kind and fault.path in (None, path):
                self._faults.remove(fault)
                raise OSError(fault.code, os.strerror(fault.code), path)

    def _check_room(self, path: str, growth: int) -> None:
        # A disk that could hold a terabyte is never full, and is not worth counting.
        if self.capacity_bytes < 1 << 40 and growth > self.free_bytes():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    def _next_sequence(self) -> int:
        self._sequence += 1
        return self._sequence

    def _change_names(self, *changes: NameChange) -> None:
        for directory, name, node in changes:
            directory.put(directory.cached, name, node)
        self._renamings.append(Renaming(self._next_sequence(), changes))

    async def _carry_out(self, work: Flush) -> None:
        self._check_writable()
        for fsync in self._fsyncs(work):
            # What is written while the disk is busy is not part of this flush.
            sequence_end = self._sequence
            if self._sleep_ms and self.flush_ms[1]:
                await self._sleep_ms(self._randomness.between(*self.flush_ms))
            fsync(sequence_end)

    def _fsyncs(self, work: Flush) -> Iterator[Callable[[int], None]]:
        """The steps of a flush, each with the last change that it covers as its argument."""
        for file in work.files:
            assert isinstance(file, SimFile)
            yield lambda end, file=file: self._fsync_file(file, end)  # type: ignore[misc]
        for old, new in work.renames:
            # A file that was removed meanwhile has nothing left to be made durable.
            if self.exists(old):
                self.rename(old, new)
        for path in directories_of(work):
            yield lambda end, path=path: self._fsync_directory(path, end)  # type: ignore[misc]

    def _fsync_file(self, file: SimFile, sequence_end: int) -> None:
        node = file.node
        try:
            self._begin("fsync", file.path)
        except OSError as error:
            # The kernel marks the pages clean: they can be read for now, and never reach the platter.
            node.changes.clear()
            self._is_failed = True
            raise DiskFailed(f"fsync of {file.path}: {error.strerror}") from error
        node.persist(sequence_end)

    def _fsync_directory(self, path: str, sequence_end: int) -> None:
        directory = self._find(path)
        if not isinstance(directory, DirectoryNode):
            return
        try:
            self._begin("fsync", f"{path}/")
        except OSError as error:
            self._is_failed = True
            raise DiskFailed(f"fsync of {path}/: {error.strerror}") from error
        # A rename to another directory takes that one's earlier changes along.
        involved = [directory]
        kept: deque[Renaming] = deque()
        persisted: deque[Renaming] = deque()
        for renaming in reversed(self._renamings):
            touched = renaming.directories()
            if renaming.sequence <= sequence_end and any(node is d for node in involved for d in touched):
                involved += touched
                persisted.appendleft(renaming)
            else:
                kept.appendleft(renaming)
        for renaming in persisted:
            renaming.persist()
        self._renamings = [*kept]

    def _find(self, path: str) -> Node | None:
        node: Node = self._root
        for name in parts_of(path):
            if not isinstance(node, DirectoryNode) or name not in node.cached:
                return None
            node = node.cached[name]
        return node

    def _directory(self, path: str) -> DirectoryNode:
        directory = self._root
        for name in parts_of(path):
            node = directory.cached.get(name)
            if node is None:
                raise FileNotFoundError(errno.ENOENT, "no such directory", path)
            if not isinstance(node, DirectoryNode):
                raise NotADirectoryError(errno.ENOTDIR, "not a directory", path)
            directory = node
        return directory

    def _parent(self, path: str) -> tuple[DirectoryNode, str]:
        *above, name = parts_of(path)
        return self._directory("/".join(above)), name


class SimFile:
    """The File port on a SimDisk."""

    def __init__(self, disk: SimDisk, path: str, node: FileNode) -> None:
        self.path = path
        self.node = node
        self._disk = disk
        self._is_closed = False

    def size(self) -> int:
        """Its length in bytes."""
        self._disk._check_power()
        return len(self.node.cached)

    def append(self, chunks: Sequence[Buffer]) -> int:
        """Write `chunks` at the end; gives the position they start at."""
        position = len(self.node.cached)
        self._write(position, b"".join(chunks))
        return position

    def write_at(self, position: int, data: Buffer) -> None:
        """Overwrite bytes in place."""
        self._write(position, bytes(data))

    def read(self, position: int, size: int) -> bytes:
        """Up to `size` bytes at `position`; fewer only at the end of the file."""
        self._disk._check_power()
        self._disk._check_fault("read", self.path)
        return bytes(self.node.cached[position : position + size])

    def truncate(self, size: int) -> None:
        """Cut the file to `size` bytes."""
        self._check_open()
        self._disk._begin("truncate", self.path, f"to {size}")
        self.node.resize(self._disk._next_sequence(), size)

    def close(self) -> None:
        """Let go of the file; slices of it can still be read."""
        self._is_closed = True

    def _write(self, position: int, data: bytes) -> None:
        self._check_open()
        end = position + len(data)
        self._disk._begin("write", self.path, f"{position}..{end}")
        self._disk._check_room(self.path, end - len(self.node.cached))
        if data:
            self.node.write(self._disk._next_sequence(), position, data)

    def _check_open(self) -> None:
        if self._is_closed:
            raise ValueError(f"{self.path} is closed")


# ---------------------------------------------------------------- what the platter holds, and may hold


@dataclass(slots=True)
class FileChange:
    """A write or truncation that is not yet durable, as the sectors it leaves in the cache."""

    sequence: int
    size_after: int
    start: int  # a multiple of the sector size
    data: bytearray
    is_cut: bool = False

    def sectors(self) -> Iterator[tuple[int, bytes]]:
        """The sectors it touches by number, each whole."""
        for at in range(0, len(self.data), SECTOR_BYTES):
            sector = bytes(self.data[at : at + SECTOR_BYTES])
            yield (self.start + at) // SECTOR_BYTES, sector.ljust(SECTOR_BYTES, b"\0")


@dataclass(slots=True)
class FileNode:
    """A file's bytes: as processes see them, as the platter has them, and what lies between."""

    cached: bytearray = field(default_factory=bytearray)
    durable: bytearray = field(default_factory=bytearray)
    changes: list[FileChange] = field(default_factory=list)

    def write(self, sequence: int, position: int, data: bytes) -> None:
        """Put bytes into the cache."""
        size_before, end = len(self.cached), position + len(data)
        if position > size_before:
            self.cached.extend(bytes(position - size_before))
        self.cached[position:end] = data
        self._changed(sequence, min(position, size_before), end)

    def resize(self, sequence: int, size: int) -> None:
        """Cut the cache, or extend it with zeros."""
        is_cut = size < len(self.cached)
        if is_cut:
            del self.cached[size:]
        else:
            self.cached.extend(bytes(size - len(self.cached)))
        self._changed(sequence, size, size, is_cut=is_cut)

    def persist(self, sequence_end: int) -> None:
        """What fsync does."""
        covered = [change for change in self.changes if change.sequence <= sequence_end]
        for change in covered:
            fit(self.durable, change.size_after)
            self.durable[change.start : change.start + len(change.data)] = change.data
        self.changes = self.changes[len(covered) :]

    def _changed(self, sequence: int, first: int, end: int, *, is_cut: bool = False) -> None:
        start = first - first % SECTOR_BYTES
        end += -end % SECTOR_BYTES
        self.changes.append(FileChange(sequence, len(self.cached), start, self.cached[start:end], is_cut))


@dataclass(slots=True)
class DirectoryNode:
    """A directory's names: as processes see them, and as the platter has them."""

    cached: dict[str, Node] = field(default_factory=dict)
    durable: dict[str, Node] = field(default_factory=dict)

    @staticmethod
    def put(entries: dict[str, Node], name: str, node: Node | None) -> None:
        """Let `name` mean `node`, or nothing."""
        entries.pop(name, None)
        if node is not None:
            entries[name] = node


Node = FileNode | DirectoryNode
NameChange = tuple[DirectoryNode, str, Node | None]


@dataclass(frozen=True, slots=True)
class Renaming:
    """One step in the journal of names: something made, renamed or removed."""

    sequence: int
    changes: tuple[NameChange, ...]

    def directories(self) -> list[DirectoryNode]:
        """The directories that it touches."""
        return [directory for directory, _, _ in self.changes]

    def persist(self) -> None:
        """Make it durable."""
        for directory, name, node in self.changes:
            directory.put(directory.durable, name, node)


@dataclass(frozen=True, slots=True)
class Fault:
    """A call that is going to fail."""

    kind: FaultKind
    path: str | None
    code: int


def durable_image(root: DirectoryNode, keep_file: Callable[[FileNode], bytearray]) -> DirectoryNode:
    """The durable names with, for each file, the bytes that `keep_file` leaves of it."""
    image = DirectoryNode()
    for name in sorted(root.durable):
        node = root.durable[name]
        copied: Node
        if isinstance(node, DirectoryNode):
            copied = durable_image(node, keep_file)
        else:
            data = keep_file(node)
            copied = FileNode(cached=data, durable=bytearray(data))
        image.cached[name] = image.durable[name] = copied
    return image


def keep_some_names(renamings: Sequence[Renaming], chance: Seeded) -> None:
    """Make a prefix of each directory's changes durable."""
    probability = chance.choice((0.3, 0.7, 0.95))
    ended: list[DirectoryNode] = []
    for renaming in renamings:
        touched = renaming.directories()
        is_after_the_end = any(node is directory for node in ended for directory in touched)
        if not is_after_the_end and chance.chance(probability):
            renaming.persist()
        else:
            ended += touched


def some_sectors(node: FileNode, chance: Seeded) -> bytearray:
    """A file after a power cut: a prefix of its lengths, and of each sector any version it has had."""
    if not node.changes:
        return bytearray(node.durable)
    happened = chance.below(len(node.changes) + 1)
    size = node.changes[happened - 1].size_after if happened else len(node.durable)
    versions: dict[int, list[bytes]] = {}
    # Sectors from this one on have been cut off by a truncation that never happened.
    detached_from = 1 << 62
    image = bytearray(node.durable)
    for number, change in enumerate(node.changes):
        first_cut = -(-change.size_after // SECTOR_BYTES)
        if change.is_cut and number < happened:
            versions = {sector: seen for sector, seen in versions.items() if sector < first_cut}
            del image[first_cut * SECTOR_BYTES :]
        elif change.is_cut:
            detached_from = min(detached_from, first_cut)
        for sector, data in change.sectors():
            if sector < detached_from:
                before = bytes(image[sector * SECTOR_BYTES : (sector + 1) * SECTOR_BYTES])
                versions.setdefault(sector, [before.ljust(SECTOR_BYTES, b"\0")]).append(data)
    fit(image, -(-max(size, len(image)) // SECTOR_BYTES) * SECTOR_BYTES)
    arrives = chance.choice((0.1, 0.5, 0.9))
    for sector, seen in versions.items():
        data = seen[-1] if chance.chance(arrives) else chance.choice(seen[:-1])
        start = sector * SECTOR_BYTES
        if start < size:
            image[start : start + SECTOR_BYTES] = data
    fit(image, size)
    return image


def fit(data: bytearray, size: int) -> None:
    """Cut `data` to `size`, or extend it with zeros."""
    del data[size:]
    data.extend(bytes(size - len(data)))


def files_below(directory: DirectoryNode, prefix: str = "") -> Iterator[tuple[str, FileNode]]:
    """Every file that a process sees, with its path, sorted by name."""
    for name in sorted(directory.cached):
        node = directory.cached[name]
        if isinstance(node, DirectoryNode):
            yield from files_below(node, f"{prefix}{name}/")
        else:
            yield f"{prefix}{name}", node
