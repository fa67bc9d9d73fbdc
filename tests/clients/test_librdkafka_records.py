"""Record batches that librdkafka and we write, each read by the other, through librdkafka's mock broker."""

import socket
import struct
from collections.abc import Iterator
from typing import TypeVar

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from moldau.wire.message import Request, Response
from moldau.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from moldau.wire.messages.header import RequestHeader
from moldau.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from moldau.wire.records.batch import decode_batch, encode_batch
from moldau.wire.records.compression import Codec
from moldau.wire.records.header import iter_headers
from moldau.wire.records.record import Record

R = TypeVar("R", bound=Response)

TOPIC = "orders"
TIMESTAMP = 1_700_000_000_000

# Compressible, and large enough for several xerial and lz4 blocks.
VALUES = [bytes([65 + number % 26]) * 3_000 for number in range(60)]
RECORDS = [
    Record(
        offset=number,
        timestamp=TIMESTAMP + number,
        key=None if number % 7 == 0 else b"key-%d" % number,
        value=None if number % 11 == 10 else value,
        headers=(("trace", b"%d" % number), ("empty", b""), ("absent", None)) if number % 3 == 0 else (),
        attributes=0,
    )
    for number, value in enumerate(VALUES)
]
CODEC_NAMES = {
    Codec.NONE: "none",
    Codec.GZIP: "gzip",
    Codec.SNAPPY: "snappy",
    Codec.LZ4: "lz4",
    Codec.ZSTD: "zstd",
}


@pytest.fixture
def mock_producer(request: pytest.FixtureRequest) -> Iterator[Producer]:
    producer = Producer(
        {
            "bootstrap.servers": "127.0.0.1:1",  # not used: the mock broker takes its place
            "test.mock.num.brokers": 1,
            "compression.codec": getattr(request, "param", "none"),
            "linger.ms": 50,
            "batch.num.messages": len(RECORDS),
            "log_level": 2,
        }
    )
    yield producer
    producer.flush(5)


def address_of(producer: Producer) -> tuple[str, int]:
    (broker,) = producer.list_topics(TOPIC, timeout=10).brokers.values()
    return broker.host, broker.port


def call(address: tuple[str, int], request: Request, version: int, reply: type[R]) -> R:
    """Send one request of a version without tagged headers, and read its reply."""
    header = RequestHeader(
        request_api_key=type(request).declaration.key or 0,
        request_api_version=version,
        correlation_id=7,
        client_id="moldau",
    )
    frame = header.encode(1) + request.encode(version)
    with socket.create_connection(address, timeout=10) as connection:
        connection.sendall(struct.pack(">i", len(frame)) + frame)
        reader = connection.makefile("rb")
        (size,) = struct.unpack(">i", reader.read(4))
        body = reader.read(size)
    assert body[:4] == struct.pack(">i", 7)
    return reply.decode(body[4:], version)


@pytest.mark.parametrize(
    ("mock_producer", "codec"),
    [(name, codec) for codec, name in CODEC_NAMES.items()],
    indirect=["mock_producer"],
)
def test_we_read_what_librdkafka_writes(mock_producer: Producer, codec: Codec) -> None:
    address = address_of(mock_producer)
    for record in RECORDS:
        mock_producer.produce(
            TOPIC,
            partition=0,
            key=record.key,
            value=record.value,
            headers=list(record.headers),
            timestamp=record.timestamp,
        )
    assert mock_producer.flush(10) == 0

    response = call(
        address,
        FetchRequest(
            max_wait_ms=100,
            min_bytes=1,
            topics=[
                FetchTopic(
                    topic=TOPIC,
                    partitions=[FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=10_000_000)],
                )
            ],
        ),
        version=11,
        reply=FetchResponse,
    )
    (partition,) = response.responses[0].partitions
    assert isinstance(partition.records, memoryview)
    read: list[Record] = []
    codecs = set()
    for position, header in iter_headers(partition.records):
        batch_header, records = decode_batch(partition.records[position:])
        codecs.add(batch_header.codec)
        read += records
        assert batch_header == header
    assert read == RECORDS
    assert codecs == {codec}


@pytest.mark.parametrize("codec", CODEC_NAMES)
def test_librdkafka_reads_what_we_write(mock_producer: Producer, codec: Codec) -> None:
    address = address_of(mock_producer)
    batch = encode_batch(RECORDS, codec=codec)
    response = call(
        address,
        ProduceRequest(
            acks=-1,
            timeout_ms=10_000,
            topic_data=[
                TopicProduceData(name=TOPIC, partition_data=[PartitionProduceData(index=0, records=batch)])
            ],
        ),
        version=7,
        reply=ProduceResponse,
    )
    assert response.responses[0].partition_responses[0].error_code == 0

    consumer = Consumer(
        {"bootstrap.servers": "{}:{}".format(*address), "group.id": "readers", "check.crcs": True}
    )
    try:
        consumer.assign([TopicPartition(TOPIC, 0, 0)])
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
