"""`kafka-get-offsets`: print offsets of partitions."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from moldau.cli._connect import run
from moldau.cli._errors import Failure
from moldau.cli.kafka_tools._tool import KafkaTool, connection_options, matching, target_of

if TYPE_CHECKING:
    from moldau.client import Client

_TIMES: Final = {
    "latest": -1,
    "earliest": -2,
    "max-timestamp": -3,
    "earliest-local": -4,
    "latest-tiered": -5,
    "earliest-pending-upload": -6,
}
_PLACE: Final = re.compile(r"([^:,]*)(?::(?:(\d+)|(\d*)-(\d*)))?")

IsWanted = Callable[[str, int], bool]


@click.command("kafka-get-offsets", cls=KafkaTool)
@click.option("--topic", metavar="REGEX", help="Topics to look at; all if not given.")
@click.option("--partitions", metavar="0,1", help="Partitions to look at; all if not given.")
@click.option(
    "--topic-partitions",
    metavar="TOPIC:0,TOPIC:1-3",
    help="Instead: topics with a partition each, or a range without its end.",
)
@click.option(
    "--time",
    metavar="TIME",
    default="latest",
    show_default=True,
    help=f"A time in ms since 1970, or {', '.join(_TIMES)}.",
)
@click.option("--exclude-internal-topics", is_flag=True, help="Leave out internal topics.")
@connection_options("--command-config")
def command(
    topic: str | None,
    partitions: str | None,
    topic_partitions: str | None,
    time: str,
    exclude_internal_topics: bool,
    bootstrap: str,
    config_file: Path | None,
) -> None:
    """Print offsets of partitions.

    \b
    Examples:
      moldau kafka-get-offsets --bootstrap-server localhost:9092 --topic orders
      moldau kafka-get-offsets --bootstrap-server localhost:9092 --topic orders --time earliest
    """
    if topic_partitions is not None and (topic is not None or partitions is not None):
        raise click.UsageError("--topic-partitions cannot be used with --topic or --partitions")
    is_wanted = by_topic(topic, partitions) if topic_partitions is None else by_places(topic_partitions)
    timestamp = parse_time(time)

    async def look(client: Client) -> list[tuple[str, int, int]]:
        places = [
            view.place
            for name, known in (await client.admin.list_topics()).items()
            if not (exclude_internal_topics and known.is_internal)
            for index, view in known.partitions.items()
            if is_wanted(name, index)
        ]
        if not places:
            raise Failure("Could not match any topic-partitions with the specified filters")
        found = await client.admin.list_offsets(dict.fromkeys(places, timestamp))
        return [(place.topic, place.partition, found[place].offset) for place in sorted(places)]

    for name, index, offset in run(target_of(bootstrap, config_file), look):
        # No record has that time.
        if offset >= 0:
            click.echo(f"{name}:{index}:{offset}")


def parse_time(text: str) -> int:
    """A word or a number as ListOffsets takes it."""
    if text.lower() in _TIMES:
        return _TIMES[text.lower()]
    try:
        return int(text)
    except ValueError:
        raise Failure(
            f"Malformed time argument {text}. Please use a number of ms, or one of {', '.join(_TIMES)}."
        ) from None


def by_topic(topic: str | None, partitions: str | None) -> IsWanted:
    """What `--topic` and `--partitions` choose."""
    try:
        indexes = None if partitions is None else {int(part) for part in partitions.split(",")}
    except ValueError:
        raise Failure(f"--partitions must be numbers with commas between, not {partitions}.") from None
    return lambda name, index: (
        (topic is None or bool(matching(topic, [name]))) and (indexes is None or index in indexes)
    )


def by_places(text: str) -> IsWanted:
    """What `--topic-partitions` chooses."""
    rules = [place_rule(part.strip()) for part in text.split(",")]
    return lambda name, index: any(rule(name, index) for rule in rules)


def place_rule(text: str) -> IsWanted:
    """`TOPIC`, `TOPIC:3`, `TOPIC:1-3` without 3, `TOPIC:1-` or `TOPIC:-3`."""
    place = _PLACE.fullmatch(text)
    if place is None:
        raise Failure(f"Invalid rule: {text}")
    topic, single, first, end = place.groups()

    def is_wanted(name: str, index: int) -> bool:
        if topic and not matching(topic, [name]):
            return False
        if single is not None:
            return index == int(single)
        return index >= int(first or 0) and (not end or index < int(end))

    return is_wanted
