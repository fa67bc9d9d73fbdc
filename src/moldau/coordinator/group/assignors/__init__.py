"""Who of a consumer group reads which partitions: pure functions, by the names that Kafka gives them."""

from collections.abc import Mapping
from typing import Final

from moldau.coordinator.group.assignors.assignment import NO_RACKS, Assignor, Partitions, Subscriber
from moldau.coordinator.group.assignors.ranges import assign_ranges
from moldau.coordinator.group.assignors.uniform import assign_uniformly

__all__ = ["ASSIGNORS", "NO_RACKS", "Assignor", "Partitions", "Subscriber"]

ASSIGNORS: Final[Mapping[str, Assignor]] = {"uniform": assign_uniformly, "range": assign_ranges}
