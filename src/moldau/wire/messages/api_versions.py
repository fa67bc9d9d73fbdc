"""ApiVersions: which versions a node speaks, and the features of its cluster."""

from __future__ import annotations

from moldau.wire.message import Request, Response
from moldau.wire.types import Bool, Int16, Int32, Int64, String, Struct, field


class ApiVersionsRequest(Request, key=18, versions="0-4", flexible="3+"):
    """Ask which versions the node speaks; the first request of nearly every client."""

    client_software_name: String = field("3+", default="", ignorable=True)
    client_software_version: String = field("3+", default="", ignorable=True)


class ApiVersionsResponse(Response, key=18, versions="0-4", flexible="3+"):
    """The versions of each API, and the features of the cluster."""

    error_code: Int16
    api_keys: list[ApiVersion]
    throttle_time_ms: Int32 = field("1+", default=0, ignorable=True)
    supported_features: list[SupportedFeatureKey] = field("3+", tag=0, default=[], ignorable=True)
    finalized_features_epoch: Int64 = field("3+", tag=1, default=-1, ignorable=True)
    finalized_features: list[FinalizedFeatureKey] = field("3+", tag=2, default=[], ignorable=True)
    zk_migration_ready: Bool = field("3+", tag=3, default=False, ignorable=True)


class ApiVersion(Struct):
    """An API and the versions spoken of it."""

    api_key: Int16
    min_version: Int16
    max_version: Int16


class SupportedFeatureKey(Struct):
    """A feature and the levels that this node supports."""

    name: String
    min_version: Int16
    max_version: Int16


class FinalizedFeatureKey(Struct):
    """A feature and the levels that the cluster has finalised."""

    name: String
    max_version_level: Int16
    min_version_level: Int16
