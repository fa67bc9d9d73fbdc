"""What clients were told about partitions, kept outside of their world; raises at the first contradiction.

A value names the topic and partition that it was meant for, who wrote it, and its number among that writer's
values there. A log is known by its topic's id, so that a topic that was created anew is another one. What was
refused for certain must never be seen; what nobody knows may be seen or not.

Records may go, but only those of which somebody has said so: up to an offset (`on_deletion`), after a time
(`retention_ms`), once a newer one has their key (`compacted`), or by rot, which `on_rot` tells about.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple

from moldau.model.ids import Uuid
from moldau.sim.run import Violation

# So many keys each writer uses in a log.
KEYS: Final = 5


class LogId(NamedTuple):
    """One partition of one topic, however often the name was used."""

    topic_id: Uuid
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} ({self.topic_id.hex()[:8]})"


class Value(NamedTuple):
    """What a record says of itself."""

    topic: str
    partition: int
    writer: str
    number: int

    @property
    def key(self) -> bytes:
        """The key of its record, by which a newer value supersedes it in a compacted topic."""
        return f"{self.writer} {self.number % KEYS}".encode()

    def encode(self) -> bytes:
        """As it stands in a record."""
        return f"{self.topic} {self.partition} {self.writer} {self.number}".encode()

    @classmethod
    def decode(cls, data: bytes | None) -> Value:
        """The value of a record; what stands behind it only makes it longer."""
        topic, partition, writer, number = (data or b"").decode().split()[:4]
        return cls(topic, int(partition), writer, int(number))


class Mark(Enum):
    """What brokers say of a log that must never go back."""

    HIGH_WATERMARK = "high watermark"
    LAST_STABLE_OFFSET = "last stable offset"
    LOG_START = "start"
    LEADER_EPOCH = "leader epoch"


Marks = Mapping[Mark, int]
_IN_THEIR_ORDER: Final = (Mark.LOG_START, Mark.LAST_STABLE_OFFSET, Mark.HIGH_WATERMARK)


@dataclass(slots=True)
class _Log:
    values: dict[int, Value] = field(default_factory=dict)
    offsets: dict[Value, int] = field(default_factory=dict)
    epochs: dict[int, int] = field(default_factory=dict)
    acknowledged: dict[Value, int] = field(default_factory=dict)
    rotten: dict[int, None] = field(default_factory=dict)
    marks: dict[Mark, int] = field(default_factory=lambda: dict.fromkeys(Mark, 0))


class History:
    """All that clients have sent, were told and have read."""

    def __init__(self) -> None:
        self.logs: dict[LogId, _Log] = {}
        self.refused: dict[Value, str] = {}
        self.deleted_to: dict[str, int] = {}
        """By topic, the first offset that nobody has asked to delete."""
        self.retention_ms: dict[str, int] = {}
        """By topic, how old a record must be before it may go."""
        self.compacted: dict[str, None] = {}
        """Topics of which only the newest value of each key must stay."""
        self.unordered_writers: dict[str, None] = {}
        """Those who send without sequence numbers, so that what was held up may be overtaken."""
        self.when_committed: Callable[[], None] | None = None
        self._sent_ms: dict[Value, int] = {}

    def _log(self, log_id: LogId) -> _Log:
        return self.logs.setdefault(log_id, _Log())

    # ------------------------------------------------------------ writing

    def on_sent(self, value: Value, now_ms: int) -> None:
        """A writer is about to send a value; its timestamp is not older than that."""
        self._sent_ms[value] = now_ms

    def on_acknowledged(self, value: Value, log_id: LogId | None, offset: int, *, is_committed: bool) -> None:
        """A writer was told that its value is written, and where; in which log, if that is known."""
        if value in self.refused:
            raise Violation(f"{value} was refused ({self.refused[value]}), and acknowledged later")
        if log_id is None or not is_committed:
            return
        log = self._log(log_id)
        log.acknowledged[value] = offset
        self._place(log_id, offset, value, "its writer")
        _raise_to(log.marks, Mark.HIGH_WATERMARK, offset + 1)
        if self.when_committed is not None:
            self.when_committed()

    def on_refused(self, value: Value, why: str) -> None:
        """A writer was told that its value was not written, and never will be."""
        for log_id, log in self.logs.items():
            if value in log.offsets:
                raise Violation(f"{value} was refused ({why}), and is at {log.offsets[value]} of {log_id}")
        self.refused[value] = why

    # ------------------------------------------------------------ deleting, and rot

    def on_deletion(self, topic: str, offset: int) -> None:
        """Somebody is about to have records deleted."""
        self.deleted_to[topic] = max(offset, self.deleted_to.get(topic, 0))

    def on_rot(self, log_id: LogId, *, first: int, last: int) -> None:
        """A batch was damaged on its disk, which nobody can be blamed for; all others must stay readable."""
        for offset in range(first, last + 1):
            self._log(log_id).rotten[offset] = None

    def on_unreadable(self, reader: str, log_id: LogId, offset: int) -> int:
        """A reader was told that what it asked for is damaged; gives where it may go on.

        What is near to damage must be readable, too, if not at once: the reader tries again.
        """
        rotten = self._log(log_id).rotten
        if not rotten:
            raise Violation(f"{reader} cannot read {offset} of {log_id}, which nothing has damaged")
        while offset in rotten:
            offset += 1
        return offset

    # ------------------------------------------------------------ reading

    def marks(self, log_id: LogId) -> Marks:
        """What whoever asks from now on must be told at least."""
        return dict(self._log(log_id).marks)

    def on_marks(self, log_id: LogId, seen: Marks, *, asked_at: Marks, now_ms: int) -> None:
        """A broker has said some marks of a log, to somebody who asked when `asked_at` was known."""
        for mark, value in seen.items():
            if value < asked_at[mark]:
                raise Violation(f"the {mark.value} of {log_id} went back from {asked_at[mark]} to {value}")
        row = [seen[mark] for mark in _IN_THEIR_ORDER if mark in seen]
        if row != sorted(row):
            raise Violation(f"{log_id} starts, is stable and is committed at {row}")
        if Mark.LOG_START in seen:
            self._check_start(log_id, seen[Mark.LOG_START], now_ms)
        for mark, value in seen.items():
            _raise_to(self._log(log_id).marks, mark, value)

    def on_read(
        self, reader: str, log_id: LogId, offset: int, data: bytes | None, *, epoch: int = -1
    ) -> None:
        """Somebody has read a record."""
        value = Value.decode(data)
        if (value.topic, value.partition) != (log_id.topic, log_id.partition):
            raise Violation(f"{reader} has read {value} from {log_id}")
        if value in self.refused:
            raise Violation(
                f"{reader} has read {value} at {offset}, which was refused: {self.refused[value]}"
            )
        self._place(log_id, offset, value, reader)
        if epoch >= 0:
            log = self._log(log_id)
            if log.epochs.setdefault(offset, epoch) != epoch:
                raise Violation(f"{offset} of {log_id} was of epoch {log.epochs[offset]}, and is of {epoch}")

    def on_skipped(self, reader: str, log_id: LogId, *, expected: int, got: int, now_ms: int) -> None:
        """A reader that stood at one offset was given another one."""
        if got < expected:
            raise Violation(f"{reader} was at {expected} of {log_id}, and goes on at {got}")
        if log_id.topic not in self.compacted:
            self._check_start(log_id, got, now_ms)

    def _check_start(self, log_id: LogId, start: int, now_ms: int) -> None:
        """Nothing before `start` has gone but what was to go."""
        log = self._log(log_id)
        kept_from = max(self.deleted_to.get(log_id.topic, 0), log.marks[Mark.LOG_START])
        retention_ms = self.retention_ms.get(log_id.topic)
        if retention_ms is None and start > kept_from:
            raise Violation(f"{log_id} starts at {start}, and nothing from {kept_from} on was to be deleted")
        for offset in range(kept_from, start):
            value = log.values.get(offset)
            age_ms = now_ms - self._sent_ms[value] if value is not None else None
            if age_ms is not None and retention_ms is not None and age_ms <= retention_ms:
                raise Violation(f"{value} was at {offset} of {log_id}, and is gone after {age_ms} ms")

    def _place(self, log_id: LogId, offset: int, value: Value, told: str) -> None:
        log = self._log(log_id)
        other = log.values.setdefault(offset, value)
        if other != value:
            raise Violation(f"{told}: {value} is at {offset} of {log_id}, where {other} was")
        place = log.offsets.setdefault(value, offset)
        # Of a producer whose last batch has rotted a broker may remember too little to know it again.
        if place != offset and place not in log.rotten:
            raise Violation(f"{told}: {value} is at {offset} of {log_id}, and at {place} too")

    # ------------------------------------------------------------ in the end

    def check_log(self, log_id: LogId, found: Mapping[int, bytes | None], *, start: int, end: int) -> None:
        """A log was read from its start to its end: nothing committed is missing, and all is in order."""
        log = self._log(log_id)
        present = {offset: Value.decode(data) for offset, data in found.items()}
        newest = {value.key: offset for offset, value in sorted(present.items())}
        for value, offset in log.acknowledged.items():
            is_superseded = log_id.topic in self.compacted and newest.get(value.key, -1) > offset
            is_there = present.get(offset) == value
            if start <= offset < end and not is_there and not is_superseded and offset not in log.rotten:
                raise Violation(f"{value} is lost: it was acknowledged at {offset} of {log_id}")
            if offset >= end:
                raise Violation(f"{value} was acknowledged at {offset} of {log_id}, which ends at {end}")
        if log_id.topic not in self.compacted:
            holes = [at for at in range(start, end) if at not in found and at not in log.rotten]
            if holes:
                raise Violation(f"{log_id} goes from {start} to {end}, without {holes}")
        self._check_order(log_id, log)

    def _check_order(self, log_id: LogId, log: _Log) -> None:
        """All that was ever seen of a log: writers' values in their order, epochs that rise."""
        last_numbers: dict[str, Value] = {}
        last_epoch = -1
        for offset in sorted(log.values):
            value = log.values[offset]
            before = last_numbers.get(value.writer)
            is_ordered = value.writer not in self.unordered_writers
            if is_ordered and before is not None and before.number > value.number:
                raise Violation(f"{value} is at {offset} of {log_id}, behind {before}")
            last_numbers[value.writer] = value
            epoch = log.epochs.get(offset, last_epoch)
            if epoch < last_epoch:
                raise Violation(f"{offset} of {log_id} is of epoch {epoch}, behind {last_epoch}")
            last_epoch = epoch


def _raise_to(marks: dict[Mark, int], mark: Mark, value: int) -> None:
    marks[mark] = max(marks[mark], value)
