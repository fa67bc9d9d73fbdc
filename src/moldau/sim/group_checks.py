"""What the members of a group were told, kept outside of their world; raises at the first contradiction.

A partition belongs to a reader from the moment in which it is granted until the reader has given it up, or is
gone; if the group gives a reader up that does not know yet, what that one reads does not count any more.
A committed offset is a register: whoever asks for it is told what was written last, or something that was
being written meanwhile. A reader hears of its commits late or never, so that only what is certain counts.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Final

from moldau.model.ids import TopicPartition
from moldau.sim.run import Violation

Offsets = Mapping[TopicPartition, int]

# Before anybody has committed anything a group begins where each log begins.
_BEGIN: Final = 0


@dataclass(slots=True)
class Write:
    """A commit of one partition: it may happen from when it was sent until it is over, once or never."""

    reader: str
    offset: int
    sent_us: float
    over_us: float = inf
    is_acknowledged: bool = False


@dataclass(slots=True)
class _Partition:
    writes: list[Write] = field(default_factory=list)
    holders: dict[str, float] = field(default_factory=dict)
    """Who reads it, and since when."""
    processed: set[int] = field(default_factory=set)
    grant_count: int = 0


class GroupHistory:
    """All that the readers of a group were given, have read and have committed."""

    def __init__(self, is_member: Callable[[str], bool | None]) -> None:
        self._is_member = is_member
        """Whether the group knows a reader; None while nobody can say."""
        self._partitions: dict[TopicPartition, _Partition] = {}
        self._positions: dict[tuple[str, TopicPartition], int] = {}
        self.when_committed: Callable[[], None] | None = None

    def _of(self, place: TopicPartition) -> _Partition:
        found = self._partitions.get(place)
        if found is None:
            begin = Write("nobody", _BEGIN, -inf, -inf, is_acknowledged=True)
            found = self._partitions[place] = _Partition([begin])
        return found

    # ------------------------------------------------------------ owning

    def on_granted(self, reader: str, places: Iterable[TopicPartition], now_us: int) -> None:
        """A reader was told that it may read these from now on."""
        for place in places:
            partition = self._of(place)
            if reader in partition.holders:
                raise Violation(f"{reader} was given {place}, which it has")
            partition.holders[reader] = now_us
            partition.grant_count += 1
            self._positions.pop((reader, place), None)
            # Who had it before is a member no more, or not with the epoch in which it had it.
            for write in partition.writes:
                if write.reader != reader:
                    write.over_us = min(write.over_us, now_us)
        self.check_owners(places)

    def on_given_up(self, reader: str, places: Iterable[TopicPartition]) -> None:
        """A reader reads these no more, and is about to say so; or has heard that it lost them."""
        for place in places:
            self._of(place).holders.pop(reader, None)

    def on_gone(self, reader: str) -> None:
        """The process of a reader is gone."""
        for partition in self._partitions.values():
            partition.holders.pop(reader, None)

    def check_owners(self, places: Iterable[TopicPartition] | None = None) -> None:
        """No partition is read by two of whom the group says that they are its members."""
        for place in list(self._partitions) if places is None else places:
            holders = self._of(place).holders
            if len(holders) > 1:
                members = [reader for reader in holders if self._is_member(reader)]
                if len(members) > 1:
                    raise Violation(f"{place} is read by {' and by '.join(members)}")

    def owned(self) -> dict[str, list[TopicPartition]]:
        """What everybody reads who reads anything."""
        found: dict[str, list[TopicPartition]] = {}
        for place, partition in self._partitions.items():
            for reader in partition.holders:
                found.setdefault(reader, []).append(place)
        return found

    # ------------------------------------------------------------ reading

    def on_read(self, reader: str, place: TopicPartition, offset: int, now_us: int) -> None:
        """A reader was given a record: the one after the last, or one at a committed offset."""
        partition = self._of(place)
        granted_us = partition.holders.get(reader)
        if granted_us is None:
            raise Violation(f"{reader} has read {offset} of {place}, which it does not have")
        position = self._positions.get((reader, place))
        if position is None:
            self._check_committed(reader, place, offset, asked_us=granted_us, now_us=now_us)
        elif offset != position:
            raise Violation(f"{reader} was at {position} of {place}, and goes on at {offset}")
        self._positions[reader, place] = offset + 1
        partition.processed.add(offset)

    def positions(self, reader: str, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Where a reader is in these partitions, as far as it has read any of them."""
        return {
            place: self._positions[reader, place] for place in places if (reader, place) in self._positions
        }

    def on_told(
        self, reader: str, offsets: Offsets, places: Iterable[TopicPartition], *, asked_us: int, now_us: int
    ) -> None:
        """Somebody asked what is committed; a partition that is not in the answer has no offset."""
        for place in places:
            offset = offsets.get(place, _BEGIN)
            self._check_committed(reader, place, offset, asked_us=asked_us, now_us=now_us)

    def _check_committed(
        self, reader: str, place: TopicPartition, offset: int, *, asked_us: float, now_us: float
    ) -> None:
        writes = self._of(place).writes
        # Overwritten is what was over before another one began that was acknowledged before the question.
        latest_us = max(
            write.sent_us for write in writes if write.is_acknowledged and write.over_us < asked_us
        )
        possible = {
            write.offset for write in writes if write.sent_us <= now_us and write.over_us >= latest_us
        }
        if offset not in possible:
            raise Violation(
                f"{reader} was told that {offset} of {place} is committed, and it can only be one of "
                f"{sorted(possible)}"
            )

    # ------------------------------------------------------------ committing

    def on_commit(self, reader: str, offsets: Offsets, now_us: int) -> list[Write]:
        """A reader is about to commit; gives what to tell `on_committed` of.

        One that commits what it does not have any more must be refused, or is none of the group's readers.
        """
        written = []
        for place, offset in offsets.items():
            partition = self._of(place)
            unread = [each for each in range(offset) if each not in partition.processed]
            if unread:
                raise Violation(f"{reader} commits {offset} of {place}, and nobody has read {unread[:5]}")
            write = Write(reader, offset, now_us)
            if reader in partition.holders:
                partition.writes.append(write)
            written.append(write)
        return written

    def on_committed(self, written: Iterable[Write], now_us: int) -> None:
        """A reader was told that its commit is done."""
        for write in written:
            write.over_us = min(write.over_us, now_us)
            write.is_acknowledged = True
        if self.when_committed is not None:
            self.when_committed()

    # ------------------------------------------------------------ in the end

    def unread(self, place: TopicPartition, offsets: Collection[int]) -> list[int]:
        """Those of the offsets that no reader was given."""
        processed = self._of(place).processed
        return [offset for offset in sorted(offsets) if offset not in processed]

    @property
    def grant_count(self) -> int:
        """How often a partition was given to somebody."""
        return sum(partition.grant_count for partition in self._partitions.values())
