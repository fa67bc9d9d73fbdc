"""`kafka-dump-log`: print what segments, indexes and snapshots hold."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click
import msgspec

from moldau.cli._errors import Failure
from moldau.cli._log_files import (
    ZEROS,
    Batch,
    DamagedFile,
    Kind,
    Rest,
    base_offset_of,
    index_problems,
    kind_of,
    read_batches,
    read_offset_index,
    read_producers,
    read_time_index,
    read_transaction_index,
    snapshot_of,
)
from moldau.cli._log_records import Control, LogKind, Undecodable, decode_control, decode_record
from moldau.cli.kafka_tools._tool import KAFKA_VERSION, KafkaTool
from moldau.wire.as_json import Json
from moldau.wire.records.batch import ControlType
from moldau.wire.records.compression import Codec
from moldau.wire.records.header import NO_SEQUENCE, BatchHeader
from moldau.wire.records.record import Record

BYTES_MAX: Final = 2**31 - 1
# What a control record's message is shown behind; that of a new leader has a colon.
_CONTROL_LABELS: Final = {
    ControlType.LEADER_CHANGE: "LeaderChange:",
    ControlType.SNAPSHOT_HEADER: "SnapshotHeader",
    ControlType.SNAPSHOT_FOOTER: "SnapshotFooter",
    ControlType.KRAFT_VERSION: "KRaftVersion",
    ControlType.KRAFT_VOTERS: "KRaftVoters",
}


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the flags ask for."""

    has_records: bool
    has_data: bool
    has_metadata: bool
    decoder: LogKind | None
    is_check_only: bool
    is_sanity_check: bool
    bytes_max: int


@click.command("kafka-dump-log", cls=KafkaTool)
@click.option("--files", required=True, metavar="FILE1,FILE2", help="The files to print.")
@click.option("--deep-iteration", "has_records", is_flag=True, help="Print records, not only batches.")
@click.option("--print-data-log", "has_data", is_flag=True, help="Print keys and values too.")
@click.option("--skip-record-metadata", "is_bare", is_flag=True, help="Of records print key and value only.")
@click.option("--max-bytes", type=click.IntRange(0), default=BYTES_MAX, help="Read so much of each log.")
@click.option("--max-message-size", type=int, default=5242880, hidden=True)
@click.option("--index-sanity-check", "is_sanity_check", is_flag=True, help="Check indexes as at a start.")
@click.option("--verify-index-only", "is_check_only", is_flag=True, help="Check indexes, and do not print.")
@click.option(
    "--offsets-decoder", "decoder", flag_value=LogKind.GROUPS.value, help="Decode __consumer_offsets."
)
@click.option(
    "--transaction-log-decoder",
    "decoder",
    flag_value=LogKind.TRANSACTIONS.value,
    help="Decode __transaction_state.",
)
@click.option(
    "--share-group-state-decoder",
    "decoder",
    flag_value=LogKind.SHARES.value,
    help="Decode __share_group_state.",
)
@click.option(
    "--cluster-metadata-decoder",
    "decoder",
    flag_value=LogKind.METADATA.value,
    help="Decode __cluster_metadata.",
)
@click.version_option(KAFKA_VERSION, message="%(version)s")
def command(
    files: str,
    has_records: bool,
    has_data: bool,
    is_bare: bool,
    max_bytes: int,
    max_message_size: int,
    is_sanity_check: bool,
    is_check_only: bool,
    decoder: str | None,
) -> None:
    """Print what segments, indexes and snapshots hold.

    \b
    Examples:
      moldau kafka-dump-log --files moldau-data/orders-0/00000000000000000000.log --print-data-log
      moldau kafka-dump-log --cluster-metadata-decoder --files moldau-data/__cluster_metadata-0/*.log
    """
    wishes = Wishes(
        has_records=has_records or has_data or decoder is not None,
        has_data=has_data or decoder is not None,
        has_metadata=not is_bare,
        decoder=None if decoder is None else LogKind(decoder),
        is_check_only=is_check_only,
        is_sanity_check=is_sanity_check,
        bytes_max=max_bytes,
    )
    complaints: list[str] = []
    for name in files.split(","):
        click.echo(f"Dumping {name}")
        try:
            for line in lines_of(name, wishes, complaints):
                click.echo(line)
        except OSError as error:
            raise Failure(f"{name} cannot be read: {error.strerror}.") from error
        except DamagedFile as error:
            raise Failure(f"{name}: {error}.") from error
    for complaint in complaints:
        click.echo(complaint)


def lines_of(name: str, wishes: Wishes, complaints: list[str]) -> Iterator[str]:
    """What is printed of a file; what is wrong in it is added to the complaints, which come last."""
    path = Path(name)
    match kind_of(path):
        case Kind.LOG | Kind.METADATA_SNAPSHOT:
            snapshot = snapshot_of(path)
            if snapshot is not None:
                yield f"Snapshot end offset: {snapshot[0]}, epoch: {snapshot[1]}"
            elif kind_of(path) is Kind.LOG:
                yield f"Log starting offset: {base_offset_of(path)}"
            yield from _log(path, wishes)
        case Kind.OFFSET_INDEX | Kind.TIME_INDEX as kind:
            yield from _index(path, kind, wishes)
            problems = [] if wishes.is_sanity_check else index_problems(path)
            if problems:
                complaints.append("\n  ".join([f"Mismatches in :{path.absolute()}", *problems]))
        case Kind.TRANSACTION_INDEX:
            for aborted in read_transaction_index(path):
                yield (
                    f"version: 0 producerId: {aborted.producer_id} firstOffset: {aborted.first_offset}"
                    f" lastOffset: {aborted.last_offset} lastStableOffset: {aborted.last_stable_offset}"
                )
        case Kind.PRODUCERS:
            yield from _producers(path)
        case _:
            click.echo(f"Ignoring unknown file {name}", err=True)


def _log(path: Path, wishes: Wishes) -> Iterator[str]:
    bytes_max = None if wishes.bytes_max == BYTES_MAX else wishes.bytes_max
    for found in read_batches(path, has_records=wishes.has_records, bytes_max=bytes_max):
        if isinstance(found, Batch):
            yield batch_line(found)
            yield from (record_line(found.header, record, wishes) for record in found.records or ())
            if wishes.has_records and found.records is None:
                yield f"| the records cannot be read: {found.problem}"
        elif found.problem != ZEROS and bytes_max is None:
            yield _rest_line(path, found)


def _rest_line(path: Path, rest: Rest) -> str:
    return f"Found {rest.size} invalid bytes at the end of {path.name}"


def _index(path: Path, kind: Kind, wishes: Wishes) -> Iterator[str]:
    if kind is Kind.OFFSET_INDEX:
        entries = read_offset_index(path)
        lines = [f"offset: {offset} position: {position}" for offset, position in entries]
    else:
        times = read_time_index(path)
        lines = [f"timestamp: {timestamp} offset: {offset}" for timestamp, offset in times]
    if kind is Kind.OFFSET_INDEX and not path.stat().st_size:
        yield f"{path} is empty."
    elif wishes.is_sanity_check:
        yield f"{path} passed sanity check."
    elif not wishes.is_check_only:
        yield from lines


def _producers(path: Path) -> Iterator[str]:
    for producer in read_producers(path):
        line = (
            f"producerId: {producer.producer_id} producerEpoch: {producer.epoch}"
            f" coordinatorEpoch: {producer.coordinator_epoch}"
            f" currentTxnFirstOffset: {_optional(producer.transaction_first_offset)}"
            f" lastTimestamp: {producer.last_timestamp}"
        )
        for batch in producer.batches[-1:]:
            line += (
                f" firstSequence: {batch.first_sequence} lastSequence: {batch.last_sequence}"
                f" lastOffset: {batch.last_offset} offsetDelta: {batch.offset_delta}"
                f" timestamp: {batch.timestamp}"
            )
        yield line


def batch_line(batch: Batch) -> str:
    """A batch as Kafka's tool prints it."""
    header = batch.header
    return (
        f"baseOffset: {header.base_offset} lastOffset: {header.last_offset} count: {header.count}"
        f" baseSequence: {header.base_sequence} lastSequence: {header.last_sequence}"
        f" producerId: {header.producer_id} producerEpoch: {header.producer_epoch}"
        f" partitionLeaderEpoch: {header.leader_epoch} isTransactional: {_bool(header.is_transactional)}"
        f" isControl: {_bool(header.is_control)} deleteHorizonMs: {_optional(header.delete_horizon_ms)}"
        f" position: {batch.position} {_time_type(header)}: {header.max_timestamp} size: {header.size_bytes}"
        f" magic: {header.magic} compresscodec: {codec_name(header.codec)} crc: {header.crc}"
        f" isvalid: {_bool(batch.is_crc_valid)}"
    )


def record_line(header: BatchHeader, record: Record, wishes: Wishes) -> str:
    """A record as Kafka's tool prints it."""
    line = ""
    if wishes.has_metadata:
        sequence = header.base_sequence
        if sequence != NO_SEQUENCE:
            sequence = (sequence + record.offset - header.base_offset) & (2**31 - 1)
        keys = ",".join(name for name, _ in record.headers)
        line = (
            f"| offset: {record.offset} {_time_type(header)}: {record.timestamp} keySize: {_size(record.key)}"
            f" valueSize: {_size(record.value)} sequence: {sequence} headerKeys: [{keys}]"
        )
        if header.is_control:
            return line + control_text(record)
    elif header.is_control:
        return ""
    if wishes.has_data:
        line += data_text(record, wishes)
    return line if wishes.has_metadata or not line else f"|{line}"


def control_text(record: Record) -> str:
    """What a control record says."""
    try:
        control: Control = decode_control(record)
    except Undecodable as error:
        return f" undecodable: {error}"
    if control.coordinator_epoch is not None and control.type is not None:
        return f" endTxnMarker: {control.type.name} coordinatorEpoch: {control.coordinator_epoch}"
    label = None if control.type is None else _CONTROL_LABELS.get(control.type)
    if label is None or not isinstance(control.data, dict):
        return " controlType: UNKNOWN(-1)"
    return f" {label} {_json({'version': control.version, **control.data})}"


def data_text(record: Record, wishes: Wishes) -> str:
    """Key and value: as text, or as what an internal log says with them."""
    if wishes.decoder is None:
        key = "" if record.key is None else f" key: {_text(record.key)}"
        return key + ("" if record.value is None else f" payload: {_text(record.value)}")
    try:
        decoded = decode_record(wishes.decoder, record)
    except Undecodable as error:
        return f" payload: Error at {record.offset}, skipping. {error}"
    key = "" if decoded.key is None else f" key: {_json(decoded.key)}"
    return f"{key} payload: {'<DELETE>' if decoded.value is None else _json(decoded.value)}"


def codec_name(number: int) -> str:
    """The codec of a batch."""
    return Codec(number).name.lower() if number in Codec._value2member_map_ else str(number)


def _json(value: Json) -> str:
    return msgspec.json.encode(value).decode()


def _text(data: bytes) -> str:
    return bytes(data).decode(errors="replace")


def _size(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def _bool(value: bool) -> str:
    return "true" if value else "false"


def _optional(value: int | None) -> str:
    return "OptionalLong.empty" if value is None else f"OptionalLong[{value}]"


def _time_type(header: BatchHeader) -> str:
    return "LogAppendTime" if header.is_log_append_time else "CreateTime"
