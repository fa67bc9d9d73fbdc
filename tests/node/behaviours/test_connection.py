"""What clients depend on in a connection: the order of replies, headers, versions, and when it ends."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pytest
from node.broker import CONTROLLER, TOPIC, Broker, answer, batch, fetched, produce_request, produced

from moldau.model.errors import ErrorCode
from moldau.wire.messages import ApiKey, spoken_versions
from moldau.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from moldau.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from moldau.wire.messages.metadata import MetadataRequest, MetadataResponse
from moldau.wire.messages.principal import DefaultPrincipalData
from moldau.wire.messages.security import EnvelopeRequest, EnvelopeResponse
from moldau.world.ports import ConnectionLost

HEADER = struct.Struct(">hhih")
# In whose name a broker passes requests on, behind the version of that.
PRINCIPAL = bytes(2) + DefaultPrincipalData(type="User", name="ada", token_authenticated=False).encode(0)


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


def long_poll(offset: int, *, max_wait_ms: int = 5_000) -> FetchRequest:
    asked = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    return FetchRequest(
        max_wait_ms=max_wait_ms, min_bytes=1, topics=[FetchTopic(topic=TOPIC, partitions=[asked])]
    )


# ---------------------------------------------------------------- order


@pytest.mark.behaviour(1)
@pytest.mark.parametrize("seed", range(5))
def test_batches_of_one_connection_are_appended_and_answered_in_the_order_they_came(seed: int) -> None:
    # Some commit at once and some after a flush, so that their replies become ready in another order.
    with Broker(seed=seed, flush_ms=(0, 20)) as broker:
        broker.create_topic("flushed")
        broker.create_topic("replicated", settings={"moldau.durability": "replicated"})
        topics = [("flushed", "replicated")[number % 2] for number in range(20)]
        for number, topic in enumerate(topics):
            broker.wire.send(produce_request(batch([b"%d" % number]), topic), 12)
        offsets = [produced(broker.wire.receive()).base_offset for _ in topics]
        assert offsets == [number // 2 for number in range(20)]
        assert broker.values("flushed") == [b"%d" % number for number in range(0, 20, 2)]
        assert broker.values("replicated") == [b"%d" % number for number in range(1, 20, 2)]


@pytest.mark.behaviour(1)
def test_pipelined_batches_of_an_idempotent_producer_are_never_out_of_order(broker: Broker) -> None:
    broker.create_topic()
    requests = [produce_request(batch([b"x"], producer=(7, 0, number))) for number in range(30)]
    broker.wire.send_all(requests, 12)
    done = [produced(broker.wire.receive()) for _ in requests]
    assert [(each.error_code, each.base_offset) for each in done] == [(0, at) for at in range(30)]


@pytest.mark.behaviour(1, 2)
def test_what_comes_behind_a_fetch_that_waits_is_answered_after_it(broker: Broker) -> None:
    broker.create_topic()
    began_ms = broker.now_ms
    broker.wire.send(long_poll(0), 12)
    broker.wire.send(ApiVersionsRequest(), 0)
    broker.wire.send(produce_request(batch([b"later"])), 12)
    data = fetched(broker.wire.receive())
    assert broker.now_ms - began_ms >= 5_000
    assert not data.records, "the batch behind the fetch was appended before it was over"
    answer(broker.wire.receive(), ApiVersionsResponse)
    assert produced(broker.wire.receive()).base_offset == 0


@pytest.mark.behaviour(2)
def test_a_fetch_that_waits_does_not_hold_up_other_connections(broker: Broker) -> None:
    broker.create_topic()
    waiting = broker.connect()
    waiting.send(long_poll(0), 12)
    broker.run_for(100)
    assert broker.append([b"news"]) == 0
    assert broker.now_ms < 1_000
    assert fetched(waiting.receive()).records
    assert broker.now_ms < 1_000, "the fetch was not woken by what it waited for"


@pytest.mark.behaviour(2)
def test_a_client_that_leaves_while_its_fetch_waits_leaves_nothing_behind(broker: Broker) -> None:
    broker.create_topic()
    waiting = broker.connect()
    waiting.send(long_poll(0), 12)
    replica = broker.node.partitions.find(TOPIC, 0)
    assert replica is not None
    broker.run_until(lambda: bool(replica.waiting))
    broker.sim.network.reset("client", "broker")
    broker.run_until(lambda: not replica.waiting, timeout_ms=1_000)


# ---------------------------------------------------------------- headers and versions


@pytest.mark.behaviour(3)
@pytest.mark.parametrize(
    ("version", "header_bytes"), [(0, 4), (2, 4), (spoken_versions(ApiKey.API_VERSIONS).highest, 4)]
)
def test_the_response_to_api_versions_has_no_tags_in_its_header(
    broker: Broker, version: int, header_bytes: int
) -> None:
    request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
    broker.wire.ask(request, version)
    body = broker.wire.raw.popleft()[header_bytes:]
    assert ApiVersionsResponse.decode(body, version).error_code == ErrorCode.NONE


@pytest.mark.behaviour(3)
@pytest.mark.parametrize(("version", "header_bytes"), [(8, 4), (9, 5)])
def test_responses_have_tags_in_their_header_from_the_flexible_versions_on(
    broker: Broker, version: int, header_bytes: int
) -> None:
    broker.wire.ask(MetadataRequest(topics=[]), version)
    raw = broker.wire.raw.popleft()
    assert raw[4:header_bytes] == bytes(header_bytes - 4)
    assert MetadataResponse.decode(raw[header_bytes:], version).cluster_id


@pytest.mark.behaviour(3)
def test_the_client_id_has_its_classic_length_in_flexible_headers_too(broker: Broker) -> None:
    broker.wire.is_raw = True
    flexible = 9
    body = MetadataRequest(topics=[]).encode(flexible)
    broker.wire.send_bytes(HEADER.pack(ApiKey.METADATA, flexible, 77, 2) + b"me" + b"\0" + body)
    assert broker.wire.receive_raw()[:4] == struct.pack(">i", 77)
    nobody = HEADER.pack(ApiKey.METADATA, flexible, 78, -1) + b"\0" + body
    broker.wire.send_bytes(nobody)
    assert broker.wire.receive_raw()[:4] == struct.pack(">i", 78)


@pytest.mark.behaviour(4)
@pytest.mark.parametrize("version", [-1, 5, 99, 32_767])
def test_api_versions_in_an_unknown_version_is_answered_in_version_0(broker: Broker, version: int) -> None:
    broker.wire.is_raw = True
    broker.wire.send_bytes(HEADER.pack(ApiKey.API_VERSIONS, version, 5, 0) + b"what a later version has")
    raw = broker.wire.receive_raw()
    assert raw[:4] == struct.pack(">i", 5)
    response = ApiVersionsResponse.decode(raw[4:], 0)
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
    spoken = spoken_versions(ApiKey.API_VERSIONS)
    assert [(each.api_key, each.min_version, each.max_version) for each in response.api_keys] == [
        (ApiKey.API_VERSIONS, spoken.lowest, spoken.highest)
    ]
    # The client asks again on the same connection.
    broker.wire.send_bytes(HEADER.pack(ApiKey.API_VERSIONS, 0, 6, 0))
    assert ApiVersionsResponse.decode(broker.wire.receive_raw()[4:], 0).error_code == ErrorCode.NONE


@pytest.mark.behaviour(4)
@pytest.mark.parametrize(
    ("name", "version", "code"),
    [
        ("franz-go", "1.2.3", ErrorCode.NONE),
        ("a", "1", ErrorCode.NONE),
        ("", "1", ErrorCode.INVALID_REQUEST),
        ("-a", "1", ErrorCode.INVALID_REQUEST),
        ("a-", "1", ErrorCode.INVALID_REQUEST),
        ("a b", "1", ErrorCode.INVALID_REQUEST),
        ("a\n", "1", ErrorCode.INVALID_REQUEST),
        ("a", "1_0", ErrorCode.INVALID_REQUEST),
        ("ä", "1", ErrorCode.INVALID_REQUEST),
    ],
)
def test_the_software_of_a_client_has_a_name_of_letters_digits_dots_and_dashes(
    broker: Broker, name: str, version: str, code: ErrorCode
) -> None:
    request = ApiVersionsRequest(client_software_name=name, client_software_version=version)
    assert answer(broker.ask(request, 3), ApiVersionsResponse).error_code == code
    # Versions without these names do not care, and the connection goes on.
    assert answer(broker.ask(ApiVersionsRequest(), 0), ApiVersionsResponse).error_code == ErrorCode.NONE


@pytest.mark.behaviour(5)
def test_features_that_begin_at_level_0_are_told_from_version_4_on(broker: Broker) -> None:
    request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
    older = answer(broker.ask(request, 3), ApiVersionsResponse)
    newer = answer(broker.ask(request, 4), ApiVersionsResponse)
    assert older.supported_features and all(each.min_version > 0 for each in older.supported_features)
    assert any(each.min_version == 0 for each in newer.supported_features)
    assert {each.name for each in older.supported_features} < {each.name for each in newer.supported_features}


@pytest.mark.behaviour(5)
def test_finalized_features_come_with_an_epoch_that_rises(broker: Broker) -> None:
    request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
    before = answer(broker.ask(request), ApiVersionsResponse)
    assert before.finalized_features_epoch >= 0
    assert "metadata.version" in {each.name for each in before.finalized_features}
    broker.create_topic()
    after = answer(broker.ask(request), ApiVersionsResponse)
    assert after.finalized_features_epoch > before.finalized_features_epoch


@pytest.mark.behaviour(8)
def test_produce_is_advertised_from_version_0_on_and_served_from_version_3_on(broker: Broker) -> None:
    broker.create_topic()
    response = answer(broker.ask(ApiVersionsRequest(), 0), ApiVersionsResponse)
    (produce,) = [each for each in response.api_keys if each.api_key == ApiKey.PRODUCE]
    assert (produce.min_version, produce.max_version) == (0, 13)
    assert broker.produce(batch([b"x"]), version=3).error_code == ErrorCode.NONE
    broker.wire.send_bytes(HEADER.pack(ApiKey.PRODUCE, 2, 1, 0) + bytes(10))
    broker.wire.until_closed()


@pytest.mark.behaviour(6)
def test_what_is_advertised_is_served_and_nothing_else() -> None:
    with Broker() as broker:
        response = answer(broker.ask(ApiVersionsRequest(), 0), ApiVersionsResponse)
        advertised = {each.api_key: each for each in response.api_keys}
        for key in ApiKey:
            if key not in advertised:
                other = broker.connect()
                other.send_bytes(HEADER.pack(key, spoken_versions(key).lowest, 1, 0) + bytes(20))
                other.until_closed()


# ---------------------------------------------------------------- how connections end


@pytest.mark.behaviour(6)
@pytest.mark.parametrize(
    "frame",
    [
        HEADER.pack(ApiKey.METADATA, 99, 1, 0),
        HEADER.pack(ApiKey.METADATA, -1, 1, 0),
        HEADER.pack(9_999, 0, 1, 0),
        HEADER.pack(-5, 0, 1, 0),
        HEADER.pack(ApiKey.METADATA, 1, 1, 0) + b"\x7f\xff\xff\xff",
        HEADER.pack(ApiKey.METADATA, 1, 1, 9) + b"x",
        b"\0\1",
        b"",
    ],
)
def test_what_is_not_served_or_cannot_be_read_ends_the_connection(broker: Broker, frame: bytes) -> None:
    wire = broker.connect()
    wire.send(ApiVersionsRequest(), 0)
    wire.send_bytes(frame)
    wire.until_closed()
    assert len(wire.answers) == 1, "what was asked before it is answered"


@pytest.mark.behaviour(6)
@pytest.mark.parametrize("inner", [b"", b"\0\1", HEADER.pack(ApiKey.CREATE_TOPICS, 7, 1, 0) + b"\0\x7f"])
def test_an_envelope_around_what_cannot_be_read_ends_its_connection_alone(
    broker: Broker, inner: bytes
) -> None:
    wire = broker.connect(CONTROLLER)
    wire.send(EnvelopeRequest(request_data=inner, request_principal=PRINCIPAL, client_host_address=bytes(4)))
    wire.until_closed()
    broker.create_topic()


@pytest.mark.behaviour(6)
def test_an_envelope_from_no_address_is_refused(broker: Broker) -> None:
    inner = HEADER.pack(ApiKey.DELETE_TOPICS, 1, 1, 0) + bytes(8)
    wire = broker.connect(CONTROLLER)
    for address, code in [(bytes(4), ErrorCode.NONE), (bytes(3), ErrorCode.INVALID_REQUEST)]:
        envelope = EnvelopeRequest(
            request_data=inner, request_principal=PRINCIPAL, client_host_address=address
        )
        assert answer(wire.ask(envelope), EnvelopeResponse).error_code == code


@pytest.mark.behaviour(7)
def test_acks_0_is_never_answered(broker: Broker) -> None:
    broker.create_topic()
    for number in range(3):
        broker.wire.send(produce_request(batch([b"%d" % number]), acks=0), 12, is_answered=False)
    # What is answered next is what was asked next.
    assert answer(broker.ask(ApiVersionsRequest(), 0), ApiVersionsResponse).error_code == ErrorCode.NONE
    broker.run_until(lambda: broker.log().high_watermark == 3)
    assert broker.values() == [b"0", b"1", b"2"]


@pytest.mark.behaviour(7)
def test_an_error_with_acks_0_ends_the_connection(broker: Broker) -> None:
    wire = broker.connect()
    wire.send(produce_request(batch([b"x"]), "missing", acks=0), 12, is_answered=False)
    wire.until_closed()
    assert not wire.raw


@pytest.mark.behaviour(7)
@pytest.mark.parametrize("acks", [2, -2, 7])
def test_other_acks_are_refused(broker: Broker, acks: int) -> None:
    broker.create_topic()
    done = broker.produce(batch([b"x"]), acks=acks)
    assert done.error_code == ErrorCode.INVALID_REQUIRED_ACKS
    assert broker.values() == []


@pytest.mark.behaviour(11)
@pytest.mark.honours("socket.request.max.bytes")
def test_a_request_that_is_too_large_ends_the_connection_at_its_first_bytes() -> None:
    with Broker({"socket.request.max.bytes": "1000"}) as broker:
        broker.create_topic()
        assert broker.produce(batch([b"x" * 800])).error_code == ErrorCode.NONE
        wire = broker.connect()
        wire.send(produce_request(batch([b"x" * 1_000])), 12)
        wire.until_closed()
        assert broker.values() == [b"x" * 800]


@pytest.mark.behaviour(11)
@pytest.mark.honours("connections.max.idle.ms")
def test_idle_connections_are_closed_and_those_that_wait_are_not() -> None:
    with Broker({"connections.max.idle.ms": "3000"}) as broker:
        broker.create_topic()
        idle, waiting = broker.connect(), broker.connect()
        idle.ask(ApiVersionsRequest(), 0)
        waiting.send(long_poll(0, max_wait_ms=20_000), 12)
        began_ms = broker.now_ms
        idle.until_closed(timeout_ms=6_000)
        assert broker.now_ms - began_ms > 2_900
        fetched(waiting.receive())
        assert broker.now_ms - began_ms >= 20_000
        waiting.until_closed(timeout_ms=6_000)


@pytest.mark.honours("max.connections")
def test_there_are_only_so_many_connections() -> None:
    with Broker({"max.connections": "8"}) as broker:
        kept = [is_served(broker, f"client-{at}") for at in range(10)].count(True)
        # The broker's own to its controller count too.
        assert 4 <= kept <= 8
        broker.sim.network.reset("client-0", "broker")
        assert is_served(broker, "client-10")


@pytest.mark.honours("max.connections.per.ip")
def test_one_host_has_only_so_many_connections() -> None:
    with Broker({"max.connections.per.ip": "2"}) as broker:
        assert [is_served(broker, "client") for _ in range(3)] == [True, True, False]
        assert is_served(broker, "another")
        broker.sim.network.reset("client", "broker")
        assert is_served(broker, "client")


def is_served(broker: Broker, host: str) -> bool:
    """Whether a connection that a host opens, and keeps, is answered."""
    try:
        wire = broker.connect(host=host)
        wire.send(ApiVersionsRequest(), 0)
    except ConnectionLost:
        return False
    broker.run_until(lambda: bool(wire.answers) or wire.is_closed)
    return bool(wire.answers)


def test_a_broker_that_was_stopped_listens_no_more(broker: Broker) -> None:
    broker.stop()
    with pytest.raises(ConnectionLost):
        broker.connect()
    with pytest.raises(ConnectionLost):
        broker.connect(CONTROLLER)
