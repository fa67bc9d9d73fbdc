"""Where work is measured: a cluster, how its topics are made, and the process that serves, if it is known."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from moldau.bench.usage import Meter
from moldau.client import LATEST, NewTopic, connect_sync
from moldau.client.settings import SettingValue


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic that is ready, and the address of the leader of each partition."""

    name: str
    leaders: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Site:
    """A cluster to measure."""

    bootstrap_servers: str
    configs: Mapping[str, str] = field(default_factory=dict)
    server_pid: int | None = None
    timeout_s: float = 60
    client_settings: Mapping[str, SettingValue] = field(default_factory=dict)

    def meter(self) -> Meter:
        """What a round is measured with."""
        return Meter(self.server_pid)

    @contextmanager
    def topic(self, partitions: int = 1, configs: Mapping[str, str] | None = None) -> Iterator[Topic]:
        """A new topic, of which all partitions can be written to; deleted at the end."""
        name = f"moldau-bench-{time.time_ns()}"
        with connect_sync(self.bootstrap_servers, **self.client_settings) as client:
            made = NewTopic(name, partitions=partitions, configs={**self.configs, **(configs or {})})
            client.admin.create_topics(made)
            try:
                # Brokers learn of a new topic one after the other; this asks until the leaders answer.
                client.admin.list_offsets({(name, index): LATEST for index in range(partitions)})
                brokers = {
                    broker.node_id: str(broker.address) for broker in client.admin.describe_cluster().brokers
                }
                found = client.admin.describe_topics(name)[name].partitions
                yield Topic(name, tuple(brokers[found[index].leader.node_id] for index in range(partitions)))
            finally:
                client.admin.delete_topics(name)
