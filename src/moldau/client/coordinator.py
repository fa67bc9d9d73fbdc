"""The broker that looks after a group, and looking for it again when it has moved."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from moldau.client.cluster import Cluster, CoordinatorKind
from moldau.client.connection import BrokerConnection
from moldau.model.errors import KafkaError
from moldau.wire.message import Request, Response
from moldau.world.ports import ConnectionLost

R = TypeVar("R", bound=Response)
T = TypeVar("T")


class GroupCoordinator:
    """Where the requests of one group go; those that wait long have a lane of their own."""

    def __init__(self, cluster: Cluster, group_id: str, *, lane: str = "") -> None:
        self.group_id = group_id
        self._cluster = cluster
        self._lane = lane
        self._node_id: int | None = None

    async def node_id(self) -> int:
        """The broker, asked for if it is not known."""
        if self._node_id is None:
            self._node_id = await self._cluster.coordinator(self.group_id, CoordinatorKind.GROUP)
        return self._node_id

    async def version_of(self, request: type[Request]) -> int:
        """The version in which this would be asked."""
        return (await self._connection()).version_of(request)

    async def ask(
        self,
        request: Request,
        reply: type[R],
        *,
        timeout_ms: int | None = None,
        version_max: int | None = None,
    ) -> R:
        """Ask once; errors inside the reply are the caller's, who tells `heard` of them."""
        try:
            connection = await self._connection()
            version = connection.version_of(type(request))
            return await connection.ask(
                request,
                reply,
                timeout_ms=self._cluster.settings.request_timeout_ms if timeout_ms is None else timeout_ms,
                version=version if version_max is None else min(version, version_max),
            )
        except (ConnectionLost, KafkaError) as error:
            self.heard(error)
            raise

    async def _connection(self) -> BrokerConnection:
        return await self._cluster.connection_to(await self.node_id(), self._lane)

    def heard(self, error: Exception) -> None:
        """Look for the coordinator again if this may mean that it has moved."""
        if isinstance(error, ConnectionLost) or (isinstance(error, KafkaError) and error.code.is_retriable):
            self._node_id = None

    async def retrying(self, attempt: Callable[[], Awaitable[T]], *, timeout_ms: int | None = None) -> T:
        """What `attempt` gives in the end, at whichever broker coordinates the group then."""

        async def listening() -> T:
            try:
                return await attempt()
            except (ConnectionLost, KafkaError) as error:
                self.heard(error)
                raise

        return await self._cluster.retrying(listening, timeout_ms=timeout_ms)
