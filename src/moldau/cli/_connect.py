"""Which cluster a command speaks to, and how: the options, and the two ways of asking."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

import click

if TYPE_CHECKING:
    from moldau.client import Client
    from moldau.client.settings import SettingValue
    from moldau.wire.message import Request, Response

    R = TypeVar("R", bound=Response)

T = TypeVar("T")
Decorated = TypeVar("Decorated", bound=Callable[..., object])

PORT: Final = 9092
BOOTSTRAP: Final = f"127.0.0.1:{PORT}"
BOOTSTRAP_VARIABLES: Final = ("MOLDAU_BOOTSTRAP_SERVER", "KAFKA_BOOTSTRAP_SERVERS")
TIMEOUT_S: Final = 30.0
TIMEOUT_S_MAX: Final = (2**31 - 1) // 1000

# Whoever ends a command by these lets it leave first, as Ctrl-C does: a group, say, whose partitions nobody
# would read until the session of a member that just vanished is over.
END_SIGNALS: Final = (signal.SIGTERM, signal.SIGHUP)

_SETTINGS = "moldau.settings"
_TIMEOUT = "moldau.timeout"


@dataclass(frozen=True, slots=True)
class Target:
    """A cluster, how long to wait for it, and settings of the client that speaks to it."""

    addresses: tuple[tuple[str, int], ...]
    timeout_s: float = TIMEOUT_S
    settings: dict[str, str] = field(default_factory=dict)

    @property
    def bootstrap_servers(self) -> str:
        """The addresses as a client takes them."""
        return ",".join(
            f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in self.addresses
        )


class Ask(Protocol):
    """A question that any broker can answer."""

    def __call__(self, request: Request, reply: type[R]) -> R: ...


def cluster_options(command: Decorated) -> Decorated:
    """The options -b, -X and --timeout, which together are the argument `target`."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def run(target: Target, work: Callable[[Client], Coroutine[object, object, T]]) -> T:
    """What `work` gives with a client of the cluster; what goes wrong ends the command with one line."""
    from moldau.cli._errors import one_line_errors
    from moldau.client import connect
    from moldau.world.real import run as run_on_a_loop

    async def connected() -> T:
        with ended_by_signals():
            async with connect(target.bootstrap_servers, **client_settings(target)) as client:
                return await work(client)

    with one_line_errors():
        return run_on_a_loop(connected())


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """A block of the current task that a signal cancels; the command then ends with the shell's code for it.

    A second signal ends the process at once.
    """
    import asyncio

    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None, "a coroutine runs in a task"
    received: signal.Signals | None = None

    def stop(number: signal.Signals) -> None:
        nonlocal received
        received = number
        forget()
        task.cancel()

    def forget() -> None:
        for number in heard:
            loop.remove_signal_handler(number)

    # Other threads hear no signals, and what is ignored, as under nohup, stays so.
    is_main = threading.current_thread() is threading.main_thread()
    heard = [number for number in END_SIGNALS if is_main and signal.getsignal(number) is signal.SIG_DFL]
    for number in heard:
        loop.add_signal_handler(number, stop, number)
    try:
        yield
    except asyncio.CancelledError:
        if received is None:
            raise
        sys.exit(128 + received)
    finally:
        forget()


def client_settings(target: Target) -> dict[str, SettingValue]:
    """The settings of the client: those that were given, and how long it may take."""
    timeout_ms = max(1, int(target.timeout_s * 1000))
    waits: dict[str, SettingValue] = {
        "client_id": "moldau-cli",
        "default_api_timeout_ms": timeout_ms,
        "max_block_ms": timeout_ms,
        "request_timeout_ms": timeout_ms,
        "socket_connection_setup_timeout_ms": min(timeout_ms, 10_000),
    }
    # By the names that were typed, which complaints then repeat.
    return {**waits, **target.settings}


@contextmanager
def asking(target: Target) -> Iterator[Ask]:
    """Ask any broker, over a plain socket if that will do: half of a short command is loading the client."""
    if target.settings:
        yield lambda request, reply: run(target, lambda client: client.admin.send(request, reply))
        return
    from moldau.cli._socket import open_socket

    with open_socket(target.addresses, timeout_s=target.timeout_s) as connection:
        yield connection.ask


# ---------------------------------------------------------------- options


def parse_bootstrap(text: str) -> tuple[tuple[str, int], ...]:
    """`host:port,host`; the port may be left out, and `PLAINTEXT://` stand before it, as before listeners."""
    found = []
    for entry in filter(None, (entry.strip() for entry in text.split(","))):
        listener, _, part = entry.rpartition("://")
        if listener.lower() in ("http", "https"):
            raise click.BadParameter(
                f"'{entry}' is the address of web pages; '{part.partition('/')[0]}' would be one of a broker."
            )
        host, colon, port = part.rpartition(":")
        if not colon or part.endswith("]"):
            host, port = part, str(PORT)
        if not host or not port.isascii() or not port.isdigit() or int(port) > 0xFFFF:
            raise click.BadParameter(f"'{entry}' is not host:port.")
        found.append((host.removeprefix("[").removesuffix("]"), int(port)))
    if not found:
        raise click.BadParameter("it names no address.")
    return tuple(found)


def parse_pairs(texts: tuple[str, ...]) -> dict[str, str]:
    """`NAME=VALUE` words as a table."""
    pairs = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise click.BadParameter(f"'{text}' must be NAME=VALUE.")
        pairs[name.strip()] = value
    return pairs


def complete_topic(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """The topics that a shell may complete a word to; none if the cluster does not answer at once."""
    from moldau.wire.messages.metadata import MetadataRequest, MetadataResponse

    target = ctx.params.get("target") or Target(parse_bootstrap(BOOTSTRAP))
    try:
        with asking(Target(target.addresses, timeout_s=1.0)) as ask:
            reply = ask(MetadataRequest(topics=None), MetadataResponse)
    except click.ClickException:
        return []
    return sorted(topic.name for topic in reply.topics if topic.name and topic.name.startswith(incomplete))


def complete_setting(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """The settings of a topic, or of what the argument `kind` names, with `=` where a value must follow."""
    from moldau.model.settings.resolve import SETTINGS
    from moldau.model.settings.setting import Scope

    scope = Scope.BROKER if ctx.params.get("kind") == "broker" else Scope.TOPIC
    end = "=" if "VALUE" in (parameter.metavar or "") else ""
    return [f"{name}{end}" for name in sorted(SETTINGS[scope]) if name.startswith(incomplete)]


def topic_argument(*, several: bool = False) -> Callable[[Decorated], Decorated]:
    """A TOPIC that the shell can complete, or some."""
    if several:
        return click.argument(
            "topics", metavar="TOPIC...", nargs=-1, required=True, shell_complete=complete_topic
        )
    return click.argument("topic", metavar="TOPIC", shell_complete=complete_topic)


def pairs_callback(ctx: click.Context, parameter: click.Parameter, texts: tuple[str, ...]) -> dict[str, str]:
    """For options whose values are NAME=VALUE."""
    return parse_pairs(texts)


def _keep_settings(ctx: click.Context, parameter: click.Parameter, texts: tuple[str, ...]) -> None:
    ctx.meta[_SETTINGS] = parse_pairs(texts)


def _keep_timeout(ctx: click.Context, parameter: click.Parameter, seconds: float) -> None:
    # No range excludes NaN.
    if not seconds <= TIMEOUT_S_MAX:
        raise click.BadParameter(
            f"{seconds:g} is too long: at most {TIMEOUT_S_MAX} can be said in a request."
        )
    ctx.meta[_TIMEOUT] = seconds


def _target(ctx: click.Context, parameter: click.Parameter, text: str) -> Target:
    # The other two are eager, so that they are known by now.
    return Target(parse_bootstrap(text), ctx.meta.get(_TIMEOUT, TIMEOUT_S), dict(ctx.meta.get(_SETTINGS, {})))


_OPTIONS: Final = (
    click.option(
        "-b",
        "--bootstrap-server",
        "--bootstrap-servers",
        "target",
        metavar="HOST:PORT,...",
        envvar=list(BOOTSTRAP_VARIABLES),
        default=BOOTSTRAP,
        show_default=True,
        callback=_target,
        help=f"Brokers of the cluster; any one is enough. Also ${' or $'.join(BOOTSTRAP_VARIABLES)}.",
    ),
    click.option(
        "-X",
        "--client-setting",
        "client_settings",
        metavar="NAME=VALUE",
        multiple=True,
        is_eager=True,
        expose_value=False,
        callback=_keep_settings,
        help="A setting of the client by Kafka's name (security.protocol=SSL); may be given several times.",
    ),
    click.option(
        "--timeout",
        type=click.FloatRange(min=0.001),
        metavar="SECONDS",
        default=TIMEOUT_S,
        show_default=True,
        is_eager=True,
        expose_value=False,
        callback=_keep_timeout,
        help="How long to wait for the cluster.",
    ),
)
