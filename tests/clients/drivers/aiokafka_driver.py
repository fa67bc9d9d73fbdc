"""aiokafka, with a loop of its own for every question."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Literal, TypeVar

import aiokafka
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import BrokerResponseError, KafkaError, kafka_errors
from aiokafka.structs import TopicPartition
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

from moldau.model.errors import ErrorCode

T = TypeVar("T")

# How long it asks for a topic that it does not get, among other things.
_TIMEOUT_MS = 10_000


class InvalidRecordError(BrokerResponseError):  # type: ignore[misc]  # aiokafka has no types
    """An error that aiokafka has no class for, and whose number it would lose."""

    errno = ErrorCode.INVALID_RECORD.value


kafka_errors[InvalidRecordError.errno] = InvalidRecordError


def start(bootstrap: str) -> AiokafkaDriver:
    """The client at this cluster."""
    return AiokafkaDriver(bootstrap)


class AiokafkaDriver:
    """aiokafka, driven from synchronous code."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    @property
    def version(self) -> str:
        return str(aiokafka.__version__)

    def create_topic(
        self,
        topic: str,
        *,
        partitions: int,
        replication_factor: int = 1,
        configs: Mapping[str, str] | None = None,
    ) -> None:
        async def ask() -> None:
            new = NewTopic(topic, partitions, replication_factor, topic_configs=dict(configs or {}))
            async with self._admin() as admin:
                for _, code, message in (await admin.create_topics([new])).topic_errors:
                    _check(code, message)

        _run(ask())

    def describe_topic(self, topic: str) -> TopicDescription:
        async def ask() -> TopicDescription:
            async with self._admin() as admin:
                (found,) = await admin.describe_topics([topic])
            _check(found["error_code"])
            rows = sorted(found["partitions"], key=lambda row: int(row["partition"]))
            return TopicDescription(len(rows), tuple(row["leader"] for row in rows))

        return _run(ask())

    def list_topics(self) -> list[str]:
        async def ask() -> list[str]:
            async with self._admin() as admin:
                return list(await admin.list_topics())

        return _run(ask())

    def describe_configs(self, topic: str) -> dict[str, str | None]:
        async def ask() -> dict[str, str | None]:
            async with self._admin() as admin:
                (reply,) = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
            ((code, message, _, _, entries),) = reply.resources
            _check(code, message)
            return {entry[0]: entry[1] for entry in entries}

        return _run(ask())

    def alter_configs(self, topic: str, configs: Mapping[str, str]) -> None:
        raise Unsupported("it has AlterConfigs only, which resets what is not named")

    def create_partitions(self, topic: str, *, total: int) -> None:
        async def ask() -> None:
            async with self._admin() as admin:
                await admin.create_partitions({topic: NewPartitions(total)})

        _run(ask())

    def delete_topic(self, topic: str) -> None:
        async def ask() -> None:
            async with self._admin() as admin:
                for _, code, *_ in (await admin.delete_topics([topic])).topic_error_codes:
                    _check(code)

        _run(ask())

    def delete_records(self, topic: str, *, partition: int, before_offset: int) -> int:
        async def ask() -> int:
            place = TopicPartition(topic, partition)
            async with self._admin() as admin:
                return int((await admin.delete_records({place: RecordsToDelete(before_offset)}))[place])

        return _run(ask())

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

        async def ask() -> list[Placed]:
            producer = aiokafka.AIOKafkaProducer(
                bootstrap_servers=self._bootstrap,
                acks="all" if acks == -1 else acks,
                compression_type=None if codec == "none" else codec,
                enable_idempotence=idempotent,
                max_request_size=SIZE_MAX,
                max_batch_size=SIZE_MAX,
                linger_ms=20,
                request_timeout_ms=_TIMEOUT_MS,
            )
            await producer.start()
            try:
                sent = [
                    await producer.send(
                        topic,
                        value=record.value,
                        key=record.key,
                        headers=list(record.headers),
                        partition=record.partition,
                        timestamp_ms=record.timestamp,
                    )
                    for record in records
                ]
                await producer.flush()
                return [_placed(await each, record) for each, record in zip(sent, records, strict=True)]
            except AssertionError as unrecognised:
                # It looks partitions up in its metadata, and this is all it says if there is no such one.
                raise kafka_error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, str(unrecognised)) from unrecognised
            finally:
                await producer.stop()

        return _run(ask())

    def consume(
        self, topic: str, *, partition: int, offset: Start, count: int, timeout_ms: int
    ) -> list[ReadRecord]:
        async def ask() -> list[ReadRecord]:
            async with self._consumer() as consumer:
                place = TopicPartition(topic, partition)
                consumer.assign([place])
                if offset == "earliest":
                    await consumer.seek_to_beginning(place)
                elif offset == "latest":
                    await consumer.seek_to_end(place)
                else:
                    consumer.seek(place, offset)
                return await _read(consumer, count=count, timeout_ms=timeout_ms)

        return _run(ask())

    def consume_from_time(
        self, topic: str, *, partition: int, timestamp: int, count: int, timeout_ms: int
    ) -> FoundByTime:
        async def ask() -> FoundByTime:
            async with self._consumer() as consumer:
                place = TopicPartition(topic, partition)
                consumer.assign([place])
                found = (await consumer.offsets_for_times({place: timestamp}))[place]
                if found is None:
                    return FoundByTime(UNKNOWN, ())
                consumer.seek(place, found.offset)
                records = await _read(consumer, count=count, timeout_ms=timeout_ms)
                return FoundByTime(found.offset, tuple(records))

        return _run(ask())

    def read_in_group(
        self, topic: str, *, group: str, count: int, timeout_ms: int, protocol: GroupProtocol = "classic"
    ) -> list[tuple[int, int]]:
        return read_in_group(
            "aiokafka",
            self._bootstrap,
            topic,
            group=group,
            count=count,
            timeout_ms=timeout_ms,
            protocol=protocol,
        )

    def list_offsets(self, topic: str, *, partition: int) -> OffsetRange:
        async def ask() -> OffsetRange:
            place = TopicPartition(topic, partition)
            async with self._consumer() as consumer:
                earliest = (await consumer.beginning_offsets([place]))[place]
                latest = (await consumer.end_offsets([place]))[place]
            return OffsetRange(earliest=earliest, latest=latest)

        return _run(ask())

    def offset_for_time(self, topic: str, *, partition: int, timestamp: int) -> int:
        async def ask() -> int:
            place = TopicPartition(topic, partition)
            async with self._consumer() as consumer:
                found = (await consumer.offsets_for_times({place: timestamp}))[place]
            return UNKNOWN if found is None else int(found.offset)

        return _run(ask())

    def describe_cluster(self) -> ClusterDescription:
        async def ask() -> ClusterDescription:
            async with self._admin() as admin:
                found = await admin.describe_cluster()
            nodes = tuple(Node(each["node_id"], each["host"], each["port"]) for each in found["brokers"])
            return ClusterDescription(found["cluster_id"], found["controller_id"], nodes)

        return _run(ask())

    def close(self) -> None:
        """Nothing stays open between questions."""

    @asynccontextmanager
    async def _admin(self) -> AsyncIterator[AIOKafkaAdminClient]:
        admin = AIOKafkaAdminClient(bootstrap_servers=self._bootstrap)
        await admin.start()
        try:
            yield admin
        finally:
            await admin.close()

    @asynccontextmanager
    async def _consumer(self) -> AsyncIterator[aiokafka.AIOKafkaConsumer]:
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=self._bootstrap,
            group_id=None,
            auto_offset_reset="none",
            enable_auto_commit=False,
            max_partition_fetch_bytes=SIZE_MAX,
        )
        await consumer.start()
        try:
            yield consumer
        finally:
            await consumer.stop()


def _run(ask: Coroutine[object, object, T]) -> T:
    try:
        return asyncio.run(ask)
    except KafkaError as failed:
        raise _translated(failed) from failed


def _translated(error: KafkaError) -> DriverError:
    code = getattr(error, "errno", UNKNOWN)
    if code is None or code < 0:
        return DriverError(UNKNOWN, type(error).__name__, str(error))
    return kafka_error(code, str(error))


def _check(code: int, message: str | None = None) -> None:
    if code != 0:
        raise kafka_error(code, message or "")


def _check_producible(records: Sequence[NewRecord]) -> None:
    if any(record.key is None and record.value is None for record in records):
        raise Unsupported("it refuses records with neither key nor value")


def _placed(found: Any, record: NewRecord) -> Placed:
    if found is None:  # as with acks=0, where nobody tells the client
        return Placed(UNKNOWN if record.partition is None else record.partition, UNKNOWN)
    return Placed(found.partition, found.offset)


async def _read(consumer: aiokafka.AIOKafkaConsumer, *, count: int, timeout_ms: int) -> list[ReadRecord]:
    records: list[ReadRecord] = []
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_ms / 1000
    while len(records) < count and (left_s := deadline - loop.time()) > 0:
        polled = await consumer.getmany(timeout_ms=int(left_s * 1000) + 1, max_records=count - len(records))
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
