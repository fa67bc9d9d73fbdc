"""Client quotas: who may be limited, by what, and who matches a question."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from moldau.metadata.controller.decisions import ControllerDecision, decided, repeated
from moldau.metadata.image import EntityPart, Image, QuotaEntity, quota_entity
from moldau.metadata.image.image import quota_record
from moldau.metadata.view import ClusterView
from moldau.model.errors import ErrorCode, KafkaError
from moldau.model.settings.resolve import SETTINGS
from moldau.model.settings.setting import Scope
from moldau.model.settings.types import TypeCode
from moldau.wire.messages.metadata_records import ClientQuotaRecord
from moldau.wire.messages.quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntryData,
    AlterClientQuotasResponse,
    AlterClientQuotasResponseEntryData,
    ComponentData,
    DescribeClientQuotasEntryData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    OpData,
    ValueData,
)

_USER: Final = "user"
_CLIENT_ID: Final = "client-id"
_IP: Final = "ip"
# Addresses are limited in how often they connect, users and clients in everything else.
_IP_LIMITS: Final = ("connection_creation_rate",)
_LARGEST: Final = {TypeCode.INT: 2**31 - 1, TypeCode.LONG: 2**63 - 1}
_FRACTION_MAX: Final = 1e-6

_EXACT: Final = 0
_DEFAULT: Final = 1
_ANY: Final = 2


def alter_client_quotas(
    view: ClusterView, request: AlterClientQuotasRequest
) -> ControllerDecision[AlterClientQuotasResponse]:
    """Set and remove quotas; each entity gets its own result."""
    duplicates = repeated(quota_entity(entry.entity) for entry in request.entries)
    records: list[ClientQuotaRecord] = []
    results = []
    for entry in request.entries:
        code, message = ErrorCode.NONE, None
        try:
            if quota_entity(entry.entity) in duplicates:
                raise _invalid("the request names the entity twice")
            records += _alter(view.image, entry)
        except KafkaError as refused:
            code, message = refused.code, refused.message
        results.append(
            AlterClientQuotasResponseEntryData(error_code=code, error_message=message, entity=entry.entity)
        )
    reply = AlterClientQuotasResponse(throttle_time_ms=0, entries=results)
    return decided(reply, records, is_trial=request.validate_only)


def _alter(image: Image, entry: AlterClientQuotasRequestEntryData) -> list[ClientQuotaRecord]:
    entity = quota_entity(entry.entity)
    limits = _limits_of(entity)
    twice = repeated(op.key for op in entry.ops)
    if twice:
        raise _invalid(f"the request names the quota {twice[0]} twice")
    present = image.quotas.get(entity, {})
    records = []
    for op in entry.ops:
        value = None if op.remove else op.value
        if value is not None:
            _check_limit(op, limits)
        if value != present.get(op.key):
            records.append(quota_record(entity, key=op.key, value=value))
    return records


def _limits_of(entity: QuotaEntity) -> tuple[str, ...]:
    """What the entity can be limited in; INVALID_REQUEST if it is no entity."""
    types = [part.type for part in entity]
    if not types:
        raise _invalid("the entity is empty")
    for part in entity:
        if part.type not in (_USER, _CLIENT_ID, _IP):
            raise _invalid(f"there is no entity type {part.type!r}")
        if part.is_named and not part.name:
            raise _invalid(f"the name of the {part.type} is empty")
    if repeated(types):
        raise _invalid(f"the entity has more than one {repeated(types)[0]}")
    if _IP not in types:
        return tuple(name for name in SETTINGS[Scope.QUOTA] if name not in _IP_LIMITS)
    if len(types) > 1:
        raise _invalid("an ip cannot be combined with a user or client-id")
    (address,) = entity
    if address.is_named and not _is_address(address):
        raise _invalid(f"{address.name!r} is not an address")
    return _IP_LIMITS


def _is_address(part: EntityPart) -> bool:
    """Whether a name looks like an address of version 4 or 6; names of hosts are not looked up."""
    fields = part.name.split(".")
    if len(fields) == 4:
        return all(field.isascii() and field.isdigit() and int(field) <= 255 for field in fields)
    return ":" in part.name and all(char in "0123456789abcdefABCDEF:." for char in part.name)


def _check_limit(op: OpData, limits: tuple[str, ...]) -> None:
    if op.key not in limits:
        raise _invalid(f"the entity has no quota {op.key!r}, only {', '.join(limits)}")
    if not op.value > 0:
        raise _invalid(f"{op.key} must be larger than 0, not {op.value}")
    largest = _LARGEST.get(SETTINGS[Scope.QUOTA][op.key].type.code)
    if largest is None:
        return
    if op.value > largest:
        raise _invalid(f"{op.key} must be at most {largest}, not {op.value}")
    if op.value % 1 > _FRACTION_MAX:
        raise _invalid(f"{op.key} must be a whole number, not {op.value}")


def _invalid(why: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, f"The quota cannot be set or asked for: {why}.")


# ------------------------------------------------------------------------------------------------ asking


def describe_client_quotas(
    view: ClusterView, request: DescribeClientQuotasRequest
) -> DescribeClientQuotasResponse:
    """The quotas of all entities that match; a strict question matches no entity with further parts."""
    matches = _matcher(request.components)
    entries = [
        DescribeClientQuotasEntryData(
            entity=[EntityData(entity_type=part.type, entity_name=part.name_or_none) for part in entity],
            values=[ValueData(key=key, value=value) for key, value in sorted(limits.items())],
        )
        for entity, limits in view.image.quotas.items()
        if matches(entity) and not (request.strict and len(entity) != len(request.components))
    ]
    return DescribeClientQuotasResponse(
        throttle_time_ms=0, error_code=ErrorCode.NONE, error_message=None, entries=entries
    )


def _matcher(components: list[ComponentData]) -> Callable[[QuotaEntity], bool]:
    types = [component.entity_type for component in components]
    for component in components:
        _check_component(component)
    if repeated(types):
        raise _invalid(f"the question names {repeated(types)[0]} twice")
    if _IP in types and len(types) > 1:
        raise _invalid("an ip cannot be combined with a user or client-id")

    def matches(entity: QuotaEntity) -> bool:
        parts = {part.type: part for part in entity}
        return all(_part_matches(parts.get(each.entity_type), each) for each in components)

    return matches


def _part_matches(part: EntityPart | None, component: ComponentData) -> bool:
    if part is None:
        return False
    # A default is asked for with a null as well.
    return component.match_type == _ANY or part.name_or_none == component.match


def _check_component(component: ComponentData) -> None:
    if not component.entity_type:
        raise _invalid("the type of an entity is empty")
    if component.entity_type not in (_USER, _CLIENT_ID, _IP):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"There is no entity type {component.entity_type!r}.")
    if component.match_type == _EXACT:
        if component.match is None:
            raise _invalid("an exact match needs a name")
    elif component.match_type in (_DEFAULT, _ANY):
        if component.match is not None:
            raise _invalid(f"only an exact match has a name, here {component.match!r}")
    else:
        raise _invalid(f"there is no match type {component.match_type}")
