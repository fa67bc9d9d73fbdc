"""Contents for messages, derived from declarations: arbitrary ones, and ones that are always the same."""

from collections.abc import Iterator
from itertools import count
from typing import Any

from hypothesis import strategies as st

from moldau.wire import messages
from moldau.wire.compiler import ArrayOf, default_of, types_of
from moldau.wire.message import Message
from moldau.wire.types import RECORDS, STRING, Fixed, Sized, Struct

EVERY_VERSION = [
    (name, version)
    for name, kind in messages.BY_NAME.items()
    for version in range(kind.declaration.versions.lowest, kind.declaration.versions.highest + 1)
]
EVERY_MESSAGE = list(messages.BY_NAME)

# Tags that no version of any message has.
UNKNOWN_TAGS = st.dictionaries(st.integers(1000, 300_000), st.binary(max_size=5), min_size=1, max_size=2)

_FIXED = {
    "?": st.booleans(),
    "b": st.integers(-(2**7), 2**7 - 1),
    "h": st.integers(-(2**15), 2**15 - 1),
    "i": st.integers(-(2**31), 2**31 - 1),
    "q": st.integers(-(2**63), 2**63 - 1),
    "H": st.integers(0, 2**16 - 1),
    "I": st.integers(0, 2**32 - 1),
    "d": st.floats(allow_nan=False),
    "16s": st.binary(min_size=16, max_size=16),
}
_TEXT = st.text(st.characters(codec="utf-8"), max_size=3) | st.just("long" * 40)
_BYTES = st.binary(max_size=4) | st.just(b"long" * 40)


def fields_of(kind: type[Struct], version: int) -> Iterator[tuple[str, Any, bool]]:
    """The fields that a version has, in order: name, type, and whether it may be null."""
    types = types_of(kind)
    for name, spec in kind.declaration.fields.items():
        if spec.versions.includes(version):
            yield name, types[name], spec.nullable.includes(version)


def arbitrary(kind: type[Struct], version: int, *, is_flexible: bool) -> st.SearchStrategy[Any]:
    """Any content that a message can have in a version."""
    fields = {}
    for name, wire_type, is_nullable in fields_of(kind, version):
        strategy = _arbitrary_value(wire_type, version, is_flexible=is_flexible)
        fields[name] = st.none() | strategy if is_nullable else strategy
    if is_flexible:
        fields["unknown_tags"] = st.none() | UNKNOWN_TAGS
    return st.builds(kind, **fields)


def _arbitrary_value(wire_type: Any, version: int, *, is_flexible: bool) -> st.SearchStrategy[Any]:
    match wire_type:
        case Fixed(letter=letter):
            return _FIXED[letter]
        case Sized():
            return _TEXT if wire_type is STRING else _BYTES
        case ArrayOf(element=element):
            return st.lists(_arbitrary_value(element, version, is_flexible=is_flexible), max_size=2)
    return arbitrary(wire_type, version, is_flexible=is_flexible)


def filled(kind: type[Message], version: int, *, with_nulls: bool = False) -> Message:
    """A message in which every field has a value of its own; the same one every time."""
    made: Message = _filled_struct(kind, version, with_nulls, count(1))
    return made


def _filled_struct(kind: type[Any], version: int, with_nulls: bool, numbers: Iterator[int]) -> Any:
    contents = {}
    for name, wire_type, is_nullable in fields_of(kind, version):
        is_null = with_nulls and is_nullable
        contents[name] = None if is_null else _filled_value(name, wire_type, version, with_nulls, numbers)
    return kind(**contents)


def _filled_value(name: str, wire_type: Any, version: int, with_nulls: bool, numbers: Iterator[int]) -> Any:
    number = next(numbers) % 100
    match wire_type:
        case Fixed(letter="?"):
            return True
        case Fixed(letter="d"):
            return number + 0.5
        case Fixed(letter="16s"):
            return bytes(range(number, number + 16))
        case Fixed():
            # Other libraries refuse errors that do not exist, and times that are negative.
            return number
        case Sized():
            text = f"{name} {number} é"
            return text if wire_type is STRING else text.encode() * (20 if wire_type is RECORDS else 1)
        case ArrayOf(element=element):
            return [_filled_value(name, element, version, with_nulls, numbers) for _ in range(2)]
    return _filled_struct(wire_type, version, with_nulls, numbers)


def has_only_defaults_elsewhere(message: Struct, version: int) -> bool:
    """Whether the fields that a version lacks hold their defaults."""
    kind = type(message)
    return all(
        getattr(message, name) == default_of(spec, types_of(kind)[name])
        for name, spec in kind.declaration.fields.items()
        if not spec.versions.includes(version)
    )
