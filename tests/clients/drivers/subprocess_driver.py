"""A driver in another language: a child process that answers one line of JSON for each line that it reads.

A request is `{"id": 1, "op": "produce", ...}`: `op` is a method of `Driver`, and beside it stand its
arguments; bytes are base64. The answer is `{"id": 1, "ok": {...}}`, or `{"id": 1, "unsupported": "why"}`, or
`{"id": 1, "error": {"code": 36, "name": "TOPIC_ALREADY_EXISTS", "message": "..."}}`. The child gets the
bootstrap servers as its last argument, says `{"ready": true, "version": "1.2.3"}` when it has started, and
ends when its input does.
"""

from __future__ import annotations

import base64
import json
import queue
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from clients.drivers.driver import (
    ClusterDescription,
    Codec,
    DriverError,
    FoundByTime,
    GroupProtocol,
    NewRecord,
    Node,
    OffsetRange,
    Placed,
    ReadRecord,
    Start,
    TopicDescription,
    Unsupported,
)
from clients.members.member import read_in_group

START_TIMEOUT_S = 60
REPLY_TIMEOUT_S = 90
STOP_TIMEOUT_S = 20


class SubprocessDriver:
    """The client of this name inside a child process; `version` is asked of the child unless given."""

    def __init__(
        self,
        command: Sequence[str],
        bootstrap: str,
        *,
        client: str,
        version: str = "",
        folder: Path | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._client, self._bootstrap = client, bootstrap
        self._command = [*command, bootstrap]
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115  # closed with the driver
        self._process = subprocess.Popen(
            self._command,
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            encoding="utf-8",
        )
        self._lines: queue.Queue[str | None] = queue.Queue()
        # A thread reads, because a pipe has no way to read a line or give up after a while.
        threading.Thread(target=self._read, daemon=True).start()
        self._requests = 0
        ready = self._next_line(START_TIMEOUT_S)
        assert ready.get("ready"), f"the child began with {ready}"
        self._version = version or str(ready.get("version", ""))

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
        self._ask(
            "create_topic",
            topic=topic,
            partitions=partitions,
            replication_factor=replication_factor,
            configs=dict(configs or {}),
        )

    def describe_topic(self, topic: str) -> TopicDescription:
        found = self._ask("describe_topic", topic=topic)
        return TopicDescription(found["partitions"], tuple(found["leaders"]))

    def list_topics(self) -> list[str]:
        return list(self._ask("list_topics")["topics"])

    def describe_configs(self, topic: str) -> dict[str, str | None]:
        return dict(self._ask("describe_configs", topic=topic)["configs"])

    def alter_configs(self, topic: str, configs: Mapping[str, str]) -> None:
        self._ask("alter_configs", topic=topic, configs=dict(configs))

    def create_partitions(self, topic: str, *, total: int) -> None:
        self._ask("create_partitions", topic=topic, total=total)

    def delete_topic(self, topic: str) -> None:
        self._ask("delete_topic", topic=topic)

    def delete_records(self, topic: str, *, partition: int, before_offset: int) -> int:
        found = self._ask("delete_records", topic=topic, partition=partition, before_offset=before_offset)
        return int(found["low_watermark"])

    def produce(
        self,
        topic: str,
        records: Sequence[NewRecord],
        *,
        codec: Codec = "none",
        acks: Literal[-1, 0, 1] = -1,
        idempotent: bool = False,
    ) -> list[Placed]:
        found = self._ask(
            "produce",
            topic=topic,
            records=[_encoded(record) for record in records],
            codec=codec,
            acks=acks,
            idempotent=idempotent,
        )
        return [Placed(int(each["partition"]), int(each["offset"])) for each in found["results"]]

    def consume(
        self, topic: str, *, partition: int, offset: Start, count: int, timeout_ms: int
    ) -> list[ReadRecord]:
        found = self._ask(
            "consume", topic=topic, partition=partition, offset=offset, count=count, timeout_ms=timeout_ms
        )
        return [_decoded(each) for each in found["records"]]

    def consume_from_time(
        self, topic: str, *, partition: int, timestamp: int, count: int, timeout_ms: int
    ) -> FoundByTime:
        found = self._ask(
            "consume_from_time",
            topic=topic,
            partition=partition,
            timestamp=timestamp,
            count=count,
            timeout_ms=timeout_ms,
        )
        return FoundByTime(int(found["offset"]), tuple(_decoded(each) for each in found["records"]))

    def read_in_group(
        self, topic: str, *, group: str, count: int, timeout_ms: int, protocol: GroupProtocol = "classic"
    ) -> list[tuple[int, int]]:
        return read_in_group(
            self._client,
            self._bootstrap,
            topic,
            group=group,
            count=count,
            timeout_ms=timeout_ms,
            protocol=protocol,
        )

    def list_offsets(self, topic: str, *, partition: int) -> OffsetRange:
        found = self._ask("list_offsets", topic=topic, partition=partition)
        return OffsetRange(int(found["earliest"]), int(found["latest"]))

    def offset_for_time(self, topic: str, *, partition: int, timestamp: int) -> int:
        return int(
            self._ask("offset_for_time", topic=topic, partition=partition, timestamp=timestamp)["offset"]
        )

    def describe_cluster(self) -> ClusterDescription:
        found = self._ask("describe_cluster")
        nodes = tuple(Node(int(each["id"]), each["host"], int(each["port"])) for each in found["nodes"])
        return ClusterDescription(found["cluster_id"], int(found["controller_id"]), nodes)

    def close(self) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.close()
            self._process.wait(timeout=STOP_TIMEOUT_S)
        except (BrokenPipeError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
        self._stderr.close()

    def _ask(self, operation: str, **arguments: object) -> dict[str, Any]:
        self._requests += 1
        request = {"id": self._requests, "op": operation, **arguments}
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        reply = self._next_line(REPLY_TIMEOUT_S)
        while reply["id"] < self._requests:
            # An answer that came too late for its scenario is no answer to the next one's question.
            reply = self._next_line(REPLY_TIMEOUT_S)
        if "unsupported" in reply:
            raise Unsupported(reply["unsupported"])
        if "error" in reply:
            error = reply["error"]
            raise DriverError(int(error["code"]), error["name"], error["message"])
        return dict(reply["ok"])

    def _next_line(self, timeout_s: float) -> dict[str, Any]:
        try:
            line = self._lines.get(timeout=timeout_s)
        except queue.Empty as late:
            raise AssertionError(f"no answer within {timeout_s} s; {self._said()}") from late
        assert line is not None, f"the child has ended; {self._said()}"
        try:
            parsed: dict[str, Any] = json.loads(line)
        except json.JSONDecodeError as wrong:
            raise AssertionError(f"the child wrote {line!r}; {self._said()}") from wrong
        return parsed

    def _said(self) -> str:
        self._stderr.seek(0)
        return f"{self._command[0]} said: {self._stderr.read().decode(errors='replace')[-2000:]}"

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put(None)


def _encoded(record: NewRecord) -> dict[str, object]:
    found: dict[str, object] = {
        "key": _base64(record.key),
        "value": _base64(record.value),
        "headers": [[name, _base64(value)] for name, value in record.headers],
    }
    if record.partition is not None:
        found["partition"] = record.partition
    if record.timestamp is not None:
        found["timestamp"] = record.timestamp
    return found


def _decoded(found: Mapping[str, Any]) -> ReadRecord:
    return ReadRecord(
        partition=int(found["partition"]),
        offset=int(found["offset"]),
        timestamp=int(found["timestamp"]),
        key=_bytes(found["key"]),
        value=_bytes(found["value"]),
        headers=tuple((name, _bytes(value)) for name, value in found["headers"] or ()),
    )


def _base64(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)
