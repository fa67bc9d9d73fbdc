"""Whatever a message holds comes back from its bytes, in every version."""

import pytest
from hypothesis import HealthCheck, given, settings
from wire.contents import EVERY_VERSION, arbitrary, filled, has_only_defaults_elsewhere

from moldau.wire import messages
from moldau.wire.messages.groups import DescribeGroupsRequest
from moldau.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from moldau.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

# Breadth comes from the pairs of message and version; the same examples every time make failures repeatable.
FEW = settings(
    max_examples=4,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.parametrize(("name", "version"), EVERY_VERSION)
def test_a_message_comes_back_from_its_bytes(name: str, version: int) -> None:
    kind = messages.BY_NAME[name]

    @FEW
    @given(arbitrary(kind, version, is_flexible=kind.declaration.flexible.includes(version)))
    def round_trip(message: object) -> None:
        assert isinstance(message, kind)
        data = message.encode(version)
        again = kind.decode(data, version)
        assert again == message
        assert again.encode(version) == data

    round_trip()


@pytest.mark.parametrize("with_nulls", [False, True])
@pytest.mark.parametrize(("name", "version"), EVERY_VERSION)
def test_a_filled_message_comes_back_wherever_it_lies_in_a_buffer(
    name: str, version: int, with_nulls: bool
) -> None:
    kind = messages.BY_NAME[name]
    message = filled(kind, version, with_nulls=with_nulls)
    data = message.encode(version)
    assert kind.decode(memoryview(b"before" + data + b"after")[6:-5], version) == message
    assert has_only_defaults_elsewhere(kind.decode(data, version), version)


# Around the lengths at which a varint grows by a byte, and at which text ends.
@pytest.mark.parametrize("length", [0, 1, 126, 127, 128, 16382, 16383, 16384, 32767])
def test_text_and_lists_of_any_length_come_back(length: int) -> None:
    request = MetadataRequest(topics=[MetadataRequestTopic(name="t" * length)] * max(1, length // 100))
    assert MetadataRequest.decode(request.encode(12), 12) == request
    many = DescribeGroupsRequest(groups=["g"] * length)
    assert DescribeGroupsRequest.decode(many.encode(5), 5) == many


@pytest.mark.parametrize("length", [0, 1, 126, 127, 128, 16382, 16383, 16384, 2**21 - 2, 2**21 - 1, 2**21])
def test_records_of_any_length_come_back(length: int) -> None:
    partition = PartitionProduceData(index=7, records=bytes(length))
    topic = TopicProduceData(name="t", partition_data=[partition])
    request = ProduceRequest(transactional_id=None, acks=-1, timeout_ms=1, topic_data=[topic])
    for version in (8, 9):
        assert ProduceRequest.decode(request.encode(version), version) == request
