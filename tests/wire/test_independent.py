"""Three libraries that others wrote read our bytes, see in them what we wrote, and write the same bytes."""

import dataclasses
import importlib
import io
import pkgutil
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import aiokafka.protocol
import kafka.protocol
import pytest
from aiokafka.protocol.struct import Struct as AiokafkaStruct
from kafka.protocol.api_message import ApiMessage
from kafka.protocol.data_container import DataContainer
from kio.serial import entity_reader, entity_writer
from wire.contents import EVERY_VERSION, fields_of, filled

from moldau.wire import messages
from moldau.wire.message import Message
from moldau.wire.messages.api_versions import ApiVersionsResponse
from moldau.wire.types import Struct


def subclasses(of: Any) -> Iterator[Any]:
    for cls in of.__subclasses__():
        yield cls
        yield from subclasses(cls)


def import_all(package: Any) -> None:
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        if ".old" not in module.name and "generate" not in module.name:
            importlib.import_module(module.name)


import_all(kafka.protocol)
import_all(aiokafka.protocol)

# Version 2 is flexible, and aiokafka writes it as if it were not.
AIOKAFKA_IS_WRONG = (("DescribeAclsRequest", 2), ("DescribeAclsResponse", 2))

KAFKA_PYTHON = {
    (cls.__name__, version): cls
    for cls in subclasses(ApiMessage)
    if cls.__name__ in messages.BY_NAME and cls.__module__.startswith("kafka.protocol.")
    for version in range(cls.valid_versions[0], cls.valid_versions[1] + 1)
    if (cls.__name__, version) in EVERY_VERSION
}
AIOKAFKA = {
    (name, int(version)): cls
    for cls in subclasses(AiokafkaStruct)
    for name, _, version in [cls.__name__.rpartition("_v")]
    if name.endswith(("Request", "Response")) and (name, int(version)) in EVERY_VERSION
    if (name, int(version)) not in AIOKAFKA_IS_WRONG
}


def kio_class(name: str, version: int) -> Any:
    kind = messages.BY_NAME[name]
    stem = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name).lstrip("_")
    for suffix in ("request", "response"):
        if stem.endswith(f"_{suffix}") and kind.declaration.key is not None:
            try:
                module = importlib.import_module(
                    f"kio.schema.{stem.removesuffix(f'_{suffix}')}.v{version}.{suffix}"
                )
            except ModuleNotFoundError:
                return None
            return getattr(module, name)
    return None


KIO = {pair: cls for pair in EVERY_VERSION if (cls := kio_class(*pair)) is not None}


def test_the_libraries_still_cover_what_they_covered() -> None:
    # Pairs of message and version; newer releases may bring more of them, and none may get lost unnoticed.
    assert len(KAFKA_PYTHON) >= 478
    assert len(AIOKAFKA) >= 148
    assert len(KIO) >= 604


@pytest.mark.parametrize("with_nulls", [False, True])
@pytest.mark.parametrize(("name", "version"), KAFKA_PYTHON)
def test_kafka_python_agrees(name: str, version: int, with_nulls: bool) -> None:
    cls = KAFKA_PYTHON[name, version]
    message = filled(messages.BY_NAME[name], version, with_nulls=with_nulls)
    if isinstance(message, ApiVersionsResponse):
        message.error_code = 0  # it reads any other as version 0
    data = message.encode(version)
    theirs = cls.decode(data, version=version)
    theirs._header = None  # its decoder leaves this unset, and its encoder asks for it
    assert list(unequal(message, theirs, version, name)) == []
    agree_on_bytes(message, version, data, bytes(theirs.encode(version=version)))


@pytest.mark.parametrize(("name", "version"), AIOKAFKA)
def test_aiokafka_agrees(name: str, version: int) -> None:
    cls = AIOKAFKA[name, version]
    message = filled(messages.BY_NAME[name], version)
    data = message.encode(version)
    theirs = cls.decode(io.BytesIO(data))
    assert list(unequal(message, theirs, version, name)) == []
    agree_on_bytes(message, version, data, theirs.encode())


@pytest.mark.parametrize("with_nulls", [False, True])
@pytest.mark.parametrize(("name", "version"), KIO)
def test_kio_agrees(name: str, version: int, with_nulls: bool) -> None:
    cls = KIO[name, version]
    message = filled(messages.BY_NAME[name], version, with_nulls=with_nulls)
    data = message.encode(version)
    theirs, _ = entity_reader(cls)(data, 0)
    assert list(unequal(message, theirs, version, name)) == []
    written = io.BytesIO()
    entity_writer(cls)(written, theirs)
    agree_on_bytes(message, version, data, written.getvalue())


def agree_on_bytes(message: Message, version: int, ours: bytes, theirs: bytes) -> None:
    assert theirs.hex() == ours.hex()
    assert type(message).decode(theirs, version) == message


def unequal(ours: Any, theirs: Any, version: int, path: str) -> Iterator[str]:
    """Where another library holds another value than we do."""
    match ours:
        case Struct():
            fields = [name for name, _, _ in fields_of(type(ours), version)]
            values = list(values_of(theirs, version))
            assert len(values) == len(fields), f"{path} has {len(fields)} fields, not {len(values)}"
            for name, value in zip(fields, values, strict=True):
                yield from unequal(getattr(ours, name), value, version, f"{path}.{name}")
        case list():
            assert len(ours) == len(theirs), path
            for index, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
                yield from unequal(mine, other, version, f"{path}[{index}]")
        case _ if as_we_hold_it(theirs) != ours:
            yield f"{path} is {ours!r}, and there {theirs!r}"


def values_of(theirs: Any, version: int) -> Iterator[Any]:
    """The values of another library's object, in the order of the wire."""
    match theirs:
        case DataContainer():
            for field in theirs._struct.fields.values():
                if field.for_version_q(version):
                    yield getattr(theirs, field.name)
        case AiokafkaStruct():
            yield from values_of(tuple(getattr(theirs, name) for name in theirs.SCHEMA.names), version)
        case tuple():
            for value in theirs:
                # A tuple that is not in a list groups fields that follow each other; a dict holds tags.
                if isinstance(value, tuple):
                    yield from values_of(value, version)
                elif not isinstance(value, dict):
                    yield value
        case _ if dataclasses.is_dataclass(theirs):
            for entry in dataclasses.fields(theirs):
                yield getattr(theirs, entry.name)
        case _:
            # A struct of one field, without the struct.
            yield theirs


def as_we_hold_it(value: Any) -> Any:
    """A value of another library's own type as the number or bytes on the wire."""
    match value:
        case UUID():
            return value.bytes
        case bytearray() | memoryview():
            return bytes(value)
        case timedelta():
            return round(value / timedelta(milliseconds=1))
        case datetime():
            return round(value.timestamp() * 1000)
        case set():
            return sum(1 << bit for bit in value)
    return value
