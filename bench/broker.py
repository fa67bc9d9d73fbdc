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

from compare import limits, rdkafka
from compare.memory import touch_free_memory
from compare.servers import MOLDAU, Server, running, running_bare

from moldau.bench.figures import Spread, short, spread
from moldau.bench.payloads import Batches, batches, batches_of_bytes
from moldau.bench.pipeline import ACKS_LEADER, Reader, drive, produce_reel, produced_offsets, read_back
from moldau.bench.site import Site, Topic
from moldau.bench.usage import Meter, cpu_of, resident_bytes
from moldau.bench.workloads import RATE, Scale
from moldau.client import NewTopic, connect_sync

TIMEOUT_S = 120
WARM_UP_ROUNDS = 1
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
    scale = Scale(records=1_000_000, seconds=0, latency_seconds=0)
    with guarded_moldau() as server:
        done = [
            rdkafka.produce(site_of(server), scale, value_bytes=100, acks="all", partitions=1)
            for _ in range(rounds + 1)
        ][WARM_UP_ROUNDS:]
    cpu_s = [(each.server_cpu_s or 0) * 1e6 / each.messages for each in done]
    yield Figure("100 B from librdkafka's defaults: broker CPU", "s/million", spread(cpu_s), at_most=0.35)
    yield Figure("100 B from librdkafka's defaults: rate", "messages/s", spread([*map(RATE.of, done)]))


def small_requests(rounds: int) -> Iterator[Figure]:
    """Requests of one 100-byte record each, pipelined over one connection, acks=1."""
    requests = 50_000
    sent = batches(value_bytes=100, records_per_batch=1)
    with guarded_moldau() as server:
        for durability, at_least in (("flushed", 30_000), ("replicated", None)):
            site = site_of(server, durability)
            meters = []
            for _ in range(rounds + 1):
                with site.topic() as topic:
                    meters.append(produce_pipelined(site, topic, sent, requests))
            meters = meters[WARM_UP_ROUNDS:]
            rates = [requests / meter.seconds for meter in meters]
            cpu_us = [(meter.server_cpu_s or 0) / requests * 1e6 for meter in meters]
            what = f"1 x 100 B per request, acks=1, one connection, {durability}"
            yield Figure(f"{what}: rate", "requests/s", spread(rates), at_least=at_least)
            yield Figure(f"{what}: broker CPU", "us/request", spread(cpu_us))


def large_batches(rounds: int) -> Iterator[Figure]:
    """Large batches in and out, beside the same bytes without a protocol, which nobody flushes.

    The ratio of CPU times says what the ratio of speeds would be on a machine that has nothing else to do.
    """
    with guarded_moldau() as server, running_bare() as bare:
        for batch_bytes in (64 * KIB, 256 * KIB, 960 * KIB):
            sent = batches_of_bytes(batch_bytes, value_bytes=KIB, different=4)
            requests = 192 * MIB // len(sent.nth(0))
            written_bytes = requests * len(sent.nth(0))
            meters: dict[str, list[Meter]] = {}
            for _ in range(rounds):
                for durability in ("flushed", "replicated"):
                    site = site_of(server, durability)
                    with site.topic() as topic:
                        written = produce_pipelined(site, topic, sent, requests)
                        meters.setdefault(f"written, {durability}", []).append(written)
                        if durability == "replicated":
                            read = fetch_all(site, topic, requests * sent.records_per_batch)
                            meters.setdefault("read", []).append(read)
                written = limits.write_batches(bare, sent, requests=requests)
                meters.setdefault("bare written", []).append(written)
                meters.setdefault("bare read", []).append(limits.read_bytes(bare, written_bytes))
            label = f"{batch_bytes // KIB} KiB batches"
            for way, of_rounds in meters.items():
                speeds = [written_bytes / MIB / meter.seconds for meter in of_rounds]
                yield Figure(f"{label}: {way}", "MiB/s", spread(speeds))
            for way in ("written, flushed", "written, replicated", "read"):
                limit = meters["bare read" if way == "read" else "bare written"]
                rounds_of_both = list(zip(meters[way], limit, strict=True))
                slower = [ours.seconds / bare.seconds for ours, bare in rounds_of_both]
                yield Figure(
                    f"{label}: {way}, time beside the bare limit", "times", spread(slower), at_most=2.0
                )
                more = [(ours.server_cpu_s or 0) / (bare.server_cpu_s or 1) for ours, bare in rounds_of_both]
                yield Figure(f"{label}: {way}, server CPU beside it", "times", spread(more))


def idle_memory(rounds: int) -> Iterator[Figure]:
    """Memory of a broker that nobody has asked for anything but whether it is there."""
    values = []
    for _ in range(min(rounds, 3)):
        with running(MOLDAU) as server:
            time.sleep(2)
            values.append(resident_bytes(server.pid) / 1e6)
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
        memory = resident_bytes(server.pid) / 1e6
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


def site_of(server: Server, durability: str = "flushed") -> Site:
    """Where topics are made that last this well."""
    configs = {"moldau.durability": durability, "max.message.bytes": str(2 * MIB)}
    return Site(server.address, configs, server.pid, timeout_s=TIMEOUT_S)


def produce_pipelined(site: Site, topic: Topic, sent: Batches, requests: int) -> Meter:
    """So many requests on one connection, all sent without waiting; what they wrote is read back."""
    meter = site.meter()
    reel = produce_reel(topic.name, sent, acks=ACKS_LEADER)
    driven = drive(
        [(topic.leaders[0], reel)],
        meter,
        requests_each=requests,
        in_flight_max=requests,
        timeout_s=TIMEOUT_S,
    )
    offsets = produced_offsets(driven.replies[0], reel)
    assert offsets == [number * sent.records_per_batch for number in range(requests)]
    read_back(topic.leaders[0], topic.name, sent, counts={0: requests})
    return meter


def fetch_all(site: Site, topic: Topic, records: int) -> Meter:
    """A partition to its end, a megabyte at a time."""
    meter = site.meter()
    with Reader(topic.leaders[0], topic.name) as reader, meter.running():
        while reader.offsets[0] < records:
            reader.fetch()
    return meter


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", choices=list(MEASUREMENTS), action="append")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.add_argument("--check", action="store_true", help="fail if a promise is not kept")
    asked = parser.parse_args()
    touch_free_memory()
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
