"""What the simulated network does to connections: delays, pieces, cuts, resets, lost answers, dead peers."""

import asyncio
from collections.abc import Iterator

import pytest
from world.network_receivers import Recorder, echo

from moldau.sim.loop import SimLoop
from moldau.sim.network import CONNECT_TIMEOUT_MS, SEND_TIMEOUT_MS, NodeNetwork, SimNetwork, Weather
from moldau.sim.randomness import Seeded
from moldau.world.ports import Address, ConnectionLost

HERE, THERE = "ada", "bob"
ADDRESS = Address(THERE, 9092)


class Pair:
    """Two machines, with a connection between them on demand."""

    def __init__(self, seed: int = 1) -> None:
        self.loop = SimLoop()
        self.network = SimNetwork(self.loop, Seeded(seed))
        self.here: NodeNetwork = self.network.endpoint(HERE)
        self.there: NodeNetwork = self.network.endpoint(THERE)
        self.server = Recorder()
        self.client = Recorder()

    def connect(self, server: Recorder | None = None) -> None:
        self.server = server or self.server

        async def scenario() -> None:
            await self.there.listen(ADDRESS, lambda: self.server)
            await self.here.connect(ADDRESS, self.client)
            await self.server.until_event("connected")

        self.loop.run_until_complete(scenario())

    def connect_fails(self) -> str:
        async def scenario() -> None:
            await self.here.connect(ADDRESS, self.client)

        with pytest.raises(ConnectionLost) as failure:
            self.loop.run_until_complete(scenario())
        return str(failure.value)


@pytest.fixture
def pair() -> Iterator[Pair]:
    pair = Pair()
    yield pair
    pair.loop.close()


def pieces_of_a_transfer(seed: int, weather: Weather) -> tuple[list[int], float]:
    pair = Pair(seed)
    pair.network.weather = weather
    pair.connect()
    pair.client.connection.send([b"0123456789" * 100])
    assert pair.loop.run_until(lambda: len(pair.server.received) == 1000, timeout_ms=60_000)
    assert pair.server.received == b"0123456789" * 100
    pair.loop.close()
    return pair.server.pieces, pair.loop.time()


def test_bytes_arrive_in_pieces_and_at_times_that_follow_from_the_seed() -> None:
    weather = Weather(delay_us=(10, 50_000), fragment_bytes=(1, 100))
    runs = [pieces_of_a_transfer(seed, weather) for seed in (1, 2, 1)]
    assert runs[0] == runs[2] != runs[1]
    assert len(runs[0][0]) > 10


def test_a_cut_works_one_way_and_delivers_what_waited_once_it_is_mended(pair: Pair) -> None:
    pair.connect()
    pair.network.cut(HERE, THERE)
    pair.client.connection.send([b"request"])
    pair.server.connection.send([b"push"])
    pair.loop.run_for(5_000)
    assert pair.client.received == b"push"
    assert pair.server.received == b""
    pair.network.heal(HERE, THERE)
    pair.loop.run_for(100)
    assert pair.server.received == b"request"


def test_what_was_sent_before_a_cut_is_not_overtaken_by_what_is_sent_after_it(pair: Pair) -> None:
    pair.connect()
    pair.client.connection.send([b"first "])
    pair.network.cut(HERE, THERE)
    pair.loop.run_for(700)
    pair.network.heal()
    pair.client.connection.send([b"second"])
    pair.loop.run_for(5_000)
    assert pair.server.received == b"first second"


def test_a_cut_that_lasts_ends_the_connection_of_who_sends(pair: Pair) -> None:
    pair.connect()
    pair.network.isolate(THERE)
    pair.client.connection.send([b"request"])
    pair.loop.run_for(SEND_TIMEOUT_MS + 2_000)
    assert pair.client.events == ["connected", "disconnected"]
    assert isinstance(pair.client.error, ConnectionLost)
    assert pair.server.events == ["connected"]


def test_a_reset_loses_what_is_under_way_and_tells_both(pair: Pair) -> None:
    pair.connect()
    pair.client.connection.send([b"lost"])
    pair.server.connection.send([b"lost too"])
    assert pair.network.reset(HERE, THERE) == 1
    pair.loop.run_for(1_000)
    for end in (pair.client, pair.server):
        assert end.events == ["connected", "disconnected"]
        assert isinstance(end.error, ConnectionLost)
        assert end.received == b""


def test_lost_responses_let_requests_through(pair: Pair) -> None:
    pair.connect(Recorder(on_data=echo))
    pair.network.lose_responses(client=HERE, server=THERE, reset_after_ms=500)
    pair.client.connection.send([b"request"])
    pair.loop.run_for(400)
    assert pair.server.received == b"request"
    assert pair.client.events == ["connected"]
    pair.loop.run_for(1_000)
    assert pair.client.received == b""
    assert isinstance(pair.client.error, ConnectionLost)


def test_nobody_listening_refuses_at_once(pair: Pair) -> None:
    assert "refuses" in pair.connect_fails()
    assert pair.loop.time() < 1


@pytest.mark.parametrize("cut", [(HERE, THERE), (THERE, HERE)])
def test_a_cut_either_way_lets_a_connection_time_out(pair: Pair, cut: tuple[str, str]) -> None:
    pair.loop.run_until_complete(pair.there.listen(ADDRESS, lambda: pair.server))
    pair.network.cut(*cut)
    assert "does not answer" in pair.connect_fails()
    assert pair.loop.time() == CONNECT_TIMEOUT_MS / 1000


def test_a_machine_that_is_off_or_unknown_does_not_answer(pair: Pair) -> None:
    pair.there.host.is_on = False
    assert "does not answer" in pair.connect_fails()

    async def unknown() -> None:
        await pair.here.connect(Address("nobody", 1), pair.client)

    with pytest.raises(ConnectionLost, match="nobody:1 does not answer"):
        pair.loop.run_until_complete(unknown())


def test_a_client_that_stops_waiting_leaves_no_connection_behind(pair: Pair) -> None:
    async def scenario() -> None:
        await pair.there.listen(ADDRESS, lambda: pair.server)
        attempt = asyncio.create_task(pair.here.connect(ADDRESS, pair.client))
        await asyncio.sleep(0)
        attempt.cancel()
        await asyncio.sleep(1)

    pair.loop.run_until_complete(scenario())
    assert pair.client.events == []
    assert pair.server.events in ([], ["connected", "disconnected"])
