"""The cluster as a client reaches it: connections, metadata, and asking again where that may help."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Awaitable, Callable, Iterable, Sequence
from enum import IntEnum
from typing import Protocol, TypeVar

from moldau.client.connection import CLOSED_BY_BROKER, BrokerConnection, open_connection
from moldau.client.errors import ClientError, Unreachable, check, is_worth_another_try
from moldau.client.metadata import Broker, Leader, Metadata, TopicView
from moldau.client.settings import ClientSettings
from moldau.model.errors import ErrorCode, KafkaError, MalformedMessage
from moldau.model.ids import TopicPartition
from moldau.wire.message import Request, Response
from moldau.wire.messages.groups import FindCoordinatorRequest, FindCoordinatorResponse
from moldau.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from moldau.world.ports import Address, Clock, ConnectionLost, Network, Randomness, Tasks

R = TypeVar("R", bound=Response)
T = TypeVar("T")

_JITTER_PERCENT = 20
# How connections end of which the broker wants to know whose they are.
_ENDS_OF_THE_ANONYMOUS = (CLOSED_BY_BROKER, os.strerror(errno.ECONNRESET), "certificate required")
_KEYS_IN_A_LIST_SINCE = 4
_AUTO_CREATION_SINCE = 4


class ClientWorld(Protocol):
    """The ports that a client needs; every World has them."""

    @property
    def clock(self) -> Clock: ...
    @property
    def randomness(self) -> Randomness: ...
    @property
    def tasks(self) -> Tasks: ...
    @property
    def network(self) -> Network: ...


class CoordinatorKind(IntEnum):
    """What a coordinator is asked for."""

    GROUP = 0
    TRANSACTION = 1
    SHARE = 2


def backoff_ms(failures: int, *, base_ms: int, max_ms: int, jitter: Callable[[int], int]) -> int:
    """How long to wait after so many failures in a row: doubling, bounded, 20 % more or less by chance."""
    delay = min(base_ms << min(failures, 30), max_ms)
    spread = delay * _JITTER_PERCENT // 100
    return delay - spread + jitter(2 * spread + 1)


class Cluster:
    """Connections by address and lane, and the metadata that says where to go.

    A connection answers in order, so a fetch that waits for data holds up whatever is asked behind it: those
    who wait long have a lane, and with it connections, of their own.
    """

    def __init__(self, world: ClientWorld, bootstrap: Sequence[Address], settings: ClientSettings) -> None:
        self.world = world
        self.settings = settings
        self.metadata = Metadata()
        self._bootstrap = tuple(bootstrap)
        self._connections: dict[tuple[Address, str], BrokerConnection] = {}
        self._opening: dict[tuple[Address, str], asyncio.Lock] = {}
        self._refreshing = asyncio.Lock()
        self._is_closed = False

    # ---------------------------------------------------------------- connections

    async def connection_to(self, node_id: int, lane: str = "") -> BrokerConnection:
        """A connection to this broker, opened if need be."""
        return await self._connection_at(self._broker(node_id).address, lane)

    def open_connection_to(self, node_id: int, lane: str = "") -> BrokerConnection | None:
        """The connection to this broker, if there is one already."""
        broker = self.metadata.brokers.get(node_id)
        return None if broker is None else self._open_connection_at(broker.address, lane)

    async def any_connection(self) -> BrokerConnection:
        """A connection to whichever broker answers; Unreachable if none does."""
        brokers = [broker.address for broker in self.metadata.brokers.values()]
        start = self.world.randomness.below(len(brokers)) if brokers else 0
        candidates = list(dict.fromkeys((*brokers[start:], *brokers[:start], *self._bootstrap)))
        for address in candidates:
            if connection := self._open_connection_at(address, ""):
                return connection
        tried: dict[Address, str] = {}
        for address in candidates:
            try:
                return await self._connection_at(address, "")
            except (ConnectionLost, KafkaError, MalformedMessage, TimeoutError) as error:
                why = str(error).removeprefix(str(address)).lstrip(": ")
                tried[address] = why or type(error).__name__
        raise Unreachable(tried, hint=self._hint(tried.values()))

    def _hint(self, reasons: Iterable[str]) -> str:
        # In TLS 1.3 a broker judges a client when the client believes that all is well.
        is_anonymous = self.settings.security_protocol == "SSL" and not self.settings.shows_certificate
        if is_anonymous and any(why.endswith(_ENDS_OF_THE_ANONYMOUS) for why in reasons):
            return (
                "If the broker wants a certificate of its clients, ssl.keystore.location says what to show."
            )
        return ""

    def close(self) -> None:
        """End all connections."""
        self._is_closed = True
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def close_lane(self, lane: str) -> None:
        """End the connections of one lane."""
        for place in [place for place in self._connections if place[1] == lane]:
            self._connections.pop(place).close()
        for place in [
            place for place, lock in self._opening.items() if place[1] == lane and not lock.locked()
        ]:
            del self._opening[place]

    def _open_connection_at(self, address: Address, lane: str) -> BrokerConnection | None:
        connection = self._connections.get((address, lane))
        return connection if connection is not None and connection.is_open else None

    async def _connection_at(self, address: Address, lane: str) -> BrokerConnection:
        # One at a time opens; the others find what it has opened.
        async with self._opening.setdefault((address, lane), asyncio.Lock()):
            if connection := self._open_connection_at(address, lane):
                return connection
            timeout_ms = self.settings.socket_connection_setup_timeout_ms
            try:
                connection = await open_connection(
                    address,
                    network=self.world.network,
                    clock=self.world.clock,
                    client_id=self.settings.client_id,
                    timeout_ms=timeout_ms,
                )
            except TimeoutError:
                raise ConnectionLost(f"{address}: no answer within {timeout_ms} ms") from None
            if self._is_closed:
                connection.close()
                raise ConnectionLost(f"{address}: this client is closed")
            self._connections[address, lane] = connection
            return connection

    def _broker(self, node_id: int) -> Broker:
        broker = self.metadata.brokers.get(node_id)
        if broker is None:
            raise ClientError(ErrorCode.LEADER_NOT_AVAILABLE, f"No address is known of broker {node_id}.")
        return broker

    # ---------------------------------------------------------------- metadata

    async def refresh(
        self, topics: Iterable[str] | None = (), *, seen: int | None = None, may_create: bool = False
    ) -> None:
        """Ask for these topics (None: all) and those known already.

        `seen` is the revision that the caller found wanting: if somebody has refreshed since, that will do.
        """
        async with self._refreshing:
            is_answered = all(self.metadata.has_heard_of(name) for name in topics or ())
            if seen is not None and self.metadata.revision > seen and is_answered:
                return
            connection = await self.any_connection()
            is_complete = topics is None
            names = dict.fromkeys((*self.metadata.topics, *(topics or ())))
            request = MetadataRequest(
                topics=None if is_complete else [MetadataRequestTopic(name=name) for name in names]
            )
            if connection.version_of(MetadataRequest) >= _AUTO_CREATION_SINCE:
                request.allow_auto_topic_creation = may_create and self.settings.allow_auto_create_topics
            response = await self.ask_at(connection, request, MetadataResponse)
            check(response.error_code)
            self.metadata.apply(response, is_complete=is_complete)

    async def refresh_if_possible(self, topics: Iterable[str] = (), *, seen: int | None = None) -> None:
        """The same, without complaint: whatever is wrong will show when the cluster is used."""
        try:
            await self.refresh(topics, seen=seen)
        except (ConnectionLost, KafkaError, MalformedMessage):
            return

    async def keep_fresh(self) -> None:
        """Refresh what is known every now and then, for ever."""
        while True:
            await self.world.clock.sleep_ms(self.settings.metadata_max_age_ms)
            await self.refresh_if_possible()

    async def topic(self, name: str, *, timeout_ms: int | None = None, may_create: bool = False) -> TopicView:
        """The topic as the cluster describes it; asked for, and waited for, if it is not known yet."""

        async def look_up() -> TopicView:
            view = self.metadata.topics.get(name)
            if view is None:
                await self.refresh([name], seen=self.metadata.revision, may_create=may_create)
                view = self.metadata.topics.get(name)
            if view is None:
                raise ClientError(
                    self.metadata.errors.get(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), where=name
                )
            return view

        return await self.retrying(look_up, timeout_ms=timeout_ms)

    async def leader(self, partition: TopicPartition) -> Leader:
        """Who leads a partition; one attempt, LEADER_NOT_AVAILABLE if nobody does."""
        leader = self.metadata.leader(partition)
        if leader is None:
            await self.refresh([partition.topic], seen=self.metadata.revision)
            leader = self.metadata.leader(partition)
        if leader is None:
            topic = self.metadata.topics.get(partition.topic)
            if topic is not None and partition.partition in topic.partitions:
                raise ClientError(ErrorCode.LEADER_NOT_AVAILABLE, where=partition)
            raise ClientError(
                self.metadata.errors.get(partition.topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
                where=partition,
            )
        return leader

    async def coordinator(self, key: str, kind: CoordinatorKind) -> int:
        """The broker that coordinates this group or transactional id."""
        connection = await self.any_connection()
        if connection.version_of(FindCoordinatorRequest) >= _KEYS_IN_A_LIST_SINCE:
            request = FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
        else:
            request = FindCoordinatorRequest(key_type=kind, key=key)
        response = await self.ask_at(connection, request, FindCoordinatorResponse)
        found = response.coordinators[0] if response.coordinators else response
        check(found.error_code, found.error_message, where=key)
        address = Address(found.host, found.port)
        self.metadata.brokers.setdefault(found.node_id, Broker(found.node_id, address))
        return found.node_id

    # ---------------------------------------------------------------- asking

    async def ask_at(self, connection: BrokerConnection, request: Request, reply: type[R]) -> R:
        """Ask on this connection, once."""
        return await connection.ask(request, reply, timeout_ms=self.settings.request_timeout_ms)

    async def ask_any(self, request: Request, reply: type[R], check_reply: Callable[[R], None]) -> R:
        """Ask whichever broker answers, again while `check_reply` raises what may pass."""

        async def attempt() -> R:
            response = await self.ask_at(await self.any_connection(), request, reply)
            check_reply(response)
            return response

        return await self.retrying(attempt)

    async def ask_leaders(
        self,
        partitions: Iterable[TopicPartition],
        ask: Callable[
            [BrokerConnection, Sequence[TopicPartition]], Awaitable[dict[TopicPartition, T | ClientError]]
        ],
        *,
        timeout_ms: int | None = None,
    ) -> dict[TopicPartition, T]:
        """Ask each partition's leader; those that answer with an error that may pass are asked again."""
        missing = list(dict.fromkeys(partitions))
        found: dict[TopicPartition, T] = {}

        async def attempt() -> None:
            by_leader: dict[int, list[TopicPartition]] = {}
            for partition in missing:
                by_leader.setdefault((await self.leader(partition)).node_id, []).append(partition)
            failure: ClientError | None = None
            for node_id, led in by_leader.items():
                for partition, answer in (await ask(await self.connection_to(node_id), led)).items():
                    if not isinstance(answer, ClientError):
                        found[partition] = answer
                        missing.remove(partition)
                    elif failure is None or not is_worth_another_try(answer):
                        failure = answer
            if failure is not None:
                raise failure

        await self.retrying(attempt, timeout_ms=timeout_ms)
        return found

    async def retrying(self, attempt: Callable[[], Awaitable[T]], *, timeout_ms: int | None = None) -> T:
        """What `attempt` gives in the end; between attempts it waits, and looks at the cluster anew."""
        clock = self.world.clock
        deadline_ms = clock.now_ms() + (
            self.settings.default_api_timeout_ms if timeout_ms is None else timeout_ms
        )
        failures = 0
        while True:
            seen = self.metadata.revision
            try:
                return await attempt()
            except (ConnectionLost, KafkaError, TimeoutError) as error:
                delay_ms = self.backoff_ms(failures)
                if not is_worth_another_try(error) or clock.now_ms() + delay_ms > deadline_ms:
                    if isinstance(error, KafkaError):
                        raise
                    raise ClientError(ErrorCode.NETWORK_EXCEPTION, str(error) or None) from error
            failures += 1
            await clock.sleep_ms(delay_ms)
            await self.refresh_if_possible(seen=seen)

    def backoff_ms(self, failures: int) -> int:
        """How long to wait after so many failures in a row."""
        return backoff_ms(
            failures,
            base_ms=self.settings.retry_backoff_ms,
            max_ms=self.settings.retry_backoff_max_ms,
            jitter=self.world.randomness.below,
        )
