"""Whatever happens to a log, crashes included, it says what a plain list of batches says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from log.support import NOW_MS, SECRET, Keeper, batch, committed_records, marker

from moldau.log.compaction import Compaction
from moldau.log.config import LogConfig
from moldau.log.epochs import EpochStart
from moldau.log.producers import Origin
from moldau.sim.disk import Survives

KEYS = [b"a", b"b", b"c", b"d"]
PRODUCERS = [11, 12, 13]
DAY_MS = 24 * 60 * 60 * 1000


@dataclass(frozen=True)
class Written:
    """A batch as the model remembers it."""

    base_offset: int
    pairs: tuple[tuple[bytes | None, bytes | None], ...]
    leader_epoch: int
    producer: tuple[int, int, int] | None = None
    is_transactional: bool = False
    ends: bool | None = None
    """For a marker: whether it commits."""

    @property
    def last_offset(self) -> int:
        return self.base_offset + len(self.pairs) - 1


class ModelledLog(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.keeper = Keeper(
            LogConfig(
                segment_bytes=700,
                index_interval_bytes=100,
                is_compacted=True,
                dirty_ratio_min=0.0,
                delete_retention_ms=DAY_MS,
                file_delete_delay_ms=0,
                producer_expiration_ms=1 << 50,
            )
        )
        self.written: list[Written] = []
        self.epoch = 0
        self.values = 0
        self.compacted_end = 0

    # ------------------------------------------------------------ the model

    @property
    def end(self) -> int:
        return self.written[-1].last_offset + 1 if self.written else 0

    def sequence_after(self, producer_id: int) -> int:
        for one in reversed(self.written):
            if one.producer and one.producer[0] == producer_id and one.ends is None:
                return one.producer[2] + len(one.pairs)
        return 0

    def open_transactions(self) -> dict[int, int]:
        """First offsets of the transactions that nobody has ended, by producer."""
        return self.undecided_transactions(committed_end=self.end)

    def undecided_transactions(self, *, committed_end: int) -> dict[int, int]:
        """The same, and those whose end is not committed."""
        first: dict[int, int] = {}
        for one in self.written:
            if one.producer and one.ends is not None:
                if one.base_offset < committed_end:
                    first.pop(one.producer[0], None)
            elif one.producer and one.is_transactional:
                first.setdefault(one.producer[0], one.base_offset)
        return first

    def outcome_of(self, number: int) -> bool | None:
        """Whether the transaction of a batch was committed; None while it is open."""
        producer = self.written[number].producer
        assert producer is not None
        for one in self.written[number:]:
            if one.ends is not None and one.producer and one.producer[0] == producer[0]:
                return one.ends
        return None

    def new_pairs(self, keys: Sequence[bytes], tombstones: int) -> tuple[tuple[bytes, bytes | None], ...]:
        pairs: list[tuple[bytes, bytes | None]] = []
        for number, key in enumerate(keys):
            self.values += 1
            pairs.append((key, None if number < tombstones else b"%d" % self.values))
        return tuple(pairs)

    # ------------------------------------------------------------ appending

    @rule(keys=st.lists(st.sampled_from(KEYS), min_size=1, max_size=4), tombstones=st.integers(0, 1))
    def append(self, keys: list[bytes], tombstones: int) -> None:
        pairs = self.new_pairs(keys, tombstones)
        result = self.keeper.append(batch(pairs), epoch=self.epoch)
        assert (result.first_offset, result.is_duplicate) == (self.end, False)
        self.written.append(Written(self.end, pairs, self.epoch))

    @rule(
        producer_id=st.sampled_from(PRODUCERS),
        keys=st.lists(st.sampled_from(KEYS), min_size=1, max_size=3),
        is_transactional=st.booleans(),
    )
    def append_idempotently(self, producer_id: int, keys: list[bytes], is_transactional: bool) -> None:
        is_transactional = is_transactional or producer_id in self.open_transactions()
        pairs = self.new_pairs(keys, 0)
        producer = (producer_id, 0, self.sequence_after(producer_id))
        data = batch(pairs, producer=producer, is_transactional=is_transactional)
        repeated = bytearray(data)
        result = self.keeper.append(data, epoch=self.epoch)
        assert (result.first_offset, result.is_duplicate) == (self.end, False)
        self.written.append(Written(self.end, pairs, self.epoch, producer, is_transactional))
        again = self.keeper.append(repeated, epoch=self.epoch)
        assert (again.first_offset, again.is_duplicate) == (result.first_offset, True)

    @rule(producer_id=st.sampled_from(PRODUCERS), back=st.integers(1, 5))
    def repeat_an_earlier_batch(self, producer_id: int, back: int) -> None:
        mine = [
            one
            for one in self.written
            if one.producer and one.producer[0] == producer_id and one.ends is None
        ]
        if len(mine) >= back:
            one = mine[-back]
            data = batch(one.pairs, producer=one.producer, is_transactional=one.is_transactional)
            result = self.keeper.append(data, epoch=self.epoch)
            assert (result.first_offset, result.is_duplicate) == (one.base_offset, True)

    @rule(producer_id=st.sampled_from(PRODUCERS), is_commit=st.booleans())
    def end_a_transaction(self, producer_id: int, is_commit: bool) -> None:
        data = marker(producer_id, 0, is_commit=is_commit)
        result = self.keeper.append(data, epoch=self.epoch, origin=Origin.COORDINATOR)
        assert result.first_offset == self.end
        self.written.append(
            Written(self.end, ((None, None),), self.epoch, (producer_id, 0, -1), True, ends=is_commit)
        )

    @rule(keys=st.lists(st.sampled_from(KEYS), min_size=1, max_size=3), new_epoch=st.booleans())
    def append_as_follower(self, keys: list[bytes], new_epoch: bool) -> None:
        self.epoch += new_epoch
        first, second = self.new_pairs(keys, 0), self.new_pairs(keys[:1], 0)
        middle = self.end + len(first)
        data = batch(first, base_offset=self.end, leader_epoch=self.epoch)
        data += batch(second, base_offset=middle, leader_epoch=self.epoch)
        self.keeper.log.append_as_follower(data, now_ms=NOW_MS)
        self.written += [Written(self.end, first, self.epoch), Written(middle, second, self.epoch)]

    @rule()
    def lead_in_a_new_epoch(self) -> None:
        self.epoch += 1
        self.keeper.log.begin_epoch(self.epoch)

    # ------------------------------------------------------------ keeping and removing

    @rule()
    def flush(self) -> None:
        self.keeper.flush()

    @rule()
    def commit(self) -> None:
        self.keeper.commit()

    @rule(back=st.integers(0, 6))
    def truncate(self, back: int) -> None:
        log = self.keeper.log
        starts = [one.base_offset for one in self.written if one.base_offset >= log.high_watermark]
        offset = starts[-back] if 0 < back <= len(starts) else self.end
        self.keeper.truncate(offset)
        self.written = [one for one in self.written if one.base_offset < offset]

    @rule(
        days=st.integers(0, 2),
        step_bytes=st.sampled_from([50, 1 << 20]),
        keys_max=st.sampled_from([1, 2, 100]),
    )
    def compact(self, days: int, step_bytes: int, keys_max: int) -> None:
        self.keeper.now_ms += days * DAY_MS
        self.keeper.compact(step_bytes=step_bytes, keys_max=keys_max)
        self.keeper.checkpoint()
        self.compacted_end = max(self.compacted_end, self.keeper.log.active.base_offset)

    @rule(share=st.floats(0, 1))
    def delete_records(self, share: float) -> None:
        log = self.keeper.log
        log.advance_log_start(int(log.high_watermark * share))
        self.keeper.checkpoint()
        self.keeper.apply_retention(self.keeper.now_ms)
        log.remove_deleted(self.keeper.now_ms)

    # ------------------------------------------------------------ ends and beginnings

    @rule()
    def restart(self) -> None:
        self.keeper.restart()

    @rule(survives=st.sampled_from(Survives), seed=st.integers(0, 1 << 32))
    def crash(self, survives: Survives, seed: int) -> None:
        flushed_end, end = self.keeper.log.flushed_end_offset, self.keeper.log.log_end_offset
        self.keeper.high_watermark = self.keeper.log.high_watermark
        self.keeper.crash(survives, seed)
        recovered = self.keeper.log.log_end_offset
        assert flushed_end <= recovered <= end
        if survives is Survives.EVERYTHING:
            assert recovered == end
        self.written = [one for one in self.written if one.base_offset < recovered]
        assert self.end == recovered or not self.written

    @precondition(lambda self: self.keeper.log.segments[1:])
    @rule(survives=st.sampled_from(Survives), seed=st.integers(0, 1 << 32), steps=st.integers(1, 12))
    def crash_while_compacting(self, survives: Survives, seed: int, steps: int) -> None:
        self.keeper.commit()
        self.compacted_end = max(self.compacted_end, self.keeper.log.active.base_offset)
        compaction = Compaction(self.keeper.log, now_ms=self.keeper.now_ms, keys_max=100, secret=SECRET)
        for _ in range(steps):
            work = compaction.step(300)
            if work is not None:
                self.keeper.disk.flush_blocking(work)
        self.crash(survives, seed)

    # ------------------------------------------------------------ what must hold

    @invariant()
    def every_record_is_where_it_was_written(self) -> None:
        log = self.keeper.log
        expected = {
            one.base_offset + number: pair
            for one in self.written
            for number, pair in enumerate(one.pairs)
            if one.ends is None
        }
        found = [(record.offset, (record.key, record.value)) for record in self.keeper.records()]
        offsets = [offset for offset, _ in found]
        assert offsets == sorted(set(offsets))
        for offset, pair in found:
            if offset in expected:
                assert expected[offset] == pair, offset
        kept_from = max(self.compacted_end, log.log_start_offset)
        assert [offset for offset in offsets if offset >= kept_from] == list(range(kept_from, self.end))

    @invariant()
    def readers_of_committed_data_see_the_latest_value_of_each_key(self) -> None:
        log = self.keeper.log
        latest: dict[bytes | None, bytes | None] = {}
        committed: set[int] = set()
        for number, one in enumerate(self.written):
            if one.ends is not None or one.last_offset >= log.last_stable_offset:
                continue
            if not one.is_transactional or self.outcome_of(number):
                committed.update(range(one.base_offset, one.last_offset + 1))
                for delta, (key, value) in enumerate(one.pairs):
                    if one.base_offset + delta >= log.log_start_offset:
                        latest[key] = value
        seen = committed_records(log)
        assert all(record.offset in committed for record in seen)
        view = {record.key: record.value for record in seen}
        assert _without_tombstones(view) == _without_tombstones(latest)

    @invariant()
    def the_ends_agree(self) -> None:
        log = self.keeper.log
        if self.written:
            assert log.log_end_offset == self.end
        assert log.log_start_offset <= log.last_stable_offset <= log.high_watermark <= log.log_end_offset
        undecided = self.undecided_transactions(committed_end=log.high_watermark).values()
        stable = min(undecided, default=log.high_watermark)
        assert log.last_stable_offset == max(min(stable, log.high_watermark), log.log_start_offset)

    @invariant()
    def producers_are_known_by_what_they_wrote(self) -> None:
        opened = self.open_transactions()
        for producer_id in PRODUCERS:
            mine = [one for one in self.written if one.producer and one.producer[0] == producer_id]
            producer = self.keeper.log.producers.get(producer_id)
            if not mine:
                assert producer is None
                continue
            assert producer is not None
            data = [one for one in mine if one.ends is None][-5:]
            assert [entry.first_offset for entry in producer.batches] == [one.base_offset for one in data]
            assert [entry.last_offset for entry in producer.batches] == [one.last_offset for one in data]
            assert producer.transaction_first_offset == opened.get(producer_id)

    @invariant()
    def epochs_are_those_of_the_batches(self) -> None:
        log = self.keeper.log
        starts: list[EpochStart] = []
        for one in self.written:
            if one.last_offset >= log.log_start_offset and (
                not starts or starts[-1].epoch != one.leader_epoch
            ):
                starts.append(EpochStart(one.leader_epoch, max(one.base_offset, log.log_start_offset)))
        # An epoch in which nothing was written counts as long as nobody truncates or crashes.
        written = [
            start for start in log.epochs if any(one.leader_epoch == start.epoch for one in self.written)
        ]
        assert [start.epoch for start in written][len(written) - len(starts) :] == [
            one.epoch for one in starts
        ]


def _without_tombstones(view: dict[bytes | None, bytes | None]) -> dict[bytes | None, bytes | None]:
    return {key: value for key, value in view.items() if value is not None}


TestModelledLog = ModelledLog.TestCase
TestModelledLog.settings = settings(
    max_examples=60, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)
