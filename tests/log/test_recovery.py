"""What a log says after a crash, and of rot: everything flushed, nothing torn, nothing hidden."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from log.support import NOW_MS, PATH, Keeper, batch

from moldau.log.config import LogConfig
from moldau.log.log import CorruptRange, Log
from moldau.model.errors import ErrorCode, KafkaError
from moldau.sim.disk import Survives

SMALL = LogConfig(segment_bytes=400, index_interval_bytes=100)
ONE_SEGMENT = LogConfig(index_interval_bytes=100)


def filled(config: LogConfig, *, flushed: int, unflushed: int = 0) -> Keeper:
    keeper = Keeper(config)
    for number in range(flushed):
        keeper.append(batch(3, timestamp=NOW_MS + number, size=10), epoch=number // 4)
    keeper.commit()
    for _ in range(unflushed):
        keeper.append(batch(3, size=10), epoch=100)
    return keeper


def offsets(keeper: Keeper) -> list[int]:
    return [record.offset for record in keeper.records()]


@given(
    flushed=st.integers(0, 12),
    unflushed=st.integers(0, 12),
    survives=st.sampled_from(Survives),
    seed=st.integers(0, 1 << 32),
)
def test_what_was_flushed_is_there_and_what_is_there_is_a_prefix(
    flushed: int, unflushed: int, survives: Survives, seed: int
) -> None:
    keeper = filled(SMALL, flushed=flushed, unflushed=unflushed)
    before = offsets(keeper)
    log = keeper.crash(survives, seed)
    found = offsets(keeper)
    assert found == before[: len(found)]
    assert 3 * flushed <= len(found) == log.log_end_offset
    assert log.corrupt_ranges == []
    assert all(start < log.log_end_offset for _, start in log.epochs)
    for offset in found:
        data = log.read(offset, bytes_max=1, end_limit=log.log_end_offset)
        assert data.records is not None
    assert log.flushed_end_offset == log.log_end_offset
    # What recovery says is durable by then.
    assert keeper.crash(Survives.NOTHING).log_end_offset == len(found)


def test_a_torn_end_is_cut_off_and_later_segments_with_it() -> None:
    keeper = filled(SMALL, flushed=2, unflushed=20)
    torn = keeper.log.segments[3]
    keeper.disk.flip_bit(f"{PATH}/{torn.base_offset:020d}.log", torn.size - 1)
    keeper.crash()
    assert keeper.log.log_end_offset < torn.base_offset + 12
    assert offsets(keeper) == list(range(keeper.log.log_end_offset))
    assert keeper.log.recovery_report.segments_removed > 0
    assert keeper.log.recovery_report.bytes_cut > 0


def test_a_clean_start_reads_no_batch_but_the_last() -> None:
    keeper = filled(ONE_SEGMENT, flushed=500)
    keeper.restart()
    operations: list[object] = []
    keeper.disk.on_operation = operations.append
    reads: list[int] = []
    opened = keeper.disk.open

    def counting(path: str, *, create: bool = False) -> object:
        file = opened(path, create=create)
        original = file.read

        def read(position: int, size: int) -> bytes:
            reads.append(size)
            return original(position, size)

        file.read = read  # type: ignore[method-assign]
        return file

    keeper.disk.open = counting  # type: ignore[method-assign, assignment]
    keeper.log = keeper._open(is_clean=True)
    assert keeper.log.log_end_offset == 1500
    assert operations == []
    assert len(reads) <= 8


# ---------------------------------------------------------------- rot


@pytest.mark.parametrize("position_in_batch", [0, 8, 11, 16, 17, 23, 60, 80])
@pytest.mark.parametrize("damaged", [0, 4, 9])
def test_damage_below_the_recovery_point_is_reported_and_the_rest_is_served(
    damaged: int, position_in_batch: int
) -> None:
    keeper = filled(ONE_SEGMENT, flushed=10)
    size = keeper.log.active.size // 10
    keeper.disk.flip_bit(f"{PATH}/{0:020d}.log", damaged * size + position_in_batch, bit=6)
    log = keeper.crash()
    assert log.corrupt_ranges == [CorruptRange(3 * damaged, 3 * damaged + 3)]
    assert log.log_end_offset == 30
    for offset in range(30):
        if offset // 3 == damaged:
            with pytest.raises(KafkaError) as refused:
                log.read(offset, bytes_max=1000, end_limit=30)
            assert refused.value.code is ErrorCode.CORRUPT_MESSAGE
        else:
            data = log.read(offset, bytes_max=1 << 20, end_limit=30)
            assert data.records is not None
            assert data.end_offset == (3 * damaged if offset < 3 * damaged else 30)
    assert keeper.append(batch(1)).first_offset == 30
    keeper.flush()
    assert keeper.crash().log_end_offset == 31


def test_a_read_that_is_too_small_for_its_first_batch_does_not_take_the_damage_behind_it_along() -> None:
    keeper = filled(ONE_SEGMENT, flushed=10)
    size = keeper.log.active.size // 10
    keeper.disk.flip_bit(f"{PATH}/{0:020d}.log", 4 * size + 80)
    data = keeper.crash().read(9, bytes_max=1, end_limit=30)
    assert data.records is not None
    assert (data.records.size, data.end_offset) == (size, 12)


def test_damage_over_several_batches_is_one_range() -> None:
    keeper = filled(ONE_SEGMENT, flushed=10)
    size = keeper.log.active.size // 10
    keeper.disk.open(f"{PATH}/{0:020d}.log").write_at(2 * size + 9, bytes(3 * size))
    assert keeper.crash().corrupt_ranges == [CorruptRange(6, 18)]


def test_bytes_that_were_flushed_and_are_missing_are_damage_too() -> None:
    keeper = filled(ONE_SEGMENT, flushed=10)
    size = keeper.log.active.size // 10
    keeper.disk.open(f"{PATH}/{0:020d}.log").truncate(7 * size)
    log = keeper.crash()
    assert log.corrupt_ranges == [CorruptRange(21, 30)]
    assert keeper.append(batch(1)).first_offset == 30


def test_a_damaged_log_is_not_compacted() -> None:
    keeper = filled(ONE_SEGMENT, flushed=10)
    keeper.disk.flip_bit(f"{PATH}/{0:020d}.log", 70)
    keeper.crash()
    keeper.log.roll()
    before = keeper.names(".log")
    keeper.compact()
    assert keeper.names(".log") == before
    assert keeper.log.corrupt_ranges == [CorruptRange(0, 3)]


def test_a_header_that_rotted_in_a_log_closed_cleanly_fails_the_read() -> None:
    keeper = filled(ONE_SEGMENT, flushed=10)
    keeper.restart()
    keeper.disk.flip_bit(f"{PATH}/{0:020d}.log", 16)
    with pytest.raises(KafkaError) as refused:
        keeper.log.read(1, bytes_max=1000, end_limit=30)
    assert refused.value.code is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("position_in_batch", [8, 16, 23, 60, 80])
def test_damage_right_before_the_recovery_point_leaves_what_was_written_after_it(
    position_in_batch: int,
) -> None:
    """Found by seed 62 of the broker's scenario: the log ended at the damage."""
    keeper = filled(ONE_SEGMENT, flushed=10, unflushed=5)
    size = keeper.log.active.size // 15
    keeper.disk.flip_bit(f"{PATH}/{0:020d}.log", 9 * size + position_in_batch, bit=6)
    log = keeper.crash()
    assert log.corrupt_ranges == [CorruptRange(27, 30)]
    assert log.log_end_offset == 45
    data = log.read(30, bytes_max=1 << 20, end_limit=45)
    assert data.records is not None and data.end_offset == 45


@pytest.mark.parametrize("position_in_batch", [0, 8, 16, 26])
@pytest.mark.parametrize("damaged", [7, 9])
def test_a_log_that_was_closed_and_has_rotted_at_its_end_is_verified_after_all(
    damaged: int, position_in_batch: int
) -> None:
    """Found by seed 167 of the broker's scenario: the node did not start any more."""
    keeper = filled(ONE_SEGMENT, flushed=10)
    size = keeper.log.active.size // 10
    keeper.restart()
    keeper.disk.flip_bit(f"{PATH}/{0:020d}.log", damaged * size + position_in_batch, bit=6)
    log = keeper.log = keeper._open(is_clean=True)
    assert log.corrupt_ranges in ([], [CorruptRange(3 * damaged, 3 * damaged + 3)])
    assert log.log_end_offset == 30
    assert keeper.append(batch(1)).first_offset == 30


def test_a_log_that_rots_while_it_is_open_can_be_closed() -> None:
    keeper = filled(ONE_SEGMENT, flushed=10)
    log = keeper.restart()
    keeper.disk.flip_bit(f"{PATH}/{0:020d}.log", log.active.size - log.active.size // 10 + 16)
    assert keeper.restart().corrupt_ranges == [CorruptRange(27, 30)]
    assert keeper.append(batch(1)).first_offset == 30


def scrub(log: Log) -> list[CorruptRange]:
    found = []
    while (work := log.begin_scrub()) is not None:
        found += log.scrubbed(work, work.carry_out())
    return found


@pytest.mark.parametrize("position_in_batch", [8, 16, 26, 60, 80])
def test_a_scrub_finds_what_nobody_has_verified_and_the_rest_is_served(position_in_batch: int) -> None:
    """Found by seed 52 of the broker's scenario: a batch that claims too many offsets hides others."""
    keeper = filled(SMALL, flushed=12)
    log = keeper.restart()
    assert [segment.base_offset for segment in log.segments] == [0, 9, 18, 27]
    damaged = 4
    keeper.disk.flip_bit(f"{PATH}/{9:020d}.log", log.segments[1].size // 3 + position_in_batch, bit=4)
    assert scrub(log) == [CorruptRange(3 * damaged, 3 * damaged + 3)] == log.corrupt_ranges
    assert scrub(log) == []
    for offset in range(36):
        if offset // 3 == damaged:
            with pytest.raises(KafkaError) as refused:
                log.read(offset, bytes_max=1000, end_limit=36)
            assert refused.value.code is ErrorCode.CORRUPT_MESSAGE
        else:
            data = log.read(offset, bytes_max=1, end_limit=36)
            assert data.records is not None and data.end_offset == offset - offset % 3 + 3


def test_a_scrub_of_a_segment_that_is_deleted_meanwhile_changes_nothing() -> None:
    keeper = filled(SMALL, flushed=12)
    log = keeper.restart()
    work = log.begin_scrub()
    assert work is not None
    log.advance_log_start(9)
    assert log.delete_segments(NOW_MS) == 1
    assert log.scrubbed(work, work.carry_out()) == []
    assert scrub(log) == []


# ---------------------------------------------------------------- leftovers


def test_leftovers_of_what_was_not_finished_are_removed() -> None:
    keeper = filled(SMALL, flushed=10)
    leftovers = [
        "00000000000000000000.log.cleaned",
        "00000000000000000000.index.cleaned",
        "00000000000000000003.timeindex.swap",
        "00000000000000000003.log.deleted",
        "leader-epoch-checkpoint.1.tmp",
        "00000000000000000777.index",
        "00000000000000000777.snapshot",
    ]
    for name in leftovers:
        keeper.disk.open(f"{PATH}/{name}", create=True).append((b"x",))
    keeper.crash()
    assert not set(leftovers) & set(keeper.names())
    assert offsets(keeper) == list(range(30))


def test_a_file_of_somebody_else_is_left_alone() -> None:
    keeper = filled(SMALL, flushed=3)
    keeper.disk.open(f"{PATH}/notes.log", create=True).append((b"x",))
    keeper.crash()
    assert "notes.log" in keeper.names()


def test_the_directory_of_a_new_log_survives_with_its_first_flush() -> None:
    keeper = filled(SMALL, flushed=1)
    assert keeper.crash(Survives.NOTHING).log_end_offset == 3
