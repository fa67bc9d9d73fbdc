"""The client in a simulated network: whatever breaks, each record is written once and in order."""

from collections.abc import Callable, Coroutine, Iterable, Iterator
from typing import TypeVar

import pytest
from client.fake_cluster import TOPIC, FakeCluster

from moldau.client import Client, ClientError, Unreachable, open_client
from moldau.client.settings import ClientSettings, SettingValue
from moldau.model.errors import ErrorCode
from moldau.sim.cluster import Cluster
from moldau.wire.message import Request
from moldau.wire.messages.fetch import FetchRequest
from moldau.wire.messages.metadata import MetadataRequest
from moldau.wire.records import kernel
from moldau.wire.records.batch import Packed, pack
from moldau.wire.records.compression import Codec
from moldau.wire.records.record import Encoded, Record
from moldau.world.ports import Address, World

T = TypeVar("T")

CLIENT = "client"


class Simulation:
    """Fake brokers and one client on a simulated network."""

    def __init__(self, seed: int = 1, *, broker_count: int = 2, partition_count: int = 3) -> None:
        self.sim = Cluster(seed)
        self.fake = FakeCluster(broker_count=broker_count, partition_count=partition_count)
        self._bootstrap = list(self.fake.brokers.values())
        for node_id, address in self.fake.brokers.items():
            self.sim.add(address.host, self._broker(node_id)).start()

    def _broker(self, node_id: int) -> Callable[[World], Coroutine[object, object, None]]:
        async def main(world: World) -> None:
            await self.fake.serve(world, node_id)
            await world.clock.sleep_ms(2**31)

        return main

    def run(
        self,
        work: Callable[[Client], Coroutine[object, object, T]],
        *,
        meanwhile: Callable[[], None] | None = None,
        bootstrap: list[Address] | None = None,
        timeout_ms: int = 300_000,
        **settings: SettingValue,
    ) -> T:
        """What `work` gives, done on a machine of its own; `meanwhile` is called every 20 ms."""
        results: list[T] = []
        failures: list[BaseException] = []

        async def main(world: World) -> None:
            try:
                parsed = ClientSettings.parse(settings)
                async with open_client(world, bootstrap or self._bootstrap, parsed) as client:
                    results.append(await work(client))
            except Exception as error:  # noqa: BLE001  # handed to the test
                failures.append(error)

        node = self.sim.add(CLIENT, main)
        node.start()
        for _ in range(timeout_ms // 20):
            if self.sim.run_until(lambda: bool(results or failures) and not node.is_alive, timeout_ms=20):
                break
            if meanwhile is not None:
                meanwhile()
        if failures:
            raise failures[0]
        assert results, "the client is not done"
        return results[0]

    def values(self) -> list[list[bytes | None]]:
        """What the logs of the partitions hold."""
        return [[record.value for record in each.records()] for each in self.fake.partitions]


@pytest.fixture
def simulation() -> Iterator[Simulation]:
    simulation = Simulation()
    yield simulation
    simulation.sim.close()


async def produce(client: Client, count: int, **settings: SettingValue) -> None:
    async with client.producer(**settings) as producer:  # type: ignore[arg-type]  # none is a partitioner
        deliveries = []
        for number in range(count):
            deliveries.append(
                await producer.send(TOPIC, b"%d" % number, key=b"key-%d" % (number % 7), timestamp=number)
            )
            if number % 10 == 9:
                await client.cluster.world.clock.sleep_ms(7)
        for delivery in deliveries:
            await delivery


def packed(numbers: Iterable[int]) -> Packed:
    records = [Record(index, 0, None, b"%d" % number) for index, number in enumerate(numbers)]
    return pack(Encoded(kernel.encode(records, 0, 0), len(records), 0, 0), codec=Codec.LZ4)


async def produce_packed(client: Client, count: int) -> None:
    """Numbers by tens, each ten in a batch of its own."""
    async with client.producer() as producer:
        deliveries = []
        for first in range(0, count, 20):
            tens = [range(first, first + 10), range(first + 10, first + 20)]
            batches = [(TOPIC, (ten[0] // 10) % 3, packed(ten)) for ten in tens]
            deliveries += await producer.send_packed(batches)
            await client.cluster.world.clock.sleep_ms(7)
        for delivery in deliveries:
            assert sum(part.count for part in await delivery) == 10


async def consume(client: Client, count: int) -> list[list[bytes | None]]:
    async with client.consumer([TOPIC], auto_offset_reset="earliest") as consumer:
        read: dict[int, list[bytes | None]] = {}
        while sum(map(len, read.values())) < count:
            for (_, partition), records in (await consumer.poll(timeout_ms=60_000)).items():
                read.setdefault(partition, []).extend(record.value for record in records)
    return [read[partition] for partition in sorted(read)]


@pytest.mark.parametrize("work", [produce, produce_packed])
@pytest.mark.parametrize("seed", range(12))
def test_with_idempotence_each_record_is_written_once_and_in_order_whatever_breaks(
    seed: int, work: Callable[[Client, int], Coroutine[object, object, None]]
) -> None:
    simulation = Simulation(seed)
    chance = simulation.sim.randomness.fork("trouble")
    network, fake = simulation.sim.network, simulation.fake
    troubles: list[str] = []

    def trouble() -> None:
        broker = chance.choice(list(fake.brokers.values())).host
        match chance.below(4):
            case 0:
                network.reset(CLIENT, broker)
                troubles.append("reset")
            case 1:
                network.lose_responses(client=CLIENT, server=broker, reset_after_ms=15)
                troubles.append("lost responses")
            case 2:
                fake.move_leader(chance.below(3), 1 + chance.below(2))
                fake.has_leader_hints = chance.chance(0.5)
                troubles.append("moved leader")

    simulation.run(lambda client: work(client, 200), meanwhile=trouble)
    assert troubles, "the seed brings no trouble"
    for partition, values in enumerate(simulation.values()):
        numbers = [int(value or b"") for value in values]
        assert numbers == sorted(dict.fromkeys(numbers)), f"partition {partition}"
    assert sorted(int(value or b"") for log in simulation.values() for value in log) == list(range(200))
    simulation.sim.close()


def test_lost_acknowledgements_are_what_makes_retries_into_duplicates(simulation: Simulation) -> None:
    """The counterpart: without idempotence the same trouble writes records twice."""
    network = simulation.sim.network

    def lose() -> None:
        network.lose_responses(client=CLIENT, server="broker1", reset_after_ms=5)

    work = simulation.run
    work(
        lambda client: produce(client, 100, enable_idempotence=False, delivery_timeout_ms=600_000),
        meanwhile=lose,
    )
    values = [value for log in simulation.values() for value in log]
    assert len(values) > 100
    assert len(set(values)) == 100


@pytest.mark.parametrize("seed", range(6))
def test_a_consumer_reads_everything_once_and_in_order_whatever_breaks(seed: int) -> None:
    simulation = Simulation(seed)
    chance = simulation.sim.randomness.fork("trouble")

    def trouble() -> None:
        if chance.chance(0.3):
            simulation.sim.network.reset(CLIENT, chance.choice(["broker1", "broker2"]))
        if chance.chance(0.3):
            simulation.fake.move_leader(chance.below(3), 1 + chance.below(2))

    async def both(client: Client) -> list[list[bytes | None]]:
        await produce(client, 300, batch_size=200)
        return await consume(client, 300)

    read = simulation.run(both, meanwhile=trouble, max_partition_fetch_bytes=500)
    assert read == simulation.values()
    simulation.sim.close()


def test_the_same_seed_gives_the_same_history() -> None:
    def digest(seed: int) -> str:
        simulation = Simulation(seed)
        simulation.run(lambda client: produce(client, 50))
        simulation.sim.close()
        return simulation.sim.trace.hexdigest()

    assert digest(5) == digest(5) != digest(6)


def test_a_batch_that_is_too_large_is_split_until_it_fits(simulation: Simulation) -> None:
    simulation.fake.batch_bytes_max = 400

    async def work(client: Client) -> list[int]:
        async with client.producer() as producer:
            sent = [await producer.send(TOPIC, b"%020d" % number, partition=0) for number in range(100)]
            return [(await delivery).offset for delivery in sent]

    assert simulation.run(work) == list(range(100))
    assert simulation.values()[0] == [b"%020d" % number for number in range(100)]


def test_a_packed_batch_that_is_too_large_is_split_until_it_fits_and_all_its_places_are_told(
    simulation: Simulation,
) -> None:
    simulation.fake.batch_bytes_max = 200

    async def work(client: Client) -> list[tuple[int, int, int]]:
        async with client.producer() as producer:
            [delivery] = await producer.send_packed([(TOPIC, 0, packed(range(100, 200)))])
            parts = await delivery
            return [(part.first, part.count, part.offset) for part in parts]

    parts = simulation.run(work)
    assert len(parts) > 1
    assert all(first == offset for first, _, offset in parts)
    assert sum(count for _, count, _ in parts) == 100
    assert simulation.values()[0] == [b"%d" % number for number in range(100, 200)]


def test_packed_batches_wait_for_room_and_go_in_the_order_of_their_partition(simulation: Simulation) -> None:
    async def work(client: Client) -> int:
        held = 0
        async with client.producer(buffer_memory=500) as producer:
            for first in range(0, 300, 10):
                await producer.send_packed([(TOPIC, 0, packed(range(first, first + 10)))])
                held = max(held, producer.held_bytes)
        return held

    assert simulation.run(work) <= 500
    assert simulation.values()[0] == [b"%d" % number for number in range(300)]


def test_what_cannot_be_sent_packed_says_why(simulation: Simulation) -> None:
    async def work(client: Client) -> list[str]:
        texts = []
        producer = client.producer(max_request_size=200, max_block_ms=1_000)
        for topic, partition, numbers in (
            (TOPIC, 9, range(1)),
            (TOPIC, -1, range(1)),
            (TOPIC, 0, range(0, 1_000_000, 999)),
            ("missing", 0, range(1)),
        ):
            with pytest.raises(ClientError) as error:
                await producer.send_packed([(topic, partition, packed(numbers))])
            texts.append(str(error.value))
        return texts

    beyond, negative, large, missing = simulation.run(work)
    assert "at orders: There is no partition 9: the topic has 3." in beyond
    assert "at orders: There is no partition -1: the topic has 3." in negative
    assert "is larger than max.request.size" in large
    assert missing.startswith("UNKNOWN_TOPIC_OR_PARTITION (3) at missing: ")


def test_a_record_that_is_too_large_alone_fails_and_the_others_go_on(simulation: Simulation) -> None:
    simulation.fake.batch_bytes_max = 400

    async def work(client: Client) -> list[ErrorCode | None]:
        outcomes: list[ErrorCode | None] = []
        async with client.producer() as producer:
            values = [b"a", b"b" * 500, b"c"]
            for delivery in [await producer.send(TOPIC, value, partition=0) for value in values]:
                try:
                    await delivery
                    outcomes.append(None)
                except ClientError as error:
                    outcomes.append(error.code)
        return outcomes

    assert simulation.run(work) == [None, ErrorCode.MESSAGE_TOO_LARGE, None]
    assert simulation.values()[0] == [b"a", b"c"]


def test_a_producer_goes_on_in_a_new_epoch_after_a_batch_has_failed_for_good(simulation: Simulation) -> None:
    async def work(client: Client) -> tuple[ErrorCode, list[int]]:
        async with client.producer() as producer:
            await (await producer.send(TOPIC, b"first", partition=0))
            simulation.fake.produce_errors.append(ErrorCode.INVALID_TIMESTAMP)
            with pytest.raises(ClientError) as refused:
                await (await producer.send(TOPIC, b"refused", partition=0))
            offsets = [(await (await producer.send(TOPIC, b"%d" % n, partition=0))).offset for n in range(3)]
            return refused.value.code, offsets

    assert simulation.run(work) == (ErrorCode.INVALID_TIMESTAMP, [1, 2, 3])
    assert simulation.values()[0] == [b"first", b"0", b"1", b"2"]
    ((epoch, _),) = simulation.fake.partitions[0].producers.values()
    assert epoch == 1


def test_a_leader_that_moved_is_found_without_asking_for_metadata(simulation: Simulation) -> None:
    async def work(client: Client) -> int:
        async with client.producer() as producer:
            await (await producer.send(TOPIC, b"before", partition=0))
            before = simulation.fake.requests.count("MetadataRequest")
            simulation.fake.move_leader(0, 2)
            await (await producer.send(TOPIC, b"after", partition=0))
            return simulation.fake.requests.count("MetadataRequest") - before

    assert simulation.run(work) == 0
    assert simulation.values()[0] == [b"before", b"after"]


def test_what_cannot_be_delivered_in_time_fails_and_says_how_often_it_was_tried(
    simulation: Simulation,
) -> None:
    async def work(client: Client) -> str:
        async with client.producer(delivery_timeout_ms=5_000, request_timeout_ms=1_000) as producer:
            await (await producer.send(TOPIC, b"before", partition=0))
            simulation.sim.network.isolate("broker1")
            with pytest.raises(ClientError) as late:
                await (await producer.send(TOPIC, b"late", partition=0))
            simulation.sim.network.heal()
            return str(late.value)

    assert "orders-0" in simulation.run(work)


def test_senders_wait_while_the_buffer_is_full(simulation: Simulation) -> None:
    held: list[int] = []

    async def work(client: Client) -> None:
        async with client.producer(buffer_memory=2_000, batch_size=500) as producer:
            for number in range(200):
                await producer.send(TOPIC, b"%0100d" % number, partition=0)
                held.append(producer.held_bytes)

    simulation.run(work)
    assert len(simulation.values()[0]) == 200
    assert max(held) <= 2_000


def test_a_full_buffer_that_does_not_drain_raises_after_max_block_ms(simulation: Simulation) -> None:
    async def work(client: Client) -> str:
        producer = client.producer(buffer_memory=600, max_block_ms=3_000, batch_size=100)
        await (await producer.send(TOPIC, b"before", partition=0))
        simulation.sim.network.isolate("broker1")
        # Room for three more: the fourth waits in vain.
        for number in range(3):
            await producer.send(TOPIC, b"%0100d" % number, partition=0)
        with pytest.raises(ClientError) as full:
            await producer.send(TOPIC, b"%0100d" % 3, partition=0)
        producer.abandon()
        return str(full.value)

    assert "buffer.memory stayed full for 3000 ms" in simulation.run(work)


def test_without_acks_nothing_is_waited_for_and_no_offset_is_known(simulation: Simulation) -> None:
    async def work(client: Client) -> list[int]:
        async with client.producer(acks=0) as producer:
            sent = [await producer.send(TOPIC, b"%d" % n, partition=0) for n in range(10)]
            offsets = [(await delivery).offset for delivery in sent]
        # The client's own order of requests is kept, so this comes after the records.
        await consume(client, 10)
        return offsets

    assert simulation.run(work) == [-1] * 10
    assert len(simulation.values()[0]) == 10


def test_a_consumer_seeks_pauses_and_finds_times(simulation: Simulation) -> None:
    async def work(client: Client) -> list[object]:
        async with client.producer() as producer:
            for number in range(30):
                await producer.send(TOPIC, b"%d" % number, partition=number % 3, timestamp=1_000 + number)
        seen: list[object] = []
        async with client.consumer({(TOPIC, 0): 4, (TOPIC, 1): 0}) as consumer:
            consumer.pause((TOPIC, 1))
            polled = await consumer.poll(timeout_ms=10_000)
            seen.append({place.partition: [r.offset for r in records] for place, records in polled.items()})
            seen.append(await consumer.position((TOPIC, 0)))
            consumer.resume((TOPIC, 1))
            polled = await consumer.poll(timeout_ms=10_000, records_max=3)
            seen.append({place.partition: [r.offset for r in records] for place, records in polled.items()})
            await consumer.seek_to_time(1_015)
            seen.append([await consumer.position((TOPIC, index)) for index in (0, 1)])
            await consumer.seek_to_time(9_999, (TOPIC, 0))
            await consumer.seek_to_beginning((TOPIC, 1))
            seen.append([await consumer.position((TOPIC, index)) for index in (0, 1)])
            consumer.seek((TOPIC, 0), 9)
            consumer.pause((TOPIC, 1))
            polled = await consumer.poll(timeout_ms=10_000)
            seen.append([record.value for records in polled.values() for record in records])
            seen.append(consumer.high_watermark((TOPIC, 0)))
        return seen

    assert simulation.run(work) == [
        {0: [4, 5, 6, 7, 8, 9]},
        10,
        {1: [0, 1, 2]},
        [5, 5],
        [10, 0],
        [b"27"],
        10,
    ]


def test_the_reply_to_a_fetch_before_a_seek_is_not_taken_for_one_behind_it(simulation: Simulation) -> None:
    async def work(client: Client) -> list[int]:
        async with client.producer(batch_size=0) as producer:
            for number in range(10):
                await producer.send(TOPIC, b"%d" % number, partition=0)
        async with client.consumer({(TOPIC, 0): 7}) as consumer:

            def seek_while_the_answer_is_under_way(request: Request) -> None:
                if isinstance(request, FetchRequest):
                    simulation.fake.on_request = None
                    consumer.seek((TOPIC, 0), 0)

            simulation.fake.on_request = seek_while_the_answer_is_under_way
            polled = await consumer.poll(timeout_ms=10_000)
            return [record.offset for records in polled.values() for record in records][:3]

    assert simulation.run(work) == [0, 1, 2]


def test_fetching_stops_where_it_is_told_to_and_batches_come_undecoded(simulation: Simulation) -> None:
    fetched: list[int] = []

    def note(request: Request) -> None:
        if isinstance(request, FetchRequest):
            fetched.extend(row.fetch_offset for topic in request.topics for row in topic.partitions)

    async def work(client: Client) -> list[tuple[int, int, int]]:
        async with client.producer(batch_size=0) as producer:
            for number in range(20):
                await (await producer.send(TOPIC, b"%d" % number, partition=number % 2))
        simulation.fake.on_request = note
        seen: list[tuple[int, int, int]] = []
        ends = {(TOPIC, 0): 7, (TOPIC, 1): 5}
        async with client.consumer(max_partition_fetch_bytes=150) as consumer:
            consumer.assign({(TOPIC, 0): 4, (TOPIC, 1): 0}, until=ends)
            while len(seen) < 8:
                for place, polled in (await consumer.poll_batches(timeout_ms=10_000, until=ends)).items():
                    seen += [(place.partition, polled.offset_from, polled.position)] * len(polled.batches)
            # Nothing else is asked for, however long one waits.
            assert await consumer.poll_batches(timeout_ms=5_000, until=ends) == {}
            assert [await consumer.position(place) for place in ends] == [7, 5]
        return seen

    seen = simulation.run(work)
    assert sorted(partition for partition, _, _ in seen) == [0] * 3 + [1] * 5
    assert fetched
    assert max(fetched) < 7


def test_no_more_is_asked_for_than_is_wanted(simulation: Simulation) -> None:
    asked: list[int] = []

    def note(request: Request) -> None:
        if isinstance(request, FetchRequest):
            asked.extend(row.partition_max_bytes for topic in request.topics for row in topic.partitions)

    async def work(client: Client) -> None:
        async with client.producer(batch_size=0) as producer:
            for _ in range(40):
                await (await producer.send(TOPIC, bytes(10_000), partition=0))
        simulation.fake.on_request = note
        ends = {(TOPIC, 0): 30}
        async with client.consumer() as consumer:
            consumer.assign({(TOPIC, 0): 0}, until=ends)
            while await consumer.position((TOPIC, 0)) < 30:
                await consumer.poll_batches(timeout_ms=10_000, until=ends)

    simulation.run(work)
    # At first nobody knows how large the records are; what has come tells, so that two more bring the rest.
    first, second, *_ = asked
    assert first == 30 * 1_024
    assert 27 * 10_000 < second < 28 * 11_000
    assert len(asked) <= 4


def test_a_partition_whose_end_is_reached_does_not_hold_up_the_others_of_its_broker() -> None:
    simulation = Simulation(broker_count=1)

    async def work(client: Client) -> list[int]:
        async with client.producer() as producer:
            for number in range(20):
                await producer.send(TOPIC, b"%d" % number, partition=number % 2)
        ends = {(TOPIC, 0): 1, (TOPIC, 1): 10}
        async with client.consumer(max_partition_fetch_bytes=100) as consumer:
            consumer.assign(dict.fromkeys(ends, 0), until=ends)
            # The one that is done is never polled empty here.
            consumer.pause((TOPIC, 0))
            read: list[int] = []
            while len(read) < 10:
                polled = await consumer.poll(timeout_ms=10_000)
                assert polled, "nothing comes"
                read += [record.offset for records in polled.values() for record in records]
        return read

    assert simulation.run(work) == list(range(10))
    simulation.sim.close()


def test_a_partition_of_a_topic_that_nobody_knew_is_read_at_once(simulation: Simulation) -> None:
    async def work(client: Client) -> int:
        async with client.producer() as producer:
            await producer.send(TOPIC, b"value", partition=0)
        fresh = client.cluster.metadata
        fresh.topics.clear()
        began_ms = client.cluster.world.clock.now_ms()
        async with client.consumer({(TOPIC, 0): 0}, retry_backoff_ms=60_000) as consumer:
            assert await consumer.poll(timeout_ms=10_000)
        return client.cluster.world.clock.now_ms() - began_ms

    assert simulation.run(work) < 1_000


def test_offsets_are_looked_up_for_as_long_as_the_caller_has_time(simulation: Simulation) -> None:
    async def work(client: Client) -> int:
        began_ms = client.cluster.world.clock.now_ms()
        with pytest.raises(ClientError, match="UNKNOWN_TOPIC_OR_PARTITION"):
            await client.admin.list_offsets({("missing", 0): -1}, timeout_ms=2_000)
        return client.cluster.world.clock.now_ms() - began_ms

    assert simulation.run(work) <= 2_000


@pytest.mark.parametrize(("policy", "expected"), [("earliest", [6, 7]), ("latest", [])])
def test_an_offset_that_the_log_no_longer_has_is_reset_as_asked(policy: str, expected: list[int]) -> None:
    simulation = Simulation()

    async def work(client: Client) -> list[int]:
        async with client.producer(batch_size=0) as producer:
            for number in range(8):
                await producer.send(TOPIC, b"%d" % number, partition=0)
        simulation.fake.partitions[0].log_start = 6
        async with client.consumer({(TOPIC, 0): 2}, auto_offset_reset=policy) as consumer:
            polled = await consumer.poll(timeout_ms=2_000)
            return [record.offset for records in polled.values() for record in records]

    assert simulation.run(work) == expected
    simulation.sim.close()


def test_without_a_reset_policy_an_offset_out_of_range_is_an_error_that_names_it(
    simulation: Simulation,
) -> None:
    async def work(client: Client) -> str:
        async with client.consumer({(TOPIC, 0): 99}, auto_offset_reset="none") as consumer:
            with pytest.raises(ClientError) as error:
                await consumer.poll(timeout_ms=2_000)
            return str(error.value)

    assert simulation.run(work) == (
        "OFFSET_OUT_OF_RANGE (1) at orders-0: The log does not have offset 99. "
        "Seek to an offset that the log holds, or set auto.offset.reset."
    )


def test_a_consumer_that_read_what_was_lost_in_an_election_goes_back(simulation: Simulation) -> None:
    """KIP-320: records 3 to 5 were read, then an unclean election lost them and others took their offsets."""

    async def work(client: Client) -> list[bytes | None]:
        partition = simulation.fake.partitions[0]
        producer = client.producer(batch_size=0, enable_idempotence=False)
        for number in range(6):
            await (await producer.send(TOPIC, b"old %d" % number, partition=0))
        async with client.consumer({(TOPIC, 0): 0}) as consumer:
            read: list[bytes | None] = []
            while len(read) < 6:
                for records in (await consumer.poll(timeout_ms=10_000)).values():
                    read += [record.value for record in records]
            # While the log is shorter the consumer does not look: it would find itself beyond the end.
            consumer.pause((TOPIC, 0))
            await client.cluster.world.clock.sleep_ms(100)
            partition.truncate(3)
            simulation.fake.move_leader(0, 2)
            for number in range(3, 6):
                await (await producer.send(TOPIC, b"new %d" % number, partition=0))
            consumer.resume((TOPIC, 0))
            while len(read) < 9:
                for records in (await consumer.poll(timeout_ms=10_000)).values():
                    read += [record.value for record in records]
        return read[6:]

    assert simulation.run(work) == [b"new 3", b"new 4", b"new 5"]


def test_addresses_that_do_not_answer_are_named_with_the_reason(simulation: Simulation) -> None:
    async def work(client: Client) -> None:
        raise AssertionError("nobody answers")

    nowhere = [Address("broker1", 1), Address("broker2", 2)]
    with pytest.raises(Unreachable) as failure:
        simulation.run(work, bootstrap=nowhere)
    assert list(failure.value.tried) == nowhere
    assert "broker1:1: " in str(failure.value) and "broker2:2: " in str(failure.value)


def test_a_broker_that_is_lost_before_it_has_answered_at_all_is_an_error_of_the_client(
    simulation: Simulation,
) -> None:
    """Found by seed 465 of the broker's scenario."""

    async def work(client: Client) -> None:
        raise AssertionError("nobody answers")

    def lose(request: Request) -> None:
        if isinstance(request, MetadataRequest):
            for host in ("broker1", "broker2"):
                simulation.sim.network.reset(CLIENT, host)

    simulation.fake.on_request = lose
    with pytest.raises(ClientError) as failure:
        simulation.run(work)
    assert failure.value.code == ErrorCode.NETWORK_EXCEPTION


def test_a_topic_that_does_not_exist_is_waited_for_and_then_named(simulation: Simulation) -> None:
    async def work(client: Client) -> str:
        producer = client.producer(max_block_ms=2_000)
        with pytest.raises(ClientError) as error:
            await producer.send("missing", b"value")
        return str(error.value)

    assert simulation.run(work).startswith("UNKNOWN_TOPIC_OR_PARTITION (3) at missing: ")
