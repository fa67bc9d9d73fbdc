"""What filters say about which offsets need be read at all, and which of them are then kept for good."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from moldau.model.ids import TopicPartition
from moldau.spark.plan.ranges import OffsetRange

Operator = Literal[
    "=", "<=>", ">", ">=", "<", "<=", "in", "is null", "is not null", "starts with", "ends with", "contains"
]

_NEGATED: dict[str, Operator] = {">": "<=", ">=": "<", "<": ">=", "<=": ">"}
_OFFSET_MAX = 2**63 - 1
# Columns that no row lacks.
_ALWAYS_THERE = ("topic", "partition", "offset", "timestamp", "timestampType")


class Condition(NamedTuple):
    """A filter on one column: `not` it if it is negated. A timestamp is in microseconds."""

    column: str
    operator: Operator
    value: object = None
    is_negated: bool = False


@dataclass(frozen=True, slots=True)
class Restriction:
    """What all conditions together leave to be read."""

    on_topic: tuple[Condition, ...] = ()
    on_partition: tuple[Condition, ...] = ()
    offset_min: int = 0
    offset_end: int = _OFFSET_MAX
    # The first record at or after this time, and all behind it. There is no bound at the other side, because
    # times need not be in order: a record of long ago may come last.
    time_min_ms: int | None = None

    def has(self, place: TopicPartition) -> bool:
        """Whether anything of a partition is wanted."""
        return all(_holds(each, place.topic) for each in self.on_topic) and all(
            _holds(each, place.partition) for each in self.on_partition
        )

    def cut(self, whole: OffsetRange, *, first_in_time: int | None = None) -> OffsetRange:
        """What of a range is wanted; `first_in_time` is where `time_min_ms` falls in its log."""
        start = max(whole.start, self.offset_min, first_in_time or 0)
        return replace(whole, start=start, end=max(min(whole.end, self.offset_end), start))


EVERYTHING = Restriction()


def restrict(conditions: Iterable[Condition]) -> tuple[Restriction, list[bool]]:
    """The restriction that conditions make, and which of them it keeps exactly: nobody need look again."""
    made = Restriction()
    kept: list[bool] = []
    for condition in conditions:
        made, is_kept = _add(made, condition)
        kept.append(is_kept)
    return made, kept


def _add(made: Restriction, given: Condition) -> tuple[Restriction, bool]:
    if given.operator == "is not null" and not given.is_negated and given.column in _ALWAYS_THERE:
        return made, True
    match given.column:
        case "topic" if _is_sound(given, str):
            return replace(made, on_topic=(*made.on_topic, given)), True
        case "partition" if _is_sound(given, int):
            return replace(made, on_partition=(*made.on_partition, given)), True
        case "offset" if _is_sound(given, int):
            low, end, is_exact = _bounds(given)
            return replace(
                made, offset_min=max(made.offset_min, low), offset_end=min(made.offset_end, end)
            ), is_exact
        case "timestamp" if _is_sound(given, int):
            low_us, _, _ = _bounds(given)
            low_ms = -(-low_us // 1_000)
            # Lookups give negative times other meanings.
            if low_ms > 0:
                made = replace(made, time_min_ms=max(made.time_min_ms or 0, low_ms))
    return made, False


def _is_sound(given: Condition, kind: type) -> bool:
    """Whether the operator and the type of the value make sense for the column."""
    values = given.value if given.operator == "in" else (given.value,)
    if given.operator in ("is null", "is not null") or not isinstance(values, tuple):
        return False
    if given.operator in ("starts with", "ends with", "contains") and kind is not str:
        return False
    return all(isinstance(value, kind) and not isinstance(value, bool) for value in values)


def _bounds(given: Condition) -> tuple[int, int, bool]:
    """The least number, the one behind the greatest, and whether all between them are meant."""
    value, operator = given.value, given.operator
    if given.is_negated:
        if operator not in _NEGATED:
            return -_OFFSET_MAX, _OFFSET_MAX, False
        operator = _NEGATED[operator]
    if operator == "in":
        assert isinstance(value, tuple)
        numbers = sorted(set(value))
        if not numbers:
            return 0, 0, True
        return numbers[0], numbers[-1] + 1, numbers[-1] - numbers[0] + 1 == len(numbers)
    assert isinstance(value, int)
    match operator:
        case "=" | "<=>":
            return value, value + 1, True
        case ">":
            return value + 1, _OFFSET_MAX, True
        case ">=":
            return value, _OFFSET_MAX, True
        case "<":
            return -_OFFSET_MAX, value, True
        case "<=":
            return -_OFFSET_MAX, value + 1, True
    raise AssertionError(operator)


def _holds(given: Condition, actual: str | int) -> bool:
    """Whether a condition holds for a value that is the same throughout a partition."""
    return _is_true(given, actual) != given.is_negated


def _is_true(given: Condition, actual: str | int) -> bool:
    value: object = given.value
    if given.operator == "in":
        assert isinstance(value, tuple)
        return actual in value
    if isinstance(actual, str) and isinstance(value, str):
        match given.operator:
            case "starts with":
                return actual.startswith(value)
            case "ends with":
                return actual.endswith(value)
            case "contains":
                return value in actual
        # Spark compares strings by their bytes; for ASCII, as names of topics are, Python does the same.
        order = (actual > value) - (actual < value)
    else:
        assert isinstance(actual, int) and isinstance(value, int)
        order = (actual > value) - (actual < value)
    match given.operator:
        case "=" | "<=>":
            return order == 0
        case ">":
            return order > 0
        case ">=":
            return order >= 0
        case "<":
            return order < 0
        case "<=":
            return order <= 0
    raise AssertionError(given)
