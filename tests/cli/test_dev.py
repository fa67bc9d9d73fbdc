"""`moldau dev`: one command, and there is a broker; Ctrl-C, and everything is as it should be."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

import click
import pytest
from click.testing import CliRunner, Result
from clients.raw_client import RawClient
from prometheus_client.parser import text_string_to_metric_families

from moldau.cli import main
from moldau.cli.dev import has_other_files, held_port
from moldau.testing.ports import ReservedPort
from moldau.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

MOLDAU = [sys.executable, "-m", "moldau"]
# What a shell of a Kafka developer may have set, none of which concerns this broker.
SURROUNDINGS = {
    "KAFKA_HOME": "x",
    "KAFKA_OPTS": "-Dx=y",
    "KAFKA_NODE_ID": "7",
    "KAFKA_LISTENERS": "PLAINTEXT://0.0.0.0:1",
    "KAFKA_LOG_DIRS": "elsewhere",
    "CLUSTER_ID": "x",
}


class Dev:
    """A `moldau dev` that is ready."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        self.process = process
        lines: list[str] = []
        while not lines or not lines[-1].startswith("Ctrl-C"):
            lines.append(process.stdout.readline())
            assert lines[-1] or len(lines) > 1, process.communicate()
        self.said = "".join(lines)

    @property
    def address(self) -> str:
        """Where clients connect to, from the line that scripts wait for."""
        found = re.match(r"moldau is ready: listening at .*PLAINTEXT://(\S+)\n", self.said)
        assert found is not None, self.said
        return found[1]

    def page(self, path: str) -> str:
        """What the admin port says."""
        found = re.search(r"^admin port at (http://\S+)$", self.said, re.MULTILINE)
        assert found is not None, self.said
        with urlopen(found[1] + path, timeout=30) as response:
            text = response.read().decode()
        assert isinstance(text, str)
        return text

    def to_copy(self, title: str) -> str:
        """What it gives to copy for one way to speak to it."""
        found = re.search(rf"^  {title} +(.*\n(?: {{11}}.*\n)*)", self.said, re.MULTILINE)
        assert found is not None, self.said
        return textwrap.dedent(" " * 11 + found[1])

    def stop(self, number: signal.Signals = signal.SIGINT) -> str:
        """End it as Ctrl-C does; gives what it said on stderr."""
        self.process.send_signal(number)
        stdout, stderr = self.process.communicate(timeout=60)
        assert self.process.returncode == 0, stderr
        assert stdout == ""
        return stderr


@contextmanager
def dev(folder: Path, *arguments: str) -> Iterator[Dev]:
    with subprocess.Popen(
        [*MOLDAU, "dev", "--port", "0", *arguments],
        cwd=folder,
        env={**os.environ, **SURROUNDINGS},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield Dev(process)
        finally:
            process.kill()


def refused(*arguments: object) -> str:
    result: Result = CliRunner().invoke(main, ["dev", *map(str, arguments)])
    assert result.exit_code == 1, result.output
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    return line


def test_what_is_there_to_copy_works_and_is_there_again_the_next_time(tmp_path: Path) -> None:
    with dev(tmp_path) as broker:
        for line in broker.to_copy("moldau").splitlines():
            subprocess.run([sys.executable, "-m", *shlex.split(line)], check=True, cwd=tmp_path)
        script = tmp_path / "snippet.py"
        script.write_text(broker.to_copy("Python"))
        subprocess.run([sys.executable, str(script)], check=True, timeout=60)
        if shutil.which("kcat") is not None:
            done = subprocess.run(
                ["sh", "-ec", broker.to_copy("kcat")], check=True, timeout=60, capture_output=True, text=True
            )
            assert done.stdout == "good morning\n" * 3
        assert broker.stop() == "Stopped. The data is in moldau-data; moldau dev goes on from there.\n"
    with dev(tmp_path) as broker, RawClient(broker.address) as client:
        assert client.values("greetings")[:2] == [b"good morning"] * 2
        broker.stop(signal.SIGTERM)
    assert (tmp_path / "moldau-data" / ".kafka_cleanshutdown").exists()


@pytest.mark.parametrize("arguments", [("topic", "list"), ("topic", "create", "orders")])
def test_whoever_asks_the_port_of_the_controller_is_told_what_it_is(
    tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    with dev(tmp_path) as broker:
        found = re.search(r"CONTROLLER://([^,\s]+)", broker.said)
        assert found is not None
        result = CliRunner().invoke(main, [*arguments, "-b", found[1]])
    assert result.exit_code == 1
    assert f"{found[1]}: This is the port of a controller, which serves no clients" in result.stderr


def test_a_group_that_one_developer_reads_in_again_waits_for_nobody(tmp_path: Path) -> None:
    # So rare that nobody gets partitions with the next one while this test lasts.
    rare = [f"group.consumer.{each}heartbeat.interval.ms=40000" for each in ("", "max.")]
    with dev(tmp_path, *(word for setting in rare for word in ("--override", setting))) as broker:

        def printed(*words: str) -> str:
            result = CliRunner().invoke(main, [*words, "-b", broker.address, "--timeout", "30"])
            assert result.exit_code == 0, result.output
            return result.stdout

        printed("topic", "create", "orders")
        for number in ("1", "2"):
            printed("produce", "orders", number)
            assert printed("consume", "orders", "--group", "g") == f"{number}\n"


def test_the_admin_port_tells_how_it_is(tmp_path: Path) -> None:
    with dev(tmp_path, "--dir", "a b", "--override", "num.partitions=3") as broker:
        assert broker.page("/readyz") == broker.page("/livez") == "ok\n"
        with RawClient(broker.address) as client:
            orders = MetadataRequestTopic(name="orders")
            client.ask(MetadataRequest(topics=[orders]), 12, MetadataResponse)
        samples = {
            sample.name: sample.value
            for family in text_string_to_metric_families(broker.page("/metrics"))
            for sample in family.samples
            if not sample.labels
        }
        assert samples["moldau_partitions"] == 3
        assert samples["process_cpu_seconds_total"] > 0
        assert samples["process_resident_memory_bytes"] > 10_000_000
        assert 0 < samples["process_open_fds"] < samples["process_max_fds"]
        assert samples["process_start_time_seconds"] > 1_700_000_000
        assert broker.stop().endswith("moldau dev --dir 'a b' goes on from there.\n")


def test_a_directory_has_one_broker(tmp_path: Path) -> None:
    with dev(tmp_path):
        directory = tmp_path / "moldau-data"
        line = refused("--dir", directory, "--port", 0)
        assert line == f"Error: The directory {directory} is in use by another process."


def test_a_directory_with_something_else_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("")
    line = refused("--dir", tmp_path, "--port", 0)
    assert line == f"Error: The directory {tmp_path} has other files in it: --dir names another."
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


@pytest.mark.parametrize("name", [".lock", "bootstrap.checkpoint.tmp", "__cluster_metadata-0", "lost+found"])
def test_a_directory_that_was_formatted_halfway_is_no_obstacle(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    assert not has_other_files(str(tmp_path))
    assert not has_other_files(str(tmp_path / "none"))


def test_a_port_that_is_taken_is_replaced_unless_it_was_asked_for(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken = server.getsockname()[1]
        with held_port(None, taken) as instead:
            found = instead.getsockname()[1]
            assert found not in (0, taken)
        with pytest.raises(click.ClickException):
            held_port(taken, found)
        line = refused("--dir", tmp_path / "data", "--port", taken)
        assert line == f"Error: Port {taken} cannot be had: Address already in use."
    with held_port(None, found) as usual:
        assert usual.getsockname()[1] == found
        # Nobody else gets it, although it is not served yet.
        with held_port(None, found) as other:
            assert other.getsockname()[1] != found


def test_several_that_start_together_have_a_port_each(tmp_path: Path) -> None:
    environment = {**os.environ, **SURROUNDINGS}
    started = [
        subprocess.Popen(
            [*MOLDAU, "dev", "--dir", str(tmp_path / name)],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for name in "abc"
    ]
    try:
        addresses = [Dev(process).address for process in started]
        assert len(set(addresses)) == len(started)
    finally:
        for process in started:
            process.kill()
            process.communicate()


def test_what_is_said_fits_listeners_and_directories_that_were_overridden(tmp_path: Path) -> None:
    ports = [ReservedPort() for _ in range(3)]
    clients, inside, controller = (port.address for port in ports)
    overrides = {
        "listeners": f"INSIDE://{inside},CLIENTS://{clients},CONTROLLER://{controller}",
        "listener.security.protocol.map": "INSIDE:PLAINTEXT,CLIENTS:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "INSIDE",
        "controller.quorum.bootstrap.servers": controller,
        "log.dirs": "elsewhere",
    }
    # What lies in a directory that is not used is no obstacle.
    (tmp_path / "moldau-data").mkdir()
    (tmp_path / "moldau-data" / "thesis.txt").write_text("")
    options = [word for name, text in overrides.items() for word in ("--override", f"{name}={text}")]
    with dev(tmp_path, *options) as broker:
        assert f"its data in elsewhere. Connect to {inside}\n" in broker.said
        assert (
            broker.stop()
            == "Stopped. The data is in elsewhere; moldau dev --dir elsewhere goes on from there.\n"
        )
    for port in ports:
        port.close()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.txt").write_text("")
    line = refused("--port", 0, "--override", f"log.dirs={tmp_path / 'other'}")
    assert line == f"Error: The directory {tmp_path / 'other'} has other files in it: --dir names another."


def test_whoever_wants_to_be_reached_from_elsewhere_is_sent_to_the_command_that_can(tmp_path: Path) -> None:
    overrides = [
        "listeners=PLAINTEXT://0.0.0.0:0,CONTROLLER://127.0.0.1:0",
        "advertised.listeners=PLAINTEXT://x:1",
    ]
    options = [word for each in overrides for word in ("--override", each)]
    line = refused("--dir", tmp_path / "data", "--port", 0, *options)
    assert line.endswith("let it listen at localhost, or use moldau start, which has --insecure.")


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("num.partitons=3", "There is no broker setting 'num.partitons'. Did you mean num.partitions"),
        ("num.partitions=0", "Invalid value '0' for num.partitions: must be at least 1."),
        ("listeners=PLAINTEXT://0.0.0.0:0,CONTROLLER://127.0.0.1:0", "Listener PLAINTEXT "),
    ],
)
def test_a_mistake_is_one_line(tmp_path: Path, override: str, message: str) -> None:
    overrides = ["--override", override, "--override", "advertised.listeners=PLAINTEXT://localhost:1"]
    assert refused("--dir", tmp_path / "data", "--port", 0, *overrides).startswith(f"Error: {message}")
    assert not (tmp_path / "data").exists()


def test_a_broker_loads_nothing_that_only_others_need() -> None:
    script = (
        "import sys, moldau.cli.dev, moldau.cli._serving, moldau.cli.storage, moldau.node.node\n"
        "print([name for name in ('argparse', 'email', 'importlib.metadata', 'moldau.client', 'moldau.sim',"
        " 'numpy', 'rich', 'tomllib') if name in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout == "[]\n"


def test_help_loads_no_broker() -> None:
    script = (
        "import sys; from moldau.cli import main\n"
        "for name in ('dev', 'start'): main([name, '--help'], standalone_mode=False)\n"
        "print([name for name in ('asyncio', 'moldau.node', 'moldau.model') if name in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout.splitlines()[-1] == "[]"
