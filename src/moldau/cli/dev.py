"""`moldau dev`: a broker to develop against, from nothing to its first record in half a second."""

from __future__ import annotations

import logging
import os
import shlex
import socket
import sys
from typing import TYPE_CHECKING, Final

import click

import moldau
from moldau.cli._config import override_option, parse_overrides
from moldau.cli._loading import end_quietly_until_served, loading
from moldau.cli._output import note, styled

if TYPE_CHECKING:
    from moldau.node.node import Node
    from moldau.world.ports import Address

HOST: Final = "127.0.0.1"
PORT: Final = 9092
CONTROLLER_PORT: Final = 9093
DIRECTORY: Final = "moldau-data"

# What a directory may begin with that was never formatted to the end, or is a disk of its own.
_OF_FORMATTING: Final = (".lock", "__cluster_metadata-0", "bootstrap.", "lost+found", "meta.properties")
# One broker keeps everything once. Its own topics need few partitions, and a group that one developer starts
# has no other members to wait for.
_SETTINGS: Final = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "moldau.admin.listener": f"{HOST}:0",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.assignment.interval.ms": "0",
}


@click.command()
@click.option(
    "--dir",
    "directory",
    metavar="DIR",
    type=click.Path(file_okay=False),
    default=DIRECTORY,
    show_default=True,
    help="Where the data is; made if it is not there.",
)
@click.option(
    "--port",
    metavar="PORT",
    type=click.IntRange(0, 0xFFFF),
    help=f"Where to listen, 0 for any free port.  [default: {PORT}, or a free one if that is taken]",
)
@override_option
@click.option("-v", "--verbose", "is_verbose", is_flag=True, help="Tell what the broker does, on stderr.")
def command(directory: str, port: int | None, overrides: tuple[str, ...], is_verbose: bool) -> None:
    """Run a broker to develop against, with nothing to set up.

    It listens for this machine only, without any security. Its data stays in the directory, and is there
    again the next time; remove the directory to begin anew. Ctrl-C stops it.

    \b
    Examples:
      moldau dev
      moldau dev --dir elsewhere --port 0 --override num.partitions=3
    """
    end_quietly_until_served()
    with loading():
        from moldau.cli._serving import complaints, refuse_open_listeners, refuse_without_assertions, run_node
        from moldau.cli.storage import format_if_new, is_formatted
        from moldau.node.config import NodeConfig
        from moldau.node.logs import configure, get_logger
        from moldau.node.storage import UnusableDirectory
    refuse_without_assertions()
    given = parse_overrides(overrides)
    held = held_ports(port)
    client_port, controller_port = (address.port for address in held)
    if port is None and client_port != PORT and "listeners" not in given:
        note(f"Port {PORT} is taken, so this is port {client_port}.")
    configure(sys.stderr, level=logging.INFO if is_verbose else logging.WARNING)
    with complaints(directory):
        config = NodeConfig.of(settings(directory, port=client_port, controller_port=controller_port) | given)
        refuse_open_listeners(config, otherwise="use moldau start, which has --insecure")
        for warning in config.warnings:
            if warning.startswith(tuple(given)):
                get_logger(__name__).warning(warning)
    # What was overridden may be somewhere else.
    directory = config.log_directory
    for address in held.keys() - {listener.bind for listener in config.listeners}:
        held.pop(address).close()
    with complaints(directory):
        if not is_formatted(directory) and has_other_files(directory):
            raise UnusableDirectory(f"The directory {directory} has other files in it: --dir names another.")
        format_if_new(config, None)
    run_node(config, on_ready=welcome, held=held)
    again = "" if directory == DIRECTORY else f" --dir {shlex.quote(directory)}"
    note(f"Stopped. The data is in {directory}; moldau dev{again} goes on from there.")


def settings(directory: str, *, port: int, controller_port: int) -> dict[str, str]:
    """The settings of a broker that is its own controller."""
    return _SETTINGS | {
        "listeners": f"PLAINTEXT://{HOST}:{port},CONTROLLER://{HOST}:{controller_port}",
        "controller.quorum.bootstrap.servers": f"{HOST}:{controller_port}",
        "log.dirs": directory,
    }


def held_ports(wanted: int | None) -> dict[Address, socket.socket]:
    """Where clients and controllers connect to, listened at already, so that nobody takes it meanwhile."""
    from moldau.world.ports import Address

    # Whoever runs several names their ports, and none of them needs the usual one for itself.
    ports = (held_port(wanted, PORT), held_port(None if wanted is None else 0, CONTROLLER_PORT))
    for port in ports:
        click.get_current_context().call_on_close(port.close)
    return {Address(HOST, port.getsockname()[1]): port for port in ports}


def held_port(wanted: int | None, usual: int) -> socket.socket:
    """The port that was asked for; else the usual one, or any if that is taken."""
    for port in (usual, 0) if wanted is None else (wanted,):
        try:
            return socket.create_server((HOST, port))
        except OSError as error:
            if port == wanted:
                raise click.ClickException(
                    f"Port {port} cannot be had: {os.strerror(error.errno or 0)}."
                ) from error
    raise AssertionError("some port is always free")


def has_other_files(directory: str) -> bool:
    """Whether there is something in a directory that formatting it, perhaps halfway, has not left there."""
    names = os.listdir(directory) if os.path.isdir(directory) else []
    return any(not name.startswith(_OF_FORMATTING) for name in names)


# ---------------------------------------------------------------- what it says


def welcome(node: Node) -> None:
    """Where it is, and something to copy for each way to speak to it."""
    from moldau.cli._serving import tell_that_it_serves

    tell_that_it_serves(node)
    listeners = node.config.broker_listeners
    # Of several, one whose clients need no settings, as those that follow have none.
    listener = next((each for each in listeners if each.tls is None), listeners[0])
    click.echo(welcome_text(str(listener.bind), node.config.log_directory))


def welcome_text(address: str, directory: str) -> str:
    """The text after the first line, which is for scripts."""
    is_usual = address == f"{HOST}:{PORT}"
    option = "" if is_usual else f" -b {address}"

    def title(text: str) -> str:
        return styled(text.ljust(9), bold=True)

    return f"""
Moldau {moldau.__version__}, one broker, its data in {directory}. Connect to {styled(address, bold=True)}

  {title("moldau")}moldau topic create{option} greetings
           moldau produce{option} greetings 'good morning'
           moldau consume{option} greetings

  {title("kcat")}echo 'good morning' | kcat -b {address} -P -t greetings
           kcat -b {address} -C -t greetings -e

  {title("Python")}from confluent_kafka import Producer
           producer = Producer({{"bootstrap.servers": "{address}"}})
           producer.produce("greetings", "good morning")
           producer.flush()

Ctrl-C stops it."""
