"""What `kafka-consumer-groups` changes: groups get other offsets, lose some, or are deleted."""

from __future__ import annotations

import csv
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from moldau.cli._errors import Failure
from moldau.cli._positions import Span, spans
from moldau.cli.kafka_tools._group_tool import (
    Scope,
    exception,
    java,
    partitions_named,
    print_error,
    print_rows,
)

if TYPE_CHECKING:
    from moldau.client import Client
    from moldau.model.ids import TopicPartition

WAYS: Final = (
    *("to-offset", "shift-by", "from-file", "to-datetime"),
    *("by-duration", "to-latest", "to-current", "to-earliest"),
)
_DURATION: Final = re.compile(
    r"([-+])?P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?", re.ASCII | re.IGNORECASE
)

Places = Mapping["TopicPartition", int]


@dataclass(frozen=True, slots=True)
class Way:
    """How offsets are reset: one of `WAYS`, and its value."""

    name: str
    value: str = ""


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
        names = ", ".join(f"[{name}]" for name in WAYS)
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
    print_rows([["GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"], *rows], [group_width, topic_width, 10])


def print_csv(plans: Mapping[str, Places], *, has_group: bool) -> None:
    """The same as CSV that `--from-file` reads."""
    for group, offsets in plans.items():
        for place, offset in offsets.items():
            cells = [*([group] if has_group else []), place.topic, str(place.partition), str(offset)]
            click.echo(",".join(cells))
    click.echo()


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
            failed[name] = java(error.code)
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
        print_error(exception(error.code)[1])
    rows = [
        [
            place.topic,
            str(place.partition),
            "Successful" if code is ErrorCode.NONE else f"Error: {java(code)}",
        ]
        for place, code in sorted(results.items())
    ]
    width = max([15, *(len(row[0]) for row in rows)])
    click.echo()
    for topic, partition, status in [["TOPIC", "PARTITION", "STATUS"], *rows]:
        click.echo(f"{topic.ljust(width)} {partition.ljust(10)} {status.ljust(15)}")
