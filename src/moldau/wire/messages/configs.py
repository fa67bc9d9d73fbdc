"""Configuration of topics, brokers, groups and other resources."""

from __future__ import annotations

from moldau.wire.message import Request, Response
from moldau.wire.types import Bool, Int8, Int16, Int32, String, Struct, field


class DescribeConfigsRequest(Request, key=32, versions="1-4", flexible="4+"):
    """Ask for settings of resources."""

    resources: list[DescribeConfigsResource]
    include_synonyms: Bool = field(default=False)
    include_documentation: Bool = field("3+", default=False)


class DescribeConfigsResource(Struct):
    """A resource and the settings to show; null means all."""

    resource_type: Int8
    resource_name: String
    configuration_keys: list[String] | None = field(nullable="0+")


class DescribeConfigsResponse(Response, key=32, versions="1-4", flexible="4+"):
    """The settings of each resource."""

    throttle_time_ms: Int32
    results: list[DescribeConfigsResult]


class DescribeConfigsResult(Struct):
    """The settings of one resource."""

    error_code: Int16
    error_message: String | None = field(nullable="0+")
    resource_type: Int8
    resource_name: String
    configs: list[DescribeConfigsResourceResult]


class DescribeConfigsResourceResult(Struct):
    """A setting, its value and where it comes from."""

    name: String
    value: String | None = field(nullable="0+")
    read_only: Bool
    config_source: Int8 = field(default=-1)
    is_sensitive: Bool
    synonyms: list[DescribeConfigsSynonym]
    config_type: Int8 = field("3+", default=0, ignorable=True)
    documentation: String | None = field("3+", nullable="0+", default="", ignorable=True)


class DescribeConfigsSynonym(Struct):
    """A value that the setting would have from another source."""

    name: String
    value: String | None = field(nullable="0+")
    source: Int8


class AlterConfigsRequest(Request, key=33, versions="0-2", flexible="2+"):
    """Replace all settings of resources."""

    resources: list[AlterConfigsResource]
    validate_only: Bool


class AlterConfigsResource(Struct):
    """A resource and its new settings."""

    resource_type: Int8
    resource_name: String
    configs: list[AlterConfigsAlterableConfig]


class AlterConfigsAlterableConfig(Struct):
    """A setting and its value."""

    name: String
    value: String | None = field(nullable="0+")


class AlterConfigsResponse(Response, key=33, versions="0-2", flexible="2+"):
    """Which resources were changed."""

    throttle_time_ms: Int32
    responses: list[AlterConfigsResourceResponse]


class AlterConfigsResourceResponse(Struct):
    """The outcome for one resource."""

    error_code: Int16
    error_message: String | None = field(nullable="0+")
    resource_type: Int8
    resource_name: String


class IncrementalAlterConfigsRequest(Request, key=44, versions="0-1", flexible="1+"):
    """Change some settings of resources and leave the others."""

    resources: list[IncrementalAlterConfigsResource]
    validate_only: Bool


class IncrementalAlterConfigsResource(Struct):
    """A resource and the changes of its settings."""

    resource_type: Int8
    resource_name: String
    configs: list[IncrementalAlterConfigsAlterableConfig]


class IncrementalAlterConfigsAlterableConfig(Struct):
    """A change: set, delete, append to or subtract from a setting."""

    name: String
    config_operation: Int8
    value: String | None = field(nullable="0+")


class IncrementalAlterConfigsResponse(Response, key=44, versions="0-1", flexible="1+"):
    """Which resources were changed."""

    throttle_time_ms: Int32
    responses: list[AlterConfigsResourceResponse]


class ListConfigResourcesRequest(Request, key=74, versions="0-1", flexible="0+"):
    """Ask which resources have settings of their own."""

    resource_types: list[Int8] = field("1+", default=[])


class ListConfigResourcesResponse(Response, key=74, versions="0-1", flexible="0+"):
    """The resources that were found."""

    throttle_time_ms: Int32
    error_code: Int16
    config_resources: list[ConfigResource]


class ConfigResource(Struct):
    """A resource by type and name."""

    resource_name: String
    resource_type: Int8 = field("1+", default=16, ignorable=True)
