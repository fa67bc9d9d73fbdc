"""What can be read of a node's state at any time, by the names under which Prometheus keeps it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from moldau.metadata.image.topics import NO_LEADER, Partition
from moldau.node.apis.call import Parts
from moldau.node.connections import Server
from moldau.node.health import Health
from moldau.node.metrics import Labels, Metrics
from moldau.node.partitions import Replica


def measure(metrics: Metrics, parts: Parts, server: Server, health: Health) -> None:
    """Let the state of a node be read; docs/operating.md says what each of these is good for."""
    metrics.gauge_read(
        "moldau_ready",
        "Whether clients are served, as /readyz says.",
        lambda: health.why_not_ready(parts.world.clock.now_ms()) is None,
    )
    metrics.gauge_read(
        "moldau_connections", "Connections of clients and nodes.", lambda: len(server.connections)
    )
    metrics.gauge_read(
        "moldau_disk_free_bytes", "Room that is left where the data is.", parts.world.disk.free_bytes
    )
    _measure_quorum(metrics, parts)
    if parts.config.is_broker:
        _measure_partitions(metrics, parts)


def _measure_quorum(metrics: Metrics, parts: Parts) -> None:
    quorum = parts.quorum
    metrics.gauge_read(
        "moldau_active_controller",
        "Whether this node is the active controller.",
        lambda: parts.controller is not None and parts.controller.is_active,
    )
    metrics.gauge_read(
        "moldau_quorum_epoch",
        "The epoch of the quorum.",
        lambda: quorum.quorum.epoch if quorum.is_open else 0,
    )
    metrics.gauge_read(
        "moldau_metadata_offset",
        "The last record of the metadata log that this node acts on.",
        lambda: parts.view.image.offset,
    )
    metrics.gauge_read(
        "moldau_brokers_active",
        "Brokers of the cluster that are unfenced and stay.",
        lambda: len(parts.view.active_brokers()),
    )
    metrics.gauge_read(
        "moldau_offline_partitions",
        "Partitions of the cluster that have no leader.",
        lambda: sum(partition.leader == NO_LEADER for partition in _all_partitions(parts)),
    )


def _measure_partitions(metrics: Metrics, parts: Parts) -> None:
    metrics.gauge_read(
        "moldau_partitions", "Partitions that have a replica here.", lambda: len(parts.partitions)
    )
    metrics.gauge_read(
        "moldau_leaders",
        "Partitions that are led here.",
        lambda: sum(replica.leader is not None for replica in parts.partitions),
    )
    metrics.gauge_read(
        "moldau_under_replicated_partitions",
        "Partitions led here of which a replica is not in sync.",
        lambda: sum(len(each.isr) < len(each.replicas) for each in _led_partitions(parts)),
    )
    metrics.gauge_read(
        "moldau_accepts_records",
        "Whether the disk has room for records; while it has none, they are refused.",
        lambda: parts.partitions.has_room,
    )

    def of_each(read: Callable[[Replica], float]) -> Callable[[], Iterable[tuple[Labels, float]]]:
        return lambda: (
            ({"topic": each.at.topic, "partition": str(each.at.partition)}, read(each))
            for each in parts.partitions
        )

    metrics.gauges_read(
        "moldau_log_bytes", "Bytes of a partition's log.", of_each(lambda replica: replica.log.size_bytes)
    )
    metrics.gauges_read(
        "moldau_log_start_offset",
        "The first record of a partition that is kept.",
        of_each(lambda replica: replica.log.log_start_offset),
    )
    metrics.gauges_read(
        "moldau_log_end_offset",
        "Where a partition's next record goes.",
        of_each(lambda replica: replica.log.log_end_offset),
    )
    metrics.gauges_read(
        "moldau_high_watermark",
        "Up to where a partition's records are committed.",
        of_each(lambda replica: replica.log.high_watermark),
    )


def _all_partitions(parts: Parts) -> Iterator[Partition]:
    for topic in parts.view.image.topics.values():
        yield from topic.partitions


def _led_partitions(parts: Parts) -> Iterator[Partition]:
    return (each for each in _all_partitions(parts) if each.leader == parts.node_id)
