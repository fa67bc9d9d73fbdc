"""How a message is declared: the types of its fields, the versions each field lives in, and its default.

A message is a class; a field is an annotation, and `field(...)` says what the annotation cannot:

    class HeartbeatRequest(Request, key=12, versions="0-4", flexible="4+"):
        group_id: String
        generation_id: Int32
        member_id: String
        group_instance_id: String | None = field("3+", nullable="3+", default=None)

A bare annotation is a required field of every version. `moldau.wire.compiler` turns a declaration into one
encoder and one decoder per version.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple, Protocol, TypeVar, dataclass_transform, overload

import msgspec

from moldau.model.ids import Uuid as _Uuid

VERSION_MAX = 32767


class Versions(NamedTuple):
    """A closed range of versions; empty when `lowest` is above `highest`."""

    lowest: int
    highest: int

    @classmethod
    def parse(cls, text: str) -> Versions:
        """Kafka's notation: "3", "3+", "3-7" or "none"."""
        if text == "none":
            return NO_VERSIONS
        if text.endswith("+"):
            return cls(int(text[:-1]), VERSION_MAX)
        lowest, _, highest = text.partition("-")
        return cls(int(lowest), int(highest or lowest))

    def includes(self, version: int) -> bool:
        """Whether `version` is one of these."""
        return self.lowest <= version <= self.highest

    def __str__(self) -> str:
        if self.lowest > self.highest:
            return "none"
        if self.highest == VERSION_MAX:
            return f"{self.lowest}+"
        return str(self.lowest) if self.lowest == self.highest else f"{self.lowest}-{self.highest}"


NO_VERSIONS = Versions(0, -1)
ALL_VERSIONS = Versions(0, VERSION_MAX)


@dataclass(frozen=True, slots=True)
class Fixed:
    """A type of constant size, named by its letter in `struct`'s notation."""

    name: str
    letter: str
    zero: int | float | bool | bytes


@dataclass(frozen=True, slots=True)
class Sized:
    """A run of bytes behind a length: text, bytes, or a stretch of record batches."""

    name: str


STRING = Sized("string")
BYTES = Sized("bytes")
RECORDS = Sized("records")


class FileSlice(Protocol):
    """Bytes that are still in a file: an encoder asks only for their length and passes the slice on."""

    def __len__(self) -> int: ...


# What a field's annotation says to mypy (the first part) and to the compiler (the second).
Bool = Annotated[bool, Fixed("bool", "?", False)]
Int8 = Annotated[int, Fixed("int8", "b", 0)]
Int16 = Annotated[int, Fixed("int16", "h", 0)]
Int32 = Annotated[int, Fixed("int32", "i", 0)]
Int64 = Annotated[int, Fixed("int64", "q", 0)]
UInt16 = Annotated[int, Fixed("uint16", "H", 0)]
UInt32 = Annotated[int, Fixed("uint32", "I", 0)]
Float64 = Annotated[float, Fixed("float64", "d", 0.0)]
Uuid = Annotated[_Uuid, Fixed("uuid", "16s", bytes(16))]
String = Annotated[str, STRING]
Bytes = Annotated[bytes, BYTES]
Records = Annotated[bytes | bytearray | memoryview, RECORDS]
FetchedRecords = Annotated[bytes | bytearray | memoryview | FileSlice, RECORDS]


@dataclass(frozen=True, slots=True)
class FieldSpec:
    """What `field(...)` said about a field."""

    versions: Versions
    nullable: Versions
    tag: int | None
    ignorable: bool
    flexible: Versions | None
    default: object
    default_factory: Callable[[], object] | None


T = TypeVar("T")


@overload
def field(
    versions: str = ...,
    *,
    nullable: str = ...,
    tag: int | None = ...,
    ignorable: bool = ...,
    flexible: str = ...,
) -> Any: ...
@overload
def field(
    versions: str = ...,
    *,
    default: T,
    nullable: str = ...,
    tag: int | None = ...,
    ignorable: bool = ...,
    flexible: str = ...,
) -> T: ...
@overload
def field(
    versions: str = ...,
    *,
    default_factory: Callable[[], T],
    nullable: str = ...,
    tag: int | None = ...,
    ignorable: bool = ...,
    flexible: str = ...,
) -> T: ...
def field(
    versions: str = "0+",
    *,
    default: object = msgspec.NODEFAULT,
    default_factory: Callable[[], object] | None = None,
    nullable: str = "none",
    tag: int | None = None,
    ignorable: bool = False,
    flexible: str = "",
) -> Any:
    """Declare a field that not every version has, that may be null, is tagged, or has a default.

    An `ignorable` field is left out silently when a message is written in a version without it; any other one
    must then hold its default. `flexible` overrides the message's flexible versions for this one field.
    """
    return FieldSpec(
        versions=Versions.parse(versions),
        nullable=Versions.parse(nullable),
        tag=tag,
        ignorable=ignorable,
        flexible=Versions.parse(flexible) if flexible else None,
        default=default,
        default_factory=default_factory,
    )


_PLAIN = FieldSpec(ALL_VERSIONS, NO_VERSIONS, None, False, None, msgspec.NODEFAULT, None)


@dataclass(frozen=True, slots=True)
class Declaration:
    """What a class statement said: the versions of a message and its fields in wire order.

    `key` is the API key of a request or response, or the type of a record in one of the internal logs.
    """

    key: int | None
    versions: Versions
    flexible: Versions
    latest_unstable: bool
    fields: dict[str, FieldSpec]


class StructMeta(msgspec.StructMeta):
    """Takes the `field(...)` declarations out of a class body and leaves plain defaults to msgspec.

    A struct that `is_value` cannot be changed, so that one object can be the default of all messages.
    """

    declaration: Declaration

    def __new__(
        mcls,
        name: str,
        bases: tuple[type, ...],
        namespace: dict[str, Any],
        *,
        key: int | None = None,
        versions: str = "none",
        flexible: str = "none",
        latest_unstable: bool = False,
        is_value: bool = False,
    ) -> StructMeta:
        annotations: dict[str, object] = namespace.get("__annotations__", {})
        specs = {name: value for name, value in namespace.items() if isinstance(value, FieldSpec)}
        for field_name, spec in specs.items():
            if spec.default_factory is not None:
                namespace[field_name] = msgspec.field(default_factory=spec.default_factory)
            elif spec.default is msgspec.NODEFAULT:
                del namespace[field_name]
            else:
                namespace[field_name] = spec.default
        # Required fields go first, or msgspec would take no positional arguments, of which it makes an object
        # four times as fast as of named ones. Only decoders use them: mypy lets people use names alone.
        namespace["__annotations__"] = dict(
            sorted(annotations.items(), key=lambda item: item[0] in namespace)
        )
        # Messages are trees of plain values, so the cycle collector never needs to look at them.
        cls = super().__new__(
            mcls, name, bases, namespace, kw_only=name == "Struct", gc=False, frozen=is_value
        )
        cls.declaration = Declaration(
            key=key,
            versions=Versions.parse(versions),
            flexible=Versions.parse(flexible),
            latest_unstable=latest_unstable,
            fields={name: specs.get(name, _PLAIN) for name in annotations if name != "unknown_tags"},
        )
        return cls


@dataclass_transform(kw_only_default=True, field_specifiers=(field,))
class Struct(msgspec.Struct, metaclass=StructMeta):
    """A group of fields inside a message; tags that we do not know are kept and written back."""

    # So many elements, in all its lists and of tags, may a message of this kind be read with.
    elements_max = 2**62

    unknown_tags: dict[int, bytes] | None = None
