import pytest
from metadata.cluster import Cluster

from moldau.model.errors import ErrorCode, KafkaError
from moldau.model.ids import NodeId
from moldau.wire.messages.brokers import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from moldau.wire.messages.metadata_records import ProducerIdsRecord


def allocate(cluster: Cluster, node_id: int, epoch: int | None = None) -> tuple[int, int]:
    known = cluster.image.brokers[NodeId(node_id)].epoch
    reply = cluster.ask(
        AllocateProducerIdsRequest(broker_id=node_id, broker_epoch=known if epoch is None else epoch)
    )
    assert isinstance(reply, AllocateProducerIdsResponse)
    return reply.producer_id_start, reply.producer_id_len


def test_no_id_is_given_out_twice() -> None:
    cluster = Cluster()
    cluster.start(1, 2)
    blocks = [allocate(cluster, 1), allocate(cluster, 2), allocate(cluster, 1)]
    assert blocks == [(0, 1000), (1000, 1000), (2000, 1000)]
    assert cluster.image.next_producer_id == 3000


def test_a_broker_with_another_epoch_gets_none() -> None:
    cluster = Cluster()
    cluster.start(1)
    with pytest.raises(KafkaError) as refused:
        allocate(cluster, 1, epoch=77)
    assert refused.value.code is ErrorCode.STALE_BROKER_EPOCH


def test_ids_end_before_the_numbers_do() -> None:
    cluster = Cluster()
    cluster.start(1)
    cluster.append([ProducerIdsRecord(broker_id=1, broker_epoch=0, next_producer_id=2**63 - 1000)])
    with pytest.raises(KafkaError) as refused:
        allocate(cluster, 1)
    assert refused.value.code is ErrorCode.UNKNOWN_SERVER_ERROR
