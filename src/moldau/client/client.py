"""A client of one cluster: it makes producers and consumers, and ends them with itself."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import overload

from moldau.client.admin import Admin
from moldau.client.cluster import ClientWorld, Cluster
from moldau.client.consumer import Assignment, Consumer
from moldau.client.errors import ClientError
from moldau.client.group_consumer import Callback, GroupConsumer
from moldau.client.member import Topics
from moldau.client.partitioners import Partitioner, partitioner_named
from moldau.client.producer import Producer
from moldau.client.settings import ClientSettings, SettingValue
from moldau.model.errors import ErrorCode
from moldau.world.ports import Address, ConnectionLost, Scope


@asynccontextmanager
async def open_client(
    world: ClientWorld, bootstrap: Sequence[Address], settings: ClientSettings
) -> AsyncIterator[Client]:
    """A client on any world; NETWORK_EXCEPTION at once if none of the addresses answers."""
    cluster = Cluster(world, bootstrap, settings)
    async with world.tasks.scope() as scope:
        client = Client(cluster, settings, scope)
        try:
            try:
                await cluster.refresh()
            except ConnectionLost as error:
                raise ClientError(ErrorCode.NETWORK_EXCEPTION, str(error)) from error
            scope.start(cluster.keep_fresh(), name="client: metadata")
            yield client
            await client.close()
        finally:
            client.abandon()


class Client:
    """One cluster, as seen by one application."""

    def __init__(self, cluster: Cluster, settings: ClientSettings, scope: Scope) -> None:
        self.cluster = cluster
        self.admin = Admin(cluster)
        self._settings = settings
        self._scope = scope
        self._parts: list[Producer | Consumer] = []
        self._part_count = 0

    def producer(self, *, partitioner: Partitioner | str | None = None, **settings: SettingValue) -> Producer:
        """A producer; settings given here go before the client's, a partitioner is a name or a callable."""
        chosen = self._settings.but(settings)
        if isinstance(partitioner, str):
            partitioner = partitioner_named(partitioner)
        producer = Producer(
            self.cluster,
            chosen,
            self._scope,
            lane=self._new_lane("producer"),
            partitioner=partitioner or partitioner_named(chosen.partitioner),
        )
        self._parts.append(producer)
        return producer

    @overload
    def consumer(
        self,
        assignment: Iterable[str] = (),
        *,
        group_id: str,
        pattern: str | None = None,
        on_assigned: Callback | None = None,
        on_revoked: Callback | None = None,
        on_lost: Callback | None = None,
        **settings: SettingValue,
    ) -> GroupConsumer: ...
    @overload
    def consumer(self, assignment: Assignment = (), **settings: SettingValue) -> Consumer: ...
    def consumer(  # type: ignore[misc]  # no setting is called as the parameters are
        self,
        assignment: Assignment = (),
        *,
        group_id: str | None = None,
        pattern: str | None = None,
        on_assigned: Callback | None = None,
        on_revoked: Callback | None = None,
        on_lost: Callback | None = None,
        **settings: SettingValue,
    ) -> Consumer:
        """A consumer of topics, of `(topic, partition)` pairs, or of pairs with the offsets to start from.

        With `group_id` it reads topics, or those whose names match `pattern`, together with the other members
        of the group, and is told which partitions come and go.
        """
        chosen = self._settings.but(settings)
        lane = self._new_lane("consumer")
        consumer: Consumer
        if group_id is None:
            consumer = Consumer(self.cluster, chosen, self._scope, lane=lane, assignment=assignment)
        else:
            consumer = GroupConsumer(
                self.cluster,
                chosen,
                self._scope,
                lane=lane,
                group_id=group_id,
                topics=_subscription(assignment, pattern),
                on_assigned=on_assigned,
                on_revoked=on_revoked,
                on_lost=on_lost,
            )
        self._parts.append(consumer)
        return consumer

    def _new_lane(self, kind: str) -> str:
        # Those that were closed have nothing left to end.
        self._parts = [part for part in self._parts if not part.is_closed]
        self._part_count += 1
        return f"{kind} {self._part_count}"

    async def close(self) -> None:
        """Flush what producers hold, and end everything."""
        for part in self._parts:
            await part.close()
        self.abandon()

    def abandon(self) -> None:
        """End everything now; what producers hold fails."""
        for part in self._parts:
            part.abandon()
        self.cluster.close()


def _subscription(assignment: Assignment, pattern: str | None) -> Topics:
    given = tuple(assignment)
    names = tuple(each for each in given if isinstance(each, str))
    if len(names) != len(given) or bool(names) == (pattern is not None):
        raise ClientError(
            ErrorCode.INVALID_REQUEST, "A member of a group reads topics, by their names or by a pattern."
        )
    return Topics(names, pattern)
