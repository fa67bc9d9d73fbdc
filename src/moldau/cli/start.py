"""`moldau start`: run a node until it is told to stop."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

import click

from moldau.cli._config import config_option, override_option, read_config
from moldau.cli._loading import end_quietly_until_served, loading

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
    end_quietly_until_served()
    with loading():
        from moldau.cli._serving import (
            complaints,
            refuse_open_listeners,
            refuse_without_assertions,
            run_node,
            tell_that_it_serves,
        )
        from moldau.cli.storage import format_if_new
        from moldau.model.ids import ClusterId
        from moldau.node.logs import configure, get_logger
    refuse_without_assertions()
    config = read_config(path, overrides)
    if not insecure:
        refuse_open_listeners(config, otherwise="start with --insecure")
    configure(sys.stderr)
    log = get_logger(__name__)
    for warning in config.warnings:
        log.warning(warning)
    if is_formatting:
        with complaints(config.log_directory):
            format_if_new(config, cluster_id or os.environ.get(CLUSTER_ID_VARIABLE))
    wanted = None if cluster_id is None else ClusterId(cluster_id)
    run_node(config, on_ready=tell_that_it_serves, cluster_id=wanted)
