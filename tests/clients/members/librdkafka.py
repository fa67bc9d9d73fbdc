"""A member of a group with librdkafka, in the classic protocol or the new one."""

from __future__ import annotations

import sys

from clients.members.reporting import asked_to_leave, settings, tell, tell_committed, tell_read
from confluent_kafka import Consumer, KafkaException, TopicPartition

POLL_S = 0.2
RECORDS_MAX = 100


def main() -> None:
    """Be a member until asked to leave."""
    asked = settings()
    configs: dict[str, str | int | float | bool] = {
        "bootstrap.servers": asked["bootstrap"],
        "group.id": asked["group"],
        "group.protocol": asked["protocol"],
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "log_level": 3,
    }
    if asked["protocol"] == "classic":
        # With the new protocol all three are for the coordinator to say.
        configs |= {
            "session.timeout.ms": asked["session_timeout_ms"],
            "heartbeat.interval.ms": asked["heartbeat_interval_ms"],
            "partition.assignment.strategy": "range",
        }
    consumer = Consumer(configs)

    def teller(event: str):  # type: ignore[no-untyped-def]  # the client has no name for the type
        def told(_: Consumer, places: list[TopicPartition]) -> None:
            tell(event, [place.partition for place in places])

        return told

    consumer.subscribe(
        [asked["topic"]], on_assign=teller("assigned"), on_revoke=teller("revoked"), on_lost=teller("lost")
    )
    leave = asked_to_leave()
    while not leave.is_set():
        nexts: dict[int, int] = {}
        for message in consumer.consume(RECORDS_MAX, POLL_S):
            partition, offset = message.partition(), message.offset()
            if message.error() is not None or partition is None or offset is None:
                continue
            tell_read(partition, offset)
            nexts[partition] = offset + 1
        if nexts:
            _commit(consumer, asked["topic"], nexts)
    consumer.close()


def _commit(consumer: Consumer, topic: str, nexts: dict[int, int]) -> None:
    places = [TopicPartition(topic, partition, offset) for partition, offset in nexts.items()]
    try:
        taken = consumer.commit(offsets=places, asynchronous=False)
    except KafkaException as refused:
        # Whoever has the partition now reads the records again.
        sys.stderr.write(f"not committed: {refused}\n")
        return
    tell_committed({place.partition: place.offset for place in taken or [] if place.error is None})


main()
