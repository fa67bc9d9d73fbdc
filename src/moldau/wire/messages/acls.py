"""Access control lists."""

from __future__ import annotations

from moldau.wire.message import Request, Response
from moldau.wire.types import Int8, Int16, Int32, String, Struct, field


class DescribeAclsRequest(Request, key=29, versions="1-3", flexible="2+"):
    """Ask for entries that match."""

    resource_type_filter: Int8
    resource_name_filter: String | None = field(nullable="0+")
    pattern_type_filter: Int8 = field(default=3)
    principal_filter: String | None = field(nullable="0+")
    host_filter: String | None = field(nullable="0+")
    operation: Int8
    permission_type: Int8


class DescribeAclsResponse(Response, key=29, versions="1-3", flexible="2+"):
    """The entries that were found."""

    throttle_time_ms: Int32
    error_code: Int16
    error_message: String | None = field(nullable="0+")
    resources: list[DescribeAclsResource]


class DescribeAclsResource(Struct):
    """A resource pattern and its entries."""

    resource_type: Int8
    resource_name: String
    pattern_type: Int8 = field(default=3)
    acls: list[AclDescription]


class AclDescription(Struct):
    """An entry: who, from where, may or may not do what."""

    principal: String
    host: String
    operation: Int8
    permission_type: Int8


class CreateAclsRequest(Request, key=30, versions="1-3", flexible="2+"):
    """Add entries."""

    creations: list[AclCreation]


class AclCreation(Struct):
    """An entry to add."""

    resource_type: Int8
    resource_name: String
    resource_pattern_type: Int8 = field(default=3)
    principal: String
    host: String
    operation: Int8
    permission_type: Int8


class CreateAclsResponse(Response, key=30, versions="1-3", flexible="2+"):
    """Which entries were added."""

    throttle_time_ms: Int32
    results: list[AclCreationResult]


class AclCreationResult(Struct):
    """The outcome for one entry."""

    error_code: Int16
    error_message: String | None = field(nullable="0+")


class DeleteAclsRequest(Request, key=31, versions="1-3", flexible="2+"):
    """Delete entries that match."""

    filters: list[DeleteAclsFilter]


class DeleteAclsFilter(Struct):
    """Which entries to delete."""

    resource_type_filter: Int8
    resource_name_filter: String | None = field(nullable="0+")
    pattern_type_filter: Int8 = field(default=3)
    principal_filter: String | None = field(nullable="0+")
    host_filter: String | None = field(nullable="0+")
    operation: Int8
    permission_type: Int8


class DeleteAclsResponse(Response, key=31, versions="1-3", flexible="2+"):
    """The entries that were deleted."""

    throttle_time_ms: Int32
    filter_results: list[DeleteAclsFilterResult]


class DeleteAclsFilterResult(Struct):
    """The entries that matched one filter."""

    error_code: Int16
    error_message: String | None = field(nullable="0+")
    matching_acls: list[DeleteAclsMatchingAcl]


class DeleteAclsMatchingAcl(Struct):
    """An entry that matched, and whether it was deleted."""

    error_code: Int16
    error_message: String | None = field(nullable="0+")
    resource_type: Int8
    resource_name: String
    pattern_type: Int8 = field(default=3)
    principal: String
    host: String
    operation: Int8
    permission_type: Int8
