"""What is compared: the contenders in pairs, and the work, a row each."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from compare import limits, rdkafka
from compare.servers import CONTENDERS as PRODUCTS
from compare.servers import Server, running
from moldau.bench.payloads import batches
from moldau.bench.pipeline import ACKS_ALL, Refused, drive, produce_reel, produced_offsets
from moldau.bench.site import Site
from moldau.bench.usage import cpu_of, resident_bytes
from moldau.bench.workloads import LATENCIES, RATE, WORKLOADS, Outcome, Reading, Scale
from moldau.client import Unreachable

KIB: Final = 1024
TIMEOUT_S: Final = 120
_BY_NAME: Final = {workload.name: workload for workload in WORKLOADS}


@dataclass(frozen=True, slots=True)
class Contender:
    """A server with topics of one kind."""

    name: str
    label: str
    server: str
    configs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Pair:
    """What stands beside each other because it promises the same, and the limit of both."""

    name: str
    title: str
    ours: Contender
    theirs: Contender
    limit: Contender
    is_flushed: bool


# Deleted topics give back their files soon, or a run would fill the disk and keep it busy.
_GONE_SOON: Final = {"file.delete.delay.ms": "1000"}

IN_MEMORY: Final = Pair(
    "memory",
    "In the broker's memory when it is acknowledged: Kafka's defaults",
    Contender("moldau-replicated", "Moldau, `moldau.durability=replicated`", "moldau",
              {"moldau.durability": "replicated", **_GONE_SOON}),
    Contender("kafka", "Kafka, defaults", "kafka", _GONE_SOON),
    Contender("bare", "bare sockets", "bare"),
    is_flushed=False,
)  # fmt: skip
ON_DISK: Final = Pair(
    "disk",
    "On disk when it is acknowledged: Moldau's default",
    Contender("moldau-flushed", "Moldau, default", "moldau", _GONE_SOON),
    Contender("kafka-flushed", "Kafka, `flush.messages=1`", "kafka", {"flush.messages": "1", **_GONE_SOON}),
    Contender("bare-flushed", "bare sockets and fdatasync", "bare"),
    is_flushed=True,
)
PAIRS: Final = (IN_MEMORY, ON_DISK)
BOTH: Final = PAIRS
MEMORY_ONLY: Final = (IN_MEMORY,)


@dataclass(frozen=True, slots=True)
class Turn:
    """One contender's turn at a row."""

    contender: Contender
    server: Server
    scale: Scale

    @property
    def site(self) -> Site:
        """The contender as a place of work."""
        return Site(self.server.address, self.contender.configs, self.server.pid, timeout_s=TIMEOUT_S)


Limit = Callable[[Server, Scale, Pair], Outcome]


@dataclass(frozen=True, slots=True)
class Row:
    """One row: what is done, what is read off it, by whom, and what the bare limit of it is."""

    name: str
    group: str
    title: str
    run: Callable[[Turn], Outcome]
    readings: tuple[Reading, ...]
    pairs: tuple[Pair, ...] = BOTH
    limit: Limit | None = None
    warms_up: bool = False
    """Whether it is also done before the clock runs: a JVM compiles what it runs most."""


def at_site(run: Callable[[Site, Scale], Outcome]) -> Callable[[Turn], Outcome]:
    """Work that needs to know no more than where."""
    return lambda turn: run(turn.site, turn.scale)


def limit_either_way(run: Callable[..., Outcome], **arguments: int) -> Limit:
    """A limit that flushes where the pair does."""
    return lambda server, scale, pair: run(server, scale, is_flushed=pair.is_flushed, **arguments)


def limit_of_reading(run: Callable[..., Outcome], **arguments: int) -> Limit:
    """A limit that is the same for both pairs."""
    return lambda server, scale, pair: run(server, scale, **arguments)


# ---------------------------------------------------------------- rows that are no workload

_POLL_S: Final = 0.01
_SETTLE_S: Final = 2.0


def start_up(turn: Turn) -> Outcome:
    """From the command until the first record is accepted, by a server that has no data yet."""
    with running(PRODUCTS[turn.contender.server]) as server:
        site = Site(server.address, turn.contender.configs, server.pid)
        deadline = server.started_at + site.timeout_s
        while not _accepts_a_record(site):
            if time.monotonic() > deadline:
                raise Refused(f"no record was accepted within {site.timeout_s:g} s")
            time.sleep(_POLL_S)
        seconds = time.monotonic() - server.started_at
        server_cpu_s = cpu_of(server.pid)
        time.sleep(_SETTLE_S)
        return Outcome(1, 100, seconds, 0.0, server_cpu_s, resident_bytes=resident_bytes(server.pid))


def _accepts_a_record(site: Site) -> bool:
    reel_of = partial(produce_reel, sent=batches(value_bytes=100, records_per_batch=1), acks=ACKS_ALL)
    try:
        with site.topic() as topic:
            reel = reel_of(topic.name)
            work = [(topic.leaders[0], reel)]
            driven = drive(work, site.meter(), requests_each=1, in_flight_max=1, timeout_s=site.timeout_s)
            return produced_offsets(driven.replies[0], reel) == [0]
    except (OSError, Unreachable):
        return False


def memory_now(turn: Turn) -> Outcome:
    """What the server holds after all the work before this row."""
    return Outcome(1, 0, 0.0, 0.0, None, resident_bytes=resident_bytes(turn.server.pid))


SECONDS: Final = Reading("time", "s", lambda done: done.seconds)
MEMORY: Final = Reading("resident memory", "MB", lambda done: done.resident_bytes / 1e6)

# ---------------------------------------------------------------- the table

_SIZES: Final = ((100, "100 B"), (KIB, "1 KB"))

ROWS: Final = (
    *(
        Row(
            f"produce-{size}-acks-{acks}-x{count}",
            "produce, librdkafka",
            f"{size_name}, acks={acks}, {count} producer{'s' * (count > 1)}",
            at_site(partial(rdkafka.produce, value_bytes=size, acks=acks, producers=count)),
            (RATE,),
            BOTH if acks == "all" else MEMORY_ONLY,
            limit_either_way(limits.produce, value_bytes=size, connections=count),
            warms_up=acks == "all",
        )
        for size, size_name in _SIZES
        for acks in ("1", "all")
        for count in (1, 4)
    ),
    *(
        Row(
            f"batches-of-{size}K",
            "produce, prepared batches",
            f"{size} KB of 1 KB records, acks=all, 1 connection",
            at_site(_BY_NAME[f"batches-of-{size}K"].run),
            (RATE,),
            BOTH,
            limit_either_way(limits.produce, value_bytes=KIB, batch_bytes=size * KIB),
            warms_up=True,
        )
        for size in (64, 960)
    ),
    *(
        Row(
            f"tail-{size}",
            "consume, librdkafka",
            f"{size_name} from the tail, while it is written",
            at_site(partial(rdkafka.consume_tail, value_bytes=size)),
            (RATE,),
            BOTH,
            limit_of_reading(limits.consume_tail, value_bytes=size),
            warms_up=True,
        )
        for size, size_name in _SIZES
    ),
    *(
        Row(
            f"history-{size}",
            "consume, librdkafka",
            f"{size_name} from history",
            at_site(partial(rdkafka.consume_history, value_bytes=size)),
            (RATE,),
            MEMORY_ONLY,
            limit_of_reading(limits.consume_history, value_bytes=size),
        )
        for size, size_name in _SIZES
    ),
    *(
        Row(
            f"fetch-{size}",
            "consume, whole batches",
            f"{size_name} from history, undecoded",
            at_site(_BY_NAME[f"history-{size}"].run),
            (RATE,),
            MEMORY_ONLY,
            limit_of_reading(limits.consume_history, value_bytes=size),
            warms_up=True,
        )
        for size, size_name in _SIZES
    ),
    Row(
        "latency",
        "end to end at 1,000 messages a second",
        "100 B, acks=all",
        at_site(_BY_NAME["latency"].run),
        LATENCIES,
        BOTH,
        limit_either_way(limits.end_to_end),
    ),
    *(
        Row(
            f"connections-{count}",
            "no batching, 100 B, acks=all",
            f"{count} connection{'s' * (count > 1)}",
            at_site(_BY_NAME[f"connections-{count}"].run),
            (RATE,),
            BOTH,
            limit_either_way(limits.round_trips, connections=count),
            warms_up=count < 500,
        )
        for count in (1, 50, 500)
    ),
    *(
        Row(
            f"partitions-{count}",
            "batches of 10 x 100 B, acks=1, over partitions",
            f"{count:,} partition{'s' * (count > 1)}",
            at_site(_BY_NAME[f"partitions-{count}"].run),
            (RATE,),
            MEMORY_ONLY,
            limit_either_way(limits.spread_over),
            warms_up=count < 100,
        )
        for count in (1, 10, 100, 1_000)
    ),
    Row(
        "memory-loaded",
        "the process",
        "after the work above",
        memory_now,
        (MEMORY,),
        MEMORY_ONLY,
    ),
    Row(
        "start-up",
        "the process",
        "start to first accepted record, then idle",
        start_up,
        (SECONDS, MEMORY),
        MEMORY_ONLY,
    ),
)
