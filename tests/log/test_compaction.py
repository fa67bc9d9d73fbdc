"""Of every key the newest record stays, and no deletion, transaction or producer is forgotten early."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from log.support import NOW_MS, SECRET, Keeper, batch, marker, records_in, settings

from moldau.log.compaction import Compaction, Heavy, is_due, survey
from moldau.log.config import LogConfig
from moldau.log.producers import Origin
from moldau.sim.disk import PowerCut, Survives
from moldau.wire.records.compression import Codec
from moldau.wire.records.header import stamp_crc
from moldau.wire.records.record import Record

DAY_MS = 24 * 60 * 60 * 1000
COMPACT = LogConfig(is_compacted=True, is_deleted=False, dirty_ratio_min=0.0, delete_retention_ms=DAY_MS)
Pair = tuple[bytes | None, bytes | None]


def compacted_log(*pairs: Pair, config: LogConfig = COMPACT, codec: Codec = Codec.NONE) -> Keeper:
    """One record a batch, all in closed and committed segments."""
    keeper = Keeper(config)
    for pair in pairs:
        keeper.append(batch([pair], codec=codec))
    close_segment(keeper)
    return keeper


def close_segment(keeper: Keeper) -> None:
    keeper.commit()
    keeper.log.roll()
    keeper.flush()


def contents(keeper: Keeper) -> list[tuple[int, bytes | None, bytes | None]]:
    return [(record.offset, record.key, record.value) for record in keeper.records()]


# ---------------------------------------------------------------- what stays


@pytest.mark.parametrize("codec", Codec)
def test_the_newest_record_of_each_key_stays_at_its_offset(codec: Codec) -> None:
    keeper = Keeper(COMPACT)
    keeper.append(batch([(b"a", b"1"), (b"b", b"1"), (b"c", b"1")], codec=codec, timestamp=NOW_MS, step_ms=7))
    keeper.append(batch([(b"a", b"2"), (b"c", b"2")], codec=codec))
    close_segment(keeper)
    before = {record.offset: record for record in keeper.records()}
    keeper.compact()
    assert contents(keeper) == [(1, b"b", b"1"), (3, b"a", b"2"), (4, b"c", b"2")]
    assert keeper.records() == [before[1], before[3], before[4]]
    assert [(header.base_offset, header.last_offset, header.codec) for header in keeper.headers()] == [
        (0, 2, codec),
        (3, 4, codec),
    ]
    assert keeper.headers()[0].max_timestamp == NOW_MS + 7


def test_the_active_segment_is_left_alone() -> None:
    keeper = compacted_log((b"a", b"1"), (b"a", b"2"))
    keeper.append(batch([(b"a", b"3"), (b"a", b"4")]))
    keeper.commit()
    keeper.compact()
    assert contents(keeper) == [(1, b"a", b"2"), (2, b"a", b"3"), (3, b"a", b"4")]


def test_what_is_not_committed_is_left_alone() -> None:
    keeper = Keeper(COMPACT)
    keeper.append(batch([(b"a", b"1")]), batch([(b"a", b"2")]))
    keeper.log.roll()
    keeper.log.advance_high_watermark(1)
    keeper.compact()
    assert len(contents(keeper)) == 2


def test_a_later_round_compacts_what_an_earlier_one_left() -> None:
    keeper = compacted_log((b"a", b"1"), (b"b", b"1"))
    keeper.compact()
    assert keeper.log.cleaned_end_offset == 2
    keeper.append(batch([(b"a", b"2")]))
    close_segment(keeper)
    keeper.compact()
    assert contents(keeper) == [(1, b"b", b"1"), (2, b"a", b"2")]


def test_small_neighbours_become_one_segment_and_large_ones_do_not() -> None:
    size = len(batch([(b"a", b"1")]))
    keeper = compacted_log(
        *[(b"%d" % n, b"1") for n in range(8)], config=LogConfig(segment_bytes=size, is_compacted=True)
    )
    assert len(keeper.log.segments) == 9
    keeper.reconfigure(segment_bytes=4 * size + 1, dirty_ratio_min=0.0)
    keeper.compact()
    assert [segment.base_offset for segment in keeper.log.segments] == [0, 4, 8]
    assert [offset for offset, *_ in contents(keeper)] == list(range(8))


def test_a_fetch_in_a_hole_gives_the_next_batch() -> None:
    keeper = compacted_log((b"a", b"1"), (b"a", b"2"), (b"a", b"3"), (b"b", b"1"))
    keeper.compact()
    data = keeper.log.read(0, bytes_max=1, end_limit=4)
    assert data.records is not None
    assert records_in(data.records.read())[0].offset == 2
    assert keeper.log.offset_for_timestamp(NOW_MS) is not None


def test_more_keys_than_there_is_room_for_take_several_rounds() -> None:
    pairs: list[Pair] = [(b"%d" % (number % 10), b"%d" % number) for number in range(60)]
    keeper = compacted_log(*pairs, config=LogConfig(segment_bytes=700, is_compacted=True))
    for _ in range(60):
        keeper.compact(keys_max=3)
        assert {key: value for _, key, value in contents(keeper)} == dict(pairs)
        if keeper.log.cleaned_end_offset == keeper.log.active.base_offset:
            break
    assert keeper.log.cleaned_end_offset == keeper.log.active.base_offset
    assert len(contents(keeper)) < 30


def test_a_batch_that_cannot_be_decoded_is_kept_as_it_is() -> None:
    keeper = Keeper(COMPACT)
    nonsense = batch([(b"a", b"1"), (b"b", b"1")], codec=Codec.ZSTD)
    nonsense[-3:] = b"xyz"
    stamp_crc(nonsense, 0)
    keeper.append(batch([(b"a", b"0")]), nonsense, batch([(b"a", b"2")]))
    close_segment(keeper)
    stored = keeper.log.read(1, bytes_max=1, end_limit=4).records
    assert stored is not None
    before = stored.read()
    keeper.compact()
    assert [header.base_offset for header in keeper.headers()] == [1, 3]
    found = keeper.log.read(1, bytes_max=1, end_limit=4).records
    assert found is not None
    assert found.read() == before


@given(
    pairs=st.lists(st.tuples(st.sampled_from([b"a", b"b", b"c"]), st.binary(max_size=4)), max_size=40),
    batch_size=st.integers(1, 5),
    rounds=st.integers(1, 3),
)
def test_the_latest_values_never_change(
    pairs: list[tuple[bytes, bytes]], batch_size: int, rounds: int
) -> None:
    keeper = Keeper(LogConfig(segment_bytes=500, is_compacted=True))
    for start in range(0, len(pairs), batch_size):
        keeper.append(batch(pairs[start : start + batch_size]))
        keeper.commit()
    for _ in range(rounds):
        keeper.compact()
    assert {key: value for _, key, value in contents(keeper)} == dict(pairs)
    assert all(pairs[offset] == (key, value) for offset, key, value in contents(keeper))
    assert keeper.restart().log_end_offset == len(pairs)


# ---------------------------------------------------------------- tombstones


@pytest.mark.honours("delete.retention.ms")
def test_a_tombstone_stays_for_delete_retention_ms_after_the_first_round() -> None:
    for text, is_left in (("1000", False), ("5000", True)):
        config = settings({"cleanup.policy": "compact", "delete.retention.ms": text})
        keeper = compacted_log((b"a", b"1"), (b"a", None), (b"b", b"1"), config=config)
        keeper.compact()
        assert contents(keeper) == [(1, b"a", None), (2, b"b", b"1")]
        header = keeper.headers()[0]
        assert header.delete_horizon_ms == NOW_MS + int(text)
        assert keeper.records()[0].timestamp == NOW_MS
        keeper.now_ms += 999
        keeper.compact()
        assert keeper.headers()[0] == header
        keeper.now_ms += 1
        keeper.compact()
        assert (contents(keeper)[0] == (1, b"a", None)) == is_left


# ---------------------------------------------------------------- transactions


def transactional(keeper: Keeper, producer_id: int, sequence: int, key: bytes) -> None:
    keeper.append(
        batch([(key, b"%d" % sequence)], producer=(producer_id, 0, sequence), is_transactional=True)
    )


def test_aborted_records_go_and_supersede_nothing() -> None:
    keeper = Keeper(COMPACT)
    transactional(keeper, 1, 0, b"a")
    keeper.end_transaction(1, 0, is_commit=True)
    transactional(keeper, 1, 1, b"a")
    keeper.end_transaction(1, 0, is_commit=False)
    transactional(keeper, 1, 2, b"b")
    keeper.end_transaction(1, 0, is_commit=True)
    close_segment(keeper)
    before = keeper.committed()
    keeper.compact()
    assert keeper.committed() == before
    assert [record.offset for record in before] == [0, 4]
    assert 2 not in [record.offset for record in keeper.records()]


def test_a_marker_stays_until_its_records_are_gone_and_then_for_delete_retention_ms() -> None:
    keeper = Keeper(COMPACT)
    transactional(keeper, 1, 0, b"a")
    keeper.end_transaction(1, 0, is_commit=True)
    transactional(keeper, 1, 1, b"z")
    keeper.append(batch([(b"a", b"newer")]))
    keeper.end_transaction(1, 0, is_commit=True)
    close_segment(keeper)

    def marker_offsets() -> list[int]:
        return [header.base_offset for header in keeper.headers() if header.is_control]

    keeper.compact()  # removes the record of the first transaction
    assert marker_offsets() == [1, 4]
    keeper.compact()  # finds none left, and sets the horizon
    assert marker_offsets() == [1, 4]
    assert keeper.headers()[0].delete_horizon_ms == keeper.now_ms + DAY_MS
    keeper.now_ms += DAY_MS
    keeper.compact()
    assert marker_offsets() == [4]


def test_a_transaction_in_two_groups_of_segments_stays_aborted() -> None:
    keeper = Keeper(LogConfig(segment_bytes=300, is_compacted=True, delete_retention_ms=0))
    for number in range(8):
        transactional(keeper, 1, number, b"k%d" % number)
    keeper.append(batch([(b"x", b"1")]), batch([(b"x", b"2")]))
    keeper.end_transaction(1, 0, is_commit=False)
    transactional(keeper, 1, 8, b"y")
    keeper.end_transaction(1, 0, is_commit=True)
    close_segment(keeper)
    before = keeper.committed()
    assert [record.offset for record in before] == [8, 9, 11]
    for _ in range(4):
        keeper.compact()
        keeper.now_ms += 1
        assert [record.offset for record in keeper.committed()] == [9, 11]
        keeper.restart()


def test_control_records_are_not_compared_by_key() -> None:
    keeper = Keeper(COMPACT)
    for producer_id in (1, 2, 3):
        transactional(keeper, producer_id, 0, b"k%d" % producer_id)
        keeper.end_transaction(producer_id, 0, is_commit=True)
    close_segment(keeper)
    keeper.compact()
    assert [header.base_offset for header in keeper.headers() if header.is_control] == [1, 3, 5]


def test_an_open_transaction_holds_compaction_back() -> None:
    keeper = compacted_log((b"a", b"1"), (b"a", b"2"))
    transactional(keeper, 1, 0, b"t")
    close_segment(keeper)
    keeper.append(batch([(b"a", b"3")]))
    close_segment(keeper)
    keeper.compact()
    assert [offset for offset, *_ in contents(keeper)] == [1, 2, 3]
    assert keeper.log.cleaned_end_offset == 2


# ---------------------------------------------------------------- producers


def test_the_last_batch_of_a_producer_stays_without_its_records() -> None:
    keeper = Keeper(COMPACT)
    keeper.append(batch([(b"a", b"1")], producer=(1, 0, 0)), batch([(b"a", b"2")], producer=(1, 0, 1)))
    keeper.append(batch([(b"a", b"3")]))
    close_segment(keeper)
    keeper.compact()
    assert [(header.base_offset, header.count, header.base_sequence) for header in keeper.headers()] == [
        (1, 0, 1),
        (2, 1, -1),
    ]
    keeper.log.expire_producers(NOW_MS + 2 * DAY_MS)
    keeper.compact()
    assert [header.base_offset for header in keeper.headers()] == [2]


def test_the_last_marker_of_a_producer_stays_for_its_epochs() -> None:
    keeper = Keeper(LogConfig(is_compacted=True, delete_retention_ms=0))
    transactional(keeper, 1, 0, b"a")
    keeper.append(marker(1, 1, is_commit=False, coordinator_epoch=7), origin=Origin.COORDINATOR)
    keeper.append(batch([(b"b", b"1")]))
    close_segment(keeper)
    for _ in range(4):
        keeper.now_ms += 1
        keeper.compact()
    for name in keeper.names(".snapshot") + keeper.names(".producers"):
        keeper.disk.remove(f"orders-0/{name}")
    keeper.crash()
    producer = keeper.log.producers.get(1)
    assert producer is not None
    assert (producer.epoch, producer.coordinator_epoch) == (1, 7)


# ---------------------------------------------------------------- when


@pytest.mark.honours("min.cleanable.dirty.ratio")
def test_compaction_is_due_when_enough_is_dirty() -> None:
    def due(ratio: str) -> bool:
        config = settings({"cleanup.policy": "compact", "min.cleanable.dirty.ratio": ratio})
        keeper = compacted_log(*[(b"%d" % number, b"") for number in range(30)], config=config)
        keeper.compact()
        for number in range(10):
            keeper.append(batch([(b"%d" % number, b"")]))
        close_segment(keeper)
        assert 0.2 < survey(keeper.log, NOW_MS).dirty_ratio < 0.3
        return is_due(keeper.log, NOW_MS)

    assert [due(ratio) for ratio in ("0.0", "0.2", "0.3", "1.0")] == [True, True, False, False]


@pytest.mark.honours("min.compaction.lag.ms")
def test_records_younger_than_min_compaction_lag_ms_are_left_alone() -> None:
    for text, left in (("0", [2]), ("1000", [1, 2]), ("5000", [0, 1, 2])):
        keeper = Keeper(settings({"cleanup.policy": "compact", "min.compaction.lag.ms": text}))
        for age_ms in (5000, 5000):
            keeper.append(batch([(b"a", b"1")], timestamp=NOW_MS - age_ms))
        keeper.log.roll()
        keeper.append(batch([(b"a", b"2")], timestamp=NOW_MS - 999))
        close_segment(keeper)
        keeper.now_ms -= text == "5000"
        keeper.compact()
        assert [offset for offset, *_ in contents(keeper)] == left


@pytest.mark.honours("max.compaction.lag.ms")
def test_compaction_is_due_when_something_dirty_is_older_than_max_compaction_lag_ms() -> None:
    for text, expected in (("1000", True), ("10000", False)):
        config = settings(
            {"cleanup.policy": "compact", "max.compaction.lag.ms": text, "min.cleanable.dirty.ratio": "1.0"}
        )
        keeper = compacted_log(*[(b"%d" % number, b"") for number in range(3)], config=config)
        keeper.compact()
        keeper.append(batch([(b"a", b"")], timestamp=NOW_MS))
        close_segment(keeper)
        assert is_due(keeper.log, NOW_MS + 1000) is False
        assert is_due(keeper.log, NOW_MS + 1001) is expected


def test_a_topic_that_is_not_compacted_is_never_due() -> None:
    assert not is_due(compacted_log((b"a", b"1"), config=LogConfig(dirty_ratio_min=0.0)).log, NOW_MS)


# ---------------------------------------------------------------- in steps


def test_a_step_goes_no_further_than_its_bytes_and_a_batch() -> None:
    pairs: list[Pair] = [(b"%d" % (number % 5), bytes(100)) for number in range(50)]
    keeper = compacted_log(*pairs)
    compaction = Compaction(keeper.log, now_ms=NOW_MS, keys_max=100, secret=SECRET)
    steps = 0
    while not compaction.is_done:
        work = compaction.step(1000)
        steps += 1
        if work is not None:
            keeper.disk.flush_blocking(work)
    assert steps >= 2 * keeper.log.segments[-1].base_offset * 150 // 1000


def test_large_compressed_batches_can_be_worked_on_elsewhere() -> None:
    noise = random.Random(1)
    config = LogConfig(segment_bytes=2**20, is_compacted=True)
    keeper = Keeper(config)
    for number in range(6):
        pairs: list[Pair] = [(b"%d" % each, noise.randbytes(10_000)) for each in range(number, number + 6)]
        keeper.append(batch(pairs, codec=Codec.ZSTD))
    close_segment(keeper)
    newest = {key: value for _, key, value in contents(keeper)}
    compaction = Compaction(keeper.log, now_ms=NOW_MS, keys_max=100, secret=SECRET)
    heavy = 0
    while not compaction.is_done:
        match compaction.step_apart():
            case Heavy(work):
                heavy += 1
                # The log goes on while another thread is at it.
                keeper.append(batch([(b"later%d" % heavy, b"")]))
                keeper.flush()
                compaction.done(work())
            case None:
                pass
            case flush:
                keeper.disk.flush_blocking(flush)
    assert heavy == 2 * 6
    kept = [(key, value) for _, key, value in contents(keeper)]
    assert [pair for pair in kept if pair[1]] == list(newest.items())


def test_the_log_can_be_used_between_steps() -> None:
    pairs: list[Pair] = [(b"%d" % (number % 5), b"%d" % number) for number in range(40)]
    keeper = compacted_log(*pairs, config=LogConfig(segment_bytes=700, is_compacted=True))
    compaction = Compaction(keeper.log, now_ms=NOW_MS, keys_max=100, secret=SECRET)
    appended = 0
    while not compaction.is_done:
        work = compaction.step(200)
        keeper.append(batch([(b"new%d" % appended, b"")]))
        appended += 1
        keeper.flush()
        seen = {key: value for _, key, value in contents(keeper) if value}
        assert seen == dict(pairs)
        if work is not None:
            keeper.disk.flush_blocking(work)
    assert keeper.log.log_end_offset == 40 + appended


def test_a_compaction_whose_segments_are_deleted_meanwhile_gives_up() -> None:
    for steps in range(1, 12):
        pairs: list[Pair] = [(b"%d" % (number % 5), b"%d" % number) for number in range(40)]
        keeper = compacted_log(*pairs, config=LogConfig(segment_bytes=700, is_compacted=True))
        compaction = Compaction(keeper.log, now_ms=NOW_MS, keys_max=100, secret=SECRET)
        for _ in range(steps):
            work = compaction.step(500)
            if work is not None:
                keeper.disk.flush_blocking(work)
        keeper.recovery_point = 0
        keeper.log.truncate_fully(1000)
        keeper.flush()
        keeper.append(batch([(b"z", b"1")]))
        while not compaction.is_done:
            work = compaction.step(500)
            if work is not None:
                keeper.disk.flush_blocking(work)
        assert contents(keeper) == [(1000, b"z", b"1")]
        assert keeper.names(".cleaned") == keeper.names(".swap") == []
        assert not keeper.log.is_swapping
        keeper.flush()
        keeper.log_start = 1000
        assert keeper.restart().log_end_offset == 1001


def test_any_crash_leaves_the_old_segments_or_the_new_one() -> None:
    pairs: list[Pair] = [(b"%d" % (number % 5), b"%d" % number) for number in range(24)]
    template = compacted_log(*pairs, config=LogConfig(segment_bytes=700, is_compacted=True))
    stop = template.disk.operation_count
    outcomes = set()
    for survives in Survives:
        for operation in range(1, 400):
            keeper = compacted_log(*pairs, config=LogConfig(segment_bytes=700, is_compacted=True))
            keeper.disk.stop_at(stop + operation)
            is_finished = _compact_until_the_power_goes(keeper)
            if is_finished:
                break
            keeper.crash(survives, operation)
            view = {key: value for _, key, value in contents(keeper)}
            assert view == dict(pairs), (survives, operation)
            offsets = [offset for offset, *_ in contents(keeper)]
            assert offsets == sorted(set(offsets))
            assert keeper.log.log_end_offset == 24
            assert keeper.names(".cleaned") == keeper.names(".swap") == keeper.names(".deleted") == []
            outcomes.add(len(offsets))
        else:
            pytest.fail("the compaction did not end")
    assert {5, 24} <= outcomes


def test_what_was_compacted_across_an_old_recovery_point_is_no_damage() -> None:
    """Found by seed 140 of the groups: what is left lies on both sides of where the last checkpoint was."""
    keeper = compacted_log((b"a", b"1"), (b"b", b"1"), (b"b", b"2"), (b"b", b"3"))
    for number in range(4, 8):
        keeper.append(batch([(b"b", b"%d" % number)]))
    close_segment(keeper)
    keeper.compact()
    assert [offset for offset, *_ in contents(keeper)] == [0, 7]
    # Checkpoints are written now and then, which may have been before all of this.
    keeper.recovery_point = 4
    keeper.crash(Survives.NOTHING)
    assert keeper.log.corrupt_ranges == []
    assert contents(keeper) == [(0, b"a", b"1"), (7, b"b", b"7")]
    keeper.append(batch([(b"c", b"1")]))
    assert keeper.log.log_end_offset == 9


def _compact_until_the_power_goes(keeper: Keeper) -> bool:
    try:
        keeper.compact()
    except PowerCut:
        return False
    return True


def test_records_without_a_key_do_not_survive() -> None:
    keeper = compacted_log((None, b"1"), (b"a", b"1"))
    keeper.compact()
    assert [Record(*record[:4]).key for record in keeper.records()] == [b"a"]
