"""Where the partitions of a topic are."""

from __future__ import annotations

from moldau.metadata.image import Image
from moldau.metadata.image.topics import Topic


def racks_of(topic: Topic, image: Image) -> list[tuple[str, ...]]:
    """For each partition the racks of its replicas, in order; as often as there are replicas."""
    found = []
    for partition in topic.partitions:
        brokers = (image.brokers.get(node_id) for node_id in partition.replicas)
        racks = (broker.rack for broker in brokers if broker is not None and broker.rack is not None)
        found.append(tuple(sorted(racks)))
    return found
