"""Reads topics and groups with librdkafka, so that our own client is not its own judge."""

from __future__ import annotations

import time
from collections import defaultdict
from typing import Final

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from spark.chaos.checks import Record
from spark.chaos.setup import INPUT, PARTITIONS

_TIMEOUT_S: Final = 30.0
_POLL_S: Final = 0.2


class Unreadable(Exception):
    """A topic or group could not be read in time."""


class Judge:
    """Everything that topics hold, read on from where it was each time."""

    def __init__(self, bootstrap_servers: str) -> None:
        settings: dict[str, str | int | float | bool] = {
            "bootstrap.servers": bootstrap_servers,
            "log_level": 0,
            "reconnect.backoff.max.ms": 200,
        }
        self._admin = AdminClient(settings)
        self._consumer = Consumer(
            {
                **settings,
                "group.id": "judge",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "check.crcs": True,
            }
        )
        self._places = [(topic, part) for topic, count in PARTITIONS.items() for part in range(count)]
        self._consumer.assign([TopicPartition(topic, part, 0) for topic, part in self._places])
        self._position = dict.fromkeys(self._places, 0)
        self._records: dict[tuple[str, int], list[Record]] = defaultdict(list)

    def read(self, timeout_s: float = _TIMEOUT_S) -> bool:
        """Read to where the logs end now; False if that is not done in time."""
        deadline = time.monotonic() + timeout_s
        try:
            ends = {place: self._end(place, timeout_s) for place in self._places}
        except KafkaException:
            return False
        while any(self._position[place] < end for place, end in ends.items()):
            if time.monotonic() > deadline:
                return False
            for message in self._consumer.consume(10_000, timeout=_POLL_S):
                if message.error() is not None:
                    continue
                topic, partition, offset = message.topic(), message.partition(), message.offset()
                assert topic is not None and partition is not None and offset is not None
                self._position[topic, partition] = offset + 1
                self._records[topic, partition].append(Record(_text(message.key()), _text(message.value())))
        return True

    def records(self, topic: str) -> list[Record]:
        """All that was read of a topic: of each partition, and so of each key, in order."""
        return [
            record for partition in range(PARTITIONS[topic]) for record in self._records[topic, partition]
        ]

    def doubles(self, topic: str) -> int:
        """How many records were there before, so far."""
        records = self.records(topic)
        return len(records) - len(set(records))

    def ends(self) -> dict[int, int]:
        """Where the input topic ends, by partition."""
        return {part: self._end((INPUT, part), _TIMEOUT_S) for part in range(PARTITIONS[INPUT])}

    def committed(self, group: str) -> dict[int, int]:
        """What a group has committed of the input topic, by partition."""
        asked = ConsumerGroupTopicPartitions(group)
        found = self._admin.list_consumer_group_offsets([asked], request_timeout=_TIMEOUT_S)[group].result()
        return {
            each.partition: each.offset
            for each in found.topic_partitions or ()
            if each.topic == INPUT and each.offset >= 0
        }

    def close(self) -> None:
        """Leave."""
        self._consumer.close()

    def _end(self, place: tuple[str, int], timeout_s: float) -> int:
        _, end = self._consumer.get_watermark_offsets(TopicPartition(*place), timeout=timeout_s)
        return int(end)


def _text(data: bytes | str | None) -> str | None:
    return data.decode(errors="backslashreplace") if isinstance(data, bytes) else data
