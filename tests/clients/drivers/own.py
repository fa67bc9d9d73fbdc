"""Our own client, through its synchronous face."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, TypeVar

from clients.drivers.driver import (
    SIZE_MAX,
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
)
from clients.members.member import read_in_group

import moldau
from moldau.client import EARLIEST, LATEST, ClientError, NewTopic, ResourceType, connect_sync
from moldau.client.blocking import BlockingClient

T = TypeVar("T")

_STARTS = {"earliest": EARLIEST, "latest": LATEST}


def start(bootstrap: str) -> OwnDriver:
    """The client at this cluster."""
    return OwnDriver(bootstrap)


class OwnDriver:
    """One client for administration, and a new one for everything written or read."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._client = self._connect()

    @property
    def version(self) -> str:
        return moldau.__version__

    def create_topic(
        self,
        topic: str,
        *,
        partitions: int,
        replication_factor: int = 1,
        configs: Mapping[str, str] | None = None,
    ) -> None:
        new = NewTopic(topic, partitions, replication_factor, configs or {})
        _run(lambda: self._client.admin.create_topics(new))

    def describe_topic(self, topic: str) -> TopicDescription:
        partitions = _run(lambda: self._client.admin.describe_topics(topic))[topic].partitions
        leaders = tuple(partitions[index].leader.node_id for index in sorted(partitions))
        return TopicDescription(len(leaders), leaders)

    def list_topics(self) -> list[str]:
        return list(_run(self._client.admin.list_topics))

    def describe_configs(self, topic: str) -> dict[str, str | None]:
        found = _run(lambda: self._client.admin.describe_configs(ResourceType.TOPIC, topic))
        return {name: entry.value for name, entry in found.items()}

    def alter_configs(self, topic: str, configs: Mapping[str, str]) -> None:
        _run(lambda: self._client.admin.alter_configs(ResourceType.TOPIC, topic, dict(configs)))

    def create_partitions(self, topic: str, *, total: int) -> None:
        _run(lambda: self._client.admin.add_partitions(topic, total))

    def delete_topic(self, topic: str) -> None:
        _run(lambda: self._client.admin.delete_topics(topic))

    def delete_records(self, topic: str, *, partition: int, before_offset: int) -> int:
        found = _run(lambda: self._client.admin.delete_records({(topic, partition): before_offset}))
        return next(iter(found.values()))

    def produce(
        self,
        topic: str,
        records: Sequence[NewRecord],
        *,
        codec: Codec = "none",
        acks: Literal[-1, 0, 1] = -1,
        idempotent: bool = False,
    ) -> list[Placed]:
        def write() -> list[Placed]:
            with (
                self._connect() as client,
                client.producer(
                    compression_type=codec,
                    acks=acks,
                    enable_idempotence=idempotent,
                    batch_size=SIZE_MAX,
                    linger_ms=20,
                ) as producer,
            ):
                sent = [
                    producer.send(
                        topic,
                        record.value,
                        key=record.key,
                        headers=record.headers,
                        partition=record.partition,
                        timestamp=record.timestamp,
                    )
                    for record in records
                ]
                found = [producer.wait(each) for each in sent]
            return [Placed(each.partition.partition, each.offset) for each in found]

        return _run(write)

    def consume(
        self, topic: str, *, partition: int, offset: Start, count: int, timeout_ms: int
    ) -> list[ReadRecord]:
        begin = self._offset(topic, partition, _STARTS[offset]) if isinstance(offset, str) else offset
        records: list[ReadRecord] = []
        deadline = time.monotonic() + timeout_ms / 1000

        def read() -> None:
            with self._connect() as client, client.consumer({(topic, partition): begin}) as consumer:
                while len(records) < count and (left_s := deadline - time.monotonic()) > 0:
                    wanted = count - len(records)
                    polled = consumer.poll(timeout_ms=int(left_s * 1000) + 1, records_max=wanted)
                    for batch in polled.values():
                        records.extend(
                            ReadRecord(
                                partition=partition,
                                offset=each.offset,
                                timestamp=each.timestamp,
                                key=each.key,
                                value=each.value,
                                headers=tuple(each.headers),
                            )
                            for each in batch
                        )

        _run(read)
        return records

    def consume_from_time(
        self, topic: str, *, partition: int, timestamp: int, count: int, timeout_ms: int
    ) -> FoundByTime:
        offset = self._offset(topic, partition, timestamp)
        begin: Start = "latest" if offset < 0 else offset
        records = self.consume(topic, partition=partition, offset=begin, count=count, timeout_ms=timeout_ms)
        return FoundByTime(offset, tuple(records))

    def read_in_group(
        self, topic: str, *, group: str, count: int, timeout_ms: int, protocol: GroupProtocol = "classic"
    ) -> list[tuple[int, int]]:
        return read_in_group(
            "moldau.client",
            self._bootstrap,
            topic,
            group=group,
            count=count,
            timeout_ms=timeout_ms,
            protocol=protocol,
        )

    def list_offsets(self, topic: str, *, partition: int) -> OffsetRange:
        return OffsetRange(
            earliest=self._offset(topic, partition, EARLIEST), latest=self._offset(topic, partition, LATEST)
        )

    def offset_for_time(self, topic: str, *, partition: int, timestamp: int) -> int:
        return self._offset(topic, partition, timestamp)

    def describe_cluster(self) -> ClusterDescription:
        found = _run(self._client.admin.describe_cluster)
        nodes = tuple(Node(each.node_id, each.address.host, each.address.port) for each in found.brokers)
        return ClusterDescription(found.cluster_id, found.controller_id, nodes)

    def close(self) -> None:
        self._client.close()

    def _connect(self) -> BlockingClient:
        return connect_sync(self._bootstrap, max_request_size=SIZE_MAX, auto_offset_reset="none")

    def _offset(self, topic: str, partition: int, wanted: int) -> int:
        found = _run(lambda: self._client.admin.list_offsets({(topic, partition): wanted}))
        return next(iter(found.values())).offset


def _run(ask: Callable[[], T]) -> T:
    try:
        return ask()
    except ClientError as failed:
        raise DriverError(failed.code, failed.code.name, str(failed)) from failed
