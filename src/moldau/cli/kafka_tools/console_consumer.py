"""`kafka-console-consumer`: print the records of topics."""

from __future__ import annotations

import sys
from collections.abc import Callable, Container, Mapping
from pathlib import Path
from struct import Struct
from typing import TYPE_CHECKING, Final
from uuid import UUID

import click

from moldau.cli._connect import parse_pairs, run
from moldau.cli._errors import Failure
from moldau.cli._groups import read_as_member
from moldau.cli._output import note
from moldau.cli._positions import Beginning, End, offsets_at, spans
from moldau.cli._reading import read
from moldau.cli._records import INT64_MAX, Formatter
from moldau.cli.kafka_tools._tool import (
    KafkaTool,
    connection_options,
    file_option,
    is_true,
    java_double,
    matching,
    read_properties,
    target_of,
)

if TYPE_CHECKING:
    from moldau.client import Client
    from moldau.model.ids import TopicPartition
    from moldau.wire.records.record import Record

FORMATTER: Final = "org.apache.kafka.tools.consumer.DefaultMessageFormatter"
NO_FORMATTER: Final = "org.apache.kafka.tools.consumer.NoOpMessageFormatter"
DESERIALIZERS: Final = "org.apache.kafka.common.serialization."

_NUMBERS: Final = {
    "LongDeserializer": Struct(">q"),
    "IntegerDeserializer": Struct(">i"),
    "ShortDeserializer": Struct(">h"),
    "DoubleDeserializer": Struct(">d"),
}

_ISOLATION: Final = ("read_uncommitted", "read_committed")
# Settings of Kafka's consumer that are decided here rather than by our client.
_GROUP: Final = "group.id"
_RESET: Final = "auto.offset.reset"
_COMMITS: Final = "enable.auto.commit"
_LEVEL: Final = "isolation.level"
_RESETS: Final = ("earliest", "latest", "none")


@click.command("kafka-console-consumer", cls=KafkaTool)
@click.option("--topic", metavar="NAME", help="The topic to read.")
@click.option("--include", metavar="REGEX", help="Instead: all topics that match.")
@click.option("--from-beginning", is_flag=True, help="Begin with the oldest record, not with the next.")
@click.option("--partition", type=click.IntRange(min=0), help="Only this one.")
@click.option("--offset", metavar="OFFSET", help="Where to begin: a number, earliest or latest.")
@click.option("--max-messages", type=int, help="Stop after so many records.")
@click.option("--timeout-ms", type=int, help="Stop if none comes for so long.")
@click.option("--isolation-level", type=click.Choice(_ISOLATION), help=f"[default: {_ISOLATION[0]}]")
@click.option("--group", metavar="ID", help="Join this group, and commit what was printed.")
@click.option("--key-deserializer", metavar="CLASS", help="How to print keys that are no text.")
@click.option("--value-deserializer", metavar="CLASS", help="How to print values that are no text.")
@click.option("--skip-message-on-error", is_flag=True, help="Pass over records that cannot be printed.")
@click.option("--enable-systest-events", is_flag=True, help="Taken without effect.")
@click.option(
    "--formatter", metavar="CLASS", default=FORMATTER, show_default=True, help=f"Or {NO_FORMATTER}."
)
@click.option(
    "--formatter-property",
    "--property",
    "formatter_properties",
    multiple=True,
    metavar="NAME=VALUE",
    help="print.timestamp, print.partition, print.offset, print.headers, print.key, print.value,"
    " key.separator, line.separator, headers.separator, null.literal, key.deserializer,"
    " value.deserializer, headers.deserializer.",
)
@file_option("--formatter-config", help="A file of the same.")
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
    isolation_level: str | None,
    group: str | None,
    key_deserializer: str | None,
    value_deserializer: str | None,
    skip_message_on_error: bool,
    enable_systest_events: bool,
    formatter: str,
    formatter_properties: tuple[str, ...],
    formatter_config: Path | None,
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
    given = read_properties(config_file) | parse_pairs(properties)
    group = group_of(group, read_properties(config_file), parse_pairs(properties))
    if group is not None and partition is not None:
        raise click.UsageError("Options group and partition cannot be specified together.")
    if formatter not in (FORMATTER, NO_FORMATTER):
        raise Failure(f"There is no formatter {formatter}; there are {FORMATTER} and {NO_FORMATTER}.")
    reset = reset_of(given, from_beginning=from_beginning)
    isolation = isolation_level or given.get(_LEVEL, _ISOLATION[0])
    if isolation not in _ISOLATION:
        raise click.UsageError(f"{_LEVEL} is '{isolation}', which must be one of {', '.join(_ISOLATION)}.")
    if partition is not None:
        # Of one partition Kafka's tool asks for a place, whatever the policy is for those who have none.
        start = parse_offset(offset or ("earliest" if from_beginning else "latest"))
    elif reset == "none" and group is None:
        raise Failure(f"There is no group with an offset to begin at, and {_RESET} is none.")
    else:
        start = Beginning() if reset == "earliest" else End()
    is_committing = given.get(_COMMITS, "true").strip().lower() != "false"
    target = target_of(
        bootstrap,
        None,
        [
            f"{name}={value}"
            for name, value in given.items()
            if name not in (_GROUP, _RESET, _COMMITS, _LEVEL)
        ],
    )
    deserializers = {"key.deserializer": key_deserializer, "value.deserializer": value_deserializer}
    options = {
        **read_properties(formatter_config),
        **{name: value for name, value in deserializers.items() if value},
        **parse_pairs(formatter_properties),
    }
    stamped_by_broker: set[str] = set()
    print_record = formatter_of(options, stamped_by_broker)
    if formatter == NO_FORMATTER:
        print_record = lambda place, record: b""  # noqa: E731
    count = 0
    count_max = None if max_messages is None or max_messages < 0 else max_messages
    idle_ms = None if timeout_ms is None or timeout_ms < 0 else timeout_ms

    def printed(place: TopicPartition, record: Record) -> bytes:
        try:
            return print_record(place, record)
        except ValueError as error:
            if skip_message_on_error:
                note(f"ERROR Error processing message, skipping this message: {error}")
                return b""
            raise Failure(f"{place} at offset {record.offset}: {error}") from error

    async def consume_as_member(client: Client) -> None:
        nonlocal count
        assert group is not None
        if topic is not None:
            await client.cluster.topic(topic, may_create=True)
        async for place, records in read_as_member(
            client,
            group,
            [] if topic is None else [topic],
            pattern=include,
            is_endless=True,
            count=count_max,
            idle_ms=idle_ms,
            stall_ms=int(target.timeout_s * 1000),
            isolation_level=isolation,
            auto_offset_reset=reset,
            is_committing=is_committing,
        ):
            count += len(records)
            sys.stdout.buffer.write(b"".join([printed(place, record) for record in records]))
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
        if is_true(options, "print.timestamp"):
            stamped_by_broker.update([name for name in views if await is_stamped_by_broker(client, name)])
        held = await spans(client.admin, places, isolation_level=_ISOLATION.index(isolation))
        starts = (
            dict.fromkeys(places, start)
            if isinstance(start, int)
            else await offsets_at(client.admin, held, start)
        )
        async for place, records in read(
            client,
            starts,
            count=count_max,
            idle_ms=idle_ms,
            settings={"isolation_level": isolation, "auto_offset_reset": reset},
        ):
            count += len(records)
            sys.stdout.buffer.write(b"".join([printed(place, record) for record in records]))
            sys.stdout.buffer.flush()

    try:
        run(target, consume if group is None else consume_as_member)
    finally:
        note(f"Processed a total of {count} messages")


def group_of(flag: str | None, *sources: Mapping[str, str]) -> str | None:
    """The group to join, which a flag, a file or a property may name; None if none does."""
    named = [flag, *(source.get(_GROUP) for source in sources)]
    groups = list(dict.fromkeys(group for group in named if group))
    if len(groups) > 1:
        raise click.UsageError(
            "The group ids provided in different places (directly using '--group', via '--consumer-property',"
            " or via '--consumer.config') do not match. Detected group ids: "
            + ", ".join(f"'{group}'" for group in groups)
        )
    return groups[0] if groups else None


def reset_of(given: Mapping[str, str], *, from_beginning: bool) -> str:
    """Where a reader begins that has no offset, or one that the log does not hold."""
    reset = given.get(_RESET, "earliest" if from_beginning else "latest")
    if from_beginning and reset != "earliest":
        raise Failure(
            f"Can't simultaneously specify --from-beginning and '{_RESET}={reset}', please remove one option"
        )
    if reset not in _RESETS:
        raise click.UsageError(f"{_RESET} is '{reset}', which must be one of {', '.join(_RESETS)}.")
    return reset


def parse_offset(text: str) -> int | Beginning | End:
    """What `--offset` says."""
    match text.lower():
        case "earliest":
            return Beginning()
        case "latest":
            return End()
    if not text.isascii() or not text.isdigit() or int(text) > INT64_MAX:
        raise click.UsageError(
            f"The provided offset value '{text}' is incorrect. Valid values are 'earliest', 'latest', or a"
            " non-negative long."
        )
    return int(text)


async def is_stamped_by_broker(client: Client, topic: str) -> bool:
    """Whether records of a topic have the time at which the broker wrote them."""
    from moldau.client import ResourceType

    entries = await client.admin.describe_configs(ResourceType.TOPIC, topic)
    return entries["message.timestamp.type"].value == "LogAppendTime"


def formatter_of(properties: dict[str, str], stamped_by_broker: Container[str] = ()) -> Formatter:
    """How Kafka's properties have records printed; of topics stamped by the broker, times are told apart."""
    separator = properties.get("key.separator", "\t").encode()
    line_end = properties.get("line.separator", "\n").encode()
    headers_separator = properties.get("headers.separator", ",").encode()
    null = properties.get("null.literal", "null").encode()
    if is_true(properties, "print.epoch"):
        note("WARN print.epoch has no effect: the epochs of records are not known here.")

    def reader(name: str) -> Callable[[bytes | None], bytes]:
        read_value = deserializer(
            properties.get(f"{name}.deserializer", DESERIALIZERS + "StringDeserializer")
        )
        return lambda value: null if value is None else read_value(value)

    key, value, header = reader("key"), reader("value"), reader("headers")

    def headers(place: TopicPartition, record: Record) -> bytes:
        pairs = [name.encode() + b":" + header(data) for name, data in record.headers]
        return headers_separator.join(pairs) if pairs else b"NO_HEADERS"

    parts: dict[str, Callable[[TopicPartition, Record], bytes]] = {
        "print.timestamp": lambda place, record: (
            b"%s:%d"
            % (b"LogAppendTime" if place.topic in stamped_by_broker else b"CreateTime", record.timestamp)
        ),
        "print.partition": lambda place, record: b"Partition:%d" % place.partition,
        "print.offset": lambda place, record: b"Offset:%d" % record.offset,
        "print.headers": headers,
        "print.key": lambda place, record: key(record.key),
        "print.value": lambda place, record: value(record.value),
    }
    wanted = {"print.value": "true"} | properties
    chosen = [part for name, part in parts.items() if is_true(wanted, name)]
    return lambda place, record: separator.join([part(place, record) for part in chosen]) + line_end


def deserializer(name: str) -> Callable[[bytes], bytes]:
    """What one of Kafka's deserializers makes of bytes, as text; ValueError where that is nothing."""
    short = name.removeprefix(DESERIALIZERS)
    if short in ("StringDeserializer", "ByteArrayDeserializer", "BytesDeserializer"):
        return bytes
    if short == "UUIDDeserializer":
        return lambda data: str(UUID(data.decode("ascii"))).encode()
    if short not in _NUMBERS:
        raise Failure(f"There is no deserializer {name}; there are {', '.join(_NUMBERS)} and for text.")
    number = _NUMBERS[short]

    def read_number(data: bytes) -> bytes:
        if len(data) != number.size:
            raise ValueError(f"Size of data received by {short} is not {number.size}")
        (value,) = number.unpack(data)
        return (java_double(value) if isinstance(value, float) else str(value)).encode()

    return read_number
