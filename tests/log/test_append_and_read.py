"""What is appended is read back byte for byte, from the batch that holds the offset on."""

import errno

import pytest
from log.support import NOW_MS, PATH, Keeper, batch, marker, records_in

from moldau.log.config import LogConfig
from moldau.log.log import FetchData
from moldau.log.producers import Origin
from moldau.model.errors import ErrorCode, KafkaError
from moldau.wire.records.header import iter_headers, read_header, stamp

SMALL = LogConfig(segment_bytes=1000, index_interval_bytes=100)


def read(keeper: Keeper, start: int, *, bytes_max: int = 1 << 20, end_limit: int = 1 << 60) -> FetchData:
    return keeper.log.read(start, bytes_max=bytes_max, end_limit=end_limit)


def bases(data: FetchData) -> list[int]:
    return (
        []
        if data.records is None
        else [header.base_offset for _, header in iter_headers(data.records.read())]
    )


def test_a_leader_gives_offsets_and_its_epoch_and_changes_nothing_else() -> None:
    keeper = Keeper()
    keeper.append(batch(3))
    produced = batch(2, size=20)
    result = keeper.append(produced, epoch=7)
    assert (result.first_offset, result.last_offset) == (3, 4)
    expected = batch(2, size=20)
    stamp(expected, 0, base_offset=3, leader_epoch=7)
    stored = read(keeper, 3)
    assert stored.records is not None
    assert stored.records.read() == bytes(expected)
    assert stored.end_offset == keeper.log.log_end_offset == 5


def test_several_batches_in_one_buffer_get_consecutive_offsets() -> None:
    keeper = Keeper()
    result = keeper.append(batch(2) + batch(3))
    assert (result.first_offset, result.last_offset) == (0, 4)
    assert [header.base_offset for header in keeper.headers()] == [0, 2]


def test_an_append_is_one_write() -> None:
    keeper = Keeper()
    before = keeper.disk.operation_count
    keeper.append(batch(2) + batch(3))
    assert keeper.disk.operation_count == before + 1


def test_a_batch_larger_than_a_segment_is_refused() -> None:
    keeper = Keeper(SMALL)
    with pytest.raises(KafkaError) as refused:
        keeper.append(batch(1, size=1000))
    assert refused.value.code is ErrorCode.RECORD_LIST_TOO_LARGE


@pytest.mark.parametrize(
    ("start", "bytes_max", "end_limit", "expected"),
    [
        (0, 1 << 20, 12, [0, 3, 6, 9]),
        (4, 1 << 20, 12, [3, 6, 9]),
        (4, 1, 12, [3]),
        (4, 2 * 85, 12, [3, 6]),
        (4, 2 * 85 + 84, 12, [3, 6]),
        (4, 3 * 85, 12, [3, 6, 9]),
        (4, 1 << 20, 9, [3, 6]),
        (4, 1 << 20, 8, [3]),
        (4, 1 << 20, 5, []),
        (4, 1 << 20, 4, []),
        (9, 1, 12, [9]),
        (12, 1, 12, []),
    ],
)
def test_a_read_gives_whole_batches_within_its_limits(
    start: int, bytes_max: int, end_limit: int, expected: list[int]
) -> None:
    keeper = Keeper()
    for _ in range(4):
        keeper.append(batch(3))
    assert len(batch(3)) == 85
    data = read(keeper, start, bytes_max=bytes_max, end_limit=end_limit)
    assert bases(data) == expected
    assert data.end_offset == (expected[-1] + 3 if expected else start)


@pytest.mark.parametrize("offset", [1, 7])
def test_an_offset_outside_the_log_is_out_of_range(offset: int) -> None:
    keeper = Keeper()
    keeper.append(batch(6))
    keeper.commit()
    keeper.log.advance_log_start(2)
    with pytest.raises(KafkaError) as refused:
        read(keeper, offset)
    assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_between_the_limit_and_the_end_there_is_nothing_and_no_error() -> None:
    keeper = Keeper()
    keeper.append(batch(6))
    assert read(keeper, 6).records is None
    assert read(keeper, 3, end_limit=3).records is None


def test_a_read_stays_within_one_segment() -> None:
    keeper = Keeper(SMALL)
    for _ in range(30):
        keeper.append(batch(3))
    first, second = keeper.log.segments[:2]
    data = read(keeper, 0)
    assert data.records is not None
    assert data.records.size == first.size
    assert data.end_offset == second.base_offset
    assert records_in(data.records.read())[-1].offset == second.base_offset - 1


def test_every_offset_is_found_in_every_segment() -> None:
    keeper = Keeper(SMALL)
    for number in range(100):
        keeper.append(batch(1 + number % 4, size=number % 50))
    for header in keeper.headers():
        for offset in range(header.base_offset, header.last_offset + 1):
            assert bases(read(keeper, offset, bytes_max=1)) == [header.base_offset]


def test_a_look_up_reads_as_little_from_a_thousand_segments_as_from_one() -> None:
    def reads_for_a_look_up(count: int) -> int:
        keeper = Keeper(LogConfig(segment_bytes=200, index_interval_bytes=100))
        for _ in range(count):
            keeper.append(batch(1, size=20))
        keeper.log.read(count // 2, bytes_max=1, end_limit=count)
        reads = 0
        file = keeper.log.segments[keeper.log._number_of(count // 2)].file
        original = file.read

        def counting(position: int, size: int) -> bytes:
            nonlocal reads
            reads += 1
            return original(position, size)

        file.read = counting  # type: ignore[method-assign]
        keeper.log.read(count // 2, bytes_max=1, end_limit=count)
        return reads

    assert reads_for_a_look_up(2000) <= reads_for_a_look_up(2) + 1


def test_a_slice_can_be_read_after_its_segment_was_deleted() -> None:
    keeper = Keeper(LogConfig(segment_bytes=200, file_delete_delay_ms=0))
    for _ in range(5):
        keeper.append(batch(1, size=50))
    keeper.commit()
    data = read(keeper, 0)
    keeper.log.advance_log_start(3)
    keeper.apply_retention(NOW_MS)
    assert keeper.log.remove_deleted(NOW_MS) > 0
    assert data.records is not None
    assert records_in(data.records.read())[0].offset == 0


# ---------------------------------------------------------------- followers


def test_a_follower_keeps_the_leaders_offsets_epochs_and_bytes() -> None:
    keeper = Keeper()
    data = batch(2, base_offset=0, leader_epoch=1) + batch(2, base_offset=5, leader_epoch=3)
    result = keeper.log.append_as_follower(data, now_ms=NOW_MS)
    assert result is not None
    assert (result.first_offset, result.last_offset) == (0, 6)
    stored = read(keeper, 0)
    assert stored.records is not None
    assert stored.records.read() == bytes(data)
    assert list(keeper.log.epochs) == [(1, 0), (3, 5)]


def test_a_follower_leaves_out_a_batch_that_is_cut_off() -> None:
    keeper = Keeper()
    whole = batch(2)
    result = keeper.log.append_as_follower(whole + batch(2, base_offset=2)[:-1], now_ms=NOW_MS)
    assert result is not None
    assert keeper.log.log_end_offset == 2
    assert keeper.log.append_as_follower(bytes(30), now_ms=NOW_MS) is None


def test_a_follower_takes_nothing_of_what_is_damaged_or_out_of_order() -> None:
    damaged = batch(2, base_offset=2)
    damaged[-1] ^= 1
    overlapping = batch(2, base_offset=1)
    for second in (damaged, overlapping, bytearray(100)):
        keeper = Keeper()
        with pytest.raises(KafkaError) as refused:
            keeper.log.append_as_follower(batch(2) + second, now_ms=NOW_MS)
        assert refused.value.code is ErrorCode.CORRUPT_MESSAGE
        assert keeper.log.log_end_offset == 0


def test_a_follower_can_take_more_at_once_than_a_segment_holds() -> None:
    keeper = Keeper(SMALL)
    data = bytearray()
    for number in range(40):
        data += batch(2, base_offset=2 * number, producer=(5, 0, 2 * number))
    keeper.log.append_as_follower(data, now_ms=NOW_MS)
    assert len(keeper.log.segments) > 3
    assert [record.offset for record in keeper.records()] == list(range(80))
    producer = keeper.log.producers.get(5)
    assert producer is not None
    assert producer.last_sequence == 79


# ---------------------------------------------------------------- a disk that fails


def test_an_append_that_fails_leaves_the_log_as_it_was() -> None:
    keeper = Keeper(SMALL)
    keeper.append(batch(2, producer=(5, 0, 0)))
    before = keeper.log.producers.get(5)
    keeper.disk.fail("write", code=errno.ENOSPC)
    with pytest.raises(OSError, match="No space left"):
        keeper.append(batch(2, producer=(5, 0, 2)), epoch=9)
    assert keeper.log.log_end_offset == 2
    assert keeper.log.epochs.latest == 0
    assert keeper.log.producers.get(5) == before
    assert keeper.append(batch(2, producer=(5, 0, 2))).first_offset == 2
    assert [record.offset for record in keeper.records()] == [0, 1, 2, 3]


def test_a_segment_that_cannot_be_made_fails_the_append_alone() -> None:
    for failing in range(6):
        keeper = Keeper(SMALL)
        while keeper.log.active.size < 900:
            keeper.append(batch(2, size=20, producer=(5, 0, keeper.log.log_end_offset)))
        end = keeper.log.log_end_offset
        keeper.disk.fail("write", path=_written_by_a_roll(keeper, end)[failing % 6], code=errno.ENOSPC)
        with pytest.raises(OSError, match="No space left"):
            keeper.append(batch(2, size=20, producer=(5, 0, end)))
        assert keeper.append(batch(2, size=20, producer=(5, 0, end))).first_offset == end
        assert [record.offset for record in keeper.records()] == list(range(end + 2))
        assert keeper.crash().log_end_offset == end + 2


def _written_by_a_roll(keeper: Keeper, end: int) -> list[str]:
    old, new = f"{PATH}/{0:020d}", f"{PATH}/{end:020d}"
    return [
        f"{new}.log",
        f"{old}.index",
        f"{old}.timeindex",
        f"{new}.producers",
        f"{new}.snapshot",
        f"{new}.log",
    ]


def test_control_batches_are_appended_for_coordinators() -> None:
    keeper = Keeper()
    keeper.append(marker(5, 0, is_commit=True), origin=Origin.COORDINATOR)
    data = read(keeper, 0)
    assert data.records is not None
    assert read_header(data.records.read()).is_control
