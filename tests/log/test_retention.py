"""Old segments go by age, by size and by DeleteRecords; never what is not committed."""

from dataclasses import replace

import pytest
from log.support import NOW_MS, Keeper, batch, settings

from moldau.log.config import LogConfig
from moldau.model.errors import ErrorCode, KafkaError

HOUR_MS = 60 * 60 * 1000


def hourly(config: LogConfig, hours: int = 6) -> Keeper:
    """A log with one segment an hour, each with one record; the last is of now."""
    keeper = Keeper(replace(config, segment_ms=HOUR_MS - 1))
    for hour in range(hours):
        keeper.append(batch(1, timestamp=NOW_MS - (hours - 1 - hour) * HOUR_MS, size=1000))
    keeper.commit()
    assert len(keeper.log.segments) == hours
    return keeper


@pytest.mark.honours("retention.ms")
def test_segments_go_when_their_newest_record_is_older_than_retention_ms() -> None:
    for text, start in (("-1", 0), (str(2 * HOUR_MS), 3), (str(4 * HOUR_MS), 1)):
        keeper = hourly(settings({"retention.ms": text}))
        assert keeper.apply_retention(NOW_MS) == start
        assert keeper.log.log_start_offset == start
        assert keeper.records()[0].offset == start


@pytest.mark.honours("retention.bytes")
def test_the_oldest_segments_go_while_enough_is_left_without_them() -> None:
    size = len(batch(1, size=1000))
    for text, start in (("-1", 0), (str(3 * size), 3), (str(3 * size + 1), 2)):
        keeper = hourly(settings({"retention.bytes": text, "retention.ms": "-1"}))
        keeper.apply_retention(NOW_MS)
        assert keeper.log.log_start_offset == start


@pytest.mark.honours("cleanup.policy")
def test_only_the_delete_policy_deletes_by_age() -> None:
    for text, start in (("delete", 5), ("compact", 0), ("compact,delete", 5)):
        keeper = hourly(settings({"cleanup.policy": text, "retention.ms": "1000"}))
        keeper.apply_retention(NOW_MS)
        assert keeper.log.log_start_offset == start


def test_nothing_goes_that_is_not_committed() -> None:
    keeper = Keeper(LogConfig(segment_bytes=100, retention_ms=1))
    keeper.append(*(batch(1, timestamp=1) for _ in range(6)))
    assert keeper.apply_retention(NOW_MS) == 0
    keeper.log.advance_high_watermark(3)
    keeper.apply_retention(NOW_MS)
    assert keeper.log.log_start_offset == 3


def test_even_the_last_segment_goes_and_the_log_goes_on_where_it_was() -> None:
    keeper = hourly(LogConfig(retention_ms=1000))
    keeper.apply_retention(NOW_MS + 2000)
    assert (keeper.log.log_start_offset, keeper.log.log_end_offset) == (6, 6)
    assert keeper.apply_retention(NOW_MS + 2000) == 0
    keeper.flush()
    assert (keeper.restart().log_start_offset, keeper.append(batch(1)).first_offset) == (6, 6)


def test_a_segment_without_timestamps_is_not_deleted_by_age() -> None:
    keeper = Keeper(LogConfig(segment_bytes=100, retention_ms=1))
    keeper.append(*(batch(1, timestamp=-1) for _ in range(3)))
    keeper.commit()
    assert keeper.apply_retention(NOW_MS) == 0


@pytest.mark.honours("file.delete.delay.ms")
def test_files_of_deleted_segments_stay_for_file_delete_delay_ms() -> None:
    for text, left_after_a_second in (("1000", 0), ("5000", 5)):
        keeper = hourly(settings({"file.delete.delay.ms": text, "retention.ms": "1000"}))
        keeper.apply_retention(NOW_MS)
        assert len(keeper.names(".log.deleted")) == 5
        assert keeper.names(".log") == ["00000000000000000005.log"]
        assert keeper.log.remove_deleted(NOW_MS + 999) == 0
        keeper.log.remove_deleted(NOW_MS + 1000)
        assert len(keeper.names(".log.deleted")) == left_after_a_second


def test_files_set_aside_are_gone_after_a_restart() -> None:
    keeper = hourly(LogConfig(retention_ms=1000))
    keeper.apply_retention(NOW_MS)
    keeper.restart()
    assert keeper.names(".deleted") == []


# ---------------------------------------------------------------- DeleteRecords


def test_records_are_deleted_up_to_any_committed_offset() -> None:
    keeper = hourly(LogConfig(is_deleted=False))
    keeper.append(batch(10))
    keeper.commit()
    keeper.log.advance_log_start(9)
    assert keeper.log.log_start_offset == 9
    assert keeper.apply_retention(NOW_MS) == 5
    assert keeper.log.segments[0].base_offset == 5
    keeper.flush()
    assert keeper.restart().log_start_offset == 9


def test_the_start_of_the_log_never_goes_back() -> None:
    keeper = hourly(LogConfig())
    keeper.log.advance_log_start(3)
    keeper.log.advance_log_start(1)
    assert keeper.log.log_start_offset == 3


def test_what_is_not_committed_cannot_be_deleted() -> None:
    keeper = Keeper()
    keeper.append(batch(5))
    with pytest.raises(KafkaError) as refused:
        keeper.log.advance_log_start(1)
    assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_log_whose_checkpoint_says_it_starts_beyond_its_end_starts_there() -> None:
    keeper = Keeper()
    keeper.append(batch(5))
    keeper.commit()
    keeper.log_start = 20
    keeper.crash()
    assert (keeper.log.log_start_offset, keeper.log.log_end_offset) == (20, 20)
    assert keeper.append(batch(1)).first_offset == 20


# ---------------------------------------------------------------- flushing


@pytest.mark.honours("flush.messages")
def test_a_flush_is_due_after_flush_messages_records() -> None:
    for text, is_due in (("3", True), ("4", False)):
        keeper = Keeper(settings({"flush.messages": text}))
        keeper.append(batch(2))
        assert not keeper.log.is_flush_due(NOW_MS)
        keeper.append(batch(1))
        assert keeper.log.is_flush_due(NOW_MS) == is_due
        keeper.log.begin_flush()
        assert not keeper.log.is_flush_due(NOW_MS)


@pytest.mark.honours("flush.ms")
def test_a_flush_is_due_flush_ms_after_the_first_append() -> None:
    for text, is_due in (("1000", True), ("1001", False)):
        keeper = Keeper(settings({"flush.ms": text}))
        assert not keeper.log.is_flush_due(NOW_MS + 5000)
        keeper.append(batch(1))
        keeper.now_ms += 900
        keeper.append(batch(1))
        assert not keeper.log.is_flush_due(NOW_MS + 999)
        assert keeper.log.is_flush_due(NOW_MS + 1000) == is_due


def test_a_flush_covers_what_was_there_when_it_was_begun() -> None:
    keeper = Keeper()
    keeper.append(batch(3))
    work = keeper.log.begin_flush()
    keeper.append(batch(2))
    keeper.disk.flush_blocking(work.flush)
    assert keeper.log.flushed_end_offset == 0
    keeper.log.flushed(work)
    assert keeper.log.flushed_end_offset == 3
    assert keeper.log.is_dirty


def test_a_log_with_nothing_new_has_nothing_to_flush() -> None:
    keeper = Keeper()
    keeper.append(batch(3))
    keeper.flush()
    assert not keeper.log.is_dirty
    assert not keeper.log.begin_flush().flush
