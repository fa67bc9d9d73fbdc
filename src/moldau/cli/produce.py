"""`moldau produce`: write records from arguments, lines or JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Final

import click

from moldau.cli._connect import Target, cluster_options, run, topic_argument
from moldau.cli._errors import Failure, no_such_topic
from moldau.cli._output import drop_stdout, note, output_option
from moldau.cli._progress import Advance, progress
from moldau.cli._records import INT64_MAX, BadRecord, Headers, LineFormat, NewRecord, record_from_json
from moldau.cli._stdin import line_batches, stdin_bytes
from moldau.cli._writing import write

if TYPE_CHECKING:
    from moldau.client import Client, Delivered

CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
PARTITIONERS: Final = (
    *("default", "murmur2", "murmur2_random", "consistent", "consistent_random"),
    *("fnv1a", "fnv1a_random", "round_robin", "sticky"),
)


def parse_headers(ctx: click.Context, parameter: click.Parameter, texts: tuple[str, ...]) -> Headers:
    """`NAME=VALUE`, or `NAME` alone for a header without a value."""
    pairs = (text.partition("=") for text in texts)
    return tuple((name, value.encode() if equals else None) for name, equals, value in pairs)


@click.command("produce")
@topic_argument()
@click.argument("values", metavar="[VALUE]...", nargs=-1)
@click.option("-k", "--key", metavar="TEXT", help="The key of every record.")
@click.option(
    "-H",
    "--header",
    "headers",
    metavar="NAME=VALUE",
    multiple=True,
    callback=parse_headers,
    help="A header of every record; may be given several times.",
)
@click.option("-p", "--partition", type=click.IntRange(min=0), help="Where to write, whatever the key.")
@click.option(
    "--timestamp",
    type=click.IntRange(min=0, max=INT64_MAX),
    metavar="MS",
    help="Instead of the present time.",
)
@click.option("--tombstone", is_flag=True, help="Write one record without a value: with -k, delete a key.")
@click.option(
    "-K", "--key-separator", metavar="TEXT", help="Take what stands before it in a line of stdin as the key."
)
@click.option("--null", metavar="TEXT", help="Take a key or value that is TEXT for none at all.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["lines", "json"]),
    default="lines",
    show_default=True,
    help="What stdin has: a value per line, or the JSON that `consume -o json` prints.",
)
@click.option("--acks", type=click.Choice(["all", "1", "0"]), default="all", show_default=True)
@click.option("-z", "--compression", type=click.Choice(CODECS), default="none", show_default=True)
@click.option("--partitioner", type=click.Choice(PARTITIONERS), default="default", show_default=True)
@output_option
@cluster_options
def command(
    target: Target,
    topic: str,
    values: tuple[str, ...],
    key: str | None,
    headers: Headers,
    partition: int | None,
    timestamp: int | None,
    tombstone: bool,
    key_separator: str | None,
    null: str | None,
    form: str,
    acks: str,
    compression: str,
    partitioner: str,
    output: str,
) -> None:
    """Write records to a topic.

    Each VALUE is a record. Without any, each line of stdin is one, until its end (Ctrl-D). With --format json
    each line is an object with value and perhaps key, headers, partition and timestamp; bytes that are no
    text are {"base64": "..."}. What `moldau consume -o json` prints can be written again, byte for byte.

    \b
    Examples:
      moldau produce orders hello                        one record
      moldau produce orders -k 42 -H source=shop hello   with a key and a header
      moldau produce orders -K : < orders.txt            lines of key:value
      moldau produce orders -k 42 --tombstone            delete a key of a compacted topic
      moldau consume a -o json | moldau produce b --format json
      echo '{"key": "k", "value": {"base64": "AP8="}}' | moldau produce orders --format json
    """
    if values and (form == "json" or key_separator is not None):
        raise click.UsageError("--format and --key-separator are about stdin: leave them or the values out.")
    if tombstone and values:
        raise click.UsageError("A tombstone has no value: leave --tombstone or the values out.")
    if key_separator == "":
        raise click.BadParameter("it must not be empty.", param_hint="--key-separator")
    marker = None if null is None else null.encode()
    lines = LineFormat(None if key_separator is None else key_separator.encode(), marker)
    defaults = NewRecord(None, None if key is None else key.encode(), headers, partition, timestamp)
    report = Report(as_json=output == "json")

    async def batches(advance: Advance) -> AsyncIterator[list[NewRecord]]:
        if values or tombstone:
            given = [None] if tombstone else [lines.record(value.encode()).value for value in values]
            yield [with_defaults(NewRecord(value), defaults) for value in given]
            return
        number = 0
        async for batch in line_batches():
            records: list[NewRecord] = []
            for line in batch:
                number += 1
                try:
                    record = record_from_json(line) if form == "json" else lines.record(line)
                except BadRecord as error:
                    # What comes before is written, so that whoever mends the line can go on from there.
                    yield records
                    yield []
                    raise Failure(f"Line {number} is no record: {error}.{told_before(number)}") from error
                records.append(with_defaults(record, defaults))
            advance(sum(map(len, batch)) + len(batch))
            yield records

    async def produce(client: Client) -> None:
        topics = await client.admin.list_topics()
        if topic not in topics:
            raise no_such_topic(topic, topics)
        settings = {"acks": acks, "compression_type": compression, "partitioner": partitioner}
        total = stdin_bytes()
        if not (values or tombstone) and sys.stdin.isatty():
            note(f"Each line is a record of {topic}; Ctrl-D ends.")
        with progress(
            f"writing to {topic}", total=total, unit="bytes", is_wanted=total is not None
        ) as advance:
            await write(client, topic, batches(advance), settings=settings, on_delivered=report.delivered)

    run(target, produce)
    report.finish(topic)


def told_before(number: int) -> str:
    """What became of the lines before this one."""
    if number == 1:
        return ""
    return " The line before it was written." if number == 2 else f" The {number - 1} before it were written."


def with_defaults(record: NewRecord, defaults: NewRecord) -> NewRecord:
    """A record, with what it does not say itself taken from the options."""
    return NewRecord(
        record.value,
        defaults.key if record.key is None else record.key,
        (*record.headers, *defaults.headers),
        defaults.partition if record.partition is None else record.partition,
        defaults.timestamp if record.timestamp is None else record.timestamp,
    )


class Report:
    """What is told about the records that were written: each as JSON, or all in a line."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._spans: dict[int, tuple[int, int]] = {}
        self._count = 0
        self._is_read = True

    def delivered(self, delivered: Delivered) -> None:
        """One more was written."""
        self._count += 1
        partition, offset = delivered.partition.partition, delivered.offset
        first, _ = self._spans.get(partition, (offset, offset))
        self._spans[partition] = (first, offset)
        if self._as_json and self._is_read:
            row = {
                "topic": delivered.partition.topic,
                "partition": partition,
                "offset": None if offset < 0 else offset,
                "timestamp": delivered.timestamp,
            }
            try:
                click.echo(json.dumps(row, separators=(",", ":")))
            except BrokenPipeError:
                # Who reads the report has enough of it; what is being written is written all the same.
                self._is_read = False
                drop_stdout()

    def finish(self, topic: str) -> None:
        """All were written."""
        if self._as_json:
            return
        places = "; ".join(
            f"partition {partition}"
            + ("" if first < 0 else f" offset {first}" + (f" to {last}" * (last > first)))
            for partition, (first, last) in sorted(self._spans.items())
        )
        records = "1 record" if self._count == 1 else f"{self._count} records"
        note(f"{records} written to {topic}{': ' if places else ''}{places}")
