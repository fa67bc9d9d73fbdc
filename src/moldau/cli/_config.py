"""What the commands of a server share: its settings, from flags, the environment and a file."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

if TYPE_CHECKING:
    from moldau.node.config import NodeConfig
    from moldau.node.properties import Written

TOML_SUFFIX: Final = ".toml"

config_option: Final = click.option(
    "-c",
    "--config",
    "path",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="The server's settings, as in Kafka's server.properties; in TOML if the name ends so.",
)


def complete_server_setting(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """The settings of a server, with `=` where a value must follow."""
    from moldau.model.settings.resolve import SETTINGS
    from moldau.model.settings.setting import Scope

    end = "=" if "VALUE" in (parameter.metavar or "") else ""
    return [f"{name}{end}" for name in sorted(SETTINGS[Scope.BROKER]) if name.startswith(incomplete)]


override_option: Final = click.option(
    "--override",
    "overrides",
    multiple=True,
    metavar="NAME=VALUE",
    shell_complete=complete_server_setting,
    help="Set something else than the file and the environment say; may be given several times.",
)


class Origin(Enum):
    """Who may say what a setting is; the first one who does is heard."""

    FLAG = "flag"
    ENVIRONMENT = "environment"
    FILE = "file"


@dataclass(frozen=True, slots=True)
class Said:
    """What somebody says that a setting is, and where that can be changed."""

    text: str
    origin: Origin
    where: str


@dataclass(frozen=True, slots=True)
class Given:
    """All that is said of a server's settings."""

    # By their names; the first counts.
    said: Mapping[str, tuple[Said, ...]]
    warnings: tuple[str, ...]
    path: Path | None

    @property
    def texts(self) -> dict[str, str]:
        """What counts."""
        return {name: said[0].text for name, said in self.said.items()}


def read_config(path: Path | None, overrides: Iterable[str] = ()) -> NodeConfig:
    """The node that the settings describe; what is wrong with them ends the command."""
    given = given_settings(path, overrides)
    if not given.said:
        raise click.UsageError("Give --config FILE, or the settings as KAFKA_... in the environment.")
    return config_of(given)


def given_settings(path: Path | None, overrides: Iterable[str] = ()) -> Given:
    """What flags, the environment and the file say; what makes no sense by itself ends the command."""
    from moldau.node.environment import warnings

    sources = (_said_in_flags(overrides), _said_in_environment(os.environ), _said_in_file(path))
    said: dict[str, tuple[Said, ...]] = {}
    for source in sources:
        for name, each in source.items():
            said[name] = (*said.get(name, ()), each)
    for name, (first, *_) in said.items():
        _check(name, first)
    return Given(said, tuple(warnings(os.environ)), path)


def config_of(given: Given) -> NodeConfig:
    """The node that the settings describe together; what is wrong with them ends the command."""
    from moldau.model.settings.setting import InvalidSetting
    from moldau.node.config import NodeConfig

    try:
        config = NodeConfig.of(given.texts)
    except InvalidSetting as error:
        where = "" if given.path is None else f"{given.path}: "
        raise click.ClickException(f"{where}{error.message}") from error
    return replace(config, warnings=(*given.warnings, *config.warnings))


def parse_overrides(overrides: Iterable[str]) -> dict[str, str]:
    """What `--override` says."""
    texts = {}
    for override in overrides:
        name, equals, text = override.partition("=")
        if not equals:
            raise click.BadParameter(f"{override!r} must be NAME=VALUE.", param_hint="--override")
        texts[name.strip()] = text
    return texts


# ---------------------------------------------------------------- the sources


def _said_in_flags(overrides: Iterable[str]) -> dict[str, Said]:
    return {name: Said(text, Origin.FLAG, "--override") for name, text in parse_overrides(overrides).items()}


def _said_in_environment(variables: Mapping[str, str]) -> dict[str, Said]:
    from moldau.node.environment import read_environment

    return {
        name: Said(text, Origin.ENVIRONMENT, f"${variable}")
        for name, (text, variable) in read_environment(variables).items()
    }


def _said_in_file(path: Path | None) -> dict[str, Said]:
    if path is None:
        return {}
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise click.ClickException(f"{path} cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise click.ClickException(
            f"{path} is not in UTF-8: {error.reason} at byte {error.start}."
        ) from error
    written = _parsed_toml(path, text) if path.suffix == TOML_SUFFIX else _parsed_properties(path, text)
    return {name: Said(text, Origin.FILE, f"{path}, line {line}") for name, (text, line) in written.items()}


def _parsed_properties(path: Path, text: str) -> dict[str, Written]:
    from moldau.node.properties import MalformedProperties, read_properties

    try:
        return read_properties(text)
    except MalformedProperties as error:
        raise click.ClickException(f"{path}, {error}.") from error


def _parsed_toml(path: Path, text: str) -> dict[str, Written]:
    from moldau.node.toml import MalformedToml, read_toml

    try:
        return read_toml(text)
    except MalformedToml as error:
        raise click.ClickException(f"{path}: {error}.") from error


def _check(name: str, said: Said) -> None:
    """Complain where it was said, which nobody knows later."""
    from moldau.model.settings.known import PREFIXES
    from moldau.model.settings.resolve import find
    from moldau.model.settings.setting import InvalidSetting, Scope

    if name.startswith(PREFIXES):
        return
    try:
        find(Scope.BROKER, name).parse(said.text)
    except InvalidSetting as error:
        raise click.ClickException(f"{said.where}: {error.message}") from error
