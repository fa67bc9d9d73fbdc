"""A real Kafka node on loopback, every listener of which is behind a recording proxy."""

import socket
import subprocess
import time
from pathlib import Path

from golden.java_programs import Java
from golden.recording_proxy import Recording, RecordingProxy

CLUSTER_ID = "TW9sZGF1R29sZGVuQnl0ZQ"
START_TIMEOUT_S = 90
STOP_TIMEOUT_S = 60

# Everything that Kafka would make large or slow is small and fast here; none of it changes a format.
_SETTINGS = {
    "process.roles": "broker,controller",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    "controller.listener.names": "CONTROLLER",
    "sasl.enabled.mechanisms": "SCRAM-SHA-256",
    "listener.name.sasl.scram-sha-256.sasl.jaas.config": (
        "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    ),
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS;User:golden",
    "delegation.token.secret.key": "golden",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.snapshot.update.records.per.snapshot": "3",
    "group.initial.rebalance.delay.ms": "0",
    "log.index.size.max.bytes": "4096",
    "log.cleaner.backoff.ms": "500",
    "log.cleaner.dedupe.buffer.size": "2097152",
    "log.initial.task.delay.ms": "500",
    "metadata.log.max.record.bytes.between.snapshots": "1024",
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "5000",
    "controlled.shutdown.enable": "true",
}


class KafkaNode:
    """One broker and controller; `proxies` are where clients and other nodes reach it."""

    def __init__(
        self, java: Java, recording: Recording, *, node_id: int, folder: Path, replicas: int = 1
    ) -> None:
        self._java = java
        self._node_id = node_id
        self._process: subprocess.Popen[bytes] | None = None
        self.folder = folder
        self.data = folder / f"data-{node_id}"
        self._config = folder / f"server-{node_id}.properties"
        self._log = folder / f"server-{node_id}.log"
        self._ports = {listener: _free_port() for listener in ("PLAINTEXT", "SASL", "CONTROLLER")}
        self.proxies = {
            listener: RecordingProxy(recording, listener=listener, target_port=port)
            for listener, port in self._ports.items()
        }
        self._replicas = replicas

    def address(self, listener: str = "PLAINTEXT") -> str:
        """Where the proxy of a listener listens."""
        return f"127.0.0.1:{self.proxies[listener].port}"

    def hidden_address(self, listener: str) -> str:
        """Where the node itself listens, behind the proxy."""
        return f"127.0.0.1:{self._ports[listener]}"

    def configure(self, *, bootstrap_controller: "KafkaNode") -> None:
        """Write the server's properties."""
        settings = _SETTINGS | {
            "node.id": str(self._node_id),
            "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in self._ports.items()),
            "advertised.listeners": ",".join(f"{name}://{self.address(name)}" for name in self._ports),
            "controller.quorum.bootstrap.servers": bootstrap_controller.address("CONTROLLER"),
            "log.dirs": str(self.data),
            "offsets.topic.replication.factor": str(self._replicas),
            "transaction.state.log.replication.factor": str(self._replicas),
            "share.coordinator.state.topic.replication.factor": str(self._replicas),
            "default.replication.factor": str(self._replicas),
        }
        self._config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))

    def format(self, *, is_first: bool) -> None:
        """Make the data directory, of the only voter of the quorum or of an observer."""
        role = "--standalone" if is_first else "--no-initial-controllers"
        self._java.run("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(self._config), role)

    def start(self) -> None:
        """Start the process and wait until it listens for clients."""
        with open(self._log, "ab") as log:
            self._process = subprocess.Popen(
                self._java.command("kafka.Kafka", str(self._config)), stdout=log, stderr=log
            )
        deadline = time.monotonic() + START_TIMEOUT_S
        while not _is_open(self._ports["PLAINTEXT"]):
            assert self._process.poll() is None, f"Kafka ended:\n{self._log.read_text()[-4000:]}"
            assert time.monotonic() < deadline, f"Kafka did not start:\n{self._log.read_text()[-4000:]}"
            time.sleep(0.2)

    def stop(self) -> None:
        """Shut down cleanly."""
        assert self._process is not None
        self._process.terminate()
        self._process.wait(timeout=STOP_TIMEOUT_S)
        self._process = None

    def kill(self) -> None:
        """Stop, if it runs, without any chance to write, as a crash of the process would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(timeout=STOP_TIMEOUT_S)
            self._process = None


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


def _is_open(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
