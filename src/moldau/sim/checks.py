"""What clients were told about partitions, kept outside of their world; raises at the first contradiction.

A value names the topic and partition that it was meant for, who wrote it, and its number among that writer's
values there. A log is known by its topic's id, so that a topic that was created anew is another one. What was
refused for certain must never be seen; what nobody knows may be seen or not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from moldau.model.ids import Uuid
from moldau.sim.run import Violation


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

    def encode(self) -> bytes:
        """As it stands in a record."""
        return f"{self.topic} {self.partition} {self.writer} {self.number}".encode()

    @classmethod
    def decode(cls, data: bytes | None) -> Value:
        """The value of a record; what stands behind it only makes it longer."""
        topic, partition, writer, number = (data or b"").decode().split()[:4]
        return cls(topic, int(partition), writer, int(number))


@dataclass(frozen=True, slots=True)
class Marks:
    """What must never go back: the end of what is committed, and where the log starts."""

    high_watermark: int = 0
    log_start: int = 0


@dataclass(slots=True)
class _Log:
    values: dict[int, Value] = field(default_factory=dict)
    offsets: dict[Value, int] = field(default_factory=dict)
    epochs: dict[int, int] = field(default_factory=dict)
    acknowledged: dict[Value, int | None] = field(default_factory=dict)
    marks: Marks = Marks()


class History:
    """All that clients have sent, were told and have read."""

    def __init__(self) -> None:
        self.logs: dict[LogId, _Log] = {}
        self.refused: dict[Value, str] = {}
        self.deleted_to: dict[str, int] = {}
        """By topic, the first offset that nobody has asked, or let retention, to delete."""
        self.unordered_writers: dict[str, None] = {}
        """Those who send without sequence numbers, so that what was held up may be overtaken."""
        self.when_committed: Callable[[], None] | None = None

    def _log(self, log_id: LogId) -> _Log:
        return self.logs.setdefault(log_id, _Log())

    # ------------------------------------------------------------ writing

    def on_acknowledged(
        self, value: Value, log_id: LogId | None, offset: int | None, *, is_committed: bool
    ) -> None:
        """A writer was told that its value is written; where, if that is known."""
        if value in self.refused:
            raise Violation(f"{value} was refused ({self.refused[value]}), and acknowledged later")
        if log_id is None or not is_committed:
            return
        log = self._log(log_id)
        log.acknowledged[value] = offset
        if offset is not None:
            self._place(log_id, offset, value, "its writer")
            log.marks = Marks(max(log.marks.high_watermark, offset + 1), log.marks.log_start)
        if self.when_committed is not None:
            self.when_committed()

    def on_refused(self, value: Value, why: str) -> None:
        """A writer was told that its value was not written, and never will be."""
        for log_id, log in self.logs.items():
            if value in log.offsets:
                raise Violation(f"{value} was refused ({why}), and is at {log.offsets[value]} of {log_id}")
        self.refused[value] = why

    # ------------------------------------------------------------ deleting

    def on_deletion(self, topic: str, offset: int) -> None:
        """Somebody is about to have records deleted."""
        self.deleted_to[topic] = max(offset, self.deleted_to.get(topic, 0))

    # ------------------------------------------------------------ reading

    def marks(self, log_id: LogId) -> Marks:
        """What whoever asks from now on must be told at least."""
        return self._log(log_id).marks

    def on_marks(self, log_id: LogId, seen: Marks, *, asked_at: Marks) -> None:
        """A broker has said where a log starts and ends, to somebody who asked when `asked_at` was known."""
        if seen.high_watermark < asked_at.high_watermark:
            raise Violation(
                f"the high watermark of {log_id} went back"
                f" from {asked_at.high_watermark} to {seen.high_watermark}"
            )
        if seen.log_start < asked_at.log_start:
            raise Violation(f"the start of {log_id} went back from {asked_at.log_start} to {seen.log_start}")
        self._check_start(log_id, seen.log_start)
        log = self._log(log_id)
        log.marks = Marks(
            max(seen.high_watermark, log.marks.high_watermark), max(seen.log_start, log.marks.log_start)
        )

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

    def on_skipped(self, reader: str, log_id: LogId, *, expected: int, got: int) -> None:
        """A reader that stood at one offset was given another one."""
        if got < expected:
            raise Violation(f"{reader} was at {expected} of {log_id}, and goes on at {got}")
        self._check_start(log_id, got)

    def _check_start(self, log_id: LogId, start: int) -> None:
        limit = self.deleted_to.get(log_id.topic, 0)
        if start > limit:
            raise Violation(f"{log_id} starts at {start}, and nothing from {limit} on was to be deleted")

    def _place(self, log_id: LogId, offset: int, value: Value, told: str) -> None:
        log = self._log(log_id)
        other = log.values.setdefault(offset, value)
        if other != value:
            raise Violation(f"{told}: {value} is at {offset} of {log_id}, where {other} was")
        place = log.offsets.setdefault(value, offset)
        if place != offset:
            raise Violation(f"{told}: {value} is at {offset} of {log_id}, and at {place} too")

    # ------------------------------------------------------------ in the end

    def check_log(self, log_id: LogId, found: Mapping[int, bytes | None], *, start: int, end: int) -> None:
        """A log was read from its start to its end: nothing committed is missing, and all is in order."""
        if sorted(found) != list(range(start, end)):
            raise Violation(f"{log_id} goes from {start} to {end}, and has only {sorted(found)}")
        present = {Value.decode(data) for data in found.values()}
        log = self._log(log_id)
        for value, offset in log.acknowledged.items():
            is_deleted = start > 0 if offset is None else offset < start
            if value not in present and not is_deleted:
                raise Violation(f"{value} is lost: it was acknowledged at {offset} of {log_id}")
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
