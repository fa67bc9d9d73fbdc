"""A consumer in a process of its own, so that it can be killed; it tells on stdout what it gets.

    python -m clients.group_member CLIENT ADDRESS TOPIC GROUP [INSTANCE]

Every line is JSON: {"assigned": [...]} when that changes, {"got": [partition, offset, value]} once the
position after it is committed. SIGTERM lets it leave the group properly.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import Callable, Iterable
from typing import Final

SESSION_TIMEOUT_MS: Final = 6_000
_HEARTBEAT_MS: Final = 500
_POLL_MS: Final = 100


def tell(**what: object) -> None:
    """Say something to whoever started this."""
    sys.stdout.write(f"{json.dumps(what)}\n")
    sys.stdout.flush()


def tell_got(records: Iterable[tuple[int, int, bytes]]) -> None:
    """Say what was read, now that it is committed."""
    for partition, offset, value in records:
        tell(got=[partition, offset, value.decode()])


def run_librdkafka(address: str, topic: str, group: str, instance: str | None) -> None:
    """confluent-kafka."""
    from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

    settings = {
        "bootstrap.servers": address,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "partition.assignment.strategy": "range",
        "session.timeout.ms": SESSION_TIMEOUT_MS,
        "heartbeat.interval.ms": _HEARTBEAT_MS,
        "topic.metadata.refresh.interval.ms": 1000,
    }
    if instance is not None:
        settings["group.instance.id"] = instance
    consumer = Consumer(settings)
    is_over = _on_term()

    def assigned(_: Consumer, partitions: list[TopicPartition]) -> None:
        tell(assigned=sorted(each.partition for each in partitions))

    consumer.subscribe([topic], on_assign=assigned, on_revoke=lambda *_: tell(assigned=[]))
    while not is_over():
        message = consumer.poll(_POLL_MS / 1000)
        if message is None:
            continue
        error = message.error()
        if error is not None:
            assert error.retriable() or error.code() in (KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT)
            continue
        partition, offset, value = message.partition(), message.offset(), message.value()
        assert partition is not None
        assert offset is not None
        assert isinstance(value, bytes)
        try:
            consumer.commit(offsets=[TopicPartition(topic, partition, offset + 1)], asynchronous=False)
        except KafkaException as why:
            # The group rebalances: the record comes again, to this member or another one.
            tell(failed=str(why))
            continue
        tell_got([(partition, offset, value)])
    consumer.close()


def run_kafka_python(address: str, topic: str, group: str, instance: str | None) -> None:
    """kafka-python."""
    from kafka.consumer import KafkaConsumer
    from kafka.consumer.subscription_state import ConsumerRebalanceListener
    from kafka.coordinator.assignors.range import RangePartitionAssignor
    from kafka.errors import KafkaError as KafkaPythonError

    class Told(ConsumerRebalanceListener):  # type: ignore[misc]  # kafka-python has no types
        def on_partitions_revoked(self, revoked: object) -> None:
            tell(assigned=[])

        def on_partitions_assigned(self, assigned: Iterable[tuple[str, int]]) -> None:
            tell(assigned=sorted(partition for _, partition in assigned))

    consumer = KafkaConsumer(
        bootstrap_servers=address,
        group_id=group,
        group_instance_id=instance,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        partition_assignment_strategy=[RangePartitionAssignor],
        session_timeout_ms=SESSION_TIMEOUT_MS,
        heartbeat_interval_ms=_HEARTBEAT_MS,
        metadata_max_age_ms=1000,
    )
    is_over = _on_term()
    consumer.subscribe([topic], listener=Told())
    while not is_over():
        found = consumer.poll(timeout_ms=_POLL_MS)
        records = [record for batch in found.values() for record in batch]
        if records:
            try:
                consumer.commit()
            except KafkaPythonError as why:
                tell(failed=str(why))
                continue
            tell_got((record.partition, record.offset, record.value) for record in records)
    consumer.close()


def run_aiokafka(address: str, topic: str, group: str, instance: str | None) -> None:
    """aiokafka."""
    asyncio.run(_run_aiokafka(address, topic, group, instance))


async def _run_aiokafka(address: str, topic: str, group: str, instance: str | None) -> None:
    from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
    from aiokafka.coordinator.assignors.range import RangePartitionAssignor
    from aiokafka.errors import KafkaError as AiokafkaError

    class Told(ConsumerRebalanceListener):  # type: ignore[misc]  # aiokafka has no types
        async def on_partitions_revoked(self, revoked: object) -> None:
            tell(assigned=[])

        async def on_partitions_assigned(self, assigned: Iterable[tuple[str, int]]) -> None:
            tell(assigned=sorted(partition for _, partition in assigned))

    consumer = AIOKafkaConsumer(
        bootstrap_servers=address,
        group_id=group,
        group_instance_id=instance,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        partition_assignment_strategy=[RangePartitionAssignor],
        session_timeout_ms=SESSION_TIMEOUT_MS,
        heartbeat_interval_ms=_HEARTBEAT_MS,
        metadata_max_age_ms=1000,
    )
    is_over = _on_term()
    consumer.subscribe([topic], listener=Told())
    await consumer.start()
    while not is_over():
        found = await consumer.getmany(timeout_ms=_POLL_MS)
        records = [record for batch in found.values() for record in batch]
        if records:
            try:
                await consumer.commit()
            except AiokafkaError as why:
                tell(failed=str(why))
                continue
            tell_got((record.partition, record.offset, record.value) for record in records)
    await consumer.stop()


CLIENTS: Final[dict[str, Callable[[str, str, str, str | None], None]]] = {
    "librdkafka": run_librdkafka,
    "kafka-python": run_kafka_python,
    "aiokafka": run_aiokafka,
}


def _on_term() -> Callable[[], bool]:
    told = []
    signal.signal(signal.SIGTERM, lambda *_: told.append(True))
    return lambda: bool(told)


if __name__ == "__main__":
    name, *where = sys.argv[1:]
    CLIENTS[name](where[0], where[1], where[2], where[3] if len(where) > 3 else None)
