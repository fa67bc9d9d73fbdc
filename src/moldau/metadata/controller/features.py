"""Features: which levels the cluster may be switched to."""

from __future__ import annotations

from typing import Final

from moldau.metadata.controller.decisions import ControllerDecision, decided
from moldau.metadata.features import FEATURES, KRAFT_VERSION
from moldau.metadata.image import Image
from moldau.metadata.image.image import METADATA_VERSION
from moldau.metadata.image.nodes import supports
from moldau.metadata.view import ClusterView
from moldau.model.errors import ErrorCode, KafkaError
from moldau.wire.messages.brokers import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from moldau.wire.messages.metadata_records import FeatureLevelRecord

_UPGRADE: Final = 1
_SAFE_DOWNGRADE: Final = 2
_UNSAFE_DOWNGRADE: Final = 3


def update_features(
    view: ClusterView, request: UpdateFeaturesRequest
) -> ControllerDecision[UpdateFeaturesResponse]:
    """Switch features to other levels, all that are asked for or none."""
    proposed = {name: view.image.feature_level(name) for name in FEATURES}
    proposed.update((update.feature, update.max_version_level) for update in request.feature_updates)
    records = []
    for update in request.feature_updates:
        complaint = _complaint(view.image, update, proposed)
        if complaint is not None:
            raise KafkaError(
                ErrorCode.INVALID_UPDATE_VERSION,
                f"No feature was changed: {update.feature} cannot have level {update.max_version_level}, "
                f"because {complaint}.",
            )
        if update.max_version_level != view.image.feature_level(update.feature):
            records.append(FeatureLevelRecord(name=update.feature, feature_level=update.max_version_level))
    reply = UpdateFeaturesResponse(
        throttle_time_ms=0,
        error_code=ErrorCode.NONE,
        error_message=None,
        results=[
            UpdatableFeatureResult(feature=update.feature, error_code=ErrorCode.NONE, error_message=None)
            for update in request.feature_updates
        ],
    )
    return decided(reply, records, is_trial=request.validate_only)


def _complaint(image: Image, update: FeatureUpdateKey, proposed: dict[str, int]) -> str | None:
    name, level = update.feature, update.max_version_level
    feature = FEATURES.get(name)
    if feature is None:
        return "there is no such feature"
    if name == KRAFT_VERSION:
        return "the quorum changes it by itself, not the controller"
    if not feature.lowest <= level <= feature.highest:
        return f"this controller supports {feature.lowest} to {feature.highest}"
    for broker in image.brokers.values():
        if not broker.supports(name, level):
            return f"broker {broker.id} does not support it"
    for controller in image.controllers.values():
        if not supports(controller.features, name, level):
            return f"controller {controller.id} does not support it"
    for needed, level_min in feature.needs.get(level, {}).items():
        if proposed[needed] < level_min:
            return f"it needs {needed} at level {level_min}"
    # Version 0 of the request knew only this way of asking for a downgrade.
    kind = _SAFE_DOWNGRADE if update.allow_downgrade else update.upgrade_type
    return _wrong_direction(kind, level=level, current=image.feature_level(name), name=name)


def _wrong_direction(kind: int, *, level: int, current: int, name: str) -> str | None:
    if kind not in (_UPGRADE, _SAFE_DOWNGRADE, _UNSAFE_DOWNGRADE):
        return f"there is no upgrade type {kind}"
    if level < current and kind == _UPGRADE:
        return f"it is at level {current}, and no downgrade was asked for"
    if level > current and kind != _UPGRADE:
        return f"it is at level {current}, and a downgrade was asked for"
    if level < current and name == METADATA_VERSION:
        return "a downgrade might lose metadata"
    return None
