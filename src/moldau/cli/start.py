"""`moldau start`: run a node until it is told to stop."""

from __future__ import annotations

import ipaddress
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from moldau.cli._config import config_option, override_option, read_config
from moldau.cli._serving import complaints, refuse_without_assertions, run_node
from moldau.cli.storage import format_if_new
from moldau.model.ids import ClusterId
from moldau.node.config import ListenerConfig, NodeConfig
from moldau.node.logs import configure, get_logger
from moldau.world.ports import ClientAuth

if TYPE_CHECKING:
    from moldau.node.node import Node

log = get_logger(__name__)

# Where Kafka's own containers are told for which cluster they format their directory.
CLUSTER_ID_VARIABLE: Final = "CLUSTER_ID"


@click.command()
@config_option
@override_option
@click.option("--cluster-id", metavar="ID", help="Start only if the directory belongs to this cluster.")
@click.option(
    "--format",
    "is_formatting",
    is_flag=True,
    help="Format a directory that never was, for --cluster-id, $CLUSTER_ID or a new cluster.",
)
@click.option(
    "--insecure",
    is_flag=True,
    help="Listen where others than this machine can connect, without TLS and certificates of clients.",
)
def command(
    path: Path | None,
    overrides: tuple[str, ...],
    cluster_id: str | None,
    is_formatting: bool,
    insecure: bool,
) -> None:
    """Run a node until it is told to stop.

    What its settings are is said by --override, by variables such as KAFKA_LOG_RETENTION_MS, and by the
    file, in this order; moldau config explain shows what holds and why.

    SIGTERM and SIGINT stop it in an orderly way; a second one stops it at once, with exit code 1. What it
    has to tell goes to stderr: lines on a terminal, JSON elsewhere. When it serves, it says so on stdout.

    \b
    Examples:
      moldau start -c server.properties
      moldau start -c server.toml --override log.retention.hours=24
      KAFKA_NODE_ID=2 moldau start -c server.properties --format --cluster-id ID
    """
    refuse_without_assertions()
    config = read_config(path, overrides)
    if not insecure:
        refuse_open_listeners(config)
    configure(sys.stderr)
    for warning in config.warnings:
        log.warning(warning)
    if is_formatting:
        with complaints():
            format_if_new(config, cluster_id or os.environ.get(CLUSTER_ID_VARIABLE))
    run_node(
        config, on_ready=tell_that_it_serves, cluster_id=None if cluster_id is None else ClusterId(cluster_id)
    )


def refuse_open_listeners(config: NodeConfig) -> None:
    """Nobody is let in from other machines without TLS and a certificate, unless that was asked for."""
    for listener in config.listeners:
        if not is_loopback(listener.bind.host) and not is_closed(listener):
            raise click.ClickException(
                f"Listener {listener.name} at {listener.bind} can be reached from other machines: give it TLS"
                " with ssl.client.auth=required, let it listen at localhost, or start with --insecure."
            )
    if config.admin is not None and not is_loopback(config.admin.host):
        raise click.ClickException(
            f"The admin port at {config.admin} can be reached from other machines: let moldau.admin.listener"
            " be at localhost, or start with --insecure."
        )


def is_closed(listener: ListenerConfig) -> bool:
    """Whether a listener knows who connects, and nobody else can listen in."""
    return listener.tls is not None and listener.tls.client_auth is ClientAuth.REQUIRED


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach what listens there."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def tell_that_it_serves(node: Node) -> None:
    """One line for whoever waits for it, and one for whoever looks after the node."""
    addresses = ", ".join(f"{listener.name}://{listener.bind}" for listener in node.config.listeners)
    click.echo(f"moldau is ready: listening at {addresses}")
    if node.admin_address is not None:
        click.echo(f"admin port at http://{node.admin_address}")
