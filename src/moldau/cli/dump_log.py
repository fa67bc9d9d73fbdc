"""`moldau dump-log`: show what the files of a log directory hold, and whether they are sound."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import click
import msgspec

from moldau.cli._errors import Failure, NotFound
from moldau.cli._log_files import (
    ZEROS,
    Batch,
    DamagedFile,
    Kind,
    index_problems,
    kind_of,
    read_batches,
    read_offset_index,
    read_producers,
    read_time_index,
    read_transaction_index,
)
from moldau.cli._log_records import LogKind, Undecodable, decode_control, decode_record, log_kind_of
from moldau.cli._output import output_option, styled
from moldau.cli._records import bytes_to_json
from moldau.log.producers import Producer
from moldau.wire.as_json import Json
from moldau.wire.records.compression import Codec
from moldau.wire.records.header import NO_PRODUCER_ID, BatchHeader
from moldau.wire.records.record import Record

# So many rows decide how wide the columns of a table are; a long one is printed while it is read.
_ROWS_FOR_WIDTHS: Final = 200
_SHOWN_MAX: Final = 400

_COLUMNS: Final[dict[str, tuple[str, ...]]] = {
    "batch": ("position", "offsets", "records", "bytes", "codec", "epoch", "producer", "latest", "kind"),
    "offset-index": ("offset", "position"),
    "time-index": ("timestamp", "offset"),
    "aborted-transaction": ("producer_id", "first_offset", "last_offset", "last_stable_offset"),
    "producer": ("producer_id", "epoch", "batches", "coordinator_epoch", "latest", "open_transaction"),
}


@dataclass(frozen=True, slots=True)
class Entry:
    """Something in a file: a document for scripts, which tables are made of too; or what is wrong with it."""

    facts: dict[str, Json]
    problem: str | None = None


@click.command("dump-log")
@click.argument(
    "paths", nargs=-1, required=True, metavar="FILE_OR_DIRECTORY...", type=click.Path(path_type=Path)
)
@click.option("-d", "--print-data", is_flag=True, help="Records too; those of internal topics decoded.")
@click.option("--verify", "is_check", is_flag=True, help="Only check, and print what is wrong.")
@output_option
def command(paths: tuple[Path, ...], print_data: bool, is_check: bool, output: str) -> None:
    """Show what segments, indexes and snapshots hold, and whether they are sound.

    Reads Moldau's files and Kafka's, also those of a broker that runs. Checks CRCs, and indexes against their
    segment; ends with 1 if something is damaged.

    \b
    Examples:
      moldau dump-log moldau-data/orders-0                        a partition
      moldau dump-log -d moldau-data/__consumer_offsets-0/*.log   what groups have committed
      moldau dump-log -d -o json moldau-data/__cluster_metadata-0/*.log
      moldau dump-log --verify moldau-data                        is all of it sound?
    """
    damaged = 0
    for path in files_of(paths):
        try:
            damaged += _dump(
                path, has_data=print_data or is_check, is_check=is_check, is_json=output == "json"
            )
        except PermissionError as error:
            raise Failure(f"{path} cannot be read: {error.strerror}.") from error
        except FileNotFoundError:
            # Retention was faster.
            continue
    if damaged:
        raise Failure(f"{damaged} {'thing is' if damaged == 1 else 'things are'} wrong.")
    if is_check and output != "json":
        click.echo("All is sound.")


def files_of(paths: Iterable[Path]) -> list[Path]:
    """The files that are named, and those of a log that are in the directories that are."""
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside = sorted(file for file in path.rglob("*") if file.is_file() and kind_of(file) is not None)
            if not inside:
                raise NotFound(f"There are no files of a log in {path}.")
            found += inside
        elif not path.exists():
            raise NotFound(f"There is no file '{path}'.")
        elif kind_of(path) is None:
            raise Failure(
                f"{path} is no file of a log: those are called 00000000000000000000.log, .index,"
                " .timeindex, .txnindex or .snapshot, or are checkpoints."
            )
        else:
            found.append(path)
    return found


def _dump(path: Path, *, has_data: bool, is_check: bool, is_json: bool) -> int:
    """Print one file; how many things are wrong in it."""
    entries = entries_of(path, has_data=has_data)
    damaged = 0

    def shown() -> Iterator[Entry]:
        nonlocal damaged
        for entry in entries:
            damaged += entry.problem is not None
            if entry.problem is not None or not is_check:
                yield entry

    if is_json:
        for entry in shown():
            document = {"file": str(path), **entry.facts, "problem": entry.problem}
            click.echo(msgspec.json.encode(document))
    elif is_check:
        for entry in shown():
            click.echo(f"{path}: {_place(entry)}{entry.problem}")
    else:
        click.echo(styled(str(path), bold=True))
        for line in _table(shown()):
            click.echo(f"  {line}")
    return damaged


def entries_of(path: Path, *, has_data: bool) -> Iterator[Entry]:
    """All that is in a file, as documents; names in them stay."""
    try:
        match kind_of(path):
            case Kind.LOG | Kind.METADATA_SNAPSHOT:
                yield from _batches(path, has_data=has_data)
            case Kind.OFFSET_INDEX:
                for offset, position in read_offset_index(path):
                    yield Entry({"type": "offset-index", "offset": offset, "position": position})
            case Kind.TIME_INDEX:
                for timestamp, offset in read_time_index(path):
                    yield Entry({"type": "time-index", "timestamp": timestamp, "offset": offset})
            case Kind.TRANSACTION_INDEX:
                for aborted in read_transaction_index(path):
                    yield Entry({"type": "aborted-transaction", **aborted._asdict()})
            case Kind.PRODUCERS | Kind.RECENT_BATCHES:
                for producer in read_producers(path):
                    yield Entry(_producer(producer))
            case _:
                text = path.read_text(encoding="utf-8", errors="replace")
                yield Entry({"type": "text", "text": text})
        for problem in index_problems(path):
            yield Entry({"type": "damage"}, problem)
    except DamagedFile as error:
        yield Entry({"type": "damage"}, str(error))


def _batches(path: Path, *, has_data: bool) -> Iterator[Entry]:
    kind = log_kind_of(path)
    for found in read_batches(path, has_records=has_data):
        if isinstance(found, Batch):
            records: Json = None
            if has_data:
                records = [_record(kind, found.header, record) for record in found.records or ()]
            yield Entry({**_batch(found), "records": records}, found.problem)
        else:
            facts: dict[str, Json] = {"type": "rest", "position": found.position, "bytes": found.size}
            yield Entry(facts, None if found.problem == ZEROS else found.problem)


def _batch(batch: Batch) -> dict[str, Json]:
    header = batch.header
    return {
        "type": "batch",
        "position": batch.position,
        "bytes": header.size_bytes,
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "record_count": header.count,
        "codec": Codec(header.codec).name.lower() if header.codec in Codec._value2member_map_ else None,
        "leader_epoch": header.leader_epoch,
        "base_timestamp": header.base_timestamp,
        "max_timestamp": header.max_timestamp,
        "timestamp_type": "LogAppendTime" if header.is_log_append_time else "CreateTime",
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "last_sequence": header.last_sequence,
        "is_transactional": header.is_transactional,
        "is_control": header.is_control,
        "delete_horizon_ms": header.delete_horizon_ms,
        "crc": header.crc,
    }


def _record(kind: LogKind | None, header: BatchHeader, record: Record) -> Json:
    facts: dict[str, Json] = {"offset": record.offset, "timestamp": record.timestamp}
    if header.is_control:
        try:
            control = decode_control(record)
        except Undecodable as error:
            return {**facts, "control": None, "problem": str(error)}
        name = None if control.type is None else control.type.name
        return {
            **facts,
            "control": name,
            "coordinator_epoch": control.coordinator_epoch,
            "data": control.data,
        }
    headers: list[Json] = [[name, _bytes(value)] for name, value in record.headers]
    if kind is None:
        return {**facts, "key": _bytes(record.key), "value": _bytes(record.value), "headers": headers}
    try:
        decoded = decode_record(kind, record)
    except Undecodable as error:
        raw: dict[str, Json] = {"key": _bytes(record.key), "value": _bytes(record.value)}
        return {**facts, **raw, "problem": str(error)}
    return {**facts, "key": decoded.key, "value": decoded.value, "headers": headers}


def _bytes(data: bytes | None) -> Json:
    shown = bytes_to_json(data)
    return {**shown} if isinstance(shown, dict) else shown


def _producer(producer: Producer) -> dict[str, Json]:
    return {
        "type": "producer",
        "producer_id": producer.producer_id,
        "producer_epoch": producer.epoch,
        "coordinator_epoch": producer.coordinator_epoch,
        "last_timestamp": producer.last_timestamp,
        "transaction_first_offset": producer.transaction_first_offset,
        "batches": [
            {
                "first_sequence": batch.first_sequence,
                "last_sequence": batch.last_sequence,
                "first_offset": batch.first_offset,
                "last_offset": batch.last_offset,
                "timestamp": batch.timestamp,
            }
            for batch in producer.batches
        ],
    }


# ---------------------------------------------------------------- for people


def _table(entries: Iterator[Entry]) -> Iterator[str]:
    rows: list[tuple[Entry, list[str]]] = []
    widths: list[int] | None = None
    is_empty = True
    for entry in entries:
        is_empty = False
        kind = str(entry.facts["type"])
        if kind not in _COLUMNS:
            yield from _lines(rows, widths)
            rows = []
            yield from _plain(entry)
            continue
        rows.append((entry, _cells(entry.facts)))
        if widths is None and len(rows) == _ROWS_FOR_WIDTHS:
            widths = _widths(kind, rows)
            yield _heading(kind, widths)
        if widths is not None:
            yield from _lines(rows, widths)
            rows = []
    yield from _lines(rows, widths)
    if is_empty:
        yield "(empty)"


def _lines(rows: list[tuple[Entry, list[str]]], widths: list[int] | None) -> Iterator[str]:
    if not rows:
        return
    if widths is None:
        kind = str(rows[0][0].facts["type"])
        widths = _widths(kind, rows)
        yield _heading(kind, widths)
    for entry, cells in rows:
        yield "  ".join(cell.rjust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()
        records = entry.facts.get("records")
        for record in records if isinstance(records, list) else ():
            yield f"    {_record_text(record)}"
        if entry.problem is not None:
            yield styled(f"    damaged: {entry.problem}", colour="red")


def _widths(kind: str, rows: list[tuple[Entry, list[str]]]) -> list[int]:
    return [
        max(len(name), *(len(cells[index]) for _, cells in rows)) for index, name in enumerate(_COLUMNS[kind])
    ]


def _heading(kind: str, widths: list[int]) -> str:
    names = (name.upper().replace("_", " ") for name in _COLUMNS[kind])
    return styled("  ".join(name.rjust(width) for name, width in zip(names, widths, strict=True)), bold=True)


def _cells(facts: dict[str, Json]) -> list[str]:
    kind = str(facts["type"])
    if kind == "batch":
        flags = [
            word
            for word, is_so in (
                ("control", facts["is_control"]),
                ("transactional", facts["is_transactional"]),
            )
            if is_so
        ]
        producer = "-"
        if facts["producer_id"] != NO_PRODUCER_ID:
            producer = f"{facts['producer_id']}/{facts['producer_epoch']} #{facts['base_sequence']}"
        return [
            str(facts["position"]),
            _range(facts["base_offset"], facts["last_offset"]),
            str(facts["record_count"]),
            str(facts["bytes"]),
            str(facts["codec"]),
            str(facts["leader_epoch"]),
            producer,
            _time(facts["max_timestamp"]),
            " ".join(flags) or "-",
        ]
    if kind == "producer":
        batches = facts["batches"]
        assert isinstance(batches, list)
        ranges = [
            _range(batch["first_offset"], batch["last_offset"])
            for batch in batches
            if isinstance(batch, dict)
        ]
        open_since = facts["transaction_first_offset"]
        return [
            str(facts["producer_id"]),
            str(facts["producer_epoch"]),
            ",".join(ranges) or "-",
            "-" if facts["coordinator_epoch"] == -1 else str(facts["coordinator_epoch"]),
            _time(facts["last_timestamp"]),
            "-" if open_since is None else f"since {open_since}",
        ]
    return [_time(facts[name]) if name == "timestamp" else str(facts[name]) for name in _COLUMNS[kind]]


def _plain(entry: Entry) -> Iterator[str]:
    if entry.facts["type"] == "text":
        yield from str(entry.facts["text"]).splitlines()
    elif entry.problem is not None:
        yield styled(f"damaged: {_place(entry)}{entry.problem}", colour="red")
    else:
        yield f"{entry.facts['bytes']} reserved bytes from {entry.facts['position']} on"


def _place(entry: Entry) -> str:
    if "position" not in entry.facts:
        return ""
    if "base_offset" in entry.facts:
        return f"the batch of offset {entry.facts['base_offset']} at {entry.facts['position']}: "
    return f"{entry.facts['bytes']} bytes at {entry.facts['position']}: "


def _record_text(record: Json) -> str:
    assert isinstance(record, dict)
    start = f"{record['offset']}  {_time(record['timestamp'])}  "
    if "control" in record:
        said = record.get("data") if record.get("data") is not None else record.get("coordinator_epoch")
        return f"{start}{record['control'] or 'unknown'} {_short(said)}"
    key = "" if record["key"] is None else f"{_short(record['key'])} = "
    headers = record.get("headers")
    return f"{start}{key}{_short(record['value'])}{f'  {_short(headers)}' if headers else ''}"


def _short(value: Json) -> str:
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    text = text.replace("\r", "\\r").replace("\n", "\\n")
    return text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}... ({len(text)})"


def _range(first: Json, last: Json) -> str:
    return str(first) if first == last else f"{first}-{last}"


def _time(timestamp: Json) -> str:
    if not isinstance(timestamp, int) or timestamp < 0:
        return "-"
    try:
        at = datetime.fromtimestamp(timestamp / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return str(timestamp)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
