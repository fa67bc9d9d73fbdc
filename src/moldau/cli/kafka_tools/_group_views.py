"""What `kafka-consumer-groups` shows: the groups, the lag, members or state of some, and what a regex is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

import click

from moldau.cli._errors import Failure
from moldau.cli._groups import ends_of
from moldau.cli._output import note
from moldau.cli.kafka_tools._group_tool import Scope, exception, is_of_consumers, print_error, print_rows

if TYPE_CHECKING:
    from moldau.client import Client
    from moldau.client.groups import GroupView, MemberView
    from moldau.model.ids import TopicPartition

_STATES: Final = (
    *("CompletingRebalance", "Dead", "PreparingRebalance", "Empty"),
    *("Assigning", "Stable", "Reconciling"),
)
_TYPES: Final = ("Consumer", "Classic")
_REBALANCING: Final = ("PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling")
_MISSING: Final = "-"
# What is wrong with a regular expression, as RE2 says it in C++ -> as it does in Java.
_REGEX_FAULTS: Final = {
    "missing )": "missing closing )",
    "unexpected )": "regexp/syntax: internal error",
    "missing ]": "missing closing ]",
    "no argument for repetition operator": "missing argument to repetition operator",
    "bad repetition operator": "invalid nested repetition operator",
    "invalid repetition size": "invalid repeat count",
    "invalid perl operator": "invalid or unsupported Perl syntax",
    "invalid named capture group": "invalid named capture",
    "trailing \\": "trailing backslash at end of expression",
}


async def list_groups(client: Client, state: str | None, types: str | None) -> None:
    """`--list`, perhaps with states and types."""
    wanted_states = _chosen(state, _STATES, "state")
    wanted_types = _chosen(types, _TYPES, "types")
    listed = [
        group
        for group in await client.admin.list_groups(states=wanted_states, types=wanted_types)
        if is_of_consumers(group)
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
    print_rows([titles, *rows], [group, topic, *middle, member, host])


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
    print_rows(
        [list(columns), [cell for _, cell in columns.values()]], [width for width, _ in columns.values()][:-1]
    )


def validate_regex(regex: str) -> None:
    """`--validate-regex`: whether a broker takes it, which has RE2 as Kafka's have."""
    from moldau.coordinator.group.consumer.regexes import why_none

    why = why_none(regex)
    if why is None:
        click.echo(f"The regular expression `{regex}` is valid.")
    else:
        fault = why.partition(":")[0]
        click.echo(f"The regular expression `{regex}` is invalid: {_REGEX_FAULTS.get(fault, fault)}.")


async def _described(client: Client, name: str) -> GroupView:
    from moldau.client import ClientError
    from moldau.model.errors import ErrorCode

    try:
        return (await client.admin.describe_groups(name))[name]
    except ClientError as error:
        if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
            raise
        raise Failure(f"{exception(error.code)[0]}: {error.message}") from error


def _chosen(text: str | None, known: Sequence[str], what: str) -> list[str]:
    if not text:
        return []
    by_name = {name.lower(): name for name in known}
    words = [word.strip().lower() for word in text.split(",")]
    if not all(word in by_name for word in words):
        plural = "states" if what == "state" else "types"
        raise click.UsageError(f"Invalid {what} list '{text}'. Valid {plural} are: {', '.join(known)}")
    return [by_name[word] for word in words]


def _assignment(places: Iterable[TopicPartition] | None) -> str:
    """`orders:0,1;payments:2`; a dash for nothing."""
    topics: dict[str, list[int]] = {}
    for place in sorted(places or ()):
        topics.setdefault(place.topic, []).append(place.partition)
    words = [f"{topic}:{','.join(map(str, indexes))}" for topic, indexes in topics.items()]
    return ";".join(words) or _MISSING


def _text(value: int | None) -> str:
    return _MISSING if value is None else str(value)
