"""librdkafka, through confluent-kafka: the reference that other clients are set up by and compared with."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Literal, TypeVar, cast

import confluent_kafka
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
    kafka_error,
)
from clients.members.member import read_in_group
from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # it exports them without saying so
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from moldau.model.errors import ErrorCode

T = TypeVar("T")

TIMEOUT_S = 30

# What librdkafka finds out by itself, as the broker would have said it.
_LOCAL_ERRORS = {
    KafkaError._AUTO_OFFSET_RESET: ErrorCode.OFFSET_OUT_OF_RANGE,
    KafkaError._UNKNOWN_PARTITION: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    KafkaError._UNKNOWN_TOPIC: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
}
_STARTS = {"earliest": confluent_kafka.OFFSET_BEGINNING, "latest": confluent_kafka.OFFSET_END}


def start(bootstrap: str) -> LibrdkafkaDriver:
    """The client at this cluster."""
    return LibrdkafkaDriver(bootstrap)


class LibrdkafkaDriver:
    """confluent-kafka with a new producer or consumer for every question."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._common: dict[str, str | int | float | bool] = {"bootstrap.servers": bootstrap, "log_level": 2}
        self._admin = AdminClient(self._common)

    @property
    def version(self) -> str:
        return f"{confluent_kafka.libversion()[0]}"

    def create_topic(
        self,
        topic: str,
        *,
        partitions: int,
        replication_factor: int = 1,
        configs: Mapping[str, str] | None = None,
    ) -> None:
        new = NewTopic(
            topic,
            num_partitions=partitions,
            replication_factor=replication_factor,
            config=dict(configs or {}),
        )
        _only(self._admin.create_topics([new]))

    def describe_topic(self, topic: str) -> TopicDescription:
        found = _only(self._admin.describe_topics(TopicCollection([topic])))
        leaders = tuple(UNKNOWN if each.leader is None else each.leader.id for each in found.partitions)
        return TopicDescription(len(leaders), leaders)

    def list_topics(self) -> list[str]:
        return list(_run(lambda: self._admin.list_topics(timeout=TIMEOUT_S)).topics)

    def describe_configs(self, topic: str) -> dict[str, str | None]:
        found = _only(self._admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]))
        return {name: entry.value for name, entry in found.items()}

    def alter_configs(self, topic: str, configs: Mapping[str, str]) -> None:
        entries = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
            for name, value in configs.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
        _only(self._admin.incremental_alter_configs([resource]))

    def create_partitions(self, topic: str, *, total: int) -> None:
        _only(self._admin.create_partitions([NewPartitions(topic, total)]))

    def delete_topic(self, topic: str) -> None:
        _only(self._admin.delete_topics([topic]))

    def delete_records(self, topic: str, *, partition: int, before_offset: int) -> int:
        deleted = _only(self._admin.delete_records([TopicPartition(topic, partition, before_offset)]))
        return int(deleted.low_watermark)

    def produce(
        self,
        topic: str,
        records: Sequence[NewRecord],
        *,
        codec: Codec = "none",
        acks: Literal[-1, 0, 1] = -1,
        idempotent: bool = False,
    ) -> list[Placed]:
        producer = Producer(
            self._common
            | {
                "compression.codec": codec,
                "acks": acks,
                "enable.idempotence": idempotent,
                "message.max.bytes": SIZE_MAX,
                # Long enough for all records of a scenario to come together in one batch.
                "linger.ms": 100,
                "delivery.timeout.ms": TIMEOUT_S * 1000,
            }
        )
        outcomes: list[KafkaError | Placed | None] = [None] * len(records)

        def note(index: int) -> Callable[[KafkaError | None, Message], None]:
            def on_delivery(error: KafkaError | None, message: Message) -> None:
                offset = message.offset()
                placed = Placed(message.partition() or 0, UNKNOWN if offset is None else offset)
                outcomes[index] = error or placed

            return on_delivery

        for index, record in enumerate(records):
            try:
                producer.produce(
                    topic,
                    value=record.value,
                    key=record.key,
                    headers=list(record.headers),
                    partition=UNKNOWN if record.partition is None else record.partition,
                    timestamp=record.timestamp or 0,  # 0 is its word for "now"
                    on_delivery=note(index),
                )
            except KafkaException as refused:
                raise _translated(refused.args[0]) from refused
        producer.flush(TIMEOUT_S)
        placed: list[Placed] = []
        for outcome in outcomes:
            if isinstance(outcome, KafkaError):
                raise _translated(outcome)
            assert outcome is not None, "a record was neither written nor refused"
            placed.append(outcome)
        return placed

    def consume(
        self, topic: str, *, partition: int, offset: Start, count: int, timeout_ms: int
    ) -> list[ReadRecord]:
        first = _STARTS[offset] if isinstance(offset, str) else offset
        consumer = self._consumer()
        records: list[ReadRecord] = []
        deadline = time.monotonic() + timeout_ms / 1000
        try:
            consumer.assign([TopicPartition(topic, partition, first)])
            while len(records) < count and (left_s := deadline - time.monotonic()) > 0:
                for message in consumer.consume(count - len(records), timeout=min(left_s, 0.2)):
                    error = message.error()
                    if error is not None:
                        raise _translated(error)
                    records.append(_record_of(message))
        finally:
            consumer.close()
        return records

    def consume_from_time(
        self, topic: str, *, partition: int, timestamp: int, count: int, timeout_ms: int
    ) -> FoundByTime:
        offset = self.offset_for_time(topic, partition=partition, timestamp=timestamp)
        begin: Start = "latest" if offset == UNKNOWN else offset
        records = self.consume(topic, partition=partition, offset=begin, count=count, timeout_ms=timeout_ms)
        return FoundByTime(offset, tuple(records))

    def read_in_group(
        self, topic: str, *, group: str, count: int, timeout_ms: int, protocol: GroupProtocol = "classic"
    ) -> list[tuple[int, int]]:
        return read_in_group(
            "librdkafka",
            self._bootstrap,
            topic,
            group=group,
            count=count,
            timeout_ms=timeout_ms,
            protocol=protocol,
        )

    def list_offsets(self, topic: str, *, partition: int) -> OffsetRange:
        place = TopicPartition(topic, partition)
        return OffsetRange(
            earliest=self._list_offset(place, OffsetSpec.earliest()),  # type: ignore[no-untyped-call]
            latest=self._list_offset(place, OffsetSpec.latest()),  # type: ignore[no-untyped-call]
        )

    def offset_for_time(self, topic: str, *, partition: int, timestamp: int) -> int:
        return self._list_offset(TopicPartition(topic, partition), OffsetSpec.for_timestamp(timestamp))

    def describe_cluster(self) -> ClusterDescription:
        found = _run(lambda: self._admin.describe_cluster().result(TIMEOUT_S))
        controller_id = UNKNOWN if found.controller is None else found.controller.id
        nodes = tuple(Node(each.id, each.host, each.port) for each in found.nodes)
        return ClusterDescription(found.cluster_id, controller_id, nodes)

    def close(self) -> None:
        del self._admin

    def _list_offset(self, place: TopicPartition, spec: OffsetSpec) -> int:
        found = self._admin.list_offsets({place: spec}, isolation_level=IsolationLevel.READ_UNCOMMITTED)
        return int(_only(found).offset)

    def _consumer(self) -> Consumer:
        return Consumer(
            self._common
            | {
                "group.id": "never joined",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "check.crcs": True,
                "fetch.message.max.bytes": SIZE_MAX,
                # Closing waits for the fetch that is under way.
                "fetch.wait.max.ms": 100,
            }
        )


def _only(futures: Mapping[Any, Future[T]]) -> T:
    """What became of the one thing that was asked for."""
    (future,) = futures.values()
    return _run(lambda: future.result(TIMEOUT_S))


def _run(ask: Callable[[], T]) -> T:
    try:
        return ask()
    except KafkaException as failed:
        raise _translated(failed.args[0]) from failed


def _translated(error: KafkaError) -> DriverError:
    code = _LOCAL_ERRORS.get(error.code(), error.code())
    if code < 0:
        return DriverError(UNKNOWN, error.name(), error.str())
    return kafka_error(code, error.str())


def _record_of(message: Message) -> ReadRecord:
    partition, offset = message.partition(), message.offset()
    assert partition is not None and offset is not None
    headers = cast("list[tuple[str, bytes | None]]", message.headers() or [])
    return ReadRecord(
        partition=partition,
        offset=offset,
        timestamp=message.timestamp()[1],
        key=message.key(),
        value=message.value(),
        headers=tuple(headers),
    )
