"""Cutting off what another leader never had, and starting anew."""

import pytest
from log.support import NOW_MS, Keeper, batch

from moldau.log.config import LogConfig
from moldau.log.segment import TimedOffset
from moldau.sim.disk import Survives

SMALL = LogConfig(segment_bytes=400, index_interval_bytes=100)


def filled(count: int = 20) -> Keeper:
    """Batches of three records: 0-2, 3-5, ..."""
    keeper = Keeper(SMALL)
    for number in range(count):
        keeper.append(batch(3, timestamp=NOW_MS + number, size=10), epoch=number // 5)
    keeper.flush()
    return keeper


@pytest.mark.parametrize("offset", range(0, 61, 3))
def test_a_log_ends_where_it_is_truncated(offset: int) -> None:
    keeper = filled()
    keeper.truncate(offset)
    assert keeper.log.log_end_offset == offset
    assert [record.offset for record in keeper.records()] == list(range(offset))
    assert [epoch for epoch, _ in keeper.log.epochs] == sorted({base // 15 for base in range(0, offset, 3)})
    newest = keeper.log.offset_of_max_timestamp()
    assert newest == (
        TimedOffset(offset - 3, NOW_MS + offset // 3 - 1, (offset - 3) // 15) if offset else None
    )
    result = keeper.append(batch(2), epoch=9)
    assert result.first_offset == offset
    keeper.flush()
    assert keeper.crash(Survives.NOTHING).log_end_offset == offset + 2
    assert [record.offset for record in keeper.records()] == list(range(offset + 2))


def test_a_batch_that_would_be_split_goes_as_a_whole() -> None:
    keeper = filled()
    keeper.truncate(31)
    assert keeper.log.log_end_offset == 30
    assert keeper.restart().log_end_offset == 30


@pytest.mark.parametrize("offset", range(63))
def test_where_a_truncation_will_end_is_known_before(offset: int) -> None:
    keeper = filled()
    expected = keeper.log.end_after_truncation(offset)
    keeper.truncate(offset)
    assert keeper.log.log_end_offset == expected == min(offset - offset % 3, 60)
    assert not keeper.crash(Survives.NOTHING).corrupt_ranges


def test_beyond_the_end_there_is_nothing_to_truncate() -> None:
    keeper = filled()
    keeper.truncate(1000)
    assert keeper.log.log_end_offset == 60


def test_the_high_watermark_and_what_was_flushed_fall_with_the_end() -> None:
    keeper = filled()
    keeper.commit()
    keeper.log.truncate_to(30)
    assert keeper.log.high_watermark == keeper.log.flushed_end_offset == keeper.log.recovery_point == 30


def test_a_flush_begun_before_a_truncation_does_not_count() -> None:
    keeper = filled()
    keeper.append(batch(3))
    work = keeper.log.begin_flush()
    keeper.log.truncate_to(30)
    keeper.disk.flush_blocking(work.flush)
    keeper.log.flushed(work)
    assert keeper.log.flushed_end_offset == 30
    with pytest.raises(AssertionError, match="flushed before"):
        keeper.append(batch(1))
    keeper.flush()
    assert keeper.append(batch(1)).first_offset == 30


def test_a_truncated_log_can_be_truncated_again_and_grow_into_new_segments() -> None:
    keeper = filled()
    for offset in (45, 30, 6):
        keeper.truncate(offset)
        for _ in range(10):
            keeper.append(batch(3, size=10))
        keeper.flush()
    assert [record.offset for record in keeper.records()] == list(range(36))
    assert keeper.crash().log_end_offset == 36


@pytest.mark.parametrize("offset", [0, 17, 60, 500])
def test_a_log_can_be_emptied_and_start_anywhere(offset: int) -> None:
    keeper = filled()
    keeper.commit()
    keeper.recovery_point = 0
    keeper.log.truncate_fully(offset)
    keeper.flush()
    log = keeper.log
    assert (
        log.log_start_offset == log.log_end_offset == log.high_watermark == log.flushed_end_offset == offset
    )
    assert list(log.epochs) == []
    assert len(keeper.names(".log")) == 1
    keeper.append(batch(2), epoch=3)
    keeper.flush()
    keeper.restart()
    assert (keeper.log.log_start_offset, keeper.log.log_end_offset) == (offset, offset + 2)


def test_truncating_below_the_first_segment_starts_there() -> None:
    keeper = Keeper()
    keeper.log.truncate_fully(100)
    keeper.flush()
    keeper.append(batch(3))
    keeper.truncate(40)
    assert (keeper.log.log_start_offset, keeper.log.log_end_offset) == (40, 40)
