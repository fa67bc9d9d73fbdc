"""What every Network does: the simulated one, real sockets and real sockets with TLS."""

import asyncio
import ssl
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from world.certificates import Authority
from world.network_receivers import Recorder, echo

from moldau.sim.disk import SimDisk
from moldau.sim.loop import SimLoop
from moldau.sim.network import SimNetwork
from moldau.sim.randomness import Seeded
from moldau.world.ports import Address, ConnectionLost, Disk, FileSlice, Listener, Network, ServerTls
from moldau.world.real.disk import RealDisk
from moldau.world.real.network import RealNetwork
from moldau.world.real.turns import TurnLoop


@dataclass
class Place:
    """Two machines and a way to run something on them."""

    server: Network
    client: Network
    host: str
    disk: Disk
    run: Callable[[Coroutine[object, object, None]], None]
    flood_bytes: int  # more than all buffers on the way hold
    tls: ServerTls | None = None

    async def listen(self, accept: Callable[[], Recorder] = Recorder) -> Listener:
        return await self.server.listen(Address(self.host, 0), accept, tls=self.tls)

    async def pair(self, server: Recorder) -> tuple[Listener, Recorder]:
        """A connection to `server`, which is told of it; the other receiver is the client's."""
        listener = await self.listen(lambda: server)
        client = Recorder()
        await self.client.connect(listener.address, client)
        await server.until_event("connected")
        return listener, client


class CrowdedLoop(TurnLoop):
    """A loop on which every turn serves many, so that all replies leave at its end."""

    is_crowded = True


def run_crowded(work: Coroutine[object, object, None]) -> None:
    with asyncio.Runner(loop_factory=CrowdedLoop) as runner:
        runner.run(work)


@pytest.fixture(params=["sim", "real", "crowded", "tls"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    if request.param == "sim":
        loop = SimLoop()
        network = SimNetwork(loop, Seeded(1))
        server, client = network.endpoint("server"), network.endpoint("client")
        yield Place(server, client, "server", SimDisk(), loop.run_until_complete, flood_bytes=1_000_000)
        loop.close()
    else:
        tls, trust = None, None
        if request.param == "tls":
            authority = Authority(tmp_path)
            tls = ServerTls(authority.identity("moldau"))
            trust = ssl.create_default_context(cadata=authority.certificate)
        disk = RealDisk(str(tmp_path / "data"))
        server_network, client_network = RealNetwork(), RealNetwork(client_tls=trust)
        run = run_crowded if request.param == "crowded" else asyncio.run
        yield Place(server_network, client_network, "127.0.0.1", disk, run, flood_bytes=20_000_000, tls=tls)
        disk.close()


def test_bytes_arrive_in_order_both_ways(place: Place) -> None:
    sent = bytes(range(256)) * 1000

    async def scenario() -> None:
        listener, client = await place.pair(Recorder(on_data=echo))
        assert client.connection.peer == listener.address
        for at in range(0, len(sent), 10_000):
            client.connection.send([sent[at : at + 5_000], memoryview(sent)[at + 5_000 : at + 10_000]])
        await client.until(lambda: len(client.received) == len(sent))
        assert client.received == sent
        client.connection.close()
        await client.until_event("disconnected")
        assert client.events[0] == "connected"
        await listener.close()

    place.run(scenario())


def test_a_small_buffer_is_filled_as_often_as_it_takes(place: Place) -> None:
    async def scenario() -> None:
        server = Recorder(room=7)
        listener, client = await place.pair(server)
        client.connection.send([b"x" * 100])
        client.connection.close()
        await server.until_event("disconnected")
        assert server.received == b"x" * 100
        assert max(server.pieces) <= 7
        await listener.close()

    place.run(scenario())


def test_what_was_queued_before_a_close_still_arrives(place: Place) -> None:
    async def scenario() -> None:
        server = Recorder()
        listener, client = await place.pair(server)
        client.connection.send([b"y" * 1_000_000])
        client.connection.close()
        client.connection.send([b"too late"])
        await client.until_event("disconnected")
        await server.until_event("disconnected")
        assert server.received == b"y" * 1_000_000
        assert server.error is None
        await listener.close()

    place.run(scenario())


def test_slices_of_files_keep_their_place_among_other_bytes(place: Place) -> None:
    content = bytes(number % 251 for number in range(600_000))

    async def scenario() -> None:
        file = place.disk.open("segment", create=True)
        file.append([content])
        server = Recorder()
        listener, client = await place.pair(server)
        expected = b""
        for size in (10, 500_000, 70_000, 64 * 1024):
            client.connection.send([b"<head>", FileSlice(file, 100, size), b"<tail>", b"z" * 100_000])
            client.connection.send([b"<next>"])
            expected += b"<head>" + content[100 : 100 + size] + b"<tail>" + b"z" * 100_000 + b"<next>"
        # Slices that are under way keep the file open.
        file.close()
        del file
        client.connection.close()
        await server.until_event("disconnected")
        assert server.received == expected
        await listener.close()

    place.run(scenario())


def test_a_peer_that_does_not_read_pauses_the_sender_until_it_does(place: Place) -> None:
    async def scenario() -> None:
        half = place.flood_bytes // 2
        file = place.disk.open("segment", create=True)
        file.append([b"w" * half])
        server = Recorder(room=256 * 1024)
        listener, client = await place.pair(server)
        server.connection.pause_reading()
        client.connection.send([b"v" * half])
        client.connection.send([FileSlice(file, 0, half)])
        await client.until_event("pause")
        assert "resume" not in client.events
        server.connection.resume_reading()
        await server.until(lambda: len(server.received) == 2 * half, timeout_ms=60_000)
        await client.until_event("resume")
        assert client.events == ["connected", "pause", "resume"]
        assert server.received == b"v" * half + b"w" * half
        client.connection.abort()
        await server.until_event("disconnected")
        await listener.close()

    place.run(scenario())


def test_an_aborted_connection_ends_on_both_sides(place: Place) -> None:
    async def scenario() -> None:
        server = Recorder(on_data=echo)
        listener, client = await place.pair(server)
        client.connection.send([b"hello"])
        await client.until(lambda: client.received == b"hello")
        client.connection.abort()
        client.connection.abort()
        client.connection.send([b"lost"])
        await client.until_event("disconnected")
        await server.until_event("disconnected")
        assert client.events.count("disconnected") == 1
        assert server.received == b"hello"
        await listener.close()

    place.run(scenario())


def test_nobody_listening_is_a_lost_connection(place: Place) -> None:
    async def scenario() -> None:
        listener = await place.listen()
        await listener.close()
        client = Recorder()
        with pytest.raises(ConnectionLost, match=str(listener.address.port)):
            await place.client.connect(listener.address, client)
        assert client.events == []

    place.run(scenario())


def test_a_closed_listener_leaves_its_connections_alone(place: Place) -> None:
    async def scenario() -> None:
        listener, client = await place.pair(Recorder(on_data=echo))
        await listener.close()
        client.connection.send([b"still"])
        await client.until(lambda: client.received == b"still")
        client.connection.close()
        await client.until_event("disconnected")

    place.run(scenario())


def test_two_listeners_cannot_have_one_port(place: Place) -> None:
    async def scenario() -> None:
        listener = await place.listen()
        with pytest.raises(OSError):
            await place.server.listen(listener.address, Recorder)
        await listener.close()

    place.run(scenario())
