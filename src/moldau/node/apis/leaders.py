"""Where a client should look for a partition that is not led here (KIP-951)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from moldau.metadata.view import ClusterView
from moldau.model.ids import NodeId, TopicName


class Hint(NamedTuple):
    """Who leads a partition, in which epoch."""

    leader_id: NodeId
    leader_epoch: int


class NodeAt(NamedTuple):
    """A leader's place on the listener that the client uses."""

    node_id: NodeId
    host: str
    port: int
    rack: str | None


def hint(view: ClusterView, topic: str, partition: int) -> Hint | None:
    """The leader that the cluster knows; None if there is none."""
    found = view.image.topics.get(TopicName(topic))
    known = found.partition(partition) if found is not None else None
    return None if known is None else Hint(known.leader, known.leader_epoch)


def places(view: ClusterView, leaders: Iterable[NodeId], listener: str) -> list[NodeAt]:
    """Where those nodes listen, each once."""
    found = []
    for node_id in sorted(set(leaders)):
        broker = view.image.brokers.get(node_id)
        endpoint = broker.endpoint(listener) if broker is not None else None
        if broker is not None and endpoint is not None:
            found.append(NodeAt(node_id, endpoint.host, endpoint.port, broker.rack))
    return found
