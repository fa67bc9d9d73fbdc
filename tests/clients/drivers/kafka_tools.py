"""Kafka's console tools, driven by command lines and read by what they print.

They write text only, to whichever partition the producer chooses and with its own clock. All run in one
process, because starting Java takes longer than most of what they do.
"""

from __future__ import annotations

import base64
import json
import re
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
    TopicDescription,
    Unsupported,
)
from clients.foreign.programs import java_command

TOPICS = "org.apache.kafka.tools.TopicCommand"
CONFIGS = "kafka.admin.ConfigCommand"
PRODUCER = "org.apache.kafka.tools.ConsoleProducer"
CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
GET_OFFSETS = "org.apache.kafka.tools.GetOffsetShell"
DELETE_RECORDS = "org.apache.kafka.tools.DeleteRecordsCommand"
CLUSTER = "org.apache.kafka.tools.ClusterTool"
GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"

STOP_TIMEOUT_S = 20

# No record of a scenario has these, so that lines can be taken apart again.
FIELD_END = "\x1f<field>\x1f"
HEADER_END = "\x1f<header>\x1f"
RECORD_END = "\x1f<record>\x1f"
NULL = "\x1f<null>\x1f"


def start(bootstrap: str) -> KafkaTools:
    """The tools in a process of their own."""
    return KafkaTools(java_command("ConsoleTools"), bootstrap)


@dataclass(frozen=True, slots=True)
class Ran:
    """How a tool ended, what it printed and what it printed or logged as an error."""

    status: int
    printed: bytes
    complaints: str


class KafkaTools:
    """One process that runs a tool after the other."""

    def __init__(self, command: Sequence[str], bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8"
        )
        ready = self._next_line()
        self._version = str(ready["version"])
        self._exceptions: dict[str, tuple[int, str]] = ready["exceptions"]

    @property
    def version(self) -> str:
        return self._version

    def create_topic(
        self,
        topic: str,
        *,
        partitions: int,
        replication_factor: int = 1,
        configs: Mapping[str, str] | None = None,
    ) -> None:
        if partitions < 1:
            raise Unsupported("kafka-topics itself refuses to create a topic without partitions")
        settings = [
            word for name, value in (configs or {}).items() for word in ("--config", f"{name}={value}")
        ]
        size = ["--partitions", str(partitions), "--replication-factor", str(replication_factor)]
        self._run(TOPICS, "--create", "--topic", topic, *size, *settings)

    def describe_topic(self, topic: str) -> TopicDescription:
        printed = self._run(TOPICS, "--describe", "--topic", topic)
        leaders = tuple(int(leader) for leader in re.findall(r"\tLeader: (\d+)\t", printed))
        return TopicDescription(len(leaders), leaders)

    def list_topics(self) -> list[str]:
        return self._run(TOPICS, "--list").splitlines()

    def describe_configs(self, topic: str) -> dict[str, str | None]:
        printed = self._run(CONFIGS, "--describe", "--all", "--entity-type", "topics", "--entity-name", topic)
        return dict(re.findall(r"^  ([\w.]+)=(.*?) sensitive=", printed, flags=re.MULTILINE))

    def alter_configs(self, topic: str, configs: Mapping[str, str]) -> None:
        settings = ",".join(f"{name}=[{value}]" for name, value in configs.items())
        self._run(
            CONFIGS, "--alter", "--entity-type", "topics", "--entity-name", topic, "--add-config", settings
        )

    def create_partitions(self, topic: str, *, total: int) -> None:
        self._run(TOPICS, "--alter", "--topic", topic, "--partitions", str(total))

    def delete_topic(self, topic: str) -> None:
        self._run(TOPICS, "--delete", "--topic", topic)

    def delete_records(self, topic: str, *, partition: int, before_offset: int) -> int:
        wanted = {"topic": topic, "partition": partition, "offset": before_offset}
        with tempfile.NamedTemporaryFile("w", suffix=".json") as offsets:
            json.dump({"version": 1, "partitions": [wanted]}, offsets)
            offsets.flush()
            printed = self._run(DELETE_RECORDS, "--offset-json-file", offsets.name)
        low_watermark = re.search(r"\tlow_watermark: (\d+)", printed)
        if low_watermark is None:
            raise self._error_in(printed) or DriverError(UNKNOWN, "the tool failed", printed)
        return int(low_watermark[1])

    def produce(
        self,
        topic: str,
        records: Sequence[NewRecord],
        *,
        codec: Codec = "none",
        acks: Literal[-1, 0, 1] = -1,
        idempotent: bool = False,
    ) -> list[Placed]:
        self._check_that_partitions_are_chosen_alike(topic, records)
        readers = {
            "parse.headers": "true",
            "headers.delimiter": FIELD_END,
            "headers.separator": HEADER_END,
            "parse.key": "true",
            "key.separator": FIELD_END,
            "null.marker": NULL,
        }
        settings = {
            "max.request.size": str(SIZE_MAX),
            "enable.idempotence": str(idempotent).lower(),
            "delivery.timeout.ms": "30000",
        }
        self._run(
            PRODUCER,
            *("--topic", topic, "--compression-codec", codec, "--request-required-acks", str(acks)),
            *("--max-block-ms", "5000"),
            *_properties("--reader-property", readers),
            *_properties("--command-property", settings),
            data="".join(_line(record) for record in records).encode(),
        )
        return [Placed(UNKNOWN, UNKNOWN)] * len(records)

    def consume(
        self, topic: str, *, partition: int, offset: Start, count: int, timeout_ms: int
    ) -> list[ReadRecord]:
        settings = {"auto.offset.reset": "none", "max.partition.fetch.bytes": str(SIZE_MAX)}
        place = ("--topic", topic, "--partition", str(partition), "--offset", str(offset))
        return self._read(place, settings, count=count, timeout_ms=timeout_ms)

    def read_in_group(
        self, topic: str, *, group: str, count: int, timeout_ms: int, protocol: GroupProtocol = "classic"
    ) -> list[tuple[int, int]]:
        settings = {"auto.offset.reset": "earliest", "group.protocol": protocol}
        membership = ("--topic", topic, "--group", group)
        found = self._read(membership, settings, count=count, timeout_ms=timeout_ms)
        return [(record.partition, record.offset) for record in found]

    def _read(
        self, source: Sequence[str], settings: Mapping[str, str], *, count: int, timeout_ms: int
    ) -> list[ReadRecord]:
        names = ("timestamp", "partition", "offset", "headers", "key")
        formats = {f"print.{name}": "true" for name in names} | {
            "key.separator": FIELD_END,
            "line.separator": RECORD_END,
            "headers.separator": HEADER_END,
            "null.literal": NULL,
        }
        ran = self._ask(
            CONSUMER,
            *source,
            *("--max-messages", str(count), "--timeout-ms", str(timeout_ms)),
            *_properties("--formatter-property", formats),
            *_properties("--command-property", settings),
        )
        # Whatever ends it the consumer logs, and waiting in vain too.
        error = self._error_in(ran.complaints)
        if error is not None and error.name != "REQUEST_TIMED_OUT":
            raise error
        return [_record(line) for line in ran.printed.split(RECORD_END.encode())[:-1]]

    def consume_from_time(
        self, topic: str, *, partition: int, timestamp: int, count: int, timeout_ms: int
    ) -> FoundByTime:
        offset = self.offset_for_time(topic, partition=partition, timestamp=timestamp)
        if offset == UNKNOWN:
            return FoundByTime(UNKNOWN, ())
        records = self.consume(topic, partition=partition, offset=offset, count=count, timeout_ms=timeout_ms)
        return FoundByTime(offset, tuple(records))

    def list_offsets(self, topic: str, *, partition: int) -> OffsetRange:
        return OffsetRange(
            self._offset_at(topic, partition, "earliest"), self._offset_at(topic, partition, "latest")
        )

    def offset_for_time(self, topic: str, *, partition: int, timestamp: int) -> int:
        return self._offset_at(topic, partition, str(timestamp))

    def describe_cluster(self) -> ClusterDescription:
        cluster_id = self._run(CLUSTER, "cluster-id").removeprefix("Cluster ID: ").strip()
        rows = [line.split() for line in self._run(CLUSTER, "list-endpoints").splitlines()[1:]]
        nodes = tuple(Node(int(node_id), host, int(port)) for node_id, host, port, *_ in rows)
        return ClusterDescription(cluster_id, UNKNOWN, nodes)

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(timeout=STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _check_that_partitions_are_chosen_alike(self, topic: str, records: Sequence[NewRecord]) -> None:
        """The producer chooses partitions, which makes no difference where a topic has only one."""
        if all(record.partition is None for record in records):
            return
        partitions = self.describe_topic(topic).partitions if topic in self.list_topics() else 1
        if partitions > 1 or any(record.partition != 0 for record in records):
            raise Unsupported("kafka-console-producer has no way to name a partition")

    def groups(self, *arguments: str) -> str:
        """What kafka-consumer-groups prints, of errors too: some it reports as if all were well."""
        ran = self._ask(GROUPS, *arguments)
        return ran.printed.decode() + ran.complaints

    def _offset_at(self, topic: str, partition: int, time: str) -> int:
        printed = self._run(GET_OFFSETS, "--topic-partitions", f"{topic}:{partition}", "--time", time)
        # Nothing is printed for a time that no record has.
        found = re.fullmatch(r".*:\d+:(\d+)\n", printed)
        return int(found[1]) if found else UNKNOWN

    def _run(self, tool: str, *arguments: str, data: bytes = b"") -> str:
        """What a tool prints; an error if it fails, or logs one."""
        ran = self._ask(tool, *arguments, data=data)
        error = self._error_in(ran.complaints)
        if ran.status != 0 or error is not None:
            raise error or DriverError(UNKNOWN, "the tool failed", ran.complaints)
        return ran.printed.decode()

    def _ask(self, tool: str, *arguments: str, data: bytes = b"") -> Ran:
        command = [*arguments, "--bootstrap-server", self._bootstrap]
        request = {"tool": tool, "arguments": command, "input": base64.b64encode(data).decode()}
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        reply = self._next_line()
        complaints = base64.b64decode(reply["errors"]).decode()
        return Ran(reply["status"], base64.b64decode(reply["output"]), complaints)

    def _error_in(self, said: str) -> DriverError | None:
        """The innermost of Kafka's exceptions that a tool has printed."""
        if "config.ConfigException: " in said:
            raise Unsupported("the tool itself refuses a bad value")
        for found in reversed(list(re.finditer(r"(\w+Exception)(?::? ?)", said))):
            name = found[1]
            # kafka-topics looks among all topics before it asks for one.
            if name == "IllegalArgumentException" and "does not exist as expected" in said:
                name = "UnknownTopicOrPartitionException"
            if name in self._exceptions:
                code, kafka_name = self._exceptions[name]
                return DriverError(code, kafka_name, said[found.end() :].partition("\n")[0])
        return None

    def _next_line(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"the tools have ended with status {self._process.poll()}"
        parsed: dict[str, Any] = json.loads(line)
        return parsed


def _properties(option: str, values: Mapping[str, str]) -> list[str]:
    return [word for name, value in values.items() for word in (option, f"{name}={value}")]


def _line(record: NewRecord) -> str:
    """A record as the console producer reads it."""
    if record.timestamp is not None:
        raise Unsupported("kafka-console-producer has no way to name a timestamp")
    headers = HEADER_END.join(f"{name}:{_text(value)}" for name, value in record.headers) or NULL
    return f"{headers}{FIELD_END}{_text(record.key)}{FIELD_END}{_text(record.value)}\n"


def _text(data: bytes | None) -> str:
    if data is None:
        return NULL
    try:
        text = data.decode()
    except UnicodeDecodeError as binary:
        raise Unsupported("kafka-console-producer reads text only") from binary
    if "\n" in text or "\r" in text:
        raise Unsupported("kafka-console-producer reads a record per line")
    return text


def _record(line: bytes) -> ReadRecord:
    """A record as the console consumer prints it: `CreateTime:1<end>Partition:0<end>Offset:0<end>...`."""
    timestamp, partition, offset, headers, key, value = line.split(FIELD_END.encode())
    return ReadRecord(
        partition=int(partition.removeprefix(b"Partition:")),
        offset=int(offset.removeprefix(b"Offset:")),
        timestamp=int(timestamp.partition(b":")[2]),
        key=_data(key),
        value=_data(value),
        headers=_headers(headers),
    )


def _headers(printed: bytes) -> Headers:
    if printed == b"NO_HEADERS":
        return ()
    pairs = (pair.partition(b":") for pair in printed.split(HEADER_END.encode()))
    return tuple((name.decode(), _data(value)) for name, _, value in pairs)


def _data(printed: bytes) -> bytes | None:
    return None if printed == NULL.encode() else printed
