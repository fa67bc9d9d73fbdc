import pytest
from metadata.cluster import Cluster, directory_of

from moldau.metadata.image import ResourceType
from moldau.model.errors import ErrorCode
from moldau.model.ids import NodeId
from moldau.wire.messages.brokers import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionRequestTopicData,
    AlterPartitionResponse,
)
from moldau.wire.messages.topics import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
    ReassignablePartition,
    ReassignableTopic,
)


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster()
    cluster.start(1, 2, 3, 4, 5, 6)
    cluster.create_on("orders", [1, 2, 3])
    return cluster


def reassign(
    cluster: Cluster,
    replicas: list[int] | None,
    *,
    name: str = "orders",
    index: int = 0,
    may_change: bool = True,
) -> tuple[int, str | None]:
    reply = cluster.ask(
        AlterPartitionReassignmentsRequest(
            allow_replication_factor_change=may_change,
            topics=[
                ReassignableTopic(
                    name=name, partitions=[ReassignablePartition(partition_index=index, replicas=replicas)]
                )
            ],
        )
    )
    assert isinstance(reply, AlterPartitionReassignmentsResponse)
    (result,) = reply.responses[0].partitions
    return result.error_code, result.error_message


def in_sync(cluster: Cluster, isr: list[int]) -> int:
    """The leader says who is in sync, in the request of version 2."""
    partition = cluster.partition("orders")
    reply = cluster.ask(
        AlterPartitionRequest(
            broker_id=partition.leader,
            broker_epoch=cluster.image.brokers[partition.leader].epoch,
            topics=[
                AlterPartitionRequestTopicData(
                    topic_id=cluster.topic("orders").id,
                    partitions=[
                        AlterPartitionRequestPartitionData(
                            partition_index=0,
                            leader_epoch=partition.leader_epoch,
                            new_isr=isr,
                            partition_epoch=partition.partition_epoch,
                        )
                    ],
                )
            ],
        )
    )
    assert isinstance(reply, AlterPartitionResponse)
    return reply.topics[0].partitions[0].error_code


def ongoing(cluster: Cluster, *names: str) -> dict[str, tuple[list[int], list[int], list[int]]]:
    reply = cluster.ask(
        ListPartitionReassignmentsRequest(
            topics=[ListPartitionReassignmentsTopics(name=name, partition_indexes=[0, 1]) for name in names]
            or None
        )
    )
    assert isinstance(reply, ListPartitionReassignmentsResponse)
    return {
        topic.name: (each.replicas, each.adding_replicas, each.removing_replicas)
        for topic in reply.topics
        for each in topic.partitions
    }


def test_a_move_ends_when_all_that_are_to_stay_are_in_sync(cluster: Cluster) -> None:
    assert reassign(cluster, [4, 5, 1]) == (0, None)
    assert ongoing(cluster) == {"orders": ([4, 5, 1, 2, 3], [4, 5], [2, 3])}
    partition = cluster.partition("orders")
    assert (partition.leader, partition.isr) == (1, (1, 2, 3))
    assert partition.directory(NodeId(4)) == directory_of(4)
    assert in_sync(cluster, [1, 2, 3, 4]) == 0
    assert ongoing(cluster, "orders", "nil") == {"orders": ([4, 5, 1, 2, 3], [4, 5], [2, 3])}
    epoch = cluster.partition("orders").leader_epoch
    assert in_sync(cluster, [1, 2, 3, 4, 5]) == 0
    partition = cluster.partition("orders")
    assert (partition.replicas, partition.isr, partition.leader) == ((4, 5, 1), (1, 4, 5), 1)
    assert partition.directories == (directory_of(4), directory_of(5), directory_of(1))
    # Those that are gone must hear of it, so the leader begins a new epoch.
    assert partition.leader_epoch == epoch + 1
    assert ongoing(cluster) == {}


def test_a_leader_that_is_moved_away_is_told_that_another_leads(cluster: Cluster) -> None:
    reassign(cluster, [4, 5, 6])
    assert in_sync(cluster, [1, 2, 3, 4, 5, 6]) == ErrorCode.NEW_LEADER_ELECTED
    partition = cluster.partition("orders")
    assert (partition.replicas, partition.isr, partition.leader) == ((4, 5, 6), (4, 5, 6), 4)


def test_what_needs_no_copy_is_done_at_once(cluster: Cluster) -> None:
    assert reassign(cluster, [3, 1]) == (0, None)
    partition = cluster.partition("orders")
    assert (partition.replicas, partition.isr, partition.leader) == ((3, 1), (1, 3), 1)
    assert not partition.is_being_reassigned
    end = cluster.next_offset
    assert reassign(cluster, [3, 1]) == (0, None)
    assert cluster.next_offset == end


def test_a_move_is_called_off(cluster: Cluster) -> None:
    before = cluster.partition("orders")
    reassign(cluster, [4, 5, 1])
    in_sync(cluster, [1, 2, 3, 4])
    assert reassign(cluster, None) == (0, None)
    partition = cluster.partition("orders")
    assert sorted(partition.replicas) == sorted(before.replicas)
    assert sorted(partition.isr) == [1, 2, 3]
    assert not partition.is_being_reassigned
    assert reassign(cluster, None)[0] == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


def test_a_move_is_replaced_by_another_and_can_still_be_called_off(cluster: Cluster) -> None:
    reassign(cluster, [4, 5, 6])
    reassign(cluster, [4, 2, 3])
    partition = cluster.partition("orders")
    assert (partition.replicas, partition.removing) == ((4, 2, 3, 1, 5, 6), (1, 5, 6))
    assert partition.adding == (4, 5, 6)
    reassign(cluster, None)
    assert sorted(cluster.partition("orders").replicas) == [1, 2, 3]


def test_who_is_moved_away_is_no_more_eligible_to_lead(cluster: Cluster) -> None:
    cluster.alter(ResourceType.TOPIC, "orders", ("min.insync.replicas", 0, "4"))
    cluster.fence(3)
    assert cluster.partition("orders").elr == (3,)
    assert reassign(cluster, [1, 2]) == (0, None)
    partition = cluster.partition("orders")
    assert (partition.replicas, partition.isr, partition.elr) == ((1, 2), (1, 2), ())


def test_a_move_back_to_where_it_began_is_over_at_once(cluster: Cluster) -> None:
    reassign(cluster, [4, 5, 6])
    reassign(cluster, [1, 2, 3])
    partition = cluster.partition("orders")
    assert (partition.replicas, partition.is_being_reassigned) == ((1, 2, 3), False)


def test_a_move_that_only_an_unclean_election_could_call_off_goes_on(cluster: Cluster) -> None:
    reassign(cluster, [4, 5, 6])
    in_sync(cluster, [1, 4])
    cluster.fence(2, 3, 1)
    assert cluster.partition("orders").isr == (4,)
    code, message = reassign(cluster, None)
    assert code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert message is not None
    assert "[1, 2, 3]" in message
    cluster.alter(ResourceType.TOPIC, "orders", ("unclean.leader.election.enable", 0, "true"))
    assert reassign(cluster, None) == (0, None)
    assert sorted(cluster.partition("orders").replicas) == [1, 2, 3]


@pytest.mark.parametrize(
    ("replicas", "name", "index", "may_change", "code", "message"),
    [
        ([1], "nil", 0, True, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "nil-0"),
        ([1], "orders", 7, True, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "orders-7"),
        ([], "orders", 0, True, ErrorCode.INVALID_REPLICA_ASSIGNMENT, "empty"),
        ([1, 1], "orders", 0, True, ErrorCode.INVALID_REPLICA_ASSIGNMENT, "broker 1 is named twice"),
        ([9], "orders", 0, True, ErrorCode.INVALID_REPLICA_ASSIGNMENT, "no broker 9"),
        ([1, 2], "orders", 0, False, ErrorCode.INVALID_REPLICATION_FACTOR, "from 3 to 2"),
    ],
)
def test_a_move_is_refused_with_what_was_wrong(
    replicas: list[int],
    name: str,
    index: int,
    may_change: bool,
    code: ErrorCode,
    message: str,
    cluster: Cluster,
) -> None:
    found, text = reassign(cluster, replicas, name=name, index=index, may_change=may_change)
    assert found == code
    assert text is not None
    assert message in text
    assert ongoing(cluster) == {}
