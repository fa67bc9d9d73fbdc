"""A node run from the shell, from its first step to its last: signals, and one line for what goes wrong."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

import moldau
from moldau.cli._loading import STOP_SIGNALS, loading
from moldau.model.ids import ClusterId
from moldau.model.settings.setting import InvalidSetting
from moldau.node.config import CannotListen, ListenerConfig, NodeConfig
from moldau.node.logs import get_logger
from moldau.node.metrics import Metrics
from moldau.node.storage import UnusableDirectory
from moldau.world.ports import Address, ClientAuth, DiskFailed, InvalidTls
from moldau.world.real import process, real_world, run

if TYPE_CHECKING:
    import socket
    import ssl

    from moldau.node.node import Node

log = get_logger(__name__)


def refuse_without_assertions() -> None:
    """End the command under `python -O`, which switches them off."""
    if not __debug__:
        raise click.ClickException(
            "A node does not run under python -O: its assertions stop it before it could do harm."
        )


def run_node(
    config: NodeConfig,
    *,
    on_ready: Callable[[Node], None],
    cluster_id: ClusterId | None = None,
    held: Mapping[Address, socket.socket] | None = None,
) -> None:
    """Run a node until it is told to stop; what its surroundings can cause ends the command with one line."""
    with loading():
        from moldau.node.node import Node
        from moldau.node.registration import RegistrationRefused
    with complaints(config.log_directory):
        node = Node(
            real_world(config.log_directory, client_tls=_peer_context(config), held=held),
            config,
            metrics=metrics_of_process(),
            cluster_id=cluster_id,
        )
        node.on_ready = lambda: on_ready(node)
        try:
            run(serve(node, STOP_SIGNALS))
        except RegistrationRefused as error:
            raise click.ClickException(f"{error}.") from error


@contextmanager
def complaints(directory: str) -> Iterator[None]:
    """A block whose complaints end the command with one line; a mistake of ours stays a traceback.

    The directory is named where only its disk can be meant.
    """
    try:
        yield
    except InvalidSetting as error:
        raise click.ClickException(error.message) from error
    except (CannotListen, InvalidTls, UnusableDirectory) as error:
        raise click.ClickException(str(error)) from error
    except DiskFailed as error:
        raise click.ClickException(f"{directory}: {error}.") from error
    except OSError as error:
        where = directory if error.filename is None else error.filename
        raise click.ClickException(f"{where}: {error.strerror or error}.") from error


def refuse_open_listeners(config: NodeConfig, *, otherwise: str) -> None:
    """Nobody is let in from other machines without TLS and a certificate, unless that was asked for."""
    for listener in config.listeners:
        if not is_loopback(listener.bind.host) and not is_closed(listener):
            raise click.ClickException(
                f"Listener {listener.name} at {listener.bind} can be reached from other machines: give it TLS"
                f" with ssl.client.auth=required, let it listen at localhost, or {otherwise}."
            )
    if config.admin is not None and not is_loopback(config.admin.host):
        raise click.ClickException(
            f"The admin port at {config.admin} can be reached from other machines: let moldau.admin.listener"
            f" be at localhost, or {otherwise}."
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


def _peer_context(config: NodeConfig) -> ssl.SSLContext | None:
    if config.peer_tls is None:
        return None
    from moldau.world.real.tls import peer_context

    return peer_context(config.peer_tls)


def metrics_of_process() -> Metrics:
    """What is measured of any process, under the names that Prometheus' own clients use."""
    metrics = Metrics()
    began_seconds = time.time()
    metrics.gauge("moldau_build_info", "What runs here.", {"version": moldau.__version__}).set(1)
    metrics.gauge_read(
        "process_start_time_seconds", "When the process began, since 1970.", lambda: began_seconds
    )
    metrics.counter_read(
        "process_cpu_seconds_total", "Time that processors have worked for the process.", process.cpu_seconds
    )
    metrics.gauge_read(
        "process_resident_memory_bytes", "Memory that the process has.", process.resident_bytes
    )
    metrics.gauge_read("process_open_fds", "Files and sockets that are open.", process.open_files)
    metrics.gauge_read("process_max_fds", "How many may be open.", process.open_files_max)
    return metrics
