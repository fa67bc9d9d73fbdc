"""A member of a group with our own client, in the classic protocol or the new one."""

from __future__ import annotations

import sys
from collections.abc import Callable

from clients.members.reporting import asked_to_leave, settings, tell, tell_committed, tell_read

from moldau.client import ClientError, connect_sync
from moldau.model.ids import TopicPartition

POLL_MS = 200


def main() -> None:
    """Be a member until asked to leave."""
    asked = settings()
    leave = asked_to_leave()
    with (
        connect_sync(asked["bootstrap"], auto_offset_reset="earliest", enable_auto_commit=False) as client,
        client.group_consumer(
            [asked["topic"]],
            group_id=asked["group"],
            on_assigned=_teller("assigned"),
            on_revoked=_teller("revoked"),
            on_lost=_teller("lost"),
            group_protocol=asked["protocol"],
            partition_assignment_strategy="range",
            session_timeout_ms=asked["session_timeout_ms"],
            heartbeat_interval_ms=asked["heartbeat_interval_ms"],
        ) as consumer,
    ):
        while not leave.is_set():
            nexts: dict[TopicPartition, int] = {}
            for place, records in consumer.poll(timeout_ms=POLL_MS).items():
                for record in records:
                    tell_read(place.partition, record.offset)
                    nexts[place] = record.offset + 1
            if nexts:
                try:
                    consumer.commit(nexts)
                except ClientError as refused:
                    # Whoever has the partitions now reads the records again.
                    sys.stderr.write(f"not committed: {refused}\n")
                    continue
                tell_committed({place.partition: offset for place, offset in nexts.items()})


def _teller(event: str) -> Callable[[tuple[TopicPartition, ...]], None]:
    return lambda places: tell(event, [place.partition for place in places])


main()
