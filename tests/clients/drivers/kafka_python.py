"""kafka-python, with a new producer, consumer or admin client for every question."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from functools import partial
from typing import Literal, TypeVar

from clients.drivers.driver import (
    SIZE_MAX,
    UNKNOWN,
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
    kafka_error,
)
from clients.members.member import read_in_group
from kafka.admin import ConfigResource, KafkaAdminClient
from kafka.consumer import KafkaConsumer
from kafka.errors import KafkaError, NoOffsetForPartitionError
from kafka.producer import KafkaProducer
from kafka.structs import TopicPartition
from kafka.version import __version__ as kafka_python_version

from moldau.model.errors import ErrorCode

T = TypeVar("T")

TIMEOUT_S = 30


def start(bootstrap: str) -> KafkaPythonDriver:
    """The client at this cluster."""
    return KafkaPythonDriver(bootstrap)


class KafkaPythonDriver:
    """kafka-python with one admin client, and producers and consumers as needed."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._admin = KafkaAdminClient(bootstrap_servers=bootstrap)

    @property
    def version(self) -> str:
        return str(kafka_python_version)

    def create_topic(
        self,
        topic: str,
        *,
        partitions: int,
        replication_factor: int = 1,
        configs: Mapping[str, str] | None = None,
    ) -> None:
        new = {
            "num_partitions": partitions,
            "replication_factor": replication_factor,
            "configs": dict(configs or {}),
        }
        _run(lambda: self._admin.create_topics({topic: new}))

    def describe_topic(self, topic: str) -> TopicDescription:
        (found,) = _run(lambda: self._admin.describe_topics([topic]))
        if found["error_code"] != 0:
            raise kafka_error(found["error_code"], topic)
        rows = sorted(found["partitions"], key=lambda row: int(row["partition_index"]))
        return TopicDescription(len(rows), tuple(row["leader_id"] for row in rows))

    def list_topics(self) -> list[str]:
        return list(_run(self._admin.list_topics))

    def describe_configs(self, topic: str) -> dict[str, str | None]:
        resource = ConfigResource("topic", topic)
        found = _run(lambda: self._admin.describe_configs([resource], config_filter="all"))
        return {name: entry["value"] for name, entry in found["topic"][topic].items()}

    def alter_configs(self, topic: str, configs: Mapping[str, str]) -> None:
        resource = ConfigResource("topic", topic, dict(configs))
        found = _run(lambda: self._admin.alter_configs([resource], raise_on_unknown=False))
        outcome = found["topic"][topic]
        if outcome != "OK":
            # Of an error it keeps only the text, which begins with the number in brackets.
            raise kafka_error(int(outcome.partition("[Error ")[2].partition("]")[0]), outcome)

    def create_partitions(self, topic: str, *, total: int) -> None:
        _run(lambda: self._admin.create_partitions({topic: total}))

    def delete_topic(self, topic: str) -> None:
        _run(lambda: self._admin.delete_topics([topic]))

    def delete_records(self, topic: str, *, partition: int, before_offset: int) -> int:
        place = TopicPartition(topic, partition)
        found = _run(lambda: self._admin.delete_records({place: before_offset}))
        return int(found[place]["low_watermark"])

    def produce(
        self,
        topic: str,
        records: Sequence[NewRecord],
        *,
        codec: Codec = "none",
        acks: Literal[-1, 0, 1] = -1,
        idempotent: bool = False,
    ) -> list[Placed]:
        if any(record.key is None and record.value is None for record in records):
            raise Unsupported("it refuses records with neither key nor value")
        if any(value is None for record in records for _, value in record.headers):
            raise Unsupported("it refuses headers without a value")
        with closing(
            KafkaProducer(
                bootstrap_servers=self._bootstrap,
                acks=acks,
                compression_type=None if codec == "none" else codec,
                enable_idempotence=idempotent,
                max_request_size=SIZE_MAX,
                batch_size=SIZE_MAX,
                linger_ms=20,
                max_block_ms=TIMEOUT_S * 1000,
            )
        ) as producer:
            try:
                sent = [
                    producer.send(
                        topic,
                        value=record.value,
                        key=record.key,
                        headers=list(record.headers),
                        partition=record.partition,
                        timestamp_ms=record.timestamp,
                    )
                    for record in records
                ]
            except ValueError as refused:
                # It looks partitions up in its metadata, and has no other error for those that are not there.
                if "partition" in str(refused):
                    raise kafka_error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, str(refused)) from refused
                raise Unsupported("it checks the names of topics itself") from refused
            found = _run(lambda: [each.get(TIMEOUT_S) for each in sent])
        return [Placed(each.partition, max(each.offset, UNKNOWN)) for each in found]

    def consume(
        self, topic: str, *, partition: int, offset: Start, count: int, timeout_ms: int
    ) -> list[ReadRecord]:
        place = TopicPartition(topic, partition)
        with closing(self._consumer()) as consumer:
            consumer.assign([place])
            if offset == "earliest":
                consumer.seek_to_beginning(place)
            elif offset == "latest":
                consumer.seek_to_end(place)
            else:
                consumer.seek(place, offset)
            return _read(consumer, count=count, timeout_ms=timeout_ms)

    def consume_from_time(
        self, topic: str, *, partition: int, timestamp: int, count: int, timeout_ms: int
    ) -> FoundByTime:
        place = TopicPartition(topic, partition)
        with closing(self._consumer()) as consumer:
            consumer.assign([place])
            found = _run(lambda: consumer.offsets_for_times({place: timestamp}))[place]
            if found is None:
                return FoundByTime(UNKNOWN, ())
            consumer.seek(place, found.offset)
            return FoundByTime(found.offset, tuple(_read(consumer, count=count, timeout_ms=timeout_ms)))

    def read_in_group(
        self, topic: str, *, group: str, count: int, timeout_ms: int, protocol: GroupProtocol = "classic"
    ) -> list[tuple[int, int]]:
        return read_in_group(
            "kafka-python",
            self._bootstrap,
            topic,
            group=group,
            count=count,
            timeout_ms=timeout_ms,
            protocol=protocol,
        )

    def list_offsets(self, topic: str, *, partition: int) -> OffsetRange:
        place = TopicPartition(topic, partition)
        with closing(self._consumer()) as consumer:
            earliest = _run(lambda: consumer.beginning_offsets([place]))[place]
            latest = _run(lambda: consumer.end_offsets([place]))[place]
        return OffsetRange(earliest=earliest, latest=latest)

    def offset_for_time(self, topic: str, *, partition: int, timestamp: int) -> int:
        place = TopicPartition(topic, partition)
        with closing(self._consumer()) as consumer:
            found = _run(lambda: consumer.offsets_for_times({place: timestamp}))[place]
        return UNKNOWN if found is None else int(found.offset)

    def describe_cluster(self) -> ClusterDescription:
        found = _run(self._admin.describe_cluster)
        nodes = tuple(Node(each["broker_id"], each["host"], each["port"]) for each in found["brokers"])
        return ClusterDescription(found["cluster_id"], found["controller_id"], nodes)

    def close(self) -> None:
        self._admin.close()

    def _consumer(self) -> KafkaConsumer:
        return KafkaConsumer(
            bootstrap_servers=self._bootstrap,
            group_id=None,
            auto_offset_reset="none",
            enable_auto_commit=False,
            max_partition_fetch_bytes=SIZE_MAX,
        )


def _run(ask: Callable[[], T]) -> T:
    try:
        return ask()
    except KafkaError as failed:
        raise _translated(failed) from failed


def _translated(error: KafkaError) -> DriverError:
    if isinstance(error, NoOffsetForPartitionError):
        return kafka_error(ErrorCode.OFFSET_OUT_OF_RANGE, str(error))
    code = getattr(error, "errno", UNKNOWN)
    if code is None or code < 0:
        return DriverError(UNKNOWN, type(error).__name__, str(error))
    return kafka_error(code, str(error))


def _read(consumer: KafkaConsumer, *, count: int, timeout_ms: int) -> list[ReadRecord]:
    records: list[ReadRecord] = []
    deadline = time.monotonic() + timeout_ms / 1000
    while len(records) < count and (left_s := deadline - time.monotonic()) > 0:
        wanted = count - len(records)
        polled = _run(partial(consumer.poll, timeout_ms=int(left_s * 1000) + 1, max_records=wanted))
        for batch in polled.values():
            records += [
                ReadRecord(
                    partition=each.partition,
                    offset=each.offset,
                    timestamp=each.timestamp,
                    key=each.key,
                    value=each.value,
                    headers=tuple(each.headers),
                )
                for each in batch
            ]
    return records
