"""ApiVersions: what this node speaks, and which features its cluster has."""

from __future__ import annotations

import re
from typing import Final

from moldau.metadata.features import (
    KRAFT_VERSION,
    SHARE_VERSION,
    STREAMS_VERSION,
    SUPPORTED_FEATURES,
    TRANSACTION_VERSION,
)
from moldau.model.errors import ErrorCode, KafkaError
from moldau.node.apis.call import Call, Parts
from moldau.wire.message import Response
from moldau.wire.messages import ApiKey, spoken_versions
from moldau.wire.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
# What these promise is not served yet. Clients act on the levels that they see, so they see none.
_UNSERVED: Final = (TRANSACTION_VERSION, SHARE_VERSION, STREAMS_VERSION)
_NAMES_SOFTWARE: Final = 3
# Older clients stop at a feature whose lowest level is 0 (KAFKA-17011).
_KNOWS_LEVEL_0: Final = 4


def handle(parts: Parts, call: Call) -> Response:
    """The versions of all APIs on this listener."""
    request = call.body
    assert isinstance(request, ApiVersionsRequest)
    if call.version >= _NAMES_SOFTWARE:
        for text in (request.client_software_name, request.client_software_version):
            if not _SOFTWARE.fullmatch(text):
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"{text!r} does not name a client's software.")
    image = parts.view.image
    return ApiVersionsResponse(
        error_code=ErrorCode.NONE,
        api_keys=list(parts.api_versions[call.listener.is_controller]),
        supported_features=[
            SupportedFeatureKey(name=name, min_version=lowest, max_version=highest)
            for name, lowest, highest in SUPPORTED_FEATURES
            if name not in _UNSERVED and (lowest > 0 or call.version >= _KNOWS_LEVEL_0)
        ],
        finalized_features_epoch=max(image.offset, 0),
        finalized_features=[
            FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            # The quorum keeps its version in a control record: it has always been able to change its voters.
            for name, level in (*image.features.items(), (KRAFT_VERSION, 1))
            if name not in _UNSERVED
        ],
    )


def refuse(call: Call, error: KafkaError) -> Response:
    """The error alone."""
    return ApiVersionsResponse(error_code=error.code, api_keys=[])


def unsupported() -> Response:
    """What a client hears, in version 0, that asks in a version not spoken here: with which it can ask."""
    versions = spoken_versions(ApiKey.API_VERSIONS)
    own = ApiVersion(api_key=ApiKey.API_VERSIONS, min_version=versions.lowest, max_version=versions.highest)
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[own])
