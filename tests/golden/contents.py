"""What to put into a message: JSON for Kafka's converters, made from the message's schema and a version."""

import base64
import itertools
from collections.abc import Callable, Iterator
from typing import Any

Schema = dict[str, Any]
Field = dict[str, Any]
Content = dict[str, Any]
FieldValue = Callable[[Field], Any]

# One record batch with one record, which stands for any records inside a message.
RECORD_BATCH = bytes.fromhex(
    "000000000000000000000044ffffffff02262b7afb0000000000000000018bcfe568000000018bcfe56800ff"
    "ffffffffffffffffffffffffff0000000124000000066b65790a76616c75650202680201"
)


def versions(schema: Schema) -> range:
    """Every version that a schema has, the unstable ones too."""
    return _range(schema["validVersions"])


def filled(schema: Schema, version: int) -> Content:
    """Content that differs from every default and from field to field, with two elements in every list."""
    return _Filler(schema, version, nulls=False).struct(schema["fields"])


def with_nulls(schema: Schema, version: int) -> Content:
    """Content where everything is null that may be."""
    return _Filler(schema, version, nulls=True).struct(schema["fields"])


def chosen(schema: Schema, version: int, choose: FieldValue) -> Content:
    """Content where `choose(field)` decides, with Kafka's default where it answers None."""
    return _Chooser(schema, version, choose).struct(schema["fields"])


def is_flexible(schema: Schema, version: int) -> bool:
    """Whether a version writes compact lengths and tagged fields."""
    return version in _range(schema["flexibleVersions"])


class _Walk:
    def __init__(self, schema: Schema, version: int) -> None:
        self._version = version
        self._common = {struct["name"]: struct["fields"] for struct in schema.get("commonStructs", ())}

    def _present(self, fields: list[Field]) -> Iterator[tuple[str, Field]]:
        for field in fields:
            # A field that was born tagged may leave out its versions.
            if self._version in _range(field.get("versions") or field["taggedVersions"]):
                name = field["name"]
                yield name[0].lower() + name[1:], field

    def _is_nullable(self, field: Field) -> bool:
        return self._version in _range(field.get("nullableVersions", "none"))

    def _fields_of(self, field: Field, type_name: str) -> list[Field] | None:
        return field.get("fields") or self._common.get(type_name)


class _Filler(_Walk):
    def __init__(self, schema: Schema, version: int, *, nulls: bool) -> None:
        super().__init__(schema, version)
        self._nulls = nulls
        self._numbers = itertools.count(1)

    def struct(self, fields: list[Field], *, nulls: bool = False) -> Content:
        return {name: self._value(field, nulls=nulls) for name, field in self._present(fields)}

    def _value(self, field: Field, *, nulls: bool) -> Any:
        if (self._nulls or nulls) and self._is_nullable(field):
            return None
        type_name = field["type"]
        if not type_name.startswith("[]"):
            return self._one(field, type_name, nulls=nulls)
        # The second element takes the other branch of each nullable field.
        return [self._one(field, type_name[2:], nulls=second) for second in (False, True)]

    def _one(self, field: Field, type_name: str, *, nulls: bool) -> Any:
        fields = self._fields_of(field, type_name)
        if fields is not None:
            return self.struct(fields, nulls=nulls)
        number = next(self._numbers)
        if type_name == "bool":
            return field.get("default") not in ("true", True)
        return _SCALARS[type_name](number, field["name"])


_SCALARS: dict[str, Callable[[int, str], Any]] = {
    "int8": lambda number, _: number % 100 + 2,
    "int16": lambda number, _: 0x1122 + number,
    "uint16": lambda number, _: 0xFF00 - number,
    "int32": lambda number, _: 0x11223344 + number if number % 2 else -0x11223344 - number,
    "uint32": lambda number, _: 0xFFEEDDCC - number,
    "int64": lambda number, _: 0x1122334455667788 + number if number % 2 else -0x1122334455667788 - number,
    "float64": lambda number, _: number + 0.25,
    "string": lambda number, name: f"{name}-{number}-é",
    "bytes": lambda number, name: base64.b64encode(f"{name}-{number}".encode() + b"\x00\xff").decode(),
    "uuid": lambda number, _: uuid_text(number.to_bytes(8, "big") * 2),
    "records": lambda *_: base64.b64encode(RECORD_BATCH).decode(),
}


class _Chooser(_Walk):
    def __init__(self, schema: Schema, version: int, choose: FieldValue) -> None:
        super().__init__(schema, version)
        self._choose = choose

    def struct(self, fields: list[Field]) -> Content:
        return {name: self._value(field) for name, field in self._present(fields)}

    def _value(self, field: Field) -> Any:
        value = self._choose(field)
        if value is not None:
            return value
        type_name = field["type"]
        if type_name.startswith("[]"):
            element = self._fields_of(field, type_name[2:])
            return [] if element is None else [self.struct(element)]
        if field.get("default") == "null" or (self._is_nullable(field) and type_name in ("bytes", "records")):
            return None if self._is_nullable(field) else _ZEROS[type_name]
        fields = self._fields_of(field, type_name)
        if fields is not None:
            return self.struct(fields)
        default = field.get("default", "")
        if default == "":
            return _ZEROS[type_name]
        return default if type_name in ("string", "uuid") else _number(default)


_ZEROS: dict[str, Any] = {
    "bool": False, "int8": 0, "int16": 0, "uint16": 0, "int32": 0, "uint32": 0, "int64": 0, "float64": 0.0,
    "string": "", "bytes": "", "records": "", "uuid": "AAAAAAAAAAAAAAAAAAAAAA",
}  # fmt: skip


def uuid_text(raw: bytes) -> str:
    """A UUID as Kafka prints it."""
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def _number(text: Any) -> Any:
    if not isinstance(text, str):
        return text
    return text == "true" if text in ("true", "false") else int(text, 0)


def _range(text: str) -> range:
    if text == "none":
        return range(0)
    first, dash, last = text.rstrip("+").partition("-")
    if text.endswith("+"):
        # No Kafka message is anywhere near a thousand versions old.
        return range(int(first), 1000)
    return range(int(first), int(last if dash else first) + 1)
