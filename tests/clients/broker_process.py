"""The broker under test, in a process of its own: ours, or Kafka to show that we ask for the right things."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import kafka_jars

import moldau
from moldau.testing.broker import PARENT_VARIABLE
from moldau.testing.ports import ReservedPort
from moldau.wire.messages.api_versions import ApiVersionsRequest
from moldau.wire.messages.header import RequestHeader

START_TIMEOUT_S = 90
STOP_TIMEOUT_S = 30

_CLUSTER_ID = "TW9sZGF1VGVzdENsaWVudA"

# Whatever makes a single broker wait for others, or for a while, is switched off.
_SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "listener.security.protocol.map": "CLIENTS:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "inter.broker.listener.name": "CLIENTS",
    "controller.listener.names": "CONTROLLER",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "log.index.size.max.bytes": "4096",
    "log.cleaner.dedupe.buffer.size": "2097152",
}


@dataclass(frozen=True, slots=True)
class Product:
    """A broker that can be tested: its name with version, and how its data is formatted and it is started."""

    name: str
    format: Callable[[Path], list[str]]
    start: Callable[[Path], list[str]]


def _moldau(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "moldau", *arguments]


def _kafka(main_class: str, *arguments: str) -> list[str]:
    flags = ["-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
    return [kafka_jars.find_java(), *flags, "-cp", f"{kafka_jars.kafka_jars()}/*", main_class, *arguments]


PRODUCTS = {
    "moldau": Product(
        f"Moldau {moldau.__version__}",
        format=lambda config: _moldau(
            "storage", "format", "--standalone", "--cluster-id", _CLUSTER_ID, "--config", str(config)
        ),
        start=lambda config: _moldau("start", "--config", str(config)),
    ),
    "kafka": Product(
        f"Apache Kafka {kafka_jars.KAFKA_VERSION}",
        format=lambda config: _kafka(
            "kafka.tools.StorageTool", "format", "--standalone", "-t", _CLUSTER_ID, "-c", str(config)
        ),
        start=lambda config: _kafka("kafka.Kafka", str(config)),
    ),
}


def product_under_test() -> Product:
    """What MOLDAU_TEST_BROKER names: `moldau`, which is the default, or `kafka`."""
    return PRODUCTS[os.environ.get("MOLDAU_TEST_BROKER", "moldau")]


class BrokerProcess:
    """One broker and controller, from when it answers until it is stopped."""

    def __init__(
        self,
        product: Product,
        folder: Path,
        settings: Mapping[str, str] = MappingProxyType({}),
        *,
        instead_of_usual: Mapping[str, str] = _SETTINGS,
    ) -> None:
        self._product = product
        self._log = folder / "server.log"
        self._port, self._controller_port = ReservedPort(), ReservedPort()
        self.address, controller_address = self._port.address, self._controller_port.address
        config = folder / "server.properties"
        chosen = {
            **instead_of_usual,
            "listeners": f"CLIENTS://{self.address},CONTROLLER://{controller_address}",
            "advertised.listeners": f"CLIENTS://{self.address},CONTROLLER://{controller_address}",
            "controller.quorum.bootstrap.servers": controller_address,
            "log.dirs": str(folder / "data"),
            **settings,
        }
        config.write_text("".join(f"{name}={value}\n" for name, value in chosen.items()))
        with open(self._log, "ab") as log:
            formatted = subprocess.run(product.format(config), stdout=log, stderr=log, check=False)
            assert formatted.returncode == 0, f"{product.name} could not format its data:\n{self.log_end()}"
            environment = {**os.environ, PARENT_VARIABLE: str(os.getpid())}
            self.started_at = time.monotonic()
            self._process = subprocess.Popen(product.start(config), stdout=log, stderr=log, env=environment)
        try:
            self._wait_until_it_answers(self._port.number)
        except BaseException:
            self.stop()
            raise

    @property
    def pid(self) -> int:
        """The process."""
        return self._process.pid

    def log_end(self) -> str:
        """The last that the broker wrote to its log."""
        return self._log.read_text(errors="replace")[-8000:]

    def is_running(self) -> bool:
        """Whether the process is still there."""
        return self._process.poll() is None

    def stop(self) -> None:
        """End the process."""
        self._process.terminate()
        try:
            self._process.wait(timeout=STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._port.close()
        self._controller_port.close()

    def _wait_until_it_answers(self, port: int) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while not _answers_api_versions(port):
            assert self.is_running(), f"{self._product.name} ended:\n{self.log_end()}"
            assert time.monotonic() < deadline, f"{self._product.name} did not start:\n{self.log_end()}"
            time.sleep(0.01)


def _answers_api_versions(port: int) -> bool:
    header = RequestHeader(
        request_api_key=ApiVersionsRequest.declaration.key or 0,
        request_api_version=0,
        correlation_id=1,
        client_id="are you there",
    )
    frame = header.encode(1) + ApiVersionsRequest().encode(0)
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
            connection.sendall(struct.pack(">i", len(frame)) + frame)
            return len(connection.recv(4)) == 4
    except OSError:
        return False
