"""`kafka-console-consumer`: print the records of topics."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from moldau.cli._connect import parse_pairs, run
from moldau.cli._groups import read_as_member
from moldau.cli._output import note
from moldau.cli._positions import Beginning, End, offsets_at, spans
from moldau.cli._reading import read
from moldau.cli._records import Formatter
from moldau.cli.kafka_tools._tool import KafkaTool, connection_options, is_true, matching, target_of

if TYPE_CHECKING:
    from moldau.client import Client
    from moldau.model.ids import TopicPartition
    from moldau.wire.records.record import Record

_ISOLATION: Final = ("read_uncommitted", "read_committed")


@click.command("kafka-console-consumer", cls=KafkaTool)
@click.option("--topic", metavar="NAME", help="The topic to read.")
@click.option("--include", metavar="REGEX", help="Instead: all topics that match.")
@click.option("--from-beginning", is_flag=True, help="Begin with the oldest record, not with the next.")
@click.option("--partition", type=click.IntRange(min=0), help="Only this one.")
@click.option("--offset", metavar="OFFSET", help="Where to begin: a number, earliest or latest.")
@click.option("--max-messages", type=click.IntRange(min=0), help="Stop after so many records.")
@click.option("--timeout-ms", type=click.IntRange(min=1), help="Stop if none comes for so long.")
@click.option("--isolation-level", type=click.Choice(_ISOLATION), default=_ISOLATION[0], show_default=True)
@click.option("--group", metavar="ID", help="Join this group, and commit what was printed.")
@click.option(
    "--key-deserializer", metavar="CLASS", help="Taken without effect: bytes are printed as they are."
)
@click.option("--value-deserializer", metavar="CLASS", help="The same.")
@click.option("--skip-message-on-error", is_flag=True, help="Taken without effect.")
@click.option(
    "--formatter-property",
    "--property",
    "formatter_properties",
    multiple=True,
    metavar="NAME=VALUE",
    help="print.timestamp, print.partition, print.offset, print.headers, print.key, print.value,"
    " key.separator, line.separator, headers.separator, null.literal.",
)
@connection_options(
    "--command-config", "--consumer.config", property_names=("--command-property", "--consumer-property")
)
def command(
    topic: str | None,
    include: str | None,
    from_beginning: bool,
    partition: int | None,
    offset: str | None,
    max_messages: int | None,
    timeout_ms: int | None,
    isolation_level: str,
    group: str | None,
    key_deserializer: str | None,
    value_deserializer: str | None,
    skip_message_on_error: bool,
    formatter_properties: tuple[str, ...],
    bootstrap: str,
    config_file: Path | None,
    properties: tuple[str, ...],
) -> None:
    """Print the records of topics.

    \b
    Examples:
      moldau kafka-console-consumer --bootstrap-server localhost:9092 --topic orders --from-beginning
      moldau kafka-console-consumer --topic orders --property print.key=true --max-messages 10
    """
    if (topic is None) == (include is None):
        raise click.UsageError("Exactly one of --include/--topic is required.")
    if offset is not None and partition is None:
        raise click.UsageError("The partition is required when offset is specified.")
    if partition is not None and topic is None:
        raise click.UsageError("The topic is required when partition is specified.")
    if from_beginning and offset is not None:
        raise click.UsageError("Options from-beginning and offset cannot be specified together.")
    if group is not None and partition is not None:
        raise click.UsageError("Options group and partition cannot be specified together.")
    start = parse_offset(offset or ("earliest" if from_beginning else "latest"))
    target = target_of(bootstrap, config_file, properties)
    options = parse_pairs(formatter_properties)
    count = 0

    async def consume_as_member(client: Client) -> None:
        nonlocal count
        assert group is not None
        if topic is not None:
            await client.cluster.topic(topic, may_create=True)
        formatter = formatter_of(options)
        async for place, records in read_as_member(
            client,
            group,
            [] if topic is None else [topic],
            pattern=include,
            is_endless=True,
            count=max_messages,
            idle_ms=timeout_ms,
            stall_ms=int(target.timeout_s * 1000),
            isolation_level=isolation_level,
            auto_offset_reset="earliest" if from_beginning else "latest",
        ):
            count += len(records)
            sys.stdout.buffer.write(b"".join([formatter(place, record) for record in records]))
            sys.stdout.buffer.flush()

    async def consume(client: Client) -> None:
        nonlocal count
        if topic is None:
            names = matching(include or "", await client.admin.list_topics())
            views = await client.admin.describe_topics(*names)
        else:
            # As Kafka's consumer does, this one may create the topic, if the brokers allow it.
            views = {topic: await client.cluster.topic(topic, may_create=True)}
        places = [
            view.place
            for known in views.values()
            for index, view in known.partitions.items()
            if partition is None or index == partition
        ]
        held = await spans(client.admin, places, isolation_level=_ISOLATION.index(isolation_level))
        starts = (
            dict.fromkeys(places, start)
            if isinstance(start, int)
            else await offsets_at(client.admin, held, start)
        )
        formatter = formatter_of(options)
        async for place, records in read(
            client,
            starts,
            count=max_messages,
            idle_ms=timeout_ms,
            settings={"isolation_level": isolation_level},
        ):
            count += len(records)
            sys.stdout.buffer.write(b"".join([formatter(place, record) for record in records]))
            sys.stdout.buffer.flush()

    try:
        run(target, consume if group is None else consume_as_member)
    finally:
        note(f"Processed a total of {count} messages")


def parse_offset(text: str) -> int | Beginning | End:
    """What `--offset` says."""
    match text.lower():
        case "earliest":
            return Beginning()
        case "latest":
            return End()
    if not text.isascii() or not text.isdigit():
        raise click.UsageError(
            f"The provided offset value '{text}' is incorrect. Valid values are 'earliest', 'latest', or a"
            " non-negative long."
        )
    return int(text)


def formatter_of(properties: dict[str, str]) -> Formatter:
    """How Kafka's properties have records printed."""
    separator = properties.get("key.separator", "\t").encode()
    line_end = properties.get("line.separator", "\n").encode()
    headers_separator = properties.get("headers.separator", ",").encode()
    null = properties.get("null.literal", "null").encode()

    def data(value: bytes | None) -> bytes:
        return null if value is None else value

    def headers(place: TopicPartition, record: Record) -> bytes:
        pairs = [name.encode() + b":" + data(value) for name, value in record.headers]
        return headers_separator.join(pairs) if pairs else b"NO_HEADERS"

    parts: dict[str, Callable[[TopicPartition, Record], bytes]] = {
        "print.timestamp": lambda place, record: b"CreateTime:%d" % record.timestamp,
        "print.partition": lambda place, record: b"Partition:%d" % place.partition,
        "print.offset": lambda place, record: b"Offset:%d" % record.offset,
        "print.headers": headers,
        "print.key": lambda place, record: data(record.key),
        "print.value": lambda place, record: data(record.value),
    }
    wanted = {"print.value": "true"} | properties
    chosen = [part for name, part in parts.items() if is_true(wanted, name)]
    return lambda place, record: separator.join([part(place, record) for part in chosen]) + line_end
