"""`kafka-configs`: describe and alter settings of topics and brokers, and quotas of clients."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import click

from moldau.cli._connect import Target, run
from moldau.cli._errors import Failure, failure_of
from moldau.cli._settings import (
    DYNAMIC_BROKER,
    DYNAMIC_CLIENT_METRICS,
    DYNAMIC_DEFAULT_BROKER,
    DYNAMIC_GROUP,
    DYNAMIC_TOPIC,
    SOURCES,
)
from moldau.cli.kafka_tools._tool import (
    KafkaTool,
    connection_options,
    file_option,
    java_double,
    read_properties,
    target_of,
)

if TYPE_CHECKING:
    from moldau.client import Client
    from moldau.client.admin import ConfigEntry, QuotaEntity

Decorated = TypeVar("Decorated", bound=Callable[..., object])

# The name of what all users, clients, brokers or IPs share.
DEFAULT: Final = ""

_SCRAM: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")
_CLIENT_QUOTAS: Final = (
    *("producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate"),
)
_IP_QUOTAS: Final = ("connection_creation_rate",)

_FLAGS: Final = "moldau.entities"
_ID: Final = re.compile("[+-]?[0-9]{1,9}")
# What stands between commas, unless these stand between brackets.
_ITEM: Final = re.compile(r"([^=,\s]+)\s*=\s*(\[[^\]]*\]|[^,]*)")


@dataclass(frozen=True, slots=True)
class Resource:
    """A kind of entity with settings: its number on the wire, and where those come from that are its own."""

    number: int
    source: int | None


@dataclass(frozen=True, slots=True)
class Quoted:
    """A kind of entity with quotas: its name on the wire, how it is shown, and which quotas there are."""

    wire_name: str
    shown: str
    quotas: tuple[str, ...]


# In the order in which their flags count.
_KINDS: Final[Mapping[str, Resource | Quoted]] = {
    "topics": Resource(2, DYNAMIC_TOPIC),
    "clients": Quoted("client-id", "client-id", _CLIENT_QUOTAS),
    "users": Quoted("user", "user-principal", _CLIENT_QUOTAS),
    "brokers": Resource(4, DYNAMIC_BROKER),
    "broker-loggers": Resource(8, None),
    "ips": Quoted("ip", "ip", _IP_QUOTAS),
    "client-metrics": Resource(16, DYNAMIC_CLIENT_METRICS),
    "groups": Resource(32, DYNAMIC_GROUP),
}
# Flags that stand for a kind and a name, or for the kind and what all of it share.
_SHORT: Final = {
    "--topic": "topics",
    "--client": "clients",
    "--user": "users",
    "--broker": "brokers",
    "--broker-logger": "broker-loggers",
    "--ip": "ips",
    "--client-metrics": "client-metrics",
    "--group": "groups",
}
_SHORT_DEFAULTS: Final = {
    "--client-defaults": "clients",
    "--user-defaults": "users",
    "--broker-defaults": "brokers",
    "--ip-defaults": "ips",
}


@dataclass(frozen=True, slots=True)
class Entity:
    """What settings belong to; without a name it is every one of its kind."""

    kind: str
    name: str | None

    @property
    def shown(self) -> str:
        """The kind of one of them."""
        return self.kind[:-1]


def short_flags(command: Decorated) -> Decorated:
    """The flags of the two tables, which the context remembers in their order."""
    for flag, kind in reversed((_SHORT | _SHORT_DEFAULTS).items()):
        is_default = flag in _SHORT_DEFAULTS

        def keep(ctx: click.Context, parameter: click.Parameter, value: str | bool | None) -> None:
            if value is not None and value is not False:
                ctx.meta.setdefault(_FLAGS, {})[parameter.opts[0]] = DEFAULT if value is True else value

        command = click.option(
            flag,
            metavar=None if is_default else "NAME",
            is_flag=is_default,
            expose_value=False,
            callback=keep,
            help=f"The same as --entity-type {kind} {'--entity-default' if is_default else '--entity-name'}.",
        )(command)
    return command


@click.command("kafka-configs", cls=KafkaTool)
@click.option("--describe", "is_describe", is_flag=True, help="Show settings.")
@click.option("--alter", "is_alter", is_flag=True, help="Change settings.")
@click.option(
    "--entity-type", "kinds", type=click.Choice(list(_KINDS)), multiple=True, help="Whose settings."
)
@click.option("--entity-name", "names", metavar="NAME", multiple=True, help="The name, or the id.")
@click.option("--entity-default", "names", flag_value=DEFAULT, multiple=True, help="What all of them share.")
@short_flags
@click.option("--all", "is_all", is_flag=True, help="Show those that have their defaults too.")
@click.option("--add-config", metavar="K1=V1,K2=[V1,V2]", help="Settings to change.")
@file_option("--add-config-file", help="A file of settings to change.")
@click.option(
    "--delete-config",
    "deletions",
    metavar="K1,K2",
    multiple=True,
    help="Settings whose defaults count again.",
)
@click.option("--bootstrap-controller", metavar="HOST:PORT", help="Not served: brokers are asked.")
@connection_options("--command-config")
@click.pass_context
def command(
    ctx: click.Context,
    is_describe: bool,
    is_alter: bool,
    kinds: tuple[str, ...],
    names: tuple[str, ...],
    is_all: bool,
    add_config: str | None,
    add_config_file: Path | None,
    deletions: tuple[str, ...],
    bootstrap_controller: str | None,
    bootstrap: str,
    config_file: Path | None,
) -> None:
    """Describe and alter settings of topics and brokers.

    \b
    Examples:
      moldau kafka-configs --bootstrap-server localhost:9092 --describe --topic orders
      moldau kafka-configs --alter --topic orders --add-config retention.ms=1000
      moldau kafka-configs --alter --client shop --add-config producer_byte_rate=1048576
    """
    if is_describe == is_alter:
        raise click.UsageError("Command must include exactly one action: --describe, --alter")
    if bootstrap_controller is not None:
        raise click.UsageError("Controllers are not asked directly: name a broker with --bootstrap-server.")
    entities = entities_of(kinds, names, ctx.meta.get(_FLAGS, {}))
    check_ids(entities)
    target = target_of(bootstrap, config_file)
    is_quoted = isinstance(_KINDS[entities[0].kind], Quoted)
    if is_describe:
        if add_config or deletions:
            raise click.UsageError('Option "[describe]" can\'t be used with option "[add-config]"')
        if is_quoted:
            describe_quotas(target, entities)
        else:
            describe(target, entities[0], is_all=is_all)
        return
    if any(entity.name is None for entity in entities):
        raise click.UsageError("An entity name must be specified with --alter of every entity type")
    deleted = [name for text in deletions for name in split_names(text)]
    added = read_properties(add_config_file) | parse_changes(add_config)
    if not added and not deleted:
        raise click.UsageError(
            "At least one of --add-config, --add-config-file, or --delete-config must be specified"
            " with --alter"
        )
    if is_quoted:
        alter_quotas(target, entities, added, deleted)
    else:
        alter(target, entities[0], added, deleted)
    if entities[0].name:
        click.echo(f"Completed updating config for {entities[0].shown} {entities[0].name}.")
    else:
        click.echo(f"Completed updating default config for {entities[0].kind} in the cluster.")


def entities_of(kinds: Sequence[str], names: Sequence[str], flags: Mapping[str, str]) -> list[Entity]:
    """What the flags name: one entity, or a user and a client together."""
    given = [flag for flag in (*_SHORT, *_SHORT_DEFAULTS) if flag in flags]
    all_kinds = [*kinds, *((_SHORT | _SHORT_DEFAULTS)[flag] for flag in given)]
    all_names = [*names, *(flags[flag] for flag in given)]
    if not all_kinds:
        raise click.UsageError("At least one entity type must be specified")
    if len(set(all_kinds)) < len(all_kinds):
        raise click.UsageError("Duplicate entity type(s) specified")
    if len(all_names) > len(all_kinds):
        raise click.UsageError("More entity names specified than entity types")
    if len(all_kinds) > 1 and sorted(all_kinds) != ["clients", "users"]:
        raise click.UsageError("Only users and clients can be specified together")
    return [Entity(kind, name) for kind, name in zip_longest(all_kinds, all_names)]


def check_ids(entities: Iterable[Entity]) -> None:
    """Brokers are named by their ids."""
    for entity in entities:
        if entity.kind in ("brokers", "broker-loggers") and entity.name and not _ID.fullmatch(entity.name):
            raise click.UsageError(
                f"The entity name for {entity.kind} must be a valid integer broker id, but it is:"
                f" {entity.name}"
            )


# ---------------------------------------------------------------- changes


def split_names(text: str) -> list[str]:
    """`K1,K2` as names."""
    return [name.strip() for name in text.split(",") if name.strip()]


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


# ---------------------------------------------------------------- settings


def alter(target: Target, entity: Entity, added: Mapping[str, str], deleted: Sequence[str]) -> None:
    """`--alter` of settings."""

    async def change(client: Client) -> None:
        from moldau.client import ResourceType

        kind = ResourceType(resource_of(entity).number)
        await client.admin.alter_configs(kind, entity.name or DEFAULT, {**dict.fromkeys(deleted), **added})

    run(target, change)


def resource_of(entity: Entity) -> Resource:
    """The kind of an entity with settings."""
    resource = _KINDS[entity.kind]
    assert isinstance(resource, Resource)
    return resource


def describe(target: Target, entity: Entity, *, is_all: bool) -> None:
    """`--describe` of the settings of one entity, or of all of its kind."""

    async def look(client: Client) -> None:
        from moldau.client import ResourceType
        from moldau.model.ids import check_topic_name

        if entity.kind == "topics" and entity.name is not None:
            check_topic_name(entity.name)
        if entity.name is None:
            names = await known_names(client, entity.kind)
        elif is_all or entity.name in await known_names(client, entity.kind):
            # With --all the cluster says what it thinks of a name.
            names = [entity.name]
        else:
            click.echo(f"The {entity.shown} '{entity.name}' doesn't exist and doesn't have dynamic config.")
            return
        for name in names:
            if name == DEFAULT:
                click.echo(f"Default configs for {entity.kind} in the cluster are:")
            else:
                click.echo(f"{'All' if is_all else 'Dynamic'} configs for {entity.shown} {name} are:")
            kind = ResourceType(resource_of(entity).number)
            entries = await client.admin.describe_configs(kind, name, with_synonyms=True)
            own = DYNAMIC_DEFAULT_BROKER if name == DEFAULT else resource_of(entity).source
            show(entries.values(), None if is_all and name != DEFAULT else own)

    run(target, look)


async def known_names(client: Client, kind: str) -> list[str]:
    """All of a kind that there are: what the cluster runs, and what only settings are kept of."""
    match kind:
        case "topics":
            return list(await client.admin.list_topics())
        case "brokers" | "broker-loggers":
            brokers = (await client.admin.describe_cluster()).brokers
            return [*(str(broker.node_id) for broker in brokers), DEFAULT]
        case "groups":
            running = [group.group_id for group in await client.admin.list_groups()]
            return list(dict.fromkeys([*running, *await names_with_settings(client, kind)]))
        case _:
            return await names_with_settings(client, kind)


async def names_with_settings(client: Client, kind: str) -> list[str]:
    """Those of a kind that have settings of their own."""
    from moldau.model.errors import ErrorCode, KafkaError
    from moldau.wire.messages.configs import ListConfigResourcesRequest, ListConfigResourcesResponse

    resource = _KINDS[kind]
    assert isinstance(resource, Resource)
    request = ListConfigResourcesRequest(resource_types=[resource.number])
    reply = await client.admin.send(request, ListConfigResourcesResponse)
    if reply.error_code != ErrorCode.NONE:
        raise failure_of(KafkaError(ErrorCode(reply.error_code)))
    return [each.resource_name for each in reply.config_resources]


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


# ---------------------------------------------------------------- quotas


def alter_quotas(
    target: Target, entities: Sequence[Entity], added: Mapping[str, str], deleted: Sequence[str]
) -> None:
    """`--alter` of quotas."""
    kind = quoted(entities[0])
    if any(name in _SCRAM for name in (*added, *deleted)):
        raise Failure("SCRAM credentials are not served yet.")
    unknown = [name for name in (*added, *deleted) if name not in kind.quotas]
    if unknown:
        raise Failure(f"Only quotas can be set for {entities[0].kind}, not {', '.join(unknown)}.")
    changes: dict[str, float | None] = dict.fromkeys(deleted)
    for name, text in added.items():
        try:
            changes[name] = float(text)
        except ValueError:
            raise Failure(f"Cannot parse quota configuration value for {name}: {text}") from None

    async def change(client: Client) -> None:
        wanted = tuple((quoted(entity).wire_name, entity.name or None) for entity in entities)
        await client.admin.alter_quotas(wanted, changes)

    run(target, change)


def describe_quotas(target: Target, entities: Sequence[Entity]) -> None:
    """`--describe` of quotas."""

    async def look(client: Client) -> dict[QuotaEntity, dict[str, float]]:
        return matching_quotas(await client.admin.describe_quotas(), entities)

    for whose, quotas in run(target, look).items():
        parts = dict(whose)
        names = ", ".join(
            f"the default {kind.shown}"
            if parts[kind.wire_name] is None
            else f"{kind.shown} '{parts[kind.wire_name]}'"
            for kind in (_KINDS["users"], _KINDS["clients"], _KINDS["ips"])
            if isinstance(kind, Quoted) and kind.wire_name in parts
        )
        values = ", ".join(f"{name}={java_double(value)}" for name, value in quotas.items())
        click.echo(f"Quota configs for {names} are {values}")


def matching_quotas(
    known: Mapping[QuotaEntity, dict[str, float]], entities: Sequence[Entity]
) -> dict[QuotaEntity, dict[str, float]]:
    """Those of exactly these kinds of entities, and of these names where they have some."""
    wanted = {quoted(entity).wire_name: entity.name for entity in entities}
    return {
        whose: quotas
        for whose, quotas in known.items()
        if dict(whose).keys() == wanted.keys()
        and all(wanted[kind] is None or (name or DEFAULT) == wanted[kind] for kind, name in whose)
    }


def quoted(entity: Entity) -> Quoted:
    """The kind of an entity with quotas."""
    kind = _KINDS[entity.kind]
    assert isinstance(kind, Quoted)
    return kind
