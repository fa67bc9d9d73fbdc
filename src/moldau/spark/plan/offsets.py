"""Offsets as Spark writes them: JSON by topic and partition, in options and in checkpoints."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import msgspec

from moldau.model.ids import PartitionIndex, TopicName, TopicPartition
from moldau.model.settings.types import INT32_MAX, INT64_MAX

# In options: where the log ends, and where it begins.
LATEST: Final = -1
EARLIEST: Final = -2

Offsets: TypeAlias = Mapping[TopicPartition, int]
Json: TypeAlias = dict[str, object]

_DIGITS_MAX: Final = len(str(INT32_MAX))

# No topic's name has an "@", so these cannot be taken for topics.
_QUERY: Final = "@query"
_IDS: Final = "@ids"
_BEGINNING: Final = "@beginning"
_IS_BEGINNING: Final = "@is-beginning"


class BadOffsets(ValueError):
    """JSON that does not say what it should; the text says what it should look like."""


@dataclass(frozen=True, slots=True)
class Position:
    """How far a query has come, with what it must find again after a restart."""

    offsets: Offsets
    # The ids of the topics, by which one that was deleted and created again is known.
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    # A name that no other query has; part of its group's id.
    query: str = ""
    # The checkpoint has only the ends of batches. Hence that of the first batch remembers its beginning.
    beginning: Offsets | None = None
    is_beginning: bool = False

    def to_json(self) -> Json:
        """As it goes into the checkpoint: Spark's form of offsets, and what is ours beside it."""
        told = offsets_to_json(self.offsets)
        if self.query:
            told[_QUERY] = self.query
        if self.topic_ids:
            told[_IDS] = dict(sorted(self.topic_ids.items()))
        if self.beginning is not None:
            told[_BEGINNING] = offsets_to_json(self.beginning)
        if self.is_beginning:
            told[_IS_BEGINNING] = True
        return told

    @classmethod
    def from_json(cls, told: Json) -> Position:
        """What a checkpoint holds, be it ours or that of Spark's connector for Kafka."""
        topics = {name: value for name, value in told.items() if not name.startswith("@")}
        ids = told.get(_IDS, {})
        beginning = told.get(_BEGINNING)
        if not isinstance(ids, dict) or not isinstance(beginning, dict | None):
            raise BadOffsets(f"The checkpoint holds {told}, which are no offsets of this source")
        return cls(
            offsets=offsets_from_json(topics),
            topic_ids={str(name): str(topic_id) for name, topic_id in ids.items()},
            query=str(told.get(_QUERY, "")),
            beginning=None if beginning is None else offsets_from_json(beginning),
            is_beginning=bool(told.get(_IS_BEGINNING, False)),
        )

    def beginning_of_query(self) -> Position:
        """Where the first batch began, of which this is the end: not where the query would begin now."""
        assert self.beginning is not None
        return Position(self.beginning, query=self.query, is_beginning=True)


# Where a query begins, before anybody has looked where that is.
BEGINNING: Final = Position({}, is_beginning=True)


def offsets_to_json(offsets: Offsets) -> Json:
    """`{"topic": {"0": 12}}`."""
    topics: dict[str, dict[str, int]] = {}
    for place, offset in sorted(offsets.items()):
        topics.setdefault(place.topic, {})[str(place.partition)] = offset
    return dict(topics)


def offsets_from_json(told: Mapping[str, object]) -> dict[TopicPartition, int]:
    """The same back; BadOffsets if it is something else."""
    offsets: dict[TopicPartition, int] = {}
    for topic, partitions in told.items():
        if not isinstance(partitions, dict):
            raise BadOffsets(f"{topic!r} has {partitions!r} in place of offsets by partition")
        for index, offset in partitions.items():
            if not _is_partition(index):
                raise BadOffsets(f"{index!r} of topic {topic!r} is no partition number")
            if isinstance(offset, bool) or not isinstance(offset, int):
                raise BadOffsets(f"{offset!r} at {topic}-{index} is no whole number")
            if not -INT64_MAX <= offset <= INT64_MAX:
                raise BadOffsets(f"{offset} at {topic}-{index} is too large: {INT64_MAX} is the most")
            offsets[_place(topic, int(index))] = offset
    return offsets


def parse_offsets(text: str) -> dict[TopicPartition, int]:
    """`{"topicA": {"0": 23, "1": -1}, "topicB": {"0": -2}}`, as options give offsets."""
    offsets = offsets_from_json(_object(text))
    for place, offset in offsets.items():
        if offset < EARLIEST:
            raise BadOffsets(f"{offset} at {place} is no offset: -1 is latest, -2 earliest")
    return offsets


def parse_timestamps(text: str) -> dict[TopicPartition, int]:
    """The same with milliseconds since 1970 in place of offsets."""
    timestamps = offsets_from_json(_object(text))
    for place, timestamp in timestamps.items():
        if timestamp < 0:
            raise BadOffsets(f"{timestamp} at {place} is before 1970")
    return timestamps


def parse_partitions(text: str) -> tuple[TopicPartition, ...]:
    """`{"topicA": [0, 1], "topicB": [2]}`, as the option `assign` gives partitions."""
    places: list[TopicPartition] = []
    for topic, indexes in _object(text).items():
        if not isinstance(indexes, list) or not indexes:
            raise BadOffsets(f"{topic!r} has {indexes!r} in place of a list of partitions")
        for index in indexes:
            if not isinstance(index, int) or not _is_partition(index):
                raise BadOffsets(f"{index!r} of topic {topic!r} is no partition number")
            places.append(_place(topic, index))
    if not places:
        raise BadOffsets("it names no partition")
    return tuple(dict.fromkeys(places))


def _object(text: str) -> dict[str, object]:
    try:
        told = msgspec.json.decode(text)
    except msgspec.DecodeError as why:
        raise BadOffsets(f"it is no JSON ({why})") from None
    if not isinstance(told, dict):
        raise BadOffsets("it is no JSON object")
    return told


def _is_partition(index: object) -> bool:
    if isinstance(index, str):
        # By its length first: Python refuses to convert thousands of digits.
        index = int(index) if index.isascii() and index.isdigit() and len(index) <= _DIGITS_MAX else -1
    return isinstance(index, int) and not isinstance(index, bool) and 0 <= index <= INT32_MAX


def _place(topic: str, partition: int) -> TopicPartition:
    return TopicPartition(TopicName(topic), PartitionIndex(partition))
