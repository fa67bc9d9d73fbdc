"""Fetch: whole batches as they stand in the files, now or when there are enough of them."""

from __future__ import annotations

import asyncio
from typing import Final, NamedTuple

from moldau.model.errors import ErrorCode, KafkaError
from moldau.model.ids import ZERO_UUID, TopicId
from moldau.model.settings.table import FETCH_MAX_BYTES
from moldau.node.apis import leaders
from moldau.node.apis.call import Answer, Call, Parts
from moldau.node.fetch_sessions import FetchContext, Result, TopicKey
from moldau.node.partitions import Replica
from moldau.node.security import Operation, ResourceType
from moldau.node.waiting import is_set_within
from moldau.replica.leader import Isolation
from moldau.wire.message import Response
from moldau.wire.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from moldau.wire.records.compression import Codec

_ZSTD: Final = 10
_TOPIC_IDS: Final = 13
_LEADER_HINTS: Final = 16
_UNKNOWN_OFFSET: Final = -1
_NO_RECORDS: Final = b""


def handle(parts: Parts, call: Call) -> Answer:
    """Answer at once if there is enough to read or nothing to wait for; else hold the line."""
    request = call.body
    assert isinstance(request, FetchRequest)
    context = parts.sessions.begin(
        request,
        version=call.version,
        now_ms=parts.world.clock.now_ms(),
        owner=(call.principal, call.client_id),
    )
    if context.error is not ErrorCode.NONE:
        return FetchResponse(throttle_time_ms=0, error_code=context.error, session_id=0, responses=[])
    fetch = _Fetch(parts, call, request, context)
    outcome = fetch.read()
    if outcome.is_ready or request.max_wait_ms <= 0:
        return fetch.response(outcome)
    return fetch.wait()


def refuse(call: Call, error: KafkaError) -> Response:
    """The error for the whole fetch."""
    return FetchResponse(throttle_time_ms=0, error_code=error.code, session_id=0, responses=[])


class _Outcome(NamedTuple):
    results: list[Result]
    is_ready: bool


class _Fetch:
    """One request: read, and read again when something has been committed."""

    __slots__ = (
        "_call",
        "_context",
        "_hints",
        "_is_follower",
        "_isolation",
        "_parts",
        "_replicas",
        "_request",
    )

    def __init__(self, parts: Parts, call: Call, request: FetchRequest, context: FetchContext) -> None:
        self._parts = parts
        self._call = call
        self._request = request
        self._context = context
        self._is_follower = max(request.replica_id, request.replica_state.replica_id) >= 0
        self._isolation = (
            Isolation.READ_COMMITTED
            if request.isolation_level == Isolation.READ_COMMITTED.value
            else Isolation.READ_UNCOMMITTED
        )
        self._replicas: list[Replica] = []
        self._hints: list[leaders.Hint] = []

    # ------------------------------------------------------------ reading

    def read(self) -> _Outcome:
        """Read every partition, within the limits of the request (KIP-74)."""
        bytes_left = min(self._request.max_bytes, self._parts.view.broker_settings[FETCH_MAX_BYTES])
        bytes_read = 0
        is_ready = not self._context.partitions
        results: list[Result] = []
        self._replicas, self._hints = [], []
        for topic, asked in self._context.partitions:
            try:
                data, has_more = self._read_one(topic, asked, bytes_left=bytes_left, is_first=not bytes_read)
            except KafkaError as error:
                data, has_more = self._failed(topic, asked, error), True
            size = len(data.records or _NO_RECORDS)
            bytes_read += size
            bytes_left -= size
            is_ready |= has_more
            results.append((topic, data))
        return _Outcome(results, is_ready or bytes_read >= self._request.min_bytes)

    def _read_one(
        self, topic: TopicKey, asked: FetchPartition, *, bytes_left: int, is_first: bool
    ) -> tuple[PartitionData, bool]:
        """What one partition has, and whether the client should have the answer at once."""
        parts, call = self._parts, self._call
        name = self._name_of(topic)
        if not call.may(parts, Operation.READ, ResourceType.TOPIC, name):
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        if self._is_follower:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        replica, leader = parts.partitions.led(parts.view, name, asked.partition)
        leader.check_epoch(asked.current_leader_epoch)
        if call.version < _ZSTD and leader.config.rules.codec is Codec.ZSTD:
            raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
        self._replicas.append(replica)
        log = replica.log
        data = PartitionData(
            partition_index=asked.partition,
            error_code=ErrorCode.NONE,
            high_watermark=log.high_watermark,
            last_stable_offset=log.last_stable_offset,
            log_start_offset=log.log_start_offset,
            aborted_transactions=None,
            records=_NO_RECORDS,
        )
        if asked.last_fetched_epoch >= 0:
            end = log.end_offset_for_epoch(asked.last_fetched_epoch)
            if end.epoch != asked.last_fetched_epoch or end.end_offset < asked.fetch_offset:
                data.diverging_epoch = EpochEndOffset(epoch=end.epoch, end_offset=end.end_offset)
                return data, True
        bytes_max = min(asked.partition_max_bytes, bytes_left)
        if bytes_max <= 0 and not is_first:
            return data, False
        found = leader.read(asked.fetch_offset, bytes_max=bytes_max, isolation=self._isolation)
        if self._isolation is Isolation.READ_COMMITTED:
            data.aborted_transactions = [
                AbortedTransaction(producer_id=each.producer_id, first_offset=each.first_offset)
                for each in found.aborted
            ]
        # Only the first batch of all may be larger than the limits, so that a client always gets on.
        if found.records is None or (not is_first and len(found.records) > bytes_max):
            return data, False
        data.records = found.records
        # A reader that is behind need not wait for more to be written.
        return data, found.end_offset < leader.end_for(self._isolation)

    def _name_of(self, topic: TopicKey) -> str:
        if isinstance(topic, str):
            return topic
        name = self._parts.view.image.topic_names.get(TopicId(topic))
        if name is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
        return name

    def _failed(self, topic: TopicKey, asked: FetchPartition, error: KafkaError) -> PartitionData:
        data = PartitionData(
            partition_index=asked.partition,
            error_code=error.code,
            high_watermark=_UNKNOWN_OFFSET,
            aborted_transactions=None,
            records=_NO_RECORDS,
        )
        if error.code in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH):
            hint = None
            if self._call.version >= _LEADER_HINTS:
                hint = leaders.hint(self._parts.view, self._name_of(topic), asked.partition)
            if hint is not None:
                self._hints.append(hint)
                data.current_leader = LeaderIdAndEpoch(
                    leader_id=hint.leader_id, leader_epoch=hint.leader_epoch
                )
        return data

    # ------------------------------------------------------------ waiting

    async def wait(self) -> Response:
        """Read again whenever something was committed, until there is enough or the time is over."""
        woken = asyncio.Event()
        clock = self._parts.world.clock
        deadline_ms = clock.now_ms() + self._request.max_wait_ms
        waited_for: dict[Replica, None] = {}
        try:
            while True:
                for replica in self._replicas:
                    replica.waiting.for_records(woken)
                waited_for |= dict.fromkeys(self._replicas)
                is_woken = await is_set_within(woken, clock, deadline_ms - clock.now_ms())
                woken.clear()
                outcome = self.read()
                if outcome.is_ready or not is_woken:
                    return self.response(outcome)
        finally:
            for replica in waited_for:
                replica.waiting.no_longer(woken)

    # ------------------------------------------------------------ answering

    def response(self, outcome: _Outcome) -> Response:
        """The results, without those that a session's client knows already."""
        by_id = self._call.version >= _TOPIC_IDS
        topics: list[FetchableTopicResponse] = []
        key_before: TopicKey | None = None
        for key, data in self._context.select(outcome.results):
            if key != key_before:
                key_before = key
                topics.append(
                    FetchableTopicResponse(
                        topic="" if by_id else str(key),
                        topic_id=key if by_id and not isinstance(key, str) else ZERO_UUID,
                        partitions=[],
                    )
                )
            topics[-1].partitions.append(data)
        at = leaders.places(
            self._parts.view, (each.leader_id for each in self._hints), self._call.listener.name
        )
        return FetchResponse(
            throttle_time_ms=0,
            error_code=self._context.error,
            session_id=self._context.session_id,
            responses=topics,
            node_endpoints=[NodeEndpoint(**place._asdict()) for place in at],
        )
