"""The work that brokers are measured by, a row each: the same for every broker, and checked."""

from __future__ import annotations

import asyncio
import select
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from socket import socket
from typing import Final

from moldau.bench.figures import percentile
from moldau.bench.payloads import (
    Batches,
    WrongPayload,
    batches,
    batches_of_bytes,
    check_batches,
    value,
)
from moldau.bench.pipeline import (
    ACKS_ALL,
    ACKS_LEADER,
    Reader,
    Reel,
    Refused,
    connect_plain,
    drive,
    produce_reel,
    produced_offsets,
    read_back,
)
from moldau.bench.site import Site, Topic
from moldau.bench.usage import Meter
from moldau.client import connect

KIB: Final = 1024
# As many requests as an idempotent producer may have under way.
IN_FLIGHT: Final = 5
LATENCY_PER_SECOND: Final = 1_000
_SPREAD_IN_FLIGHT: Final = 100
# Messages before the first that counts, while connections and caches warm up.
_LATENCY_WARM_UP: Final = 100


@dataclass(frozen=True, slots=True)
class Scale:
    """How much is done in a round."""

    records: int
    """Of 100 bytes; there are fewer of larger ones, so that a round does not take ten times as long."""
    seconds: float
    """For what is done as often as possible."""
    latency_seconds: float

    def records_of(self, value_bytes: int) -> int:
        """How many records of a size are one round's work."""
        return max(self.records // max(1, value_bytes // 100), 1)


FULL: Final = Scale(records=1_000_000, seconds=2.0, latency_seconds=10.0)
QUICK: Final = Scale(records=200_000, seconds=0.5, latency_seconds=1.5)
TINY: Final = Scale(records=2_000, seconds=0.1, latency_seconds=0.3)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one round of work came to, all of it checked."""

    messages: int
    payload_bytes: int
    seconds: float
    client_cpu_s: float
    server_cpu_s: float | None
    latencies_s: tuple[float, ...] = ()
    resident_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Reading:
    """A figure that is taken from an outcome."""

    name: str
    unit: str
    of: Callable[[Outcome], float]
    is_more_better: bool = False


RATE: Final = Reading("rate", "messages/s", lambda done: done.messages / done.seconds, is_more_better=True)
VOLUME: Final = Reading(
    "rate", "MB/s", lambda done: done.payload_bytes / done.seconds / 1e6, is_more_better=True
)
LATENCIES: Final = tuple(
    Reading(f"p{percent:g}", "ms", partial(lambda at, done: percentile(done.latencies_s, at) * 1e3, percent))
    for percent in (50, 99, 99.9)
)


@dataclass(frozen=True, slots=True)
class Workload:
    """One row: what is done, and what is read off it."""

    name: str
    title: str
    run: Callable[[Site, Scale], Outcome]
    readings: tuple[Reading, ...] = (RATE,)
    needs_plaintext: bool = True


# ---------------------------------------------------------------- writing


def produce(
    site: Site, scale: Scale, *, value_bytes: int, batch_bytes: int, acks: int, connections: int = 1
) -> Outcome:
    """Prepared batches, a few requests under way on each connection, a partition for each."""
    sent = batches_of_bytes(batch_bytes, value_bytes=value_bytes)
    requests = max(1, scale.records_of(value_bytes) // (sent.records_per_batch * connections))
    with site.topic(connections) as topic:
        meter = site.meter()
        reels = [
            produce_reel(topic.name, sent, acks=acks, partitions=[index]) for index in range(connections)
        ]
        driven = drive(
            list(zip(topic.leaders, reels, strict=True)),
            meter,
            requests_each=requests,
            in_flight_max=IN_FLIGHT,
            timeout_s=site.timeout_s,
        )
        for index, (replies, reel) in enumerate(zip(driven.replies, reels, strict=True)):
            offsets = produced_offsets(replies, reel)
            if offsets != [number * sent.records_per_batch for number in range(requests)]:
                raise WrongPayload("the offsets in the replies have gaps, or are out of order")
            read_back(topic.leaders[index], topic.name, sent, counts={index: requests})
    messages = requests * connections * sent.records_per_batch
    return outcome(meter, messages=messages, value_bytes=value_bytes)


def spread_over(site: Site, scale: Scale, *, partitions: int) -> Outcome:
    """Small batches to one partition after the other, over one connection to each leader.

    Each partition has been written to before, so that its files are there. Indexes get no entries: the first
    of a partition makes files, too, and more of them are a matter of bytes rather than of partitions.
    """
    sent = batches(value_bytes=100, records_per_batch=10, different=2)
    with site.topic(partitions, {"index.interval.bytes": str(2**30)}) as topic:
        meter = site.meter()
        by_leader: dict[str, list[int]] = {}
        for index, leader in enumerate(topic.leaders):
            by_leader.setdefault(leader, []).append(index)
        work = [
            (leader, produce_reel(topic.name, sent, acks=ACKS_LEADER, partitions=indexes))
            for leader, indexes in by_leader.items()
        ]
        # Whole cycles through the batches, so that what comes next is where it is expected.
        first = len(sent.each)
        cycles = first + max(1, scale.records // 10 // (sent.records_per_batch * partitions))
        counts = {leader: dict.fromkeys(indexes, cycles) for leader, indexes in by_leader.items()}
        requests = 0
        for rounds, clock in ((first, Meter()), (cycles - first, meter)):
            for (leader, reel), indexes in zip(work, by_leader.values(), strict=True):
                each = rounds * len(indexes)
                driven = drive(
                    [(leader, reel)],
                    clock,
                    requests_each=each,
                    in_flight_max=_SPREAD_IN_FLIGHT,
                    timeout_s=site.timeout_s,
                )
                produced_offsets(driven.replies[0], reel)
                requests += each if clock is meter else 0
        for leader, expected in counts.items():
            read_back(leader, topic.name, sent, counts=expected)
    return outcome(meter, messages=requests * sent.records_per_batch, value_bytes=100)


def round_trips(site: Site, scale: Scale, *, connections: int, acks: int = ACKS_ALL) -> Outcome:
    """Connections that each send a record of 100 bytes when the one before was acknowledged."""
    sent = batches(value_bytes=100, records_per_batch=1, different=1)
    with site.topic() as topic:
        meter = site.meter()
        reel = produce_reel(topic.name, sent, acks=acks)
        driven = drive(
            [(topic.leaders[0], reel)] * connections,
            meter,
            requests_each=2**31,
            in_flight_max=1,
            seconds_max=scale.seconds,
            timeout_s=site.timeout_s,
        )
        offsets = sorted(offset for replies in driven.replies for offset in produced_offsets(replies, reel))
        if offsets != list(range(len(offsets))):
            raise WrongPayload("the offsets in the replies are not one for each record")
        read_back(topic.leaders[0], topic.name, sent, counts={0: len(offsets)})
    return outcome(meter, messages=len(offsets), value_bytes=100, latencies_s=driven.latencies_s)


# ---------------------------------------------------------------- reading


def consume_history(site: Site, scale: Scale, *, value_bytes: int) -> Outcome:
    """A partition from its beginning to its end, a megabyte at a time, again until the time is over."""
    with site.topic() as topic:
        sent, count = fill(site, scale, topic, value_bytes=value_bytes)
        meter = site.meter()
        passes = 0
        with Reader(topic.leaders[0], topic.name, timeout_s=site.timeout_s) as reader:
            while meter.seconds < scale.seconds:
                reader.offsets[0] = number = 0
                while number < count:
                    with meter.running():
                        read = reader.fetch()
                    for _, records in read:
                        number = check_batches(records, sent, first=number)
                passes += 1
    messages = passes * count * sent.records_per_batch
    return outcome(meter, messages=messages, value_bytes=value_bytes)


def fill(site: Site, scale: Scale, topic: Topic, *, value_bytes: int) -> tuple[Batches, int]:
    """Write what is to be read; gives the batches and how many there are."""
    sent = batches_of_bytes(64 * KIB, value_bytes=value_bytes)
    reel = produce_reel(topic.name, sent, acks=ACKS_ALL)
    count = max(1, scale.records_of(value_bytes) // sent.records_per_batch)
    driven = drive(
        [(topic.leaders[0], reel)],
        Meter(),
        requests_each=count,
        in_flight_max=IN_FLIGHT,
        timeout_s=site.timeout_s,
    )
    produced_offsets(driven.replies[0], reel)
    return sent, count


# ---------------------------------------------------------------- latency


def end_to_end(site: Site, scale: Scale, *, acks: int = ACKS_ALL) -> Outcome:
    """A thousand messages a second, from when each should be sent until a consumer has it."""
    sent = batches(value_bytes=100, records_per_batch=1)
    total = _LATENCY_WARM_UP + int(LATENCY_PER_SECOND * scale.latency_seconds)
    with site.topic() as topic:
        reel = produce_reel(topic.name, sent, acks=acks)
        leader, meter = topic.leaders[0], site.meter()
        with (
            connect_plain(leader, timeout_s=site.timeout_s) as producing,
            Reader(leader, topic.name, timeout_s=site.timeout_s) as reader,
        ):
            reader.ask()

            def receive(ready: Sequence[socket]) -> int:
                if producing in ready and not producing.recv(64 * KIB):
                    raise Refused("the broker closed the connection")
                if reader.socket in ready:
                    reader.answer()
                    reader.ask()
                return reader.offsets[0]

            latencies_s = paced(
                (producing, reader.socket),
                lambda number: producing.sendall(frame_of(reel, number)),
                receive,
                total=total,
                meter=meter,
                timeout_s=site.timeout_s,
            )
        read_back(leader, topic.name, sent, counts={0: total})
    counted = tuple(latencies_s[_LATENCY_WARM_UP:])
    return outcome(meter, messages=total, value_bytes=100, latencies_s=counted)


def frame_of(reel: Reel, number: int) -> memoryview:
    """The frame that is sent as the `number`th."""
    start = number % reel.frames * reel.frame_bytes
    return memoryview(reel.data)[start : start + reel.frame_bytes]


def paced(
    sockets: Sequence[socket],
    send: Callable[[int], None],
    receive: Callable[[Sequence[socket]], int],
    *,
    total: int,
    meter: Meter,
    timeout_s: float,
    per_second: int = LATENCY_PER_SECOND,
) -> list[float]:
    """Seconds for each message from when it was due, so that a pause counts for all that fall into it.

    `receive` is told which sockets have something, and tells how many messages have arrived so far.
    """
    latencies_s: list[float] = []
    sent = 0
    with meter.running():
        began = time.perf_counter()
        while len(latencies_s) < total:
            now = time.perf_counter() - began
            if now > timeout_s:
                raise Refused(f"{len(latencies_s)} of {total} messages arrived within {timeout_s:g} s")
            while sent < total and sent / per_second <= now:
                send(sent)
                sent += 1
            # select waits more exactly than epoll, which counts in milliseconds.
            until = sent / per_second - (time.perf_counter() - began) if sent < total else timeout_s - now
            ready, _, _ = select.select(sockets, (), (), max(until, 0))
            if ready:
                arrived = receive(ready)
                now = time.perf_counter() - began
                latencies_s += [now - number / per_second for number in range(len(latencies_s), arrived)]
    return latencies_s


# ---------------------------------------------------------------- through Moldau's own client


def client_produce(site: Site, scale: Scale, *, value_bytes: int) -> Outcome:
    """Records one by one through `moldau.client`, acks=all; read back the same way."""
    with site.topic() as topic:
        return asyncio.run(_with_client(site, scale, topic, value_bytes))[0]


def client_consume(site: Site, scale: Scale, *, value_bytes: int) -> Outcome:
    """The same records, while they are read."""
    with site.topic() as topic:
        return asyncio.run(_with_client(site, scale, topic, value_bytes))[1]


async def _with_client(site: Site, scale: Scale, topic: Topic, value_bytes: int) -> tuple[Outcome, Outcome]:
    """Records written and read through one client, each measured."""
    total = max(1, scale.records_of(value_bytes) // 4)
    values = [value(number, value_bytes) for number in range(total)]
    writing, reading = site.meter(), site.meter()
    async with connect(site.bootstrap_servers, **site.client_settings) as client:
        async with client.producer() as producer:
            with writing.running():
                for each in values:
                    await producer.send(topic.name, each)
                await producer.flush()
        read: list[bytes | None] = []
        deadline = time.monotonic() + site.timeout_s
        async with client.consumer(
            [(topic.name, 0)], auto_offset_reset="earliest", max_poll_records=10_000
        ) as consumer:
            with reading.running():
                while len(read) < total:
                    if time.monotonic() > deadline:
                        raise WrongPayload(f"{len(read)} of {total} records were read in time")
                    for records in (await consumer.poll(timeout_ms=1_000)).values():
                        read += [record.value for record in records]
    if read != values:
        raise WrongPayload("the client did not read what it wrote")
    return (
        outcome(writing, messages=total, value_bytes=value_bytes),
        outcome(reading, messages=total, value_bytes=value_bytes),
    )


def outcome(meter: Meter, *, messages: int, value_bytes: int, latencies_s: tuple[float, ...] = ()) -> Outcome:
    """What the meter shows, for so many messages."""
    return Outcome(
        messages,
        messages * value_bytes,
        meter.seconds,
        meter.client_cpu_s,
        meter.server_cpu_s,
        latencies_s,
    )


# ---------------------------------------------------------------- the table

_SIZES: Final = ((100, "100 B"), (KIB, "1 KB"))
_ACKS: Final = ((ACKS_LEADER, "1"), (ACKS_ALL, "all"))

WORKLOADS: Final = (
    *(
        Workload(
            f"batches-{size}-acks-{acks_name}-x{count}",
            f"batches of 16 KB, {size_name} each, acks={acks_name}, {count} connection{'s' * (count > 1)}",
            partial(produce, value_bytes=size, batch_bytes=16 * KIB, acks=acks, connections=count),
        )
        for size, size_name in _SIZES
        for acks, acks_name in _ACKS
        for count in (1, 4)
    ),
    *(
        Workload(
            f"batches-of-{size}K",
            f"batches of {size} KB, 1 KB each, acks=all",
            partial(produce, value_bytes=KIB, batch_bytes=size * KIB, acks=ACKS_ALL),
            (VOLUME,),
        )
        for size in (64, 960)
    ),
    *(
        Workload(
            f"history-{size}", f"history read, {size_name} each", partial(consume_history, value_bytes=size)
        )
        for size, size_name in _SIZES
    ),
    Workload("latency", "end to end, 1,000 messages a second", end_to_end, LATENCIES),
    *(
        Workload(
            f"connections-{count}",
            f"no batching, {count} connection{'s' * (count > 1)}, acks=all",
            partial(round_trips, connections=count),
        )
        for count in (1, 50, 500)
    ),
    *(
        Workload(
            f"partitions-{count}",
            f"batches of 10 x 100 B, {count:,} partition{'s' * (count > 1)}, acks=1",
            partial(spread_over, partitions=count),
        )
        for count in (1, 10, 100, 1_000)
    ),
    Workload(
        "client-produce",
        "moldau.client writes 100 B records, acks=all",
        partial(client_produce, value_bytes=100),
        needs_plaintext=False,
    ),
    Workload(
        "client-consume",
        "moldau.client reads 100 B records",
        partial(client_consume, value_bytes=100),
        needs_plaintext=False,
    ),
)
