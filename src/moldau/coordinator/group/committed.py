"""Committed offsets as the log tells them: by group, topic and partition, and those of open transactions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from moldau.model.ids import ProducerId
from moldau.wire.messages.group_records import OffsetCommitKey, OffsetCommitValue

_NOTHING: Final[Mapping[str, Mapping[int, OffsetCommitValue]]] = {}


class Place(NamedTuple):
    """Where an offset is committed."""

    group_id: str
    topic: str
    partition: int


class CommittedOffsets:
    """The newest offset of every place, and what open transactions will make of it.

    An offset in a transaction waits for its marker. A plain commit after it takes its place at once: it is
    the later record of the two, and compaction would keep it alone.
    """

    __slots__ = ("_groups", "_pending", "_producers_of")

    def __init__(self) -> None:
        self._groups: dict[str, dict[str, dict[int, OffsetCommitValue]]] = {}
        self._pending: dict[ProducerId, dict[Place, OffsetCommitValue]] = {}
        # By group, so that one without transactions costs one look.
        self._producers_of: dict[str, dict[Place, dict[ProducerId, None]]] = {}

    # ------------------------------------------------------------ looking

    def of_group(self, group_id: str) -> Mapping[str, Mapping[int, OffsetCommitValue]]:
        """All offsets of a group, by topic and partition."""
        return self._groups.get(group_id, _NOTHING)

    def groups_of_topics(self, topics: Mapping[str, object]) -> Iterator[tuple[str, str]]:
        """The groups with offsets in any of these topics, each with the topic."""
        for group_id, of_group in self._groups.items():
            for topic in topics if len(topics) < len(of_group) else of_group:
                if topic in of_group and topic in topics:
                    yield group_id, topic

    def is_pending(self, group_id: str, topic: str, partition: int) -> bool:
        """Whether an open transaction may change the offset."""
        of_group = self._producers_of.get(group_id)
        return of_group is not None and Place(group_id, topic, partition) in of_group

    def pending(self, group_id: str) -> list[Place]:
        """Where open transactions have committed offsets of a group."""
        return list(self._producers_of.get(group_id, ()))

    def pending_in(self, topics: Mapping[str, object]) -> Iterator[tuple[Place, OffsetCommitValue]]:
        """What open transactions have committed in any of these topics."""
        for staged in self._pending.values():
            yield from ((place, value) for place, value in staged.items() if place.topic in topics)

    # ------------------------------------------------------------ what the log says

    def apply(self, key: OffsetCommitKey, value: OffsetCommitValue | None) -> None:
        """Take in a commit, or forget the place, whatever open transactions say of it."""
        group_id, topic, partition = key.group, key.topic, key.partition
        if group_id in self._producers_of:
            self._supersede(Place(group_id, topic, partition))
        if value is None:
            self._remove(group_id, topic, partition)
            return
        of_group = self._groups.get(group_id)
        if of_group is None:
            of_group = self._groups[group_id] = {}
        of_topic = of_group.get(topic)
        if of_topic is None:
            of_topic = of_group[topic] = {}
        of_topic[partition] = value

    def stage(self, key: OffsetCommitKey, value: OffsetCommitValue, producer_id: ProducerId) -> None:
        """Take in a commit that counts once its transaction does."""
        place = Place(key.group, key.topic, key.partition)
        self._pending.setdefault(producer_id, {})[place] = value
        self._producers_of.setdefault(place.group_id, {}).setdefault(place, {})[producer_id] = None

    def end_transaction(self, producer_id: ProducerId, *, is_commit: bool) -> list[str]:
        """Commit or drop what a producer's transaction has staged; the groups that this concerns."""
        staged = self._pending.pop(producer_id, {})
        for place, value in staged.items():
            self._no_longer_pending(place, producer_id)
            if is_commit:
                self._groups.setdefault(place.group_id, {}).setdefault(place.topic, {})[place.partition] = (
                    value
                )
        return list(dict.fromkeys(place.group_id for place in staged))

    # ------------------------------------------------------------ within

    def _remove(self, group_id: str, topic: str, partition: int) -> None:
        of_group = self._groups.get(group_id)
        of_topic = None if of_group is None else of_group.get(topic)
        if of_group is None or of_topic is None or of_topic.pop(partition, None) is None:
            return
        if not of_topic:
            del of_group[topic]
        if not of_group:
            del self._groups[group_id]

    def _supersede(self, place: Place) -> None:
        for producer_id in list(self._producers_of[place.group_id].get(place, ())):
            del self._pending[producer_id][place]
            self._no_longer_pending(place, producer_id)

    def _no_longer_pending(self, place: Place, producer_id: ProducerId) -> None:
        of_group = self._producers_of[place.group_id]
        producers = of_group[place]
        del producers[producer_id]
        if not producers:
            del of_group[place]
        if not of_group:
            del self._producers_of[place.group_id]
