"""The compiled decoder and its twin in Python read the same messages, and refuse others in the same words.

Also worth a run with the decoder under AddressSanitizer:

    gcc -O1 -g -fsanitize=address,undefined -fno-sanitize-recover=all -fPIC -shared \
        $(python3-config --includes) src/moldau/wire/_decoder.c \
        -o src/moldau/wire/_decoder$(python3-config --extension-suffix)
    LD_PRELOAD="$(gcc -print-file-name=libasan.so) $(gcc -print-file-name=libubsan.so)" \
        ASAN_OPTIONS=detect_leaks=0 PYTHONMALLOC=malloc PYTHONPATH=src \
        python -m pytest tests/wire/test_decoder_twins.py
"""

import os
import random
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
from wire.contents import EVERY_MESSAGE, filled
from wire.test_golden import MESSAGES as GOLDEN
from wire.test_hostile_bytes import hostile

from moldau.model.errors import MalformedMessage
from moldau.wire import compiler, messages
from moldau.wire.message import Data, Message
from moldau.wire.messages.produce import ProduceRequest
from moldau.wire.types import Bytes, Float64, Int8, Int32, Records, String, Struct, UInt32, Uuid, field

if not compiler.HAS_INTERPRETER:
    pytest.skip("the compiled decoder is not there", allow_module_level=True)


class Inner(Struct):
    id: Uuid
    text: String | None = field(nullable="0+", default="not sent")
    numbers: list[UInt32] = field("1+", default=[])


class Outer(Data, versions="0-2", flexible="1+"):
    """Everything that Kafka's messages do not have, or only in one place."""

    ratio: Float64
    late: list[Int8] = field("2+", default=[])
    early: String = field("0-1", default="early")
    blob: Bytes | None = field(nullable="0+", default=None)
    inner: Inner | None = field(nullable="0+", default=None)
    inners: list[Inner] | None = field(nullable="0+", default=[])
    names: list[String]
    blobs: list[Bytes] = field("1+", default=[])
    records: Records = field("1+", default=b"")
    tagged_inner: Inner | None = field("1+", tag=0, nullable="1+", default=None)
    tagged_number: Int32 = field("1+", tag=300, default=5)
    tagged_names: list[String] = field("2+", tag=1, default=[])


KINDS: dict[str, type[Message]] = {**messages.BY_NAME, "Outer": Outer}
EVERY_KIND = [*EVERY_MESSAGE, "Outer"]


@cache
def twins(kind: type[Struct], version: int) -> tuple[Any, Any]:
    return compiler.compiled_decoder(kind, version), compiler.python_decoder(kind, version)


def versions_of(kind: type[Struct]) -> Iterator[int]:
    versions = kind.declaration.versions
    return iter(range(versions.lowest, versions.highest + 1))


def outcome(decode: Any, buffer: Any, position: int, end: int) -> object:
    try:
        message, stop = decode(buffer, position, end)
    except MalformedMessage as error:
        return str(error)
    return seen(message), stop


def seen(value: object) -> object:
    """A value with all its types, so that 1 is not True, and nan is nan."""
    match value:
        case Struct():
            return type(value), [seen(getattr(value, name)) for name in value.__struct_fields__]
        case list():
            return [seen(item) for item in value]
        case memoryview():
            return memoryview, bytes(value)
        case _:
            return type(value), repr(value)


def assert_same(kind: type[Struct], version: int, buffer: Any, position: int, end: int) -> object:
    in_c, in_python = (outcome(decode, buffer, position, end) for decode in twins(kind, version))
    assert in_c == in_python, (kind, version, bytes(buffer[position:end]).hex())
    return in_c


# ---------------------------------------------------------------- the same messages


@pytest.mark.parametrize("name", sorted({name for name, _ in GOLDEN}))
def test_the_bytes_that_kafka_wrote_are_read_alike(name: str) -> None:
    kind = KINDS[name]
    for version in versions_of(kind):
        for line in GOLDEN[name, version]:
            data = bytes.fromhex(line["hex"])
            assert isinstance(assert_same(kind, version, data, 0, len(data)), tuple)


@pytest.mark.parametrize("name", EVERY_KIND)
def test_messages_full_of_values_or_nulls_are_read_alike(name: str) -> None:
    kind = KINDS[name]
    for version in versions_of(kind):
        for with_nulls in (False, True):
            message = filled(kind, version, with_nulls=with_nulls)
            if kind.declaration.flexible.includes(version):
                message.unknown_tags = {1000: b"kept", 1001: b""}
            data = message.encode(version)
            for buffer in (data, bytearray(data), memoryview(data)):
                assert_same(kind, version, buffer, 0, len(data))
            assert twins(kind, version)[0](data, 0, len(data)) == (message, len(data))


@pytest.mark.parametrize("decode", twins(Outer, 0), ids=["C", "Python"])
def test_a_list_that_was_not_sent_belongs_to_one_message(decode: Any) -> None:
    data = filled(Outer, 0).encode(0)
    first, second = (decode(data, 0, len(data))[0] for _ in range(2))
    first.late.append(1)
    first.inners[0].numbers.append(1)
    assert second.late == second.inners[0].numbers == first.inners[1].numbers == []
    assert second.inners[0].text is not None


# ---------------------------------------------------------------- the same complaints


@pytest.mark.parametrize("name", EVERY_KIND)
def test_hostile_bytes_are_read_or_refused_alike(name: str) -> None:
    kind = KINDS[name]
    for version in versions_of(kind):
        rng = random.Random(f"{name} {version}")
        valid = filled(kind, version).encode(version)
        for data in hostile(valid, rng):
            # What lies around a message is as good as what is in it, and must not be touched.
            before, after = rng.choice([(b"", b""), (b"\1" * 5, valid)])
            found = assert_same(kind, version, before + data + after, len(before), len(before + data))
            assert isinstance(found, tuple) or found.startswith(f"{name} v{version}: ")  # type: ignore[attr-defined]


@pytest.mark.parametrize("kind", [Outer, ProduceRequest])
def test_a_message_cut_anywhere_is_refused_alike(kind: type[Message]) -> None:
    for version in versions_of(kind):
        data = filled(kind, version).encode(version)
        for end in range(len(data)):
            assert isinstance(assert_same(kind, version, data, 0, end), str)
            assert isinstance(assert_same(kind, version, data[:end], 0, end), str)


@pytest.mark.parametrize("kind", [Outer, ProduceRequest])
def test_a_message_changed_anywhere_is_read_or_refused_alike(kind: type[Message]) -> None:
    version = kind.declaration.versions.highest
    data = filled(kind, version).encode(version)
    for at in range(len(data)):
        for byte in (0x00, 0x01, 0x02, 0x7F, 0x80, 0xFF):
            changed = data[:at] + bytes([byte]) + data[at + 1 :]
            assert_same(kind, version, changed, 0, len(changed))


# ---------------------------------------------------------------- what only C can get wrong


def test_a_buffer_is_given_back_and_nothing_is_left_behind() -> None:
    data = filled(Outer, 2).encode(2)
    decode, _ = twins(Outer, 2)
    frame = bytearray(data)

    def read_and_refuse() -> None:
        for end in range(len(data) + 1):
            outcome(decode, frame, 0, end)

    read_and_refuse()
    references = [sys.getrefcount(thing) for thing in (Outer, Inner, frame, decode)]
    tracemalloc.start()
    read_and_refuse()
    bytes_before = tracemalloc.get_traced_memory()[0]
    for _ in range(20):
        read_and_refuse()
    bytes_after = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert [sys.getrefcount(thing) for thing in (Outer, Inner, frame, decode)] == references
    assert bytes_after - bytes_before < len(data), "less than a byte a message"
    frame.append(0)  # raises if a buffer is still held


@pytest.mark.parametrize(("position", "end"), [(-1, 1), (0, -1), (0, 10**9), (10**30, 1), (0, 2**63)])
def test_bytes_outside_of_the_buffer_are_a_mistake_of_the_caller(position: int, end: int) -> None:
    decode, _ = twins(Outer, 0)
    with pytest.raises((ValueError, OverflowError)) as caught:
        decode(bytes(100), position, end)
    assert not isinstance(caught.value, MalformedMessage)


def test_a_buffer_that_is_not_plain_bytes_is_refused() -> None:
    decode, _ = twins(Outer, 0)
    for buffer in (memoryview(bytes(100))[::2], memoryview(bytes(100)).cast("i"), "text", None):
        with pytest.raises((TypeError, BufferError)):
            decode(buffer, 0, 10)


NUMBER = compiler.ValueProgram("i", "number", False, False, None)


@pytest.mark.parametrize(
    "program",
    [
        (Inner, False, ((1, NUMBER),), (), ()),  # nothing for argument 0
        (Inner, False, ((-1, NUMBER),), (), ()),
        (Inner, False, ((0, NUMBER), (0, NUMBER)), (), ()),
        (Inner, False, ((0, NUMBER._replace(kind="?!")),), (), ()),
        (Inner, False, ((0, NUMBER._replace(kind="A", detail=(0, NUMBER))),), (), ()),
        (Inner, False, ((0, NUMBER._replace(kind="A")),), (), ()),
        (Inner, False, ((0, NUMBER._replace(kind="S", detail=(Inner,))),), (), ()),
        (Inner, False, ((0, NUMBER._replace(kind="z")),), (), ()),
        (Inner, False, (None,), (), ()),
        (Inner, False, (), ((0, None),), ()),
        (Inner, False, (), (), ((1, "tag"),)),
        (),
    ],
)
def test_a_program_that_makes_no_sense_is_refused(program: Any) -> None:
    from moldau.wire._decoder import Decoder

    with pytest.raises((TypeError, ValueError, SystemError)):
        Decoder(program, "label", 1_000)


# ---------------------------------------------------------------- the choice


@pytest.mark.parametrize(("choice", "kind"), [("", "Decoder"), ("pure", "function")])
def test_the_environment_chooses_between_the_twins(choice: str, kind: str) -> None:
    program = (
        "from moldau.wire.compiler import decoder\n"
        "from moldau.wire.messages.produce import ProduceRequest\n"
        "print(type(decoder(ProduceRequest, 9)).__name__)"
    )
    paths = os.pathsep.join(path for path in sys.path if path)
    environment = {**os.environ, "MOLDAU_KERNEL": choice, "PYTHONPATH": paths}
    run = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, check=True)
    assert run.stdout.decode().strip() == kind
