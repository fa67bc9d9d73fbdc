"""A member of a group with kafka-python."""

from __future__ import annotations

from clients.members.reporting import asked_to_leave, settings, tell, tell_committed, tell_read
from kafka.consumer import KafkaConsumer
from kafka.consumer.subscription_state import ConsumerRebalanceListener
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.errors import KafkaError
from kafka.structs import OffsetAndMetadata, TopicPartition

POLL_MS = 200


class Teller(ConsumerRebalanceListener):  # type: ignore[misc]  # kafka-python has no types
    """Tells what is assigned and what goes."""

    def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        tell("assigned", [place.partition for place in assigned])

    def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        tell("revoked", [place.partition for place in revoked])

    def on_partitions_lost(self, lost: set[TopicPartition]) -> None:
        tell("lost", [place.partition for place in lost])


def main() -> None:
    """Be a member until asked to leave."""
    asked = settings()
    consumer = KafkaConsumer(
        bootstrap_servers=asked["bootstrap"],
        group_id=asked["group"],
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=asked["session_timeout_ms"],
        heartbeat_interval_ms=asked["heartbeat_interval_ms"],
        partition_assignment_strategy=(RangePartitionAssignor,),
    )
    consumer.subscribe([asked["topic"]], listener=Teller())
    leave = asked_to_leave()
    while not leave.is_set():
        nexts: dict[TopicPartition, OffsetAndMetadata] = {}
        for place, records in consumer.poll(timeout_ms=POLL_MS).items():
            for record in records:
                tell_read(place.partition, record.offset)
            nexts[place] = OffsetAndMetadata(records[-1].offset + 1, "", -1)
        if nexts:
            try:
                consumer.commit(nexts)
            except KafkaError:
                # Whoever has the partitions now reads the records again.
                continue
            tell_committed({place.partition: position.offset for place, position in nexts.items()})
    consumer.close()


main()
