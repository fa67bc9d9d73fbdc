"""`kafka-consumer-groups`: list, describe, reset and delete groups."""

from __future__ import annotations

import csv
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from moldau.cli._connect import Target, run
from moldau.cli._errors import Failure, OutOfReach
from moldau.cli._groups import ends_of
from moldau.cli._output import note
from moldau.cli._positions import Span, spans
from moldau.cli.kafka_tools._tool import FAILED, KafkaTool, connection_options, target_of

if TYPE_CHECKING:
    from moldau.client import Client
    from moldau.client.groups import GroupListing, GroupView, MemberView
    from moldau.model.errors import ErrorCode
    from moldau.model.ids import TopicPartition

_ACTIONS: Final = ("list", "describe", "delete", "reset-offsets", "delete-offsets")
_WAYS: Final = (
    *("to-offset", "shift-by", "from-file", "to-datetime"),
    *("by-duration", "to-latest", "to-current", "to-earliest"),
)
_STATES: Final = (
    *("CompletingRebalance", "Dead", "PreparingRebalance", "Empty"),
    *("Assigning", "Stable", "Reconciling"),
)
_TYPES: Final = ("Consumer", "Classic")
_REBALANCING: Final = ("PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling")
_MISSING: Final = "-"
_DURATION: Final = re.compile(
    r"([-+])?P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?", re.ASCII | re.IGNORECASE
)
# Kafka prints the classes of Java that stand for errors, and what they say.
_EXCEPTIONS: Final = {
    "GROUP_ID_NOT_FOUND": ("GroupIdNotFoundException", "The group id does not exist."),
    "NON_EMPTY_GROUP": ("GroupNotEmptyException", "The group is not empty."),
    "GROUP_SUBSCRIBED_TO_TOPIC": (
        "GroupSubscribedToTopicException",
        "Deleting offsets of a topic is forbidden while the consumer group is actively subscribed to it.",
    ),
    "UNKNOWN_TOPIC_OR_PARTITION": (
        "UnknownTopicOrPartitionException",
        "This server does not host this topic-partition.",
    ),
    "GROUP_AUTHORIZATION_FAILED": ("GroupAuthorizationException", "Group authorization failed."),
    "TOPIC_AUTHORIZATION_FAILED": ("TopicAuthorizationException", "Topic authorization failed."),
}

Places = Mapping["TopicPartition", int]


class GroupTool(KafkaTool):
    """Kafka's prints to stdout what stands in its way, and calls it a success all the same."""

    def invoke(self, ctx: click.Context) -> object:
        """Run the tool."""
        try:
            return click.Command.invoke(self, ctx)
        except click.UsageError as error:
            error.show()
            ctx.exit(FAILED)
        except OutOfReach as error:
            error.show()
            ctx.exit(FAILED)
        except Failure as error:
            print_error(f"Executing consumer group command failed due to {error.reason}")
            return None


@dataclass(frozen=True, slots=True)
class Way:
    """How offsets are reset: one of `_WAYS`, and its value."""

    name: str
    value: str = ""


@click.command("kafka-consumer-groups", cls=GroupTool)
@click.option("--list", "action_list", is_flag=True, help="List all groups.")
@click.option("--describe", "action_describe", is_flag=True, help="Show lag, members or state of groups.")
@click.option("--delete", "action_delete", is_flag=True, help="Delete groups without members.")
@click.option("--reset-offsets", "action_reset", is_flag=True, help="Let groups go on elsewhere.")
@click.option("--delete-offsets", "action_delete_offsets", is_flag=True, help="Forget offsets of topics.")
@click.option("--group", "groups", multiple=True, metavar="GROUP", help="May be given several times.")
@click.option("--all-groups", is_flag=True, help="All groups.")
@click.option(
    "--topic", "topics", multiple=True, metavar="TOPIC[:0,1]", help="A topic, or some of its partitions."
)
@click.option("--all-topics", is_flag=True, help="All topics that the group has committed.")
@click.option("--members", is_flag=True, help="With --describe: show members.")
@click.option("--offsets", is_flag=True, help="With --describe: show lag, as without.")
@click.option(
    "--state",
    is_flag=False,
    flag_value="",
    metavar="[STATES]",
    help="With --describe: show the state; with --list too, or only groups in these states.",
)
@click.option(
    "--type",
    "types",
    is_flag=False,
    flag_value="",
    metavar="[TYPES]",
    help="With --list: show the type, or only groups of these types.",
)
@click.option("--verbose", is_flag=True, help="Show more of it.")
@click.option("--timeout", type=click.IntRange(min=1), default=5000, show_default=True, help="In ms.")
@click.option("--dry-run", is_flag=True, help="Only show what --reset-offsets would do.")
@click.option("--execute", is_flag=True, help="Do it.")
@click.option("--export", "is_export", is_flag=True, help="Show it as CSV.")
@click.option("--to-offset", type=int, metavar="OFFSET")
@click.option("--shift-by", type=int, metavar="N", help="By so many, back if negative.")
@click.option("--to-datetime", metavar="YYYY-MM-DDTHH:mm:SS.sss")
@click.option("--by-duration", metavar="PnDTnHnMnS", help="So long ago.")
@click.option("--to-earliest", is_flag=True)
@click.option("--to-latest", is_flag=True)
@click.option("--to-current", is_flag=True)
@click.option("--from-file", metavar="CSV", help="What --export has written.")
@connection_options("--command-config")
def command(
    action_list: bool,
    action_describe: bool,
    action_delete: bool,
    action_reset: bool,
    action_delete_offsets: bool,
    groups: tuple[str, ...],
    all_groups: bool,
    topics: tuple[str, ...],
    all_topics: bool,
    members: bool,
    offsets: bool,
    state: str | None,
    types: str | None,
    verbose: bool,
    timeout: int,
    dry_run: bool,
    execute: bool,
    is_export: bool,
    to_offset: int | None,
    shift_by: int | None,
    to_datetime: str | None,
    by_duration: str | None,
    to_earliest: bool,
    to_latest: bool,
    to_current: bool,
    from_file: str | None,
    bootstrap: str,
    config_file: Path | None,
) -> None:
    """List, describe, reset and delete groups.

    \b
    Examples:
      moldau kafka-consumer-groups --bootstrap-server localhost:9092 --describe --group billing
      moldau kafka-consumer-groups --group billing --topic orders --reset-offsets --to-earliest --execute
    """
    given = (action_list, action_describe, action_delete, action_reset, action_delete_offsets)
    actions = [name for name, is_given in zip(_ACTIONS, given, strict=True) if is_given]
    values = (to_offset, shift_by, from_file, to_datetime, by_duration)
    flags = (to_latest, to_current, to_earliest)
    ways = [
        *(Way(name, str(value)) for name, value in zip(_WAYS, values, strict=False) if value is not None),
        *(Way(name) for name, is_given in zip(_WAYS[len(values) :], flags, strict=True) if is_given),
    ]
    check_usage(
        actions, ways, groups, topics, all_groups=all_groups, members=members, offsets=offsets, state=state
    )
    if action_reset and dry_run and execute:
        raise click.UsageError("Option [reset-offsets] only accepts one of [execute] and [dry-run]")
    target = target_of(bootstrap, config_file)
    target = Target(target.addresses, timeout / 1000, target.settings)
    scope = Scope(groups, topics, is_all_groups=all_groups, is_all_topics=all_topics)

    async def act(client: Client) -> None:
        if action_list:
            await list_groups(client, state, types)
        elif action_describe:
            shown = "members" if members else "offsets" if state is None else "state"
            await describe(client, scope, shown, verbose=verbose)
        elif action_delete:
            await delete(client, scope)
        elif action_delete_offsets:
            await delete_offsets(client, groups[0], topics)
        else:
            if not dry_run and not execute:
                note("WARN: No action will be performed as the --execute option is missing.")
            plans = await reset(client, scope, ways, is_dry=not execute)
            if is_export:
                print_csv(plans, has_group=len(plans) > 1)
            else:
                print_plans(plans)

    run(target, act)


@dataclass(frozen=True, slots=True)
class Scope:
    """Which groups, and which of their partitions."""

    groups: tuple[str, ...]
    topics: tuple[str, ...]
    is_all_groups: bool
    is_all_topics: bool

    async def names(self, client: Client) -> list[str]:
        """The groups by name."""
        if self.is_all_groups:
            return [group.group_id for group in await client.admin.list_groups() if _is_of_consumers(group)]
        return list(self.groups)


def check_usage(
    actions: Sequence[str],
    ways: Sequence[Way],
    groups: Sequence[str],
    topics: Sequence[str],
    *,
    all_groups: bool,
    members: bool,
    offsets: bool,
    state: str | None,
) -> None:
    """Refuse what cannot be meant, in Kafka's words."""
    for action in ("describe", "delete", "reset-offsets"):
        if action in actions and not groups and not all_groups:
            raise click.UsageError(f"Option [{action}] takes one of these options: [group], [all-groups]")
    if "describe" in actions and members + offsets + (state is not None) > 1:
        raise click.UsageError(
            "Option [describe] takes at most one of these options: [members], [offsets], [state]"
        )
    if "describe" in actions and state:
        raise click.UsageError("Option [describe] does not take a value for [state]")
    if "delete" in actions and topics:
        raise click.UsageError(
            "The consumer does not support topic-specific offset deletion from a consumer group."
        )
    if "delete-offsets" in actions and (not groups or not topics):
        raise click.UsageError("Option [delete-offsets] takes the following options: [topic], [group]")
    if "reset-offsets" in actions and len(ways) > 1:
        raise click.UsageError(f'Option "[{ways[0].name}]" can\'t be used with option "[{ways[1].name}]"')
    if groups and all_groups:
        raise click.UsageError('Option "[group]" can\'t be used with option "[all-groups]"')
    if groups and "list" in actions:
        raise click.UsageError('Option "[group]" can\'t be used with option "[list]"')
    if topics and ("list" in actions or "describe" in actions):
        other = "list" if "list" in actions else "describe"
        raise click.UsageError(f'Option "[topic]" can\'t be used with option "[{other}]"')
    if len(actions) != 1:
        raise click.UsageError(
            "Command must include exactly one action: --list, --describe, --delete, --reset-offsets,"
            " --delete-offsets"
        )


# ---------------------------------------------------------------- looking


async def list_groups(client: Client, state: str | None, types: str | None) -> None:
    """`--list`, perhaps with states and types."""
    wanted_states = _chosen(state, _STATES, "state")
    wanted_types = _chosen(types, _TYPES, "types")
    listed = [
        group
        for group in await client.admin.list_groups(states=wanted_states, types=wanted_types)
        if _is_of_consumers(group)
    ]
    if state is None and types is None:
        for group in listed:
            click.echo(group.group_id)
        return
    width = max([15, *(len(group.group_id) for group in listed)]) + 10
    titles = ["GROUP", *(["TYPE"] if types is not None else []), *(["STATE"] if state is not None else [])]
    click.echo(" ".join([titles[0].ljust(width), *(title.ljust(20) for title in titles[1:])]))
    for group in listed:
        cells = [
            *([group.type.capitalize()] if types is not None else []),
            *([group.state] if state is not None else []),
        ]
        click.echo(" ".join([group.group_id.ljust(width), *(cell.ljust(20) for cell in cells)]))


async def describe(client: Client, scope: Scope, shown: str, *, verbose: bool) -> None:
    """`--describe` with `--offsets`, `--members` or `--state`, group by group."""
    views = [await _described(client, name) for name in sorted(await scope.names(client))]
    for view in views:
        if shown == "offsets":
            rows = await offset_rows(client, view, verbose=verbose)
            if says_state(view) and rows:
                print_offsets(rows, verbose=verbose)
        elif shown == "members":
            says_state(view)
            print_members(view, verbose=verbose)
        elif says_state(view):
            print_state(view, verbose=verbose)


def says_state(view: GroupView) -> bool:
    """Say what is unusual about a group; tells whether there is one."""
    if view.state == "Empty":
        note(f"\nConsumer group '{view.group_id}' has no active members.")
    elif view.state in _REBALANCING:
        note(f"\nWarning: Consumer group '{view.group_id}' is rebalancing.")
    elif view.state == "Dead":
        print_error(f"Consumer group '{view.group_id}' does not exist.")
        return False
    return True


async def offset_rows(client: Client, view: GroupView, *, verbose: bool) -> list[list[str]]:
    """A row for each partition, those of the members with the most first, and then those of nobody."""
    committed = await client.admin.group_offsets(view.group_id)
    readers: list[tuple[MemberView | None, list[TopicPartition]]] = [
        (member, sorted(member.assignment, key=lambda place: (place.partition, place.topic)))
        for member in sorted(view.members, key=lambda member: -len(member.assignment))
        if member.assignment
    ]
    read = {place for _, places in readers for place in places}
    rest = sorted((place for place in committed if place not in read), key=lambda place: place.partition)
    readers.append((None, sorted(rest)))
    ends = await ends_of(client, {*read, *rest})
    rows = []
    for member, places in readers:
        for place in places:
            found, end = committed.get(place), ends.get(place)
            lag = None if found is None or end is None else end - found.offset
            epoch = None if found is None or found.leader_epoch < 0 else found.leader_epoch
            rows.append(
                [
                    view.group_id,
                    place.topic,
                    str(place.partition),
                    *([_text(epoch)] if verbose else []),
                    _text(None if found is None else found.offset),
                    _text(end),
                    _text(lag),
                    *(
                        (_MISSING,) * 3
                        if member is None
                        else (member.member_id, member.host, member.client_id)
                    ),
                ]
            )
    return rows


def print_offsets(rows: list[list[str]], *, verbose: bool) -> None:
    """The lag of a group."""
    titles = [
        *("GROUP", "TOPIC", "PARTITION", *(["LEADER-EPOCH"] if verbose else []), "CURRENT-OFFSET"),
        *("LOG-END-OFFSET", "LAG", "CONSUMER-ID", "HOST", "CLIENT-ID"),
    ]
    middle = [10, *([15] if verbose else []), 15, 15, 15]
    group, topic = (max(15, *(len(row[index]) for row in rows)) for index in (0, 1))
    member, host = (max(15, *(len(row[index]) for row in rows)) for index in (-3, -2))
    _print_rows([titles, *rows], [group, topic, *middle, member, host])


def print_members(view: GroupView, *, verbose: bool) -> None:
    """The members of a group."""
    has_instances = any(member.instance_id for member in view.members)
    columns: dict[str, tuple[int, list[str]]] = {
        "GROUP": (15, [view.group_id] * len(view.members)),
        "CONSUMER-ID": (15, [member.member_id for member in view.members]),
        "GROUP-INSTANCE-ID": (17, [member.instance_id or "" for member in view.members]),
        "HOST": (15, [member.host for member in view.members]),
        "CLIENT-ID": (15, [member.client_id for member in view.members]),
        "#PARTITIONS": (15, [str(len(member.assignment)) for member in view.members]),
    }
    if not has_instances:
        del columns["GROUP-INSTANCE-ID"]
    if verbose:
        has_upgrades = any(member.is_upgraded is False for member in view.members)
        if has_upgrades:
            columns["UPGRADED"] = (15, [str(bool(member.is_upgraded)).lower() for member in view.members])
        columns |= {
            "CURRENT-EPOCH": (15, [_text(member.epoch) for member in view.members]),
            "CURRENT-ASSIGNMENT": (20, [_assignment(member.assignment) for member in view.members]),
            "TARGET-EPOCH": (
                15,
                [_text(None if member.target is None else view.target_epoch) for member in view.members],
            ),
            "TARGET-ASSIGNMENT": (20, [_assignment(member.target) for member in view.members]),
        }
    widths = [max([least, *map(len, cells)]) for least, cells in columns.values()]
    rows = [list(columns), *map(list, zip(*(cells for _, cells in columns.values()), strict=True))]
    click.echo()
    for row in rows:
        line = " ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        click.echo(line if verbose else f"{line} ")


def print_state(view: GroupView, *, verbose: bool) -> None:
    """The state of a group."""
    address = view.coordinator.address
    coordinator = f"{address.host}:{address.port}  ({view.coordinator.node_id})"
    columns = {
        "GROUP": (max(15, len(view.group_id)), view.group_id),
        "COORDINATOR (ID)": (max(25, len(coordinator)), coordinator),
        "ASSIGNMENT-STRATEGY": (20, view.assignor or _MISSING),
        "STATE": (20, view.state),
    }
    if verbose:
        columns["GROUP-EPOCH"] = (15, _text(view.epoch))
        columns["TARGET-ASSIGNMENT-EPOCH"] = (25, _text(view.target_epoch))
    columns["#MEMBERS"] = (0, str(len(view.members)))
    _print_rows(
        [list(columns), [cell for _, cell in columns.values()]], [width for width, _ in columns.values()][:-1]
    )


def _print_rows(rows: list[list[str]], widths: list[int]) -> None:
    click.echo()
    for *cells, last in rows:
        padded = [cell.ljust(width) for cell, width in zip(cells, widths, strict=True)]
        click.echo(" ".join([*padded, last]))


def _assignment(places: Iterable[TopicPartition] | None) -> str:
    """`orders:0,1;payments:2`; a dash for nothing."""
    topics: dict[str, list[int]] = {}
    for place in sorted(places or ()):
        topics.setdefault(place.topic, []).append(place.partition)
    words = [f"{topic}:{','.join(map(str, indexes))}" for topic, indexes in topics.items()]
    return ";".join(words) or _MISSING


# ---------------------------------------------------------------- deleting


async def delete(client: Client, scope: Scope) -> None:
    """`--delete`: groups one by one, and then who could not be deleted."""
    from moldau.client import ClientError

    done: list[str] = []
    failed: dict[str, str] = {}
    for name in await scope.names(client):
        try:
            await client.admin.delete_groups(name)
            done.append(name)
        except ClientError as error:
            failed[name] = _java(error.code)
    names = ", ".join(f"'{name}'" for name in done)
    if failed:
        print_error("Deletion of some consumer groups failed:")
        for name, why in failed.items():
            click.echo(f"* Group '{name}' could not be deleted due to: {why}")
        if done:
            click.echo(f"\nThese consumer groups were deleted successfully: {names}")
    else:
        click.echo(f"Deletion of requested consumer groups ({names}) was successful.")


async def delete_offsets(client: Client, group: str, topics: Sequence[str]) -> None:
    """`--delete-offsets`: a line for each partition."""
    from moldau.client import ClientError
    from moldau.model.errors import ErrorCode

    places = await partitions_named(client, topics)
    try:
        results = await client.admin.delete_group_offsets(group, places)
        worst = next((code for code in results.values() if code is not ErrorCode.NONE), ErrorCode.NONE)
        if worst is ErrorCode.NONE:
            click.echo(f"Request succeeded for deleting offsets from group {group}.")
        else:
            print_error("Encountered some partition-level error, see the follow-up details.")
    except ClientError as error:
        results = dict.fromkeys(places, error.code)
        print_error(_exception(error.code)[1])
    rows = [
        [
            place.topic,
            str(place.partition),
            "Successful" if code is ErrorCode.NONE else f"Error: {_java(code)}",
        ]
        for place, code in sorted(results.items())
    ]
    width = max([15, *(len(row[0]) for row in rows)])
    click.echo()
    for topic, partition, status in [["TOPIC", "PARTITION", "STATUS"], *rows]:
        click.echo(f"{topic.ljust(width)} {partition.ljust(10)} {status.ljust(15)}")


# ---------------------------------------------------------------- resetting


async def reset(
    client: Client, scope: Scope, ways: Sequence[Way], *, is_dry: bool
) -> dict[str, dict[TopicPartition, int]]:
    """`--reset-offsets`: the offsets of each group, committed unless it is only tried."""
    from moldau.client import ClientError
    from moldau.model.errors import ErrorCode

    plans: dict[str, dict[TopicPartition, int]] = {}
    for name in await scope.names(client):
        try:
            state = (await client.admin.describe_groups(name))[name].state
        except ClientError as error:
            if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
                raise
            state = "Dead"
        if state not in ("Empty", "Dead"):
            print_error(
                f"Assignments can only be reset if the group '{name}' is inactive,"
                f" but the current state is {state}."
            )
            plans[name] = {}
            continue
        plans[name] = await plan(client, name, scope, ways)
        if not is_dry and plans[name]:
            await client.admin.alter_group_offsets(name, plans[name])
    return plans


async def plan(client: Client, group: str, scope: Scope, ways: Sequence[Way]) -> dict[TopicPartition, int]:
    """Where each partition of a group is to go on."""
    if not scope.is_all_topics and not scope.topics and not (ways and ways[0].name == "from-file"):
        raise click.UsageError("One of the reset scopes should be defined: --all-topics, --topic.")
    if not ways:
        names = ", ".join(f"[{name}]" for name in _WAYS)
        raise click.UsageError(f"Option '[reset-offsets]' requires one of the following scenarios: [{names}]")
    way = ways[0]
    committed = {place: found.offset for place, found in (await client.admin.group_offsets(group)).items()}
    if way.name == "from-file":
        wanted = read_plan(Path(way.value), scope.groups).get(group)
        if wanted is None:
            print_error(f"No reset plan for group {group} found")
            return {}
        return _clamped(wanted, await spans(client.admin, wanted))
    places = list(committed) if scope.is_all_topics else await partitions_named(client, scope.topics)
    held = await spans(client.admin, places)
    match way.name:
        case "to-earliest":
            return {place: held[place].first for place in places}
        case "to-latest":
            return {place: held[place].end for place in places}
        case "to-current":
            return {place: committed.get(place, held[place].end) for place in places}
        case "to-offset":
            return _clamped(dict.fromkeys(places, int(way.value)), held)
        case "shift-by":
            for place in places:
                if place not in committed:
                    raise click.UsageError(
                        f"Cannot shift offset for partition {place} since there is no current committed"
                        " offset"
                    )
            return _clamped({place: committed[place] + int(way.value) for place in places}, held)
        case "to-datetime":
            return await _at_time(client, held, parse_datetime(way.value))
        case _:
            return await _at_time(client, held, time.time_ns() // 1_000_000 - parse_duration(way.value))


def _clamped(wanted: Places, held: Mapping[TopicPartition, Span]) -> dict[TopicPartition, int]:
    """Offsets inside of what partitions hold; Kafka warns of others in its log only."""
    return {place: min(max(offset, held[place].first), held[place].end) for place, offset in wanted.items()}


async def _at_time(
    client: Client, held: Mapping[TopicPartition, Span], timestamp_ms: int
) -> dict[TopicPartition, int]:
    found = await client.admin.list_offsets(dict.fromkeys(held, timestamp_ms))
    offsets: dict[TopicPartition, int] = {}
    for place, span in held.items():
        offsets[place] = found[place].offset
        if found[place].offset < 0:
            offsets[place] = span.end
            click.echo(
                f"\nWarn: Partition {place.partition} from topic {place.topic} is empty."
                " Falling back to latest known offset."
            )
    return offsets


def parse_datetime(text: str) -> int:
    """Kafka's times, in ms since 1970; without a zone they are UTC."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise Failure(f"Unparseable date: {text}") from None
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def parse_duration(text: str) -> int:
    """`P7DT1H30M10.5S` in ms."""
    match = _DURATION.fullmatch(text)
    if match is None or text.upper().endswith(("P", "T")):
        raise Failure("Text cannot be parsed to a Duration")
    sign, days, hours, minutes, seconds = match.groups()
    total = (int(days or 0) * 24 + int(hours or 0)) * 60 + int(minutes or 0)
    return (-1 if sign == "-" else 1) * int((total * 60 + float(seconds or 0)) * 1000)


async def partitions_named(client: Client, topics: Iterable[str]) -> list[TopicPartition]:
    """`orders` is all its partitions, `orders:0,2` two of them."""
    from moldau.client.offsets import place_of

    places: list[TopicPartition] = []
    for text in topics:
        topic, colon, indexes = text.partition(":")
        if not colon:
            views = (await client.admin.describe_topics(topic))[topic].partitions
            places += [view.place for view in views.values()]
            continue
        for index in indexes.split(","):
            if not index.isascii() or not index.isdigit():
                raise click.UsageError(f"Invalid partition '{index}' specified in topic arg '{text}''")
            places.append(place_of((topic, int(index))))
    return places


def read_plan(path: Path, groups: Sequence[str]) -> dict[str, dict[TopicPartition, int]]:
    """What `--export` wrote: `topic,partition,offset` of a single group, or with the group in front."""
    from moldau.client.offsets import place_of

    plans: dict[str, dict[TopicPartition, int]] = {}
    try:
        for row in csv.reader(path.read_text(encoding="utf-8").splitlines()):
            if not row:
                continue
            group, topic, partition, offset = [groups[0], *row] if len(row) == 3 and groups else row
            plans.setdefault(group, {})[place_of((topic, int(partition)))] = int(offset)
    except (OSError, ValueError) as error:
        raise Failure(f"{path} cannot be read: {error}") from error
    return plans


def print_plans(plans: Mapping[str, Places]) -> None:
    """What is reset, as a table."""
    rows = [
        [group, place.topic, str(place.partition), str(offset)]
        for group, offsets in plans.items()
        for place, offset in offsets.items()
    ]
    group_width, topic_width = (max([15, *(len(row[index]) for row in rows)]) for index in (0, 1))
    _print_rows([["GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"], *rows], [group_width, topic_width, 10])


def print_csv(plans: Mapping[str, Places], *, has_group: bool) -> None:
    """The same as CSV that `--from-file` reads."""
    for group, offsets in plans.items():
        for place, offset in offsets.items():
            cells = [*([group] if has_group else []), place.topic, str(place.partition), str(offset)]
            click.echo(",".join(cells))
    click.echo()


# ---------------------------------------------------------------- details


async def _described(client: Client, name: str) -> GroupView:
    from moldau.client import ClientError
    from moldau.model.errors import ErrorCode

    try:
        return (await client.admin.describe_groups(name))[name]
    except ClientError as error:
        if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
            raise
        raise Failure(f"{_exception(error.code)[0]}: {error.message}") from error


def _is_of_consumers(group: GroupListing) -> bool:
    return group.protocol_type in ("consumer", "")


def _chosen(text: str | None, known: Sequence[str], what: str) -> list[str]:
    if not text:
        return []
    by_name = {name.lower(): name for name in known}
    words = [word.strip().lower() for word in text.split(",")]
    if not all(word in by_name for word in words):
        plural = "states" if what == "state" else "types"
        raise click.UsageError(f"Invalid {what} list '{text}'. Valid {plural} are: {', '.join(known)}")
    return [by_name[word] for word in words]


def print_error(text: str) -> None:
    """As Kafka does, on stdout."""
    click.echo(f"\nError: {text}")


def _text(value: int | None) -> str:
    return _MISSING if value is None else str(value)


def _exception(code: ErrorCode) -> tuple[str, str]:
    name, sentence = _EXCEPTIONS.get(code.name, ("ApiException", code.message))
    return f"org.apache.kafka.common.errors.{name}", sentence


def _java(code: ErrorCode) -> str:
    return ": ".join(_exception(code))
