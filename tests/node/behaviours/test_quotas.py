"""What clients depend on in quotas: whom they limit, and that the limited are told so at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import pytest
from node.broker import TOPIC, Broker, Wire, answer, batch, fetched, produce_request

from moldau.model.errors import ErrorCode
from moldau.node.security import Operation, Principal, ResourceType
from moldau.wire.message import Request
from moldau.wire.messages.api_versions import ApiVersionsRequest
from moldau.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from moldau.wire.messages.offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from moldau.wire.messages.produce import ProduceResponse
from moldau.wire.messages.quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntryData,
    AlterClientQuotasResponse,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    OpData,
)
from moldau.wire.messages.topics import (
    CreatableTopic,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)

# Who does not say who they are.
USER = "ANONYMOUS"
PRODUCED, FETCHED = "producer_byte_rate", "consumer_byte_rate"
# What ten of the eleven windows hold counts even if nothing was done in them.
RELIED_ON_MS = 10_000
# The headers of a request and of a batch are bytes too.
OVERHEAD_MS = 300

Entity = Mapping[str, str | None]


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        broker.create_topic(partitions=2)
        yield broker


def limit(broker: Broker, entity: Entity, **limits: float | None) -> None:
    """Limit those whom an entity names, a name of None being the default; a limit of None is taken away."""
    entry = AlterClientQuotasRequestEntryData(
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()],
        ops=[OpData(key=key, value=value or 0.0, remove=value is None) for key, value in limits.items()],
    )
    request = AlterClientQuotasRequest(entries=[entry], validate_only=False)
    (result,) = answer(broker.ask(request), AlterClientQuotasResponse).entries
    assert result.error_code == ErrorCode.NONE, result.error_message


def produce(wire: Wire, size: int, *, timeout_ms: int = 30_000, version: int = 12) -> int:
    """Produce about so many bytes, which must be accepted; gives for how long the client is to pause."""
    request = produce_request(batch([b"x" * size]), timeout_ms=timeout_ms)
    response = answer(wire.ask(request, version), ProduceResponse)
    (partition,) = response.responses[0].partition_responses
    assert partition.error_code == ErrorCode.NONE, ErrorCode(partition.error_code)
    return response.throttle_time_ms


def fetch_request() -> FetchRequest:
    asked = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    return FetchRequest(max_wait_ms=0, min_bytes=1, topics=[FetchTopic(topic=TOPIC, partitions=[asked])])


def unheard_ms(broker: Broker, wire: Wire) -> int:
    """How long it takes until a client is answered that asks something small."""
    began_ms = broker.now_ms
    wire.ask(ApiVersionsRequest(), 0)
    return broker.now_ms - began_ms


# ---------------------------------------------------------------- how clients are throttled


@pytest.mark.behaviour(10)
@pytest.mark.parametrize("version", [3, 5, 12])
def test_who_produces_too_much_is_answered_at_once_and_then_not_heard(broker: Broker, version: int) -> None:
    limit(broker, {"client-id": "greedy"}, producer_byte_rate=1_000)
    greedy, modest = broker.connect(client_id="greedy"), broker.connect(client_id="modest")
    began_ms = broker.now_ms
    # Its own timeout is much shorter than the pause.
    throttle_ms = produce(greedy, 30_000, timeout_ms=1_000, version=version)
    assert broker.now_ms - began_ms < 100
    assert 0 <= throttle_ms - (30_000 - RELIED_ON_MS) < OVERHEAD_MS
    assert broker.log().high_watermark == 1
    # What it asks now is heard when the pause is over, and has not been waiting before that.
    greedy.send(produce_request(batch([b"y"]), timeout_ms=1_000), version)
    assert unheard_ms(broker, modest) < 100
    assert produce(modest, 30_000) == 0
    broker.run_for(throttle_ms - 1_000)
    assert not greedy.answers
    assert broker.log().high_watermark == 2
    response = answer(greedy.receive(), ProduceResponse)
    assert 0 <= broker.now_ms - began_ms - throttle_ms < 200
    assert response.responses[0].partition_responses[0].error_code == ErrorCode.NONE
    assert broker.log().high_watermark == 3


@pytest.mark.behaviour(10)
@pytest.mark.parametrize("version", [4, 7, 12])
def test_who_fetches_too_much_is_answered_at_once_and_then_not_heard(broker: Broker, version: int) -> None:
    broker.append([b"x" * 30_000])
    limit(broker, {"client-id": "greedy"}, consumer_byte_rate=1_000)
    greedy = broker.connect(client_id="greedy")
    began_ms = broker.now_ms
    response = answer(greedy.ask(fetch_request(), version), FetchResponse)
    assert broker.now_ms - began_ms < 100
    assert 0 <= response.throttle_time_ms - (30_000 - RELIED_ON_MS) < OVERHEAD_MS
    assert 0 <= unheard_ms(broker, greedy) - response.throttle_time_ms < 200


@pytest.mark.behaviour(10)
def test_only_the_connection_that_did_too_much_is_not_heard(broker: Broker) -> None:
    limit(broker, {"client-id": "greedy"}, producer_byte_rate=1_000)
    one, another = broker.connect(client_id="greedy"), broker.connect(client_id="greedy")
    assert produce(one, 30_000) > 0
    assert unheard_ms(broker, another) < 100
    # The quota is one for both, though.
    assert produce(another, 100) > 0


@pytest.mark.behaviour(10)
def test_who_stays_below_the_limit_never_pauses(broker: Broker) -> None:
    limit(broker, {"client-id": "steady"}, producer_byte_rate=2_000)
    steady = broker.connect(client_id="steady")
    for _ in range(40):
        assert produce(steady, 1_500) == 0
        broker.run_for(1_000)


# ---------------------------------------------------------------- changes of metadata


def create(name: str, partitions: int = 1) -> CreateTopicsRequest:
    topic = CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=[]
    )
    return CreateTopicsRequest(topics=[topic], timeout_ms=10_000)


def outcome(wire: Wire, request: Request, version: int) -> tuple[ErrorCode, int]:
    """What came of a change of one topic, and for how long the client is to pause."""
    match wire.ask(request, version):
        case CreateTopicsResponse(topics=[only]) as response:
            return ErrorCode(only.error_code), response.throttle_time_ms
        case DeleteTopicsResponse(responses=[deleted]) as response:
            return ErrorCode(deleted.error_code), response.throttle_time_ms
        case CreatePartitionsResponse(results=[grown]) as response:
            return ErrorCode(grown.error_code), response.throttle_time_ms
        case other:
            raise AssertionError(other)


@pytest.mark.behaviour(10, 82)
@pytest.mark.parametrize(
    ("request_", "newer", "is_done"),
    [
        (create("more"), 6, lambda broker: broker.topic("more").error_code == ErrorCode.NONE),
        (
            DeleteTopicsRequest(topic_names=[TOPIC], timeout_ms=10_000),
            5,
            lambda broker: broker.topic().error_code != ErrorCode.NONE,
        ),
        (
            CreatePartitionsRequest(
                topics=[CreatePartitionsTopic(name=TOPIC, count=3, assignments=None)],
                timeout_ms=10_000,
                validate_only=False,
            ),
            3,
            lambda broker: len(broker.topic().partitions) == 3,
        ),
    ],
    ids=["create", "delete", "grow"],
)
def test_a_newer_client_is_refused_changes_until_it_has_paused_for_those_that_exceeded_its_quota(
    broker: Broker, request_: Request, newer: int, is_done: Callable[[Broker], bool]
) -> None:
    limit(broker, {"client-id": "busy"}, controller_mutation_rate=1)
    # Eleven seconds' worth may be spent at once, and the change that exceeds it is still accepted.
    assert outcome(broker.connect(client_id="busy"), create("many", 16), 7) == (ErrorCode.NONE, 0)
    code, throttle_ms = outcome(broker.connect(client_id="busy"), request_, newer)
    assert code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert 4_500 < throttle_ms <= 5_000
    assert not is_done(broker)
    # Others have quotas of their own.
    assert outcome(broker.connect(client_id="other"), create("of-others"), 7) == (ErrorCode.NONE, 0)
    # Whoever comes back after the pause is welcome.
    broker.run_for(throttle_ms)
    assert outcome(broker.connect(client_id="busy"), request_, newer) == (ErrorCode.NONE, 0)
    assert is_done(broker)


@pytest.mark.behaviour(10)
@pytest.mark.parametrize("version", [4, 5])
def test_an_older_client_may_exceed_its_quota_of_changes_and_is_told_to_pause(
    broker: Broker, version: int
) -> None:
    limit(broker, {"client-id": "busy"}, controller_mutation_rate=1)
    assert outcome(broker.connect(client_id="busy"), create("a", 11), version) == (ErrorCode.NONE, 0)
    wire = broker.connect(client_id="busy")
    code, throttle_ms = outcome(wire, create("b", 8), version)
    assert code is ErrorCode.NONE
    assert 7_500 < throttle_ms <= 8_000
    # It need not listen to what it is told: it is not heard for so long either.
    assert abs(unheard_ms(broker, wire) - throttle_ms) < 200
    assert broker.topic("b").error_code == ErrorCode.NONE


# ---------------------------------------------------------------- who is limited

# Whose quota counts, the first that there is.
PRECEDENCE: list[Entity] = [
    {"user": USER, "client-id": "app"},
    {"user": USER, "client-id": None},
    {"user": USER},
    {"user": None, "client-id": "app"},
    {"user": None, "client-id": None},
    {"user": None},
    {"client-id": "app"},
    {"client-id": None},
]


@pytest.mark.behaviour(82)
@pytest.mark.parametrize("first", range(len(PRECEDENCE)))
def test_the_most_precise_quota_counts_a_users_more_than_a_clients(broker: Broker, first: int) -> None:
    rates = {at: 100 * (at + 1) for at in range(first, len(PRECEDENCE))}
    for at, rate in rates.items():
        limit(broker, PRECEDENCE[at], producer_byte_rate=rate)
    # Those of others do not.
    limit(broker, {"user": "ada"}, producer_byte_rate=1)
    limit(broker, {"client-id": "ape"}, producer_byte_rate=1)
    throttle_ms = produce(broker.connect(client_id="app"), 20_000)
    expected_ms = 20_000 * 1_000 // rates[first] - RELIED_ON_MS
    assert 0 <= throttle_ms - expected_ms < OVERHEAD_MS * 1_000 // rates[first]


@pytest.mark.behaviour(82)
@pytest.mark.parametrize(
    ("entity", "is_shared"),
    [({"user": USER}, True), ({"user": USER, "client-id": None}, False), ({"client-id": None}, False)],
)
def test_a_user_shares_its_quota_among_its_clients_and_default_clients_have_one_each(
    broker: Broker, entity: Entity, is_shared: bool
) -> None:
    limit(broker, entity, producer_byte_rate=1_000)
    assert produce(broker.connect(client_id="one"), 30_000) > 0
    assert (produce(broker.connect(client_id="another"), 100) > 0) == is_shared


@pytest.mark.behaviour(82)
def test_each_kind_of_quota_is_measured_by_itself(broker: Broker) -> None:
    limit(broker, {"client-id": "app"}, producer_byte_rate=1_000, consumer_byte_rate=1_000_000)
    assert produce(broker.connect(client_id="app"), 30_000) > 0
    response = answer(broker.connect(client_id="app").ask(fetch_request(), 12), FetchResponse)
    assert len(fetched(response).records or b"") > 30_000
    assert response.throttle_time_ms == 0


@pytest.mark.behaviour(82)
def test_a_quota_that_is_changed_or_taken_away_counts_at_once(broker: Broker) -> None:
    limit(broker, {"client-id": "app"}, producer_byte_rate=1_000)
    assert produce(broker.connect(client_id="app"), 30_000) > 0
    # What was done before still counts towards the new limit.
    limit(broker, {"client-id": "app"}, producer_byte_rate=2_000)
    assert 0 < produce(broker.connect(client_id="app"), 100) < 30_000 // 2 - RELIED_ON_MS + OVERHEAD_MS
    limit(broker, {"client-id": "app"}, producer_byte_rate=None)
    assert produce(broker.connect(client_id="app"), 30_000) == 0


@pytest.mark.behaviour(82)
def test_quotas_are_described_and_outlive_the_broker(broker: Broker) -> None:
    limit(broker, {"user": USER, "client-id": None}, producer_byte_rate=1_000, request_percentage=50)
    broker.crash()
    response = answer(
        broker.ask(DescribeClientQuotasRequest(components=[], strict=False)), DescribeClientQuotasResponse
    )
    (entry,) = response.entries or []
    assert {each.entity_type: each.entity_name for each in entry.entity} == {"user": USER, "client-id": None}
    assert {each.key: each.value for each in entry.values} == {PRODUCED: 1_000, "request_percentage": 50}
    assert produce(broker.connect(client_id="app"), 30_000) > 0


# ---------------------------------------------------------------- time as a quota


class SlowAuthorizer:
    """Allows everything, and takes its time: in a simulation nothing else does that does not wait."""

    def __init__(self, permission_us: int) -> None:
        self.spent_us = 0
        self._permission_us = permission_us

    def authorize(
        self, principal: Principal, host: str, operation: Operation, kind: ResourceType, name: str
    ) -> bool:
        """Yes, after a while."""
        self.spent_us += self._permission_us
        return True


@pytest.mark.behaviour(82)
def test_the_time_that_requests_take_is_limited_as_a_percentage(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = broker.node.parts
    slow = SlowAuthorizer(permission_us=20_000)
    parts.authorizer = slow
    now_us = parts.world.clock.now_us
    monkeypatch.setattr(parts.world.clock, "now_us", lambda: now_us() + slow.spent_us)
    limit(broker, {"client-id": "costly"}, request_percentage=1)
    wire = broker.connect(client_id="costly")
    asked = ListOffsetsPartition(partition_index=0, timestamp=-1)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=TOPIC, partitions=[asked])])

    def throttled_ms(of: Wire) -> int:
        return answer(of.ask(request, 5), ListOffsetsResponse).throttle_time_ms

    # One percent of ten seconds is five times 20 ms.
    assert [throttled_ms(wire) for _ in range(5)] == [0] * 5
    # Time says little about what comes next, so that nobody waits for it longer than a window.
    throttle_ms = throttled_ms(wire)
    assert 0 < throttle_ms <= 1_000
    assert 0 <= unheard_ms(broker, wire) - throttle_ms < 200
    assert [throttled_ms(broker.connect(client_id="other")) for _ in range(8)] == [0] * 8


# ---------------------------------------------------------------- windows


@pytest.mark.behaviour(82)
def test_eleven_windows_of_a_second_are_remembered(broker: Broker) -> None:
    limit(broker, {"client-id": "app"}, producer_byte_rate=1_000)
    # A connection of its own each time, as the one before is not heard.
    assert produce(broker.connect(client_id="app"), 20_000) > 0
    broker.run_for(10_000)
    assert produce(broker.connect(client_id="app"), 100) > 0
    broker.run_for(1_000)
    assert produce(broker.connect(client_id="app"), 100) == 0


@pytest.mark.honours("quota.window.num", "quota.window.size.seconds")
@pytest.mark.parametrize(("count", "seconds"), [(11, 1), (3, 1), (3, 4), (21, 1)])
def test_how_many_windows_there_are_and_how_long_they_are(count: int, seconds: int) -> None:
    settings = {"quota.window.num": str(count), "quota.window.size.seconds": str(seconds)}
    with Broker(settings) as broker:
        broker.create_topic()
        limit(broker, {"client-id": "app"}, producer_byte_rate=1_000)
        relied_on_ms = (count - 1) * seconds * 1_000
        # What the windows allow at once is free, and what exceeds it takes its time.
        assert produce(broker.connect(client_id="app"), relied_on_ms - OVERHEAD_MS) == 0
        throttle_ms = produce(broker.connect(client_id="app"), 5_000)
        assert abs(throttle_ms - 5_000) < OVERHEAD_MS
        broker.run_for(count * seconds * 1_000)
        assert produce(broker.connect(client_id="app"), 100) == 0
