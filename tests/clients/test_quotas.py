"""Client quotas, set by tools and seen by clients: who exceeds one is told so, then not heard for a while."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path

import confluent_kafka
import kafka_jars as kafka
import pytest
from clients.raw_client import (
    FETCH_VERSION,
    PRODUCE_VERSION,
    RawClient,
    batch_of,
    fetch_request,
    produce_request,
    wait_until,
)
from clients.rough_broker import RoughBroker

from moldau.client import connect_sync
from moldau.client.admin import QuotaEntity
from moldau.model.errors import ErrorCode
from moldau.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from moldau.wire.messages.fetch import FetchResponse
from moldau.wire.messages.produce import ProduceResponse
from moldau.wire.messages.topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse

TOPIC = "sound"
BYTE_RATE = 100_000
# With two windows of a second, twice the rate at once has to wait for about a second.
EXCESS_BYTES = 2 * BYTE_RATE
TIMEOUT_S = 30


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RoughBroker]:
    """A broker that forgets soon what clients did."""
    settings = {"quota.window.num": "2", "quota.window.size.seconds": "1"}
    with RoughBroker(tmp_path_factory.mktemp("quotas"), settings) as broker:
        with broker.connect() as client:
            assert client.create_topic(TOPIC) == ErrorCode.NONE
            assert client.produce(TOPIC, batch_of(bytes(EXCESS_BYTES))).error_code == ErrorCode.NONE
        yield broker


def set_quotas(broker: RoughBroker, client_id: str, quotas: Mapping[str, float | None]) -> None:
    """Set them through our own client, and see that they are there."""
    entity: QuotaEntity = (("client-id", client_id),)
    with connect_sync(broker.address) as client:
        client.admin.alter_quotas(entity, quotas)
        found = client.admin.describe_quotas().get(entity, {})
    assert found == {name: value for name, value in quotas.items() if value is not None}


# ----------------------------------------------------------------------------- bytes


def test_librdkafka_hears_that_it_writes_too_much(broker: RoughBroker) -> None:
    set_quotas(broker, "eager writer", {"producer_byte_rate": BYTE_RATE})
    heard: list[float] = []
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": broker.address,
            "client.id": "eager writer",
            "throttle_cb": lambda event: heard.append(event.throttle_time),
        }
    )
    producer.produce(TOPIC, bytes(EXCESS_BYTES))

    def has_heard() -> bool:
        producer.poll(0.05)
        return bool(heard) and heard[0] > 0

    wait_until(has_heard, "librdkafka is throttled")
    assert producer.flush(TIMEOUT_S) == 0
    broker.check_health()


def test_librdkafka_hears_that_it_reads_too_much(broker: RoughBroker) -> None:
    set_quotas(broker, "eager reader", {"consumer_byte_rate": BYTE_RATE})
    heard: list[float] = []
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": broker.address,
            "client.id": "eager reader",
            "group.id": "never joined",
            "throttle_cb": lambda event: heard.append(event.throttle_time),
        }
    )
    with closing(consumer):
        consumer.assign([confluent_kafka.TopicPartition(TOPIC, 0, 0)])
        read: list[bytes | None] = []

        def has_heard() -> bool:
            read.extend(message.value() for message in consumer.consume(10, timeout=0.05))
            return bool(read) and any(time_ms > 0 for time_ms in heard)

        wait_until(has_heard, "librdkafka is throttled")
    broker.check_health()


def test_who_has_written_too_much_is_not_heard_for_as_long_as_it_was_told(broker: RoughBroker) -> None:
    set_quotas(broker, "loud", {"producer_byte_rate": BYTE_RATE})
    request = produce_request(TOPIC, batch_of(bytes(EXCESS_BYTES)))
    with broker.connect("loud") as client, broker.connect("quiet") as other:
        response = client.ask(request, PRODUCE_VERSION, ProduceResponse)
        # What exceeds the quota is still taken.
        assert response.responses[0].partition_responses[0].error_code == ErrorCode.NONE
        assert_is_muted_for(client, response.throttle_time_ms, other)
        # Others with no quota are not told to wait.
        assert other.ask(request, PRODUCE_VERSION, ProduceResponse).throttle_time_ms == 0
    broker.check_health()


def test_who_has_read_too_much_gets_the_rest_later(broker: RoughBroker) -> None:
    set_quotas(broker, "hungry", {"consumer_byte_rate": BYTE_RATE})
    with broker.connect("hungry") as client, broker.connect("quiet") as other:
        response = client.ask(fetch_request(TOPIC), FETCH_VERSION, FetchResponse)
        assert_is_muted_for(client, response.throttle_time_ms, other)

        def gets_records() -> bool:
            again = client.ask(fetch_request(TOPIC), FETCH_VERSION, FetchResponse)
            return bool(again.responses and again.responses[0].partitions[0].records)

        wait_until(gets_records, "it gets records")
    broker.check_health()


def assert_is_muted_for(client: RawClient, throttle_ms: int, other: RawClient) -> None:
    """Whatever the client asks is answered after that time, and what others ask is answered before."""
    assert 0 < throttle_ms < 10_000
    began = time.monotonic()
    client.send(client.encode(ApiVersionsRequest(), 0))
    other.ask(ApiVersionsRequest(), 0, ApiVersionsResponse)
    answered_s: list[float] = []

    def read() -> None:
        client.read(ApiVersionsResponse)
        answered_s.append(time.monotonic() - began)

    reading = threading.Thread(target=read)
    reading.start()
    other.ask(ApiVersionsRequest(), 0, ApiVersionsResponse)
    reading.join()
    # The time had begun before the client was told.
    assert answered_s[0] >= throttle_ms / 1000 * 0.8


def test_a_quota_that_is_removed_holds_nobody_back(broker: RoughBroker) -> None:
    request = produce_request(TOPIC, batch_of(bytes(EXCESS_BYTES)))
    set_quotas(broker, "freed", {"producer_byte_rate": BYTE_RATE})
    with broker.connect("freed") as client:
        assert client.ask(request, PRODUCE_VERSION, ProduceResponse).throttle_time_ms > 0
        set_quotas(broker, "freed", {"producer_byte_rate": None})
        assert client.ask(request, PRODUCE_VERSION, ProduceResponse).throttle_time_ms == 0
    broker.check_health()


# ----------------------------------------------------------------------------- changes of metadata


def create(client: RawClient, name: str, *, version: int) -> CreateTopicsResponse:
    topic = CreatableTopic(name=name, num_partitions=5, replication_factor=1, assignments=[], configs=[])
    return client.ask(CreateTopicsRequest(topics=[topic]), version, CreateTopicsResponse)


def test_who_creates_too_many_partitions_has_to_come_again(broker: RoughBroker) -> None:
    set_quotas(broker, "builder", {"controller_mutation_rate": 2})
    with broker.connect("builder") as client, broker.connect("another") as other:
        # The change that exceeds the quota is still accepted, and the next has to wait until that is paid.
        assert create(client, "first", version=7).topics[0].error_code == ErrorCode.NONE
        refused = create(client, "second", version=7)
        assert ErrorCode(refused.topics[0].error_code) is ErrorCode.THROTTLING_QUOTA_EXCEEDED
        assert refused.throttle_time_ms > 0
        assert create(other, "other", version=7).topics[0].error_code == ErrorCode.NONE
        wait_until(
            lambda: create(client, "second", version=7).topics[0].error_code == ErrorCode.NONE,
            "it may create topics again",
        )
    broker.check_health()


def test_a_client_too_old_to_come_again_is_only_told_to_wait(broker: RoughBroker) -> None:
    set_quotas(broker, "old builder", {"controller_mutation_rate": 2})
    with broker.connect("old builder") as client:
        response = create(client, "old", version=5)
        assert response.topics[0].error_code == ErrorCode.NONE
        assert response.throttle_time_ms > 0
    broker.check_health()


# ----------------------------------------------------------------------------- Kafka's own tool


def test_quotas_set_by_kafkas_own_tool_hold(broker: RoughBroker, kafka_jars: Path) -> None:
    try:
        java = kafka.find_java()
    except kafka.Unavailable as why:
        pytest.skip(str(why))

    def run(*arguments: str) -> str:
        tool = [java, "-Xmx128m", "-XX:TieredStopAtLevel=1", "-cp", f"{kafka_jars}/*"]
        command = [*tool, "kafka.admin.ConfigCommand", "--bootstrap-server", broker.address, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    whose = ("--entity-type", "clients", "--entity-name", "tooled")
    run("--alter", "--add-config", f"producer_byte_rate={BYTE_RATE}", *whose)
    assert f"producer_byte_rate={BYTE_RATE}.0" in run("--describe", *whose)
    with broker.connect("tooled") as client:
        request = produce_request(TOPIC, batch_of(bytes(EXCESS_BYTES)))
        assert client.ask(request, PRODUCE_VERSION, ProduceResponse).throttle_time_ms > 0
    broker.check_health()
