"""Reading partitions by assignment: from any offset or time, as records or as Arrow columns."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import NamedTuple, Protocol, Self

from moldau.client.cluster import Cluster
from moldau.client.errors import ClientError, check, code_of
from moldau.client.fetched import Fetched, Visible, read_fetched
from moldau.client.metadata import Leader
from moldau.client.offsets import EARLIEST, LATEST, NO_OFFSET, list_offsets, place_of
from moldau.client.settings import ClientSettings
from moldau.client.waiting import Errands, Signal
from moldau.model.errors import ErrorCode, KafkaError, MalformedMessage
from moldau.model.ids import ZERO_UUID, TopicPartition
from moldau.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from moldau.wire.records.record import Headers, Record
from moldau.world.ports import ConnectionLost, Scope

# Topics whole, or single partitions, perhaps with the offset to start from.
Assignment = Iterable[str | tuple[str, int]] | Mapping[tuple[str, int], int]

_TOPIC_IDS_SINCE = 13
_EPOCH_OF_LAST_SINCE = 12
# What was fetched and not yet polled: one reply being read, and the next one behind it.
_REPLIES_AHEAD_MAX = 2
_RESETS = {"earliest": EARLIEST, "latest": LATEST}
_NO_END = 2**63 - 1
# How large records are taken to be, at least, where it is known how many of them are wanted.
_RECORD_BYTES_MIN = 1_024
NO_ENDS: Mapping[TopicPartition, int] = {}


class ConsumerRecord(NamedTuple):
    """A record and where it came from."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


class Polled(NamedTuple):
    """What has come of a partition, still encoded: batches, of which `offset_from` up to `position` counts.

    There may be no batch at all, where the log holds nothing for consumers up to `position`.
    """

    batches: list[Visible]
    offset_from: int
    position: int


class ArrowBatch(Protocol):
    """Columns in Arrow's interchange protocol; in fact a `pyarrow.RecordBatch`."""

    @property
    def num_rows(self) -> int: ...
    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]: ...


@dataclass(slots=True)
class _Assigned:
    """A partition that is read: `position` is what the user gets next, `fetch_offset` what is fetched."""

    partition: TopicPartition
    position: int | None = None
    fetch_offset: int = 0
    # Nothing is fetched from here on.
    fetch_until: int = _NO_END
    # How many bytes an offset took in what was fetched last.
    offset_bytes: int = _RECORD_BYTES_MIN
    # The epoch of the last batch given out, with which the position is committed.
    position_epoch: int = -1
    # The epoch of the last batch fetched, by which a leader tells whether its log still has that batch.
    last_epoch: int = -1
    is_paused: bool = False
    replies: deque[Fetched] = field(default_factory=deque)
    # Records of the first batch that were decoded and did not fit into the last poll.
    decoded: list[Record] = field(default_factory=list)
    # Counts seeks, so that a reply to an earlier fetch is not taken for a later one's.
    seeks: int = 0
    failures: int = 0
    retry_at_ms: int = 0
    high_watermark: int = -1
    log_start_offset: int = -1

    def seek(self, offset: int | None) -> None:
        self.position = offset
        self.position_epoch = -1
        self.fetch_offset = offset or 0
        self.last_epoch = -1
        self.replies.clear()
        self.decoded = []
        self.seeks += 1
        self.retry_at_ms = 0

    @property
    def is_full(self) -> bool:
        return len(self.replies) >= _REPLIES_AHEAD_MAX

    @property
    def wanted_bytes(self) -> int:
        """About how much there is to fetch up to the end that is wanted, rather too much than too little."""
        return max(self.fetch_until - self.fetch_offset, 1) * self.offset_bytes


class Consumer:
    """Reads the partitions it is given; several fetches ahead of whoever polls."""

    def __init__(
        self,
        cluster: Cluster,
        settings: ClientSettings,
        scope: Scope,
        *,
        lane: str,
        assignment: Assignment = (),
    ) -> None:
        self._cluster = cluster
        self._settings = settings
        self._scope = scope
        self._lane = lane
        self._clock = cluster.world.clock
        self._assigned: dict[TopicPartition, _Assigned] = {}
        self._whole_topics: list[str] = []
        self._fetching: dict[int, None] = {}
        self._error: Exception | None = None
        self._wake = Signal()
        self._arrived = Signal()
        self._errands = Errands(scope, owner=lane, on_done=self._wake.set)
        self.is_closed = False
        self.assign(assignment)
        scope.start(self._fetch_for_ever(), name=f"{lane}: fetch")

    # ---------------------------------------------------------------- what to read

    def assign(self, assignment: Assignment, *, until: Mapping[tuple[str, int], int] | None = None) -> None:
        """Read these from now on, and nothing else; without an offset auto.offset.reset says where from.

        At the offsets in `until` fetching stops; what a batch holds beyond is given out nevertheless.
        """
        self._assigned = {}
        self._whole_topics = []
        if isinstance(assignment, Mapping):
            for place, offset in assignment.items():
                self._add(place).seek(offset)
        else:
            for each in assignment:
                if isinstance(each, str):
                    self._whole_topics.append(each)
                else:
                    self._add(each)
        for place, end in (until or {}).items():
            self._state(place).fetch_until = end
        self._wake.set()

    async def assignment(self) -> tuple[TopicPartition, ...]:
        """The partitions that are read."""
        await self._resolve_topics()
        return tuple(self._assigned)

    def seek(self, partition: tuple[str, int], offset: int) -> None:
        """Go on at this offset."""
        self._state(partition).seek(offset)
        self._wake.set()

    async def seek_to_beginning(self, *partitions: tuple[str, int]) -> None:
        """Go on at the first offset that the log has; without arguments in all partitions."""
        await self._seek_to(EARLIEST, partitions)

    async def seek_to_end(self, *partitions: tuple[str, int]) -> None:
        """Go on with what is written from now on."""
        await self._seek_to(LATEST, partitions)

    async def seek_to_time(self, timestamp: int, *partitions: tuple[str, int]) -> None:
        """Go on at the first record with this timestamp or a later one; at the end if there is none."""
        await self._seek_to(timestamp, partitions)

    def pause(self, *partitions: tuple[str, int]) -> None:
        """Give out nothing of these for a while; the position stays."""
        for each in partitions:
            self._state(each).is_paused = True

    def resume(self, *partitions: tuple[str, int]) -> None:
        """Give out records of these again."""
        for each in partitions:
            self._state(each).is_paused = False
        self._wake.set()
        self._arrived.set()

    async def position(self, partition: tuple[str, int]) -> int:
        """The offset of the record that the next poll starts with."""
        await self._resolve_topics()
        state = self._state(partition)
        if state.position is None:
            await self._reset([state])
        assert state.position is not None
        return state.position

    def high_watermark(self, partition: tuple[str, int]) -> int | None:
        """The end of what is committed, as of the last fetch; None before there was one."""
        high_watermark = self._state(partition).high_watermark
        return None if high_watermark < 0 else high_watermark

    # ---------------------------------------------------------------- reading

    async def poll(
        self, *, timeout_ms: int = 0, records_max: int | None = None
    ) -> dict[TopicPartition, list[Record]]:
        """What has come, waiting up to `timeout_ms` for the first; empty if nothing did."""
        records_max = self._settings.max_poll_records if records_max is None else records_max
        polled: dict[TopicPartition, list[Record]] = {}
        if await self._has_data(timeout_ms):
            for state in self._readable():
                records = self._take_records(state, records_max)
                records_max -= len(records)
                if records:
                    polled[state.partition] = records
                if records_max <= 0:
                    break
            self._wake.set()
        return polled

    async def poll_arrow(
        self, *, timeout_ms: int = 0, until: Mapping[tuple[str, int], int] | None = None
    ) -> dict[TopicPartition, ArrowBatch]:
        """The same as columns, made of the batches without an object per record.

        Records at or after the offsets in `until` are left out, and the position does not pass them.
        """
        from moldau.wire.records.columns import to_arrow

        arrived: dict[TopicPartition, ArrowBatch] = {}
        for place, polled in (await self.poll_batches(timeout_ms=timeout_ms, until=until)).items():
            runs = (batch.run() for batch in polled.batches)
            columns: ArrowBatch = to_arrow(runs, offset_from=polled.offset_from, offset_until=polled.position)
            if columns.num_rows:
                arrived[place] = columns
        return arrived

    async def poll_batches(
        self, *, timeout_ms: int = 0, until: Mapping[tuple[str, int], int] | None = None
    ) -> dict[TopicPartition, Polled]:
        """The same for those who decode elsewhere: the batches that came, or none where a position moved."""
        ends = {place_of(place): end for place, end in (until or {}).items()}
        polled: dict[TopicPartition, Polled] = {}
        if await self._has_data(timeout_ms, ends):
            for state in self._readable(ends):
                offset_from = state.position
                batches = self._take_batches(state, ends.get(state.partition, _NO_END))
                if offset_from is not None and state.position is not None:
                    polled[state.partition] = Polled(batches, offset_from, state.position)
            self._wake.set()
        return polled

    async def __aiter__(self) -> AsyncIterator[ConsumerRecord]:
        """Record by record, for ever; a poll's worth is taken at a time, so `position` is ahead."""
        while True:
            polled = await self.poll(timeout_ms=self._settings.default_api_timeout_ms)
            for (topic, partition), records in polled.items():
                for offset, timestamp, key, value, headers, _ in records:
                    yield ConsumerRecord(topic, partition, offset, timestamp, key, value, headers)

    async def close(self) -> None:
        """Read no more."""
        self.abandon()

    def abandon(self) -> None:
        """The same, for those who cannot wait."""
        self.is_closed = True
        self._wake.set()
        self._arrived.set()
        self._cluster.close_lane(self._lane)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.abandon()

    async def _has_data(self, timeout_ms: int, ends: Mapping[TopicPartition, int] = NO_ENDS) -> bool:
        self._check_open()
        await self._resolve_topics()
        deadline_ms = self._clock.now_ms() + timeout_ms
        while not self._readable(ends):
            if self._error is not None:
                error, self._error = self._error, None
                raise error
            left_ms = deadline_ms - self._clock.now_ms()
            if left_ms <= 0:
                return False
            await self._arrived.wait_at_most(self._clock, left_ms)
            self._check_open()
        return True

    def _check_open(self) -> None:
        if self.is_closed:
            raise ClientError(ErrorCode.INVALID_REQUEST, "The consumer is closed.")

    def _readable(self, ends: Mapping[TopicPartition, int] = NO_ENDS) -> list[_Assigned]:
        """Those with something to give out; whoever has come to its end has not, though more was fetched."""
        return [
            state
            for state in self._assigned.values()
            if state.replies
            and not state.is_paused
            and (state.position or 0) < ends.get(state.partition, _NO_END)
        ]

    def _take_records(self, state: _Assigned, records_max: int) -> list[Record]:
        taken: list[Record] = []
        while state.replies and len(taken) < records_max:
            reply = state.replies[0]
            if not state.decoded and reply.batches:
                assert state.position is not None
                state.decoded = reply.batches[0].records(state.position)
            room = records_max - len(taken)
            given, state.decoded = state.decoded[:room], state.decoded[room:]
            taken += given
            if given:
                state.position = given[-1].offset + 1
                state.position_epoch = reply.batches[0].header.leader_epoch
            if not state.decoded:
                if reply.batches:
                    state.position = reply.batches.popleft().header.next_offset
                if not reply.batches:
                    self._finish_reply(state)
        return taken

    def _take_batches(self, state: _Assigned, end: int) -> list[Visible]:
        """All batches that are there up to the one that reaches `end`."""
        taken: list[Visible] = []
        state.decoded = []
        while state.replies:
            reply = state.replies[0]
            while reply.batches:
                batch = reply.batches[0]
                if batch.header.base_offset >= end:
                    state.position = max(end, state.position or 0)
                    return taken
                taken.append(batch)
                state.position_epoch = batch.header.leader_epoch
                if batch.header.next_offset > end:
                    state.position = end
                    return taken
                state.position = reply.batches.popleft().header.next_offset
            self._finish_reply(state)
        return taken

    def _finish_reply(self, state: _Assigned) -> None:
        # Behind the last visible batch there may have been control batches, or holes.
        state.position = state.replies.popleft().next_offset

    # ---------------------------------------------------------------- fetching

    async def _fetch_for_ever(self) -> None:
        while not self.is_closed:
            now_ms = self._clock.now_ms()
            states = self._assigned.values()
            if any(each.position is None and each.retry_at_ms <= now_ms for each in states):
                self._errands.run("positions", self._find_positions)
            for node_id, led in self._fetchable(now_ms).items():
                self._fetching[node_id] = None
                self._scope.start(self._fetch(node_id, led), name=f"{self._lane}: fetch {node_id}")
            retries = [each.retry_at_ms for each in states if each.retry_at_ms > now_ms]
            await self._wake.wait_at_most(self._clock, min(retries) - now_ms if retries else None)

    def _fetchable(self, now_ms: int) -> dict[int, list[_Assigned]]:
        """By leader, what to fetch now.

        A broker is asked when all its partitions have room: else the reply might wait for records of those
        that have none to come, while those that have some are polled empty.
        """
        by_leader: dict[int, list[_Assigned]] = {}
        full: dict[int, None] = {}
        for state in self._assigned.values():
            if state.is_paused or state.position is None or state.retry_at_ms > now_ms:
                continue
            if state.fetch_offset >= state.fetch_until:
                continue
            leader = self._cluster.metadata.leader(state.partition)
            if leader is None:
                self._errands.run("metadata", self._refresh)
            elif state.is_full:
                full[leader.node_id] = None
            else:
                by_leader.setdefault(leader.node_id, []).append(state)
        return {
            node_id: states
            for node_id, states in by_leader.items()
            if node_id not in full and node_id not in self._fetching
        }

    async def _fetch(self, node_id: int, states: list[_Assigned]) -> None:
        asked = {state.partition: (state, state.seeks) for state in states}
        try:
            connection = await self._cluster.connection_to(node_id, self._lane)
            request, version = self._request(states, connection.version_of(FetchRequest))
            timeout_ms = self._settings.request_timeout_ms + self._settings.fetch_max_wait_ms
            response = await connection.ask(request, FetchResponse, timeout_ms=timeout_ms, version=version)
            check(response.error_code)
            for topic in response.responses:
                name = topic.topic or self._cluster.metadata.name_of(topic.topic_id)
                for row in topic.partitions:
                    place = place_of((name, row.partition_index))
                    state, seeks = asked.get(place, (None, 0))
                    if state is not None and state.seeks == seeks:
                        self._take_reply(state, row, response)
        except (ConnectionLost, KafkaError, MalformedMessage) as error:
            for state in states:
                self._retry_later(state)
            if isinstance(error, KafkaError) and not error.code.is_retriable:
                self._report(error)
            self._errands.run("metadata", self._refresh)
        finally:
            del self._fetching[node_id]
            self._wake.set()

    def _request(self, states: list[_Assigned], version: int) -> tuple[FetchRequest, int]:
        metadata = self._cluster.metadata
        topics: dict[str, list[FetchPartition]] = {}
        for state in states:
            leader = metadata.leader(state.partition)
            row = FetchPartition(
                partition=state.partition.partition,
                fetch_offset=state.fetch_offset,
                current_leader_epoch=-1 if leader is None else leader.epoch,
                # What a broker reads beyond what is wanted, it reads, sends and has checked for nothing.
                partition_max_bytes=min(self._settings.max_partition_fetch_bytes, state.wanted_bytes),
            )
            if version >= _EPOCH_OF_LAST_SINCE:
                row.last_fetched_epoch = state.last_epoch
            topics.setdefault(state.partition.topic, []).append(row)
        ids = {topic: metadata.topic_id(topic) for topic in topics}
        if ZERO_UUID in ids.values():
            version = min(version, _TOPIC_IDS_SINCE - 1)
        request = FetchRequest(
            max_wait_ms=self._settings.fetch_max_wait_ms,
            min_bytes=self._settings.fetch_min_bytes,
            max_bytes=self._settings.fetch_max_bytes,
            isolation_level=self._settings.isolation_level,
            topics=[
                FetchTopic(topic=name, topic_id=ids[name], partitions=rows) for name, rows in topics.items()
            ],
        )
        return request, version

    def _take_reply(self, state: _Assigned, row: PartitionData, response: FetchResponse) -> None:
        if row.error_code != ErrorCode.NONE:
            self._refused(state, row, response)
            return
        state.failures = 0
        state.high_watermark, state.log_start_offset = row.high_watermark, row.log_start_offset
        if row.diverging_epoch.end_offset >= 0:
            self._truncated(state, row.diverging_epoch.end_offset)
            return
        if not row.records:
            return
        assert isinstance(row.records, bytes | bytearray | memoryview)
        fetched = read_fetched(
            row.records,
            fetch_offset=state.fetch_offset,
            aborted=row.aborted_transactions or (),
            check_crcs=self._settings.check_crcs,
        )
        if fetched.next_offset > state.fetch_offset:
            state.replies.append(fetched)
            offsets = fetched.next_offset - state.fetch_offset
            state.offset_bytes = max(fetched.size_bytes // offsets + 1, _RECORD_BYTES_MIN)
            state.fetch_offset, state.last_epoch = fetched.next_offset, fetched.last_epoch
            # To the end of the line, so that next time the others' records come first (KIP-74).
            if self._assigned.get(state.partition) is state:
                self._assigned[state.partition] = self._assigned.pop(state.partition)
            self._arrived.set()

    def _refused(self, state: _Assigned, row: PartitionData, response: FetchResponse) -> None:
        code = code_of(row.error_code)
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            if self._settings.auto_offset_reset == "none":
                self._report(
                    ClientError(
                        code, f"The log does not have offset {state.fetch_offset}.", where=state.partition
                    )
                )
                self._retry_later(state)
            elif not state.replies:
                # What was fetched before is given out first; then this fetch is refused again.
                state.seek(None)
            return
        hint = Leader(row.current_leader.leader_id, row.current_leader.leader_epoch)
        if self._cluster.metadata.apply_leader(state.partition, hint, response.node_endpoints):
            return
        if not code.is_retriable:
            self._report(ClientError(code, where=state.partition))
        self._retry_later(state)
        self._errands.run("metadata", self._refresh)

    def _truncated(self, state: _Assigned, end_offset: int) -> None:
        """The leader's log parts from what was read: some of that no longer exists (KIP-320)."""
        if self._settings.auto_offset_reset == "none":
            message = f"The log was truncated to {end_offset}, behind what was read already."
            self._report(ClientError(ErrorCode.OFFSET_OUT_OF_RANGE, message, where=state.partition))
        state.seek(end_offset)

    def _retry_later(self, state: _Assigned) -> None:
        state.retry_at_ms = self._clock.now_ms() + self._cluster.backoff_ms(state.failures)
        state.failures += 1

    def _report(self, error: Exception) -> None:
        """Let the next poll that finds no records raise this."""
        self._error = error
        self._arrived.set()

    # ---------------------------------------------------------------- positions

    async def _find_positions(self) -> None:
        try:
            await self._reset([each for each in self._assigned.values() if each.position is None])
        except (ConnectionLost, KafkaError) as error:
            self._report(error)
            for state in self._assigned.values():
                if state.position is None:
                    self._retry_later(state)

    async def _refresh(self) -> None:
        await self._cluster.refresh_if_possible(dict.fromkeys(each.topic for each in self._assigned))
        self._wake.set()
        # Whoever is still without a leader asks again, but not at once.
        await self._clock.sleep_ms(self._settings.retry_backoff_ms)

    async def _seek_to(self, timestamp: int, partitions: tuple[tuple[str, int], ...]) -> None:
        await self._resolve_topics()
        places = [self._state(each).partition for each in partitions] or list(self._assigned)
        for place, offset in (await self._offsets_at(dict.fromkeys(places, timestamp))).items():
            self._state(place).seek(offset)
        self._wake.set()

    async def _reset(self, states: list[_Assigned]) -> None:
        """Find where to begin, as auto.offset.reset says."""
        policy = self._settings.auto_offset_reset
        if policy not in _RESETS:
            message = "There is no offset to begin at, and auto.offset.reset is none."
            raise ClientError(ErrorCode.OFFSET_OUT_OF_RANGE, message, where=states[0].partition)
        seeks = {state.partition: state.seeks for state in states}
        found = await self._offsets_at(dict.fromkeys(seeks, _RESETS[policy]))
        for state in states:
            # A seek meanwhile knows better.
            if state.position is None and state.seeks == seeks[state.partition]:
                state.seek(found[state.partition])

    async def _offsets_at(self, wanted: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
        isolation = self._settings.isolation_level
        found = await list_offsets(self._cluster, wanted, isolation_level=isolation)
        beyond = [place for place, row in found.items() if row.offset == NO_OFFSET]
        if beyond:
            found |= await list_offsets(
                self._cluster, dict.fromkeys(beyond, LATEST), isolation_level=isolation
            )
        return {place: row.offset for place, row in found.items()}

    async def _resolve_topics(self) -> None:
        while self._whole_topics:
            topic = await self._cluster.topic(self._whole_topics[0])
            for index in topic.partitions:
                self._add((topic.name, index))
            self._whole_topics.remove(topic.name)
            self._wake.set()

    def _add(self, place: tuple[str, int]) -> _Assigned:
        partition = place_of(place)
        return self._assigned.setdefault(partition, _Assigned(partition))

    def _state(self, place: tuple[str, int]) -> _Assigned:
        state = self._assigned.get(place_of(place))
        if state is None:
            raise ClientError(
                ErrorCode.INVALID_REQUEST, "The partition is not assigned.", where=place_of(place)
            )
        return state
