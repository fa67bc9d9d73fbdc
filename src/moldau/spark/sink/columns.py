"""Which columns of a query become which part of a record, checked before anything runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from moldau.spark.sink.errors import BadColumns

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

KEY: Final = "key"
VALUE: Final = "value"
HEADERS: Final = "headers"
TOPIC: Final = "topic"
PARTITION: Final = "partition"
TIMESTAMP: Final = "timestamp"

# What each column may be, as Spark writes types in SQL; the rest of a query's columns is left alone.
_TYPES: Final = {
    TOPIC: ("string",),
    KEY: ("string", "binary"),
    VALUE: ("string", "binary"),
    HEADERS: ("array<struct<key:string,value:binary>>",),
    PARTITION: ("int",),
    TIMESTAMP: ("timestamp", "timestamp_ntz"),
}
# A column that is void is null in every row; only these may be.
_MAY_BE_VOID: Final = (KEY, VALUE, HEADERS, PARTITION, TIMESTAMP)


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns that matter; `topic` is a name for all rows, or None where a column names it."""

    topic: str | None
    has_key: bool
    has_headers: bool
    has_partition: bool
    has_timestamp: bool


def columns_of(schema: StructType, *, topic: str | None, with_timestamp: bool) -> Columns:
    """What to write of rows with this schema; BadColumns says what is missing or has the wrong type."""
    types = {field.name: field.dataType for field in schema.fields}
    for name, allowed in _TYPES.items():
        # The option makes a column of that name a column like any other.
        is_used = not (name == TOPIC and topic is not None) and not (name == TIMESTAMP and not with_timestamp)
        if name in types and is_used:
            _check_type(name, types[name], allowed)
    if VALUE not in types:
        raise BadColumns(f"There is no column {VALUE!r}, which every record needs.{_meant(VALUE, types)}")
    if topic is None and TOPIC not in types:
        raise BadColumns(
            f"There is neither an option {TOPIC!r} nor a column {TOPIC!r} to say where rows go."
            f"{_meant(TOPIC, types)}"
        )
    if with_timestamp and TIMESTAMP not in types:
        raise BadColumns(f"Option includeTimestamp asks for a column {TIMESTAMP!r}, and there is none.")
    return Columns(
        topic=topic,
        has_key=KEY in types,
        has_headers=HEADERS in types,
        has_partition=PARTITION in types,
        has_timestamp=with_timestamp,
    )


def _check_type(name: str, kind: DataType, allowed: tuple[str, ...]) -> None:
    given = _plain(kind)
    if given in allowed or (given == "void" and name in _MAY_BE_VOID):
        return
    raise BadColumns(
        f"Column {name!r} is {kind.simpleString()}, and must be {' or '.join(allowed)}: cast it before"
        " writing."
    )


def _plain(kind: DataType) -> str:
    """The type in SQL, with every kind of string as a string."""
    from pyspark.sql.types import ArrayType, CharType, StringType, StructType, VarcharType

    match kind:
        case StringType() | CharType() | VarcharType():
            return "string"
        case ArrayType():
            return f"array<{_plain(kind.elementType)}>"
        case StructType():
            return f"struct<{','.join(f'{field.name}:{_plain(field.dataType)}' for field in kind.fields)}>"
    return kind.simpleString()


def _meant(name: str, types: dict[str, DataType]) -> str:
    """A hint at a column whose name differs in case only; Spark's own connector does not take it either."""
    close = next((each for each in types if each.lower() == name), None)
    return f" Rename {close!r} to {name!r}." if close else f" The columns are {', '.join(types) or 'none'}."
