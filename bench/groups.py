"""What groups cost: a heartbeat in groups of every size, and commits of fifty consumers over real sockets.

    python bench/groups.py [--quick] [--json]

Heartbeats are decided without a broker, in CPU time: the best of several rounds. Commits go to a broker in a
process of its own, and every one is flushed. What a core could do is told from the CPU time that the broker
took, since others may have taken the rest. Where a line has a target, "short" means that it is missed.
"""

import argparse
import json
import os
import platform
import resource
import selectors
import socket
import struct
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from moldau.coordinator.group.shard import GroupShard
from moldau.coordinator.shard import Circumstances, Surroundings, Ticket
from moldau.metadata.image import Image
from moldau.model.draws import Draws
from moldau.model.settings.resolve import Layer, Source, resolve
from moldau.model.settings.setting import Scope
from moldau.testing import cluster
from moldau.wire import framing
from moldau.wire.message import Request, Response
from moldau.wire.messages.groups import (
    FindCoordinatorRequest,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    SyncGroupRequest,
)
from moldau.wire.messages.topics import CreatableTopic, CreateTopicsRequest

SIZES = (10, 100, 1_000, 10_000)
CONNECTIONS = 50
PARTITIONS = 20
TOPIC = "t"
SESSION_TIMEOUT_MS = 45_000
COMMITS_MIN = 6_000
OFFSETS_MIN = 20_000
# A heartbeat in the largest group may cost so much more than in the smallest: caches are only so large.
GROWTH_MAX = 1.5

_SIZE = struct.Struct(">i")
_COMMIT_VERSION = 9


@dataclass(frozen=True)
class Figure:
    """One line of the result."""

    what: str
    value: float
    unit: str
    target: str = ""
    is_met: bool = True


# ------------------------------------------------------------------------------------------------ heartbeats


class Members:
    """A stable group of so many members in a shard of its own."""

    def __init__(self, count: int) -> None:
        layers = (Layer(Source.STATIC, {}),)
        self._around = Surroundings(Image(), resolve(Scope.BROKER, *layers), layers)
        self._draws = Draws(bytes(16))
        self._now_ms = 0
        self._shard = GroupShard()
        self._decide(None, 9)
        join = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=SESSION_TIMEOUT_MS,
            rebalance_timeout_ms=300_000,
            member_id="",
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"\0\0\0\0\0\0\xff\xff\xff\xff")],
        )
        # Version 3 needs no second attempt.
        for _ in range(count):
            self._decide(join, 3)
        while not self._has_joined():
            self._now_ms += 3_000
            self._carry_out(self._shard.deadlines_passed(self._circumstances()))
        group = self._shard.state.groups["g"]
        self.ids = list(group.members)
        for member_id in self.ids:
            sync = SyncGroupRequest(group_id="g", generation_id=1, member_id=member_id, assignments=[])
            self._decide(sync, 3)
        assert group.state_name == "Stable", group.state_name

    def _has_joined(self) -> bool:
        return self._shard.state.groups["g"].state_name != "PreparingRebalance"

    def _circumstances(self) -> Circumstances:
        return Circumstances(self._now_ms, self._now_ms, self._draws, self._around, 1 << 30)

    def _decide(self, request: Request | None, version: int) -> None:
        circumstances = self._circumstances()
        if request is None:
            self._carry_out(self._shard.loaded(circumstances))
            return
        ticket = Ticket(version=version, client_id="c", client_host="/127.0.0.1")
        self._carry_out(self._shard.decide(request, ticket, circumstances))

    def _carry_out(self, decision: object) -> None:
        for record in decision.records:  # type: ignore[attr-defined]
            self._shard.apply(record)

    def heartbeats(self, count: int) -> float:
        """Microseconds of CPU for one heartbeat, with the deadlines that come due meanwhile."""
        requests = [
            HeartbeatRequest(group_id="g", generation_id=1, member_id=self.ids[number % len(self.ids)])
            for number in range(count)
        ]
        ticket = Ticket(version=4, client_id="c", client_host="/127.0.0.1")
        shard, step_ms = self._shard, 3_000 / len(self.ids)
        began_ms = float(self._now_ms)
        began = time.process_time()
        for number, request in enumerate(requests):
            # Every member sends one every three seconds.
            self._now_ms = int(began_ms + number * step_ms)
            circumstances = self._circumstances()
            reply = shard.decide(request, ticket, circumstances).reply
            assert isinstance(reply, HeartbeatResponse)
            while (due_ms := shard.next_deadline_ms()) is not None and due_ms <= self._now_ms:
                self._carry_out(shard.deadlines_passed(circumstances))
        took = time.process_time() - began
        assert len(self._shard.state.groups["g"].members) == len(self.ids), "nobody has expired"
        return took / count * 1_000_000


def measure_heartbeats(*, is_quick: bool) -> Iterator[Figure]:
    """What a heartbeat costs in groups of every size, which take turns."""
    count, rounds = (5_000, 3) if is_quick else (40_000, 7)
    groups = {size: Members(size) for size in SIZES}
    best = dict.fromkeys(SIZES, float("inf"))
    for _ in range(rounds):
        for size, members in groups.items():
            best[size] = min(best[size], members.heartbeats(count))
    for size in SIZES:
        growth = best[size] / best[SIZES[0]]
        yield Figure(
            f"heartbeat in a group of {size:,}",
            best[size],
            "us",
            target=f"{GROWTH_MAX} times that of {SIZES[0]} at most" if size != SIZES[0] else "",
            is_met=growth <= GROWTH_MAX,
        )


# --------------------------------------------------------------------------------------------------- commits


class Committer:
    """One consumer that commits as soon as its last commits are answered."""

    def __init__(self, address: tuple[str, int], number: int, *, partitions: int, window: int) -> None:
        self.group = f"group-{number}"
        self._requests = framing.Requests(f"consumer-{number}")
        self.socket = socket.create_connection(address)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._partitions = partitions
        self._window = window
        self._offset = 0
        self._received = bytearray()
        self.answered = 0
        self.is_checked = False

    def ask(self, request: Request, version: int) -> Response:
        """Send one request and wait for its response."""
        self.socket.sendall(b"".join(self._requests.encode(request, version)))  # type: ignore[arg-type]
        data = self._exactly(_SIZE.unpack(self._exactly(4))[0])
        return self._requests.match(framing.Frame(data, 0, len(data), is_shared=False))

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = self.socket.recv(size - len(data))
            assert more, "the broker closed the connection"
            data += more
        return data

    def commit_request(self) -> OffsetCommitRequest:
        self._offset += 1
        return OffsetCommitRequest(
            group_id=self.group,
            member_id="",
            topics=[
                OffsetCommitRequestTopic(
                    name=TOPIC,
                    partitions=[
                        OffsetCommitRequestPartition(
                            partition_index=index,
                            committed_offset=self._offset,
                            committed_leader_epoch=0,
                            committed_metadata="",
                        )
                        for index in range(self._partitions)
                    ],
                )
            ],
        )

    def start(self) -> None:
        """Encode the one frame that is sent again and again, and send the first ones."""
        reply = self.ask(self.commit_request(), _COMMIT_VERSION)
        assert isinstance(reply, OffsetCommitResponse)
        assert not any(each.error_code for topic in reply.topics for each in topic.partitions), reply
        chunks = self._requests.encode(self.commit_request(), _COMMIT_VERSION)
        self._frame = b"".join(chunks)  # type: ignore[arg-type]
        self.socket.setblocking(False)
        self.socket.send(self._frame * self._window)

    def readable(self) -> None:
        """Count what was answered, and send as many more."""
        self._received += self.socket.recv(65536)
        count = 0
        while len(self._received) >= 4:
            end = 4 + _SIZE.unpack_from(self._received)[0]
            if len(self._received) < end:
                break
            del self._received[:end]
            count += 1
        if count:
            self.answered += count
            self.socket.send(self._frame * count)


@contextmanager
def broker_on_one_core() -> Iterator[tuple[tuple[str, int], int]]:
    """A broker that has a core to itself if there are two; this process takes another one."""
    cores = sorted(os.sched_getaffinity(0))
    with cluster(settings={"offsets.topic.num.partitions": 50}) as made:
        host, _, port = made.bootstrap_servers.rpartition(":")
        pid = made.pid(1)
        assert pid is not None
        if len(cores) > 1:
            for task in Path(f"/proc/{pid}/task").iterdir():
                os.sched_setaffinity(int(task.name), {cores[0]})
            os.sched_setaffinity(0, set(cores[1:]))
        yield (host, int(port)), pid
        os.sched_setaffinity(0, set(cores))


def cpu_seconds(pid: int) -> float:
    """The CPU time of all threads of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure_commits(*, is_quick: bool) -> Iterator[Figure]:
    """How many commits a broker takes from consumers that wait for each, or have some under way."""
    seconds = 2.0 if is_quick else 6.0
    with broker_on_one_core() as (address, pid):
        first = Committer(address, 0, partitions=1, window=1)
        topic = CreatableTopic(
            name=TOPIC, num_partitions=PARTITIONS, replication_factor=1, assignments=[], configs=[]
        )
        first.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7)
        first.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["x"]), 4)
        time.sleep(2.0)
        for partitions, window, what in (
            (1, 1, "one after the other"),
            (1, 5, "five under way"),
            (PARTITIONS, 1, f"of {PARTITIONS} partitions"),
        ):
            rate, cpu = commit_rate(address, pid, partitions=partitions, window=window, seconds=seconds)
            yield Figure(f"commits over {CONNECTIONS} connections, {what}", rate, "requests/s")
            target = COMMITS_MIN if partitions == 1 else OFFSETS_MIN
            yield Figure(
                "  of a core that the broker has to itself",
                rate * partitions / cpu,
                "requests/s" if partitions == 1 else "offsets/s",
                target=f"{target:,} at least",
                is_met=rate * partitions / cpu >= target,
            )


def commit_rate(
    address: tuple[str, int], pid: int, *, partitions: int, window: int, seconds: float
) -> tuple[float, float]:
    """Commits a second, and seconds of the broker's CPU that they took a second."""
    consumers = [
        Committer(address, number, partitions=partitions, window=window) for number in range(CONNECTIONS)
    ]
    with selectors.DefaultSelector() as selector:
        for consumer in consumers:
            consumer.start()
            selector.register(consumer.socket, selectors.EVENT_READ, consumer)

        def run(duration: float) -> tuple[int, float, float]:
            before, cpu, began = sum(each.answered for each in consumers), cpu_seconds(pid), time.monotonic()
            while time.monotonic() - began < duration:
                for key, _ in selector.select(0.1):
                    key.data.readable()
            took = time.monotonic() - began
            return sum(each.answered for each in consumers) - before, took, cpu_seconds(pid) - cpu

        run(seconds / 4)
        count, took, cpu = run(seconds)
    for consumer in consumers:
        consumer.socket.close()
    return count / took, cpu / took


def main() -> None:
    """Measure everything, and print it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="measure for a short time, and less surely")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    options = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    figures = []
    for measure in (measure_heartbeats, measure_commits):
        for figure in measure(is_quick=options.quick):
            figures.append(figure)
            if not options.json:
                verdict = "" if not figure.target else ("met" if figure.is_met else "short")
                print(f"{figure.what:62} {figure.value:12,.2f} {figure.unit:12} {figure.target:32} {verdict}")
                sys.stdout.flush()
    if options.json:
        machine = {"python": platform.python_version(), "cores": os.cpu_count()}
        print(json.dumps({"machine": machine, "figures": [asdict(figure) for figure in figures]}))


if __name__ == "__main__":
    main()
