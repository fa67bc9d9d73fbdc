"""Where a turn of the loop serves many, their replies leave at its end; where it serves one, at once."""

import asyncio
import socket
import time

from moldau.world import real
from moldau.world.ports import Address, Connection
from moldau.world.real.network import RealNetwork
from moldau.world.real.turns import TurnLoop


class Answering:
    """Answers whatever comes, and notes whether the answer had left when it was given."""

    def __init__(self, met: list["Answering"], patience_s: float, room: int = 100) -> None:
        self.patience_s = patience_s
        self.has_left_at_once = False
        self.room = bytearray(room)
        met.append(self)

    def connected(self, connection: Connection) -> None:
        self.connection = connection

    def buffer_to_fill(self, hint: int) -> memoryview:
        return memoryview(self.room)

    def filled(self, count: int) -> None:
        self.connection.send([b"an", b"swer"])
        deadline = time.monotonic() + self.patience_s
        while not arrived(self.client) and time.monotonic() < deadline:
            pass
        self.has_left_at_once |= bool(arrived(self.client))

    def pause_sending(self) -> None: ...

    def resume_sending(self) -> None: ...

    def disconnected(self, error: Exception | None) -> None: ...

    client: socket.socket


def arrived(client: socket.socket) -> bytes:
    try:
        return client.recv(100, socket.MSG_PEEK)
    except BlockingIOError:
        return b""


async def served_together(
    count: int, *, patience_s: float = 0, room: int = 100, answers: int = 1
) -> list[Answering]:
    """So many clients whose requests are all there when the loop looks."""
    met: list[Answering] = []
    listener = await RealNetwork().listen(Address("127.0.0.1", 0), lambda: Answering(met, patience_s, room))
    clients = []
    for _ in range(count):
        client = socket.create_connection(("127.0.0.1", listener.address.port))
        client.setblocking(False)
        clients.append(client)
        while len(met) < len(clients) or not hasattr(met[-1], "connection"):  # noqa: ASYNC110  nobody tells
            await asyncio.sleep(0)
        met[-1].client = client
    for client in clients:
        client.send(b"request")
    expected = b"answer" * answers
    while not all(len(arrived(client)) >= len(expected) for client in clients):  # noqa: ASYNC110  nobody tells
        await asyncio.sleep(0.001)
    assert [client.recv(100) for client in clients] == [expected] * count
    for client in clients:
        client.close()
    await listener.close()
    return met


def test_a_single_client_is_answered_at_once() -> None:
    (only,) = real.run(served_together(1, patience_s=10))
    assert only.has_left_at_once


def test_many_are_answered_at_the_end_of_the_turn() -> None:
    met = real.run(served_together(5))
    assert not any(each.has_left_at_once for each in met)


def test_what_is_read_in_several_pieces_is_answered_in_one() -> None:
    (only,) = real.run(served_together(1, room=3, answers=3))
    assert not only.has_left_at_once


def test_work_that_is_left_is_done_before_the_next_look_at_the_sockets() -> None:
    async def scenario() -> list[str]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, TurnLoop)
        done: list[str] = []
        loop.at_end_of_turn(lambda: done.append("first"))
        loop.at_end_of_turn(lambda: done.append("second"))
        assert not done
        await asyncio.sleep(0)
        return done

    assert real.run(scenario()) == ["first", "second"]
