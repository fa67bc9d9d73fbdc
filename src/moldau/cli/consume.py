"""`moldau consume`: print the records of a topic."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import click

from moldau.cli._connect import Target, cluster_options, run, topic_argument
from moldau.cli._errors import Failure
from moldau.cli._groups import complete_group, read_as_member
from moldau.cli._output import note
from moldau.cli._positions import AtOffset, Beginning, End, Where, WhereType, offsets_at, partitions_of, spans
from moldau.cli._progress import progress
from moldau.cli._reading import read
from moldau.cli._records import Formatter, parse_format, record_to_json

if TYPE_CHECKING:
    from moldau.client import Client
    from moldau.model.ids import TopicPartition
    from moldau.wire.records.record import Record

ISOLATION_LEVELS: Final = ("read_uncommitted", "read_committed")
_TABLE_HEAD: Final = b"PARTITION      OFFSET  TIMESTAMP                KEY               VALUE\n"


@click.command("consume")
@topic_argument()
@click.option(
    "--from",
    "start",
    type=WhereType(),
    metavar="WHERE",
    help="Where to begin: beginning, end, an offset (42), so many before the end of each partition (-10), a"
    " time ago (-1h, -30m), a time (2030-01-31T12:00, or @MS since 1970).  [default: beginning; with -f end]",
)
@click.option("-n", "--count", type=click.IntRange(min=0), metavar="N", help="Stop after N records.")
@click.option("-f", "--follow", is_flag=True, help="Go on as records come, instead of stopping at the end.")
@click.option(
    "-p",
    "--partition",
    "partitions",
    type=click.IntRange(min=0),
    multiple=True,
    help="Only this one; may be given several times.",
)
@click.option(
    "-g",
    "--group",
    metavar="GROUP",
    shell_complete=complete_group,
    help="Join this group: begin where it has committed, share partitions with its members, commit what was"
    " printed.",
)
@click.option(
    "--format",
    "form",
    metavar="FORMAT",
    help="%t topic, %p partition, %o offset, %T timestamp, %k key, %s value, %h headers, %K and %S lengths of"
    " key and value, %% a percent sign; \\n \\r \\t \\0 \\xHH.",
)
@click.option("--null", metavar="TEXT", default="", help="Print a key or value that is none as TEXT.")
@click.option(
    "--isolation-level", type=click.Choice(ISOLATION_LEVELS), default="read_uncommitted", show_default=True
)
@click.option(
    "-o",
    "--output",
    type=click.Choice(["value", "table", "json"]),
    default="value",
    show_default=True,
    help="Values one per line, a table, or JSON lines with all that a record has.",
)
@cluster_options
def command(
    target: Target,
    topic: str,
    start: Where | None,
    count: int | None,
    follow: bool,
    partitions: tuple[int, ...],
    group: str | None,
    form: str | None,
    null: str,
    isolation_level: str,
    output: str,
) -> None:
    """Read records of a topic.

    Stops at what is the end when it begins, unless told to follow. Records of one partition come in order.

    \b
    Examples:
      moldau consume orders                              all values, one per line
      moldau consume orders -f                           those that come from now on; Ctrl-C ends it
      moldau consume orders --from -10 -f                the last ten of each partition, then the next ones
      moldau consume orders --from -1h -o json           the last hour, as JSON lines
      moldau consume orders --from 42 -p 0 -n 1          the record at offset 42 of partition 0
      moldau consume orders --group billing -f           together with the others of a group
      moldau consume orders --format '%p:%o %k=%s\\n'     as kcat would
    """
    if form is not None and output != "value":
        raise click.UsageError("Choose between --format and -o.")
    formatter = formatter_of(form, output, null.encode())
    if group is not None and (partitions or not isinstance(start, Beginning | End | None)):
        raise click.UsageError(
            "With --group the group decides what is read, and where; --from beginning or end says where a"
            " group begins that has committed nothing. moldau group seek moves one."
        )
    where = start or (End() if follow else Beginning())

    async def consume(client: Client) -> None:
        places = await partitions_of(client, topic, partitions)
        isolation = ISOLATION_LEVELS.index(isolation_level)
        held = await spans(client.admin, places, isolation_level=isolation)
        starts = await offsets_at(client.admin, held, where)
        for place, span in held.items():
            if starts[place] > span.end and isinstance(where, AtOffset):
                raise Failure(
                    f"{place} ends at offset {span.end}, before {starts[place]}."
                    f" If that is meant as a time, write @{starts[place]}."
                )
            if starts[place] < span.first:
                note(f"{place} begins at offset {span.first}.")
                starts[place] = span.first
        out = sys.stdout.buffer
        if output == "table":
            out.write(_TABLE_HEAD)
        ends = None if follow else {place: span.end for place, span in held.items()}
        total = count
        if ends is not None:
            waiting = sum(ends[place] - starts[place] for place in ends)
            total = waiting if count is None else min(count, waiting)
        # A bar and records would be in each other's way on one terminal.
        with progress(f"reading {topic}", total=total, is_wanted=not out.isatty()) as advance:
            async for place, records in read(
                client,
                starts,
                ends=ends,
                count=count,
                stall_ms=int(target.timeout_s * 1000),
                settings={"isolation_level": isolation_level},
            ):
                out.write(b"".join([formatter(place, record) for record in records]))
                out.flush()
                advance(len(records))
        out.flush()

    async def consume_as_member(client: Client) -> None:
        assert group is not None
        out = sys.stdout.buffer
        if output == "table":
            out.write(_TABLE_HEAD)
        async for place, records in read_as_member(
            client,
            group,
            [topic],
            is_endless=follow,
            count=count,
            stall_ms=int(target.timeout_s * 1000),
            isolation_level=isolation_level,
            auto_offset_reset="latest" if isinstance(where, End) else "earliest",
        ):
            out.write(b"".join([formatter(place, record) for record in records]))
            out.flush()

    run(target, consume if group is None else consume_as_member)


def formatter_of(form: str | None, output: str, null: bytes) -> Formatter:
    """How records are printed."""
    if output == "json":
        return record_to_json
    if output == "table":
        return lambda place, record: table_row(place, record, null or b"-")
    try:
        return parse_format("%s\\n" if form is None else form, null=null)
    except ValueError as error:
        raise click.BadParameter(f"{error}.", param_hint="--format") from error


def table_row(place: TopicPartition, record: Record, null: bytes) -> bytes:
    """A record in a line: what is no text is shown with its bytes spelt out."""

    def shown(data: bytes | None) -> str:
        return (null if data is None else bytes(data)).decode(errors="backslashreplace")

    try:
        moment = datetime.fromtimestamp(record.timestamp / 1000, tz=UTC).astimezone()
        when = moment.isoformat(timespec="milliseconds")[:23]
    except (ValueError, OverflowError):
        # In no year that has a number of four digits: microseconds, perhaps.
        when = f"@{record.timestamp}"
    where = f"{place.partition:>9}  {record.offset:>10}  {when:<23}"
    row = f"{where}  {shown(record.key):<16}  {shown(record.value)}"
    return row.replace("\n", "\\n").encode() + b"\n"
