"""`moldau start`: run a node until it is told to stop."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from moldau.cli._config import config_option, read_config
from moldau.model.settings.setting import InvalidSetting
from moldau.node.config import NodeConfig
from moldau.node.logs import configure, get_logger
from moldau.node.storage import UnusableDirectory
from moldau.world.ports import DiskFailed, InvalidTls
from moldau.world.real import real_world, run
from moldau.world.real.tls import peer_context

if TYPE_CHECKING:
    from moldau.node.node import Node

log = get_logger(__name__)


@click.command()
@config_option
@click.option(
    "--override",
    "overrides",
    multiple=True,
    metavar="NAME=VALUE",
    help="Set something else than the file says; may be given several times.",
)
@click.option(
    "--insecure", is_flag=True, help="Listen without TLS where others than this machine can connect."
)
def command(path: Path, overrides: tuple[str, ...], insecure: bool) -> None:
    """Run a node until it is told to stop.

    SIGTERM and SIGINT stop it in an orderly way; a second one stops it at once, with exit code 1. What it
    has to tell goes to stderr: lines on a terminal, JSON elsewhere. When it serves, it says so on stdout.

    \b
    Examples:
      moldau start -c server.properties
      moldau start -c server.properties --override log.retention.hours=24
    """
    if not __debug__:
        raise click.ClickException(
            "A node does not run under python -O: its assertions stop it before it could do harm."
        )
    config = read_config(path, overrides)
    if not insecure:
        refuse_open_listeners(config)
    configure(sys.stderr)
    for warning in config.warnings:
        log.warning(warning)
    try:
        start(config)
    except InvalidSetting as error:
        raise click.ClickException(error.message) from error
    except (UnusableDirectory, InvalidTls, DiskFailed) as error:
        raise click.ClickException(str(error)) from error
    except OSError as error:
        where = "" if error.filename is None else f"{error.filename}: "
        raise click.ClickException(f"{where}{error.strerror or error}.") from error


def refuse_open_listeners(config: NodeConfig) -> None:
    """Nobody is let in from other machines without TLS, unless that was asked for."""
    for listener in config.listeners:
        if listener.tls is None and not is_loopback(listener.bind.host):
            raise click.ClickException(
                f"Listener {listener.name} at {listener.bind} can be reached from other machines, and has no"
                " TLS: give it TLS, let it listen at localhost, or start with --insecure."
            )


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach what listens there."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def start(config: NodeConfig) -> None:
    """Make the node and run it to its end."""
    from moldau.node.node import Node

    client_tls = None if config.peer_tls is None else peer_context(config.peer_tls)
    node = Node(real_world(config.log_directory, client_tls=client_tls), config)
    node.on_ready = lambda: click.echo(f"moldau is ready: listening at {addresses(config)}")
    run(serve(node, (signal.SIGTERM, signal.SIGINT)))


def addresses(config: NodeConfig) -> str:
    """Where the node listens, for people."""
    return ", ".join(f"{listener.name}://{listener.bind}" for listener in config.listeners)


async def serve(node: Node, stop_signals: Sequence[signal.Signals]) -> None:
    """Run the node until it ends by itself or is stopped."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None, "a coroutine runs in a task"
    is_stopping = False

    def stop(number: signal.Signals) -> None:
        nonlocal is_stopping
        if is_stopping:
            log.error("stopped at once, what was under way is lost", signal=number.name)
            os._exit(1)
        is_stopping = True
        log.info("stopping", signal=number.name)
        task.cancel()

    loop.set_exception_handler(tell_of_what_nobody_awaits)
    for number in stop_signals:
        loop.add_signal_handler(number, stop, number)
    try:
        await node.run()
    except asyncio.CancelledError:
        if not is_stopping:
            raise
        log.info("stopped")
    finally:
        for number in stop_signals:
            loop.remove_signal_handler(number)


def tell_of_what_nobody_awaits(loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
    """Log what the loop itself runs into; that no file is left for a client is told once in a while only."""
    error = context.get("exception")
    if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
        now_ms = int(loop.time() * 1000)
        log.limited("clients have to wait", key=error.errno, now_ms=now_ms, why=error.strerror)
    else:
        loop.default_exception_handler(context)
