"""Client quotas: who may use how much."""

from __future__ import annotations

from moldau.wire.message import Request, Response
from moldau.wire.types import Bool, Float64, Int8, Int16, Int32, String, Struct, field


class DescribeClientQuotasRequest(Request, key=48, versions="0-1", flexible="1+"):
    """Ask for quotas whose entities match."""

    components: list[ComponentData]
    strict: Bool


class ComponentData(Struct):
    """What one part of an entity must match."""

    entity_type: String
    match_type: Int8
    match: String | None = field(nullable="0+")


class DescribeClientQuotasResponse(Response, key=48, versions="0-1", flexible="1+"):
    """The quotas that were found."""

    throttle_time_ms: Int32
    error_code: Int16
    error_message: String | None = field(nullable="0+")
    entries: list[DescribeClientQuotasEntryData] | None = field(nullable="0+")


class DescribeClientQuotasEntryData(Struct):
    """An entity and its quotas."""

    entity: list[EntityData]
    values: list[ValueData]


class EntityData(Struct):
    """One part of an entity; a null name is the default."""

    entity_type: String
    entity_name: String | None = field(nullable="0+")


class ValueData(Struct):
    """A quota and its value."""

    key: String
    value: Float64


class AlterClientQuotasRequest(Request, key=49, versions="0-1", flexible="1+"):
    """Set or remove quotas."""

    entries: list[AlterClientQuotasRequestEntryData]
    validate_only: Bool


class AlterClientQuotasRequestEntryData(Struct):
    """An entity and the changes of its quotas."""

    entity: list[EntityData]
    ops: list[OpData]


class OpData(Struct):
    """A quota to set or remove."""

    key: String
    value: Float64
    remove: Bool


class AlterClientQuotasResponse(Response, key=49, versions="0-1", flexible="1+"):
    """Which quotas were changed."""

    throttle_time_ms: Int32
    entries: list[AlterClientQuotasResponseEntryData]


class AlterClientQuotasResponseEntryData(Struct):
    """The outcome for one entity."""

    error_code: Int16
    error_message: String | None = field(nullable="0+")
    entity: list[EntityData]
