"""Messages as Kafka's own tools show them: JSON with the names of Kafka's schemas."""

from __future__ import annotations

import base64
from functools import cache
from typing import Final

from moldau.model.ids import Uuid, uuid_to_text
from moldau.wire.compiler import ArrayOf, default_of, types_of
from moldau.wire.types import BYTES, RECORDS, Fixed, Struct

Json = dict[str, "Json"] | list["Json"] | str | int | float | bool | None

_UUID: Final = "uuid"


def message_to_json(message: Struct, version: int) -> dict[str, Json]:
    """The fields that `version` has; a tagged one only where it says something, records by their size."""
    cls = type(message)
    types = types_of(cls)
    shown: dict[str, Json] = {}
    for name, spec in cls.declaration.fields.items():
        if not spec.versions.includes(version):
            continue
        value = getattr(message, name)
        wire_type = types[name]
        if spec.tag is not None and value == default_of(spec, wire_type):
            continue
        if wire_type is RECORDS and value is not None:
            shown[f"{_camel_case(name)}SizeInBytes"] = len(value)
        else:
            shown[_camel_case(name)] = _value_to_json(value, wire_type, version)
    return shown


def _value_to_json(value: object, wire_type: object, version: int) -> Json:
    if value is None:
        return None
    if isinstance(wire_type, ArrayOf):
        assert isinstance(value, list | tuple)
        return [_value_to_json(element, wire_type.element, version) for element in value]
    if isinstance(value, Struct):
        return message_to_json(value, version)
    if isinstance(value, bytes | bytearray | memoryview):
        if wire_type is BYTES:
            return base64.b64encode(value).decode()
        assert isinstance(wire_type, Fixed) and wire_type.name == _UUID
        return uuid_to_text(Uuid(bytes(value)))
    assert isinstance(value, str | int | float)
    return value


@cache
def _camel_case(name: str) -> str:
    first, *rest = name.split("_")
    # The one word with a capital inside.
    first = first.replace("kraft", "kRaft")
    return first + "".join(word[:1].upper() + word[1:] for word in rest)
