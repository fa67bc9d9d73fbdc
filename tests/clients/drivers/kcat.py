"""kcat, an older librdkafka on the command line: it writes, reads, lists and looks up, no more."""

from __future__ import annotations

import itertools
import json
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from clients.drivers.driver import (
    SIZE_MAX,
    UNKNOWN,
    ClusterDescription,
    Codec,
    DriverError,
    FoundByTime,
    GroupProtocol,
    Headers,
    NewRecord,
    Node,
    OffsetRange,
    Placed,
    ReadRecord,
    Start,
    ToolchainMissing,
    TopicDescription,
    Unsupported,
    kafka_error,
)
from confluent_kafka import KafkaError

from moldau.model.errors import ErrorCode

TIMEOUT_S = 30

_NO_ADMIN = "kcat has no administration"
# Between keys and values, and between records: bytes that no record of ours that kcat can write contains.
_KEY_END, _RECORD_END = b"\x1f", b"\x1e"
_FORMAT = r"%p %o %T %K %S %h\n%k%s"
_STARTS = {"earliest": "beginning", "latest": "end"}
# kcat has the texts of librdkafka, without the numbers.
_CODES = {KafkaError(code.value).str(): code for code in ErrorCode} | {
    "Local: Unknown partition": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    "Local: Unknown topic": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
}


def start(bootstrap: str) -> KcatDriver:
    """The client at this cluster."""
    if shutil.which("kcat") is None:
        raise ToolchainMissing("kcat is not installed")
    return KcatDriver(bootstrap)


class KcatDriver:
    """A run of kcat for every question."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    @property
    def version(self) -> str:
        said = subprocess.run(["kcat", "-V"], capture_output=True, text=True, check=True).stdout
        found = re.search(r"Version (\S+) .*(librdkafka \S+)", said)
        return f"{found[1]} ({found[2]})" if found else said

    def create_topic(
        self,
        topic: str,
        *,
        partitions: int,
        replication_factor: int = 1,
        configs: Mapping[str, str] | None = None,
    ) -> None:
        raise Unsupported(_NO_ADMIN)

    def describe_topic(self, topic: str) -> TopicDescription:
        (found,) = self._metadata("-t", topic)["topics"]
        if "error" in found:
            raise _translated(found["error"])
        rows = sorted(found["partitions"], key=lambda row: int(row["partition"]))
        return TopicDescription(len(rows), tuple(row["leader"] for row in rows))

    def list_topics(self) -> list[str]:
        return [found["topic"] for found in self._metadata()["topics"]]

    def describe_configs(self, topic: str) -> dict[str, str | None]:
        raise Unsupported(_NO_ADMIN)

    def alter_configs(self, topic: str, configs: Mapping[str, str]) -> None:
        raise Unsupported(_NO_ADMIN)

    def create_partitions(self, topic: str, *, total: int) -> None:
        raise Unsupported(_NO_ADMIN)

    def delete_topic(self, topic: str) -> None:
        raise Unsupported(_NO_ADMIN)

    def delete_records(self, topic: str, *, partition: int, before_offset: int) -> int:
        raise Unsupported(_NO_ADMIN)

    def produce(
        self,
        topic: str,
        records: Sequence[NewRecord],
        *,
        codec: Codec = "none",
        acks: Literal[-1, 0, 1] = -1,
        idempotent: bool = False,
    ) -> list[Placed]:
        _check_producible(records)
        options = [
            *("-t", topic),
            *("-D", r"\x1e"),
            *("-X", f"compression.codec={codec}"),
            *("-X", f"acks={acks}"),
            *("-X", f"enable.idempotence={str(idempotent).lower()}"),
            *("-X", f"message.max.bytes={SIZE_MAX}"),
        ]
        # What is not part of a line of input is the same for all records of a run.
        for (partition, headers, has_key, is_null), alike in itertools.groupby(records, _shape):
            run = [*options]
            if partition is not None:
                run += ["-p", str(partition)]
            for name, value in headers:
                run += ["-H", name if value is None else f"{name}={value.decode()}"]
            if has_key:
                run += ["-K", r"\x1f"]
            if is_null:
                run += ["-Z"]
            self._kcat("-P", *run, lines=b"".join(_line(record) for record in alike))
        return [
            Placed(UNKNOWN if record.partition is None else record.partition, UNKNOWN) for record in records
        ]

    def consume(
        self, topic: str, *, partition: int, offset: Start, count: int, timeout_ms: int
    ) -> list[ReadRecord]:
        begin = _STARTS[offset] if isinstance(offset, str) else str(offset)
        return self._read(topic, partition, begin, count=count, timeout_ms=timeout_ms)

    def consume_from_time(
        self, topic: str, *, partition: int, timestamp: int, count: int, timeout_ms: int
    ) -> FoundByTime:
        offset = self.offset_for_time(topic, partition=partition, timestamp=timestamp)
        records = self._read(topic, partition, f"s@{timestamp}", count=count, timeout_ms=timeout_ms)
        return FoundByTime(offset, tuple(records))

    def read_in_group(
        self, topic: str, *, group: str, count: int, timeout_ms: int, protocol: GroupProtocol = "classic"
    ) -> list[tuple[int, int]]:
        if protocol == "consumer":
            raise Unsupported("kcat's librdkafka does not know the new protocol of groups")
        command = ["kcat", "-b", self._bootstrap, "-G", group, "-c", str(count), "-q", "-u", "-f", _FORMAT]
        command += ["-X", "auto.offset.reset=earliest", topic]
        try:
            done = subprocess.run(command, capture_output=True, timeout=timeout_ms / 1000, check=False)
        except subprocess.TimeoutExpired as late:
            return [(record.partition, record.offset) for record in _records_in(late.stdout or b"")]
        if done.returncode != 0:
            raise _translated(done.stderr.decode())
        return [(record.partition, record.offset) for record in _records_in(done.stdout)]

    def list_offsets(self, topic: str, *, partition: int) -> OffsetRange:
        return OffsetRange(
            earliest=self.offset_for_time(topic, partition=partition, timestamp=-2),
            latest=self.offset_for_time(topic, partition=partition, timestamp=-1),
        )

    def offset_for_time(self, topic: str, *, partition: int, timestamp: int) -> int:
        said = self._kcat("-Q", "-t", f"{topic}:{partition}:{timestamp}")
        return int(said.rpartition(b"offset ")[2])

    def describe_cluster(self) -> ClusterDescription:
        found = self._metadata()
        addresses = {each["id"]: each["name"].rpartition(":") for each in found["brokers"]}
        nodes = tuple(Node(node_id, host, int(port)) for node_id, (host, _, port) in addresses.items())
        return ClusterDescription(None, found["controllerid"], nodes)

    def close(self) -> None:
        """Nothing stays open between questions."""

    def _read(
        self, topic: str, partition: int, begin: str, *, count: int, timeout_ms: int
    ) -> list[ReadRecord]:
        options = ["-t", topic, "-p", str(partition), "-o", begin, "-c", str(count)]
        command = [*self._command("-C"), *options, "-q", "-u", "-f", _FORMAT]
        command += ["-X", f"fetch.message.max.bytes={SIZE_MAX}", "-X", "topic.auto.offset.reset=error"]
        try:
            done = subprocess.run(command, capture_output=True, timeout=timeout_ms / 1000, check=False)
        except subprocess.TimeoutExpired as late:
            return _records_in(late.stdout or b"")
        if done.returncode != 0:
            raise _translated(done.stderr.decode())
        return _records_in(done.stdout)

    def _metadata(self, *options: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self._kcat("-L", "-J", *options))
        return found

    def _kcat(self, mode: str, *options: str, lines: bytes = b"") -> bytes:
        command = [*self._command(mode), *options]
        done = subprocess.run(command, input=lines, capture_output=True, timeout=TIMEOUT_S, check=False)
        if done.returncode != 0:
            raise _translated(done.stderr.decode())
        return done.stdout

    def _command(self, mode: str) -> list[str]:
        return ["kcat", mode, "-b", self._bootstrap]


def _check_producible(records: Sequence[NewRecord]) -> None:
    for record in records:
        if record.timestamp is not None:
            raise Unsupported("kcat cannot set timestamps")
        if record.key == b"":
            raise Unsupported("kcat writes empty keys as null")
        if record.key is None and not record.value:
            raise Unsupported("kcat passes over empty lines")
        text = (record.key or b"") + (record.value or b"")
        if _KEY_END in text or _RECORD_END in text:
            raise Unsupported("kcat splits its input at a byte, which records then cannot contain")


def _shape(record: NewRecord) -> tuple[int | None, Headers, bool, bool]:
    return record.partition, record.headers, record.key is not None, record.value is None


def _line(record: NewRecord) -> bytes:
    key = b"" if record.key is None else record.key + _KEY_END
    return key + (record.value or b"") + _RECORD_END


def _records_in(output: bytes) -> list[ReadRecord]:
    """The records that were printed whole; lengths come first because keys and values may hold any byte."""
    records: list[ReadRecord] = []
    at = 0
    while (line_end := output.find(b"\n", at)) != -1:
        numbers, headers = output[at:line_end].split(b" ")[:5], output[at:line_end].split(b" ", 5)[5]
        partition, offset, timestamp, key_size, value_size = (int(number) for number in numbers)
        key_end = line_end + 1 + max(key_size, 0)
        at = key_end + max(value_size, 0)
        if at > len(output):
            break
        records.append(
            ReadRecord(
                partition=partition,
                offset=offset,
                timestamp=timestamp,
                key=None if key_size < 0 else output[line_end + 1 : key_end],
                value=None if value_size < 0 else output[key_end:at],
                headers=_headers_in(headers),
            )
        )
    return records


def _headers_in(text: bytes) -> Headers:
    pairs = (pair.partition(b"=") for pair in text.split(b",") if pair)
    return tuple((name.decode(), None if value == b"NULL" else value) for name, _, value in pairs)


def _translated(said: str) -> DriverError:
    for text, code in _CODES.items():
        if text in said:
            return kafka_error(code, said)
    return DriverError(UNKNOWN, "kcat", said)
