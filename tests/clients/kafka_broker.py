"""A real Kafka broker on loopback; one of its listeners is behind a proxy that can cut connections."""

import selectors
import socket
import subprocess
import threading
import time
from pathlib import Path

import kafka_jars

from moldau.testing.ports import ReservedPort

CLUSTER_ID = "TW9sZGF1T3duQ2xpZW50cw"
START_TIMEOUT_S = 90
STOP_TIMEOUT_S = 30

# Whatever makes a single broker wait for others, or for a while, is switched off.
_SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "listener.security.protocol.map": "DIRECT:PLAINTEXT,PROXIED:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "inter.broker.listener.name": "DIRECT",
    "controller.listener.names": "CONTROLLER",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "log.index.size.max.bytes": "4096",
    "log.cleaner.dedupe.buffer.size": "2097152",
    "auto.create.topics.enable": "false",
}


class KafkaBroker:
    """One broker and controller in a process of its own."""

    def __init__(self, folder: Path) -> None:
        self._log = folder / "server.log"
        ports = {name: ReservedPort() for name in ("DIRECT", "PROXIED", "CONTROLLER")}
        self._ports = list(ports.values())
        self.proxy = CuttingProxy(target_port=ports["PROXIED"].number)
        self.address = ports["DIRECT"].address
        self.proxied_address = f"127.0.0.1:{self.proxy.port}"
        config = folder / "server.properties"
        settings = _SETTINGS | {
            "listeners": ",".join(f"{name}://{port.address}" for name, port in ports.items()),
            "advertised.listeners": f"DIRECT://{self.address},PROXIED://{self.proxied_address}",
            "controller.quorum.voters": f"1@{ports['CONTROLLER'].address}",
            "log.dirs": str(folder / "data"),
        }
        config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        subprocess.run(
            _command("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(config)),
            check=True,
            capture_output=True,
        )
        with open(self._log, "ab") as log:
            self._process = subprocess.Popen(_command("kafka.Kafka", str(config)), stdout=log, stderr=log)
        self._wait_until_open(ports["DIRECT"])

    def stop(self) -> None:
        """End the process."""
        self.proxy.close()
        self._process.kill()
        self._process.wait(timeout=STOP_TIMEOUT_S)
        for port in self._ports:
            port.close()

    def _wait_until_open(self, port: ReservedPort) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while not port.is_served():
            assert self._process.poll() is None, f"Kafka ended:\n{self._log.read_text()[-4000:]}"
            assert time.monotonic() < deadline, f"Kafka did not start:\n{self._log.read_text()[-4000:]}"
            time.sleep(0.1)


class CuttingProxy:
    """Passes bytes on, until it is told to reset every connection, or to do so after so many replies."""

    def __init__(self, *, target_port: int) -> None:
        self._target = ("127.0.0.1", target_port)
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._server, selectors.EVENT_READ)
        self._peers: dict[socket.socket, socket.socket] = {}
        self._clients: dict[socket.socket, None] = {}
        self._requests_until_cut: int | None = None
        self.cuts = 0
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def cut_replies_every(self, requests: int | None) -> None:
        """From now on pass on only so many packets of clients, then drop the replies and every connection."""
        self._requests_until_cut = self._every = requests

    def close(self) -> None:
        """Pass on no more."""
        self._is_closed = True
        self._thread.join()
        self._drop_all()
        self._server.close()
        self._selector.close()

    def _run(self) -> None:
        while not self._is_closed:
            for key, _ in self._selector.select(timeout=0.2):
                source = key.fileobj
                assert isinstance(source, socket.socket)
                if source is self._server:
                    self._accept()
                elif source in self._peers:
                    self._pass_on(source)

    def _accept(self) -> None:
        client, _ = self._server.accept()
        broker = socket.create_connection(self._target)
        self._clients[client] = None
        for one, other in ((client, broker), (broker, client)):
            self._peers[one] = other
            self._selector.register(one, selectors.EVENT_READ)

    def _pass_on(self, source: socket.socket) -> None:
        try:
            data = source.recv(2**16)
            if data:
                self._peers[source].sendall(data)
        except OSError:
            data = b""
        if not data:
            self._drop(source)
        elif source in self._clients and self._requests_until_cut is not None:
            self._requests_until_cut -= 1
            if self._requests_until_cut <= 0:
                self._requests_until_cut = self._every
                self.cuts += 1
                self._drop_all()

    def _drop_all(self) -> None:
        for client in list(self._clients):
            self._drop(client)

    def _drop(self, end: socket.socket) -> None:
        other = self._peers.pop(end)
        self._peers.pop(other)
        for each in (end, other):
            self._clients.pop(each, None)
            self._selector.unregister(each)
            each.close()


def _command(main_class: str, *args: str) -> list[str]:
    class_path = f"{kafka_jars.kafka_jars()}/*"
    flags = ["-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
    return [kafka_jars.find_java(), *flags, "-cp", class_path, main_class, *args]
