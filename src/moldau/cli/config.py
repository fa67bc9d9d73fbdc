"""`moldau config`: look at and change the settings of topics and brokers."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

import click

from moldau.cli import SuggestingGroup
from moldau.cli._connect import (
    Target,
    cluster_options,
    complete_setting,
    complete_topic,
    parse_pairs,
    run,
)
from moldau.cli._errors import NotFound
from moldau.cli._explain import explain
from moldau.cli._output import output_option, print_json, print_table
from moldau.cli._settings import ALL_BROKERS, DEFAULT, SOURCES, change_settings, resource

if TYPE_CHECKING:
    from moldau.client import Client
    from moldau.client.admin import ConfigEntry


@click.group(cls=SuggestingGroup)
def command() -> None:
    """Look at and change the settings of topics and brokers.

    \b
    Examples:
      moldau config get topic orders
      moldau config get topic orders retention.ms -o json
      moldau config set topic orders retention.ms=3600000
      moldau config set broker default log.retention.ms=3600000     of all brokers
      moldau config delete topic orders retention.ms
      moldau config explain -c server.properties                    what a server would start with
    """


command.add_command(explain)


def complete_name(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """The topics, or what all brokers share."""
    if ctx.params.get("kind") == "topic":
        return complete_topic(ctx, parameter, incomplete)
    return [ALL_BROKERS] if ALL_BROKERS.startswith(incomplete) else []


kind_argument = click.argument("kind", type=click.Choice(["topic", "broker"]))
name_argument = click.argument("name", shell_complete=complete_name)
dry_run_option = click.option("--dry-run", is_flag=True, help="Only say whether it could be done.")


@command.command("get")
@kind_argument
@name_argument
@click.argument("settings", metavar="[SETTING]...", nargs=-1, shell_complete=complete_setting)
@click.option("--all", "is_all", is_flag=True, help="Show those that have their defaults too.")
@output_option
@cluster_options
def get(target: Target, kind: str, name: str, settings: tuple[str, ...], is_all: bool, output: str) -> None:
    """Show settings of a topic or broker, and where each comes from.

    Without SETTING these are all that are not at Kafka's defaults. The NAME of a broker is its id, or
    `default` for what all brokers share.

    \b
    Examples:
      moldau config get topic orders --all
      moldau config get broker 1 log.dirs
    """

    async def look(client: Client) -> dict[str, ConfigEntry]:
        resource_type, resource_name = await resource(client, kind, name)
        return await client.admin.describe_configs(resource_type, resource_name)

    entries = run(target, look)
    for setting in settings:
        if setting not in entries:
            near = difflib.get_close_matches(setting, entries, n=1)
            hint = f" Did you mean '{near[0]}'?" if near else ""
            raise NotFound(f"There is no setting '{setting}' of {kind} {name}.{hint}")
    shown = [
        entries[each]
        for each in settings or sorted(entries)
        if settings or is_all or name == ALL_BROKERS or entries[each].source != DEFAULT
    ]
    if output == "json":
        print_json(
            [
                {
                    "name": entry.name,
                    "value": entry.value,
                    "source": SOURCES.get(entry.source, SOURCES[0]),
                    "read_only": entry.is_read_only,
                    "sensitive": entry.is_sensitive,
                }
                for entry in shown
            ]
        )
    else:
        print_table(
            ["SETTING", "VALUE", "SOURCE"],
            [
                (
                    entry.name,
                    "(secret)" if entry.is_sensitive else entry.value,
                    SOURCES.get(entry.source, SOURCES[0]),
                )
                for entry in shown
            ],
        )


@command.command("set")
@kind_argument
@name_argument
@click.argument(
    "changes", metavar="SETTING=VALUE...", nargs=-1, required=True, shell_complete=complete_setting
)
@dry_run_option
@cluster_options
def set_settings(target: Target, kind: str, name: str, changes: tuple[str, ...], dry_run: bool) -> None:
    """Change settings of a topic or broker.

    \b
    Examples:
      moldau config set topic orders retention.ms=3600000 cleanup.policy=compact,delete
      moldau config set broker 1 log.cleaner.threads=2
    """
    change_settings(target, kind, name, parse_pairs(changes), dry_run=dry_run)


@command.command("delete")
@kind_argument
@name_argument
@click.argument("settings", metavar="SETTING...", nargs=-1, required=True, shell_complete=complete_setting)
@dry_run_option
@cluster_options
def delete(target: Target, kind: str, name: str, settings: tuple[str, ...], dry_run: bool) -> None:
    """Let the defaults of settings count again.

    \b
    Example:
      moldau config delete topic orders retention.ms
    """
    change_settings(target, kind, name, dict.fromkeys(settings), dry_run=dry_run)
