"""A member of a group with aiokafka."""

from __future__ import annotations

import asyncio

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.errors import KafkaError
from aiokafka.structs import TopicPartition
from clients.members.reporting import asked_to_leave, settings, tell, tell_committed, tell_read

POLL_MS = 200


class Teller(ConsumerRebalanceListener):  # type: ignore[misc]  # aiokafka has no types
    """Tells what is assigned and what goes."""

    async def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        tell("assigned", [place.partition for place in assigned])

    async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        tell("revoked", [place.partition for place in revoked])


async def main() -> None:
    """Be a member until asked to leave."""
    asked = settings()
    consumer = AIOKafkaConsumer(
        bootstrap_servers=asked["bootstrap"],
        group_id=asked["group"],
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=asked["session_timeout_ms"],
        heartbeat_interval_ms=asked["heartbeat_interval_ms"],
        partition_assignment_strategy=(RangePartitionAssignor,),
    )
    consumer.subscribe([asked["topic"]], listener=Teller())
    await consumer.start()
    leave = asked_to_leave()
    while not leave.is_set():
        nexts: dict[TopicPartition, int] = {}
        for place, records in (await consumer.getmany(timeout_ms=POLL_MS)).items():
            for record in records:
                tell_read(place.partition, record.offset)
            nexts[place] = records[-1].offset + 1
        if nexts:
            try:
                await consumer.commit(nexts)
            except KafkaError:
                # Whoever has the partitions now reads the records again.
                continue
            tell_committed({place.partition: offset for place, offset in nexts.items()})
    # Of what goes because it leaves itself, the listener does not hear.
    tell("revoked", [place.partition for place in consumer.assignment()])
    await consumer.stop()


asyncio.run(main())
