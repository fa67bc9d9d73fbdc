"""What clients depend on in how logs age: compaction, tombstones, retention, deleted records, and holes."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from node.broker import TOPIC, Broker, OtherBroker, answer, batch, batch_of, batches, headers

from moldau.model.errors import ErrorCode
from moldau.wire.messages.offsets import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from moldau.wire.records.compression import Codec
from moldau.wire.records.record import Record

HOUSEKEEPING = {"log.cleaner.backoff.ms": "500", "log.retention.check.interval.ms": "500"}
COMPACTED = {"cleanup.policy": "compact", "segment.ms": "1000", "min.cleanable.dirty.ratio": "0.01"}
NEVER_BY_RATIO = {"min.cleanable.dirty.ratio": "1.0"}
LATEST, EARLIEST = -1, -2
HOUR_MS = 3_600_000
RESTARTS = (Broker.restart, Broker.crash)


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(HOUSEKEEPING) as broker:
        yield broker


def close_segment(broker: Broker) -> int:
    """Let what was written so far be in segments that are complete; gives the offset at which they end."""
    broker.run_for(2_000)
    return broker.put((b"the active segment's", b"value"))


def compact(broker: Broker) -> None:
    """Have all that was written so far compacted."""
    end = close_segment(broker)
    broker.run_until(lambda: broker.log().cleaned_end_offset >= end and not broker.log().is_swapping)


def pairs(broker: Broker) -> list[tuple[int, bytes | None, bytes | None]]:
    """Offsets, keys and values of what can be read, save what only closes segments."""
    return [
        (record.offset, record.key, record.value)
        for record in broker.records()
        if record.key != b"the active segment's"
    ]


def files(broker: Broker, suffix: str) -> list[str]:
    """The names of the partition's files that end so."""
    return [name for name in broker.log().disk.list(f"{TOPIC}-0") if name.endswith(suffix)]


# ---------------------------------------------------------------- compaction


@pytest.mark.behaviour(75)
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_of_each_key_the_newest_record_stays_at_its_offset_and_in_its_place(
    broker: Broker, codec: Codec
) -> None:
    broker.create_topic(settings=COMPACTED)
    written = []
    for first, keys in enumerate(["abca", "bd", "dce"]):
        records = [
            Record(at, broker.wall_ms + at, key.encode(), b"%d" % first) for at, key in enumerate(keys)
        ]
        assert broker.produce(batch_of(records, codec=codec)).error_code == ErrorCode.NONE
        written += [(record.key, record.value, record.timestamp) for record in records]
    compact(broker)
    kept = {
        offset: (record.key, record.value, record.timestamp) for offset, record in by_offset(broker).items()
    }
    newest = sorted({key: offset for offset, (key, _, _) in enumerate(written)}.values())
    assert newest == [3, 4, 6, 7, 8]
    assert [offset for offset in kept if offset < len(written)] == newest
    assert [kept[offset] for offset in newest] == [written[offset] for offset in newest]


def by_offset(broker: Broker) -> dict[int, Record]:
    return {record.offset: record for record in broker.records()}


@pytest.mark.behaviour(75)
def test_a_later_round_supersedes_what_an_earlier_one_kept(broker: Broker) -> None:
    broker.create_topic(settings=COMPACTED)
    broker.put((b"a", b"1"), (b"b", b"1"))
    compact(broker)
    assert pairs(broker) == [(0, b"a", b"1"), (1, b"b", b"1")]
    offset = broker.put((b"a", b"2"))
    compact(broker)
    assert pairs(broker) == [(1, b"b", b"1"), (offset, b"a", b"2")]


@pytest.mark.behaviour(75)
def test_the_active_segment_is_left_alone_and_supersedes_nothing(broker: Broker) -> None:
    broker.create_topic(settings=COMPACTED)
    broker.put((b"a", b"1"), (b"a", b"2"))
    broker.run_for(2_000)
    broker.put((b"a", b"3"), (b"a", b"4"))
    broker.run_until(lambda: broker.log().cleaned_end_offset == 2)
    broker.run_for(5_000)
    assert pairs(broker) == [(1, b"a", b"2"), (2, b"a", b"3"), (3, b"a", b"4")]


@pytest.mark.behaviour(75)
def test_nothing_is_compacted_that_is_not_committed(broker: Broker) -> None:
    OtherBroker(broker).heartbeat()
    broker.create_topic(brokers=[1, 2], settings=COMPACTED)
    for _ in range(3):
        record = Record(0, broker.wall_ms, b"a", b"x")
        assert broker.produce(batch_of([record]), acks=1).error_code == ErrorCode.NONE
        broker.run_for(1_500)
    log = broker.log()
    assert len(log.segments) == 3
    assert (log.high_watermark, log.cleaned_end_offset) == (0, 0)
    # Its follower is given up, and what was written is committed.
    broker.run_until(lambda: log.high_watermark == 3)
    broker.run_until(lambda: log.cleaned_end_offset == 2)
    assert [offset for offset, _, _ in pairs(broker)] == [1, 2]


@pytest.mark.behaviour(75)
@pytest.mark.honours("min.compaction.lag.ms")
def test_what_is_too_young_is_left_alone(broker: Broker) -> None:
    broker.create_topic(settings=COMPACTED | {"min.compaction.lag.ms": "20000"})
    broker.put((b"a", b"1"), (b"a", b"2"))
    written_ms = broker.now_ms
    close_segment(broker)
    broker.run_until(lambda: broker.log().cleaned_end_offset == 2)
    assert 20_000 <= broker.now_ms - written_ms < 21_000
    assert pairs(broker) == [(1, b"a", b"2")]


@pytest.mark.behaviour(75)
@pytest.mark.honours("min.cleanable.dirty.ratio")
def test_a_log_is_compacted_when_enough_of_it_is_dirty(broker: Broker) -> None:
    broker.create_topic(settings=COMPACTED | {"min.cleanable.dirty.ratio": "0.5"})
    broker.put(*((b"key %d" % at, b"x" * 100) for at in range(20)))
    compact(broker)
    cleaned = broker.log().cleaned_end_offset
    # A little more is less than half of the log.
    broker.put((b"key 0", b"y"))
    close_segment(broker)
    broker.run_for(10_000)
    assert broker.log().cleaned_end_offset == cleaned
    assert (0, b"key 0", b"x" * 100) in pairs(broker)
    broker.put(*((b"key %d" % at, b"y" * 200) for at in range(20)))
    compact(broker)
    assert [value for _, _, value in pairs(broker)] == [b"y" * 200] * 20


@pytest.mark.behaviour(75)
@pytest.mark.honours("max.compaction.lag.ms")
def test_a_log_is_compacted_when_something_was_dirty_for_too_long(broker: Broker) -> None:
    broker.create_topic(settings=COMPACTED | NEVER_BY_RATIO | {"max.compaction.lag.ms": "15000"})
    broker.put((b"a", b"1"), (b"a", b"2"))
    written_ms = broker.now_ms
    close_segment(broker)
    broker.run_until(lambda: broker.log().cleaned_end_offset == 2)
    assert 15_000 <= broker.now_ms - written_ms < 16_000
    assert pairs(broker) == [(1, b"a", b"2")]


@pytest.mark.behaviour(75)
@pytest.mark.parametrize("restart", RESTARTS)
def test_the_last_batch_of_a_round_stays_even_if_it_is_empty_and_so_does_the_end(
    broker: Broker, restart: Callable[[Broker], None]
) -> None:
    broker.create_topic(settings=COMPACTED | {"segment.bytes": str(1 << 20)})
    broker.put((b"a", b"1"))
    broker.put((b"b", b"1"))
    # A segment that cannot be put together with the one before it.
    broker.put((b"b", b"x" * 1_048_490))
    compact(broker)
    end = broker.log().log_end_offset
    emptied = headers(broker.fetch(0))
    assert [(each.base_offset, each.next_offset, each.count) for each in emptied] == [(0, 1, 1), (1, 2, 0)]
    assert [offset for offset, _, _ in pairs(broker)] == [0, 2]
    restart(broker)
    broker.run_until(lambda: broker.log().high_watermark == end)
    assert broker.log().log_end_offset == end
    assert headers(broker.fetch(0)) == emptied
    assert [offset for offset, _, _ in pairs(broker)] == [0, 2]


@pytest.mark.behaviour(75)
@pytest.mark.honours("log.cleaner.backoff.ms")
def test_how_often_logs_to_compact_are_looked_for_changes_while_the_broker_runs() -> None:
    with Broker({"log.cleaner.backoff.ms": "20000"}) as broker:
        broker.create_topic(settings=COMPACTED)
        broker.put((b"a", b"1"), (b"a", b"2"))
        close_segment(broker)
        broker.run_until(lambda: broker.log().cleaned_end_offset == 2)
        assert 20_000 <= broker.now_ms < 21_000
        assert broker.alter(4, "", ("log.cleaner.backoff.ms", 0, "500")) == ErrorCode.NONE
        # It holds from the next look on.
        broker.run_for(20_000)
        broker.put((b"a", b"3"))
        end = close_segment(broker)
        closed_ms = broker.now_ms
        broker.run_until(lambda: broker.log().cleaned_end_offset == end)
        assert broker.now_ms - closed_ms <= 600


# ---------------------------------------------------------------- tombstones


@pytest.mark.behaviour(76)
@pytest.mark.honours("delete.retention.ms")
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_a_tombstone_is_stamped_in_one_round_and_removed_in_one_after_its_horizon(
    broker: Broker, codec: Codec
) -> None:
    broker.create_topic(settings=COMPACTED | {"delete.retention.ms": "30000"})
    broker.put((b"a", b"1"))
    written_ms = broker.wall_ms
    records = [Record(0, written_ms, b"a", None), Record(1, written_ms + 7, b"b", b"1")]
    assert broker.produce(batch_of(records, codec=codec)).error_code == ErrorCode.NONE
    assert headers(broker.fetch(1))[0].delete_horizon_ms is None
    compact(broker)
    assert pairs(broker) == [(1, b"a", None), (2, b"b", b"1")]
    stamped = headers(broker.fetch(1))[0]
    horizon_ms = stamped.delete_horizon_ms
    assert horizon_ms is not None
    # It counts from the round on, not from when the tombstone was written.
    assert written_ms + 2_000 + 30_000 <= horizon_ms <= broker.wall_ms + 30_000
    assert stamped.attributes & (1 << 6)
    assert stamped.base_timestamp == horizon_ms
    assert [by_offset(broker)[offset].timestamp for offset in (1, 2)] == [written_ms, written_ms + 7]
    # Rounds before that time leave it, and its horizon.
    broker.put((b"c", b"1"))
    compact(broker)
    assert pairs(broker)[:2] == [(1, b"a", None), (2, b"b", b"1")]
    assert headers(broker.fetch(1))[0].delete_horizon_ms == horizon_ms
    broker.run_for(horizon_ms - broker.wall_ms)
    assert pairs(broker)[0] == (1, b"a", None)
    broker.put((b"c", b"2"))
    compact(broker)
    assert [key for _, key, _ in pairs(broker)] == [b"b", b"c"]


@pytest.mark.behaviour(76)
def test_a_tombstone_that_is_superseded_goes_at_once(broker: Broker) -> None:
    broker.create_topic(settings=COMPACTED)
    broker.put((b"a", None))
    broker.put((b"a", b"back"))
    compact(broker)
    assert pairs(broker) == [(1, b"a", b"back")]


# ---------------------------------------------------------------- retention


@pytest.mark.behaviour(77)
@pytest.mark.honours("retention.ms")
def test_segments_go_when_their_newest_record_is_too_old_whenever_they_were_written(broker: Broker) -> None:
    broker.create_topic(settings={"retention.ms": str(HOUR_MS), "segment.ms": "1000"})
    now_ms = broker.wall_ms
    # Their files are as new as those of the others.
    for age_ms in (3 * HOUR_MS, 2 * HOUR_MS, 0):
        records = [Record(0, now_ms - age_ms, None, b"x"), Record(1, now_ms - age_ms - 500, None, b"x")]
        assert broker.produce(batch_of(records)).error_code == ErrorCode.NONE
    assert len(broker.log().segments) == 3
    broker.run_until(lambda: broker.log().log_start_offset == 4)
    broker.run_for(HOUR_MS - 10_000)
    assert broker.list_offset(EARLIEST).offset == 4
    broker.run_for(20_000)
    assert broker.list_offset(EARLIEST).offset == broker.list_offset(LATEST).offset == 6
    # The log goes on where it was.
    assert broker.append([b"more"]) == 6


@pytest.mark.behaviour(77)
def test_one_new_record_keeps_its_whole_segment_and_all_behind_it(broker: Broker) -> None:
    broker.create_topic(settings={"retention.ms": str(HOUR_MS), "segment.ms": "1000"})
    now_ms = broker.wall_ms
    for ages_ms in [(3 * HOUR_MS,), (2 * HOUR_MS, 0), (9 * HOUR_MS,)]:
        records = [Record(at, now_ms - age_ms, None, b"x") for at, age_ms in enumerate(ages_ms)]
        assert broker.produce(batch_of(records)).error_code == ErrorCode.NONE
        broker.log().roll()
    broker.run_until(lambda: broker.log().log_start_offset == 1)
    broker.run_for(10_000)
    assert [record.offset for record in broker.records(offset=1)] == [1, 2, 3]


@pytest.mark.behaviour(77)
@pytest.mark.honours("retention.bytes")
def test_the_oldest_segments_go_while_the_rest_is_large_enough(broker: Broker) -> None:
    size = len(batch([b"x" * 900_000]))
    broker.create_topic(settings={"segment.bytes": str(1 << 20), "retention.bytes": str(2 * size)})
    for _ in range(5):
        broker.append([b"x" * 900_000])
    assert len(broker.log().segments) == 5
    broker.run_until(lambda: broker.log().log_start_offset == 3)
    broker.run_for(10_000)
    assert broker.list_offset(EARLIEST).offset == 3
    assert broker.log().size_bytes == 2 * size
    assert ErrorCode(broker.fetch(2).error_code) is ErrorCode.OFFSET_OUT_OF_RANGE
    # A segment goes only if what is left is no smaller than was asked for.
    assert broker.alter(2, TOPIC, ("retention.bytes", 0, str(size + 1))) == ErrorCode.NONE
    broker.run_for(10_000)
    assert broker.list_offset(EARLIEST).offset == 3
    assert broker.alter(2, TOPIC, ("retention.bytes", 0, str(size))) == ErrorCode.NONE
    broker.run_until(lambda: broker.log().log_start_offset == 4)


@pytest.mark.behaviour(77)
@pytest.mark.parametrize("limits", [{"retention.ms": "1000"}, {"retention.ms": "-1", "retention.bytes": "0"}])
def test_nothing_goes_that_is_not_committed(broker: Broker, limits: dict[str, str]) -> None:
    OtherBroker(broker).heartbeat()
    broker.create_topic(brokers=[1, 2], settings=limits | {"segment.ms": "500"})
    for _ in range(3):
        records = batch([b"x"], timestamp=broker.wall_ms)
        assert broker.produce(records, acks=1).error_code == ErrorCode.NONE
        broker.run_for(1_000)
    broker.run_for(2_000)
    log = broker.log()
    assert (log.high_watermark, log.log_start_offset, len(log.segments)) == (0, 0, 3)
    broker.run_until(lambda: log.high_watermark == 3)
    broker.run_until(lambda: log.log_start_offset == 3)


@pytest.mark.behaviour(77)
@pytest.mark.honours("file.delete.delay.ms")
def test_the_start_moves_first_and_the_files_go_later(broker: Broker) -> None:
    broker.create_topic(
        settings={"retention.ms": "3000", "segment.ms": "1000", "file.delete.delay.ms": "15000"}
    )
    broker.append([b"old"])
    close_segment(broker)
    broker.run_until(lambda: broker.log().log_start_offset == 1)
    moved_ms = broker.now_ms
    assert broker.list_offset(EARLIEST).offset == 1
    (aside,) = files(broker, ".log.deleted")
    assert aside.startswith("0" * 20)
    assert "0" * 20 + ".log" not in files(broker, ".log")
    broker.run_until(lambda: aside not in files(broker, ".deleted"))
    assert 15_000 <= broker.now_ms - moved_ms < 16_000


@pytest.mark.behaviour(77)
def test_files_go_after_a_minute_if_the_topic_says_nothing(broker: Broker) -> None:
    broker.create_topic(settings={"retention.ms": "3000", "segment.ms": "1000"})
    broker.append([b"old"])
    close_segment(broker)
    broker.run_until(lambda: broker.log().log_start_offset == 1)
    (aside,) = files(broker, ".log.deleted")
    broker.run_for(59_000)
    assert aside in files(broker, ".deleted")
    broker.run_for(2_000)
    assert aside not in files(broker, ".deleted")


@pytest.mark.behaviour(77)
@pytest.mark.honours("cleanup.policy")
def test_a_topic_is_compacted_or_shortened_or_both(broker: Broker) -> None:
    policies = {"compacted": "compact", "shortened": "delete", "both": "compact,delete"}
    for name, policy in policies.items():
        broker.create_topic(name, settings=COMPACTED | {"cleanup.policy": policy, "retention.ms": "10000"})
        broker.put((b"a", b"1"), (b"a", b"2"), topic=name)
    broker.run_for(2_000)
    for name in policies:
        broker.put((b"a", b"3"), topic=name)
    broker.run_for(2_000)
    offsets = {name: [record.offset for record in broker.records(name)] for name in policies}
    assert offsets == {"compacted": [1, 2], "shortened": [0, 1, 2], "both": [1, 2]}
    broker.run_for(30_000)
    starts = {name: broker.list_offset(EARLIEST, name).offset for name in policies}
    assert starts == {"compacted": 0, "shortened": 3, "both": 3}


@pytest.mark.behaviour(77)
@pytest.mark.honours("log.retention.check.interval.ms")
@pytest.mark.parametrize("interval_ms", [2_000, 30_000])
def test_how_often_segments_to_delete_are_looked_for(interval_ms: int) -> None:
    with Broker({"log.retention.check.interval.ms": str(interval_ms)}) as broker:
        broker.create_topic(settings={"retention.ms": str(HOUR_MS)})
        old = broker.wall_ms - 2 * HOUR_MS
        assert broker.produce(batch([b"x"], timestamp=old)).error_code == ErrorCode.NONE
        broker.run_until(lambda: broker.log().log_start_offset == 1)
        assert interval_ms <= broker.now_ms < interval_ms + 1_000


# ---------------------------------------------------------------- deleting records


def delete_records(
    broker: Broker, offset: int, *, partition: int = 0, topic: str = TOPIC
) -> tuple[ErrorCode, int]:
    """Delete what is before an offset; gives what came of it, and where the log starts then."""
    asked = DeleteRecordsTopic(
        name=topic, partitions=[DeleteRecordsPartition(partition_index=partition, offset=offset)]
    )
    response = answer(
        broker.ask(DeleteRecordsRequest(topics=[asked], timeout_ms=10_000)), DeleteRecordsResponse
    )
    (result,) = response.topics[0].partitions
    return ErrorCode(result.error_code), result.low_watermark


@pytest.mark.behaviour(78)
def test_records_before_an_offset_are_gone_at_once(broker: Broker) -> None:
    broker.create_topic()
    broker.append([b"%d" % at for at in range(6)])
    assert delete_records(broker, 4) == (ErrorCode.NONE, 4)
    assert broker.list_offset(EARLIEST).offset == 4
    assert broker.fetch(4).log_start_offset == 4
    assert ErrorCode(broker.fetch(3).error_code) is ErrorCode.OFFSET_OUT_OF_RANGE
    assert [record.value for record in broker.records(offset=4)] == [b"4", b"5"]
    # What is gone already stays gone.
    assert delete_records(broker, 2) == (ErrorCode.NONE, 4)
    # The whole log, up to its high watermark.
    assert delete_records(broker, -1) == (ErrorCode.NONE, 6)
    assert broker.list_offset(EARLIEST).offset == 6
    assert broker.append([b"next"]) == 6


@pytest.mark.behaviour(78)
def test_only_committed_records_can_be_deleted(broker: Broker) -> None:
    OtherBroker(broker).heartbeat()
    broker.create_topic(brokers=[1, 2])
    assert broker.produce(batch([b"a", b"b"]), acks=1).error_code == ErrorCode.NONE
    assert delete_records(broker, 1) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert delete_records(broker, -1) == (ErrorCode.NONE, 0)
    broker.run_until(lambda: broker.log().high_watermark == 2)
    assert delete_records(broker, 3) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert delete_records(broker, -2) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert delete_records(broker, -1) == (ErrorCode.NONE, 2)


@pytest.mark.behaviour(78)
@pytest.mark.parametrize(
    ("policy", "code"),
    [
        ("delete", ErrorCode.NONE),
        ("compact,delete", ErrorCode.NONE),
        ("compact", ErrorCode.POLICY_VIOLATION),
    ],
)
def test_only_topics_that_delete_let_records_be_deleted(broker: Broker, policy: str, code: ErrorCode) -> None:
    broker.create_topic(settings={"cleanup.policy": policy})
    broker.put((b"a", b"1"), (b"b", b"1"))
    assert delete_records(broker, 1) == (code, 1 if code is ErrorCode.NONE else -1)
    assert broker.list_offset(EARLIEST).offset == (1 if code is ErrorCode.NONE else 0)


@pytest.mark.behaviour(78)
def test_what_is_not_here_cannot_be_deleted_from(broker: Broker) -> None:
    broker.create_topic()
    unknown = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
    assert delete_records(broker, 0, partition=1) == unknown
    assert delete_records(broker, 0, topic="missing") == unknown


@pytest.mark.behaviour(78)
@pytest.mark.parametrize("restart", RESTARTS)
def test_deleted_records_do_not_come_back(broker: Broker, restart: Callable[[Broker], None]) -> None:
    broker.create_topic()
    broker.append([b"a", b"b", b"c"])
    assert delete_records(broker, 2) == (ErrorCode.NONE, 2)
    restart(broker)
    broker.run_until(lambda: broker.log().high_watermark == 3)
    assert broker.list_offset(EARLIEST).offset == 2
    assert ErrorCode(broker.fetch(1).error_code) is ErrorCode.OFFSET_OUT_OF_RANGE
    assert [record.value for record in broker.records(offset=2)] == [b"c"]


# ---------------------------------------------------------------- holes


@pytest.mark.behaviour(79)
@pytest.mark.parametrize("restart", [None, *RESTARTS])
def test_in_a_hole_a_fetch_and_a_look_up_by_time_find_what_comes_after_it(
    broker: Broker, restart: Callable[[Broker], None] | None
) -> None:
    # Every batch is in the indexes, so that these have holes too.
    broker.create_topic(settings=COMPACTED | {"index.interval.bytes": "0"})
    times = []
    for number in range(60):
        # Every seventh record has a key of its own, and of the others only the last one stays.
        key = b"key %d" % number if number % 7 == 3 else b"often"
        times.append(broker.wall_ms)
        broker.put((key, b"%d" % number))
        broker.run_for(50)
    compact(broker)
    if restart is not None:
        restart(broker)
        broker.run_until(lambda: broker.log().high_watermark == 61)
    kept = [number for number in range(60) if number % 7 == 3 or number == 58]
    assert [offset for offset, _, _ in pairs(broker)] == kept
    for offset in range(60):
        expected = next(each for each in kept if each >= offset)
        data = broker.fetch(offset)
        assert data.error_code == ErrorCode.NONE
        found = next(record for each in batches(data) for record in each if record.offset >= offset)
        assert (found.offset, found.value) == (expected, b"%d" % expected)
        by_time = broker.list_offset(times[offset])
        assert (by_time.offset, by_time.timestamp) == (expected, times[expected])
