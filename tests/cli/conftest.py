"""What the tests of commands share: a broker per module, and the command line in this process."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from click.testing import CliRunner, Result
from clients.broker_process import PRODUCTS, BrokerProcess

from moldau.cli import main

Cli = Callable[..., Result]
JsonOf = Callable[..., Any]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker in a process of its own, one for all tests of a module."""
    process = BrokerProcess(PRODUCTS["moldau"], tmp_path_factory.mktemp("broker"))
    yield process
    process.stop()


@pytest.fixture
def cli(broker: BrokerProcess) -> Cli:
    """`moldau` with these arguments, against the broker; fails unless it ends with `exit_code`."""

    def run(*arguments: str, input: str | bytes | None = None, exit_code: int = 0) -> Result:  # noqa: A002
        environment = {"MOLDAU_BOOTSTRAP_SERVER": broker.address}
        result = CliRunner(env=environment).invoke(main, list(arguments), input=input)
        said = f"{result.output}\n{result.exception!r}\n{broker.log_end()}"
        assert result.exit_code == exit_code, said
        return result

    return run


@pytest.fixture
def topic(cli: Cli, request: pytest.FixtureRequest) -> str:
    """A new topic with two partitions, named for the test."""
    name = "".join(letter if letter.isalnum() else "-" for letter in request.node.name)[:200]
    cli("topic", "create", name, "-p", "2")
    return name


@pytest.fixture
def log(cli: Cli, request: pytest.FixtureRequest) -> str:
    """The same with one partition, so that records stay in order, and none is too old."""
    name = "".join(letter if letter.isalnum() else "-" for letter in request.node.name)[:200]
    cli("topic", "create", name, "-p", "1", "-c", "retention.ms=-1")
    return name


@pytest.fixture
def json_of(cli: Cli) -> JsonOf:
    """What a command prints with `-o json`."""
    return lambda *arguments: json.loads(cli(*arguments, "-o", "json").stdout)
