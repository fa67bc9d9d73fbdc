"""What encoders and decoders insist on, and how they say what is wrong."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.model.errors import MalformedMessage
from moldau.model.ids import Uuid as Id
from moldau.wire.compiler import UnencodableMessage, decode_uvarint, decoder, encode_uvarint, source_of
from moldau.wire.message import Data, Request
from moldau.wire.types import (
    Bool,
    Bytes,
    FetchedRecords,
    Float64,
    Int8,
    Int16,
    Int32,
    String,
    Struct,
    UInt16,
    Uuid,
    Versions,
    field,
)


class Point(Struct, is_value=True):
    x: Int32 = field(default=-1)
    y: Int32 = field(default=-1)


class Example(Data, versions="0-3", flexible="2+"):
    name: String
    note: String | None = field("1+", nullable="1+", default=None)
    count: Int16 = field("1+", default=7)
    hint: Int32 = field("3+", default=-1, ignorable=True)
    where: Point = field("2+", tag=1, default=Point())
    tag_text: String = field("3+", tag=0, default="")
    nested: "Part | None" = field("3+", nullable="3+", default=None)
    parts: "list[Part]"


class Part(Struct):
    id: Uuid
    sizes: list[UInt16]


class Payload(Data, versions="0-1", flexible="1+"):
    records: FetchedRecords | None = field(nullable="0+")
    flag: Bool
    ratio: Float64
    blob: Bytes
    small: Int8


def example(**fields: object) -> Example:
    return Example(**{"name": "n", "parts": [], **fields})  # type: ignore[arg-type]


# ---------------------------------------------------------------- construction


def test_a_required_field_must_be_given() -> None:
    with pytest.raises(TypeError, match="parts"):
        Example(name="n")  # type: ignore[call-arg]


def test_a_list_that_is_a_default_is_not_shared() -> None:
    class Listing(Data, versions="0"):
        items: list[Int32] = field(default=[])

    first, second = Listing(), Listing()
    first.items.append(1)
    assert second.items == []


def test_a_value_that_is_a_default_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        example().where.x = 1


# ---------------------------------------------------------------- what an encoder refuses


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"name": None}, "Example.name must not be null in version 3"),
        ({"name": 5}, "Example.name holds 5, which is not text"),
        ({"name": "x" * 32768}, "Example.name holds text of more than 32767 bytes"),
        ({"count": 2**15}, "Example.count holds 32768, which is not int16"),
        ({"count": "1"}, "Example.count holds '1', which is not int16"),
        ({"parts": None}, "Example.parts must not be null in version 3"),
        ({"parts": 3}, "Example.parts holds 3, which is not a list"),
        ({"parts": [Part(id=Id(bytes(16)), sizes=[1]), None]}, r"Example.parts\[1\] must not be null"),
        ({"parts": [Part(id=Id(bytes(15)), sizes=[])]}, r"Example.parts\[0\].id holds .* uuid of 16 bytes"),
        (
            {"parts": [Part(id=Id(bytes(16)), sizes=[-1])]},
            r"Example.parts\[0\].sizes\[0\] holds -1, .* uint16",
        ),
        ({"nested": Point()}, "Example.nested holds .*, which is not a Part"),
        ({"where": None}, "Example.where must not be null in version 3"),
    ],
)
def test_an_encoder_says_which_field_is_wrong(fields: dict[str, object], complaint: str) -> None:
    with pytest.raises(UnencodableMessage, match=f"^Example v3: {complaint}"):
        example(**fields).encode(3)


def test_text_that_is_not_unicode_is_refused() -> None:
    with pytest.raises(UnencodableMessage, match="surrogates"):
        example(name="\ud800").encode(3)


def test_a_field_that_the_version_lacks_must_hold_its_default() -> None:
    assert example().encode(0) == b"\0\1n" + bytes(4)
    for fields in (
        {"note": "x"},
        {"count": 8},
        {"where": Point(x=0)},
        {"nested": Part(id=Id(bytes(16)), sizes=[])},
    ):
        [name] = fields
        with pytest.raises(UnencodableMessage, match=f"Example.{name} is not in version 0"):
            example(**fields).encode(0)


def test_an_ignorable_field_that_the_version_lacks_is_left_out() -> None:
    assert example(hint=5).encode(1) == example().encode(1)
    assert example(hint=5).encode(3) != example().encode(3)


def test_a_version_that_the_message_does_not_have_is_refused() -> None:
    with pytest.raises(UnencodableMessage, match="Example has versions 0-3, not 4"):
        example().encode(4)


# ---------------------------------------------------------------- null


def test_null_and_empty_are_different_things() -> None:
    for version in (1, 2, 3):
        assert Example.decode(example(note=None).encode(version), version).note is None
        assert Example.decode(example(note="").encode(version), version).note == ""


@pytest.mark.parametrize(
    ("version", "data"),
    [
        (0, "ffff 00000000"),  # a name of length -1
        (0, "fffe 00000000"),  # and of length -2
        (1, "0000 fffe 0007 00000000"),  # a note of length -2, where -1 would be null
        (0, "0000 ffffffff"),  # parts of length -1
        (2, "00 00 0007 01 00"),  # a compact name that is null
        (2, "01 00 0007 00 00"),  # compact parts that are null
    ],
)
def test_a_decoder_refuses_null_where_there_is_none(version: int, data: str) -> None:
    with pytest.raises(
        MalformedMessage, match=rf"Example v{version}: (name|note|parts) must not have length"
    ):
        Example.decode(bytes.fromhex(data), version)


# ---------------------------------------------------------------- tags


def test_a_tagged_field_that_holds_its_default_is_not_written() -> None:
    plain = example().encode(3)
    assert plain.endswith(b"\xff\x01\x00"), "null, no parts, no tags"
    tagged = example(where=Point(x=1, y=2), tag_text="t").encode(3)
    assert tagged == plain[:-1] + bytes.fromhex("02 00 02 0274 01 09 00000001 00000002 00")


def test_unknown_tags_are_kept_and_written_back_in_order() -> None:
    data = example().encode(3)[:-1] + bytes.fromhex("03 01 09 00000001 00000002 00 02 01 aa e807 02 bbcc")
    message = Example.decode(data, 3)
    assert message.where == Point(x=1, y=2)
    assert message.unknown_tags == {2: b"\xaa", 1000: b"\xbb\xcc"}
    assert message.encode(3) == data


def test_unknown_tags_of_a_value_are_kept_too() -> None:
    point = bytes.fromhex("00000001 00000002 01 05 01 aa")
    data = example().encode(3)[:-1] + bytes([1, 1, len(point)]) + point
    message = Example.decode(data, 3)
    assert message.where.unknown_tags == {5: b"\xaa"}
    assert message.encode(3) == data
    assert example().where.unknown_tags is None


@pytest.mark.parametrize(
    ("tags", "complaint"),
    [
        ("01 01 08 00000001 00000002", "Example v3: .*"),
        ("01 01 0a 00000001 00000002 0000", r"tag 1 \(where\) takes 10 bytes, not 9"),
        ("01 07 05 00", "tag 7 of 5 bytes reaches past the end"),
        ("01 07 ffffffff0f", "larger than any length can be"),
    ],
)
def test_a_tag_must_be_as_long_as_it_says(tags: str, complaint: str) -> None:
    with pytest.raises(MalformedMessage, match=complaint):
        Example.decode(example().encode(3)[:-1] + bytes.fromhex(tags), 3)


# ---------------------------------------------------------------- records


class Slice:
    """Bytes that are in a file."""

    def __len__(self) -> int:
        return 300


def test_records_in_a_file_are_passed_on_unread() -> None:
    records = Slice()
    for version, lead in ((0, "0000012c"), (1, "ad02")):
        chunks: list[object] = []
        payload = Payload(records=records, flag=True, ratio=0.5, blob=b"b", small=-1)
        payload.encode_to(chunks, version)  # type: ignore[arg-type]
        at = chunks.index(records)
        assert b"".join(chunks[:at]) == bytes.fromhex(lead)  # type: ignore[arg-type]


def test_records_are_read_as_a_view_and_bytes_as_a_copy() -> None:
    frame = bytearray(Payload(records=b"batch", flag=False, ratio=1.5, blob=b"blob", small=3).encode(1))
    payload, position = decoder(Payload, 1)(frame, 0, len(frame))
    assert position == len(frame)
    frame[:] = bytes(len(frame))
    assert isinstance(payload.records, memoryview)
    assert bytes(payload.records) == bytes(5)
    assert payload.blob == b"blob"


# ---------------------------------------------------------------- lengths


@given(st.integers(0, 2**31 - 1))
def test_a_varint_comes_back(value: int) -> None:
    data = encode_uvarint(value)
    assert len(data) == max(1, -(-value.bit_length() // 7))
    assert decode_uvarint(b"x" + data + b"x", 1) == (value, 1 + len(data))


def test_a_varint_has_limits() -> None:
    assert encode_uvarint(2**32 - 1) == b"\xff\xff\xff\xff\x0f"
    for value in (-1, 2**32):
        with pytest.raises(ValueError, match="does not fit"):
            encode_uvarint(value)
    with pytest.raises(MalformedMessage, match="larger than any length"):
        decode_uvarint(b"\xff\xff\xff\xff\x0f", 0)
    with pytest.raises(MalformedMessage, match="more than five bytes"):
        decode_uvarint(b"\x80\x80\x80\x80\x80\x00", 0)


def test_compact_text_has_the_limit_that_other_text_has() -> None:
    text = "é" * 16383
    assert Example.decode(example(name=text).encode(2), 2).name == text
    longer = encode_uvarint(32769) + b"x" * 32768 + example().encode(2)[2:]
    with pytest.raises(MalformedMessage, match="Example v2: name must not have length 32768"):
        Example.decode(longer, 2)


def test_a_frame_ends_where_it_ends_even_if_the_buffer_goes_on() -> None:
    data = example(note="hello").encode(3)
    decode = decoder(Example, 3)
    assert decode(data + data, 0, len(data))[1] == len(data)
    for end in range(len(data)):
        with pytest.raises(MalformedMessage, match="Example v3"):
            decode(data + data, 0, end)


# ---------------------------------------------------------------- declarations


@pytest.mark.parametrize(
    ("text", "lowest", "highest"), [("3", 3, 3), ("3+", 3, 32767), ("3-7", 3, 7), ("none", 0, -1)]
)
def test_versions_are_written_as_kafka_writes_them(text: str, lowest: int, highest: int) -> None:
    versions = Versions.parse(text)
    assert versions == (lowest, highest)
    assert str(versions) == text
    assert versions.includes(3) is (text != "none")
    assert not versions.includes(2)


def test_a_type_that_is_not_of_the_wire_is_a_bug_in_the_declaration() -> None:
    class Odd(Request, versions="0"):
        when: complex

    with pytest.raises(AssertionError, match=r"Odd.when: .* is not a wire type"):
        Odd(when=1j).encode(0)


def test_the_generated_code_can_be_read() -> None:
    source = source_of(Example, 3)
    assert "def encode(message, chunks):" in source
    assert "def decode(buffer, position, end):" in source
    compile(source, "<source>", "exec")
