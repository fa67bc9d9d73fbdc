"""Every API is answered in every version that is advertised, on both kinds of listener."""

from collections.abc import Iterator, Mapping

import pytest
from node.broker import CLIENTS, CONTROLLER, TOPIC, Broker, answer
from wire.contents import filled

from moldau.node.apis.table import BROKER_APIS, CONTROLLER_APIS, Api
from moldau.wire.message import Request
from moldau.wire.messages import REQUESTS, RESPONSES, ApiKey
from moldau.wire.messages.produce import ProduceRequest
from moldau.wire.messages.raft import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
    DescribeQuorumResponse,
)

# A broker that is unregistered ends; and an envelope holds a request, which contents of a test are not.
ENDING = (ApiKey.UNREGISTER_BROKER, ApiKey.ENVELOPE)


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        broker.create_topic(TOPIC)
        yield broker


def versions_of(apis: Mapping[int, Api]) -> list[tuple[ApiKey, int]]:
    return [
        (api.key, version)
        for api in apis.values()
        if api.key not in ENDING
        for version in range(api.versions.lowest, api.versions.highest + 1)
    ]


def content(key: ApiKey, version: int) -> Request:
    request = filled(REQUESTS[key], version)
    assert isinstance(request, Request)
    if isinstance(request, ProduceRequest):
        request.acks = -1
    return request


@pytest.mark.parametrize(("key", "version"), versions_of(BROKER_APIS))
def test_a_broker_answers_every_version_that_it_advertises(broker: Broker, key: ApiKey, version: int) -> None:
    wire = broker.connect(CLIENTS)
    assert isinstance(wire.ask(content(key, version), version), RESPONSES[key])
    wire.close()


@pytest.mark.parametrize(("key", "version"), versions_of(CONTROLLER_APIS))
def test_a_controller_answers_every_version_that_it_advertises(
    broker: Broker, key: ApiKey, version: int
) -> None:
    wire = broker.connect(CONTROLLER)
    assert isinstance(wire.ask(content(key, version), version), RESPONSES[key])
    wire.close()


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize("listener", [CLIENTS, CONTROLLER], ids=["broker", "controller"])
def test_the_quorum_is_described_in_every_version(broker: Broker, listener: object, version: int) -> None:
    partition = DescribeQuorumRequestPartitionData(partition_index=0)
    topic = DescribeQuorumRequestTopicData(topic_name="__cluster_metadata", partitions=[partition])
    wire = broker.connect(listener)  # type: ignore[arg-type]
    response = answer(wire.ask(DescribeQuorumRequest(topics=[topic]), version), DescribeQuorumResponse)
    described = response.topics[0].partitions[0]
    (voter,) = described.current_voters
    assert (response.error_code, described.leader_id, voter.replica_id) == (0, 1, 1)
    assert described.high_watermark > 0
    # What an older version cannot say is left out.
    assert bool(response.nodes) == (version >= 2)
    assert (voter.replica_directory_id != bytes(16)) == (version >= 2)
    wire.close()
