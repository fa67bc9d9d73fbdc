"""Nodes in a cluster: how they start and end, what is left of them, and what their peers notice."""

import asyncio
from collections.abc import Iterator

import pytest
from world.network_receivers import Recorder, echo

from moldau.sim.cluster import EPOCH_MS, Cluster
from moldau.sim.disk import Survives
from moldau.world.ports import Address, ConnectionLost, DiskFailed, Flush, World


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(1) as cluster:
        yield cluster


async def for_ever() -> None:
    await asyncio.get_running_loop().create_future()


class Program:
    """A node that serves echoes and keeps one flushed and one unflushed file."""

    def __init__(self) -> None:
        self.worlds: list[World] = []
        self.found: list[list[str]] = []
        self.log: list[str] = []

    async def main(self, world: World) -> None:
        self.worlds.append(world)
        world.disk.lock()
        self.found.append([name for name in world.disk.list("") if name != ".lock"])
        try:
            await world.network.listen(Address("ada", 1), lambda: Recorder(on_data=echo))
            world.disk.open("flushed", create=True)
            await world.disk.flush(Flush(directories=("",)))
            world.disk.open("unflushed", create=True)
            await for_ever()
        finally:
            self.log.append("cleaned up")


def connect_to_ada(cluster: Cluster) -> Recorder:
    """A client on a machine of its own, connected."""
    client = Recorder()

    async def main(world: World) -> None:
        await world.network.connect(Address("ada", 1), client)
        await for_ever()

    cluster.add("client", main).start()
    assert cluster.run_until(lambda: client.events == ["connected"])
    return client


def test_a_killed_node_keeps_its_page_cache_and_its_peers_see_a_reset(cluster: Cluster) -> None:
    program = Program()
    ada = cluster.add("ada", program.main)
    ada.start()
    cluster.run_for(100)
    client = connect_to_ada(cluster)
    ada.kill()
    cluster.run_for(1_000)
    assert isinstance(client.error, ConnectionLost)
    ada.start()
    cluster.run_for(100)
    assert program.found == [[], ["flushed", "unflushed"]]
    assert program.log == []


def test_a_node_without_power_keeps_what_was_flushed_and_its_peers_see_nothing(cluster: Cluster) -> None:
    program = Program()
    ada = cluster.add("ada", program.main)
    ada.start()
    cluster.run_for(100)
    client = connect_to_ada(cluster)
    ada.power_cut(Survives.NOTHING)
    cluster.run_for(60_000)
    assert client.events == ["connected"]
    ada.start()
    cluster.run_for(100)
    assert program.found == [[], ["flushed"]]
    # Only who sends learns that the rebooted machine does not know the connection.
    client.connection.send([b"hello?"])
    cluster.run_for(1_000)
    assert isinstance(client.error, ConnectionLost)
    assert program.log == []


def test_a_paused_node_answers_once_it_is_resumed(cluster: Cluster) -> None:
    program = Program()
    ada = cluster.add("ada", program.main)
    ada.start()
    cluster.run_for(100)
    client = connect_to_ada(cluster)
    ada.pause()
    client.connection.send([b"hello"])
    cluster.run_for(10_000)
    assert client.received == b""
    ada.resume()
    cluster.run_for(100)
    assert client.received == b"hello"


def test_a_stopped_node_cleans_up_and_can_be_started_again(cluster: Cluster) -> None:
    program = Program()
    ada = cluster.add("ada", program.main)
    ada.start()
    cluster.run_for(100)
    assert ada.stop()
    assert program.log == ["cleaned up"]
    ada.start()
    cluster.run_for(100)
    assert len(program.found) == 2


def test_a_dead_process_cannot_touch_the_disk_of_the_next(cluster: Cluster) -> None:
    program = Program()
    ada = cluster.add("ada", program.main)
    ada.start()
    cluster.run_for(100)
    ada.restart()
    cluster.run_for(100)
    old, new = program.worlds
    with pytest.raises(BaseException, match="the machine is off"):
        old.disk.open("late", create=True)
    assert new.disk.list("") == [".lock", "flushed", "unflushed"]


def test_clocks_differ_and_the_calendar_can_be_moved(cluster: Cluster) -> None:
    programs = [Program(), Program()]
    ada = cluster.add("ada", programs[0].main)
    cluster.add("bob", programs[1].main)
    cluster.start_all()
    cluster.run_for(1_000)
    one, two = (program.worlds[0].clock for program in programs)
    assert one.now_ms() != two.now_ms()
    before_ms = one.now_ms()
    ada.move_clock(-5_000)
    assert (one.wall_ms(), two.wall_ms()) == (EPOCH_MS - 4_000, EPOCH_MS + 1_000)
    assert one.now_ms() == before_ms


def test_a_bug_in_a_node_ends_the_run(cluster: Cluster) -> None:
    async def main(world: World) -> None:
        await world.clock.sleep_ms(10)
        raise ZeroDivisionError("a bug")

    cluster.add("ada", main).start()
    with pytest.raises(ZeroDivisionError, match="a bug"):
        cluster.run_for(100)


def test_a_node_ends_with_its_disk_and_the_run_goes_on(cluster: Cluster) -> None:
    async def main(world: World) -> None:
        await world.disk.flush(Flush(directories=("",)))

    ended: list[BaseException | None] = []
    ada = cluster.add("ada", main)
    ada.on_ended = ended.append
    ada.disk.fail("fsync")
    ada.start()
    cluster.run_for(100)
    assert not ada.is_alive
    assert [type(error) for error in ended] == [DiskFailed]


def test_a_power_cut_at_a_chosen_operation_takes_the_node_down(cluster: Cluster) -> None:
    program = Program()
    ada = cluster.add("ada", program.main)
    ada.disk.stop_at(3)
    ada.start()
    cluster.run_for(100)
    assert not ada.is_alive
    ada.start()
    cluster.run_for(100)
    assert ada.is_alive


def test_work_off_the_loop_takes_virtual_time(cluster: Cluster) -> None:
    results: list[tuple[int, bool]] = []

    async def main(world: World) -> None:
        before = cluster.loop.now_us
        results.append((await world.tasks.off_loop(lambda: 42), cluster.loop.now_us > before))

    cluster.add("ada", main).start()
    cluster.run_for(100)
    assert results == [(42, True)]
