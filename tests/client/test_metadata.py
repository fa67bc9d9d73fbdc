"""What a client believes about leaders, and which news it takes."""

from moldau.client.metadata import Leader, Metadata
from moldau.model.errors import ErrorCode
from moldau.model.ids import PartitionIndex, TopicName, TopicPartition, Uuid
from moldau.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from moldau.wire.messages.produce import NodeEndpoint
from moldau.world.ports import Address

PLACE = TopicPartition(TopicName("orders"), PartitionIndex(0))
FIRST_ID, SECOND_ID = Uuid(b"1" * 16), Uuid(b"2" * 16)


def response(
    leader: int = 1, epoch: int = 0, *, topic_id: Uuid = FIRST_ID, error: ErrorCode = ErrorCode.NONE
) -> MetadataResponse:
    partition = MetadataResponsePartition(
        error_code=0,
        partition_index=0,
        leader_id=leader,
        leader_epoch=epoch,
        replica_nodes=[1, 2],
        isr_nodes=[1],
    )
    return MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=node, host=f"b{node}", port=9092) for node in (1, 2)],
        controller_id=1,
        topics=[
            MetadataResponseTopic(
                error_code=error, name="orders", topic_id=topic_id, partitions=[] if error else [partition]
            )
        ],
    )


def after(*responses: MetadataResponse) -> Metadata:
    metadata = Metadata()
    for each in responses:
        metadata.apply(each)
    return metadata


def test_a_higher_epoch_replaces_a_leader_and_a_lower_one_does_not() -> None:
    assert after(response(1, 5), response(2, 6)).leader(PLACE) == Leader(2, 6)
    assert after(response(1, 5), response(2, 4)).leader(PLACE) == Leader(1, 5)


def test_a_topic_that_was_created_anew_starts_its_epochs_again() -> None:
    metadata = after(response(1, 5), response(2, 0, topic_id=SECOND_ID))
    assert metadata.leader(PLACE) == Leader(2, 0)
    assert (metadata.name_of(FIRST_ID), metadata.name_of(SECOND_ID)) == ("", "orders")


def test_brokers_that_give_no_epochs_are_believed() -> None:
    assert after(response(1, 5), response(2, -1)).leader(PLACE) == Leader(2, -1)


def test_a_partition_without_a_leader_has_none() -> None:
    metadata = after(response(-1, 3))
    assert metadata.leader(PLACE) is None
    assert metadata.topics["orders"].available == ()


def test_a_deleted_topic_is_forgotten_and_one_that_is_being_created_is_not() -> None:
    gone = after(response(), response(error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    assert (gone.leader(PLACE), gone.errors) == (None, {"orders": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})
    assert after(response(), response(error=ErrorCode.LEADER_NOT_AVAILABLE)).leader(PLACE) == Leader(1, 0)


def test_a_complete_response_that_leaves_a_topic_out_says_that_it_is_gone() -> None:
    metadata = after(response())
    metadata.apply(MetadataResponse(brokers=[], controller_id=1, topics=[]), is_complete=True)
    assert metadata.topics == {}


def test_a_hint_about_a_new_leader_is_taken_if_it_is_newer_and_can_be_reached() -> None:
    metadata = after(response(1, 5))
    there = NodeEndpoint(node_id=3, host="b3", port=9093)
    assert not metadata.apply_leader(PLACE, Leader(3, 5), [there])
    assert not metadata.apply_leader(PLACE, Leader(3, 6), [])
    assert not metadata.apply_leader(PLACE, Leader(-1, 7), [there])
    assert metadata.apply_leader(PLACE, Leader(3, 6), [there])
    assert metadata.leader(PLACE) == Leader(3, 6)
    assert metadata.brokers[3].address == Address("b3", 9093)
