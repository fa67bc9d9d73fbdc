"""The features that this release knows: which levels it can live with, and what each level needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from moldau.metadata.image.image import METADATA_VERSION
from moldau.metadata.image.nodes import FeatureRange

KRAFT_VERSION: Final = "kraft.version"
TRANSACTION_VERSION: Final = "transaction.version"
GROUP_VERSION: Final = "group.version"
ELR_VERSION: Final = "eligible.leader.replicas.version"
SHARE_VERSION: Final = "share.version"
STREAMS_VERSION: Final = "streams.version"


@dataclass(frozen=True, slots=True)
class Feature:
    """A feature that the whole cluster switches to a level at once."""

    name: str
    lowest: int
    # Also the level of a new cluster.
    highest: int
    # By level, what else must have at least which level.
    needs: Mapping[int, Mapping[str, int]] = field(default_factory=dict)


# As in Kafka 4.3. Only the newest metadata.version is served: no cluster of ours ever had an older one.
FEATURES: Final[dict[str, Feature]] = {
    feature.name: feature
    for feature in (
        Feature(METADATA_VERSION, 30, 30),
        Feature(KRAFT_VERSION, 0, 1),
        Feature(TRANSACTION_VERSION, 0, 2),
        Feature(GROUP_VERSION, 0, 1),
        Feature(ELR_VERSION, 0, 1, needs={1: {METADATA_VERSION: 23}}),
        Feature(SHARE_VERSION, 0, 1),
        Feature(STREAMS_VERSION, 0, 1),
    )
}

# What a node of this release registers with, and answers to ApiVersions.
SUPPORTED_FEATURES: Final = tuple(
    FeatureRange(feature.name, feature.lowest, feature.highest) for feature in FEATURES.values()
)
