"""`moldau start`: what it refuses, how it says that it serves, and how it ends."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from world.certificates import Authority

from moldau.cli import main
from moldau.node.environment import variable_of
from moldau.testing.ports import ReservedPort

MOLDAU = [sys.executable, "-m", "moldau"]
CLUSTER = "2R5ePzDyTw2zrZk5bWWzbg"

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


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("module", ["moldau.cli._serving", "moldau.node.node"])
@pytest.mark.parametrize("command", ["start", "dev"])
def test_a_node_that_is_told_to_end_before_it_serves_ends_well(
    settings: Path, tmp_path: Path, command: str, module: str, number: signal.Signals
) -> None:
    script = f"""
import os, sys
class Signalled:
    def find_spec(self, name, *rest):
        if name == {module!r}:
            os.kill(os.getpid(), {int(number)})
sys.meta_path.insert(0, Signalled())
from moldau.cli import main
main()
"""
    options = (
        ["-c", str(settings)] if command == "start" else ["--port", "0", "--dir", str(tmp_path / "data")]
    )
    done = subprocess.run(
        [sys.executable, "-c", script, command, *options],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert "Traceback" not in done.stderr


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


# ---------------------------------------------------------------- real nodes


@pytest.fixture
def node(tmp_path: Path) -> Iterator[dict[str, str]]:
    """The settings of a real node, as variables."""
    port, controller_port = ReservedPort(), ReservedPort()
    settings = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "listeners": f"PLAINTEXT://{port.address},CONTROLLER://{controller_port.address}",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": controller_port.address,
        "log.dirs": str(tmp_path / "data"),
    }
    yield {variable_of(name): text for name, text in settings.items()}
    port.close()
    controller_port.close()


@contextmanager
def running(variables: Mapping[str, str], *arguments: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [*MOLDAU, "start", *arguments],
        env={**os.environ, "KAFKA_HOME": "x", "KAFKA_HEAP_OPTS": "-Xmx1g", "KAFKA_PORT": "x", **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def error_of(variables: Mapping[str, str], *arguments: str) -> str:
    """The one line with which a node does not start."""
    with running(variables, *arguments) as process:
        stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 1, stderr
    assert stdout == ""
    assert "Traceback" not in stderr
    *events, error = stderr.splitlines()
    assert all(json.loads(event)["level"] in ("info", "warning", "error") for event in events)
    assert error.startswith("Error: ")
    return error.removeprefix("Error: ")


def test_a_node_starts_from_its_environment_alone_and_knows_its_cluster(
    node: dict[str, str], tmp_path: Path
) -> None:
    directory = tmp_path / "data"
    assert f"The directory {directory} is not formatted. Run: moldau storage format" in error_of(node)
    with running(node | {"CLUSTER_ID": CLUSTER}, "--format") as process:
        assert first_line(process).startswith("moldau is ready: listening at CONTROLLER://127.0.0.1:")
        assert error_of(node) == f"The directory {directory} is in use by another process."
        process.terminate()
        assert process.wait(timeout=60) == 0
    why = f"The directory {directory} belongs to the cluster {CLUSTER}, not to another."
    assert (
        error_of(node, "--cluster-id", "another") == error_of(node, "--cluster-id=another", "--format") == why
    )
    assert "belongs to node 1, and node.id is 2" in error_of(node | {"KAFKA_NODE_ID": "2"})
    with running(node | {"CLUSTER_ID": "for others"}, "--cluster-id", CLUSTER) as process:
        assert first_line(process).startswith("moldau is ready")
        process.terminate()
        assert process.wait(timeout=60) == 0


def test_flags_come_before_variables_before_the_file(node: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "server.toml").write_text(
        f"node.id = 5\n[log]\ndirs = {json.dumps(str(tmp_path / 'data'))}\n[num]\npartitions = 2\n"
    )
    del node["KAFKA_LOG_DIRS"]
    arguments = ["-c", str(tmp_path / "server.toml"), "--override", "num.partitions=0"]
    assert error_of(node, *arguments).startswith("--override: Invalid value '0' for num.partitions")
    with running(
        node, *arguments[:2], "--format", "--override", "moldau.admin.listener=127.0.0.1:0"
    ) as process:
        assert first_line(process).startswith("moldau is ready")
        assert first_line(process).startswith("admin port at http://127.0.0.1:")
        process.terminate()
        assert process.wait(timeout=60) == 0
    assert "node.id=1\n" in (tmp_path / "data" / "meta.properties").read_text()


def test_a_broker_is_not_formatted_for_a_cluster_that_nobody_named(node: dict[str, str]) -> None:
    node |= {"KAFKA_PROCESS_ROLES": "broker", "KAFKA_LISTENERS": "PLAINTEXT://127.0.0.1:1"}
    assert error_of(node, "--format").endswith("joins a cluster that exists: give its --cluster-id.")


def test_a_port_that_is_taken_is_named_with_its_listener(node: dict[str, str]) -> None:
    name, _, address = node["KAFKA_LISTENERS"].split(",")[0].partition("://")
    with socket.create_server(("127.0.0.1", int(address.rpartition(":")[2]))):
        why = f"Listener {name} cannot listen at {address}: Address already in use."
        assert error_of(node, "--format") == why
        admin = {"KAFKA_MOLDAU_ADMIN_LISTENER": address}
        other = f"moldau.admin.listener cannot listen at {address}: Address already in use."
        assert error_of(node | admin) == other


def test_a_name_that_leads_nowhere_is_no_address_to_listen_at(node: dict[str, str]) -> None:
    admin = {"KAFKA_MOLDAU_ADMIN_LISTENER": "nosuch.invalid:9644"}
    said = error_of(node | admin, "--format", "--insecure")
    assert said.startswith("moldau.admin.listener cannot listen at nosuch.invalid:9644: ")
    assert "Unknown error" not in said


def test_a_directory_that_cannot_be_written_is_named(node: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    directory = tmp_path / "file" / "data"
    node["KAFKA_LOG_DIRS"] = str(directory)
    assert error_of(node) == f"{directory}: Not a directory."
    assert error_of(node, "--format") == f"{directory}: Not a directory."


@pytest.mark.parametrize("size", ["8k", "16k", "24k"])
def test_a_full_disk_is_said_so(node: dict[str, str], tmp_path: Path, size: str) -> None:
    (tmp_path / "data").mkdir()
    mount = f"mount -t tmpfs -o size={size} none {shlex.quote(str(tmp_path / 'data'))}"
    private = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-ec"]
    if shutil.which("unshare") is None or subprocess.run([*private, mount], check=False).returncode != 0:
        pytest.skip("no file system can be mounted here")
    command = shlex.join([*MOLDAU, "start", "--format"])
    done = subprocess.run(
        [*private, f"{mount}; exec {command}"],
        env={**os.environ, **node},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert done.stderr.splitlines()[-1].startswith(f"Error: {tmp_path / 'data'}")
    assert done.stderr.splitlines()[-1].endswith("No space left on device.")


def test_the_admin_port_is_for_this_machine_unless_that_is_asked_for(settings: Path) -> None:
    override = ["--override", "moldau.admin.listener=0.0.0.0:0"]
    assert "The admin port at 0.0.0.0:0 can be reached" in refused(settings, *override).stderr
    with started("serves", settings, *override, "--insecure") as process:
        assert first_line(process).startswith("moldau is ready")


def test_without_any_settings_it_is_told_where_they_go() -> None:
    result = CliRunner(env={name: None for name in os.environ if name.startswith("KAFKA_")}).invoke(
        main, ["start"]
    )
    assert result.exit_code == 2
    assert "Give --config FILE, or the settings as KAFKA_..." in result.stderr
