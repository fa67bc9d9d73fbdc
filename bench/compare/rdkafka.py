"""Work through librdkafka with its defaults: a client that others wrote, and most people use."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from compare.rdkafka_batches import BatchProducer
from compare.readback import check_numbers, check_topic, numbers_of
from moldau.bench.payloads import WrongPayload
from moldau.bench.site import Site, Topic
from moldau.bench.workloads import Outcome, Scale, fill, outcome

PARTITIONS = 4
# Sent before the clock runs, so that connections are there and the broker has opened its files.
_FIRST = 100
_POLL_MESSAGES = 10_000


def produce(
    site: Site,
    scale: Scale,
    *,
    value_bytes: int,
    acks: str,
    producers: int = 1,
    partitions: int = PARTITIONS,
) -> Outcome:
    """Messages as fast as producers hand them over, until the last was acknowledged; then read back."""
    each = scale.records_of(value_bytes) // producers
    with site.topic(partitions) as topic:
        writers = [
            BatchProducer(
                site.bootstrap_servers, topic.name, value_bytes=value_bytes, settings={"acks": acks}
            )
            for _ in range(producers)
        ]
        shares = [range(number * each, (number + 1) * each) for number in range(producers)]
        try:
            for writer, share in zip(writers, shares, strict=True):
                writer.produce(share[:_FIRST], timeout_s=site.timeout_s)
                writer.flush(timeout_s=site.timeout_s)

            def write(writer: BatchProducer, share: range) -> None:
                writer.produce(share[_FIRST:], timeout_s=site.timeout_s)
                writer.flush(timeout_s=site.timeout_s)

            meter = site.meter()
            with ThreadPoolExecutor(producers) as threads, meter.running():
                list(threads.map(write, writers, shares))
        finally:
            for writer in writers:
                writer.close()
        check_topic(topic, total=each * producers, value_bytes=value_bytes)
    return outcome(meter, messages=(each - _FIRST) * producers, value_bytes=value_bytes)


def consume_history(site: Site, scale: Scale, *, value_bytes: int) -> Outcome:
    """A partition from its beginning to its end, by a consumer that was not there when it was written."""
    with site.topic() as topic:
        sent, count = fill(site, scale, topic, value_bytes=value_bytes)
        total = count * sent.records_per_batch
        meter = site.meter()
        consumer = reading_consumer(site, topic)
        try:
            values = poll(consumer, 1, timeout_s=site.timeout_s)
            with meter.running():
                values += poll(consumer, total - 1, timeout_s=site.timeout_s)
        finally:
            consumer.close()
    # Batches are written in a cycle, so their numbers begin again.
    cycle = len(sent.each) * sent.records_per_batch
    expected = np.resize(np.arange(cycle, dtype=np.uint64), total)
    if not np.array_equal(numbers_of(values, value_bytes=value_bytes), expected):
        raise WrongPayload("records are missing, there twice, or out of order")
    return outcome(meter, messages=total - 1, value_bytes=value_bytes)


def consume_tail(site: Site, scale: Scale, *, value_bytes: int) -> Outcome:
    """Messages from producer to consumer while they are written, as fast as they go."""
    total = scale.records_of(value_bytes) // 2
    with site.topic() as topic, ThreadPoolExecutor(1) as thread:
        meter = site.meter()
        writer = BatchProducer(site.bootstrap_servers, topic.name, value_bytes=value_bytes)
        consumer = reading_consumer(site, topic)
        try:
            writer.produce(range(_FIRST), timeout_s=site.timeout_s)
            values = poll(consumer, _FIRST, timeout_s=site.timeout_s)
            with meter.running():
                writing = thread.submit(writer.produce, range(_FIRST, total), timeout_s=site.timeout_s)
                values += poll(consumer, total - _FIRST, timeout_s=site.timeout_s)
            writing.result()
        finally:
            consumer.close()
            writer.close()
    read = numbers_of(values, value_bytes=value_bytes)
    check_numbers(read, total=total)
    if not np.array_equal(read, np.sort(read)):
        raise WrongPayload("records are out of order")
    return outcome(meter, messages=total - _FIRST, value_bytes=value_bytes)


def reading_consumer(site: Site, topic: Topic) -> Consumer:
    """A consumer of the first partition, without a group to speak of."""
    consumer = Consumer(
        {
            "bootstrap.servers": site.bootstrap_servers,
            "group.id": "moldau-bench",
            "enable.auto.commit": False,
            # By default it pauses for a second whenever it is 100,000 messages ahead of the application.
            "queued.min.messages": 10_000_000,
            "queued.max.messages.kbytes": 2_000_000,
        }
    )
    consumer.assign([TopicPartition(topic.name, 0, OFFSET_BEGINNING)])
    return consumer


def poll(consumer: Consumer, count: int, *, timeout_s: float) -> list[bytes]:
    """The values of so many messages."""
    deadline = time.monotonic() + timeout_s
    values: list[bytes] = []
    while len(values) < count:
        if time.monotonic() > deadline:
            raise WrongPayload(f"{len(values)} of {count} messages came within {timeout_s:g} s")
        messages = consumer.consume(min(_POLL_MESSAGES, count - len(values)), 1.0)
        for message in messages:
            if message.error() is not None:
                raise WrongPayload(f"librdkafka says: {message.error()}")
        values += [message.value() or b"" for message in messages]
    return values
