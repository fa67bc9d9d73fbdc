"""The first records of a new cluster, as `kafka-storage format` writes them into `bootstrap.checkpoint`."""

from __future__ import annotations

from collections.abc import Mapping

from moldau.metadata.features import ELR_VERSION, FEATURES, KRAFT_VERSION
from moldau.metadata.image import ALL_BROKERS
from moldau.metadata.image.image import METADATA_VERSION
from moldau.model.errors import ErrorCode, KafkaError
from moldau.model.settings.resolve import Layer, Source, find, resolve
from moldau.model.settings.setting import Scope
from moldau.model.settings.types import text_of
from moldau.wire.message import MetadataRecord
from moldau.wire.messages.metadata_records import ConfigRecord, FeatureLevelRecord


def bootstrap_records(
    *, static: Mapping[str, str], levels: Mapping[str, int] | None = None
) -> list[MetadataRecord]:
    """The levels of all features, the newest unless others are asked for, and what they need to be set.

    `kraft.version` is not among them: the quorum keeps it in a control record of its own.
    """
    chosen = {name: feature.highest for name, feature in FEATURES.items()} | dict(levels or {})
    for name, level in chosen.items():
        _check(name, level, chosen)
    names = sorted(chosen, key=lambda name: (name != METADATA_VERSION, name))
    records: list[MetadataRecord] = [
        FeatureLevelRecord(name=name, feature_level=chosen[name])
        for name in names
        if name != KRAFT_VERSION and chosen[name]
    ]
    if chosen[ELR_VERSION]:
        # Who is eligible to lead depends on this setting, so it is the cluster's and not each broker's.
        setting = find(Scope.BROKER, "min.insync.replicas")
        text = text_of(resolve(Scope.BROKER, Layer(Source.STATIC, static))[setting])
        records.append(
            ConfigRecord(
                resource_type=ALL_BROKERS.type, resource_name=ALL_BROKERS.name, name=setting.name, value=text
            )
        )
    return records


def _check(name: str, level: int, chosen: Mapping[str, int]) -> None:
    feature = FEATURES.get(name)
    if feature is None:
        raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION, f"There is no feature {name!r}.")
    if not feature.lowest <= level <= feature.highest:
        raise KafkaError(
            ErrorCode.INVALID_UPDATE_VERSION,
            f"{name} cannot start at level {level}: {feature.lowest} to {feature.highest} are supported.",
        )
    for needed, level_min in feature.needs.get(level, {}).items():
        if chosen[needed] < level_min:
            raise KafkaError(
                ErrorCode.INVALID_UPDATE_VERSION,
                f"{name} at level {level} needs {needed} at level {level_min}.",
            )
