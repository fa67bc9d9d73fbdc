"""What stands before the body of each request and response."""

from __future__ import annotations

from moldau.wire.message import Header
from moldau.wire.types import Int16, Int32, String, field


class RequestHeader(Header, versions="1-2", flexible="2+"):
    """Which API and version follows, from whom, and the number that the reply must carry."""

    request_api_key: Int16
    request_api_version: Int16
    correlation_id: Int32
    client_id: String | None = field(nullable="1+", flexible="none")


class ResponseHeader(Header, versions="0-1", flexible="1+"):
    """The number of the request that is answered."""

    correlation_id: Int32
