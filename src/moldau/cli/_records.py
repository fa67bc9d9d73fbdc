"""Records as text: a line of JSON that says all, a format like kcat's, and lines with separators."""

from __future__ import annotations

import binascii
import difflib
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from moldau.model.ids import TopicPartition
    from moldau.wire.records.record import Record

Headers = tuple[tuple[str, bytes | None], ...]
JsonBytes = str | dict[str, str] | None
Formatter = Callable[["TopicPartition", "Record"], bytes]

# What partitions are counted with, and what offsets and times are.
INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1

_BASE64: Final = "base64"
_WRITTEN: Final = ("key", "value", "headers", "partition", "timestamp")
# What `consume -o json` says besides; where a record was is not where it goes.
_IGNORED: Final = ("topic", "offset")


class BadRecord(ValueError):
    """Text that is no record; says what is wrong with it."""


@dataclass(frozen=True, slots=True)
class NewRecord:
    """A record to write; None leaves partition and timestamp to the producer."""

    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    partition: int | None = None
    timestamp: int | None = None


# ---------------------------------------------------------------- JSON


def record_to_json(place: TopicPartition, record: Record) -> bytes:
    """One line; bytes that are not UTF-8 are `{"base64": ...}`."""
    fields = {
        "topic": place.topic,
        "partition": place.partition,
        "offset": record.offset,
        "timestamp": None if record.timestamp < 0 else record.timestamp,
        "key": bytes_to_json(record.key),
        "value": bytes_to_json(record.value),
        "headers": [[name, bytes_to_json(value)] for name, value in record.headers],
    }
    return msgspec.json.encode(fields) + b"\n"


def record_from_json(line: bytes) -> NewRecord:
    """The record that a line describes; only `value` must be there."""
    try:
        fields = json.loads(line)
    except ValueError as error:
        raise BadRecord(f"it is not JSON: {error}") from error
    if not isinstance(fields, dict):
        raise BadRecord("it must be a JSON object with key, value, headers, partition, timestamp")
    for name in fields:
        if name not in _WRITTEN and name not in _IGNORED:
            near = difflib.get_close_matches(name, _WRITTEN, n=1)
            hint = f", perhaps for '{near[0]}'" if near else f"; there are {', '.join(_WRITTEN)}"
            raise BadRecord(f"it has '{name}'{hint}")
    if "value" not in fields:
        raise BadRecord('it has no "value"; null is one')
    return NewRecord(
        value=_bytes_from_json("value", fields["value"]),
        key=_bytes_from_json("key", fields.get("key")),
        headers=_headers_from_json(fields.get("headers")),
        partition=_number_from_json("partition", fields.get("partition"), most=INT32_MAX),
        timestamp=_number_from_json("timestamp", fields.get("timestamp"), most=INT64_MAX),
    )


def bytes_to_json(data: bytes | None) -> JsonBytes:
    """Text if it is UTF-8, marked as base64 if not."""
    if data is None:
        return None
    try:
        return bytes(data).decode()
    except UnicodeDecodeError:
        return {_BASE64: binascii.b2a_base64(data, newline=False).decode()}


def _bytes_from_json(name: str, value: object) -> bytes | None:
    match value:
        case None:
            return None
        case str(text):
            try:
                return text.encode()
            except UnicodeEncodeError as error:
                raise BadRecord(f"its {name} has half of a surrogate pair, which is no character") from error
        case dict() if list(value) == [_BASE64] and isinstance(value[_BASE64], str):
            try:
                return binascii.a2b_base64(value[_BASE64], strict_mode=True)
            except ValueError as error:
                raise BadRecord(f"its {name} is not in base64: {error}") from error
    raise BadRecord(f'its {name} must be a text, null or {{"base64": "..."}}')


def _headers_from_json(value: object) -> Headers:
    pairs: list[tuple[object, object]]
    match value:
        case None:
            return ()
        case dict():
            pairs = list(value.items())
        case list() if all(isinstance(pair, list) and len(pair) == 2 for pair in value):
            pairs = [(name, data) for name, data in value]
        case _:
            raise BadRecord("its headers must be an object, or a list of [name, value]")
    headers: list[tuple[str, bytes | None]] = []
    for name, data in pairs:
        if not isinstance(name, str):
            raise BadRecord("the name of a header must be a text")
        headers.append((name, _bytes_from_json(f"header '{name}'", data)))
    return tuple(headers)


def _number_from_json(name: str, value: object, *, most: int) -> int | None:
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
        raise BadRecord(f"its {name} must be a whole number of at most {most.bit_length() + 1} bits, or null")
    return value


# ---------------------------------------------------------------- formats


_ESCAPES: Final = {"n": b"\n", "r": b"\r", "t": b"\t", "0": b"\0", "\\": b"\\"}
_FORMAT: Final = re.compile(r"%(.)|\\(x[0-9a-fA-F]{2}|.)|([^%\\]+|[%\\])", re.DOTALL)


def parse_format(text: str, *, null: bytes) -> Formatter:
    """A function that prints records as a format such as `%p:%o %k=%s\\n` says; ValueError if it is none."""
    parts = [_part(match, null) for match in _FORMAT.finditer(text)]
    return lambda place, record: b"".join(part(place, record) for part in parts)


def _part(match: re.Match[str], null: bytes) -> Formatter:
    letter, escape, plain = match.groups()
    if escape is not None:
        if escape[0] == "x" and len(escape) > 1:
            return _constant(bytes([int(escape[1:], 16)]))
        if escape not in _ESCAPES:
            raise ValueError(f"'\\{escape}' is none of \\n \\r \\t \\0 \\\\ \\xHH")
        return _constant(_ESCAPES[escape])
    if plain is not None:
        if plain in ("%", "\\"):
            raise ValueError(f"it ends with a lone '{plain}'")
        return _constant(plain.encode())
    match letter:
        case "%":
            return _constant(b"%")
        case "t":
            return lambda place, record: place.topic.encode()
        case "p":
            return lambda place, record: b"%d" % place.partition
        case "o":
            return lambda place, record: b"%d" % record.offset
        case "T":
            return lambda place, record: b"%d" % record.timestamp
        case "k":
            return lambda place, record: null if record.key is None else record.key
        case "s":
            return lambda place, record: null if record.value is None else record.value
        case "K":
            return lambda place, record: b"%d" % (-1 if record.key is None else len(record.key))
        case "S":
            return lambda place, record: b"%d" % (-1 if record.value is None else len(record.value))
        case "h":
            return lambda place, record: b",".join(
                name.encode() + b"=" + (null if value is None else value) for name, value in record.headers
            )
    raise ValueError(f"'%{letter}' is none of %t %p %o %T %k %s %K %S %h %%")


def _constant(data: bytes) -> Formatter:
    return lambda place, record: data


# ---------------------------------------------------------------- lines


@dataclass(frozen=True, slots=True)
class LineFormat:
    """How a line is a record: perhaps with a key before a separator; `null` stands for no key or no value."""

    key_separator: bytes | None = None
    null: bytes | None = None

    def record(self, line: bytes) -> NewRecord:
        """The record of a line."""
        if self.key_separator is None:
            return NewRecord(self._data(line))
        key, separator, value = line.partition(self.key_separator)
        if not separator:
            raise BadRecord(f"it has no key separator {self.key_separator.decode(errors='replace')!r}")
        return NewRecord(self._data(value), self._data(key))

    def _data(self, text: bytes) -> bytes | None:
        return None if text == self.null else text
