"""Captures the golden bytes of this folder from Kafka's own jars; README.md says how to run it."""

import argparse
import gzip
import io
import json
import re
import shutil
import tarfile
import tempfile
import zipfile
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import kafka_jars
from golden import contents, raw_requests
from golden.java_programs import Java, MessageCodec
from golden.kafka_node import KafkaNode
from golden.recording_proxy import Exchange, Recording

HERE = Path(__file__).parent
EXCHANGE_BYTES_MAX = 6000
UNKNOWN_TAG = 1000

# Files of `batches/`, and the partition of the data directory that each is the log of.
BATCHES = {
    "none": "codec-none-0",
    "gzip": "codec-gzip-0",
    "snappy": "codec-snappy-0",
    "lz4": "codec-lz4-0",
    "zstd": "codec-zstd-0",
    "transactions": "transactions-0",
    "compacted": "compacted-0",
    "log-append-time": "log-append-time-0",
    "consumer-offsets": "__consumer_offsets-0",
    "transaction-state": "__transaction_state-0",
    "share-group-state": "__share_group_state-0",
    "cluster-metadata": "__cluster_metadata-0",
}


def main() -> None:
    """Write every golden file, or those of one part."""
    parts = {"messages": capture_messages, "data": capture_data_directories, "frames": capture_frames}
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--only", choices=parts)
    only = arguments.parse_args().only
    with tempfile.TemporaryDirectory(prefix="golden-") as folder:
        classes = Path(folder) / "classes"
        classes.mkdir()
        java = Java(classes)
        for name, capture in parts.items():
            if only in (None, name):
                work = Path(folder) / name
                work.mkdir()
                capture(java, work)


def capture_messages(java: Java, _: Path) -> None:
    """Every message and record that Kafka defines, at every version, as Java writes it."""
    classes = _message_classes()
    lines = []
    with MessageCodec(java) as codec:
        for name, schema in sorted(kafka_jars.schemas().items()):
            for version in contents.versions(schema):
                variants: dict[str, dict[str, Any]] = {
                    "default": {"json": None},
                    "filled": {"json": contents.filled(schema, version)},
                    "nulls": {"json": contents.with_nulls(schema, version)},
                }
                if contents.is_flexible(schema, version):
                    variants["unknown tag"] = {"json": None, "unknown_tag": UNKNOWN_TAG}
                for variant, question in variants.items():
                    answer = codec.ask("encode", **{"class": classes[name]}, version=version, **question)
                    assert "error" not in answer, (name, version, variant, answer)
                    lines.append({"name": name, "version": version, "variant": variant, **answer})
    _write_lines("messages.jsonl.gz", lines)


def capture_data_directories(java: Java, folder: Path) -> None:
    """The files of a broker that was shut down, and of the same broker after it was killed."""
    node = KafkaNode(java, Recording(), node_id=1, folder=folder)
    node.configure(bootstrap_controller=node)
    node.format(is_first=True)
    seen = {}
    try:
        # Two runs, so that the logs have records of two leader epochs.
        node.start()
        java.run("DataDirectory", "fill", node.address())
        node.stop()
        node.start()
        java.run("DataDirectory", "append", node.address())
        seen["data-dir"] = json.loads(java.run("DataDirectory", "read", node.address()))
        node.stop()
        _write_archive("data-dir.tar.gz", node.data)
        _write_batches(node.data)
        node.start()
        java.run("DataDirectory", "crash", node.address())
        seen["data-dir-unclean"] = json.loads(java.run("DataDirectory", "read", node.address()))
        node.kill()
        _write_archive("data-dir-unclean.tar.gz", node.data)
    finally:
        node.kill()
    (HERE / "data-dir.json").write_text(_a_record_a_line(seen), encoding="utf-8")


def capture_frames(java: Java, folder: Path) -> None:
    """What the Java client, two brokers and requests of every version say to each other."""
    recording = Recording()
    first, second = (KafkaNode(java, recording, node_id=i, folder=folder, replicas=2) for i in (1, 2))
    first.configure(bootstrap_controller=first)
    second.configure(bootstrap_controller=first)
    first.format(is_first=True)
    second.format(is_first=False)
    with MessageCodec(java) as codec:
        try:
            first.start()
            java.run("Tour", "topic", first.address())
            # The second node starts behind a snapshot, so it has to fetch that first.
            second.start()
            brokers = f"{first.address()},{second.address()}"
            java.run("Tour", "clients", brokers, first.address("SASL"))
            voter = ("2", _property(second.data / "meta.properties", "directory.id"))
            # Added under an address that it does not advertise, the new voter has to correct that.
            java.run("Tour", "add-voter", brokers, *voter, second.hidden_address("CONTROLLER"))
            # The leader of the quorum resigns, and both have to agree on a new one.
            first.stop()
            first.start()
            java.run("Tour", "remove-voter", brokers, *voter)
            second.stop()
            # Last, because among them are requests that only a broken controller would send.
            _send_raw_requests(codec, first)
        finally:
            first.kill()
            second.kill()
        _write_lines("frames.jsonl.gz", _frames(codec, _representatives(recording.exchanges)))


def _send_raw_requests(codec: MessageCodec, node: KafkaNode) -> None:
    topic_id = _property(node.data / "raw-0" / "partition.metadata", "topic_id", separator=": ")
    for listener, kind in (("PLAINTEXT", "broker"), ("CONTROLLER", "controller")):
        requests = [
            schema
            for _, schema in sorted(kafka_jars.schemas().items())
            if schema["type"] == "request" and kind in schema.get("listeners", ())
        ]
        raw_requests.send_every_version(codec, requests, address=node.address(listener), topic_id=topic_id)


def _representatives(exchanges: Iterable[Exchange]) -> Iterator[Exchange]:
    """Of each API, version and listener, the exchange that says most and the one that says least."""
    alike: dict[tuple[int, int, str], list[Exchange]] = defaultdict(list)
    for exchange in exchanges:
        if exchange.response is not None:
            alike[exchange.api_key, exchange.api_version, exchange.listener].append(exchange)
    for _, found in sorted(alike.items()):
        found.sort(key=_exchange_bytes)
        small = [exchange for exchange in found if _exchange_bytes(exchange) <= EXCHANGE_BYTES_MAX]
        yield found[0]
        if len(small) > 1:
            yield small[-1]


def _exchange_bytes(exchange: Exchange) -> int:
    assert exchange.response is not None
    return len(exchange.request) + len(exchange.response)


def _frames(codec: MessageCodec, exchanges: Iterable[Exchange]) -> Iterator[dict[str, Any]]:
    for exchange in exchanges:
        for kind, frame in (("request", exchange.request), ("response", exchange.response)):
            assert frame is not None
            line = {
                "listener": exchange.listener,
                "api_key": exchange.api_key,
                "api_version": exchange.api_version,
                "kind": kind,
                "hex": frame.hex(),
            }
            view = codec.ask(
                "frame", api_key=exchange.api_key, version=exchange.api_version, kind=kind, hex=frame.hex()
            )
            assert "error" not in view, (line, view)
            assert (view.pop("hex"), view.pop("left")) == (frame.hex(), 0), (line, view)
            yield line | view


def _message_classes() -> dict[str, str]:
    """The Java class of each message, by the name of its schema."""
    found = {}
    for path in sorted(kafka_jars.kafka_jars().glob("kafka*.jar")):
        with zipfile.ZipFile(path) as jar:
            for entry in jar.namelist():
                class_name, is_converter, _ = entry.replace("/", ".").partition("JsonConverter.class")
                if is_converter and "$" not in class_name:
                    found[class_name.rpartition(".")[2]] = class_name
    return {
        name: found.get(f"{name}Data") or found[name]
        for name, schema in kafka_jars.schemas().items()
        if contents.versions(schema)
    }


def _write_lines(name: str, lines: Iterable[dict[str, Any]]) -> None:
    text = "".join(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n" for line in lines)
    _write_gzip(HERE / name, text.encode())


def _write_archive(name: str, folder: Path) -> None:
    with io.BytesIO() as plain:
        with tarfile.open(fileobj=plain, mode="w") as archive:
            for path in sorted(folder.rglob("*")):
                # A process that runs holds this one, and only while it runs.
                if path.name != ".lock":
                    archive.add(path, path.relative_to(folder), recursive=False, filter=_anonymous)
        _write_gzip(HERE / name, plain.getvalue())


def _anonymous(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = entry.mtime = 0
    entry.uname = entry.gname = ""
    # Snapshots are read-only on disk, which would only be in the way of whoever unpacks them.
    entry.mode |= 0o644
    return entry


def _write_gzip(path: Path, data: bytes) -> None:
    # Without the time of writing, equal content makes equal files.
    path.write_bytes(gzip.compress(data, compresslevel=9, mtime=0))


def _write_batches(data: Path) -> None:
    target = HERE / "batches"
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir()
    for name, partition in BATCHES.items():
        segments = sorted((data / partition).glob("*.log"))
        (target / f"{name}.bin").write_bytes(b"".join(segment.read_bytes() for segment in segments))
    snapshots = sorted((data / "__cluster_metadata-0").glob("*.checkpoint"))
    (target / "cluster-metadata-snapshot.bin").write_bytes(snapshots[-1].read_bytes())


def _property(path: Path, name: str, *, separator: str = "=") -> str:
    pairs = dict(line.split(separator, 1) for line in path.read_text().splitlines() if separator in line)
    return pairs[name]


def _a_record_a_line(document: Any) -> str:
    text = json.dumps(document, ensure_ascii=False, indent=1)
    records = re.compile(r'\{\s+"offset".*?\n\s+\}', re.DOTALL)
    return records.sub(lambda record: re.sub(r"\n\s*", " ", record[0]), text) + "\n"


if __name__ == "__main__":
    main()
