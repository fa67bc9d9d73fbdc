"""Metrics that clients push to brokers (KIP-714)."""

from __future__ import annotations

from moldau.wire.message import Request, Response
from moldau.wire.types import Bool, Bytes, Int8, Int16, Int32, String, Uuid


class GetTelemetrySubscriptionsRequest(Request, key=71, versions="0", flexible="0+"):
    """Ask which metrics the client should push."""

    client_instance_id: Uuid


class GetTelemetrySubscriptionsResponse(Response, key=71, versions="0", flexible="0+"):
    """The metrics to push, how often and in which form."""

    throttle_time_ms: Int32
    error_code: Int16
    client_instance_id: Uuid
    subscription_id: Int32
    accepted_compression_types: list[Int8]
    push_interval_ms: Int32
    telemetry_max_bytes: Int32
    delta_temporality: Bool
    requested_metrics: list[String]


class PushTelemetryRequest(Request, key=72, versions="0", flexible="0+"):
    """Push metrics, in OpenTelemetry's encoding."""

    client_instance_id: Uuid
    subscription_id: Int32
    terminating: Bool
    compression_type: Int8
    metrics: Bytes


class PushTelemetryResponse(Response, key=72, versions="0", flexible="0+"):
    """Whether the metrics were accepted."""

    throttle_time_ms: Int32
    error_code: Int16
