"""The servers that are measured, each a process on loopback with its data in a temporary folder."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
# How jars are had and brokers are started is known there.
sys.path.insert(1, str(ROOT / "tests"))

import kafka_jars  # noqa: E402
from clients.broker_process import PRODUCTS, BrokerProcess, Product  # noqa: E402

__all__ = ["CONTENDERS", "KAFKA", "MOLDAU", "Product", "Server", "running", "running_bare"]

# One broker that is its own controller. All else is as it comes, but for what a single broker cannot have:
# its internal topics on three.
SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "listener.security.protocol.map": "CLIENTS:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "inter.broker.listener.name": "CLIENTS",
    "controller.listener.names": "CONTROLLER",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "auto.create.topics.enable": "false",
}

MOLDAU = PRODUCTS["moldau"]


def _kafka(*arguments: str) -> list[str]:
    # What kafka-server-start.sh gives the JVM, less its logs of garbage collections.
    flags = (
        *("-server", "-Xmx1G", "-Xms1G", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"),
        *("-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent"),
        *("-XX:MaxInlineLevel=15", "-Djava.awt.headless=true"),
    )
    return [kafka_jars.find_java(), *flags, "-cp", f"{kafka_jars.kafka_jars()}/*", *arguments]


KAFKA = Product(
    PRODUCTS["kafka"].name,
    format=PRODUCTS["kafka"].format,
    start=lambda config: _kafka("kafka.Kafka", str(config)),
)
CONTENDERS = {"moldau": MOLDAU, "kafka": KAFKA}


@dataclass(frozen=True, slots=True)
class Server:
    """Where a server listens, and which process it is."""

    name: str
    address: str
    pid: int
    started_at: float = 0.0


@contextmanager
def running(product: Product, settings: Mapping[str, str] = SETTINGS) -> Iterator[Server]:
    """A broker, until the end of the block; then its process and its data are gone."""
    with tempfile.TemporaryDirectory(prefix="moldau-bench-") as folder:
        broker = BrokerProcess(product, Path(folder), instead_of_usual=settings)
        try:
            yield Server(product.name, broker.address, broker.pid, broker.started_at)
        finally:
            broker.stop()


@contextmanager
def running_bare() -> Iterator[Server]:
    """The server without a protocol."""
    with tempfile.TemporaryDirectory(prefix="moldau-bench-") as folder:
        process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("bare.py")), str(Path(folder) / "bytes")],
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert process.stdout is not None
            port = int(process.stdout.readline())
            yield Server("bare sockets", f"127.0.0.1:{port}", process.pid)
        finally:
            process.kill()
            process.wait()
