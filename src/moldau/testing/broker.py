"""A broker in a process of its own, which tests may kill, pause and start again on the same data."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Mapping
from concurrent.futures import Executor
from pathlib import Path
from typing import Final

from moldau.testing.ports import ReservedPort

# Named here and read by the command line: the process with which a command ends.
PARENT_VARIABLE: Final = "MOLDAU_ENDS_WITH"
# What a broker is given, and nobody else can choose.
OWN_SETTINGS: Final = (
    *("process.roles", "node.id", "listeners", "controller.listener.names"),
    *("controller.quorum.bootstrap.servers", "log.dirs"),
)
STOP_TIMEOUT_S: Final = 30.0
LOG_LINES: Final = 30

_NOT_INHERITED: Final = ("KAFKA_", "CLUSTER_ID", "PYTHONOPTIMIZE")
_POLL_S: Final = 0.01


class BrokerFailed(RuntimeError):
    """A broker did not do what was asked of it; the text ends with the last lines of its log."""


class Broker:
    """One broker that is its own controller.

    Its processes are started by `spawner`, which has one thread: a process ends when that thread does.
    """

    def __init__(self, node_id: int, folder: Path, settings: Mapping[str, str], *, spawner: Executor) -> None:
        assert not any(name in OWN_SETTINGS for name in settings), "the caller has looked"
        self.node_id = node_id
        self.folder = folder
        self.log_path = folder / "server.log"
        self._port, self._controller_port = ReservedPort(), ReservedPort()
        self._config = folder / "server.properties"
        self._spawner = spawner
        self._process: subprocess.Popen[bytes] | None = None
        self._is_expected_to_run = False
        own = {
            "process.roles": "broker,controller",
            "node.id": str(node_id),
            "listeners": f"PLAINTEXT://{self._port.address},CONTROLLER://{self._controller_port.address}",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": self._controller_port.address,
            "log.dirs": str(folder / "data"),
        }
        assert tuple(own) == OWN_SETTINGS
        folder.mkdir(parents=True, exist_ok=True)
        self._config.write_text(_properties({**settings, **own}), encoding="utf-8")

    @property
    def address(self) -> str:
        """Where clients find it, as `host:port`; the same through all its lives."""
        return self._port.address

    @property
    def pid(self) -> int | None:
        """The id of its process; None if there is none."""
        return self._process.pid if self._process is not None and self.is_running() else None

    def is_running(self) -> bool:
        """Whether there is a process, paused or not."""
        return self._process is not None and self._process.poll() is None

    # ------------------------------------------------------------ its life

    def start(self, timeout_s: float) -> None:
        """Start the process and wait until clients are served; nothing if it runs already."""
        if self.is_running():
            return
        deadline = time.monotonic() + timeout_s
        self._process = self._spawn()
        self._is_expected_to_run = True
        while not self._port.is_served():
            if not self.is_running():
                self._is_expected_to_run = False
                raise self._failed(f"ended with exit code {self._process.returncode} instead of serving")
            if time.monotonic() > deadline:
                self.kill()
                raise self._failed(f"did not serve within {timeout_s:g} s")
            time.sleep(_POLL_S)

    def shut_down(self) -> None:
        """End the process in an orderly way, as SIGTERM does."""
        self._is_expected_to_run = False
        self.resume()
        process = self._signal(signal.SIGTERM)
        if process is None:
            return
        try:
            process.wait(timeout=STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise self._failed(f"did not stop within {STOP_TIMEOUT_S:g} s") from None

    def kill(self) -> None:
        """End the process as kill -9 does."""
        self._is_expected_to_run = False
        process = self._signal(signal.SIGKILL)
        if process is not None:
            process.wait()

    def pause(self) -> None:
        """Let it hang: it stays connected, and does nothing."""
        process = self._signal(signal.SIGSTOP)
        if process is not None:
            # It has stopped when this returns, unless it has ended.
            os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def resume(self) -> None:
        """Let it go on, if it was paused."""
        self._signal(signal.SIGCONT)

    def close(self) -> None:
        """End the process if there is one, and give back the ports."""
        self.kill()
        self._port.close()
        self._controller_port.close()

    # ------------------------------------------------------------ what it tells

    def log_end(self, lines: int = LOG_LINES) -> str:
        """The last lines of its log."""
        with contextlib.suppress(FileNotFoundError), open(self.log_path, errors="replace") as log:
            return "".join(deque(log, maxlen=lines))
        return ""

    def check(self) -> None:
        """Raise BrokerFailed if it has ended without being told to."""
        if self._is_expected_to_run and not self.is_running():
            assert self._process is not None, "it ran"
            raise self._failed(f"has ended by itself, with exit code {self._process.returncode}")

    def _failed(self, how: str) -> BrokerFailed:
        return BrokerFailed(f"Broker {self.node_id} {how}. The last lines of its log:\n{self.log_end()}")

    # ------------------------------------------------------------ within

    def _spawn(self) -> subprocess.Popen[bytes]:
        # What the environment says to brokers is not meant for these, which have assertions in any case.
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith(_NOT_INHERITED)
        }
        environment[PARENT_VARIABLE] = str(os.getpid())
        with open(self.log_path, "ab") as log:
            return self._spawner.submit(
                subprocess.Popen,
                [sys.executable, "-m", "moldau", "start", "--format", "--config", str(self._config)],
                cwd=self.folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # Ctrl-C at a terminal is for the tests, which then end their brokers.
                process_group=0,
            ).result()

    def _signal(self, number: signal.Signals) -> subprocess.Popen[bytes] | None:
        """Send a signal; gives the process, or None if there is none."""
        if self._process is None or self._process.poll() is not None:
            return None
        self._process.send_signal(number)
        return self._process


def _properties(settings: Mapping[str, str]) -> str:
    """A file of settings, as Java writes it."""
    escapes = str.maketrans({"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\f": "\\f", " ": "\\ "})
    return "".join(f"{name}={value.translate(escapes)}\n" for name, value in settings.items())
