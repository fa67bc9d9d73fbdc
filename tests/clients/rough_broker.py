"""Our broker in a process that tests may configure, measure, kill and start again on the same data."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from clients.raw_client import Closed, RawClient, wait_until

from moldau.testing.broker import PARENT_VARIABLE
from moldau.testing.ports import ReservedPort
from moldau.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

START_TIMEOUT_S = 60
STOP_TIMEOUT_S = 30
# What no test must ever find in a log: an exception that nobody foresaw.
_UNFORESEEN = ("Traceback", "Task exception was never retrieved", "AssertionError", "Exception ignored")
# As /proc/net/tcp says it.
_ESTABLISHED = "01"


class RoughBroker:
    """One broker and controller; a context manager that stops it, if it still runs."""

    def __init__(
        self,
        folder: Path,
        settings: Mapping[str, str] | None = None,
        *,
        data: Path | None = None,
        environment: Mapping[str, str] | None = None,
        protocol: str = "PLAINTEXT",
        wrapper: Sequence[str] = (),
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.data = data or folder / "data"
        # Kept through all lives of the broker, so that nobody takes its ports while it is down.
        self._ports = (ReservedPort(), ReservedPort())
        self.address, self.controller_address = (port.address for port in self._ports)
        self._log = folder / "server.log"
        self._config = folder / "server.properties"
        self._environment = os.environ | {PARENT_VARIABLE: str(os.getpid())} | dict(environment or {})
        self._is_plaintext = protocol == "PLAINTEXT"
        self._wrapper = list(wrapper)
        self._process: subprocess.Popen[bytes] | None = None
        everything = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "listeners": f"CLIENTS://{self.address},CONTROLLER://{self.controller_address}",
            "listener.security.protocol.map": f"CLIENTS:{protocol},CONTROLLER:{protocol}",
            "inter.broker.listener.name": "CLIENTS",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": self.controller_address,
            "log.dirs": str(self.data),
        } | dict(settings or {})
        self._config.write_text("".join(f"{name}={value}\n" for name, value in everything.items()))
        self._run("storage", "format", "--standalone", "--cluster-id", "TW9sZGF1Um91Z2hEYXlz")

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.is_running():
            self.stop()

    # ------------------------------------------------------------ its life

    def start(self) -> None:
        """Start the process, and wait until it serves."""
        said_before = self.log().count("moldau is ready")
        self.launch()

        def is_ready() -> bool:
            assert self.is_running(), f"the broker ended:\n{self.log()[-4000:]}"
            return self.log().count("moldau is ready") > said_before

        wait_until(is_ready, "the broker serves", START_TIMEOUT_S)

    def launch(self) -> None:
        """Start the process, and do not wait for anything."""
        with open(self._log, "ab") as log:
            self._process = subprocess.Popen(
                [*self._wrapper, *_command("start"), "--config", str(self._config)],
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._environment,
            )

    def stop(self) -> int:
        """End the process in an orderly way; gives its exit code."""
        self._running.terminate()
        return self.exit_code()

    def kill(self) -> None:
        """End the process as a power cut of its own would."""
        self._running.kill()
        self.exit_code()

    def exit_code(self) -> int:
        """What the process ends with."""
        process = self._running
        try:
            return process.wait(timeout=STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
            raise AssertionError(f"the broker does not stop:\n{self.log()[-4000:]}") from None

    def is_running(self) -> bool:
        """Whether the process is there."""
        return self._process is not None and self._process.poll() is None

    @property
    def _running(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, "the broker was started"
        return self._process

    # ------------------------------------------------------------ how it is

    def log(self) -> str:
        """All that it has written to its log."""
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def memory_bytes(self) -> int:
        """How much of the machine's memory it uses now."""
        return self._memory("VmRSS")

    def memory_bytes_peak(self) -> int:
        """The most that it has used since it was started, or since `forget_memory_peak`."""
        return self._memory("VmHWM")

    def forget_memory_peak(self) -> None:
        """Let the peak be what is used now."""
        Path(f"/proc/{self._running.pid}/clear_refs").write_text("5")

    def _memory(self, name: str) -> int:
        status = Path(f"/proc/{self._running.pid}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith(f"{name}:"))
        return int(line.split()[1]) * 1024

    def socket_count(self) -> int:
        """How many sockets it has open: listeners, clients, and connections to itself."""
        count = 0
        for descriptor in Path(f"/proc/{self._running.pid}/fd").iterdir():
            # It may have been closed since it was listed.
            with contextlib.suppress(FileNotFoundError):
                count += os.readlink(descriptor).startswith("socket:")
        return count

    def ports_connected(self) -> set[int]:
        """The ports of those whom it takes for connected."""
        own = int(self.address.rpartition(":")[2])
        found = set()
        for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
            local, remote, state = (line.split()[column] for column in (1, 2, 3))
            if int(local.partition(":")[2], 16) == own and state == _ESTABLISHED:
                found.add(int(remote.partition(":")[2], 16))
        return found

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal, and leave it at that."""
        self._running.send_signal(number)

    def connect(self, client_id: str = "raw", *, receive_bytes: int | None = None) -> RawClient:
        """A new connection."""
        return RawClient(self.address, client_id, receive_bytes=receive_bytes)

    def check_health(self) -> None:
        """It lives, it answers somebody new, and nothing unforeseen is in its log."""
        assert self.is_running(), f"the broker ended:\n{self.log()[-4000:]}"
        if self._is_plaintext:
            try:
                with self.connect("are you well") as client:
                    assert client.ask(ApiVersionsRequest(), 0, ApiVersionsResponse).error_code == 0
            except (OSError, Closed) as error:
                raise AssertionError(f"no answer: {error!r}\n{self.log()[-4000:]}") from error
        found = [text for text in _UNFORESEEN if text in self.log()]
        assert not found, f"{found} in the log:\n{self.log()[-8000:]}"

    # ------------------------------------------------------------ within

    def _run(self, *arguments: str) -> None:
        done = subprocess.run(
            [*_command(*arguments), "--config", str(self._config)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr


def _command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "moldau", *arguments]
