"""Where the logs end that a pipeline reads, asked now and then, so that its lag is that of now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from moldau.model.ids import TopicPartition

if TYPE_CHECKING:
    from moldau.client.blocking import BlockingClient
    from moldau.client.settings import SettingValue


class LogEnds:
    """Asks one cluster; while that does not answer, nothing is known."""

    def __init__(self, servers: str, settings: Mapping[str, SettingValue]) -> None:
        self._servers = servers
        waits: dict[str, SettingValue] = {
            "client_id": "moldau-pipeline",
            "default_api_timeout_ms": 3_000,
            "request_timeout_ms": 3_000,
            "socket_connection_setup_timeout_ms": 1_000,
        }
        self._settings = {**settings, **waits}
        self._client: BlockingClient | None = None

    def ask(self, places: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        """The ends of these partitions; of none if the cluster does not answer now."""
        from moldau.client import LATEST, ClientError, connect_sync

        if not places:
            return {}
        try:
            if self._client is None:
                self._client = connect_sync(self._servers, **self._settings)
            ends = self._client.admin.list_offsets({(each.topic, each.partition): LATEST for each in places})
        except (ClientError, TimeoutError, OSError):
            return {}
        return {place: found.offset for place, found in ends.items()}

    def close(self) -> None:
        """Let go of the connection."""
        if self._client is not None:
            self._client.close()
            self._client = None
