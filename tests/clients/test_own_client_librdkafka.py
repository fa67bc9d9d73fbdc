"""Our client and librdkafka: the same partitions for the same keys, and each reads what the other writes."""

import asyncio
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition

from moldau.client import connect
from moldau.client.partitioners import partitioner_named
from moldau.wire.records.record import Record

TOPIC = "orders"
PARTITION_COUNT = 4  # the mock cluster's default
TIMESTAMP = 1_700_000_000_000
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]

RECORDS = [
    Record(
        offset=number,
        timestamp=TIMESTAMP + number,
        key=None if number % 7 == 0 else b"key-%d" % number,
        value=None if number % 11 == 10 else bytes([65 + number % 26]) * 3_000,
        headers=(("trace", b"%d" % number), ("empty", b""), ("absent", None)) if number % 3 == 0 else (),
    )
    for number in range(60)
]


@pytest.fixture
def mock_cluster(request: pytest.FixtureRequest) -> Iterator[Producer]:
    """A librdkafka producer with the mock cluster inside it."""
    settings = {
        "bootstrap.servers": "127.0.0.1:1",  # not used: the mock brokers take its place
        "test.mock.num.brokers": 3,
        "linger.ms": 20,
        "log_level": 2,
    }
    producer = Producer(settings | getattr(request, "param", {}))
    yield producer
    producer.flush(5)


def address_of(producer: Producer) -> str:
    broker = next(iter(producer.list_topics(TOPIC, timeout=10).brokers.values()))
    return f"{broker.host}:{broker.port}"


@pytest.mark.parametrize(
    ("mock_cluster", "name"),
    [
        ({"partitioner": name}, name)
        for name in ("murmur2", "murmur2_random", "consistent", "consistent_random", "fnv1a", "fnv1a_random")
    ],
    indirect=["mock_cluster"],
)
def test_keys_go_where_librdkafka_sends_them(mock_cluster: Producer, name: str) -> None:
    keys = [b"order-%d" % number for number in range(500)]
    keys += [bytes([number % 256]) * (1 + number % 40) for number in range(300)]
    assert len(mock_cluster.list_topics(TOPIC, timeout=10).topics[TOPIC].partitions) == PARTITION_COUNT
    placed: dict[bytes | None, int | None] = {}

    def note(error: object, message: Message) -> None:
        assert error is None
        placed[message.key()] = message.partition()

    for key in keys:
        mock_cluster.produce(TOPIC, key=key, value=b"", on_delivery=note)
    assert mock_cluster.flush(20) == 0
    choose = partitioner_named(name)
    assert placed == {key: choose(TOPIC, key, PARTITION_COUNT) for key in keys}
    assert len(set(placed.values())) == PARTITION_COUNT


@pytest.mark.parametrize("codec", CODECS)
def test_librdkafka_reads_what_our_producer_writes(mock_cluster: Producer, codec: str) -> None:
    address = address_of(mock_cluster)

    async def write() -> list[int]:
        async with connect(address, compression_type=codec) as client:
            producer = client.producer()
            sent = [
                await producer.send(
                    TOPIC,
                    record.value,
                    key=record.key,
                    partition=2,
                    headers=record.headers,
                    timestamp=record.timestamp,
                )
                for record in RECORDS
            ]
            return [(await delivery).offset for delivery in sent]

    assert asyncio.run(write()) == list(range(len(RECORDS)))
    consumer = Consumer({"bootstrap.servers": address, "group.id": "readers", "check.crcs": True})
    try:
        consumer.assign([TopicPartition(TOPIC, 2, 0)])
        read: list[object] = []
        while len(read) < len(RECORDS):
            messages = consumer.consume(len(RECORDS), timeout=10)
            assert messages, f"only {len(read)} of {len(RECORDS)} records arrived"
            for message in messages:
                assert message.error() is None
                headers = tuple(message.headers() or ())
                timestamp = message.timestamp()[1]
                read.append((message.offset(), timestamp, message.key(), message.value(), headers, 0))
    finally:
        consumer.close()
    assert read == RECORDS


@pytest.mark.parametrize(
    "mock_cluster", [{"compression.codec": codec} for codec in CODECS], ids=CODECS, indirect=True
)
def test_our_consumer_reads_what_librdkafka_writes(mock_cluster: Producer) -> None:
    address = address_of(mock_cluster)
    for record in RECORDS:
        mock_cluster.produce(
            TOPIC,
            partition=1,
            key=record.key,
            value=record.value,
            headers=list(record.headers),
            timestamp=record.timestamp,
        )
    assert mock_cluster.flush(10) == 0

    async def read() -> list[Record]:
        found: list[Record] = []
        async with connect(address) as client, client.consumer({(TOPIC, 1): 0}) as consumer:
            async for each in consumer:
                assert (each.topic, each.partition) == (TOPIC, 1)
                found.append(Record(each.offset, each.timestamp, each.key, each.value, each.headers))
                if len(found) == len(RECORDS):
                    return found
        return found

    assert asyncio.run(read()) == RECORDS


def test_leaders_on_several_brokers_are_written_to_and_read_from(mock_cluster: Producer) -> None:
    address = address_of(mock_cluster)
    # The mock cluster draws leaders by lot: of thirty topics one surely has some on every broker.
    topic = next(
        name
        for name in (f"orders-{number}" for number in range(30))
        if len(leaders_of(mock_cluster, name)) == 3
    )

    async def round_trip() -> list[int]:
        async with connect(address) as client:
            async with client.producer() as producer:
                for number in range(400):
                    await producer.send(topic, b"%d" % number, key=b"key-%d" % number)
            read: list[int] = []
            async with client.consumer([topic], auto_offset_reset="earliest") as consumer:
                while len(read) < 400:
                    for records in (await consumer.poll(timeout_ms=10_000)).values():
                        read += [int(record.value or b"") for record in records]
        return sorted(read)

    assert asyncio.run(round_trip()) == list(range(400))


def leaders_of(producer: Producer, topic: str) -> set[int]:
    partitions = producer.list_topics(topic, timeout=10).topics[topic].partitions
    return {partition.leader for partition in partitions.values()}
