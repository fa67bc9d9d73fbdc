"""`moldau start`: what it refuses, how it says that it serves, and how it ends."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from world.certificates import Authority

from moldau.cli import main

# A node that serves nothing, and takes as long to stop as its first argument says.
STAND_IN = """
import asyncio, sys, types
from moldau.node.config import CannotListen
from moldau.node.registration import RegistrationRefused
from moldau.node.storage import UnusableDirectory
from moldau.world.ports import Address

class Node:
    def __init__(self, world, config, *, metrics, cluster_id):
        self.world, self.config, self.on_ready, self.admin_address = world, config, None, None

    async def run(self):
        if sys.argv[1] == "refuses":
            raise UnusableDirectory("The directory is not formatted.")
        if sys.argv[1] == "has a bug":
            raise AssertionError("impossible")
        if sys.argv[1] == "has no port":
            raise CannotListen("Listener X", Address("::1", 7), OSError(98, "whatever the loop says"))
        if sys.argv[1] == "has no room":
            raise OSError(28, "No space left on device", "data/x.log")
        if sys.argv[1] == "is refused":
            raise RegistrationRefused("the controller refuses this broker")
        self.on_ready()
        try:
            await asyncio.Event().wait()
        finally:
            if sys.argv[1] == "hangs":
                print("hanging", flush=True)
                await asyncio.Event().wait()

sys.modules["moldau.node.node"] = types.SimpleNamespace(Node=Node)
from moldau.cli import main
main(["start", *sys.argv[2:]], prog_name="moldau")
"""


@pytest.fixture
def settings(tmp_path: Path) -> Path:
    path = tmp_path / "server.properties"
    path.write_text(
        f"""
        process.roles=broker,controller
        node.id=1
        listeners=PLAINTEXT://localhost:9092,CONTROLLER://127.0.0.1:9093
        controller.listener.names=CONTROLLER
        controller.quorum.bootstrap.servers=localhost:9093
        num.network.threads=3
        log.dirs={tmp_path / "data"}
        """
    )
    return path


@contextmanager
def started(behaviour: str, settings: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", STAND_IN, behaviour, "-c", str(settings), *arguments]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def refused(settings: Path, *arguments: str) -> Result:
    result = CliRunner().invoke(main, ["start", "-c", str(settings), *arguments])
    assert result.exit_code == 1
    assert len(result.stderr.splitlines()) == 1
    return result


# ---------------------------------------------------------------- serving


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_node_says_that_it_serves_and_ends_when_it_is_told(settings: Path, number: signal.Signals) -> None:
    with started("serves", settings) as process:
        assert first_line(process) == (
            "moldau is ready: listening at CONTROLLER://127.0.0.1:9093, PLAINTEXT://localhost:9092\n"
        )
        process.send_signal(number)
        stdout, stderr = process.communicate(timeout=30)
    assert process.returncode == 0, stderr
    assert stdout == ""
    events = [json.loads(line)["event"] for line in stderr.splitlines()]
    assert events == ["num.network.threads is accepted but has no effect.", "stopping", "stopped"]


def test_a_second_signal_ends_a_node_that_hangs(settings: Path) -> None:
    with started("hangs", settings) as process:
        assert first_line(process).startswith("moldau is ready")
        process.send_signal(signal.SIGTERM)
        assert first_line(process) == "hanging\n"
        process.send_signal(signal.SIGTERM)
        _, stderr = process.communicate(timeout=30)
    assert process.returncode == 1
    assert json.loads(stderr.splitlines()[-1])["event"].startswith("stopped at once")


# ---------------------------------------------------------------- not serving


@pytest.mark.parametrize(
    ("behaviour", "message"),
    [
        ("refuses", "Error: The directory is not formatted."),
        ("has no port", "Error: Listener X cannot listen at [::1]:7: Address already in use."),
        ("has no room", "Error: data/x.log: No space left on device."),
        ("is refused", "Error: the controller refuses this broker."),
    ],
)
def test_a_mistake_of_the_user_is_one_line(settings: Path, behaviour: str, message: str) -> None:
    with started(behaviour, settings) as process:
        stdout, stderr = process.communicate(timeout=30)
    assert process.returncode == 1
    assert stdout == ""
    assert stderr.splitlines()[1:] == [message]


def test_a_mistake_of_ours_is_a_traceback(settings: Path) -> None:
    with started("has a bug", settings) as process:
        _, stderr = process.communicate(timeout=30)
    assert process.returncode == 1
    assert "AssertionError: impossible" in stderr
    assert "Traceback" in stderr


def test_settings_are_checked_with_what_overrides_them(settings: Path) -> None:
    assert (
        "process.roles: every item must be one of"
        in refused(settings, "--override", "process.roles=x").stderr
    )
    assert "Did you mean node.id" in refused(settings, "--override", "node.idd=1").stderr
    wrong = CliRunner().invoke(main, ["start", "-c", str(settings), "--override", "node.id"])
    assert wrong.exit_code == 2
    assert "must be NAME=VALUE" in wrong.stderr


@pytest.mark.parametrize("host", ["", "192.168.1.1", "example.org", "[::2]"])
def test_other_machines_are_not_let_in_by_mistake(settings: Path, host: str) -> None:
    listeners = f"listeners=PLAINTEXT://{host}:9092,CONTROLLER://localhost:9093"
    message = refused(settings, "--override", listeners).stderr
    assert "Listener PLAINTEXT at" in message
    assert "--insecure" in message
    with started("serves", settings, "--override", listeners, "--insecure") as process:
        assert f"PLAINTEXT://{host}:9092" in first_line(process)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.1.2.3", "[::1]"])
def test_this_machine_is_let_in(settings: Path, host: str) -> None:
    listeners = f"listeners=PLAINTEXT://{host}:9092,CONTROLLER://{host}:9093"
    with started("serves", settings, "--override", listeners) as process:
        assert first_line(process).startswith("moldau is ready")


def test_other_machines_are_let_in_with_tls_and_a_certificate(settings: Path, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    identity, trusted = tmp_path / "server.pem", tmp_path / "trusted.pem"
    identity.write_text(authority.identity("server"))
    trusted.write_text(authority.certificate)
    overrides = [
        "listeners=PLAINTEXT://localhost:9092,CLIENTS://:9094,CONTROLLER://localhost:9093",
        "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CLIENTS:SSL,CONTROLLER:PLAINTEXT",
        "ssl.keystore.type=PEM",
        f"ssl.keystore.location={identity}",
        "ssl.truststore.type=PEM",
        f"ssl.truststore.location={trusted}",
    ]
    for laxness in ("none", "requested"):
        lax = [f"--override={each}" for each in (*overrides, f"ssl.client.auth={laxness}")]
        assert "Listener CLIENTS at :9094" in refused(settings, *lax).stderr
    overrides.append("ssl.client.auth=required")
    with started("serves", settings, *(f"--override={each}" for each in overrides)) as process:
        assert "CLIENTS://:9094" in first_line(process)


def test_assertions_cannot_be_switched_off(settings: Path) -> None:
    command = [sys.executable, "-O", "-m", "moldau", "start", "-c", str(settings)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("Error: A node does not run under python -O")
