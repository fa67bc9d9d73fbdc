"""What the kernel and its twin say about the records of a batch."""

import itertools
from array import array
from collections.abc import Callable
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wire.records.samples import batches_of_records, record

from moldau.model.errors import MalformedMessage
from moldau.wire.records import pure
from moldau.wire.records.kernel import NAME
from moldau.wire.records.record import Record, Rule, Walk

BASE_TIMESTAMP = 1_700_000_000_000


def varint(number: int) -> bytes:
    out = bytearray()
    pure._put_varint(out, number)
    return bytes(out)


def framed(body: bytes) -> bytes:
    return varint(len(body)) + body


HEAD = b"\x00\x00\x00"  # attributes, timestamp delta, offset delta
SOUND = framed(HEAD + b"\x01\x01\x00")  # null key, null value, no header

# (payload, count, the rule it breaks, the record that breaks it)
BROKEN = [
    pytest.param(b"", 1, Rule.COUNT, 0, id="count-without-bytes"),
    pytest.param(SOUND, 2, Rule.COUNT, 0, id="count-too-large"),
    pytest.param(SOUND, -1, Rule.COUNT, 0, id="count-negative"),
    pytest.param(framed(HEAD + b"\x01\x10" + bytes(8) + b"\x00"), 2, Rule.MISSING, 1, id="record-missing"),
    pytest.param(SOUND * 2 + b"\xff", 3, Rule.COUNT, 0, id="not-even-room-for-the-last"),
    pytest.param(b"\xff\xff\xff\xff\xff\x00\x00\x00", 1, Rule.VARINT, 0, id="length-of-six-bytes"),
    pytest.param(b"\x0a" + bytes(6), 1, Rule.LENGTH, 0, id="length-below-any-record"),
    pytest.param(b"\x01" + bytes(6), 1, Rule.LENGTH, 0, id="length-negative"),
    pytest.param(b"\x0e" + bytes(6), 1, Rule.LENGTH, 0, id="length-beyond-the-payload"),
    pytest.param(b"\xfe\xff\xff\xff\x0f" + bytes(2), 1, Rule.LENGTH, 0, id="length-of-2-gib"),
    pytest.param(
        framed(b"\x00" + b"\xff" * 10 + bytes(5)), 1, Rule.VARINT, 0, id="timestamp-of-eleven-bytes"
    ),
    pytest.param(framed(b"\x00" + b"\xff" * 5), 1, Rule.CUT_OFF, 0, id="timestamp-cut-off"),
    pytest.param(framed(HEAD + b"\x03\x01\x00"), 1, Rule.KEY, 0, id="key-length-minus-two"),
    pytest.param(framed(HEAD + b"\x08\x01\x00"), 1, Rule.KEY, 0, id="key-beyond-the-record"),
    pytest.param(framed(HEAD + b"\x01\x03\x00"), 1, Rule.VALUE, 0, id="value-length-minus-two"),
    pytest.param(framed(HEAD + b"\x01\xfe\xff\xff\xff\x0f"), 1, Rule.VALUE, 0, id="value-of-2-gib"),
    pytest.param(framed(HEAD + b"\x01\x01\x01"), 1, Rule.HEADER_COUNT, 0, id="header-count-negative"),
    pytest.param(framed(HEAD + b"\x01\x01\xfe\xff\xff\xff\x0f"), 1, Rule.HEADER_COUNT, 0, id="headers-2-g"),
    pytest.param(framed(HEAD + b"\x01\x01\x02\x01\x01"), 1, Rule.HEADER_KEY, 0, id="header-key-null"),
    pytest.param(framed(HEAD + b"\x01\x01\x02\x06\x61"), 1, Rule.HEADER_KEY, 0, id="header-key-beyond"),
    pytest.param(
        framed(HEAD + b"\x01\x01\x02\x00\x03"), 1, Rule.HEADER_VALUE, 0, id="header-value-minus-two"
    ),
    pytest.param(framed(HEAD + b"\x01\x01\x02\x00"), 1, Rule.CUT_OFF, 0, id="header-cut-off"),
    pytest.param(framed(HEAD + b"\x01\x01\x00\x00"), 1, Rule.UNUSED, 0, id="bytes-left-in-the-record"),
    pytest.param(SOUND + b"\x00", 1, Rule.TRAILING, 0, id="bytes-after-the-records"),
    pytest.param(SOUND * 2, 2, Rule.SEQUENCE, 1, id="same-offset-twice"),
]


@pytest.mark.parametrize(("payload", "count", "rule", "index"), BROKEN)
def test_the_first_broken_rule_is_named(
    kernel: ModuleType, payload: bytes, count: int, rule: Rule, index: int
) -> None:
    assert kernel.validate(payload, count) == Walk(rule, index, 0, 0, -1, False)


@pytest.mark.parametrize(("payload", "count", "rule", "index"), BROKEN)
def test_whatever_reads_records_refuses_broken_ones(
    kernel: ModuleType, payload: bytes, count: int, rule: Rule, index: int
) -> None:
    if rule is Rule.SEQUENCE:
        # Compaction leaves gaps, so only a produced batch must count without them.
        assert len(kernel.decode(payload, count, 0, 0)) == count
        return
    readers: list[Callable[[], object]] = [
        lambda: kernel.decode(payload, count, 0, 0),
        lambda: kernel.keys(payload, count),
        lambda: kernel.rebase_timestamps(payload, count, 1),
        lambda: kernel.find_timestamp(payload, count, 0, 2**62),
        lambda: kernel.to_columns([(payload, count, 0, 0, None)]),
        lambda: kernel.retain(payload, count, bytes(max(count, 0))),
        lambda: kernel.OffsetMap(8, 7, bytes(16)).put_all(payload, count, 0),
        lambda: kernel.OffsetMap(8, 7, bytes(16)).retained(payload, count, 0, True),
    ]
    texts = []
    for read in readers:
        with pytest.raises(MalformedMessage) as error:
            read()
        texts.append(str(error.value))
    assert len(set(texts)) == 1
    assert rule is Rule.COUNT or texts[0].startswith(f"record {index} ")


def test_an_empty_payload_holds_no_records(kernel: ModuleType) -> None:
    assert kernel.validate(b"", 0) == Walk(0, 0, 0, 0, -1, False)
    assert kernel.decode(b"", 0, 5, 5) == []
    assert kernel.encode([], 0, 0) == b""
    assert kernel.to_columns([(b"", 0, 0, 0, None)]).length == 0


def test_validate_tells_what_the_broker_needs(kernel: ModuleType) -> None:
    timestamps = [5, 9, 2, 9]
    records = [record(index, BASE_TIMESTAMP + delta, key=b"k") for index, delta in enumerate(timestamps)]
    payload = kernel.encode(records, 0, BASE_TIMESTAMP)
    assert kernel.validate(payload, 4) == Walk(0, 4, 2, 9, 1, False)
    payload = kernel.encode([*records, record(4, BASE_TIMESTAMP, key=None)], 0, BASE_TIMESTAMP)
    assert kernel.validate(payload, 5) == Walk(0, 5, 0, 9, 1, True)


@given(batches_of_records())
def test_records_survive_encoding_and_decoding(records: list[Record]) -> None:
    for kernel in both():
        payload = kernel.encode(records, 100, BASE_TIMESTAMP)
        assert kernel.decode(payload, len(records), 100, BASE_TIMESTAMP) == records


@given(batches_of_records(), st.integers(-(2**62), 2**62))
def test_rebased_timestamps_mean_the_same_from_the_new_base(records: list[Record], base: int) -> None:
    for kernel in both():
        payload = kernel.encode(records, 100, BASE_TIMESTAMP)
        moved = kernel.rebase_timestamps(payload, len(records), BASE_TIMESTAMP - base)
        assert kernel.decode(moved, len(records), 100, base) == records


@given(batches_of_records(), st.data())
def test_retained_records_are_kept_verbatim(records: list[Record], data: st.DataObject) -> None:
    mask = bytes(data.draw(st.lists(st.booleans(), min_size=len(records), max_size=len(records))))
    kept = [record for record, keep in zip(records, mask, strict=True) if keep]
    for kernel in both():
        payload = kernel.encode(records, 100, BASE_TIMESTAMP)
        rest = kernel.retain(payload, len(records), mask)
        assert rest == kernel.encode(kept, 100, BASE_TIMESTAMP)


@given(batches_of_records())
def test_keys_tell_where_each_record_is(records: list[Record]) -> None:
    for kernel in both():
        payload = kernel.encode(records, 100, BASE_TIMESTAMP)
        found = kernel.keys(payload, len(records))
        assert [keyed.key for keyed in found] == [record.key for record in records]
        assert [keyed.is_tombstone for keyed in found] == [record.value is None for record in records]
        assert [100 + keyed.offset_delta for keyed in found] == [record.offset for record in records]
        pieces = [payload[keyed.position : keyed.position + keyed.size] for keyed in found]
        assert pieces == [kernel.encode([record], 100, BASE_TIMESTAMP) for record in records]


def test_log_append_time_replaces_every_timestamp(kernel: ModuleType) -> None:
    payload = kernel.encode([record(0, 10), record(1, 20)], 0, 10)
    assert [found.timestamp for found in kernel.decode(payload, 2, 0, 10, 99)] == [99, 99]


@pytest.mark.parametrize(
    ("target", "offset_delta_min", "found"),
    [(0, 0, (0, 10)), (10, 0, (0, 10)), (11, 0, (1, 30)), (25, 2, (3, 30)), (30, 0, (1, 30)), (31, 0, None)],
)
def test_the_first_record_at_or_after_a_time_is_found(
    kernel: ModuleType, target: int, offset_delta_min: int, found: tuple[int, int] | None
) -> None:
    payload = kernel.encode([record(0, 10), record(1, 30), record(2, 20), record(3, 30)], 0, 10)
    assert kernel.find_timestamp(payload, 4, 10, target, offset_delta_min) == found


def test_a_header_key_that_is_not_utf_8_costs_characters_not_the_record(kernel: ModuleType) -> None:
    payload = framed(HEAD + b"\x01\x01\x02\x06a\xffb\x01")
    assert kernel.decode(payload, 1, 0, 0)[0].headers == (("a\ufffdb", None),)


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        (record(2**31, 0), ValueError),
        (record(-(2**31) - 1, 0), ValueError),
        (Record(0, 0, None, None, (), 128), ValueError),
        (Record(0, 0, None, None, (("\ud800", None),)), UnicodeEncodeError),
        (Record(0, 0, "text", None), TypeError),  # type: ignore[arg-type]
        (Record(0, 0, None, [1, 2]), TypeError),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_record_is_not_encoded(kernel: ModuleType, bad: Record, error: type[Exception]) -> None:
    with pytest.raises(error):
        kernel.encode([bad], 0, 0)


def test_any_bytes_like_object_is_a_payload_a_key_or_a_value(kernel: ModuleType) -> None:
    plain = kernel.encode([Record(0, 0, b"key", b"value", (("h", b"x"),))], 0, 0)
    viewed = [Record(0, 0, bytearray(b"key"), memoryview(b"value"), (("h", bytearray(b"x")),))]  # type: ignore[arg-type]
    assert kernel.encode(viewed, 0, 0) == plain
    for payload in (bytearray(plain), memoryview(plain), memoryview(b"x" + plain)[1:]):
        assert kernel.decode(payload, 1, 0, 0) == kernel.decode(plain, 1, 0, 0)


def test_the_mask_of_retain_has_a_byte_for_each_record(kernel: ModuleType) -> None:
    with pytest.raises(ValueError, match="one byte for each record"):
        kernel.retain(SOUND, 1, b"\1\1")


@pytest.mark.parametrize(
    ("key", "hashed"),
    # From Kafka's own unit tests of murmur2.
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_has_the_values_that_kafka_publishes(kernel: ModuleType, key: bytes, hashed: int) -> None:
    assert kernel.murmur2(key) == hashed % 2**32
    assert kernel.murmur2(memoryview(b"x" + key)[1:]) == hashed % 2**32


@given(st.lists(st.none() | st.binary(max_size=40), max_size=30), st.integers(0, 3))
def test_a_column_of_keys_has_the_hash_of_each_without_its_sign_and_minus_one_for_null(
    keys: list[bytes | None], skipped: int
) -> None:
    data = b"".join(key or b"" for key in keys)
    ends = [0, *itertools.accumulate(len(key or b"") for key in keys)]
    bits = sum(1 << row for row, key in enumerate(keys) if key is not None)
    validity = bits.to_bytes(len(keys) // 8 + 1, "little")
    start = min(skipped, len(keys))
    column = (start, validity, array("i", ends).tobytes(), data)
    expected = [-1 if key is None else pure.murmur2(key) & 0x7FFFFFFF for key in keys[start:]]
    for kernel in both():
        assert array("i", kernel.hash_keys(len(keys) - start, column)).tolist() == expected


def test_a_column_of_keys_that_is_not_there_is_null_throughout(kernel: ModuleType) -> None:
    assert array("i", kernel.hash_keys(3, None)).tolist() == [-1, -1, -1]
    assert kernel.hash_keys(0, None) == b""


@pytest.mark.parametrize(
    ("length", "ends", "text"),
    [
        (-1, (0, 1), "at least no rows"),
        (2**31, (0, 1), "at least no rows"),
        (2, (0, 1), "too few for its rows"),
        (1, (0, 5), "outside its data"),
        (1, (-1, 2), "outside its data"),
    ],
)
def test_a_column_of_keys_that_is_not_sound_is_refused(
    kernel: ModuleType, length: int, ends: tuple[int, ...], text: str
) -> None:
    with pytest.raises(ValueError, match=text):
        kernel.hash_keys(length, (0, None, array("i", ends).tobytes(), b"abc"))


def both() -> list[ModuleType]:
    if NAME == "pure":
        return [pure]
    from moldau.wire.records import _kernel

    return [pure, _kernel]
