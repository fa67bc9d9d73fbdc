"""A network in memory: connections keep the order of their bytes, and everything else is up to the seed.

Bytes take their time and arrive in pieces of any size. A cut works one way: what is sent into it waits, as
TCP would retransmit it, and the connection is given up if that takes too long. Whoever is killed leaves
resets behind; whoever loses power leaves silence, until a peer that sends something is told by the rebooted
machine that nobody knows the connection.
"""

from __future__ import annotations

import asyncio
import errno
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVarTuple

from moldau.sim.loop import CURRENT_PROCESS, Process, SimLoop
from moldau.sim.randomness import Seeded
from moldau.world.ports import (
    Address,
    Buffer,
    ConnectionLost,
    FileSlice,
    InvalidTls,
    Listener,
    Receiver,
    ServerTls,
)

Ts = TypeVarTuple("Ts")

# asyncio's own marks: pause the sender above, resume it below.
QUEUE_BYTES_HIGH = 64 * 1024
QUEUE_BYTES_LOW = 16 * 1024
# What the kernels on the way hold for a receiver that does not read.
WINDOW_BYTES = 64 * 1024
CONNECT_TIMEOUT_MS = 10_000
# Between two attempts to get something through, and how long until the connection is given up.
RETRANSMIT_MS = 500
SEND_TIMEOUT_MS = 30_000
PORT_FIRST_FREE = 32_768


@dataclass(slots=True)
class Weather:
    """How the network behaves at the moment."""

    delay_us: tuple[int, int] = (50, 2_000)
    fragment_bytes: tuple[int, int] = (1, 8_192)


@dataclass(slots=True)
class Host:
    """A machine on the network."""

    name: str
    is_on: bool = True
    port_next: int = PORT_FIRST_FREE
    listeners: dict[int, SimListener] = field(default_factory=dict)


class SimNetwork:
    """All machines and the ways between them."""

    def __init__(self, loop: SimLoop, randomness: Seeded) -> None:
        self.loop = loop
        self.randomness = randomness
        self.weather = Weather()
        self.hosts: dict[str, Host] = {}
        self._cuts: dict[tuple[str, str], None] = {}
        # Every end that lives, in the order they were made.
        self._ends: dict[SimConnection, None] = {}
        # The ends of dead processes hold receivers, which hold coroutines; those must not be dropped.
        self._buried: list[SimConnection] = []

    def endpoint(self, host: str) -> NodeNetwork:
        """The Network port as the machine `host` has it."""
        self.hosts.setdefault(host, Host(host))
        return NodeNetwork(self, self.hosts[host])

    # ------------------------------------------------------------ faults

    def cut(self, source: str, target: str) -> None:
        """Let nothing pass from `source` to `target`; the other direction is not touched."""
        self._cuts[source, target] = None

    def isolate(self, host: str) -> None:
        """Cut a host off from all others, both ways."""
        for other in self.hosts:
            if other != host:
                self.cut(host, other)
                self.cut(other, host)

    def heal(self, source: str | None = None, target: str | None = None) -> None:
        """Undo one cut, or all."""
        if source is None or target is None:
            self._cuts.clear()
        else:
            self._cuts.pop((source, target), None)
        for end in list(self._ends):
            self.later(0, end.land)

    def is_cut(self, source: str, target: str) -> bool:
        """Whether nothing passes from `source` to `target`."""
        return (source, target) in self._cuts

    def reset(self, one: str, other: str) -> int:
        """Break the connections between two hosts; what is under way is lost. Gives how many there were."""
        broken = [
            end for end in self._ends if (end.host.name, end.peer_host.name) in ((one, other), (other, one))
        ]
        for end in broken:
            end.break_off("connection reset")
        return len(broken) // 2

    def lose_responses(self, *, client: str, server: str, reset_after_ms: int) -> None:
        """On connections that `client` opened, drop what `server` sends from now on, and reset them later."""
        for end in list(self._ends):
            if not end.is_client and (end.host.name, end.peer_host.name) == (server, client):
                end.is_dropping = True
                self.later(reset_after_ms * 1000, end.break_off_both, "connection reset")

    def process_ended(self, process: Process, *, is_silent: bool) -> None:
        """Close what a dead process had open; without a sound if its machine is off."""
        for host in self.hosts.values():
            for port, listener in list(host.listeners.items()):
                if listener.process is process:
                    del host.listeners[port]
        for end in list(self._ends):
            if end.process is process:
                self._buried.append(end)
                end.die(is_silent=is_silent)

    # ------------------------------------------------------------ within

    def later(self, delay_us: int, callback: Callable[[*Ts], object], *args: *Ts) -> None:
        """Let the network itself do something, which goes on when the sender is dead."""
        self.loop.call_outside(delay_us, callback, *args)

    def delay_us(self) -> int:
        """How long the next thing takes to cross."""
        return self.randomness.between(*self.weather.delay_us)

    def passes(self, source: Host, target: Host) -> bool:
        """Whether a packet gets through now."""
        return target.is_on and not self.is_cut(source.name, target.name)


class NodeNetwork:
    """The Network port of one machine."""

    def __init__(self, network: SimNetwork, host: Host) -> None:
        self.host = host
        self._network = network

    async def listen(
        self, address: Address, accept: Callable[[], Receiver], *, tls: ServerTls | None = None
    ) -> Listener:
        """Accept connections at `address` (port 0: any free one), each with a receiver of its own."""
        if tls is not None:
            # What TLS does depends on the machine's clock and randomness, which no seed decides.
            raise InvalidTls(f"{address}: the simulated network has no TLS")
        port = address.port or self._free_port()
        if port in self.host.listeners:
            raise OSError(errno.EADDRINUSE, f"{self.host.name}:{port} is in use")
        listener = SimListener(self.host, Address(self.host.name, port), accept)
        self.host.listeners[port] = listener
        return listener

    async def connect(self, address: Address, receiver: Receiver) -> SimConnection:
        """A connection to `address`; ConnectionLost if nobody answers."""
        network, loop = self._network, self._network.loop
        answer: asyncio.Future[SimConnection] = loop.create_future()
        process = CURRENT_PROCESS.get()
        target = network.hosts.get(address.host)
        if target is not None:
            knock = _Knock(network, self.host, target, address, receiver, process, answer)
            network.later(network.delay_us(), knock.arrive)
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_MS / 1000):
                return await answer
        except TimeoutError:
            raise ConnectionLost(f"{address} does not answer") from None

    def _free_port(self) -> int:
        self.host.port_next += 1
        return self.host.port_next


class SimListener:
    """The Listener port."""

    def __init__(self, host: Host, address: Address, accept: Callable[[], Receiver]) -> None:
        self.address = address
        self.accept = accept
        self.process = CURRENT_PROCESS.get()
        self._host = host

    async def close(self) -> None:
        """Accept no more; connections stay."""
        if self._host.listeners.get(self.address.port) is self:
            del self._host.listeners[self.address.port]


@dataclass(slots=True)
class _Knock:
    """An attempt to connect, on its way there and back."""

    network: SimNetwork
    source: Host
    target: Host
    address: Address
    receiver: Receiver
    process: Process | None
    answer: asyncio.Future[SimConnection]

    def arrive(self) -> None:
        """At the target: make both ends, or refuse."""
        network = self.network
        if not network.passes(self.source, self.target):
            return
        listener = self.target.listeners.get(self.address.port)
        if listener is None:
            network.later(network.delay_us(), self.refused)
            return
        self.source.port_next += 1
        here = Address(self.source.name, self.source.port_next)
        client = SimConnection(
            network, self.source, self.target, self.process, peer=self.address, is_client=True
        )
        server = SimConnection(
            network, self.target, self.source, listener.process, peer=here, is_client=False
        )
        client.other, server.other = server, client
        server.call_soon(server.accepted, listener.accept)
        network.later(network.delay_us(), self.accepted, client)

    def accepted(self, client: SimConnection) -> None:
        """Back at the source; an answer that is lost leaves the target with half a connection."""
        if not self.network.passes(self.target, self.source):
            client.die(is_silent=True)
        elif self.answer.done() or (self.process is not None and self.process.is_dead):
            client.die(is_silent=False)
        else:
            client.call_soon(self.connected, client)

    def connected(self, client: SimConnection) -> None:
        """In the process that asked: hand the connection over, unless it has given up waiting."""
        if self.answer.done():
            client.die(is_silent=False)
        elif client.is_over:
            self.answer.set_exception(ConnectionLost(f"{self.address} was lost at once"))
        else:
            client.open(self.receiver)
            self.answer.set_result(client)

    def refused(self) -> None:
        """Back at the source: nobody listens there."""
        if self.network.passes(self.target, self.source) and not self.answer.done():
            self.answer.set_exception(ConnectionLost(f"{self.address} refuses connections"))


class SimConnection:
    """One end of a connection: the Connection port, and the queue of bytes towards the other end."""

    other: SimConnection
    peer_subject: str | None = None  # there is no TLS here

    def __init__(
        self,
        network: SimNetwork,
        host: Host,
        peer_host: Host,
        process: Process | None,
        *,
        peer: Address,
        is_client: bool,
    ) -> None:
        self.peer = peer
        self.host = host
        self.peer_host = peer_host
        self.process = process
        self.is_client = is_client
        self.is_dropping = False
        self._network = network
        self._loop = network.loop
        self._receiver: Receiver | None = None
        self._queue: deque[bytes] = deque()
        self._queued_bytes = 0
        self._in_flight_bytes = 0  # sent, and not yet taken by the other end's receiver
        self._flying: deque[tuple[int, bytes]] = deque()  # when each piece arrives; no bytes mean the end
        self._is_landing = False
        self._is_transmitting = False
        self._blocked_since_us: int | None = None
        self._inbox: deque[bytes] = deque()
        self._has_peer_finished = False
        self._is_reading = True
        self._is_sender_paused = False
        self._is_closing = False
        self.is_over = False
        network._ends[self] = None

    # ------------------------------------------------------------ the port

    def send(self, chunks: Sequence[Buffer | FileSlice]) -> None:
        """Queue `chunks`; after the end of the connection they are lost, as on a real socket."""
        if self.is_over or self._is_closing:
            return
        data = b"".join(chunk.read() if isinstance(chunk, FileSlice) else chunk for chunk in chunks)
        if not data:
            return
        self._queue.append(data)
        self._queued_bytes += len(data)
        if self._queued_bytes > QUEUE_BYTES_HIGH and not self._is_sender_paused:
            self._is_sender_paused = True
            assert self._receiver is not None
            self._receiver.pause_sending()
        self.transmit_soon()

    def pause_reading(self) -> None:
        """Take no more bytes from the peer until `resume_reading`."""
        self._is_reading = False

    def resume_reading(self) -> None:
        """Take bytes from the peer again."""
        if not self._is_reading:
            self._is_reading = True
            self.call_soon(self._hand_over)

    def close(self) -> None:
        """Send what is queued, then end the connection."""
        if not self._is_closing and not self.is_over:
            self._is_closing = True
            self._inbox.clear()
            self.transmit_soon()

    def abort(self) -> None:
        """End the connection now; what is queued is lost."""
        if not self.is_over:
            self._end(None)
            self._tell_peer_of_reset()

    # ------------------------------------------------------------ beginning and end

    def call_soon(self, callback: Callable[..., object], *args: object) -> None:
        """Run something in the process that has this end."""
        if self.process is None:
            self._network.later(0, callback, *args)
        else:
            self._loop.call_soon(callback, *args, context=self.process.context)

    def accepted(self, accept: Callable[[], Receiver]) -> None:
        """In the listening process: begin."""
        if not self.is_over:
            self.open(accept())

    def open(self, receiver: Receiver) -> None:
        """Give this end to its user."""
        self._receiver = receiver
        receiver.connected(self)
        self._hand_over()

    def break_off(self, why: str) -> None:
        """Reset this end, whatever its peer knows."""
        if not self.is_over:
            self._forget_bytes()
            self.is_dropping = True
            self.call_soon(self._end, ConnectionLost(f"{self.peer}: {why}"))

    def break_off_both(self, why: str) -> None:
        """Reset both ends."""
        self.break_off(why)
        self.other.break_off(why)

    def die(self, *, is_silent: bool) -> None:
        """End without telling the user of this end: its process is no more."""
        if not self.is_over:
            self.is_over = True
            self._network._ends.pop(self, None)
            if not is_silent:
                self._tell_peer_of_reset()

    def _forget_bytes(self) -> None:
        self._queue.clear()
        self._inbox.clear()
        self._queued_bytes = 0

    def _end(self, error: Exception | None) -> None:
        if self.is_over:
            return
        self.is_over = True
        self._forget_bytes()
        # What was sent before a close still arrives; a reset takes it along.
        self.is_dropping = self.is_dropping or not self._is_closing
        self._network._ends.pop(self, None)
        if self._receiver is not None:
            self.call_soon(self._receiver.disconnected, error)

    def _tell_peer_of_reset(self) -> None:
        self._network.later(self._network.delay_us(), self._reset_arrives_at_peer)

    def _reset_arrives_at_peer(self) -> None:
        if self._network.passes(self.host, self.peer_host):
            self.other.break_off("connection reset")

    # ------------------------------------------------------------ sending

    def transmit_soon(self) -> None:
        """Go on sending, unless that is already arranged."""
        if not self._is_transmitting and not self.is_over:
            self._is_transmitting = True
            self._network.later(0, self._transmit)

    def _transmit(self) -> None:
        """Put pieces on their way while the peer has room for them."""
        self._is_transmitting = False
        if self.is_over:
            return
        while self._queue and self._in_flight_bytes < WINDOW_BYTES:
            self._launch(self._next_piece())
        if self._is_sender_paused and self._queued_bytes < QUEUE_BYTES_LOW:
            self._is_sender_paused = False
            self.call_soon(self._resume_sender)
        if self._is_closing and not self._queue:
            self._launch(b"")
            self.call_soon(self._end, None)

    def _next_piece(self) -> bytes:
        data = self._queue.popleft()
        size = self._network.randomness.between(*self._network.weather.fragment_bytes)
        if len(data) > size:
            self._queue.appendleft(data[size:])
            data = data[:size]
        self._queued_bytes -= len(data)
        return data

    def _launch(self, piece: bytes) -> None:
        """Send a piece, or with no bytes the end; never past what was sent before."""
        self._in_flight_bytes += len(piece)
        arrival_us = self._loop.now_us + self._network.delay_us()
        if self._flying:
            arrival_us = max(arrival_us, self._flying[-1][0])
        self._flying.append((arrival_us, piece))
        self._land_later(arrival_us)

    def _land_later(self, when_us: int) -> None:
        if not self._is_landing:
            self._is_landing = True
            self._network.later(max(0, when_us - self._loop.now_us), self._land_on_time)

    def _land_on_time(self) -> None:
        self._is_landing = False
        self.land()

    def land(self) -> None:
        """Let arrive what is due, in order; what cannot get through is sent again later."""
        now_us = self._loop.now_us
        while self._flying and self._flying[0][0] <= now_us:
            if self.is_dropping:
                self._flying.popleft()
            elif self._network.passes(self.host, self.peer_host):
                self._blocked_since_us = None
                self._arrive(self._flying.popleft()[1])
            else:
                self._wait_for_a_way()
                return
        if self._flying:
            self._land_later(self._flying[0][0])

    def _wait_for_a_way(self) -> None:
        """Try again for a while, then give up; the dead do not try again."""
        now_us = self._loop.now_us
        self._blocked_since_us = now_us if self._blocked_since_us is None else self._blocked_since_us
        is_hopeless = now_us - self._blocked_since_us >= SEND_TIMEOUT_MS * 1000
        if is_hopeless or (self.is_over and not self._is_closing):
            self._flying.clear()
            self.break_off("timed out")
        else:
            self._land_later(now_us + RETRANSMIT_MS * 1000)

    def _resume_sender(self) -> None:
        if not self.is_over and self._receiver is not None:
            self._receiver.resume_sending()

    # ------------------------------------------------------------ receiving

    def _arrive(self, piece: bytes) -> None:
        """At the other machine: keep it for the process there, or say that nobody knows the connection."""
        other = self.other
        self._loop.trace.step(
            self._loop.now_us, self.peer_host.name, f"{len(piece)} bytes from {self.host.name}"
        )
        if other.is_over:
            if self._network.passes(self.peer_host, self.host):
                self.break_off("connection reset")
            return
        if piece:
            other._inbox.append(piece)
        else:
            other._has_peer_finished = True
        other.call_soon(other._hand_over)

    def _hand_over(self) -> None:
        """Fill the receiver's buffer while it reads."""
        receiver = self._receiver
        if receiver is None:
            return
        while self._inbox and self._is_reading and not self.is_over and not self._is_closing:
            piece = self._inbox.popleft()
            room = receiver.buffer_to_fill(len(piece))
            count = min(len(room), len(piece))
            room[:count] = piece[:count]
            if count < len(piece):
                self._inbox.appendleft(piece[count:])
            self.other._in_flight_bytes -= count
            receiver.filled(count)
            self.other.transmit_soon()
        if self._has_peer_finished and not self._inbox and not self.is_over and not self._is_closing:
            self._end(None)
