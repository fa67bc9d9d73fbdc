"""Reading topics together with others: a consumer whose partitions its group assigns.

Heartbeats go on in the background. Partitions change hands only inside `poll`, when the application is done
with what the last one gave it: what it has read is committed, it is told, and only then others are.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from inspect import isawaitable
from types import TracebackType

from moldau.client.classic_member import ClassicMember, matching_topics
from moldau.client.cluster import Cluster
from moldau.client.committed import (
    CommittedOffset,
    Committer,
    Offsets,
    Place,
    commit_offsets,
    committed_offsets,
    fetch_offsets,
)
from moldau.client.consumer import NO_ENDS, Consumer, _Assigned
from moldau.client.consumer_member import ConsumerMember
from moldau.client.coordinator import GroupCoordinator
from moldau.client.errors import ClientError, code_of, is_worth_another_try
from moldau.client.member import Learn, Member, Send, Topics, Wait
from moldau.client.offsets import place_of
from moldau.client.settings import ClientSettings
from moldau.client.waiting import Signal
from moldau.model.errors import ErrorCode, KafkaError, MalformedMessage
from moldau.model.ids import TopicPartition, uuid_from_random, uuid_to_text
from moldau.wire.message import Response
from moldau.world.ports import ConnectionLost, Scope

# Told of partitions that come or go; it may be awaited for.
Callback = Callable[[tuple[TopicPartition, ...]], Awaitable[None] | None]

# What a broker answers that knows KIP-848 only by name, or has a classic group it must not convert.
_NO_CONSUMER_PROTOCOL = (ErrorCode.UNSUPPORTED_VERSION, ErrorCode.GROUP_ID_NOT_FOUND)


class GroupConsumer(Consumer):
    """A `Consumer` that is a member of a group; `assign` is the group's to call."""

    def __init__(
        self,
        cluster: Cluster,
        settings: ClientSettings,
        scope: Scope,
        *,
        lane: str,
        group_id: str,
        topics: Topics,
        on_assigned: Callback | None = None,
        on_revoked: Callback | None = None,
        on_lost: Callback | None = None,
    ) -> None:
        super().__init__(cluster, settings, scope, lane=lane)
        self.group_id = group_id
        self._topics = topics
        self._on_assigned = on_assigned
        self._on_revoked = on_revoked
        # As with Kafka's own client, whoever makes no difference hears of a loss as of a revocation.
        self._on_lost = on_lost or on_revoked
        self._offsets_at_coordinator = GroupCoordinator(cluster, group_id)
        # A join waits for others, and must not hold up what is asked behind it.
        self._member_lane = f"{lane} of {group_id}"
        self._coordinator = GroupCoordinator(cluster, group_id, lane=self._member_lane)
        self._member = self._new_member(is_classic=settings.group_protocol == "classic")
        self._member_wake = Signal()
        self._failures = 0
        now_ms = self._clock.now_ms()
        self._polled_ms = now_ms
        self._polls = 0
        self._commit_at_ms = now_ms + settings.auto_commit_interval_ms
        self._learn_all_at_ms = now_ms + settings.metadata_max_age_ms
        scope.start(self._stay_a_member(), name=f"{lane}: member of {group_id}")

    # ---------------------------------------------------------------- the group

    @property
    def member_id(self) -> str:
        """What the group calls this consumer."""
        return self._member.member_id

    @property
    def epoch(self) -> int:
        """The generation or the member's epoch; -1 while it is no member."""
        return self._member.epoch

    @property
    def is_classic(self) -> bool:
        """Whether the classic protocol is spoken."""
        return isinstance(self._member, ClassicMember)

    def subscribe(self, topics: Iterable[str] = (), *, pattern: str | None = None) -> None:
        """Read other topics from now on."""
        self._topics = Topics(tuple(topics), pattern)
        self._member.subscribe(self._topics)
        self._member_wake.set()

    def assign(self, assignment: object, *, until: object = None) -> None:
        """Refused: the group assigns."""
        if assignment != ():
            raise ClientError(
                ErrorCode.INVALID_REQUEST, "The group assigns partitions; use a consumer without group_id."
            )

    async def assignment(self) -> tuple[TopicPartition, ...]:
        """The partitions that are read at present."""
        return tuple(sorted(self._assigned))

    # ---------------------------------------------------------------- offsets

    async def commit(self, offsets: Offsets[Place] | None = None) -> None:
        """Commit these offsets, or what polls have given out; returns when the coordinator has them."""
        await self._commit(self._positions() if offsets is None else committed_offsets(offsets))

    async def _commit(self, chosen: dict[TopicPartition, CommittedOffset]) -> None:
        if not chosen:
            return

        async def attempt() -> None:
            committer = self._committer()
            if committer.epoch < 0:
                raise ClientError(
                    ErrorCode.UNKNOWN_MEMBER_ID,
                    "This consumer is no member at present; its partitions may be read by others.",
                    where=self.group_id,
                )
            try:
                await commit_offsets(self._offsets_at_coordinator, committer, chosen)
            except ClientError as error:
                if error.code is not ErrorCode.STALE_MEMBER_EPOCH:
                    raise
                # The epoch has just changed: the next heartbeat tells the new one, or that it is over.
                self._member_wake.set()
                raise ConnectionLost(f"{self.group_id}: the epoch {committer.epoch} is stale") from error

        await self._offsets_at_coordinator.retrying(attempt)

    def commit_async(
        self, offsets: Offsets[Place] | None = None, on_done: Callable[[Exception | None], None] | None = None
    ) -> None:
        """The same without waiting; `on_done` hears how it went."""
        chosen = self._positions() if offsets is None else committed_offsets(offsets)

        async def commit() -> None:
            failure: Exception | None = None
            try:
                await self._commit(chosen)
            except (ConnectionLost, KafkaError) as error:
                failure = error
            if on_done is not None:
                on_done(failure)

        if chosen:
            self._scope.start(commit(), name=f"{self._lane}: commit")

    async def committed(self, *partitions: tuple[str, int]) -> dict[TopicPartition, CommittedOffset]:
        """What the group has committed, for these partitions or those that are read."""
        places = [place_of(each) for each in partitions] or list(self._assigned)
        return await self._offsets_at_coordinator.retrying(
            lambda: fetch_offsets(self._offsets_at_coordinator, places)
        )

    def _positions(self) -> dict[TopicPartition, CommittedOffset]:
        return {
            place: CommittedOffset(state.position, state.position_epoch)
            for place, state in self._assigned.items()
            if state.position is not None
        }

    def _committer(self) -> Committer:
        member = self._member
        return Committer(member.member_id, member.epoch, self._settings.group_instance_id or None)

    async def _reset(self, states: list[_Assigned]) -> None:
        """Begin at what is committed; where nothing is, as auto.offset.reset says."""
        wanted = {state.partition: state.seeks for state in states}
        committed = await self.committed(*wanted)
        for state in states:
            found = committed.get(state.partition)
            if found is not None and state.position is None and state.seeks == wanted[state.partition]:
                state.seek(found.offset)
                state.position_epoch = found.leader_epoch
        missing = [state for state in states if state.partition not in committed]
        if missing:
            await super()._reset(missing)

    # ---------------------------------------------------------------- polling

    async def _has_data(self, timeout_ms: int, ends: Mapping[TopicPartition, int] = NO_ENDS) -> bool:
        self._check_open()
        deadline_ms = self._clock.now_ms() + timeout_ms
        self._polls += 1
        try:
            self._commit_in_time()
            while True:
                await self._hand_over()
                if self._member.error is not None:
                    raise self._member.error
                if await super()._has_data(0, ends):
                    return True
                left_ms = deadline_ms - self._clock.now_ms()
                if left_ms <= 0:
                    return False
                await self._arrived.wait_at_most(self._clock, left_ms)
        finally:
            self._polls -= 1
            self._polled_ms = self._clock.now_ms()
            self._member_wake.set()

    def _commit_in_time(self) -> None:
        now_ms = self._clock.now_ms()
        if self._settings.enable_auto_commit and now_ms >= self._commit_at_ms and self._member.epoch >= 0:
            self._commit_at_ms = now_ms + self._settings.auto_commit_interval_ms
            self.commit_async()

    async def _hand_over(self) -> None:
        """Own what the group wants, and nothing else: first give up, then take."""
        while (wanted := self._member.wanted) is not None:
            given_up = tuple(place for place in self._assigned if place not in wanted.partitions)
            taken = tuple(place for place in wanted.partitions if place not in self._assigned)
            if given_up or wanted.is_lost:
                await self._give_up(given_up, is_lost=wanted.is_lost)
            if self._member.wanted is not wanted:
                # The group has decided anew while the application was told.
                self._member.own(self._assigned)
                continue
            for place in taken:
                self._add(place)
            self._member.own(self._assigned)
            self._member_wake.set()
            self._wake.set()
            if taken:
                await _tell(self._on_assigned, taken)

    async def _give_up(self, places: tuple[TopicPartition, ...], *, is_lost: bool) -> None:
        if not is_lost:
            for place in places:
                self._assigned[place].is_paused = True
            await self._commit_before_leaving()
        if places:
            await _tell(self._on_lost if is_lost else self._on_revoked, places)
        for place in places:
            self._assigned.pop(place, None)
        # A broker may not have been asked for more because one of these had enough.
        self._wake.set()

    async def _commit_before_leaving(self) -> None:
        if not self._settings.enable_auto_commit or self._member.epoch < 0:
            return
        try:
            async with self._clock.timeout_ms(self._settings.default_api_timeout_ms):
                await self.commit()
        except (ConnectionLost, KafkaError, TimeoutError):
            # Whoever reads on reads some records again, which is what a group promises.
            return

    # ---------------------------------------------------------------- staying a member

    async def _stay_a_member(self) -> None:
        while not self.is_closed:
            now_ms = self._clock.now_ms()
            stall_at_ms = self._polled_ms + self._settings.max_poll_interval_ms
            if not self._polls and now_ms >= stall_at_ms:
                self._member.stall()
            await self._step(now_ms, stall_at_ms)
            if self._member.wanted is not None or self._member.error is not None:
                self._arrived.set()

    async def _step(self, now_ms: int, stall_at_ms: int) -> None:
        match self._member.step(now_ms):
            case Send() as sending:
                await self._send(sending)
            case Learn(topics):
                await self._learn(topics)
            case Wait(until_ms):
                moments = [moment for moment in (until_ms, self._learning_at()) if moment is not None]
                if not self._polls and stall_at_ms > now_ms:
                    moments.append(stall_at_ms)
                if self._member.wanted is not None or self._member.error is not None:
                    self._arrived.set()
                wait_ms = max(1, min(moments) - now_ms) if moments else None
                await self._member_wake.wait_at_most(self._clock, wait_ms)
                await self._watch_pattern()

    async def _send(self, sending: Send) -> None:
        member = self._member
        try:
            response = await self._coordinator.ask(
                sending.request, sending.reply, timeout_ms=sending.timeout_ms
            )
            code = _error_of(response)
            if code.is_retriable:
                raise ClientError(code, where=self.group_id)
        except (ConnectionLost, KafkaError, MalformedMessage, TimeoutError) as error:
            self._coordinator.heard(error)
            if not is_worth_another_try(error):
                self._end_with(error)
                return
            member.failed(self._clock.now_ms(), self._cluster.backoff_ms(self._failures))
            self._failures += 1
            await self._cluster.refresh_if_possible(seen=self._cluster.metadata.revision)
            return
        self._failures = 0
        if code in _NO_CONSUMER_PROTOCOL and self._may_fall_back():
            self._fall_back()
        else:
            member.answered(response, self._clock.now_ms())

    async def _learn(self, topics: tuple[str, ...] | None) -> None:
        try:
            await self._cluster.refresh(topics)
        except (ConnectionLost, KafkaError, MalformedMessage):
            await self._clock.sleep_ms(self._cluster.backoff_ms(self._failures))
            self._failures += 1
            return
        self._member.learned(self._clock.now_ms(), self._cluster.backoff_ms(self._failures))

    def _learning_at(self) -> int | None:
        return self._learn_all_at_ms if self._topics.pattern is not None and self.is_classic else None

    async def _watch_pattern(self) -> None:
        """A classic group finds the topics of a pattern by itself, now and then."""
        at_ms = self._learning_at()
        if at_ms is None or self._topics.pattern is None or self._clock.now_ms() < at_ms:
            return
        self._learn_all_at_ms = self._clock.now_ms() + self._settings.metadata_max_age_ms
        before = matching_topics(self._topics.pattern, self._cluster.metadata)
        await self._learn(None)
        if matching_topics(self._topics.pattern, self._cluster.metadata) != before:
            self._member.subscribe(self._topics)

    def _end_with(self, error: Exception) -> None:
        is_unknown = isinstance(error, KafkaError) and error.code in _NO_CONSUMER_PROTOCOL
        if is_unknown and self._may_fall_back():
            self._fall_back()
        else:
            self._member.error = error

    def _may_fall_back(self) -> bool:
        return self._settings.group_protocol is None and not self.is_classic and self._member.epoch < 0

    def _fall_back(self) -> None:
        self._member = self._new_member(is_classic=True)

    def _new_member(self, *, is_classic: bool) -> Member:
        metadata = self._cluster.metadata
        if is_classic:
            return ClassicMember(self.group_id, self._topics, self._settings, metadata)
        member_id = uuid_to_text(uuid_from_random(self._cluster.world.randomness.bytes(16)))
        return ConsumerMember(self.group_id, self._topics, self._settings, metadata, member_id=member_id)

    # ---------------------------------------------------------------- leaving

    async def close(self) -> None:
        """Commit what was given out, give up everything and leave the group."""
        if self.is_closed:
            return
        if self._assigned and self._member.epoch >= 0:
            await self._give_up(tuple(self._assigned), is_lost=False)
        self.is_closed = True
        self._member_wake.set()
        farewell = self._member.farewell()
        if farewell is not None:
            # Over the other lane: on its own one the member may be waiting for others to join. If it does not
            # arrive, the session ends by itself.
            with suppress(ConnectionLost, KafkaError, MalformedMessage):
                await self._offsets_at_coordinator.ask(farewell.request, farewell.reply)
        self.abandon()

    def abandon(self) -> None:
        """End without a word; the group notices when the session is over."""
        super().abandon()
        self._member_wake.set()
        self._cluster.close_lane(self._member_lane)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()


def _error_of(response: Response) -> ErrorCode:
    return code_of(getattr(response, "error_code"))  # noqa: B009  # all replies to members have one


async def _tell(callback: Callback | None, places: tuple[TopicPartition, ...]) -> None:
    if callback is not None:
        told = callback(places)
        if isawaitable(told):
            await told
