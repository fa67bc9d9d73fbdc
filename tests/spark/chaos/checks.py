"""What must hold of what the pipelines have written, however often something was killed meanwhile.

The input topic is judged by what its producer knows, and then everything else by the input topic: a table has
each input exactly once, a topic at least once, and the last value of each key is the right one. The functions
are pure; `tests/spark/chaos/test_checks.py` shows that each of them can fail.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from spark.chaos.inputs import key_of, number_of, text_of

_EXAMPLES_MAX = 5


@dataclass(frozen=True, slots=True)
class Record:
    """A record of a topic, as text; None where there is nothing, or no text."""

    key: str | None
    value: str | None


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the table."""

    key: str | None
    number: int | None
    text: str | None


@dataclass(frozen=True, slots=True)
class Sent:
    """What a producer knows: the numbers below `count` were sent, and these were acknowledged."""

    count: int
    acknowledged: frozenset[int]


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that must not be."""

    where: str
    what: str
    count: int
    examples: tuple[str, ...]

    def __str__(self) -> str:
        more = ", ..." if self.count > len(self.examples) else ""
        return f"{self.where}: {self.count} {self.what} ({', '.join(self.examples)}{more})"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is wrong, and how many records are there once more than needed."""

    findings: tuple[Finding, ...]
    duplicates: int = 0


@dataclass(slots=True)
class _Findings:
    where: str
    found: dict[str, list[str]] = field(default_factory=dict)

    def add(self, what: str, example: object) -> None:
        self.found.setdefault(what, []).append(str(example))

    def all(self) -> tuple[Finding, ...]:
        return tuple(
            Finding(self.where, what, len(cases), tuple(cases[:_EXAMPLES_MAX]))
            for what, cases in self.found.items()
        )


# ------------------------------------------------------------------------------------------ the input topic


def numbers_of(records: Iterable[Record]) -> list[int]:
    """The inputs among the records, in their order."""
    numbers = (number_of(each.key, each.value) for each in records)
    return [number for number in numbers if number is not None]


def check_input(records: Sequence[Record], sent: Sent) -> Verdict:
    """The input topic has what was acknowledged, once, in order by key, and nothing that was not sent."""
    findings = _Findings("input")
    seen: Counter[int] = Counter()
    last: dict[str, int] = {}
    for record in records:
        number = number_of(record.key, record.value)
        if number is None or number >= sent.count:
            findings.add("records that nobody sent", record)
            continue
        if number < last.get(key_of(number), -1):
            findings.add("inputs behind a later one of their key", number)
        last[key_of(number)] = number
        seen[number] += 1
    _note_lost_and_doubled(findings, sorted(sent.acknowledged), seen)
    return Verdict(findings.all(), _extra(seen))


# ------------------------------------------------------------------------------------------ what is written


def check_table(rows: Iterable[Row], inputs: Sequence[int]) -> Verdict:
    """A table has each input exactly once."""
    findings = _Findings("table")
    known = frozenset(inputs)
    seen: Counter[int] = Counter()
    for row in rows:
        number = row.number
        if number is None or number not in known or (row.key, row.text) != (key_of(number), text_of(number)):
            findings.add("rows that are no input", row)
        else:
            seen[number] += 1
    _note_lost_and_doubled(findings, inputs, seen)
    return Verdict(findings.all(), _extra(seen))


def check_copy(records: Iterable[Record], inputs: Sequence[int]) -> Verdict:
    """A copy of the input topic has each input at least once, and last of each key what was sent last.

    A repeated micro-batch goes over old inputs again, in order; it never leaves one out on the way.
    """
    findings = _Findings("copy")
    places = {number: place for of_key in _by_key(inputs).values() for place, number in enumerate(of_key)}
    seen: Counter[int] = Counter()
    furthest: dict[str, int] = {}
    last: dict[str, int] = {}
    for record in records:
        number = number_of(record.key, record.value)
        if number is None or number not in places:
            findings.add("records that are no input", record)
            continue
        key = key_of(number)
        if places[number] > furthest.get(key, -1) + 1:
            findings.add("inputs before an earlier one of their key", number)
        furthest[key] = max(furthest.get(key, -1), places[number])
        last[key] = number
        seen[number] += 1
    _note_lost(findings, inputs, seen)
    for key, of_key in _by_key(inputs).items():
        if key in last and last[key] != of_key[-1]:
            findings.add("keys whose last value is wrong", f"{key}: {last[key]}, not {of_key[-1]}")
    return Verdict(findings.all(), _extra(seen))


def check_counts(records: Iterable[Record], inputs: Sequence[int]) -> Verdict:
    """Counts by key: each was right when it was written, none goes back, and the last counts everything."""
    findings = _Findings("counts")
    by_key = _by_key(inputs)
    sums = {key: [*accumulate(of_key)] for key, of_key in by_key.items()}
    seen: Counter[Record] = Counter()
    last: dict[str, int] = {}
    for record in records:
        told = _counted(record)
        if told is None or record.key not in by_key:
            findings.add("records that are no counts", record)
            continue
        count, of_key = told["count"], by_key[record.key]
        right = (
            {"count": count, "last": of_key[count - 1], "sum": sums[record.key][count - 1]}
            if 0 < count <= len(of_key)
            else None
        )
        if told != right:
            findings.add("counts that never were right", record)
            continue
        if count < last.get(record.key, 0):
            findings.add("counts that go back", f"{record.key}: {count} after {last[record.key]}")
        last[record.key] = count
        seen[record] += 1
    for key, of_key in by_key.items():
        if last.get(key) != len(of_key):
            findings.add("keys whose last value is wrong", f"{key}: {last.get(key)}, not {len(of_key)}")
    return Verdict(findings.all(), _extra(seen))


def check_lag(group: str, committed: Mapping[int, int], ends: Mapping[int, int]) -> Verdict:
    """A group has committed exactly where the input topic ends, as offsets by partition."""
    findings = _Findings(f"group {group}")
    for partition, end in ends.items():
        offset = committed.get(partition)
        # Nothing needs be said of a partition that nothing was ever written to.
        if offset != end and (end or offset):
            findings.add("partitions at another offset", f"{partition}: {offset}, and it ends at {end}")
    return Verdict(findings.all())


# ------------------------------------------------------------------------------------------ within


def _by_key(inputs: Iterable[int]) -> dict[str, list[int]]:
    by_key: dict[str, list[int]] = {}
    for number in inputs:
        by_key.setdefault(key_of(number), []).append(number)
    return {key: sorted(numbers) for key, numbers in by_key.items()}


def _counted(record: Record) -> dict[str, int] | None:
    """What a record of counts says; None if it is none."""
    try:
        told = json.loads(record.value or "")
    except ValueError:
        return None
    is_right = isinstance(told, dict) and told.keys() == {"count", "last", "sum"}
    return told if is_right and all(type(each) is int for each in told.values()) else None


def _note_lost(findings: _Findings, expected: Iterable[int], seen: Counter[int]) -> None:
    for number in expected:
        if number not in seen:
            findings.add("lost", number)


def _note_lost_and_doubled(findings: _Findings, expected: Iterable[int], seen: Counter[int]) -> None:
    _note_lost(findings, expected, seen)
    for number, times in sorted(seen.items()):
        if times > 1:
            findings.add("doubled", f"{number} is there {times} times")


def _extra(seen: Counter[int] | Counter[Record]) -> int:
    """How many are there once more than needed."""
    return seen.total() - len(seen)
