"""Our consumer in groups: at Moldau and at Kafka, in both protocols, alone and together with librdkafka."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterator
from typing import TypeVar

import confluent_kafka
import kafka_jars
import pytest
from clients.broker_process import PRODUCTS, BrokerProcess

from moldau.client import Client, ClientError, CommittedOffset, GroupConsumer, NewTopic, connect, connect_sync
from moldau.client.settings import SettingValue
from moldau.model.errors import ErrorCode
from moldau.model.ids import TopicPartition

T = TypeVar("T")

TIMEOUT_S = 90
RECORDS = 60
PARTITIONS = 4

PROTOCOLS: dict[str, dict[str, SettingValue]] = {
    "consumer": {"group_protocol": "consumer"},
    "eager": {"group_protocol": "classic", "heartbeat_interval_ms": 200},
    "cooperative": {
        "group_protocol": "classic",
        "heartbeat_interval_ms": 200,
        "partition_assignment_strategy": "cooperative-sticky",
    },
}


@pytest.fixture(scope="session", params=["moldau", pytest.param("kafka", marks=pytest.mark.slow)])
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerProcess]:
    """A broker of each product; Kafka is skipped where its jars or Java cannot be had."""
    if request.param == "kafka":
        try:
            kafka_jars.kafka_jars()
            kafka_jars.find_java()
        except kafka_jars.Unavailable as why:
            pytest.skip(str(why))
    process = BrokerProcess(
        PRODUCTS[request.param],
        tmp_path_factory.mktemp(request.param),
        {
            "group.consumer.heartbeat.interval.ms": "300",
            "group.consumer.min.heartbeat.interval.ms": "300",
            "group.consumer.session.timeout.ms": "6000",
            "group.consumer.min.session.timeout.ms": "6000",
        },
    )
    yield process
    process.stop()


@pytest.fixture
def topic(broker: BrokerProcess, request: pytest.FixtureRequest) -> str:
    """A new topic with four partitions and some records, named for the test."""
    name = "".join(letter if letter.isalnum() else "-" for letter in request.node.name)[:150]

    async def fill(client: Client) -> None:
        await client.admin.create_topics(NewTopic(name, PARTITIONS, 1))
        async with client.producer() as producer:
            for number in range(RECORDS):
                await producer.send(name, b"%d" % number, partition=number % PARTITIONS)

    run(broker, fill)
    return name


def run(
    broker: BrokerProcess, work: Callable[[Client], Coroutine[object, object, T]], **settings: SettingValue
) -> T:
    async def main() -> T:
        async with connect(broker.address, client_id="ours", **settings) as client:
            return await work(client)

    return asyncio.run(asyncio.wait_for(main(), TIMEOUT_S))


class Reader:
    """A member of a group, and what it has seen."""

    def __init__(self, client: Client, topic: str, protocol: str, **settings: SettingValue) -> None:
        self.values: list[bytes | None] = []
        self.events: list[tuple[str, tuple[int, ...]]] = []
        chosen = {"auto_offset_reset": "earliest", **PROTOCOLS[protocol], **settings}
        self.consumer: GroupConsumer = client.consumer(
            [topic],
            group_id=f"group-{topic}",
            on_assigned=self._note("assigned"),
            on_revoked=self._note("revoked"),
            on_lost=self._note("lost"),
            **chosen,  # type: ignore[arg-type]  # none of the settings is a callback
        )

    def _note(self, what: str) -> Callable[[tuple[TopicPartition, ...]], None]:
        return lambda places: self.events.append((what, tuple(sorted(place.partition for place in places))))

    async def poll(self, records_max: int | None = None) -> None:
        for records in (await self.consumer.poll(timeout_ms=50, records_max=records_max)).values():
            self.values += [record.value for record in records]

    async def owned(self) -> int:
        return len(await self.consumer.assignment())


async def poll_until(condition: Callable[[], Coroutine[object, object, bool]], *readers: Reader) -> None:
    while not await condition():
        for reader in readers:
            await reader.poll()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_members_share_the_partitions_and_read_every_record_once(
    broker: BrokerProcess, topic: str, protocol: str
) -> None:
    async def work(client: Client) -> None:
        first = Reader(client, topic, protocol)
        while len(first.values) < RECORDS // 2:
            await first.poll(records_max=10)
        second = Reader(client, topic, protocol)

        async def is_shared() -> bool:
            return await first.owned() == await second.owned() == 2

        await poll_until(is_shared, first, second)
        await first.consumer.close()
        assert first.events[-1][0] == "revoked"

        async def is_alone() -> bool:
            return await second.owned() == PARTITIONS and len(first.values) + len(second.values) >= RECORDS

        await poll_until(is_alone, second)
        read = sorted(int(value or b"") for value in first.values + second.values)
        assert read == list(range(RECORDS))
        await second.consumer.commit()
        committed = await client.admin.group_offsets(f"group-{topic}")
        assert [found.offset for found in committed.values()] == [RECORDS // PARTITIONS] * PARTITIONS
        await second.consumer.close()
        view = (await client.admin.describe_groups(f"group-{topic}"))[f"group-{topic}"]
        assert (view.state, view.members) == ("Empty", ())

    run(broker, work)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_member_that_does_not_poll_loses_its_partitions_and_comes_back(
    broker: BrokerProcess, topic: str, protocol: str
) -> None:
    async def work(client: Client) -> None:
        sleeper = Reader(client, topic, protocol, max_poll_interval_ms=6_000)

        async def has_all() -> bool:
            return await sleeper.owned() == PARTITIONS

        await poll_until(has_all, sleeper)
        other = Reader(client, topic, protocol)

        async def other_has_all() -> bool:
            return await other.owned() == PARTITIONS

        # Whoever sleeps is not polled.
        await poll_until(other_has_all, other)

        async def is_shared() -> bool:
            return await sleeper.owned() == await other.owned() == 2

        await poll_until(is_shared, sleeper, other)
        assert ("lost", tuple(range(PARTITIONS))) in sleeper.events
        for reader in (sleeper, other):
            await reader.consumer.close()

    run(broker, work)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_offsets_are_committed_with_what_belongs_to_them_and_positions_follow_seeks(
    broker: BrokerProcess, topic: str, protocol: str
) -> None:
    async def work(client: Client) -> None:
        reader = Reader(client, topic, protocol, enable_auto_commit=False)

        async def has_all() -> bool:
            return await reader.owned() == PARTITIONS

        await poll_until(has_all, reader)
        consumer = reader.consumer
        await consumer.commit({(topic, 0): 3, (topic, 1): CommittedOffset(4, 0, "because")})
        committed = await consumer.committed((topic, 0), (topic, 1), (topic, 2))
        assert {place.partition: found for place, found in committed.items()} == {
            0: CommittedOffset(3),
            1: CommittedOffset(4, 0, "because"),
        }
        consumer.seek((topic, 2), 7)
        assert await consumer.position((topic, 2)) == 7
        consumer.pause((topic, 0), (topic, 1), (topic, 3))
        polled = await consumer.poll(timeout_ms=5_000, records_max=1)
        assert [
            (place.partition, [record.offset for record in records]) for place, records in polled.items()
        ] == [(2, [7])]
        done: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
        consumer.commit_async({(topic, 2): 8}, on_done=done.set_result)
        assert await done is None
        await consumer.close()
        again = Reader(client, topic, protocol)
        await poll_until(lambda: _has_all(again), again)
        found = {
            int(place.partition): committed.offset
            for place, committed in (await client.admin.group_offsets(f"group-{topic}")).items()
        }
        assert (found[0], found[1], found[2]) == (3, 4, 8)
        await again.consumer.close()

    run(broker, work)


async def _has_all(reader: Reader) -> bool:
    return await reader.owned() == PARTITIONS


@pytest.mark.parametrize("protocol", ["consumer", "eager"])
def test_a_static_member_that_comes_back_takes_what_it_had_and_nobody_notices(
    broker: BrokerProcess, topic: str, protocol: str
) -> None:
    async def work(client: Client) -> None:
        other = Reader(client, topic, protocol)
        static = Reader(client, topic, protocol, group_instance_id="till-1")

        async def is_shared() -> bool:
            return await static.owned() == await other.owned() == 2

        await poll_until(is_shared, static, other)
        had = await static.consumer.assignment()
        seen = len(other.events)
        await static.consumer.close()
        back = Reader(client, topic, protocol, group_instance_id="till-1")

        async def is_back() -> bool:
            return await back.owned() == 2

        await poll_until(is_back, back, other)
        assert await back.consumer.assignment() == had
        assert len(other.events) == seen
        for reader in (back, other):
            await reader.consumer.close()

    run(broker, work)


@pytest.mark.parametrize("protocol", ["consumer", "eager"])
def test_a_pattern_finds_topics_that_are_created_later(
    broker: BrokerProcess, topic: str, protocol: str
) -> None:
    async def work(client: Client) -> None:
        settings = {"auto_offset_reset": "earliest", "metadata_max_age_ms": 500, **PROTOCOLS[protocol]}
        consumer = client.consumer(
            pattern=f"{topic}.*",
            group_id=f"group-{topic}",
            **settings,  # type: ignore[arg-type]  # none of the settings is a callback
        )
        while len(await consumer.assignment()) < PARTITIONS:
            await consumer.poll(timeout_ms=50)
        await client.admin.create_topics(NewTopic(f"{topic}-late", 1, 1))
        while len(await consumer.assignment()) < PARTITIONS + 1:
            await consumer.poll(timeout_ms=50)
        await consumer.close()

    run(broker, work)


def test_without_a_protocol_the_new_one_is_spoken_where_it_is_served(
    broker: BrokerProcess, topic: str
) -> None:
    async def work(client: Client) -> bool:
        consumer = client.consumer([topic], group_id=f"group-{topic}")
        while not await consumer.assignment():
            await consumer.poll(timeout_ms=50)
        await consumer.close()
        return consumer.is_classic

    assert run(broker, work) is False


def test_what_does_not_pass_is_raised_by_poll(broker: BrokerProcess, topic: str) -> None:
    async def work(client: Client) -> ErrorCode:
        consumer = client.consumer(
            [topic],
            group_id=f"group-{topic}",
            group_protocol="consumer",
            group_remote_assignor="nobody-has-this",
        )
        with pytest.raises(ClientError) as raised:
            await consumer.poll(timeout_ms=TIMEOUT_S * 1000)
        await consumer.close()
        return raised.value.code

    assert run(broker, work) is ErrorCode.UNSUPPORTED_ASSIGNOR


def test_the_synchronous_face_may_commit_in_its_callbacks(broker: BrokerProcess, topic: str) -> None:
    with connect_sync(broker.address) as client:
        told: list[int] = []

        def on_revoked(places: tuple[TopicPartition, ...]) -> None:
            consumer.commit()
            told.append(len(places))

        consumer = client.group_consumer(
            [topic],
            group_id=f"group-{topic}",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            on_revoked=on_revoked,
        )
        count = 0
        while count < RECORDS:
            count += sum(map(len, consumer.poll(timeout_ms=500).values()))
        consumer.close()
        assert told == [PARTITIONS]
        offsets = client.admin.group_offsets(f"group-{topic}")
        assert [found.offset for found in offsets.values()] == [RECORDS // PARTITIONS] * PARTITIONS


@pytest.mark.parametrize(
    ("protocol", "theirs"),
    [
        ("consumer", {"group.protocol": "consumer"}),
        ("eager", {"partition.assignment.strategy": "range"}),
        ("cooperative", {"partition.assignment.strategy": "cooperative-sticky"}),
        # The coordinator translates between the two protocols.
        ("consumer", {"partition.assignment.strategy": "range"}),
    ],
)
def test_ours_and_librdkafka_share_a_group(
    broker: BrokerProcess, topic: str, protocol: str, theirs: dict[str, str]
) -> None:
    settings = {
        "bootstrap.servers": broker.address,
        "group.id": f"group-{topic}",
        "auto.offset.reset": "earliest",
        **theirs,
    }
    if "group.protocol" not in theirs:
        settings |= {"heartbeat.interval.ms": "200", "session.timeout.ms": "6000"}
    other = confluent_kafka.Consumer(settings)
    other.subscribe([topic])
    theirs_read: list[bytes | None] = []

    def poll_theirs() -> None:
        message = other.poll(0.05)
        if message is not None and message.error() is None:
            theirs_read.append(message.value())

    async def work(client: Client) -> list[bytes | None]:
        ours = Reader(client, topic, protocol)
        deadline = time.monotonic() + TIMEOUT_S
        while not (await ours.owned() == len(other.assignment()) == 2):
            assert time.monotonic() < deadline
            await ours.poll()
            await asyncio.to_thread(poll_theirs)
        await asyncio.to_thread(other.close)
        while await ours.owned() < PARTITIONS or len({*ours.values, *theirs_read}) < RECORDS:
            await ours.poll()
        await ours.consumer.close()
        return ours.values

    read = run(broker, work)
    assert {int(value or b"") for value in (*read, *theirs_read)} == set(range(RECORDS))
