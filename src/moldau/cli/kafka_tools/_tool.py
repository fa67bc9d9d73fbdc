"""What Kafka's tools have in common: how they fail, where they connect, how they match names."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from decimal import Decimal
from pathlib import Path
from typing import Final, NoReturn, TypeVar

import click

from moldau.cli._connect import BOOTSTRAP, BOOTSTRAP_VARIABLES, Target, parse_bootstrap, parse_pairs
from moldau.cli._errors import Failure, OutOfReach
from moldau.cli._output import note
from moldau.model.errors import KafkaError

Decorated = TypeVar("Decorated", bound=Callable[..., object])

KAFKA_VERSION: Final = "4.3.0"
FAILED: Final = 1
INT32_MAX: Final = 2**31 - 1
INT32: Final = click.IntRange(-INT32_MAX - 1, INT32_MAX)

# Flags that Kafka's tools had once, and old tutorials have still -> what to give instead.
_RETIRED: Final = {
    "--broker-list": "--bootstrap-server",
    "--zookeeper": "--bootstrap-server",
    "--whitelist": "--include",
}


class KafkaTool(click.Command):
    """A command that fails as Kafka's do: exit code 1 whatever the reason."""

    # What Kafka prints before the reason, if it prints that to stdout.
    failure_prefix: str | None = None

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: object,
    ) -> click.Context:
        """Read the flags."""
        try:
            return super().make_context(info_name, args, parent, **extra)
        except click.UsageError as error:
            _fail_usage(error)

    def invoke(self, ctx: click.Context) -> object:
        """Run the tool."""
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            _fail_usage(error)
        except Failure as error:
            if self.failure_prefix is None:
                error.show()
            else:
                click.echo(f"{self.failure_prefix}{_said_by_cluster(error) or error.reason}")
            ctx.exit(FAILED)


class ExecutingTool(KafkaTool):
    """The same for kafka-topics, which prints to stdout why it fails."""

    failure_prefix = "Error while executing topic command : "


def _said_by_cluster(error: Failure) -> str | None:
    """What a broker said of its own accord, which Kafka's tools give as it is."""
    cause = error.__cause__
    return cause.message if isinstance(cause, KafkaError) and not isinstance(error, OutOfReach) else None


def _fail_usage(error: click.UsageError) -> NoReturn:
    if isinstance(error, click.NoSuchOption) and error.ctx is not None:
        flags = {flag for parameter in error.ctx.command.params for flag in parameter.opts}
        if (instead := _RETIRED.get(error.option_name)) in flags:
            hint = f"No such option '{error.option_name}'. Did you mean '{instead}'?"
            error = click.UsageError(hint, error.ctx)
    error.show()
    raise click.exceptions.Exit(FAILED) from error


def connection_options(
    *config_names: str, property_names: tuple[str, ...] = ()
) -> Callable[[Decorated], Decorated]:
    """`--bootstrap-server`, and the flags by which this tool takes settings of its client."""

    def decorate(command: Decorated) -> Decorated:
        for option in (
            click.option(
                *property_names,
                "properties",
                multiple=True,
                metavar="NAME=VALUE",
                help="A setting of the client.",
            )
            if property_names
            else None,
            file_option(*config_names, "config_file", help="A file of settings of the client."),
            click.option(
                # Kafka's tools have no -b; the commands of ours have, and what they say of it holds here too.
                "-b",
                "--bootstrap-server",
                "bootstrap",
                metavar="HOST:PORT,...",
                envvar=list(BOOTSTRAP_VARIABLES),
                default=BOOTSTRAP,
                show_default=True,
                help="Brokers of the cluster.",
            ),
            click.version_option(KAFKA_VERSION, message="%(version)s"),
        ):
            if option is not None:
                command = option(command)
        return command

    return decorate


def target_of(bootstrap: str, config_file: Path | None, properties: Iterable[str] = ()) -> Target:
    """The cluster that these flags name; settings that our client lacks are passed over with a note."""
    given = read_properties(config_file) | parse_pairs(tuple(properties))
    settings = {}
    if given:
        from dataclasses import fields

        from moldau.client.settings import ClientSettings

        known = {field.name for field in fields(ClientSettings)}
        for name, value in given.items():
            if name.replace(".", "_") in known:
                settings[name] = value
            else:
                note(f"WARN {name} is not a setting of this client and has no effect.")
    return Target(parse_bootstrap(bootstrap), settings=settings)


def read_properties(path: Path | None) -> dict[str, str]:
    """A file in Java's format; nothing if there is none."""
    if path is None:
        return {}
    from moldau.node.properties import MalformedProperties, parse_properties

    try:
        return parse_properties(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, MalformedProperties) as error:
        raise Failure(f"{path} cannot be read: {error}") from error


def file_option(*names: str, help: str) -> Callable[[Decorated], Decorated]:  # noqa: A002
    """A flag that names a file of settings."""
    return click.option(*names, type=click.Path(path_type=Path, exists=True, dir_okay=False), help=help)


def matching(pattern: str, names: Iterable[str]) -> list[str]:
    """The names that a regular expression, or one of several with commas between, matches as a whole."""
    words = [word.strip() for word in pattern.strip().strip("'\"").split(",")]
    try:
        expression = re.compile("|".join(words))
    except re.error as error:
        raise Failure(f"{pattern} is an invalid regex: {error}.") from error
    return [name for name in names if expression.fullmatch(name)]


def is_true(properties: dict[str, str], name: str) -> bool:
    """Whether a property of a reader or formatter is on."""
    return properties.get(name, "false").strip().lower() == "true"


def java_double(value: float) -> str:
    """A number as Java's Double.toString gives it: with an exponent below 10^-3 and from 10^7 on."""
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(float(value))
    sign, digits, _ = Decimal(repr(value)).normalize().as_tuple()
    exponent = Decimal(repr(value)).adjusted()
    rest = "".join(map(str, digits[1:])) or "0"
    return f"{'-' if sign else ''}{digits[0]}.{rest}E{exponent}"
