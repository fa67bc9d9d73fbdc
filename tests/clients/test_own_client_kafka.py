"""Our client against a real Kafka broker: every codec, transactions, times, admin, broken connections."""

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterator
from typing import TypeVar

import confluent_kafka
import kafka_jars
import pytest
from clients.kafka_broker import KafkaBroker

from moldau.client import (
    EARLIEST,
    LATEST,
    MAX_TIMESTAMP,
    AlterOperation,
    Client,
    ClientError,
    NewTopic,
    ResourceType,
    Unreachable,
    connect,
    connect_sync,
)
from moldau.client.admin import QuotaEntity
from moldau.client.settings import SettingValue
from moldau.model.errors import ErrorCode
from moldau.wire.messages.metadata import DescribeClusterRequest, DescribeClusterResponse
from moldau.wire.records.record import Record

T = TypeVar("T")

TIMESTAMP = 1_700_000_000_000
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """A real broker, one for all tests; they are skipped where Kafka's jars or Java cannot be had."""
    try:
        kafka_jars.kafka_jars()
        kafka_jars.find_java()
    except kafka_jars.Unavailable as why:
        pytest.skip(str(why))
    broker = KafkaBroker(tmp_path_factory.mktemp("kafka"))
    yield broker
    broker.stop()


@pytest.fixture
def topic(broker: KafkaBroker, request: pytest.FixtureRequest) -> str:
    """A new topic with three partitions, named for the test."""
    name = "".join(letter if letter.isalnum() else "-" for letter in request.node.name)[:200]
    run(broker.address, lambda client: client.admin.create_topics(NewTopic(name, 3, 1)))
    return name


def run(address: str, work: Callable[[Client], Coroutine[object, object, T]], **settings: SettingValue) -> T:
    async def main() -> T:
        async with connect(address, **settings) as client:
            return await work(client)

    return asyncio.run(main())


async def eventually(look: Callable[[], Coroutine[object, object, object]], expected: object) -> None:
    """Look until a change has come through from the controller to the broker, as it does within moments."""
    seen: object = None
    for _ in range(2_000):
        seen = await look()
        if seen == expected:
            return
    assert seen == expected


async def read_all(client: Client, topic: str, count: int, **settings: SettingValue) -> list[Record]:
    """The first `count` records of partition 0."""
    found: list[Record] = []
    async with client.consumer({(topic, 0): 0}, **settings) as consumer:
        while len(found) < count:
            polled = await consumer.poll(timeout_ms=10_000)
            assert polled, f"only {len(found)} of {count} records came"
            for records in polled.values():
                found += records
    return found


@pytest.mark.parametrize("codec", CODECS)
def test_records_come_back_as_they_were_sent(broker: KafkaBroker, topic: str, codec: str) -> None:
    records = [
        Record(
            offset=number,
            timestamp=TIMESTAMP + number,
            key=None if number % 3 == 0 else b"key-%d" % number,
            value=None if number % 5 == 0 else b"value-%d " % number * 100,
            headers=(("a", b"1"), ("a", b"again"), ("empty", b""), ("absent", None), ("ключ", b"\xff")),
        )
        for number in range(300)
    ]

    async def work(client: Client) -> list[Record]:
        async with client.producer(compression_type=codec) as producer:
            for each in records:
                await producer.send(
                    topic,
                    each.value,
                    key=each.key,
                    partition=0,
                    headers=each.headers,
                    timestamp=each.timestamp,
                )
        return await read_all(client, topic, len(records))

    assert run(broker.address, work) == records


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_every_kind_of_acknowledgement_writes_the_records(broker: KafkaBroker, topic: str, acks: str) -> None:
    async def work(client: Client) -> tuple[list[int], list[bytes | None]]:
        # Without acknowledgements what is sent before the new topic has its leader would be lost.
        await (await client.producer().send(topic, b"0", partition=0))
        async with client.producer(acks=acks) as producer:
            sent = [await producer.send(topic, b"%d" % number, partition=0) for number in range(1, 50)]
            offsets = [(await delivery).offset for delivery in sent]
            read = await read_all(client, topic, 50)
        return offsets, [record.value for record in read]

    offsets, values = run(broker.address, work)
    assert offsets == ([-1] * 49 if acks == "0" else list(range(1, 50)))
    assert values == [b"%d" % number for number in range(50)]


def test_a_value_of_a_megabyte_passes_and_a_larger_one_names_the_limit(
    broker: KafkaBroker, topic: str
) -> None:
    large = bytes(range(256)) * 4_000

    async def work(client: Client) -> tuple[bytes | None, list[str]]:
        refusals: list[str] = []
        async with client.producer(max_request_size=3_000_000) as producer:
            await (await producer.send(topic, large, partition=0))
            with pytest.raises(ClientError) as by_broker:
                await (await producer.send(topic, large * 2, partition=0))
            with pytest.raises(ClientError) as by_client:
                await producer.send(topic, large * 4, partition=0)
            refusals += [str(by_broker.value), str(by_client.value)]
            # The producer goes on behind what was refused.
            assert (await (await producer.send(topic, b"after", partition=0))).offset == 1
        (first, _) = await read_all(client, topic, 2)
        return first.value, refusals

    value, (by_broker, by_client) = run(broker.address, work)
    assert value == large
    assert by_broker.startswith(f"MESSAGE_TOO_LARGE (10) at {topic}-0: ")
    assert "larger than max.request.size" in by_client


def test_batches_larger_than_the_topic_accepts_are_split(broker: KafkaBroker, topic: str) -> None:
    async def work(client: Client) -> list[bytes | None]:
        await client.admin.alter_configs(ResourceType.TOPIC, topic, {"max.message.bytes": "2000"})
        async with client.producer(batch_size=50_000, linger_ms=50) as producer:
            for number in range(200):
                await producer.send(topic, b"%0100d" % number, partition=0)
        return [record.value for record in await read_all(client, topic, 200)]

    assert run(broker.address, work) == [b"%0100d" % number for number in range(200)]


def test_with_idempotence_connections_that_break_neither_lose_nor_double_a_record(
    broker: KafkaBroker, topic: str
) -> None:
    async def work(client: Client) -> list[int]:
        broker.proxy.cut_replies_every(9)
        try:
            async with client.producer(batch_size=300, linger_ms=1, retry_backoff_ms=20) as producer:
                sent = [await producer.send(topic, b"%d" % number, partition=0) for number in range(1_500)]
                offsets = [(await delivery).offset for delivery in sent]
        finally:
            broker.proxy.cut_replies_every(None)
        assert offsets == list(range(1_500))
        return [int(record.value or b"") for record in await read_all(client, topic, 1_500)]

    cuts_before = broker.proxy.cuts
    assert run(broker.proxied_address, work) == list(range(1_500))
    assert broker.proxy.cuts - cuts_before >= 5


def test_readers_of_committed_data_do_not_see_what_was_aborted(broker: KafkaBroker, topic: str) -> None:
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": broker.address, "transactional.id": topic, "log_level": 2}
    )
    producer.init_transactions(30)
    for number in range(6):
        producer.begin_transaction()
        producer.produce(topic, b"%d" % number, partition=0)
        producer.flush(10)
        if number % 2:
            producer.abort_transaction(10)
        else:
            producer.commit_transaction(10)

    async def work(client: Client) -> tuple[list[bytes | None], list[bytes | None]]:
        everything = await read_all(client, topic, 6)
        committed = await read_all(client, topic, 3, isolation_level="read_committed")
        return [each.value for each in everything], [each.value for each in committed]

    assert run(broker.address, work) == ([b"0", b"1", b"2", b"3", b"4", b"5"], [b"0", b"2", b"4"])


def test_positions_by_time_and_at_both_ends(broker: KafkaBroker, topic: str) -> None:
    async def work(client: Client) -> list[object]:
        async with client.producer() as producer:
            for number in range(100):
                await producer.send(topic, b"%d" % number, partition=0, timestamp=TIMESTAMP + number * 10)
        place = (topic, 0)
        seen: list[object] = []
        async with client.consumer([place]) as consumer:
            for moment in (TIMESTAMP + 255, TIMESTAMP - 1, TIMESTAMP + 10_000):
                await consumer.seek_to_time(moment)
                seen.append(await consumer.position(place))
            await consumer.seek_to_time(TIMESTAMP + 980)
            polled = await consumer.poll(timeout_ms=10_000)
            seen.append([record.value for records in polled.values() for record in records])
        found = await client.admin.list_offsets({place: MAX_TIMESTAMP})
        seen.extend((row.offset, row.timestamp) for row in found.values())
        assert await client.admin.delete_records({place: 40}) == {place: 40}
        found = await client.admin.list_offsets({place: EARLIEST, (topic, 1): LATEST})
        seen.append({at.partition: row.offset for at, row in found.items()})
        async with client.consumer({place: 10}, auto_offset_reset="earliest") as consumer:
            polled = await consumer.poll(timeout_ms=10_000, records_max=1)
            seen.append([record.offset for records in polled.values() for record in records])
        return seen

    assert run(broker.address, work) == [
        26,
        0,
        100,
        [b"98", b"99"],
        (99, TIMESTAMP + 990),
        {0: 40, 1: 0},
        [40],
    ]


def test_columns_are_made_of_the_batches_up_to_an_offset(broker: KafkaBroker, topic: str) -> None:
    pyarrow = pytest.importorskip("pyarrow")

    async def work(client: Client) -> tuple[list[dict[str, object]], int]:
        async with client.producer(compression_type="zstd", batch_size=500) as producer:
            for number in range(200):
                await producer.send(
                    topic,
                    b"%d" % number,
                    key=None,
                    partition=0,
                    headers={"n": b"%d" % number},
                    timestamp=number,
                )
        place = (topic, 0)
        async with client.consumer({place: 7}) as consumer:
            tables = []
            while await consumer.position(place) < 150:
                polled = await consumer.poll_arrow(timeout_ms=10_000, until={place: 150})
                tables += [pyarrow.record_batch(columns) for columns in polled.values()]
            rows = [row for table in tables for row in table.to_pylist()]
            return rows, await consumer.position(place)

    rows, position = run(broker.address, work)
    assert position == 150
    assert [(row["offset"], row["value"], row["key"]) for row in rows] == [
        (number, b"%d" % number, None) for number in range(7, 150)
    ]
    assert rows[0]["headers"] == [{"key": "n", "value": b"7"}]


def test_a_record_that_breaks_a_rule_of_its_topic_is_explained(broker: KafkaBroker, topic: str) -> None:
    async def work(client: Client) -> str:
        # A setting that is altered counts a little later; one that a topic is created with counts at once.
        compacted = f"{topic}-compacted"
        await client.admin.create_topics(NewTopic(compacted, 1, 1, {"cleanup.policy": "compact"}))
        producer = client.producer()
        with pytest.raises(ClientError) as error:
            await (await producer.send(compacted, b"no key", partition=0))
        await (await producer.send(compacted, b"value", key=b"key", partition=0))
        return str(error.value)

    said = run(broker.address, work)
    assert said.startswith(f"INVALID_RECORD (87) at {topic}-compacted-0: ")
    assert said.endswith("A compacted topic needs a key in every record.")


def test_the_cluster_is_described_and_changed(broker: KafkaBroker, topic: str) -> None:
    async def work(client: Client) -> None:
        admin = client.admin
        cluster = await admin.describe_cluster()
        assert [str(each.address) for each in cluster.brokers] == [broker.address]
        assert (await admin.features())["transaction.version"] == 2

        async def partitions() -> list[int]:
            return sorted((await admin.describe_topics(topic))[topic].partitions)

        await admin.add_partitions(topic, 5)
        await eventually(partitions, [0, 1, 2, 3, 4])
        assert topic in await admin.list_topics()

        await admin.alter_configs(
            ResourceType.TOPIC,
            topic,
            {"retention.ms": "86400000", "cleanup.policy": (AlterOperation.APPEND, "compact")},
        )

        async def configs() -> dict[str, str | None]:
            names = ["retention.ms", "cleanup.policy"]
            described = await admin.describe_configs(ResourceType.TOPIC, topic, names=names)
            return {name: entry.value for name, entry in sorted(described.items())}

        await eventually(configs, {"cleanup.policy": "delete,compact", "retention.ms": "86400000"})
        await admin.alter_configs(ResourceType.TOPIC, topic, {"retention.ms": None})
        await eventually(configs, {"cleanup.policy": "delete,compact", "retention.ms": "604800000"})
        assert (await admin.describe_configs(ResourceType.BROKER, "1"))["node.id"].value == "1"

        bob: QuotaEntity = (("user", "bob"),)
        await admin.alter_quotas(bob, {"producer_byte_rate": 1024.0})
        await eventually(admin.describe_quotas, {bob: {"producer_byte_rate": 1024.0}})
        await admin.alter_quotas(bob, {"producer_byte_rate": None})
        await eventually(admin.describe_quotas, {})

        (directory,) = await admin.describe_log_dirs(1)
        assert directory.total_bytes > directory.usable_bytes > 0
        assert len([place for place in directory.partitions if place.topic == topic]) == 5
        await admin.update_features({"group.version": 1}, validate_only=True)

        raw = DescribeClusterRequest(include_cluster_authorized_operations=False)
        assert (await admin.send(raw, DescribeClusterResponse)).cluster_id == cluster.cluster_id

        await admin.delete_topics(topic)
        with pytest.raises(ClientError) as gone:
            await admin.delete_topics(topic)
        assert gone.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    run(broker.address, work)


def test_a_topic_that_exists_is_not_created_again_and_its_name_is_in_the_error(
    broker: KafkaBroker, topic: str
) -> None:
    with pytest.raises(ClientError) as error:
        run(broker.address, lambda client: client.admin.create_topics(NewTopic(topic, 1, 1)))
    assert (error.value.code, error.value.where) == (ErrorCode.TOPIC_ALREADY_EXISTS, topic)


def test_the_synchronous_face_writes_reads_and_administers(broker: KafkaBroker, topic: str) -> None:
    with connect_sync(broker.address, auto_offset_reset="earliest") as client:
        with client.producer() as producer:
            delivery = producer.send(topic, b"value", key=b"key", partition=1)
            assert producer.wait(delivery).offset == 0
        with client.consumer([topic]) as consumer:
            record = next(iter(consumer))
            assert (record.partition, record.key, record.value) == (1, b"key", b"value")
        (found,) = client.admin.list_offsets({(topic, 1): LATEST}).values()
        assert found.offset == 1


def test_what_is_sent_from_other_threads_arrives_when_the_synchronous_client_is_closed(
    broker: KafkaBroker, topic: str
) -> None:
    with connect_sync(broker.address, linger_ms=1_000) as client:
        producer = client.producer()
        for number in range(20):
            producer.send(topic, b"%d" % number, partition=0)
    values = [record.value for record in run(broker.address, lambda client: read_all(client, topic, 20))]
    assert values == [b"%d" % number for number in range(20)]


@pytest.mark.parametrize(
    "call",
    [connect_sync, lambda address: run(address, lambda client: client.admin.list_topics())],
    ids=["sync", "async"],
)
def test_an_address_that_nobody_listens_at_is_named_at_once(call: Callable[[str], object]) -> None:
    started = time.monotonic()
    with pytest.raises(Unreachable, match=r"Tried 127\.0\.0\.1:1: "):
        call("127.0.0.1:1")
    assert time.monotonic() - started < 10
