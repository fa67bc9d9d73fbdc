"""What the commands of a server share: its file of settings, from `--config` and `--override`."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import click

from moldau.model.settings.setting import InvalidSetting
from moldau.node.config import NodeConfig
from moldau.node.properties import MalformedProperties, parse_properties

config_option = click.option(
    "-c",
    "--config",
    "path",
    required=True,
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="The server's settings, as in Kafka's server.properties.",
)


def read_config(path: Path, overrides: Iterable[str] = ()) -> NodeConfig:
    """The node that the file describes, less what is overridden; what is wrong with it ends the command."""
    try:
        texts = parse_properties(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise click.ClickException(f"{path} cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise click.ClickException(
            f"{path} is not in UTF-8: {error.reason} at byte {error.start}."
        ) from error
    except MalformedProperties as error:
        raise click.ClickException(f"{path}, {error}.") from error
    for override in overrides:
        name, equals, text = override.partition("=")
        if not equals:
            raise click.BadParameter(f"{override!r} must be NAME=VALUE.", param_hint="--override")
        texts[name.strip()] = text
    try:
        return NodeConfig.of(texts)
    except InvalidSetting as error:
        raise click.ClickException(f"{path}: {error.message}") from error
