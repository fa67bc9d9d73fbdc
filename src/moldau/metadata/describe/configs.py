"""What clients are told about settings: every one of them, its value, and where the value comes from."""

from __future__ import annotations

from collections.abc import Iterable

from moldau.metadata.image import ALL_BROKERS, Resource, ResourceType, broker_resource
from moldau.metadata.view import ClusterView
from moldau.model.errors import ErrorCode, KafkaError
from moldau.model.ids import TopicName, check_topic_name
from moldau.model.settings.resolve import Candidate, Entry, Source
from moldau.model.settings.setting import Scope, UpdateMode
from moldau.model.settings.types import text_of
from moldau.wire.messages.configs import (
    ConfigResource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)


def describe_configs(view: ClusterView, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
    """The settings of resources; this broker answers only for itself and for what all brokers share."""
    results = []
    for asked in request.resources:
        code, message = ErrorCode.NONE, None
        configs: list[DescribeConfigsResourceResult] = []
        try:
            configs = [
                _described(entry, request)
                for entry in _entries(view, Resource(asked.resource_type, asked.resource_name))
                if _is_wanted(entry, asked)
            ]
        except KafkaError as refused:
            code, message = refused.code, refused.message
        results.append(
            DescribeConfigsResult(
                error_code=code,
                error_message=message,
                resource_type=asked.resource_type,
                resource_name=asked.resource_name,
                configs=configs,
            )
        )
    return DescribeConfigsResponse(throttle_time_ms=0, results=results)


def list_config_resources(
    view: ClusterView, request: ListConfigResourcesRequest, *, version: int
) -> ListConfigResourcesResponse:
    """The resources that can have settings, of the types asked for or of all."""
    # Version 0 came with client metrics and knew nothing else; an empty list means all types since.
    asked = [ResourceType.CLIENT_METRICS] if version == 0 else request.resource_types or list(ResourceType)
    unknown = [kind for kind in asked if kind not in list(ResourceType)]
    if unknown:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"There is no resource type {unknown[0]}.")
    found = {
        *(Resource(ResourceType.TOPIC, name) for name in view.image.topics),
        *(broker_resource(node_id) for node_id in view.image.brokers),
        *(
            each
            for each in view.image.configs
            if each.type in (ResourceType.GROUP, ResourceType.CLIENT_METRICS)
        ),
    }
    return ListConfigResourcesResponse(
        throttle_time_ms=0,
        error_code=ErrorCode.NONE,
        config_resources=[
            ConfigResource(resource_name=resource.name, resource_type=resource.type)
            for resource in sorted(found)
            if resource.type in asked
        ],
    )


def _entries(view: ClusterView, resource: Resource) -> Iterable[Entry]:
    match resource.type:
        case ResourceType.TOPIC:
            name: TopicName = check_topic_name(resource.name)
            if name not in view.image.topics:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no topic {name!r}.")
            return view.topic_settings(view.image.texts(resource)).entries()
        case ResourceType.BROKER if resource == ALL_BROKERS:
            return _shared_by_all(view)
        case ResourceType.BROKER:
            if resource != broker_resource(view.node_id):
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST,
                    f"This is broker {view.node_id}: it cannot tell the settings of {resource.name!r}.",
                )
            return view.broker_settings.entries()
        case ResourceType.GROUP:
            if not resource.name:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "The name of the group is empty.")
            return view.group_settings(view.image.texts(resource)).entries()
        case _:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"The {resource} has no settings that are kept here.")


def _shared_by_all(view: ClusterView) -> Iterable[Entry]:
    """Only what was set for all brokers at once, as it was set."""
    for entry in view.broker_settings.entries():
        shared = tuple(each for each in entry.candidates if each.source is Source.CLUSTER)
        if shared:
            yield Entry(entry.setting, shared, entry.is_honoured)


def _is_wanted(entry: Entry, asked: DescribeConfigsResource) -> bool:
    if asked.configuration_keys:
        return entry.setting.name in asked.configuration_keys
    # Kafka keeps settings for its own tests to itself until somebody uses them.
    return not (entry.setting.name.startswith("internal.") and entry.candidates[0].source is Source.DEFAULT)


def _described(entry: Entry, request: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    setting = entry.setting
    winner = entry.candidates[0]
    is_read_only = setting.scope is Scope.BROKER and setting.update is UpdateMode.READ_ONLY
    return DescribeConfigsResourceResult(
        name=setting.name,
        value=None if setting.is_sensitive else text_of(winner.value),
        read_only=is_read_only,
        config_source=winner.source,
        is_sensitive=setting.is_sensitive,
        synonyms=[_synonym(entry, each) for each in entry.candidates] if request.include_synonyms else [],
        config_type=setting.type.code,
        documentation=setting.doc if request.include_documentation else None,
    )


def _synonym(entry: Entry, candidate: Candidate) -> DescribeConfigsSynonym:
    return DescribeConfigsSynonym(
        name=candidate.name,
        value=None if entry.setting.is_sensitive else text_of(candidate.value),
        source=candidate.source,
    )
