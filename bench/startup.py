"""How long it takes from the command to the first record that a broker accepts, as a developer waits for it.

    python bench/startup.py [--rounds 11] [--json]

The clock runs from before the process is made until a Produce with acks=all has been answered, by way of what
a client does first: it connects, asks for versions, and asks for a topic, which is made for it. Rounds of
different kinds take turns; figures are medians, with the least and the most. CPU is the broker's own until
then. A busy machine makes all of this longer, so look at an idle one, and at the CPU elsewhere.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from moldau.cli._socket import SocketConnection, open_socket
from moldau.model.errors import ErrorCode
from moldau.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from moldau.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from moldau.wire.messages.topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from moldau.wire.records.batch import encode_batch
from moldau.wire.records.record import Record

TIMEOUT_S = 60
PROMISED_S = 0.5
PARTITIONS = 100
MANY = "many"
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Took:
    """One start."""

    wall_s: float
    cpu_s: float


class Broker:
    """A `moldau dev` in a directory, from its command until it is stopped."""

    def __init__(self, directory: Path, topic: str) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            self.port = server.getsockname()[1]
        began = time.perf_counter()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "moldau", "dev", "--dir", str(directory), "--port", str(self.port)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        ready = self.process.stdout.readline()
        assert ready.startswith("moldau is ready"), self.process.communicate()
        self.ask(lambda connection: produce(connection, topic))
        self.took = Took(time.perf_counter() - began, cpu_seconds(self.process.pid))

    def ask(self, work: Callable[[SocketConnection], None]) -> None:
        """Do something over a connection of its own."""
        with open_socket([("127.0.0.1", self.port)], timeout_s=TIMEOUT_S) as connection:
            work(connection)

    def end(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Stop it, in an orderly way or not."""
        self.process.send_signal(number)
        self.process.communicate(timeout=TIMEOUT_S)


def produce(connection: SocketConnection, topic: str, partition: int = 0) -> None:
    """Have one record accepted."""
    asked = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=True)
    (found,) = connection.ask(asked, MetadataResponse).topics
    assert found.error_code == ErrorCode.NONE, ErrorCode(found.error_code)
    batch = encode_batch([Record(0, time.time_ns() // 1_000_000, None, b"good morning")])
    data = TopicProduceData(
        name=topic,
        topic_id=found.topic_id,
        partition_data=[PartitionProduceData(index=partition, records=batch)],
    )
    request = ProduceRequest(acks=-1, timeout_ms=TIMEOUT_S * 1000, topic_data=[data])
    (answer,) = connection.ask(request, ProduceResponse).responses[0].partition_responses
    assert answer.error_code == ErrorCode.NONE, ErrorCode(answer.error_code)


def fill(connection: SocketConnection) -> None:
    """A topic of many partitions with a record in each."""
    topic = CreatableTopic(
        name=MANY, num_partitions=PARTITIONS, replication_factor=1, assignments=[], configs=[]
    )
    request = CreateTopicsRequest(topics=[topic], timeout_ms=TIMEOUT_S * 1000)
    (created,) = connection.ask(request, CreateTopicsResponse).topics
    assert created.error_code == ErrorCode.NONE, ErrorCode(created.error_code)
    for partition in range(PARTITIONS):
        produce(connection, MANY, partition)


def cpu_seconds(pid: int) -> float:
    """What a process has worked so far, in all its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_SECOND


def measure(rounds: int) -> dict[str, list[Took]]:
    """All rounds of all kinds, in turns; the first is not counted, in which Python compiles its files."""
    took: dict[str, list[Took]] = {}
    with tempfile.TemporaryDirectory() as folder:
        full = Path(folder, "full")
        first = Broker(full, MANY + "-not")
        first.ask(fill)
        first.end()
        for number in range(rounds + 1):
            new = Broker(Path(folder, f"new-{number}"), "greetings")
            new.end()
            again = Broker(full, MANY)
            again.end(signal.SIGKILL)
            killed = Broker(full, MANY)
            killed.end()
            if number:
                took.setdefault("dev, a new directory", []).append(new.took)
                took.setdefault(f"again, {PARTITIONS} partitions", []).append(again.took)
                took.setdefault(f"again after kill -9, {PARTITIONS} partitions", []).append(killed.took)
    return took


def main() -> None:
    """Measure, and print a line for each figure."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    took = measure(options.rounds)
    if options.json:
        print(json.dumps({what: [vars(each) for each in rounds] for what, rounds in took.items()}))
        return
    for what, rounds in took.items():
        walls = sorted(each.wall_s for each in rounds)
        cpu = statistics.median(each.cpu_s for each in rounds)
        middle = statistics.median(walls)
        verdict = "ok" if middle <= PROMISED_S else "short"
        print(
            f"{what:<40} {middle:6.3f} s ({walls[0]:.3f}–{walls[-1]:.3f})   cpu {cpu:5.2f} s"
            f"   target <= {PROMISED_S} s {verdict}   n={len(rounds)}"
        )


if __name__ == "__main__":
    main()
