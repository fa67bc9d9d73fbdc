"""Nodes that count for each other: each sends its counter round, and acknowledges what it has made durable.

The smallest program that uses every port, to prove the simulator itself: an acknowledged counter is found
again after any fault, and once the faults are over every node is acknowledged by every other.
"""

from __future__ import annotations

import asyncio
import struct
import zlib
from collections.abc import Sequence
from typing import ClassVar

from moldau.sim.cluster import Cluster
from moldau.sim.disk import Survives
from moldau.sim.faults import ALL_BUT_ROT
from moldau.sim.run import Violation
from moldau.world.ports import Address, Connection, ConnectionLost, Disk, DiskFailed, Flush, Scope, World

PORT = 9000
REPLY_TIMEOUT_MS = 2_000
PAUSE_MS_MAX = 200
FRAME = struct.Struct(">HQ")  # who counts, and how far
CHECKSUM = struct.Struct(">I")


class Ledger:
    """What the nodes have claimed, kept outside of their world."""

    def __init__(self) -> None:
        self.sent: dict[tuple[str, int], None] = {}
        self.acknowledged: dict[tuple[str, str], int] = {}
        self.violation: str | None = None

    def on_sent(self, sender: str, value: int) -> None:
        """A node is about to send its counter."""
        if (sender, value) in self.sent:
            self.violation = f"{sender} forgot that it had counted to {value}, and counts so again"
        self.sent[sender, value] = None

    def on_acknowledged(self, sender: str, receiver: str, value: int) -> None:
        """A node was told that its counter is safe with another."""
        if (sender, value) not in self.sent:
            self.violation = f"{receiver} acknowledged {value}, which {sender} never sent"
        self.acknowledged[sender, receiver] = max(value, self.acknowledged.get((sender, receiver), 0))

    def on_loaded(self, receiver: str, counters: dict[str, int]) -> None:
        """What a node finds on its disk."""
        for (sender, acknowledger), value in self.acknowledged.items():
            found = counters.get(sender, 0)
            if acknowledger == receiver and found < value:
                self.violation = f"{receiver} acknowledged {value} to {sender}, and its disk says {found}"


class EchoNode:
    """The program of one node."""

    def __init__(self, name: str, names: Sequence[str], ledger: Ledger) -> None:
        self.name = name
        self.names = names
        self.ledger = ledger

    async def main(self, world: World) -> None:
        """Count until the end of the process."""
        self.world = world
        self.writing = asyncio.Lock()
        try:
            world.disk.lock()
            self.counters = load(world.disk, self.names)
        except OSError as error:
            raise DiskFailed("cannot start") from error
        self.ledger.on_loaded(self.name, self.counters)
        async with world.tasks.scope() as scope:
            await world.network.listen(Address(self.name, PORT), lambda: Server(self, scope))
            for peer in self.names:
                if peer != self.name:
                    scope.start(self.count_with(peer), name=f"{self.name} to {peer}")
            await asyncio.get_running_loop().create_future()

    async def count_with(self, peer: str) -> None:
        """Send one counter after the other to a peer, each until it is acknowledged or lost."""
        while True:
            try:
                client = Client()
                async with self.world.clock.timeout_ms(REPLY_TIMEOUT_MS * 2):
                    await self.world.network.connect(Address(peer, PORT), client)
                while True:
                    await self.send_one(peer, client)
                    await self.world.clock.sleep_ms(self.world.randomness.below(PAUSE_MS_MAX))
            except (ConnectionLost, TimeoutError, OSError):
                await self.world.clock.sleep_ms(self.world.randomness.below(PAUSE_MS_MAX))

    async def send_one(self, peer: str, client: Client) -> None:
        """Count on, durably, and send it."""
        value = self.counters[self.name] = self.counters.get(self.name, 0) + 1
        await self.write()
        self.ledger.on_sent(self.name, value)
        try:
            async with self.world.clock.timeout_ms(REPLY_TIMEOUT_MS):
                await client.ask(FRAME.pack(self.names.index(self.name), value))
        except TimeoutError:
            client.connection.abort()
            raise
        self.ledger.on_acknowledged(self.name, peer, value)

    async def answer(self, connection: Connection, sender: str, value: int) -> None:
        """Write down a peer's counter, then acknowledge it."""
        self.counters[sender] = max(value, self.counters.get(sender, 0))
        try:
            await self.write()
        except OSError:
            connection.abort()
        else:
            connection.send([FRAME.pack(self.names.index(sender), value)])

    async def write(self) -> None:
        """Replace the file on disk; returns once the counters as they were at the call are durable."""
        async with self.writing:
            disk = self.world.disk
            draft = disk.open("counters.tmp", create=True)
            draft.truncate(0)
            body = b"".join(FRAME.pack(self.names.index(name), self.counters[name]) for name in self.counters)
            draft.append([CHECKSUM.pack(zlib.crc32(body)), body])
            await disk.flush(Flush(files=(draft,), renames=(("counters.tmp", "counters"),)))


def load(disk: Disk, names: Sequence[str]) -> dict[str, int]:
    """The counters on a disk."""
    if not disk.exists("counters"):
        return {}
    file = disk.open("counters")
    data = file.read(0, file.size())
    if len(data) < CHECKSUM.size or CHECKSUM.unpack_from(data)[0] != zlib.crc32(data[CHECKSUM.size :]):
        raise Violation("the counters on disk are torn")
    return {names[who]: value for who, value in FRAME.iter_unpack(data[CHECKSUM.size :])}


class Frames:
    """A Receiver that cuts what arrives into frames."""

    connection: Connection

    def __init__(self) -> None:
        self._room = bytearray(64)
        self._received = bytearray()

    def connected(self, connection: Connection) -> None:
        """The connection is there."""
        self.connection = connection

    def buffer_to_fill(self, hint: int) -> memoryview:
        """Room for what arrives next."""
        return memoryview(self._room)

    def filled(self, count: int) -> None:
        """Bytes have arrived; they are whole frames only by chance."""
        self._received += self._room[:count]
        while len(self._received) >= FRAME.size:
            who, value = FRAME.unpack_from(self._received)
            del self._received[: FRAME.size]
            self.on_frame(who, value)

    def pause_sending(self) -> None:
        """Frames are few and small."""

    def resume_sending(self) -> None:
        """Frames are few and small."""

    def disconnected(self, error: Exception | None) -> None:
        """Whoever waits finds out by its deadline."""

    def on_frame(self, who: int, value: int) -> None:
        """A whole frame has arrived."""
        raise NotImplementedError


class Server(Frames):
    """The side that acknowledges."""

    def __init__(self, node: EchoNode, scope: Scope) -> None:
        super().__init__()
        self._node = node
        self._scope = scope

    def on_frame(self, who: int, value: int) -> None:
        """A peer's counter."""
        sender = self._node.names[who]
        answer = self._node.answer(self.connection, sender, value)
        self._scope.start(answer, name=f"{self._node.name} answers {sender}")


class Client(Frames):
    """The side that counts; one question at a time."""

    def __init__(self) -> None:
        super().__init__()
        self._reply: asyncio.Future[None] | None = None
        self._value = 0

    async def ask(self, frame: bytes) -> None:
        """Send a counter and wait until it is acknowledged."""
        self._value = FRAME.unpack(frame)[1]
        self._reply = asyncio.get_running_loop().create_future()
        self.connection.send([frame])
        await self._reply

    def on_frame(self, who: int, value: int) -> None:
        """An acknowledgement."""
        if self._reply is not None and not self._reply.done() and value == self._value:
            self._reply.set_result(None)

    def disconnected(self, error: Exception | None) -> None:
        """The question will not be answered."""
        if self._reply is not None and not self._reply.done():
            self._reply.set_exception(ConnectionLost("no reply"))


class Echo:
    """Nodes write down each other's counters and acknowledge them, under every fault but rot."""

    faults: ClassVar[Sequence[str]] = ALL_BUT_ROT
    safety_ms: ClassVar[int] = 20_000
    liveness_ms: ClassVar[int] = 120_000
    names: ClassVar[Sequence[str]] = ("ada", "bob", "cyd")
    node_class: ClassVar[type[EchoNode]] = EchoNode

    def __init__(self) -> None:
        self.ledger = Ledger()

    def build(self, cluster: Cluster) -> Sequence[str]:
        """Three nodes, all of which may be hurt."""
        self.cluster = cluster
        for name in self.names:
            cluster.add(name, self.node_class(name, self.names, self.ledger).main)
        cluster.start_all()
        return self.names

    def core(self, cluster: Cluster) -> Sequence[str]:
        """Any two or three of them."""
        left_out = cluster.randomness.fork("core").choice((*self.names, None))
        self._core = [name for name in self.names if name != left_out]
        return self._core

    def check_step(self) -> None:
        """Nobody has lost what it acknowledged."""
        if self.ledger.violation is not None:
            raise Violation(self.ledger.violation)

    def heal(self) -> None:
        """Remember where everyone was, to see all of them move on."""
        self._at_heal = dict(self.ledger.acknowledged)

    def is_settled(self) -> bool:
        """Whether each node of the core has been acknowledged anew by each other."""
        return all(
            self.ledger.acknowledged.get((sender, receiver), 0) > self._at_heal.get((sender, receiver), 0)
            for sender in self._core
            for receiver in self._core
            if sender != receiver
        )

    def check_end(self) -> None:
        """All that was acknowledged is durable: cut the power everywhere and look."""
        for name, node in self.cluster.nodes.items():
            self.ledger.on_loaded(name, load(node.disk.crash(Survives.NOTHING), self.names))
        self.check_step()
