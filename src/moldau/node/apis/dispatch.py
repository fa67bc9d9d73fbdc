"""The way of every request: is it allowed, who answers it, and what if it is refused."""

from __future__ import annotations

from collections.abc import Coroutine, Iterable
from typing import TYPE_CHECKING

from moldau.model.errors import ErrorCode, KafkaError
from moldau.node.apis.call import Answer, Call, Parts
from moldau.node.quotas import MutationsThrottled
from moldau.node.security import CLUSTER_NAME, ResourceType
from moldau.wire.message import Response
from moldau.wire.messages.fetch import FetchResponse
from moldau.wire.messages.produce import ProduceResponse

if TYPE_CHECKING:
    from moldau.node.apis.table import Api


def begin(parts: Parts, api: Api, call: Call) -> Answer:
    """Start to answer a call: with a response, with a coroutine that gives one, or by itself."""
    try:
        if api.operation is not None and not call.may(
            parts, api.operation, ResourceType.CLUSTER, CLUSTER_NAME
        ):
            raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        return api.handler(parts, call)
    except KafkaError as error:
        return api.refuse(call, error)


async def finish(api: Api, call: Call, answer: Coroutine[object, object, Response | None]) -> Response | None:
    """Wait for what a handler has begun."""
    try:
        return await answer
    except MutationsThrottled as error:
        response = api.refuse(call, error)
        response.throttle_time_ms = error.throttle_ms  # type: ignore[attr-defined]  # all that is metered has it
        return response
    except KafkaError as error:
        return api.refuse(call, error)


def errors_of(response: Response) -> Iterable[ErrorCode]:
    """The errors that a response tells: its own, and those of the partitions that were produced to."""
    if not isinstance(response, ProduceResponse):
        code = getattr(response, "error_code", ErrorCode.NONE)
        return (ErrorCode(code),) if code else ()
    errors = []
    for topic in response.responses:
        for data in topic.partition_responses:
            if data.error_code:
                errors.append(ErrorCode(data.error_code))
    return errors


def size_of(response: Response) -> int:
    """How many bytes of records a response to Fetch holds."""
    assert isinstance(response, FetchResponse)
    return sum(len(data.records or b"") for topic in response.responses for data in topic.partitions)


async def answered(parts: Parts, api: Api, call: Call) -> Response | None:
    """Both, for those who wait anyway."""
    answer = begin(parts, api, call)
    return await finish(api, call, answer) if isinstance(answer, Coroutine) else answer
