import pytest
from metadata.cluster import CLUSTER_ID, LISTENER, Cluster

from moldau.metadata.describe.topics import describe_metadata, describe_topic_partitions
from moldau.model.errors import ErrorCode, KafkaError
from moldau.model.ids import ZERO_UUID, NodeId, Uuid
from moldau.wire.messages.metadata import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    TopicRequest,
)

NEWEST = 13
UNKNOWN_OPERATIONS = -(2**31)


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster()
    cluster.start(1, 2, 3, racks={1: "a"})
    cluster.create_on("orders", [1, 2], [2, 3])
    cluster.create_on("payments", [3])
    cluster.create_on("__consumer_offsets", [1])
    return cluster


def by_name(*names: str | None) -> list[MetadataRequestTopic]:
    return [MetadataRequestTopic(name=name) for name in names]


def metadata(
    cluster: Cluster,
    topics: list[MetadataRequestTopic] | None,
    *,
    version: int = NEWEST,
    listener: str = LISTENER,
) -> MetadataResponse:
    reply = describe_metadata(
        cluster.active.view,
        MetadataRequest(topics=topics),
        version=version,
        listener=listener,
        controller_id=NodeId(2),
    )
    # It must have a form in the version in which it was asked for.
    reply.encode(version)
    return reply


def test_brokers_are_told_with_where_they_listen(cluster: Cluster) -> None:
    reply = metadata(cluster, [])
    assert [(each.node_id, each.host, each.port, each.rack) for each in reply.brokers] == [
        (1, "host1", 9092, "a"),
        (2, "host2", 9092, None),
        (3, "host3", 9092, None),
    ]
    assert (reply.cluster_id, reply.controller_id, reply.topics) == (CLUSTER_ID, 2, [])
    assert reply.cluster_authorized_operations == UNKNOWN_OPERATIONS


def test_clients_do_not_see_fenced_brokers_or_other_listeners(cluster: Cluster) -> None:
    cluster.fence(3)
    assert [each.node_id for each in metadata(cluster, []).brokers] == [1, 2]
    assert metadata(cluster, [], listener="SSL").brokers == []


@pytest.mark.parametrize("version", range(NEWEST + 1))
def test_null_means_all_topics_and_an_empty_list_none_but_all_in_version_0(
    version: int, cluster: Cluster
) -> None:
    every = ["__consumer_offsets", "orders", "payments"]
    assert [each.name for each in metadata(cluster, [], version=version).topics] == (
        every if version == 0 else []
    )
    if version > 0:
        assert [each.name for each in metadata(cluster, None, version=version).topics] == every


def test_a_topic_is_told_with_its_partitions(cluster: Cluster) -> None:
    (topic,) = metadata(cluster, by_name("orders")).topics
    assert (topic.error_code, topic.topic_id, topic.is_internal) == (0, cluster.topic("orders").id, False)
    assert topic.topic_authorized_operations == UNKNOWN_OPERATIONS
    told = [
        (
            each.error_code,
            each.partition_index,
            each.leader_id,
            each.leader_epoch,
            each.replica_nodes,
            each.isr_nodes,
        )
        for each in topic.partitions
    ]
    assert told == [(0, 0, 1, 0, [1, 2], [1, 2]), (0, 1, 2, 0, [2, 3], [2, 3])]
    assert [each.offline_replicas for each in topic.partitions] == [[], []]


def test_the_topics_of_brokers_themselves_are_internal(cluster: Cluster) -> None:
    assert [each.is_internal for each in metadata(cluster, None).topics] == [True, False, False]


def test_topics_are_found_by_id(cluster: Cluster) -> None:
    unknown = Uuid(b"x" * 16)
    asked = [
        MetadataRequestTopic(topic_id=cluster.topic("orders").id, name=None),
        MetadataRequestTopic(topic_id=unknown, name=None),
    ]
    found, missing = metadata(cluster, asked).topics
    assert (found.name, found.error_code) == ("orders", 0)
    assert (missing.name, missing.error_code, missing.topic_id) == (None, ErrorCode.UNKNOWN_TOPIC_ID, unknown)


@pytest.mark.parametrize("version", [10, 11])
def test_early_versions_have_the_field_and_cannot_ask_by_it(version: int, cluster: Cluster) -> None:
    topic_id = cluster.topic("orders").id
    for asked in (
        MetadataRequestTopic(topic_id=topic_id, name="orders"),
        MetadataRequestTopic(topic_id=ZERO_UUID, name=None),
    ):
        with pytest.raises(KafkaError) as refused:
            metadata(cluster, [asked], version=version)
        assert refused.value.code is ErrorCode.INVALID_REQUEST


def test_a_topic_that_is_not_there_has_an_error_and_one_that_cannot_be_another(cluster: Cluster) -> None:
    topics = metadata(cluster, by_name("nil", "a/b", "nil", "")).topics
    assert [(each.name, each.error_code) for each in topics] == [
        ("nil", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("a/b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("", ErrorCode.INVALID_TOPIC_EXCEPTION),
    ]
    assert all(each.topic_id == ZERO_UUID for each in topics)


def test_a_partition_without_a_leader_says_so_and_keeps_its_epoch(cluster: Cluster) -> None:
    cluster.fence(3)
    (topic,) = metadata(cluster, by_name("payments")).topics
    (partition,) = topic.partitions
    assert (topic.error_code, partition.error_code) == (0, ErrorCode.LEADER_NOT_AVAILABLE)
    assert (partition.leader_id, partition.leader_epoch) == (-1, 1)
    assert partition.replica_nodes == partition.offline_replicas == [3]


@pytest.mark.parametrize(
    ("version", "code"), [(5, ErrorCode.LEADER_NOT_AVAILABLE), (6, ErrorCode.LISTENER_NOT_FOUND)]
)
def test_a_leader_without_the_clients_listener(version: int, code: ErrorCode, cluster: Cluster) -> None:
    (topic,) = metadata(cluster, by_name("payments"), version=version, listener="SSL").topics
    assert (topic.partitions[0].error_code, topic.partitions[0].leader_id) == (code, -1)


def test_the_first_clients_could_not_take_replicas_that_are_away(cluster: Cluster) -> None:
    cluster.fence(2)
    (old,) = metadata(cluster, by_name("orders"), version=0).topics
    (new,) = metadata(cluster, by_name("orders"), version=1).topics
    assert (old.partitions[0].error_code, old.partitions[0].replica_nodes) == (
        ErrorCode.REPLICA_NOT_AVAILABLE,
        [1],
    )
    assert (new.partitions[0].error_code, new.partitions[0].replica_nodes) == (0, [1, 2])


# --------------------------------------------------------------------------------------- a page at a time


def page(
    cluster: Cluster, *names: str, limit: int = 2000, cursor: tuple[str, int] | None = None, most: int = 2000
) -> DescribeTopicPartitionsResponse:
    at = None if cursor is None else Cursor(topic_name=cursor[0], partition_index=cursor[1])
    reply = describe_topic_partitions(
        cluster.active.view,
        DescribeTopicPartitionsRequest(
            topics=[TopicRequest(name=name) for name in names], response_partition_limit=limit, cursor=at
        ),
        listener=LISTENER,
        partition_count_max=most,
    )
    reply.encode(0)
    return reply


def told(reply: DescribeTopicPartitionsResponse) -> list[tuple[str | None, list[int]]]:
    return [(topic.name, [each.partition_index for each in topic.partitions]) for topic in reply.topics]


def test_pages_follow_each_other_until_all_was_told(cluster: Cluster) -> None:
    pages = []
    cursor: tuple[str, int] | None = None
    while True:
        reply = page(cluster, limit=1, cursor=cursor)
        pages.append(told(reply))
        if reply.next_cursor is None:
            break
        cursor = (reply.next_cursor.topic_name, reply.next_cursor.partition_index)
    assert pages == [[("__consumer_offsets", [0])], [("orders", [0])], [("orders", [1])], [("payments", [0])]]


def test_a_page_is_never_larger_than_the_broker_allows(cluster: Cluster) -> None:
    reply = page(cluster, limit=2000, most=2)
    assert told(reply) == [("__consumer_offsets", [0]), ("orders", [0])]
    assert reply.next_cursor == Cursor(topic_name="orders", partition_index=1)


def test_topics_asked_for_by_name_are_told_in_order_and_missing_ones_with_an_error(cluster: Cluster) -> None:
    reply = page(cluster, "payments", "nil", "a/b", "orders", "orders")
    assert [(each.name, each.error_code) for each in reply.topics] == [
        ("a/b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("nil", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("orders", 0),
        ("payments", 0),
    ]
    assert told(page(cluster, "payments", "orders", cursor=("orders", 1))) == [
        ("orders", [1]),
        ("payments", [0]),
    ]


def test_a_cursor_to_a_topic_that_is_gone_goes_on_behind_it(cluster: Cluster) -> None:
    assert told(page(cluster, cursor=("orderz", 1))) == [("payments", [0])]


def test_eligible_leaders_are_told(cluster: Cluster) -> None:
    cluster.fence(3)
    (partition,) = page(cluster, "payments").topics[0].partitions
    assert (partition.leader_id, partition.isr_nodes) == (-1, [])
    assert (partition.eligible_leader_replicas, partition.last_known_elr) == ([3], [3])
    assert partition.offline_replicas == [3]


@pytest.mark.parametrize("limit", [0, -1])
def test_a_page_holds_one_partition_at_least(limit: int, cluster: Cluster) -> None:
    assert page(cluster, limit=limit) == page(cluster, limit=1)


def test_an_impossible_page(cluster: Cluster) -> None:
    with pytest.raises(KafkaError) as refused:
        page(cluster, limit=5, cursor=("orders", -1))
    assert refused.value.code is ErrorCode.INVALID_REQUEST
