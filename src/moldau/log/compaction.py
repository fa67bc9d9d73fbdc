"""Compaction: of every key the newest record stays, at its offset and in its place.

A round reads the keys of the dirty segments, then writes all closed segments again without what is
superseded, in groups that fit into one segment each. A group's files are exchanged in steps that any crash
may interrupt: written as `.cleaned` and flushed; the batches renamed to `.swap`, from where on the exchange
is finished at the next start; the old files put aside, and that flushed; the new ones given their names.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Final

from moldau.log.config import LogConfig
from moldau.log.index import RELATIVE_OFFSET_MAX, AbortedTransaction, TransactionIndex
from moldau.log.log import Log
from moldau.log.producers import Marker, read_marker
from moldau.log.recovery import finish_swap
from moldau.log.segment import (
    CLEANED_SUFFIX,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    SWAP_SUFFIX,
    Segment,
    file_name,
)
from moldau.model.errors import KafkaError, MalformedMessage
from moldau.wire.records import kernel
from moldau.wire.records.batch import decode_records, payload_of, seal
from moldau.wire.records.compression import Codec
from moldau.wire.records.header import (
    CODEC_MASK,
    DELETE_HORIZON_FLAG,
    NO_TIMESTAMP,
    BatchHeader,
    Buffer,
    read_header,
)
from moldau.world.ports import Flush

STEP_BYTES: Final = 64 * 1024
_SLOTS_PER_KEY: Final = 4 / 3
# To open and pack a compressed batch of this size takes about a millisecond.
_HEAVY_BYTES_MIN: Final = 32 * 1024


@dataclass(frozen=True, slots=True)
class Heavy:
    """Work on one large batch that touches nothing but the round itself, so that a thread may do it."""

    work: Callable[[], Buffer | bool | None]


@dataclass(frozen=True, slots=True)
class Survey:
    """How much of a log could be compacted now."""

    first_dirty_offset: int
    end_offset: int
    """Base offset of the first segment that must be left alone."""
    clean_bytes: int
    dirty_bytes: int
    is_overdue: bool
    """Whether something dirty is older than max.compaction.lag.ms."""

    @property
    def dirty_ratio(self) -> float:
        """The share of the log that has not been compacted yet."""
        return self.dirty_bytes / max(self.clean_bytes + self.dirty_bytes, 1)


def survey(log: Log, now_ms: int) -> Survey:
    """Look at a log as compaction sees it. One that is known to be damaged is left as it is."""
    first_dirty = log.cleaned_end_offset
    if not log.oldest_offset <= first_dirty <= log.active.base_offset:
        first_dirty = log.oldest_offset
    end = log.oldest_offset if log.corrupt_ranges else _end_of_compactable(log, now_ms)
    compactable = [(one, following) for one, following in pairwise(log.segments) if one.base_offset < end]
    clean = [segment for segment, following in compactable if following.base_offset <= first_dirty]
    dirty = [segment for segment, following in compactable if following.base_offset > first_dirty]
    return Survey(
        first_dirty_offset=first_dirty,
        end_offset=end,
        clean_bytes=sum(segment.size for segment in clean),
        dirty_bytes=sum(segment.size for segment in dirty),
        is_overdue=any(_is_overdue(segment, log.config, now_ms) for segment in dirty),
    )


def is_due(log: Log, now_ms: int) -> bool:
    """Whether the topic's settings ask for a compaction now."""
    if not log.config.is_compacted or log.is_swapping:
        return False
    found = survey(log, now_ms)
    return found.dirty_ratio > log.config.dirty_ratio_min or found.is_overdue


def _end_of_compactable(log: Log, now_ms: int) -> int:
    """Undecided transactions, the active segment, and what is too young stay, by whole segments."""
    stable = log.last_stable_offset
    lag_ms = log.config.compaction_lag_ms_min
    for segment, following in pairwise(log.segments):
        is_young = lag_ms > 0 and segment.max_timestamp > now_ms - lag_ms
        if following.base_offset > stable or is_young:
            return segment.base_offset
    return log.active.base_offset


def _is_overdue(segment: Segment, config: LogConfig, now_ms: int) -> bool:
    first = segment.first_timestamp
    return first is not None and first >= 0 and now_ms - first > config.compaction_lag_ms_max


class Compaction:
    """One round over one log, in steps; between two of them the log may be used in any way."""

    def __init__(self, log: Log, *, now_ms: int, keys_max: int, secret: bytes) -> None:
        self.is_done = False
        self.is_abandoned = False
        """Whether it ended early, because segments it was to compact are gone."""
        self._log = log
        self._now_ms = now_ms
        self._keys = kernel.OffsetMap(int(keys_max * _SLOTS_PER_KEY) + 2, keys_max, secret)
        self._removals = log.removals
        self._outcome: Buffer | bool | None = None
        self._work: _Steps = self._run(survey(log, now_ms))

    def step(self, bytes_max: int = STEP_BYTES) -> Flush | None:
        """Go through about `bytes_max` of the log; what is returned must be flushed before the next step."""
        while isinstance(wanted := self.step_apart(bytes_max), Heavy):
            self.done(wanted.work())
        return wanted

    def step_apart(self, bytes_max: int = STEP_BYTES) -> Flush | Heavy | None:
        """The same for those who do heavy work elsewhere, and tell `done` of its outcome."""
        while bytes_max > 0 and not self.is_done:
            if self._log.removals != self._removals and not self._log.is_swapping:
                self._abandon()
                break
            outcome, self._outcome = self._outcome, None
            try:
                done = self._work.send(outcome)
            except StopIteration:
                self.is_done = True
                break
            if isinstance(done, Flush | Heavy):
                return done
            bytes_max -= done
        return None

    def done(self, outcome: Buffer | bool | None) -> None:
        """Take the outcome of the work that the last step has handed out."""
        self._outcome = outcome

    # ------------------------------------------------------------ the round

    def _run(self, plan: Survey) -> _Steps:
        """What was done, in bytes, or what is to be done, one after the other."""
        # Snapshots must be durable that know of producers' batches which are about to go.
        work = self._log.begin_flush()
        yield work.flush
        self._log.flushed(work)
        yield from self._read_keys(plan)
        end = min(self._keys.latest_offset + 1, plan.end_offset)
        segments = [segment for segment in self._log.segments[:-1] if segment.base_offset < end]
        filter_ = _Filter(self._log, self._keys, self._now_ms)
        filter_.transactions = _Transactions(
            self._log.aborted_transactions(self._log.oldest_offset, plan.end_offset)
        )
        for group in grouped(segments, self._log.config, end=plan.end_offset):
            yield from self._compact(group, filter_)
            if self.is_abandoned:
                return
        self._log.cleaned_end_offset = max(end, self._log.cleaned_end_offset)

    def _read_keys(self, plan: Survey) -> _Steps:
        """Note the newest offset of each key that is dirty, as far as there is room for them."""
        aborted = self._log.aborted_transactions(plan.first_dirty_offset, plan.end_offset)
        transactions = _Transactions(aborted)
        # What is clean has been seen: of its keys nothing newer is known, unless the map says so.
        self._keys.advance(plan.first_dirty_offset - 1)
        for segment, following in list(pairwise(self._log.segments)):
            if segment.base_offset >= plan.end_offset or following.base_offset <= plan.first_dirty_offset:
                continue
            for batch, data in segment.contents_from():
                header = batch.header
                if header.is_control:
                    transactions.end(header, _marker_or_none(data, header), None)
                elif not transactions.is_aborted(header):
                    note = partial(self._note_keys, header, data, plan)
                    has_room = (yield Heavy(note)) if _is_heavy(header) else note()
                    if not has_room:
                        return
                self._keys.advance(header.last_offset)
                yield _cost(header)

    def _note_keys(self, header: BatchHeader, data: Buffer, plan: Survey) -> bool:
        """Whether there was room for all keys of a batch."""
        try:
            payload = payload_of(data, 0, header)
            put = self._keys.put_all(payload, header.count, header.base_offset, plan.first_dirty_offset)
        except (MalformedMessage, KafkaError):
            # It stays as it is, and so does everything that it might supersede.
            return True
        return put == header.count

    def _compact(self, group: Sequence[Segment], filter_: _Filter) -> _Steps:
        log, disk = self._log, self._log.disk
        base = group[0].base_offset
        name = f"{log.path}/{file_name(base, LOG_SUFFIX)}"
        self._remove_cleaned(base)
        new = Segment(disk, log.path, base, is_new=True, suffix=CLEANED_SUFFIX)
        for segment in group:
            for batch, data in segment.contents_from():
                is_last = segment is group[-1] and batch.position + len(data) == segment.size
                kept = yield from self._kept(filter_, batch.header, data, new.transaction_index, is_last)
                if kept is not None:
                    header, interval_bytes = read_header(kept), log.config.index_interval_bytes
                    new.note_batch(new.write(kept), header, interval_bytes)
                yield _cost(batch.header)
        log.is_swapping = True
        yield Flush(
            files=tuple(new.seal(with_empty_indexes=True)),
            renames=((f"{name}{CLEANED_SUFFIX}", f"{name}{SWAP_SUFFIX}"),),
        )
        if not self._still_has(group):
            return
        new.take_names("")
        log.replace_segments(group, new, self._now_ms)
        yield Flush(directories=(log.path,))
        if self._still_has([new]):
            finish_swap(disk, log.path, base)
            log.names_changed()
            log.is_swapping = False

    def _kept(
        self, filter_: _Filter, header: BatchHeader, data: Buffer, index: TransactionIndex, is_last: bool
    ) -> Generator[int | Flush | Heavy, Buffer | bool | None, Buffer | None]:
        """What stays of a batch."""
        kept: Buffer | bool | None
        if header.is_control:
            kept = filter_.keep_control(header, data, index)
        elif filter_.transactions.is_aborted(header):
            kept = None
        else:
            keep = partial(filter_.keep_data, header, data)
            kept = (yield Heavy(keep)) if _is_heavy(header) else keep()
        assert not isinstance(kept, bool), "what stays of a batch is a batch"
        # The last batch of a producer holds its sequence number. That of a group holds its end, by which a
        # restart knows the segments that the new one replaces.
        if kept is None and (is_last or filter_.is_last_of_producer(header)):
            return _emptied(header)
        return kept

    def _still_has(self, segments: Sequence[Segment]) -> bool:
        """Whether the log still has these; it may have been emptied during a flush."""
        if all(any(segment is known for known in self._log.segments) for segment in segments):
            return True
        self._log.is_swapping = False
        self.is_abandoned = True
        return False

    def _abandon(self) -> None:
        self.is_done = self.is_abandoned = True
        self._work.close()
        for segment in self._log.segments:
            self._remove_cleaned(segment.base_offset)

    def _remove_cleaned(self, base: int) -> None:
        for suffix in SEGMENT_SUFFIXES:
            self._log.disk.remove(f"{self._log.path}/{file_name(base, suffix)}{CLEANED_SUFFIX}")


_Steps = Generator[int | Flush | Heavy, Buffer | bool | None, None]


def grouped(segments: Sequence[Segment], config: LogConfig, *, end: int) -> list[list[Segment]]:
    """Neighbours that together fit into one segment, even if nothing can be removed from them."""
    ends = [*(segment.base_offset for segment in segments), end][1:]
    groups: list[list[Segment]] = []
    for segment, segment_end in zip(segments, ends, strict=True):
        group = groups[-1] if groups else []
        fits = (
            bool(group)
            and sum(one.size for one in group) + segment.size <= config.segment_bytes
            and sum(len(one.offset_index) for one in group) + len(segment.offset_index)
            < config.index_bytes_max // 12
            and segment_end - 1 - group[0].base_offset <= RELATIVE_OFFSET_MAX
        )
        if fits:
            group.append(segment)
        else:
            groups.append([segment])
    return groups


# ---------------------------------------------------------------- what stays


class _Transactions:
    """Tells which transactions were aborted, and of which nothing is left but the marker."""

    def __init__(self, aborted: Sequence[AbortedTransaction]) -> None:
        self._aborted = sorted(aborted, key=lambda transaction: transaction.first_offset, reverse=True)
        self._open_aborted: dict[int, AbortedTransaction] = {}
        self._seen: dict[int, None] = {}
        """The producers of whose present transaction a batch was met."""

    def is_aborted(self, header: BatchHeader) -> bool:
        """Whether a data batch belongs to an aborted transaction."""
        self._begin_until(header.last_offset)
        if not header.is_transactional:
            return False
        self._seen[header.producer_id] = None
        return header.producer_id in self._open_aborted

    def end(self, header: BatchHeader, marker: Marker | None, index: TransactionIndex | None) -> bool:
        """Whether a control batch may go, as no batch of its transaction is left; else it is indexed."""
        self._begin_until(header.last_offset)
        if marker is None:
            return header.count == 0
        is_left = header.producer_id in self._seen
        self._seen.pop(header.producer_id, None)
        aborted = self._open_aborted.pop(header.producer_id, None) if marker.is_abort else None
        if aborted is not None and is_left and index is not None:
            index.append(aborted)
        return not is_left

    def _begin_until(self, offset: int) -> None:
        while self._aborted and self._aborted[-1].first_offset <= offset:
            transaction = self._aborted.pop()
            self._open_aborted[transaction.producer_id] = transaction


class _Filter:
    """Decides what of a batch is written again."""

    def __init__(self, log: Log, keys: kernel.OffsetMap, now_ms: int) -> None:
        self.transactions = _Transactions(())
        self._log = log
        self._keys = keys
        self._now_ms = now_ms
        self._horizon_ms = now_ms + log.config.delete_retention_ms

    def keep_control(self, header: BatchHeader, data: Buffer, index: TransactionIndex) -> Buffer | None:
        """The batch of a marker; None if it may go."""
        try:
            marker = read_marker(data, 0, header)
        except (MalformedMessage, KafkaError):
            return data
        may_go = self.transactions.end(header, marker, index)
        # The last marker of a producer has its epoch, and the coordinator's, which fence the older ones.
        if not may_go or (self.is_last_of_producer(header) and header.count):
            return data
        if header.count == 0:
            return None
        if header.delete_horizon_ms is None:
            return self._with_horizon(header, payload_of(data, 0, header))
        return data if self._now_ms < header.delete_horizon_ms else None

    def keep_data(self, header: BatchHeader, data: Buffer) -> Buffer | None:
        """The batch without what is superseded; None if nothing is left."""
        if header.count == 0:
            return None
        horizon_ms = header.delete_horizon_ms
        keep_tombstones = horizon_ms is None or self._now_ms < horizon_ms
        try:
            payload = payload_of(data, 0, header)
            mask = self._keys.retained(payload, header.count, header.base_offset, keep_tombstones)
            values = self._keys.retained(payload, header.count, header.base_offset, False)
        except (MalformedMessage, KafkaError):
            return data
        count = sum(mask)
        if count == 0:
            return None
        is_horizon_due = mask != values and horizon_ms is None
        if count == header.count and not is_horizon_due:
            return data
        if count < header.count:
            payload = kernel.retain(payload, header.count, mask)
            header = _with_max_timestamp(header._replace(count=count), payload)
        if is_horizon_due:
            return self._with_horizon(header, payload)
        return seal(payload, header, codec=Codec(header.codec))

    def _with_horizon(self, header: BatchHeader, payload: Buffer) -> Buffer:
        """The batch with the time from which on its tombstones, or its marker, may go (KIP-534)."""
        rebased = kernel.rebase_timestamps(payload, header.count, header.base_timestamp - self._horizon_ms)
        stamped = header._replace(
            attributes=header.attributes | DELETE_HORIZON_FLAG, base_timestamp=self._horizon_ms
        )
        return seal(rebased, stamped, codec=Codec(header.codec))

    def is_last_of_producer(self, header: BatchHeader) -> bool:
        """Whether the state of a producer rests on this batch."""
        producer = self._log.producers.get(header.producer_id) if header.has_producer_id else None
        if producer is None:
            return False
        if producer.last_data_offset is not None:
            return header.last_offset == producer.last_data_offset
        return header.is_control and header.producer_epoch == producer.epoch


def _with_max_timestamp(header: BatchHeader, payload: Buffer) -> BatchHeader:
    """The header with the greatest timestamp of the records that are left."""
    if header.is_log_append_time:
        return header
    is_left = kernel.find_timestamp(payload, header.count, header.base_timestamp, header.max_timestamp)
    if is_left is not None:
        return header
    return header._replace(max_timestamp=max(record.timestamp for record in decode_records(header, payload)))


def _emptied(header: BatchHeader) -> bytes:
    """A batch without records, that still says which offsets and sequence numbers it had."""
    attributes = header.attributes & ~(CODEC_MASK | DELETE_HORIZON_FLAG)
    return seal(
        b"",
        header._replace(count=0, base_timestamp=NO_TIMESTAMP, attributes=attributes),
        codec=Codec.NONE,
    )


def _is_heavy(header: BatchHeader) -> bool:
    return header.codec != Codec.NONE and header.size_bytes >= _HEAVY_BYTES_MIN


def _cost(header: BatchHeader) -> int:
    """How many bytes of plain batches take as long as this: a compressed one is opened and packed again."""
    if header.codec == Codec.NONE:
        return header.size_bytes
    return 16 * 1024 + max(8 * header.size_bytes, 64 * header.count)


def _marker_or_none(data: Buffer, header: BatchHeader) -> Marker | None:
    try:
        return read_marker(data, 0, header)
    except (MalformedMessage, KafkaError):
        return None
