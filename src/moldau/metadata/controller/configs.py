"""Settings of topics, brokers and groups: changing some of them, or replacing all."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import Final, TypeVar

from moldau.metadata.controller.decisions import ControllerDecision, decided, repeated
from moldau.metadata.image import ALL_BROKERS, Resource, ResourceType
from moldau.metadata.view import MIN_INSYNC_REPLICAS, ClusterView
from moldau.model.errors import ErrorCode, KafkaError
from moldau.model.ids import NodeId, TopicName, check_topic_name
from moldau.model.settings.known import PREFIXES
from moldau.model.settings.resolve import Layer, Source, find, resolve
from moldau.model.settings.setting import InvalidSetting, Scope
from moldau.model.settings.types import TypeCode, text_of
from moldau.wire.message import MetadataRecord
from moldau.wire.messages.configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
    IncrementalAlterConfigsAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
)
from moldau.wire.messages.metadata_records import ClearElrRecord, ConfigRecord

Asked = TypeVar("Asked", IncrementalAlterConfigsResource, AlterConfigsResource)
Texts = Mapping[str, str]

_SCOPES: Final = {
    ResourceType.TOPIC: Scope.TOPIC,
    ResourceType.BROKER: Scope.BROKER,
    ResourceType.GROUP: Scope.GROUP,
}


class Operation(IntEnum):
    """What is done with a setting; the last two are for lists."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


def incremental_alter_configs(
    view: ClusterView, request: IncrementalAlterConfigsRequest
) -> ControllerDecision[IncrementalAlterConfigsResponse]:
    """Change some settings of each resource and leave the others."""
    results, records = _alter(view, request.resources, _incremented)
    reply = IncrementalAlterConfigsResponse(throttle_time_ms=0, responses=results)
    return decided(reply, records, is_trial=request.validate_only)


def alter_configs(
    view: ClusterView, request: AlterConfigsRequest
) -> ControllerDecision[AlterConfigsResponse]:
    """Replace all settings of each resource; what is not named is taken away."""
    results, records = _alter(view, request.resources, _replaced)
    reply = AlterConfigsResponse(throttle_time_ms=0, responses=results)
    return decided(reply, records, is_trial=request.validate_only)


def _alter(
    view: ClusterView, asked: list[Asked], texts_after: Callable[[Asked, Texts], Texts]
) -> tuple[list[AlterConfigsResourceResponse], list[MetadataRecord]]:
    """The outcome for each resource, and the records that make of its texts what they are to be."""
    duplicates = repeated((each.resource_type, each.resource_name) for each in asked)
    results = []
    records: list[MetadataRecord] = []
    for each in asked:
        resource = Resource(each.resource_type, each.resource_name)
        code, message = ErrorCode.NONE, None
        try:
            if resource in duplicates:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"The request names the {resource} twice.")
            _check_resource(view, resource)
            twice = repeated(config.name for config in each.configs)
            if twice:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"The request names {twice[0]} twice.")
            before = view.image.texts(resource)
            after = texts_after(each, before)
            _check_texts(view, resource, before=before, after=after)
            records += _records(view, resource, before=before, after=after)
        except KafkaError as refused:
            code, message = refused.code, refused.message
        results.append(
            AlterConfigsResourceResponse(
                error_code=code,
                error_message=message,
                resource_type=resource.type,
                resource_name=resource.name,
            )
        )
    return results, records


# ------------------------------------------------------------------------------------ what the texts become


def _replaced(asked: AlterConfigsResource, before: Texts) -> Texts:
    return {config.name: _given(config.name, config.value) for config in asked.configs}


def _incremented(asked: IncrementalAlterConfigsResource, before: Texts) -> Texts:
    after = dict(before)
    scope = _SCOPES[ResourceType(asked.resource_type)]
    for config in asked.configs:
        text = _new_text(scope, config, before.get(config.name))
        if text is None:
            after.pop(config.name, None)
        else:
            after[config.name] = text
    return after


def _new_text(
    scope: Scope, config: IncrementalAlterConfigsAlterableConfig, present: str | None
) -> str | None:
    match config.config_operation:
        case Operation.DELETE:
            # What does not exist is not set either, and a misspelt name should be heard of.
            _find(scope, config.name)
            return None
        case Operation.SET:
            return _given(config.name, config.value)
        case Operation.APPEND | Operation.SUBTRACT:
            change = _given(config.name, config.value).split(",")
            setting = find(scope, config.name)
            if setting.type.code is not TypeCode.LIST:
                raise InvalidSetting(
                    f"{config.name} is not a list, so nothing can be appended to it or subtracted from it."
                )
            items = [item for item in (present or text_of(setting.default) or "").split(",") if item]
            if config.config_operation == Operation.APPEND:
                items += [item for item in change if item not in items]
            else:
                items = [item for item in items if item not in change]
            return ",".join(items)
        case unknown:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"There is no operation {unknown}, asked for on {config.name}."
            )


def _given(name: str, text: str | None) -> str:
    if text is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{name} is to be set, and has no value.")
    return text


def _find(scope: Scope, name: str) -> None:
    if not (scope is Scope.BROKER and name.startswith(PREFIXES)):
        find(scope, name)


# ------------------------------------------------------------------------------------------- what is allowed


def _check_resource(view: ClusterView, resource: Resource) -> None:
    """An error if the resource cannot have settings, or is not there."""
    match resource.type:
        case ResourceType.TOPIC:
            if not resource.name:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "There are no defaults of all topics: name one.")
            name: TopicName = check_topic_name(resource.name)
            if name not in view.image.topics:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic {name!r}.")
        case ResourceType.BROKER:
            if resource != ALL_BROKERS:
                _check_broker(view, resource.name)
        case ResourceType.GROUP:
            if not resource.name:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "There are no defaults of all groups: name one.")
        case _:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"The {resource} has no settings that are kept here.")


def _check_broker(view: ClusterView, name: str) -> None:
    if not (name.isascii() and name.isdigit()):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{name!r} is not the id of a broker.")
    node_id = NodeId(int(name))
    if node_id not in view.image.brokers and node_id not in view.image.controllers:
        raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"No node {node_id} is registered.")


def _check_texts(view: ClusterView, resource: Resource, *, before: Texts, after: Texts) -> None:
    """InvalidSetting if the resource cannot have these settings."""
    match resource.type:
        case ResourceType.TOPIC:
            view.topic_settings(after)
        case ResourceType.GROUP:
            view.group_settings(after)
        case _:
            _check_broker_texts(view, resource, before=before, after=after)


def _check_broker_texts(view: ClusterView, resource: Resource, *, before: Texts, after: Texts) -> None:
    for name in after:
        _find(Scope.BROKER, name)
    source = Source.CLUSTER if resource == ALL_BROKERS else Source.BROKER
    layers = [Layer(source, after), *(layer for layer in view.broker_layers if layer.source is not source)]
    try:
        resolve(Scope.BROKER, *layers)
        # What is fine for each setting alone may leave topics with a contradiction to fall back to.
        resolve(Scope.TOPIC, *layers)
    except InvalidSetting as invalid:
        # Kafka calls it so, and clients tell the two apart (KAFKA-13609).
        raise KafkaError(ErrorCode.INVALID_REQUEST, invalid.message) from invalid
    name = MIN_INSYNC_REPLICAS.name
    if view.is_elr_on and before.get(name) != after.get(name):
        # Who is eligible to lead depends on it, so all brokers must mean the same (KIP-966).
        if source is Source.BROKER:
            raise InvalidSetting(
                f"{name} cannot differ between brokers while eligible leader replicas are on."
            )
        if name not in after:
            raise InvalidSetting(f"{name} cannot be taken away while eligible leader replicas are on.")


# --------------------------------------------------------------------------------------------- the records


def _records(view: ClusterView, resource: Resource, *, before: Texts, after: Texts) -> list[MetadataRecord]:
    changed = {
        name: after.get(name) for name in sorted({**before, **after}) if before.get(name) != after.get(name)
    }
    records: list[MetadataRecord] = [
        ConfigRecord(resource_type=resource.type, resource_name=resource.name, name=name, value=text)
        for name, text in changed.items()
    ]
    if MIN_INSYNC_REPLICAS.name in changed and view.is_elr_on and resource.type != ResourceType.GROUP:
        # They were eligible under the old number; under a larger one they may lack what was committed.
        records.append(ClearElrRecord(topic_name=resource.name))
    return records
