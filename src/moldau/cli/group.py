"""`moldau group`: look at groups and their lag, move them, delete them, and see why they rebalanced."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from moldau.cli import SuggestingGroup
from moldau.cli._connect import Target, cluster_options, complete_topic, run
from moldau.cli._errors import Failure, NotFound, OutOfReach, no_such_topic
from moldau.cli._groups import PartitionLag, describe_group, group_argument, lags, no_such_group
from moldau.cli._output import (
    Cell,
    Json,
    confirm,
    note,
    output_option,
    print_facts,
    print_json,
    print_table,
    yes_option,
)
from moldau.cli._positions import Where, WhereType, offsets_at, spans

if TYPE_CHECKING:
    from moldau.client import Client
    from moldau.client.groups import GroupView, MemberView
    from moldau.model.ids import TopicPartition


@click.group(cls=SuggestingGroup)
def command() -> None:
    """Look at groups and their lag, move them, delete them, and see why they rebalanced.

    \b
    Examples:
      moldau group list
      moldau group describe billing
      moldau group seek billing --to -1h --dry-run
      moldau group explain billing
    """


dry_run_option = click.option("--dry-run", is_flag=True, help="Only say what would be done.")


# ---------------------------------------------------------------- looking


@command.command("list")
@click.option("--state", "states", multiple=True, metavar="STATE", help="Only those in this state.")
@click.option("--type", "types", multiple=True, metavar="TYPE", help="Only these: classic or consumer.")
@output_option
@cluster_options
def list_groups(target: Target, states: tuple[str, ...], types: tuple[str, ...], output: str) -> None:
    """Show the groups.

    \b
    Examples:
      moldau group list
      moldau group list --state Empty -o json | jq -r '.[].group'
    """
    listed = run(target, lambda client: client.admin.list_groups(states=states, types=types))
    if output == "json":
        print_json(
            [
                {
                    "group": group.group_id,
                    "type": group.type,
                    "protocol_type": group.protocol_type,
                    "state": group.state,
                }
                for group in listed
            ]
        )
    else:
        print_table(
            ["GROUP", "TYPE", "STATE"], [(group.group_id, group.type, group.state) for group in listed]
        )


@command.command("describe")
@group_argument(several=True)
@output_option
@cluster_options
def describe(target: Target, groups: tuple[str, ...], output: str) -> None:
    """Show the members of groups, and how far they are in each partition.

    \b
    Examples:
      moldau group describe billing
      moldau group describe billing -o json | jq '.[].lag'
    """

    async def look(client: Client) -> list[tuple[GroupView, list[PartitionLag]]]:
        views = [await describe_group(client, name) for name in groups]
        return [(view, await lags(client, view)) for view in views]

    documents = [described_group(view, rows) for view, rows in run(target, look)]
    if output == "json":
        print_json(documents)
        return
    for number, document in enumerate(documents):
        if number:
            click.echo()
        show_group(document)


def described_group(view: GroupView, rows: list[PartitionLag]) -> dict[str, Json]:
    """A group as `describe -o json` shows it."""
    known = [row.lag for row in rows if row.lag is not None]
    return {
        "group": view.group_id,
        "type": view.type.lower(),
        "state": view.state,
        "assignor": view.assignor,
        "coordinator": view.coordinator.node_id,
        "epoch": view.epoch,
        "target_epoch": view.target_epoch,
        "lag": sum(known) if known else None,
        "members": [described_member(member) for member in view.members],
        "partitions": [
            {
                "topic": row.place.topic,
                "partition": row.place.partition,
                "committed": None if row.committed is None else row.committed.offset,
                "leader_epoch": None
                if row.committed is None or row.committed.leader_epoch < 0
                else row.committed.leader_epoch,
                "metadata": None if row.committed is None else row.committed.metadata,
                "end": row.end,
                "lag": row.lag,
                "member_id": None if row.member is None else row.member.member_id,
                "client_id": None if row.member is None else row.member.client_id,
                "host": None if row.member is None else row.member.host.removeprefix("/"),
            }
            for row in rows
        ],
    }


def described_member(member: MemberView) -> dict[str, Json]:
    """A member as `describe -o json` shows it."""
    return {
        "member_id": member.member_id,
        "instance_id": member.instance_id,
        "client_id": member.client_id,
        "host": member.host.removeprefix("/"),
        "epoch": member.epoch,
        "partitions": [str(place) for place in member.assignment],
        "target": None if member.target is None else [str(place) for place in member.target],
    }


def show_group(document: dict[str, Json]) -> None:
    """A group for people."""
    members, partitions = document["members"], document["partitions"]
    assert isinstance(members, list)
    assert isinstance(partitions, list)
    epoch = document["epoch"]
    print_facts(
        {
            "group": str(document["group"]),
            "type": str(document["type"]),
            "state": str(document["state"]),
            "assignor": str(document["assignor"]) or None,
            "coordinator": f"broker {document['coordinator']}",
            **({} if epoch is None else {"epoch": str(epoch)}),
            "lag": None if document["lag"] is None else str(document["lag"]),
        }
    )
    if members:
        print_table(
            ["MEMBER", "INSTANCE", "CLIENT", "HOST", "PARTITIONS"],
            [
                (
                    row["member_id"],
                    row["instance_id"],
                    row["client_id"],
                    row["host"],
                    len(row["partitions"]),
                )
                for row in members
            ],
        )
    if partitions:
        print_table(
            ["TOPIC", "PARTITION", "COMMITTED", "END", "LAG", "MEMBER"],
            [
                (row["topic"], row["partition"], row["committed"], row["end"], row["lag"], row["member_id"])
                for row in partitions
            ],
        )


@command.command("explain")
@group_argument()
@click.option(
    "--admin",
    "admin_address",
    metavar="HOST:PORT",
    envvar="MOLDAU_ADMIN",
    help="The admin port of the group's coordinator, which remembers why the group was assigned anew. Also"
    " $MOLDAU_ADMIN.",
)
@output_option
@cluster_options
def explain(target: Target, group: str, admin_address: str | None, output: str) -> None:
    """Show what a group waits for, and why it was assigned anew: who joined, left or stalled, and when.

    What it waits for can be seen in any cluster; the reasons only a Moldau broker remembers, since it became
    the coordinator.

    \b
    Examples:
      moldau group explain billing
      moldau group explain billing --admin 127.0.0.1:9644
    """
    view = run(target, lambda client: describe_group(client, group))
    waiting = obstacles(view)
    rebalances = None if admin_address is None else fetch_rebalances(admin_address, group, target.timeout_s)
    if output == "json":
        print_json({"group": group, "state": view.state, "waits_for": waiting, "rebalances": rebalances})
        return
    print_facts(
        {
            "group": group,
            "state": view.state,
            "members": len(view.members),
            "coordinator": f"broker {view.coordinator.node_id} at {view.coordinator.address}",
        }
    )
    for line in waiting:
        click.echo(f"  {line}")
    if rebalances is None:
        note("--admin HOST:PORT of the coordinator shows why the group was assigned anew.")
    elif not rebalances:
        note("The coordinator remembers no rebalance of this group.")
    else:
        print_table(
            ["WHEN", "EPOCH", "WHO", "WHAT"],
            [row for each in rebalances for row in rebalance_rows(each)],
        )


def rebalance_rows(rebalance: dict[str, Json]) -> list[tuple[Cell, ...]]:
    """A line for each thing that made a group be assigned anew."""
    wall_ms, epoch, causes = rebalance["wall_ms"], rebalance["epoch"], rebalance["causes"]
    assert isinstance(wall_ms, int)
    assert isinstance(epoch, int)
    assert isinstance(causes, list)
    return [(local_time(wall_ms), epoch, cause["who"], cause["what"]) for cause in causes]


def obstacles(view: GroupView) -> list[str]:
    """What a group whose partitions change hands waits for."""
    if view.state in ("PreparingRebalance", "CompletingRebalance"):
        return ["Waits for members to join, or for the leader's assignment."]
    lines = []
    for member in view.members:
        if member.target is None:
            continue
        name = member.instance_id or f"{member.client_id} at {member.host.removeprefix('/')}"
        extra = [str(place) for place in member.assignment if place not in member.target]
        missing = [str(place) for place in member.target if place not in member.assignment]
        if extra:
            lines.append(f"{name} has still to give up {', '.join(extra)}.")
        if missing:
            lines.append(f"{name} waits for {', '.join(missing)}.")
    return lines


def fetch_rebalances(address: str, group: str, timeout_s: float) -> list[dict[str, Json]]:
    """What the admin port of a coordinator remembers; NotFound if the group is another node's."""
    import json
    from http.client import HTTPConnection, HTTPException
    from urllib.parse import quote

    try:
        connection = HTTPConnection(address, timeout=timeout_s)
        connection.request("GET", f"/groups/{quote(group, safe='')}")
        response = connection.getresponse()
        text = response.read().decode()
        if response.status == 404:
            raise NotFound(text)
        rebalances = json.loads(text)["rebalances"]
    except (OSError, HTTPException, ValueError, KeyError) as error:
        raise OutOfReach(f"The admin port at {address} gave no answer that can be read: {error}.") from error
    assert isinstance(rebalances, list)
    return rebalances


def local_time(wall_ms: int) -> str:
    """A moment on the user's clock."""
    moment = datetime.fromtimestamp(wall_ms / 1000, tz=UTC).astimezone()
    return moment.isoformat(timespec="milliseconds")[:23]


# ---------------------------------------------------------------- changing


@command.command("seek")
@group_argument()
@click.option(
    "--to",
    "where",
    type=WhereType(),
    required=True,
    metavar="WHERE",
    help="Where to go on: beginning, end, an offset (42), so many before the end of each partition (-10), a"
    " time ago (-1h, -30m), a time (2030-01-31T12:00, or @MS since 1970).",
)
@click.option(
    "--topic",
    "topics",
    multiple=True,
    metavar="TOPIC",
    shell_complete=complete_topic,
    help="Only this one; may be given several times, also for topics that the group has not read yet.",
)
@click.option(
    "-p",
    "--partition",
    "partitions",
    type=click.IntRange(min=0),
    multiple=True,
    help="Only these partitions of the topics.",
)
@dry_run_option
@output_option
@cluster_options
def seek(
    target: Target,
    group: str,
    where: Where,
    topics: tuple[str, ...],
    partitions: tuple[int, ...],
    dry_run: bool,
    output: str,
) -> None:
    """Let a group go on elsewhere.

    Nobody may be reading: stop the members first. Without --topic all that the group has committed moves.

    \b
    Examples:
      moldau group seek billing --to beginning --dry-run
      moldau group seek billing --to -1h --topic orders
      moldau group seek billing --to 42 --topic orders -p 0
    """

    async def move(client: Client) -> list[tuple[TopicPartition, int | None, int]]:
        from moldau.client import ClientError
        from moldau.model.errors import ErrorCode

        try:
            view = (await client.admin.describe_groups(group))[group]
        except ClientError as error:
            if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
                raise
            if not topics:
                others = [each.group_id for each in await client.admin.list_groups()]
                raise no_such_group(group, others) from error
        else:
            refuse_members(view)
        committed = await client.admin.group_offsets(group)
        places = await places_to_move(client, committed, topics, partitions)
        held = await spans(client.admin, places)
        wanted = await offsets_at(client.admin, held, where)
        found = {
            place: min(max(offset, held[place].first), held[place].end) for place, offset in wanted.items()
        }
        for place, offset in found.items():
            if offset != wanted[place]:
                note(f"{place} holds {held[place].first} to {held[place].end}: {offset} is the nearest.")
        if not dry_run:
            await client.admin.alter_group_offsets(group, found)
        return [
            (place, committed[place].offset if place in committed else None, offset)
            for place, offset in sorted(found.items())
        ]

    moved = run(target, move)
    if output == "json":
        print_json(
            [
                {
                    "topic": place.topic,
                    "partition": place.partition,
                    "from": before,
                    "to": after,
                    "done": not dry_run,
                }
                for place, before, after in moved
            ]
        )
    else:
        print_table(
            ["TOPIC", "PARTITION", "FROM", "TO"],
            [(place.topic, place.partition, before, after) for place, before, after in moved],
        )
        if dry_run:
            note("Nothing was changed.")


async def places_to_move(
    client: Client,
    committed: Iterable[TopicPartition],
    topics: tuple[str, ...],
    partitions: tuple[int, ...],
) -> list[TopicPartition]:
    """The partitions that were asked for, or all that the group has committed and that still exist."""
    known = await client.admin.list_topics()
    for topic in topics:
        if topic not in known:
            raise no_such_topic(topic, known)
    candidates = (
        [view.place for topic in topics for view in known[topic].partitions.values()]
        if topics
        else [
            place
            for place in committed
            if place.topic in known and place.partition in known[place.topic].partitions
        ]
    )
    places = [place for place in candidates if not partitions or place.partition in partitions]
    if not places:
        raise Failure("There is nothing to move: name a --topic, or partitions that exist.")
    return places


def refuse_members(view: GroupView) -> None:
    """Moving a group under its members would be undone by their next commit."""
    if not view.is_empty:
        names = ", ".join(sorted({member.client_id for member in view.members}))
        raise Failure(
            f"{view.group_id} has {len(view.members)} members ({names}) and is {view.state}: stop them first."
        )


@command.command("delete")
@group_argument(several=True)
@dry_run_option
@yes_option
@cluster_options
def delete(target: Target, groups: tuple[str, ...], dry_run: bool, is_sure: bool) -> None:
    """Delete groups with all that they have committed; nobody may be reading.

    \b
    Examples:
      moldau group delete billing --dry-run
      moldau group delete billing shipping --yes
    """

    async def delete_all(client: Client) -> None:
        for name in groups:
            refuse_members(await describe_group(client, name))
        if not dry_run:
            confirm(f"Delete {', '.join(groups)} with all that they have committed?", is_sure=is_sure)
        for name in groups:
            if not dry_run:
                await client.admin.delete_groups(name)
            note(f"{name} {'could be deleted' if dry_run else 'deleted'}")

    run(target, delete_all)
