"""`kafka-configs`: describe and alter settings of topics and brokers."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from moldau.cli._connect import Target, run
from moldau.cli._errors import Failure
from moldau.cli._settings import DYNAMIC_BROKER, DYNAMIC_DEFAULT_BROKER, DYNAMIC_TOPIC, SOURCES
from moldau.cli.kafka_tools._tool import KafkaTool, connection_options, target_of

if TYPE_CHECKING:
    from moldau.client import Client
    from moldau.client.admin import ConfigEntry

# What stands between commas, unless these stand between brackets.
_ITEM: Final = re.compile(r"([^=,\s]+)\s*=\s*(\[[^\]]*\]|[^,]*)")


@click.command("kafka-configs", cls=KafkaTool)
@click.option("--describe", "is_describe", is_flag=True, help="Show settings.")
@click.option("--alter", "is_alter", is_flag=True, help="Change settings.")
@click.option("--entity-type", type=click.Choice(["topics", "brokers"]), help="Whose settings.")
@click.option("--entity-name", metavar="NAME", help="The topic, or the id of the broker.")
@click.option("--entity-default", is_flag=True, help="What all brokers share.")
@click.option("--topic", metavar="NAME", help="The same as --entity-type topics --entity-name NAME.")
@click.option("--broker", metavar="ID", help="The same as --entity-type brokers --entity-name ID.")
@click.option("--broker-defaults", is_flag=True, help="The same as --entity-type brokers --entity-default.")
@click.option("--all", "is_all", is_flag=True, help="Show those that have their defaults too.")
@click.option("--add-config", metavar="K1=V1,K2=[V1,V2]", help="Settings to change.")
@click.option(
    "--add-config-file",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="A file of settings to change.",
)
@click.option("--delete-config", metavar="K1,K2", help="Settings whose defaults are to count again.")
@connection_options("--command-config")
def command(
    is_describe: bool,
    is_alter: bool,
    entity_type: str | None,
    entity_name: str | None,
    entity_default: bool,
    topic: str | None,
    broker: str | None,
    broker_defaults: bool,
    is_all: bool,
    add_config: str | None,
    add_config_file: Path | None,
    delete_config: str | None,
    bootstrap: str,
    config_file: Path | None,
) -> None:
    """Describe and alter settings of topics and brokers.

    \b
    Examples:
      moldau kafka-configs --bootstrap-server localhost:9092 --describe --topic orders
      moldau kafka-configs --alter --topic orders --add-config retention.ms=1000
    """
    if is_describe == is_alter:
        raise click.UsageError("Command must include exactly one action: --describe, --alter")
    if topic is not None:
        entity_type, entity_name = "topics", topic
    elif broker is not None:
        entity_type, entity_name = "brokers", broker
    elif broker_defaults:
        entity_type, entity_default = "brokers", True
    if entity_type is None:
        raise click.UsageError(
            "At least one of --entity-type, --topic, --broker, --broker-defaults is needed."
        )
    target = target_of(bootstrap, config_file)
    name = "" if entity_default else entity_name
    if is_describe:
        describe(target, entity_type, name, is_all=is_all)
        return
    if name is None:
        raise click.UsageError("--entity-name or --entity-default must be specified with --alter")
    changes: dict[str, str | None] = dict.fromkeys(split_names(delete_config))
    if add_config_file is not None:
        from moldau.node.properties import parse_properties

        changes |= parse_properties(add_config_file.read_text(encoding="utf-8"))
    changes |= parse_changes(add_config)
    if not changes:
        raise click.UsageError(
            "--add-config, --add-config-file or --delete-config must be specified with --alter"
        )
    alter(target, entity_type, name, changes)


def split_names(text: str | None) -> list[str]:
    """`K1,K2` as names."""
    return [] if text is None else [name.strip() for name in text.split(",") if name.strip()]


def parse_changes(text: str | None) -> dict[str, str]:
    """`K1=V1,K2=[V1,V2]` as a table; a value in brackets may have commas."""
    changes: dict[str, str] = {}
    position = 0
    rest = (text or "").strip()
    while position < len(rest):
        item = _ITEM.match(rest, position)
        if item is None:
            raise Failure(f"Invalid entity config: '{rest[position:]}' must be of the form key=val.")
        value = item[2].strip()
        is_list = value.startswith("[") and value.endswith("]")
        changes[item[1]] = value[1:-1] if is_list else value
        position = item.end()
        while position < len(rest) and rest[position] in ", ":
            position += 1
    return changes


def alter(target: Target, entity_type: str, name: str, changes: dict[str, str | None]) -> None:
    """`--alter`."""

    async def change(client: Client) -> None:
        from moldau.client import ResourceType

        kind = ResourceType.TOPIC if entity_type == "topics" else ResourceType.BROKER
        await client.admin.alter_configs(kind, name, changes)

    run(target, change)
    if name:
        click.echo(f"Completed updating config for {entity_type[:-1]} {name}.")
    else:
        click.echo("Completed updating default config for brokers in the cluster.")


# ---------------------------------------------------------------- describing


def describe(target: Target, entity_type: str, name: str | None, *, is_all: bool) -> None:
    """`--describe`, of one topic or broker or of all."""

    async def look(client: Client) -> None:
        from moldau.client import ResourceType

        if entity_type == "topics":
            known = await client.admin.list_topics()
            for topic in known if name is None else [name]:
                if topic not in known:
                    click.echo(f"The topic '{topic}' doesn't exist and doesn't have dynamic config.")
                    continue
                entries = await client.admin.describe_configs(ResourceType.TOPIC, topic, with_synonyms=True)
                click.echo(f"{'All' if is_all else 'Dynamic'} configs for topic {topic} are:")
                show(entries.values(), None if is_all else DYNAMIC_TOPIC)
            return
        brokers = [str(broker.node_id) for broker in (await client.admin.describe_cluster()).brokers]
        for broker in [*brokers, ""] if name is None else [name]:
            if broker and broker not in brokers:
                click.echo(f"The broker '{broker}' doesn't exist and doesn't have dynamic config.")
                continue
            entries = await client.admin.describe_configs(ResourceType.BROKER, broker, with_synonyms=True)
            if broker:
                click.echo(f"{'All' if is_all else 'Dynamic'} configs for broker {broker} are:")
                show(entries.values(), None if is_all else DYNAMIC_BROKER)
            else:
                click.echo("Default configs for brokers in the cluster are:")
                show(entries.values(), DYNAMIC_DEFAULT_BROKER)

    run(target, look)


def show(entries: Iterable[ConfigEntry], source: int | None) -> None:
    """Settings from one source or, without one, all."""
    for entry in sorted(entries, key=lambda entry: entry.name):
        if source is None or entry.source == source:
            synonyms = ", ".join(
                f"{SOURCES.get(each.source, SOURCES[0])}:{each.name}={shown(each.value)}"
                for each in entry.synonyms
            )
            sensitive = str(entry.is_sensitive).lower()
            click.echo(f"  {entry.name}={shown(entry.value)} sensitive={sensitive} synonyms={{{synonyms}}}")


def shown(value: str | None) -> str:
    """A value as Java prints it."""
    return "null" if value is None else value
