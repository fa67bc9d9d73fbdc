"""What the broker alone is promised to reach, each figure with a load generator in another process.

    python bench/broker.py [--rounds 5] [--only NAME] [--json]

The broker runs as it comes, with its metrics, an authorizer that is asked about every request, and quotas
that count every request and are never reached. What was written is read back and compared. A busy machine
slows both sides, so figures are medians of rounds with the lowest and the highest, and the bare limit takes
turns with the broker.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass

from compare.bare import COUNT, EMPTY, READ, BareLine
from compare.librdkafka import BatchProducer
from compare.readback import check_topic
from compare.servers import MOLDAU, Server, running, running_bare

from moldau.bench import pipeline
from moldau.bench.figures import Spread, short, spread
from moldau.bench.payloads import Batches, batches, batches_of_bytes
from moldau.bench.pipeline import ACKS_LEADER, connect, drive, produce_reel
from moldau.bench.usage import cpu_of, usage
from moldau.client import NewTopic, connect_sync

TIMEOUT_S = 120
KIB, MIB = 2**10, 2**20
UNREACHED_QUOTAS = {"producer_byte_rate": 1e12, "consumer_byte_rate": 1e12, "request_percentage": 1e6}


@dataclass(frozen=True, slots=True)
class Figure:
    """One line: what the rounds gave, and what was promised."""

    what: str
    unit: str
    value: Spread
    at_most: float | None = None
    at_least: float | None = None

    @property
    def is_met(self) -> bool:
        """Whether the median keeps the promise, if there is one."""
        median = self.value.median
        return (self.at_most is None or median <= self.at_most) and (
            self.at_least is None or median >= self.at_least
        )

    @property
    def target(self) -> str:
        """The promise, for people."""
        if self.at_most is not None:
            return f"<= {short(self.at_most)}"
        return "" if self.at_least is None else f">= {short(self.at_least)}"


# ---------------------------------------------------------------- the measurements


def librdkafka_cpu(rounds: int) -> Iterator[Figure]:
    """Broker CPU for 100-byte messages from librdkafka's defaults, and how fast they went through."""
    messages = 1_000_000
    cpu: list[float] = []
    rate: list[float] = []
    with guarded_moldau() as server:
        for topic in topics(server, rounds + 1):
            producer = BatchProducer(server.address, topic, value_bytes=100)
            before, began = cpu_of(server.pid), time.perf_counter()
            producer.produce(range(messages), timeout_s=TIMEOUT_S)
            producer.flush(timeout_s=TIMEOUT_S)
            seconds = time.perf_counter() - began
            cpu.append((cpu_of(server.pid) - before) * 1e6 / messages)
            rate.append(messages / seconds)
            producer.close()
            check_topic(
                server.address, topic, partitions=1, numbers=range(messages), value_bytes=100, is_ordered=True
            )
    # The first is to warm up.
    yield Figure("100 B from librdkafka's defaults: broker CPU", "s/million", spread(cpu[1:]), at_most=0.35)
    yield Figure("100 B from librdkafka's defaults: rate", "messages/s", spread(rate[1:]))


def small_requests(rounds: int) -> Iterator[Figure]:
    """Requests of one 100-byte record each, pipelined over one connection, acks=1."""
    requests = 50_000
    sent = batches(value_bytes=100, records_per_batch=1)
    with guarded_moldau() as server:
        for name, configs in (("", {}), (", replicated", {"moldau.durability": "replicated"})):
            rate: list[float] = []
            cpu: list[float] = []
            for topic in topics(server, rounds + 1, configs):
                before = cpu_of(server.pid)
                seconds = produce_pipelined(server, topic, sent, requests)
                cpu.append((cpu_of(server.pid) - before) / requests * 1e6)
                rate.append(requests / seconds)
            what = f"1 x 100 B per request, acks=1, one connection{name}"
            yield Figure(f"{what}: rate", "requests/s", spread(rate[1:]), at_least=None if name else 30_000)
            yield Figure(f"{what}: broker CPU", "us/request", spread(cpu[1:]))


def large_batches(rounds: int) -> Iterator[Figure]:
    """Large batches in and out, beside the same bytes without a protocol, which nobody flushes."""
    total_bytes = 192 * MIB
    with guarded_moldau() as server, running_bare() as bare:
        for batch_bytes in (64 * KIB, 256 * KIB, 960 * KIB):
            sent = batches_of_bytes(batch_bytes, value_bytes=KIB, different=4)
            requests = total_bytes // len(sent.nth(0))
            written_bytes = requests * len(sent.nth(0))
            seconds: dict[str, list[float]] = {}
            for _ in range(rounds):
                for way in ("flushed", "replicated"):
                    for topic in topics(server, 1, {"moldau.durability": way}):
                        took = produce_pipelined(server, topic, sent, requests)
                        seconds.setdefault(f"written, {way}", []).append(took)
                        if way == "replicated":
                            took = fetch_all(server, topic, requests * sent.records_per_batch)
                            seconds.setdefault("read", []).append(took)
                seconds.setdefault("bare written", []).append(write_bare(bare, sent, requests))
                seconds.setdefault("bare read", []).append(read_bare(bare, written_bytes))
            label = f"{batch_bytes // KIB} KiB batches"
            for way, took_s in seconds.items():
                yield Figure(f"{label}: {way}", "MiB/s", spread([written_bytes / MIB / s for s in took_s]))
            for way in ("written, flushed", "written, replicated", "read"):
                limit = seconds["bare read" if way == "read" else "bare written"]
                ratios = [ours / bare_s for ours, bare_s in zip(seconds[way], limit, strict=True)]
                yield Figure(f"{label}: {way}, bare / broker", "times", spread(ratios), at_most=2.0)


def idle_memory(rounds: int) -> Iterator[Figure]:
    """Memory of a broker that nobody has asked for anything but whether it is there."""
    values = []
    for _ in range(min(rounds, 3)):
        with running(MOLDAU) as server:
            time.sleep(2)
            values.append(usage(server.pid).resident_bytes / 1e6)
    yield Figure("idle: resident memory", "MB", spread(values), at_most=60)


def idle_partitions(rounds: int) -> Iterator[Figure]:
    """CPU of a broker that has 1,000 partitions and nothing to do."""
    with running(MOLDAU) as server:
        with connect_sync(server.address) as client:
            client.admin.create_topics(NewTopic("idle", partitions=1000))
        time.sleep(5)
        values = []
        for _ in range(rounds):
            before, began = cpu_of(server.pid), time.perf_counter()
            time.sleep(5)
            values.append(100 * (cpu_of(server.pid) - before) / (time.perf_counter() - began))
        yield Figure("1,000 idle partitions: CPU of one core", "%", spread(values), at_most=1.0)
        memory = usage(server.pid).resident_bytes / 1e6
        yield Figure("1,000 idle partitions: resident memory", "MB", spread([memory]))


MEASUREMENTS: dict[str, Callable[[int], Iterator[Figure]]] = {
    "librdkafka": librdkafka_cpu,
    "small": small_requests,
    "large": large_batches,
    "memory": idle_memory,
    "idle": idle_partitions,
}


# ---------------------------------------------------------------- their parts


@contextmanager
def guarded_moldau() -> Iterator[Server]:
    """A broker that authorises and counts everything."""
    with running(MOLDAU) as server:
        with connect_sync(server.address) as client:
            client.admin.alter_quotas((("user", None),), UNREACHED_QUOTAS)
        yield server


def topics(server: Server, count: int, configs: dict[str, str] | None = None) -> Iterator[str]:
    """New topics with one partition, each deleted before the next is made."""
    for number in range(count):
        topic = f"bench-{time.monotonic_ns()}-{number}"
        with connect_sync(server.address) as client:
            client.admin.create_topics(NewTopic(topic, partitions=1, configs=configs or {}))
        yield topic
        with connect_sync(server.address) as client:
            client.admin.delete_topics(topic)


def produce_pipelined(server: Server, topic: str, sent: Batches, requests: int) -> float:
    """Seconds for so many requests on one connection; what they wrote is read back."""
    reel = produce_reel(topic, sent, acks=ACKS_LEADER)
    driven = drive(
        server.address, [reel], requests_each=requests, in_flight_max=requests, timeout_s=TIMEOUT_S
    )
    offsets = pipeline.check_produced(driven.replies[0], reel, requests=requests)
    assert offsets == [number * sent.records_per_batch for number in range(requests)]
    pipeline.read_back(server.address, topic, sent, count=requests)
    return driven.seconds


def write_bare(bare: Server, sent: Batches, requests: int) -> float:
    """The same bytes without a protocol."""
    reel = produce_reel("bench", sent, acks=ACKS_LEADER)
    with connect(bare.address, timeout_s=TIMEOUT_S) as connected:
        connected.sendall(EMPTY)
        connected.recv(1)
    return drive(
        bare.address,
        [reel],
        requests_each=requests,
        in_flight_max=requests,
        timeout_s=TIMEOUT_S,
        line=BareLine,
    ).seconds


def fetch_all(server: Server, topic: str, records: int) -> float:
    """Seconds to read a partition, a megabyte at a time."""
    with pipeline.Reader(server.address, topic) as reader:
        began = time.perf_counter()
        while reader.offset < records:
            reader.fetch()
        return time.perf_counter() - began


def read_bare(bare: Server, total_bytes: int) -> float:
    """The same bytes without a protocol."""
    room = bytearray(MIB)
    with connect(bare.address, timeout_s=TIMEOUT_S) as connected:
        began = time.perf_counter()
        connected.sendall(READ + COUNT.pack(total_bytes))
        left = total_bytes
        while left:
            count = connected.recv_into(room)
            assert count, f"{left} bytes were not sent"
            left -= count
        return time.perf_counter() - began


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", choices=list(MEASUREMENTS), action="append")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.add_argument("--check", action="store_true", help="fail if a promise is not kept")
    asked = parser.parse_args()
    figures = []
    for name in asked.only or MEASUREMENTS:
        for figure in MEASUREMENTS[name](asked.rounds):
            figures.append(figure)
            if not asked.json:
                verdict = ("ok" if figure.is_met else "short") if figure.target else ""
                line = f"{figure.what:<72}{figure.value!s:>32} {figure.unit:<11}{figure.target:>9} {verdict}"
                print(line.rstrip(), flush=True)
    if asked.json:
        print(json.dumps([asdict(figure) for figure in figures], indent=2))
    return asked.check and not all(figure.is_met for figure in figures)


if __name__ == "__main__":
    sys.exit(main())
