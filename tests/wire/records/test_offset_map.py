"""The map that compaction keeps of the latest offset of each key."""

from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wire.records.samples import record

from moldau.wire.records import kernel as chosen
from moldau.wire.records.record import Record

SECRET = bytes(range(16))


def test_the_hash_is_siphash_2_4_with_128_bits(compiled: ModuleType) -> None:
    # The reference implementation's vectors, as OpenSSL confirms them: key 00..0f, message 00..n-1.
    for length, expected in {
        0: "a3817f04ba25a8e66df67214c7550293",
        1: "da87c1d86b99af44347659119b22fc45",
        7: "a1f1ebbed8dbc153c0b84aa61ff08239",
        8: "3b62a9ba6258f5610f83e264f31497b4",
        63: "5150d1772f50834a503e069a973fbd7c",
    }.items():
        assert compiled.siphash(SECRET, bytes(range(length))).hex() == expected, length


def test_only_the_latest_record_of_a_key_is_retained(kernel: ModuleType) -> None:
    keys = [b"a", b"b", b"a", b"c", b"b", None]
    payload = kernel.encode([record(index, 0, key=key) for index, key in enumerate(keys)], 0, 0)
    offsets = kernel.OffsetMap(16, 12, SECRET)
    assert offsets.put_all(payload, 6, 50) == 6
    assert (len(offsets), offsets.get(b"a"), offsets.get(b"b"), offsets.get(b"z")) == (3, 52, 54, -1)
    assert offsets.latest_offset == 55
    assert list(offsets.retained(payload, 6, 50, True)) == [0, 0, 1, 1, 1, 0]


def test_a_tombstone_stays_only_as_long_as_it_is_asked_to(kernel: ModuleType) -> None:
    payload = kernel.encode([record(0, 0, key=b"a"), record(1, 0, key=b"a", value=None)], 0, 0)
    offsets = kernel.OffsetMap(4, 3, SECRET)
    offsets.put_all(payload, 2, 0)
    assert list(offsets.retained(payload, 2, 0, True)) == [0, 1]
    assert list(offsets.retained(payload, 2, 0, False)) == [0, 0]


def test_a_full_map_stops_before_the_first_new_key_and_keeps_what_follows(kernel: ModuleType) -> None:
    payload = kernel.encode(
        [record(i, 0, key=key) for i, key in enumerate([b"a", b"b", b"a", b"c", b"a"])], 0, 0
    )
    offsets = kernel.OffsetMap(3, 2, SECRET)
    assert offsets.put_all(payload, 5, 0) == 3
    assert offsets.latest_offset == 2
    assert list(offsets.retained(payload, 5, 0, True)) == [0, 1, 1, 1, 1]


def test_offsets_before_the_dirty_part_are_seen_but_not_put(kernel: ModuleType) -> None:
    payload = kernel.encode([record(0, 0, key=b"a"), record(1, 0, key=b"b")], 0, 0)
    offsets = kernel.OffsetMap(4, 3, SECRET)
    assert offsets.put_all(payload, 2, 0, 1) == 2
    assert (offsets.get(b"a"), offsets.get(b"b")) == (-1, 1)
    offsets.advance(99)
    assert offsets.latest_offset == 99


@pytest.mark.parametrize("arguments", [(4, 4, SECRET), (4, -1, SECRET), (4, 3, b"short"), (2**62, 3, SECRET)])
def test_a_map_needs_a_free_slot_and_a_whole_secret(
    compiled: ModuleType, arguments: tuple[int, int, bytes]
) -> None:
    with pytest.raises(ValueError):
        compiled.OffsetMap(*arguments)


@given(
    st.lists(st.tuples(st.binary(max_size=2), st.booleans()), max_size=60),
    st.integers(0, 40),
    st.integers(1, 30),
)
def test_the_map_agrees_with_a_dictionary(
    rows: list[tuple[bytes, bool]], keys_max: int, free_slots: int
) -> None:
    records = [Record(i, 0, key, b"" if has_value else None) for i, (key, has_value) in enumerate(rows)]
    payload = chosen.encode(records, 0, 0)
    offsets = chosen.OffsetMap(keys_max + free_slots, keys_max, SECRET)
    put = offsets.put_all(payload, len(records), 0)
    expected: dict[bytes, int] = {}
    for index, (key, _) in enumerate(rows[:put]):
        expected[key] = index
    assert len(offsets) == len(expected) <= keys_max
    assert all(offsets.get(key) == offset for key, offset in expected.items())
    assert put == len(rows) or (len(expected) == keys_max and rows[put][0] not in expected)
