"""Our codecs read what Kafka's own classes wrote, see in it what they see, and write the same bytes."""

import base64
import gzip
import json
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from moldau.wire import messages
from moldau.wire.as_json import message_to_json
from moldau.wire.message import Message
from moldau.wire.messages.header import RequestHeader, ResponseHeader
from moldau.wire.records import batch, kernel
from moldau.wire.records.compression import Codec
from moldau.wire.records.header import iter_headers
from moldau.wire.records.record import Record

GOLDEN = Path(__file__).parents[1] / "golden"
Line = dict[str, Any]

# Logs of topics that users wrote to, and the partition whose records Kafka's consumer read back.
READ_BY_A_CONSUMER = {
    "none": "codec-none-0",
    "gzip": "codec-gzip-0",
    "snappy": "codec-snappy-0",
    "lz4": "codec-lz4-0",
    "zstd": "codec-zstd-0",
    "transactions": "transactions-0",
    "compacted": "compacted-0",
    "log-append-time": "log-append-time-0",
}
# Records of Kafka's plugin for tiered storage, which is no part of a broker.
NOT_OURS = frozenset(
    {
        "RemoteLogSegmentMetadataRecord",
        "RemoteLogSegmentMetadataSnapshotRecord",
        "RemoteLogSegmentMetadataUpdateRecord",
        "RemotePartitionDeleteMetadataRecord",
    }
)
BATCH_FILES = sorted(path.stem for path in (GOLDEN / "batches").glob("*.bin"))


def lines(name: str) -> Iterator[Line]:
    with gzip.open(GOLDEN / name, "rt", encoding="utf-8") as file:
        yield from map(json.loads, file)


def grouped(name: str, by: Callable[[Line], Hashable]) -> dict[Any, list[Line]]:
    found = defaultdict(list)
    for line in lines(name):
        found[by(line)].append(line)
    return dict(found)


ALL_MESSAGES = grouped("messages.jsonl.gz", lambda line: (line["name"], line["version"]))
MESSAGES = {key: found for key, found in ALL_MESSAGES.items() if key[0] not in NOT_OURS}
FRAMES = grouped("frames.jsonl.gz", lambda line: (line["api_key"], line["api_version"], line["kind"]))


@pytest.mark.parametrize(("name", "version"), MESSAGES)
def test_a_message_is_read_and_written_as_kafka_does(name: str, version: int) -> None:
    for line in MESSAGES[name, version]:
        check(messages.BY_NAME[name], version, bytes.fromhex(line["hex"]), line["json"])


@pytest.mark.parametrize(("name", "version"), MESSAGES)
def test_a_message_is_shown_as_kafka_shows_it(name: str, version: int) -> None:
    for line in MESSAGES[name, version]:
        message = messages.BY_NAME[name].decode(bytes.fromhex(line["hex"]), version)
        assert message_to_json(message, version) == line["json"], line["variant"]


@pytest.mark.parametrize("name", sorted({name for name, _ in MESSAGES}))
def test_a_message_has_the_versions_that_kafka_gives_it(name: str) -> None:
    declared = messages.BY_NAME[name].declaration.versions
    golden = [version for golden_name, version in MESSAGES if golden_name == name]
    assert (declared.lowest, declared.highest) == (min(golden), max(golden))


def test_every_message_that_kafka_defines_is_declared_but_those_of_tiered_storage() -> None:
    assert {name for name, _ in ALL_MESSAGES} - set(messages.BY_NAME) == NOT_OURS


@pytest.mark.parametrize(("api_key", "version", "kind"), FRAMES)
def test_a_frame_from_the_network_is_read_and_written_as_kafka_does(
    api_key: int, version: int, kind: str
) -> None:
    is_request = kind == "request"
    header_kind = RequestHeader if is_request else ResponseHeader
    body_kind = (messages.REQUESTS if is_request else messages.RESPONSES)[api_key]
    for line in FRAMES[api_key, version, kind]:
        frame = bytes.fromhex(line["hex"])
        header_version = line["header_version"]
        header_size = len(header_kind.decode(frame, header_version).encode(header_version))
        check(header_kind, header_version, frame[:header_size], line["header"])
        check(body_kind, version, frame[header_size:], line["json"])


@pytest.mark.parametrize("name", BATCH_FILES)
def test_the_batches_of_a_log_are_sealed_again_into_the_same_bytes(name: str) -> None:
    log = (GOLDEN / "batches" / f"{name}.bin").read_bytes()
    headers = list(iter_headers(log))
    assert sum(header.size_bytes for _, header in headers) == len(log)
    for position, header in headers:
        whole = log[position : position + header.size_bytes]
        payload = bytes(batch.payload_of(whole, 0, header))
        # As the producer stamped them: a log-append time would hide the bytes that are there.
        records = kernel.decode(payload, header.count, header.base_offset, header.base_timestamp, None)
        assert kernel.encode(records, header.base_offset, header.base_timestamp) == payload
        # Compressors may differ in what they choose; what they must agree on is the content.
        if header.codec == Codec.NONE:
            assert batch.seal(payload, header, codec=Codec.NONE) == whole


@pytest.mark.parametrize("name", READ_BY_A_CONSUMER)
def test_the_records_of_a_log_are_those_that_kafkas_consumer_read(name: str) -> None:
    golden = json.loads((GOLDEN / "data-dir.json").read_text(encoding="utf-8"))
    expected = golden["data-dir"]["partitions"][READ_BY_A_CONSUMER[name]]["records"]
    assert [as_a_consumer_sees(record) for record in records_of(name)] == [
        {key: line[key] for key in ("offset", "timestamp", "key", "value", "headers")} for line in expected
    ]


@pytest.mark.parametrize(
    ("name", "key_kinds", "value_kinds"),
    [
        ("consumer-offsets", messages.GROUP_KEYS, messages.GROUP_VALUES),
        ("transaction-state", messages.TXN_KEYS, messages.TXN_VALUES),
        ("share-group-state", messages.SHARE_KEYS, messages.SHARE_VALUES),
    ],
)
def test_the_records_of_a_coordinators_log_are_written_as_they_were_read(
    name: str, key_kinds: Mapping[int, type[Message]], value_kinds: Mapping[int, type[Message]]
) -> None:
    for record in records_of(name):
        assert record.key is not None
        # A key begins with the kind of the record, a value with its version; both in two bytes.
        kind = int.from_bytes(record.key[:2], "big")
        assert key_kinds[kind].decode(record.key[2:], 0).encode(0) == record.key[2:]
        if record.value is not None:
            version = int.from_bytes(record.value[:2], "big")
            value = value_kinds[kind].decode(record.value[2:], version)
            assert value.encode(version).hex() == record.value[2:].hex(), value


@pytest.mark.parametrize("name", ["cluster-metadata", "cluster-metadata-snapshot"])
def test_the_records_of_the_metadata_log_are_written_as_they_were_read(name: str) -> None:
    for record in records_of(name):
        assert record.value is not None
        # Frame version, kind and version are varints, all small enough here for a byte each.
        frame_version, kind, version = record.value[:3]
        assert frame_version == 1
        body = record.value[3:]
        metadata = messages.METADATA_RECORDS[kind].decode(body, version)
        assert metadata.encode(version).hex() == body.hex(), metadata


def records_of(name: str) -> list[Record]:
    """Every record of a log but those that mark transactions and leaders."""
    log = (GOLDEN / "batches" / f"{name}.bin").read_bytes()
    return [
        record
        for position, header in iter_headers(log)
        if not header.is_control
        for record in batch.decode_batch(log[position:])[1]
    ]


def as_a_consumer_sees(record: Record) -> Line:
    def hexed(data: bytes | None) -> str | None:
        return None if data is None else data.hex()

    return {
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": hexed(record.key),
        "value": hexed(record.value),
        "headers": [[name, hexed(value)] for name, value in record.headers],
    }


def check(kind: type[Message], version: int, data: bytes, view: Line) -> None:
    """Read `data`, compare what it says with Kafka's view of it, and write it again."""
    message = kind.decode(data, version)
    assert not list(differences(message, view, kind.__name__))
    assert message.encode(version).hex() == data.hex()


def differences(ours: Any, view: Any, path: str) -> Iterator[str]:
    """Where a value of ours is not the one in the JSON that Kafka's converters made of the same bytes."""
    if isinstance(ours, msgspec.Struct) and isinstance(view, dict):
        yield from field_differences(ours, dict(view), path)
    elif isinstance(ours, list | tuple) and isinstance(view, list):
        if len(ours) != len(view):
            yield f"{path}: {len(ours)} elements, not {len(view)}"
        for i, (mine, theirs) in enumerate(zip(ours, view, strict=False)):
            yield from differences(mine, theirs, f"{path}[{i}]")
    elif isinstance(ours, bytes | bytearray | memoryview) and isinstance(view, str):
        if bytes(ours) != bytes_of(view):
            yield f"{path}: {bytes(ours).hex()}, not {view}"
    elif type(ours) is not type(view) or ours != view:
        yield f"{path}: {ours!r}, not {view!r}"


def field_differences(ours: msgspec.Struct, view: Line, path: str) -> Iterator[str]:
    shown = {name.lower(): value for name, value in view.items()}
    for field in msgspec.structs.fields(ours):
        if field.name == "unknown_tags":
            # Kafka's converters leave them out; that they are written again shows that they were read.
            continue
        value = getattr(ours, field.name)
        name = field.name.replace("_", "")
        if name in shown:
            yield from differences(value, shown.pop(name), f"{path}.{field.name}")
        elif f"{name}sizeinbytes" in shown:
            # Kafka's converters count the bytes of records instead of showing them.
            yield from differences(len(value), shown.pop(f"{name}sizeinbytes"), f"len({path}.{field.name})")
        elif value != default_of(field):
            yield f"{path}.{field.name}: {value!r}, and Kafka does not show it"
    for unread in shown:
        yield f"{path}: we have no {unread}"


def default_of(field: msgspec.structs.FieldInfo) -> Any:
    return field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()


def bytes_of(text: str) -> bytes:
    """The bytes that Kafka shows as text: a UUID has no padding, and an alphabet of its own."""
    if len(text) % 4:
        return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    return base64.b64decode(text)
