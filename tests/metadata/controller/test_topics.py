import pytest
from metadata.cluster import Cluster, directory_of, new_topic

from moldau.metadata.controller.decisions import Circumstances
from moldau.metadata.image import ResourceType, topic_resource
from moldau.model.errors import ErrorCode, KafkaError
from moldau.model.ids import ZERO_UUID, Offset, TopicName, Uuid
from moldau.model.settings.resolve import Source
from moldau.wire.messages.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
    CreateTopicsRequest,
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster(static={"num.partitions": "4", "default.replication.factor": "2"})
    cluster.start(1, 2, 3)
    cluster.register(4)  # stays fenced
    return cluster


def create_one(cluster: Cluster, topic: CreatableTopic) -> CreatableTopicResult:
    (result,) = cluster.create(topic).topics
    return result


# ------------------------------------------------------------------------------------------------- creating


def test_a_topic_is_created_as_asked(cluster: Cluster) -> None:
    result = create_one(cluster, new_topic("orders", partitions=6, replicas=3, configs={"retention.ms": "5"}))
    assert (result.error_code, result.error_message) == (ErrorCode.NONE, None)
    assert (result.num_partitions, result.replication_factor) == (6, 3)
    topic = cluster.topic("orders")
    assert topic.id == result.topic_id != ZERO_UUID
    assert len(topic.partitions) == 6
    for partition in topic.partitions:
        assert sorted(partition.replicas) == [1, 2, 3]
        assert partition.isr == partition.replicas
        assert partition.leader == partition.replicas[0]
        assert (partition.leader_epoch, partition.partition_epoch) == (0, 0)
        # A broker with one directory can only put it there.
        assert partition.directories == tuple(directory_of(each) for each in partition.replicas)
    assert cluster.image.texts(topic_resource(TopicName("orders"))) == {"retention.ms": "5"}


def test_minus_one_leaves_the_numbers_to_the_cluster(cluster: Cluster) -> None:
    result = create_one(cluster, new_topic("orders", partitions=-1, replicas=-1))
    assert (result.num_partitions, result.replication_factor) == (4, 2)


def test_the_reply_tells_every_setting_and_where_it_comes_from(cluster: Cluster) -> None:
    result = create_one(cluster, new_topic("orders", configs={"retention.ms": "5"}))
    assert result.configs is not None
    told = {each.name: (each.value, each.config_source) for each in result.configs}
    assert told["retention.ms"] == ("5", Source.TOPIC)
    assert told["cleanup.policy"] == ("delete", Source.DEFAULT)


def test_a_trial_has_the_same_reply_and_creates_nothing(cluster: Cluster) -> None:
    reply = cluster.create(new_topic("orders"), new_topic("no/slash"), validate_only=True)
    assert [each.error_code for each in reply.topics] == [0, ErrorCode.INVALID_TOPIC_EXCEPTION]
    assert len(cluster.image.topics) == 0


def test_replicas_can_be_assigned_by_hand(cluster: Cluster) -> None:
    cluster.create_on("orders", [3, 1], [2, 4])
    assert cluster.partition("orders", 0).replicas == (3, 1)
    # The fenced one is not in sync.
    assert cluster.partition("orders", 1).isr == (2,)


def by_hand(*assignments: tuple[int, list[int]], partitions: int = -1, replicas: int = -1) -> CreatableTopic:
    return CreatableTopic(
        name="orders",
        num_partitions=partitions,
        replication_factor=replicas,
        assignments=[CreatableReplicaAssignment(partition_index=i, broker_ids=ids) for i, ids in assignments],
        configs=[],
    )


REFUSED: dict[str, tuple[CreatableTopic, ErrorCode, str]] = {
    "a name with a slash": (new_topic("a/b"), ErrorCode.INVALID_TOPIC_EXCEPTION, "'a/b'"),
    "an empty name": (new_topic(""), ErrorCode.INVALID_TOPIC_EXCEPTION, "empty"),
    "a name that is too long": (new_topic("x" * 250), ErrorCode.INVALID_TOPIC_EXCEPTION, "250"),
    "the cluster's own topic": (new_topic("__cluster_metadata"), ErrorCode.INVALID_REQUEST, "own"),
    "a name that exists": (new_topic("taken.name"), ErrorCode.TOPIC_ALREADY_EXISTS, "'taken.name'"),
    "a name that metrics cannot tell apart": (
        new_topic("taken_name"),
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        "'taken.name'",
    ),
    "no partitions": (new_topic("orders", partitions=0), ErrorCode.INVALID_PARTITIONS, "not 0"),
    "fewer than no partitions": (new_topic("orders", partitions=-2), ErrorCode.INVALID_PARTITIONS, "not -2"),
    "no replicas": (new_topic("orders", replicas=0), ErrorCode.INVALID_REPLICATION_FACTOR, "not 0"),
    "more replicas than brokers": (
        new_topic("orders", replicas=5),
        ErrorCode.INVALID_REPLICATION_FACTOR,
        "5 is larger than the number of brokers, 4",
    ),
    "a setting that does not exist": (
        new_topic("orders", configs={"retention.msx": "5"}),
        ErrorCode.INVALID_CONFIG,
        "Did you mean retention.ms",
    ),
    "a setting with an impossible value": (
        new_topic("orders", configs={"retention.ms": "soon"}),
        ErrorCode.INVALID_CONFIG,
        "'soon' for retention.ms",
    ),
    "settings that contradict each other": (
        new_topic("orders", configs={"min.compaction.lag.ms": "9", "max.compaction.lag.ms": "8"}),
        ErrorCode.INVALID_CONFIG,
        "must not exceed",
    ),
    "a setting without a value": (
        CreatableTopic(
            name="orders",
            num_partitions=1,
            replication_factor=1,
            assignments=[],
            configs=[CreatableTopicConfig(name="retention.ms", value=None)],
        ),
        ErrorCode.INVALID_CONFIG,
        "retention.ms",
    ),
    "by hand and with a number of partitions": (
        by_hand((0, [1]), partitions=1),
        ErrorCode.INVALID_REQUEST,
        "not 1 and -1",
    ),
    "by hand and with a replication factor": (
        by_hand((0, [1]), replicas=1),
        ErrorCode.INVALID_REQUEST,
        "not -1 and 1",
    ),
    "by hand, with a gap": (
        by_hand((0, [1]), (2, [1])),
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        "do not count up",
    ),
    "by hand, one partition twice": (
        by_hand((0, [1]), (0, [2])),
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        "partition 0 is assigned twice",
    ),
    "by hand, on nobody": (by_hand((0, [])), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "empty"),
    "by hand, on one broker twice": (
        by_hand((0, [1, 1])),
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        "broker 1 is named twice",
    ),
    "by hand, on an unknown broker": (
        by_hand((0, [9])),
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        "no broker 9",
    ),
    "by hand, on fenced brokers alone": (
        by_hand((0, [4])),
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        "fenced or shutting down",
    ),
    "by hand, with different factors": (
        by_hand((0, [1, 2]), (1, [1])),
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        "partition 1 has 1 replicas, and the others have 2",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_topic_is_refused_with_what_was_wrong(what: str, cluster: Cluster) -> None:
    cluster.create_on("taken.name", [1])
    topic, code, message = REFUSED[what]
    result = create_one(cluster, topic)
    assert (result.error_code, result.name) == (code, topic.name)
    assert result.error_message is not None
    assert message in result.error_message
    assert len(cluster.image.topics) == 1


def test_one_topic_that_is_refused_does_not_hold_up_the_others(cluster: Cluster) -> None:
    reply = cluster.create(
        new_topic("a.b"), new_topic("a_b"), new_topic("twice"), new_topic("c"), new_topic("twice")
    )
    assert {each.name: each.error_code for each in reply.topics} == {
        "twice": ErrorCode.INVALID_REQUEST,
        "a.b": ErrorCode.NONE,
        "a_b": ErrorCode.INVALID_TOPIC_EXCEPTION,
        "c": ErrorCode.NONE,
    }
    assert len(reply.topics) == 4
    assert list(cluster.image.topics) == ["a.b", "c"]


def test_without_a_broker_there_is_no_topic() -> None:
    cluster = Cluster()
    assert create_one(cluster, new_topic("orders")).error_code == ErrorCode.INVALID_REPLICATION_FACTOR


def test_a_request_that_does_not_fit_into_one_batch_is_refused_whole(cluster: Cluster) -> None:
    request = CreateTopicsRequest(topics=[new_topic("orders", partitions=10_000)])
    with pytest.raises(KafkaError, match="10001 metadata records") as refused:
        cluster.active.decide(request, Circumstances(0, Offset(0), bytes(16)))
    assert refused.value.code is ErrorCode.POLICY_VIOLATION


# ------------------------------------------------------------------------------------------------- deleting


def delete(cluster: Cluster, *topics: tuple[str | None, Uuid]) -> list[DeletableTopicResult]:
    reply = cluster.ask(
        DeleteTopicsRequest(
            topics=[DeleteTopicState(name=name, topic_id=topic_id) for name, topic_id in topics], timeout_ms=0
        )
    )
    assert isinstance(reply, DeleteTopicsResponse)
    return reply.responses


def test_topics_are_deleted_by_name_and_by_id(cluster: Cluster) -> None:
    cluster.create_on("a", [1])
    cluster.create_on("b", [1])
    cluster.create_on("c", [1])
    cluster.alter(ResourceType.TOPIC, "a", ("retention.ms", 0, "5"))
    results = delete(cluster, ("a", ZERO_UUID), (None, cluster.topic("b").id))
    assert [(each.name, each.error_code) for each in results] == [("a", 0), ("b", 0)]
    assert list(cluster.image.topics) == list(cluster.image.topic_names.values()) == ["c"]
    assert topic_resource(TopicName("a")) not in cluster.image.configs


def test_old_clients_delete_by_name(cluster: Cluster) -> None:
    cluster.create_on("a", [1])
    reply = cluster.ask(DeleteTopicsRequest(topic_names=["a", "b"], timeout_ms=0))
    assert isinstance(reply, DeleteTopicsResponse)
    assert [each.error_code for each in reply.responses] == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


def test_a_topic_created_anew_has_another_id(cluster: Cluster) -> None:
    cluster.create_on("a", [1])
    before = cluster.topic("a").id
    delete(cluster, ("a", ZERO_UUID))
    cluster.create_on("a", [1])
    assert cluster.topic("a").id != before


def test_what_cannot_be_deleted_is_told_one_by_one(cluster: Cluster) -> None:
    cluster.create_on("a", [1])
    topic_id = cluster.topic("a").id
    unknown = Uuid(b"u" * 16)
    cases: list[tuple[list[tuple[str | None, Uuid]], list[ErrorCode]]] = [
        ([("b", ZERO_UUID)], [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]),
        ([(None, unknown)], [ErrorCode.UNKNOWN_TOPIC_ID]),
        ([(None, ZERO_UUID)], [ErrorCode.INVALID_REQUEST]),
        ([("a", topic_id)], [ErrorCode.INVALID_REQUEST]),
        ([("a", ZERO_UUID), ("a", ZERO_UUID)], [ErrorCode.INVALID_REQUEST]),
        ([(None, topic_id), (None, topic_id)], [ErrorCode.INVALID_REQUEST]),
    ]
    for asked, expected in cases:
        assert [each.error_code for each in delete(cluster, *asked)] == expected, asked
    assert list(cluster.image.topics) == ["a"]
    # By name and by id at once it is deleted once.
    codes = [each.error_code for each in delete(cluster, (None, topic_id), ("a", ZERO_UUID))]
    assert codes == [ErrorCode.NONE, ErrorCode.INVALID_REQUEST]
    assert len(cluster.image.topics) == 0


def test_deleting_can_be_switched_off() -> None:
    cluster = Cluster(static={"delete.topic.enable": "false"})
    with pytest.raises(KafkaError) as refused:
        delete(cluster, ("a", ZERO_UUID))
    assert refused.value.code is ErrorCode.TOPIC_DELETION_DISABLED


# ----------------------------------------------------------------------------------------- more partitions


def grow(
    cluster: Cluster,
    name: str,
    count: int,
    assignments: list[list[int]] | None = None,
    *,
    validate_only: bool = False,
) -> CreatePartitionsTopicResult:
    by_hand = None
    if assignments is not None:
        by_hand = [CreatePartitionsAssignment(broker_ids=each) for each in assignments]
    reply = cluster.ask(
        CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name=name, count=count, assignments=by_hand)],
            timeout_ms=0,
            validate_only=validate_only,
        )
    )
    assert isinstance(reply, CreatePartitionsResponse)
    (result,) = reply.results
    return result


def test_new_partitions_have_the_replication_factor_of_the_old(cluster: Cluster) -> None:
    cluster.create_on("a", [1, 2])
    assert grow(cluster, "a", 5, validate_only=True).error_code == 0
    assert len(cluster.topic("a").partitions) == 1
    assert grow(cluster, "a", 3).error_code == 0
    assert grow(cluster, "a", 5, [[3, 1], [1, 3]]).error_code == 0
    replicas = [each.replicas for each in cluster.topic("a").partitions]
    assert [len(each) for each in replicas] == [2] * 5
    assert replicas[3:] == [(3, 1), (1, 3)]


@pytest.mark.parametrize(
    ("name", "count", "assignments", "code", "message"),
    [
        ("b", 2, None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "'b'"),
        ("a", 1, None, ErrorCode.INVALID_PARTITIONS, "1 would not be an increase"),
        ("a", 0, None, ErrorCode.INVALID_PARTITIONS, "0 would not be an increase"),
        (
            "a",
            3,
            [[1, 2]],
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "2 partitions are added, and 1 are assigned",
        ),
        ("a", 2, [[1]], ErrorCode.INVALID_REPLICA_ASSIGNMENT, "partition 1 has 1 replicas"),
        ("a", 2, [[1, 9]], ErrorCode.INVALID_REPLICA_ASSIGNMENT, "no broker 9"),
        ("a", 2, [[4, 4]], ErrorCode.INVALID_REPLICA_ASSIGNMENT, "named twice"),
    ],
)
def test_a_topic_does_not_grow_like_this(
    name: str,
    count: int,
    assignments: list[list[int]] | None,
    code: ErrorCode,
    message: str,
    cluster: Cluster,
) -> None:
    cluster.create_on("a", [1, 2])
    result = grow(cluster, name, count, assignments)
    assert result.error_code == code
    assert result.error_message is not None
    assert message in result.error_message
    assert len(cluster.topic("a").partitions) == 1


def test_a_topic_named_twice_does_not_grow_and_has_one_result(cluster: Cluster) -> None:
    cluster.create_on("a", [1])
    cluster.create_on("b", [1])
    asked = [CreatePartitionsTopic(name=name, count=2, assignments=None) for name in ("a", "b", "a")]
    reply = cluster.ask(CreatePartitionsRequest(topics=asked, timeout_ms=0, validate_only=False))
    assert isinstance(reply, CreatePartitionsResponse)
    assert [(each.name, each.error_code) for each in reply.results] == [
        ("a", ErrorCode.INVALID_REQUEST),
        ("b", 0),
    ]
    assert len(cluster.topic("a").partitions) == 1
