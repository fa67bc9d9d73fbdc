"""A client of one cluster: it makes producers and consumers, and ends them with itself."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from moldau.client.admin import Admin
from moldau.client.cluster import ClientWorld, Cluster
from moldau.client.consumer import Assignment, Consumer
from moldau.client.errors import ClientError
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

    def consumer(self, assignment: Assignment = (), **settings: SettingValue) -> Consumer:
        """A consumer of topics, of `(topic, partition)` pairs, or of pairs with the offsets to start from."""
        consumer = Consumer(
            self.cluster,
            self._settings.but(settings),
            self._scope,
            lane=self._new_lane("consumer"),
            assignment=assignment,
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
