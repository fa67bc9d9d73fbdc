"""Groups of our consumers at a broker of ours, in a simulated world: whatever breaks, nothing is skipped."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from node.broker import CLIENTS, HOST, Broker

from moldau.client import Client, NewTopic, open_client
from moldau.client.settings import ClientSettings, SettingValue
from moldau.model.ids import TopicPartition
from moldau.sim.cluster import SimNode
from moldau.world.ports import World

TOPIC = "orders"
GROUP = "billing"
PARTITIONS = 5
RECORDS = 200

PROTOCOLS: dict[str, dict[str, SettingValue]] = {
    "consumer": {"group_protocol": "consumer"},
    "eager": {"group_protocol": "classic"},
    "cooperative": {
        "group_protocol": "classic",
        "partition_assignment_strategy": "cooperative-sticky",
    },
}


class Readers:
    """Machines with a member each, and what all of them have read and own."""

    def __init__(self, broker: Broker, protocol: str, count: int) -> None:
        self.broker = broker
        self.read: dict[TopicPartition, set[int]] = {}
        self.owned: dict[str, set[TopicPartition]] = {}
        self.overlaps: list[tuple[str, TopicPartition]] = []
        self._settings = ClientSettings.parse(
            {
                "auto_offset_reset": "earliest",
                "session_timeout_ms": 6_000,
                "heartbeat_interval_ms": 500,
                "auto_commit_interval_ms": 300,
                "max_poll_records": 2,
                **PROTOCOLS[protocol],
            }
        )
        self.machines = {f"reader{index}": self._machine(f"reader{index}") for index in range(count)}

    def _machine(self, name: str) -> SimNode:
        async def main(world: World) -> None:
            self.owned[name] = set()
            async with open_client(world, [CLIENTS], self._settings) as client:
                await self._read(client, name, world)

        return self.broker.sim.add(name, main)

    async def _read(self, client: Client, name: str, world: World) -> None:
        owned = self.owned[name]

        def take(places: tuple[TopicPartition, ...]) -> None:
            for place in places:
                if any(place in other for other in self.owned.values()):
                    self.overlaps.append((name, place))
            owned.update(places)

        consumer = client.consumer(
            [TOPIC], group_id=GROUP, on_assigned=take, on_revoked=owned.difference_update
        )
        while True:
            for place, records in (await consumer.poll(timeout_ms=200)).items():
                self.read.setdefault(place, set()).update(record.offset for record in records)
            # Work takes so long that there is some left whenever something breaks.
            await world.clock.sleep_ms(150)

    def is_shared_by_all(self) -> bool:
        """Whether everybody reads something, and everything is read."""
        owned = [place for places in self.owned.values() for place in places]
        everybody = len(self.owned) == len(self.machines) and all(self.owned.values())
        return everybody and len(owned) == len(set(owned)) == PARTITIONS

    def has_read_all(self) -> bool:
        return sum(map(len, self.read.values())) == RECORDS


def prepare(broker: Broker) -> None:
    """A topic with records."""

    async def main(world: World) -> None:
        async with open_client(world, [CLIENTS], ClientSettings()) as client:
            await client.admin.create_topics(NewTopic(TOPIC, PARTITIONS, 1))
            async with client.producer() as producer:
                for number in range(RECORDS):
                    await producer.send(TOPIC, b"%d" % number, partition=number % PARTITIONS)

    writer = broker.sim.add("writer", main)
    writer.start()
    broker.run_until(lambda: not writer.is_alive)


def committed(broker: Broker) -> dict[TopicPartition, int]:
    """What the group has committed."""
    found: list[dict[TopicPartition, int]] = []

    async def main(world: World) -> None:
        async with open_client(world, [CLIENTS], ClientSettings()) as client:
            offsets = await client.admin.group_offsets(GROUP)
            found.append({place: each.offset for place, each in offsets.items()})

    looker = broker.sim.add(f"looker at {broker.now_ms}", main)
    looker.start()
    broker.run_until(lambda: bool(found) and not looker.is_alive)
    return found[0]


@pytest.fixture(params=[*PROTOCOLS])
def protocol(request: pytest.FixtureRequest) -> str:
    assert isinstance(request.param, str)
    return request.param


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker({"offsets.topic.num.partitions": "1", "group.initial.rebalance.delay.ms": "0"}) as broker:
        prepare(broker)
        yield broker


def test_members_that_come_and_go_never_own_a_partition_together(broker: Broker, protocol: str) -> None:
    readers = Readers(broker, protocol, 3)
    for machine in readers.machines.values():
        machine.start()
        broker.run_for(2_500)
    broker.run_until(readers.is_shared_by_all, timeout_ms=120_000)
    readers.machines["reader1"].stop()
    readers.owned.pop("reader1").clear()
    broker.run_until(lambda: sum(map(len, readers.owned.values())) == PARTITIONS, timeout_ms=120_000)
    broker.run_until(readers.has_read_all, timeout_ms=120_000)
    assert readers.overlaps == []
    broker.run_for(1_000)
    assert sum(committed(broker).values()) == RECORDS


def test_who_gives_up_what_it_had_plenty_of_reads_on(broker: Broker) -> None:
    """Found by seed 65 of the groups: while one had enough nothing was fetched, and nobody looked again."""
    broker.create_topic("pair", partitions=2)
    for number in range(20):
        broker.append([b"%d" % number], "pair", partition=1)
    read: dict[int, list[int]] = {0: [], 1: []}
    revoked_partitions: list[int] = []
    settings = ClientSettings.parse(
        {
            **PROTOCOLS["consumer"],
            "auto_offset_reset": "earliest",
            "max_poll_records": 1,
            "max_partition_fetch_bytes": 100,
        }
    )

    async def main(world: World) -> None:
        async def revoked(places: tuple[TopicPartition, ...]) -> None:
            # The next heartbeat has to say everything, and is told once more what there is to read.
            broker.sim.network.reset("reader", HOST)
            await world.clock.sleep_ms(7_000)
            revoked_partitions.extend(place.partition for place in places)

        async with open_client(world, [CLIENTS], settings) as client:
            consumer = client.consumer(["pair"], group_id=GROUP, on_revoked=revoked)
            while True:
                for place, records in (await consumer.poll(timeout_ms=200)).items():
                    read[place.partition] += [record.offset for record in records]
                await world.clock.sleep_ms(300)

    async def come(world: World) -> None:
        async with open_client(world, [CLIENTS], settings) as client:
            consumer = client.consumer(["pair"], group_id=GROUP)
            while True:
                await consumer.poll(timeout_ms=100)

    broker.sim.add("reader", main).start()
    broker.run_until(lambda: len(read[1]) >= 2)
    broker.sim.add("newcomer", come).start()
    broker.run_until(lambda: bool(revoked_partitions))
    assert revoked_partitions == [1]
    broker.append([b"more"], "pair", partition=0)
    broker.run_until(lambda: read[0] == [0])


@pytest.mark.parametrize("seed", range(3))
def test_whatever_breaks_all_is_read_and_nothing_that_was_not_read_is_committed(
    protocol: str, seed: int
) -> None:
    settings = {"offsets.topic.num.partitions": "1", "group.initial.rebalance.delay.ms": "0"}
    with Broker(settings, seed=seed) as broker:
        prepare(broker)
        readers = Readers(broker, protocol, 3)
        for machine in readers.machines.values():
            machine.start()
        chance = broker.sim.randomness.fork("trouble")
        troubles = 0
        for _ in range(12):
            broker.run_for(400)
            name = chance.choice(list(readers.machines))
            match chance.below(4):
                case 0:
                    broker.sim.network.reset(name, HOST)
                case 1:
                    broker.sim.network.lose_responses(client=name, server=HOST, reset_after_ms=15)
                case 2:
                    readers.machines[name].kill()
                    readers.owned.pop(name, set()).clear()
                    readers.machines[name].start()
                case _:
                    broker.crash()
            troubles += 1
            for place, offset in committed(broker).items():
                assert set(range(offset)) <= readers.read.get(place, set()), (
                    f"{place} skipped before {offset}"
                )
        broker.run_until(readers.has_read_all, timeout_ms=300_000)
        broker.run_until(readers.is_shared_by_all, timeout_ms=300_000)
        assert troubles == 12
