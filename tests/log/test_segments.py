"""When a new segment begins, and what the indexes beside it say."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from log.support import NOW_MS, PATH, Keeper, batch, settings

from moldau.log.config import LogConfig
from moldau.log.index import OffsetIndex, TimeIndex
from moldau.log.segment import TimedOffset
from moldau.sim.disk import SimDisk

KIB = 1024


def bases(keeper: Keeper) -> list[int]:
    return [segment.base_offset for segment in keeper.log.segments]


def file(keeper: Keeper, name: str) -> bytes:
    opened = keeper.disk.open(f"{PATH}/{name}")
    return opened.read(0, opened.size())


# ---------------------------------------------------------------- rolling


@pytest.mark.honours("segment.bytes")
def test_a_segment_ends_before_it_would_grow_larger_than_segment_bytes() -> None:
    for text, expected in (("1048576", [0, 3, 6]), ("1500000", [0, 4])):
        keeper = Keeper(settings({"segment.bytes": text}))
        for _ in range(8):
            keeper.append(batch(1, size=300 * KIB))
        assert bases(keeper) == expected
        assert all(segment.size <= int(text) for segment in keeper.log.segments)


@pytest.mark.honours("segment.ms")
def test_a_segment_ends_with_the_record_that_is_segment_ms_younger_than_its_first() -> None:
    for text, expected in (("1000", [0, 2, 4]), ("2000", [0, 4]), ("10000", [0])):
        keeper = Keeper(settings({"segment.ms": text}))
        for offset_ms in (0, 1000, 1001, 2000, 2002):
            keeper.append(batch(1, timestamp=NOW_MS + offset_ms))
        assert bases(keeper) == expected


@pytest.mark.honours("segment.jitter.ms")
def test_segments_of_one_age_end_at_different_times_with_jitter() -> None:
    def first_roll_ms(keeper: Keeper) -> int:
        for offset_ms in range(0, 2000, 10):
            keeper.append(batch(1, timestamp=NOW_MS + offset_ms))
            if len(keeper.log.segments) > 1:
                return offset_ms
        return -1

    def after(skipped: int, jitter_ms: str) -> int:
        keeper = Keeper(settings({"segment.ms": "1000", "segment.jitter.ms": jitter_ms}))
        keeper.truncate(0)
        keeper.log.truncate_fully(skipped)
        keeper.flush()
        return first_roll_ms(keeper)

    assert {after(skipped, "0") for skipped in range(8)} == {1010}
    jittered = {after(skipped, "500") for skipped in range(8)}
    assert len(jittered) > 4
    assert min(jittered) > 500
    assert max(jittered) <= 1010


@pytest.mark.honours("segment.index.bytes")
def test_a_segment_ends_when_its_index_is_full() -> None:
    for text, entry_count in (("48", 3), ("96", 7)):
        keeper = Keeper(settings({"segment.index.bytes": text, "index.interval.bytes": "0"}))
        for number in range(20):
            keeper.append(batch(1, timestamp=NOW_MS + number))
        closed = keeper.log.segments[:-1]
        assert [len(segment.offset_index) for segment in closed] == [entry_count] * len(closed)
        assert all(len(segment.time_index.entries) <= int(text) for segment in closed)


@pytest.mark.honours("index.interval.bytes")
@pytest.mark.honours("segment.index.bytes")
def test_a_segment_ends_when_its_index_is_full_though_only_the_last_batch_of_each_write_has_an_entry() -> (
    None
):
    keeper = Keeper(settings({"segment.index.bytes": "64", "index.interval.bytes": "300"}))
    for _ in range(40):
        keeper.append(batch(size=400) + batch())
    sizes = [len(segment.offset_index.entries) for segment in keeper.log.segments]
    assert len(sizes) > 3
    assert max(sizes) <= 64


def test_an_index_entry_comes_after_every_so_many_bytes() -> None:
    size = len(batch(1, size=1000))
    for text, every in (("0", 1), ("4096", 4), ("10000", 10)):
        keeper = Keeper(settings({"index.interval.bytes": text}))
        for _ in range(41):
            keeper.append(batch(1, size=1000))
        positions = [position for _, position in keeper.log.active.offset_index.items()]
        assert positions == [every * size * number for number in range(1, 40 // every + 1)]


def test_an_offset_too_far_from_the_base_begins_a_new_segment() -> None:
    keeper = Keeper()
    for base in (0, 2**31 - 2, 2**31 - 1, 2**31, 2**40):
        keeper.log.append_as_follower(batch(1, base_offset=base, leader_epoch=0), now_ms=NOW_MS)
    assert bases(keeper) == [0, 2**31, 2**40 - (2**31 - 1)]
    keeper.flush()
    assert keeper.restart().log_end_offset == 2**40 + 1
    assert [record.offset for record in keeper.records()] == [0, 2**31 - 2, 2**31 - 1, 2**31, 2**40]


def test_the_first_batch_of_an_empty_log_may_be_anywhere() -> None:
    keeper = Keeper()
    keeper.log.append_as_follower(batch(1, base_offset=2**40, leader_epoch=0), now_ms=NOW_MS)
    assert len(bases(keeper)) == 1
    assert keeper.log.read(0, bytes_max=1, end_limit=2**41).end_offset == 2**40 + 1


# ---------------------------------------------------------------- the files


def test_the_index_files_are_as_kafka_writes_them() -> None:
    keeper = Keeper(LogConfig(index_interval_bytes=100))
    keeper.log.truncate_fully(1000)
    keeper.flush()
    size = len(batch(2))
    for number in range(4):
        keeper.append(batch(2, timestamp=NOW_MS + number % 3))
    keeper.restart()
    # The third batch comes after more than 100 bytes, and ends with offset 1005.
    assert file(keeper, "00000000000000001000.index") == struct.pack(">ii", 5, 2 * size)
    assert file(keeper, "00000000000000001000.timeindex") == struct.pack(">qi", NOW_MS + 2, 5)


def test_the_last_entry_of_a_time_index_is_the_greatest_timestamp() -> None:
    keeper = Keeper(LogConfig(segment_bytes=300))
    for offset_ms in (5, 9, 7, 8, 6, 5, 4, 3):
        keeper.append(batch(1, timestamp=NOW_MS + offset_ms, size=20))
    sealed = keeper.log.segments[0]
    assert sealed.time_index.items() == [(NOW_MS + 9, 1)]


def test_an_index_that_is_missing_or_impossible_is_built_again() -> None:
    for spoil in ("missing", "too long"):
        keeper = Keeper(LogConfig(segment_bytes=1000, index_interval_bytes=100))
        for number in range(40):
            keeper.append(batch(1, timestamp=NOW_MS + number, size=40))
        keeper.commit()
        keeper.restart()
        name = f"{PATH}/{keeper.log.segments[0].base_offset:020d}.index"
        keeper.disk.remove(name)
        if spoil == "too long":
            keeper.disk.open(name, create=True).append((struct.pack(">ii", 1, 10_000),))
        keeper.log = keeper._open(is_clean=True)
        assert [record.offset for record in keeper.records()] == list(range(40))
        assert keeper.log.offset_for_timestamp(NOW_MS + 3) == TimedOffset(3, NOW_MS + 3, 0)


@given(
    offsets=st.lists(st.integers(0, 1000), min_size=1, max_size=50, unique=True).map(sorted),
    target=st.integers(0, 1100),
)
def test_an_offset_index_finds_the_last_entry_that_is_not_beyond(offsets: list[int], target: int) -> None:
    index = OffsetIndex(SimDisk(), "x", 500, is_new=True)
    for offset in offsets:
        index.append(first=offset, offset=500 + offset, position=10 * offset)
    known = [offset for offset in offsets if offset <= target]
    assert index.position_of(500 + target) == (10 * known[-1] if known else 0)
    assert index.floor(10 * target) == ((10 * known[-1], known[-1]) if known else (0, 500))
    index.truncate(500 + target)
    assert index.items() == [(500 + offset, 10 * offset) for offset in offsets if offset < target]


@given(
    entries=st.lists(st.tuples(st.integers(0, 100), st.integers(0, 100)), max_size=30),
    target=st.integers(-1, 120),
)
def test_a_time_index_rises_and_names_an_offset_before_the_time(
    entries: list[tuple[int, int]], target: int
) -> None:
    index = TimeIndex(SimDisk(), "x", 0, is_new=True)
    offset = 0
    for timestamp, step in entries:
        offset += step
        index.append_if_later(timestamp=timestamp, offset=offset)
    timestamps = [timestamp for timestamp, _ in index.items()]
    assert timestamps == sorted(set(timestamps))
    earlier = [found for timestamp, found in index.items() if timestamp <= target]
    assert index.offset_before(target) == (earlier[-1] if earlier else 0)


# ---------------------------------------------------------------- time


def timed_log() -> Keeper:
    keeper = Keeper(LogConfig(segment_bytes=400, index_interval_bytes=100))
    for number in range(20):
        keeper.append(batch(5, timestamp=NOW_MS + 100 * number, step_ms=10, size=5), epoch=number // 10)
    return keeper


@pytest.mark.parametrize(
    ("after_ms", "offset", "found_ms"),
    [(-500, 0, 0), (0, 0, 0), (5, 1, 10), (40, 4, 40), (41, 5, 100), (1020, 52, 1020), (1940, 99, 1940)],
)
def test_a_time_is_looked_up_inside_the_batch(after_ms: int, offset: int, found_ms: int) -> None:
    found = timed_log().log.offset_for_timestamp(NOW_MS + after_ms)
    assert found == TimedOffset(offset, NOW_MS + found_ms, 1 if offset >= 50 else 0)


def test_no_record_is_young_enough() -> None:
    assert timed_log().log.offset_for_timestamp(NOW_MS + 1941) is None
    assert Keeper().log.offset_for_timestamp(0) is None


def test_a_time_is_not_found_below_the_start_of_the_log() -> None:
    keeper = timed_log()
    keeper.commit()
    keeper.log.advance_log_start(13)
    assert keeper.log.offset_for_timestamp(0) == TimedOffset(13, NOW_MS + 230, 0)


def test_records_that_share_a_log_append_time_are_found_by_it() -> None:
    keeper = Keeper()
    keeper.append(batch(3, timestamp=5, log_append_time=NOW_MS))
    assert keeper.log.offset_for_timestamp(NOW_MS) == TimedOffset(0, NOW_MS, 0)
    assert keeper.log.offset_for_timestamp(NOW_MS + 1) is None


def test_the_greatest_timestamp_is_found_wherever_it_is() -> None:
    keeper = timed_log()
    keeper.append(batch([(b"a", b""), (b"b", b"")], timestamp=NOW_MS + 9000, step_ms=-1))
    for number in range(30):
        keeper.append(batch(2, timestamp=NOW_MS + number, size=20))
    assert keeper.log.offset_of_max_timestamp() == TimedOffset(100, NOW_MS + 9000, 0)
    assert keeper.restart().offset_of_max_timestamp() == TimedOffset(100, NOW_MS + 9000, 0)
    assert Keeper().log.offset_of_max_timestamp() is None
