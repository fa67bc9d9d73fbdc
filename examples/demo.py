"""Start a broker, write to it, kill it with -9 in the middle, start it again, and count what it has kept."""

import asyncio
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from moldau.client import Client, Delivery, NewTopic, connect

TOPIC = "clicks"
PARTITIONS = 3
CLICKS = 50_000
MOLDAU = (sys.executable, "-m", "moldau")


def main() -> None:
    """The whole story, in a directory that is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="moldau-demo-") as folder:
        broker = Broker(Path(folder))
        try:
            asyncio.run(story(broker))
        finally:
            broker.kill()


async def story(broker: "Broker") -> None:
    """Write while the broker dies, then read everything back."""
    print(f"Formatting a data directory and starting a broker at {broker.address}")
    broker.format()
    print(f"  it serves after {await broker.start():.2f} s\n")
    async with connect(broker.address, linger_ms=5, delivery_timeout_ms=60_000) as client:
        await client.admin.create_topics(NewTopic(TOPIC, partitions=PARTITIONS))
        print(f"Writing {CLICKS} clicks to {PARTITIONS} partitions, each acknowledged when it is flushed")
        began = time.monotonic()
        writing = asyncio.create_task(write(client))
        await asyncio.sleep(0.5)
        broker.kill()
        print("  kill -9: the broker is gone, the producer waits and tries again")
        print(f"  started again: it serves after {await broker.start():.2f} s")
        acknowledged = await writing
        print(f"  all {acknowledged} clicks are acknowledged, after {time.monotonic() - began:.1f} s\n")
        print("Reading everything from the beginning")
        clicks = await read(client)
    check(clicks, acknowledged)
    print(f"  {len(clicks)} clicks: none lost, none twice, each key's in the order in which they were sent\n")
    print("Every Kafka client can do the same: start one with `moldau start`, see README.md.")


async def write(client: Client) -> int:
    """Send all clicks, and count those that the broker has acknowledged."""
    deliveries: list[Delivery] = []
    async with client.producer() as producer:
        for number in range(CLICKS):
            page = b"page-%d" % (number % 100)
            deliveries.append(await producer.send(TOPIC, b"%d" % number, key=page))
        await producer.flush()
    return len([await delivery for delivery in deliveries])


async def read(client: Client) -> list[tuple[bytes, int]]:
    """All clicks, by page and number."""
    clicks: list[tuple[bytes, int]] = []
    async with client.consumer([TOPIC], auto_offset_reset="earliest") as consumer:
        deadline = time.monotonic() + 60
        while len(clicks) < CLICKS and time.monotonic() < deadline:
            for records in (await consumer.poll(timeout_ms=1_000)).values():
                clicks += [(record.key or b"", int(record.value or -1)) for record in records]
        surplus = await consumer.poll(timeout_ms=200)
        clicks += [(b"one too many", -1) for records in surplus.values() for _ in records]
    return clicks


def check(clicks: list[tuple[bytes, int]], acknowledged: int) -> None:
    """Every click once, and those of a page in their order; else say what is wrong."""
    numbers = [number for _, number in clicks]
    if sorted(numbers) != list(range(acknowledged)):
        lost = len(set(range(acknowledged)) - set(numbers))
        raise SystemExit(f"wrong: {lost} clicks are lost, {len(numbers) - len(set(numbers))} are there twice")
    latest: dict[bytes, int] = {}
    for page, number in clicks:
        if number <= latest.get(page, -1):
            raise SystemExit(f"wrong: click {number} of {page!r} comes after {latest[page]}")
        latest[page] = number


class Broker:
    """A broker in a process of its own."""

    def __init__(self, folder: Path) -> None:
        self.port, controller_port = free_port(), free_port()
        self.address = f"127.0.0.1:{self.port}"
        self._config = folder / "server.properties"
        self._log = folder / "server.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._config.write_text(
            "process.roles=broker,controller\n"
            "node.id=1\n"
            f"listeners=PLAINTEXT://{self.address},CONTROLLER://127.0.0.1:{controller_port}\n"
            "controller.listener.names=CONTROLLER\n"
            f"controller.quorum.voters=1@127.0.0.1:{controller_port}\n"
            f"log.dirs={folder / 'data'}\n"
        )

    def format(self) -> None:
        """Give the data directory its identity."""
        uuid = subprocess.run([*MOLDAU, "storage", "random-uuid"], check=True, capture_output=True, text=True)
        cluster_id = uuid.stdout.strip()
        command = [*MOLDAU, "storage", "format", "-c", str(self._config), f"--cluster-id={cluster_id}"]
        subprocess.run(command, check=True, capture_output=True)

    async def start(self) -> float:
        """Start it, and wait until it accepts connections; gives how long that took."""
        began = time.monotonic()
        self._launch()
        while True:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return time.monotonic() - began
            if not self._is_running() or time.monotonic() - began > 30:
                raise SystemExit(f"the broker did not start:\n{self._log.read_text()}")
            await asyncio.sleep(0.01)

    def _launch(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*MOLDAU, "start", "-c", str(self._config)], stdout=log, stderr=log
            )

    def _is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        """End it at once, as the kernel does when there is no memory left."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()


def free_port() -> int:
    """A port that nobody uses now."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


if __name__ == "__main__":
    main()
