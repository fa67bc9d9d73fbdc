"""Requests that are refused as a whole: every API has a way to say so, in every version."""

from collections.abc import Iterator

import pytest
from wire.contents import filled

from moldau.model.errors import ErrorCode, KafkaError
from moldau.node.apis.call import Call
from moldau.node.apis.refusals import REFUSALS
from moldau.node.apis.table import BROKER_APIS, CONTROLLER_APIS
from moldau.node.config import ListenerConfig, SecurityProtocol
from moldau.node.security import ANONYMOUS
from moldau.wire import framing
from moldau.wire.message import Request, Response
from moldau.wire.messages import REQUESTS, RESPONSES, ApiKey, spoken_versions
from moldau.wire.messages.metadata import MetadataRequest
from moldau.wire.messages.topics import DeleteTopicsRequest, ElectLeadersRequest
from moldau.wire.types import Struct
from moldau.world.ports import Address

EVERY_VERSION = [
    (key, version)
    for key in REFUSALS
    for version in range(spoken_versions(key).lowest, spoken_versions(key).highest + 1)
]
# Before version 3 of DescribeLogDirs, and 7 of Fetch, there is no place for an error of the whole.
SILENT = [(ApiKey.DESCRIBE_LOG_DIRS, version) for version in (1, 2)]
SILENT += [(ApiKey.FETCH, version) for version in range(4, 7)]

ADDRESS = Address("127.0.0.1", 9092)
LISTENER = ListenerConfig(
    "PLAINTEXT", ADDRESS, ADDRESS, SecurityProtocol.PLAINTEXT, is_controller=False, tls=None
)


class Nobody:
    """An asker whose calls are answered by the test itself."""

    def answered(self, call: Call, response: Response | None) -> None:
        raise AssertionError(response)

    def answered_encoded(self, call: Call, response: bytes) -> None:
        raise AssertionError(response)

    def break_off(self, why: str) -> None:
        raise AssertionError(why)


def call_of(request: Request, version: int) -> Call:
    chunks = framing.Requests("a client").encode(request, version)
    data = b"".join(chunks)[4:]  # type: ignore[arg-type]  # no slices of files among them
    received = framing.read_request(framing.Frame(data, 0, len(data), is_shared=False))
    assert isinstance(received, framing.Request)
    return Call(
        received,
        received.body(),
        asker=Nobody(),
        principal=ANONYMOUS,
        host="127.0.0.1",
        listener=LISTENER,
        began_us=0,
    )


def refused(request: Request, version: int, code: ErrorCode = ErrorCode.NOT_CONTROLLER) -> Response:
    """The refusal as it comes over the wire."""
    call = call_of(request, version)
    key = call.received.api_key
    data = REFUSALS[key](call, KafkaError(code, "Because.")).encode(version)
    return RESPONSES[key].decode(data, version)


def values_of(struct: Struct, name: str) -> Iterator[object]:
    """The values of all fields of that name, at any depth."""
    for field in type(struct).declaration.fields:
        value = getattr(struct, field)
        if field == name:
            yield value
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, Struct):
                yield from values_of(each, name)


def test_every_api_of_the_table_that_has_no_refusal_of_its_own_is_refused_here() -> None:
    own = {ApiKey.PRODUCE, ApiKey.API_VERSIONS}
    assert set(REFUSALS) == {*BROKER_APIS, *CONTROLLER_APIS} - own


@pytest.mark.parametrize(("key", "version"), [each for each in EVERY_VERSION if each not in SILENT])
def test_a_refusal_carries_its_error_in_every_place_for_one(key: ApiKey, version: int) -> None:
    request = filled(REQUESTS[key], version)
    assert isinstance(request, Request)
    response = refused(request, version)
    # What the version has no field for reads as if there were no error.
    found = [code for code in values_of(response, "error_code") if code != ErrorCode.NONE]
    assert found
    assert set(found) == {ErrorCode.NOT_CONTROLLER}


@pytest.mark.parametrize(("key", "version"), SILENT)
def test_a_refusal_without_a_place_for_its_error_is_empty(key: ApiKey, version: int) -> None:
    request = filled(REQUESTS[key], version)
    assert isinstance(request, Request)
    assert not any(values_of(refused(request, version), "error_code"))


@pytest.mark.parametrize(("key", "version"), EVERY_VERSION)
def test_what_may_be_null_in_a_request_does_not_hinder_its_refusal(key: ApiKey, version: int) -> None:
    request = filled(REQUESTS[key], version, with_nulls=True)
    assert isinstance(request, Request)
    assert isinstance(refused(request, version), RESPONSES[key])


@pytest.mark.parametrize(
    ("key", "name"),
    [
        (ApiKey.LIST_OFFSETS, "partition_index"),
        (ApiKey.CREATE_TOPICS, "name"),
        (ApiKey.DELETE_RECORDS, "partition_index"),
        (ApiKey.DESCRIBE_CONFIGS, "resource_name"),
        (ApiKey.ALTER_CONFIGS, "resource_name"),
        (ApiKey.INCREMENTAL_ALTER_CONFIGS, "resource_name"),
        (ApiKey.CREATE_PARTITIONS, "name"),
        (ApiKey.ALTER_CLIENT_QUOTAS, "entity_name"),
        (ApiKey.ALTER_PARTITION_REASSIGNMENTS, "partition_index"),
        (ApiKey.DESCRIBE_TOPIC_PARTITIONS, "name"),
    ],
)
def test_a_refusal_names_all_that_was_asked_for(key: ApiKey, name: str) -> None:
    version = spoken_versions(key).highest
    request = filled(REQUESTS[key], version)
    assert isinstance(request, Request)
    asked = set(values_of(request, name))
    answered = set(values_of(refused(request, version), name))
    assert answered
    assert answered <= asked
    assert len(list(values_of(refused(request, version), "error_code"))) >= 2


def test_topics_that_are_deleted_by_name_are_refused_by_name() -> None:
    request = DeleteTopicsRequest(topic_names=["orders", "bills"], timeout_ms=1)
    response = refused(request, 5)
    assert list(values_of(response, "name")) == ["orders", "bills"]
    assert list(values_of(response, "error_message")) == ["Because."] * 2


def test_metadata_of_all_topics_is_refused_as_a_whole_where_clients_know_that() -> None:
    request = MetadataRequest(topics=None)
    assert list(values_of(refused(request, 13), "error_code")) == [ErrorCode.NOT_CONTROLLER]
    assert list(values_of(refused(request, 12), "error_code")) == [ErrorCode.NONE]


def test_an_election_of_all_leaders_is_refused_as_a_whole() -> None:
    request = ElectLeadersRequest(election_type=0, topic_partitions=None)
    assert list(values_of(refused(request, 2), "error_code")) == [ErrorCode.NOT_CONTROLLER]
