"""What a node may ask of its machine: `world.real` answers with a real one, `sim` with a simulated one.

Calls that only touch memory or the page cache are plain methods. Calls that wait are coroutines. Nothing here
blocks the loop for a disk's time, except where a docstring says so.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import Protocol, TypeVar

Buffer = bytes | bytearray | memoryview
T = TypeVar("T")


class DiskFailed(Exception):
    """A directory whose writes can no longer be trusted; nothing in it is written or flushed again."""


class ConnectionLost(Exception):
    """The peer is gone, or cannot be reached."""


# ---------------------------------------------------------------- time and chance


class Clock(Protocol):
    """Two clocks: one that never jumps, for waiting, and the calendar's, for timestamps."""

    def now_ms(self) -> int:
        """Milliseconds that only rise; of no meaning outside this node."""
        ...

    def now_us(self) -> int:
        """The same in microseconds."""
        ...

    def wall_ms(self) -> int:
        """Milliseconds since 1970; may jump either way."""
        ...

    async def sleep_ms(self, duration_ms: int) -> None:
        """Return after `duration_ms`."""
        ...

    def timeout_ms(self, duration_ms: int) -> AbstractAsyncContextManager[object]:
        """A block that raises TimeoutError if it is not left within `duration_ms`."""
        ...


class Randomness(Protocol):
    """Where every unpredictable value comes from."""

    def below(self, bound: int) -> int:
        """A whole number from 0 up to, and without, `bound`."""
        ...

    def bytes(self, count: int) -> bytes:
        """`count` random bytes."""
        ...


class Scope(Protocol):
    """Tasks that share an owner; leaving the block cancels them in the order they were started."""

    @property
    def has_failed(self) -> bool:
        """Whether a task has failed, for which the block is being ended."""
        ...

    def start(self, work: Coroutine[object, object, T], *, name: str) -> Awaitable[T]:
        """Run `work` beside the caller; an exception that nobody awaits ends the owner."""
        ...


class Tasks(Protocol):
    """How work is started, so that a simulation can replay its order."""

    def scope(self) -> AbstractAsyncContextManager[Scope]:
        """A block that owns the tasks started in it."""
        ...

    async def off_loop(self, work: Callable[[], T]) -> T:
        """Run `work`, which must not touch the node's state, without holding the loop."""
        ...


# ---------------------------------------------------------------- the disk


class File(Protocol):
    """An open file. What is written is in the page cache, and durable only after a flush."""

    path: str  # as it was opened: a later rename does not change it

    def size(self) -> int:
        """Its length in bytes."""
        ...

    def append(self, chunks: Sequence[Buffer]) -> int:
        """Write `chunks` at the end with one call; gives the position they start at.

        A write that fails part of the way is cut off again before the error is raised.
        """
        ...

    def write_at(self, position: int, data: Buffer) -> None:
        """Overwrite bytes in place."""
        ...

    def read(self, position: int, size: int) -> bytes:
        """Up to `size` bytes at `position`; fewer only at the end of the file."""
        ...

    def truncate(self, size: int) -> None:
        """Cut the file to `size` bytes."""
        ...

    def close(self) -> None:
        """Write no more; it can be read and flushed until the last reference, say of a slice, is gone."""
        ...


@dataclass(frozen=True, slots=True)
class FileSlice:
    """A stretch of a file that can be sent without passing through this process."""

    file: File
    position: int
    size: int

    def __len__(self) -> int:
        return self.size

    def read(self) -> bytes:
        """The bytes themselves, for those who must see them."""
        return self.file.read(self.position, self.size)


@dataclass(frozen=True, slots=True)
class Flush:
    """What has to become durable, in this order: the files' bytes, the renames, the directories' entries.

    A rename here is the second half of replacing a file: the temporary file is among `files`, and takes its
    name only once its bytes are safe. The directories of a rename are flushed whether `directories` names
    them or not. What was removed before its turn came is passed over.
    """

    files: tuple[File, ...] = ()
    renames: tuple[tuple[str, str], ...] = ()
    directories: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.files or self.renames or self.directories)


class Disk(Protocol):
    """One data directory and what is below it; paths are relative to it and use "/".

    Every change may fail with OSError (ENOSPC, EIO). Names that were made, renamed or removed are durable
    only after a flush of their directory. After a failed flush the whole disk raises DiskFailed: its pages
    may be gone, so that a second fsync would succeed and mean nothing.
    """

    def open(self, path: str, *, create: bool = False) -> File:
        """Open for reading and writing; FileNotFoundError unless it exists or `create`."""
        ...

    def exists(self, path: str) -> bool:
        """Whether a file or directory of that name is there."""
        ...

    def list(self, path: str) -> list[str]:
        """The names in a directory, sorted; those of directories end with "/"."""
        ...

    def make_directory(self, path: str) -> None:
        """Make it and what is missing above it; no error if it is there."""
        ...

    def rename(self, old: str, new: str) -> None:
        """Give a file or directory another name, replacing a file that has it."""
        ...

    def remove(self, path: str) -> None:
        """Remove a file, or a directory with everything in it; no error if it is gone."""
        ...

    def free_bytes(self) -> int:
        """How much room is left."""
        ...

    async def flush(self, work: Flush) -> None:
        """Make `work` durable off the loop; flushes asked for while one runs are done together."""
        ...

    def flush_blocking(self, work: Flush) -> None:
        """The same, holding the loop: for start-up and recovery, when nobody waits for the loop."""
        ...

    def lock(self) -> None:
        """Claim the directory for this process until it ends; OSError if another one has it."""
        ...


# ---------------------------------------------------------------- the network


@dataclass(frozen=True, slots=True, order=True)
class Address:
    """Where a peer listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class InvalidTls(Exception):
    """Certificates or a key that TLS cannot work with; the text says which and why."""


class ClientAuth(Enum):
    """Whether whoever connects must show a certificate."""

    NONE = "none"
    REQUESTED = "requested"  # one that is shown must be good, and none is good as well
    REQUIRED = "required"


class TlsVersion(IntEnum):
    """The versions of TLS that may be spoken, the older first."""

    TLS_1_2 = 2
    TLS_1_3 = 3


@dataclass(frozen=True, slots=True)
class ServerTls:
    """What a listener needs for TLS, as texts in PEM: its own identity, and whom it trusts."""

    # The private key, and the certificate with those that vouch for it, the leaf first.
    identity: str = field(repr=False)
    key_password: str | None = field(default=None, repr=False)
    # The authorities whose certificates are believed; None where nobody is asked for one.
    authorities: str | None = field(default=None, repr=False)
    client_auth: ClientAuth = ClientAuth.NONE
    versions: tuple[TlsVersion, ...] = tuple(TlsVersion)


@dataclass(frozen=True, slots=True)
class ClientTls:
    """What a client needs for TLS, as texts in PEM."""

    # Its private key and certificates as above; None for a client that nobody needs to know.
    identity: str | None = field(default=None, repr=False)
    key_password: str | None = field(default=None, repr=False)
    # The authorities whose certificates are believed; None: those of the system.
    authorities: str | None = field(default=None, repr=False)
    # Whether whoever answers must have a certificate for the name that was connected to.
    checks_names: bool = True


class Connection(Protocol):
    """The sending half of a connection; what arrives is given to the Receiver."""

    peer: Address
    # Whose certificate a client has shown to us, as RFC 2253 writes names: "CN=ada,O=x". None if none was.
    peer_subject: str | None

    def send(self, chunks: Sequence[Buffer | FileSlice]) -> None:
        """Queue `chunks`, in one write where possible; a slice leaves by sendfile where the transport can."""
        ...

    def pause_reading(self) -> None:
        """Take no more bytes from the peer until `resume_reading`."""
        ...

    def resume_reading(self) -> None:
        """Take bytes from the peer again."""
        ...

    def close(self) -> None:
        """Send what is queued, then end the connection."""
        ...

    def abort(self) -> None:
        """End the connection now; what is queued is lost."""
        ...


class Receiver(Protocol):
    """The receiving half, written by whoever uses the connection; the network fills its buffer."""

    def connected(self, connection: Connection) -> None:
        """The connection is there; called once, first."""
        ...

    def buffer_to_fill(self, hint: int) -> memoryview:
        """Room for what arrives next; at least one byte."""
        ...

    def filled(self, count: int) -> None:
        """`count` bytes were written to that room."""
        ...

    def pause_sending(self) -> None:
        """The peer reads slowly: queue no more until `resume_sending`."""
        ...

    def resume_sending(self) -> None:
        """The queue has drained."""
        ...

    def disconnected(self, error: Exception | None) -> None:
        """The connection is gone; called once, last."""
        ...


class Listener(Protocol):
    """A port that accepts connections."""

    address: Address

    async def close(self) -> None:
        """Accept no more; connections stay."""
        ...


class Network(Protocol):
    """The only way from one node to another."""

    async def listen(
        self, address: Address, accept: Callable[[], Receiver], *, tls: ServerTls | None = None
    ) -> Listener:
        """Accept connections at `address`, each with a receiver of its own; InvalidTls if `tls` is no good.

        Port 0 is any free one, an empty host means all interfaces.
        """
        ...

    async def connect(self, address: Address, receiver: Receiver) -> Connection:
        """A connection to `address`; ConnectionLost if nobody answers."""
        ...


# ---------------------------------------------------------------- the object store


class ObjectStore(Protocol):
    """Immutable objects by key, as S3 and its likes keep them."""

    async def put(self, key: str, data: Buffer, *, if_absent: bool = False) -> None:
        """Store `data`; with `if_absent` raise FileExistsError rather than replace."""
        ...

    async def get(self, key: str, start: int, size: int) -> bytes:
        """A range of an object; FileNotFoundError if there is none."""
        ...

    async def delete(self, key: str) -> None:
        """Remove an object; no error if it is gone."""
        ...

    async def list(self, prefix: str) -> list[str]:
        """The keys that start with `prefix`, sorted."""
        ...


@dataclass(frozen=True, slots=True)
class World:
    """All ports of one node."""

    clock: Clock
    randomness: Randomness
    tasks: Tasks
    disk: Disk
    network: Network
