"""What administrators' tools depend on: settings described and changed, and topics made and unmade."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import pytest
from node.broker import TOPIC, Broker, OtherBroker, answer

from moldau.log import checkpoints
from moldau.model.errors import ErrorCode
from moldau.model.ids import ZERO_UUID, PartitionIndex, TopicName, TopicPartition
from moldau.model.settings.resolve import SETTINGS
from moldau.model.settings.setting import Scope
from moldau.wire.messages.configs import (
    AlterConfigsAlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from moldau.wire.messages.metadata import MetadataRequest, MetadataResponse
from moldau.wire.messages.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)

# Kinds of resources.
TOPICS, BROKERS, BROKER_LOGGERS, CLIENT_METRICS, GROUPS = 2, 4, 8, 16, 32
THIS_BROKER, ALL_BROKERS = "1", ""
# What is done with a setting.
SET, DELETE, APPEND, SUBTRACT = range(4)
# Where values come from.
OF_TOPIC, OF_BROKER, OF_CLUSTER, OF_FILE, OF_DEFAULT, OF_GROUP = 1, 2, 3, 4, 5, 8
# Types of settings.
BOOLEAN, INT, LONG, LIST, PASSWORD = 1, 3, 5, 7, 9


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


# ---------------------------------------------------------------- describing settings


def describe_all(
    broker: Broker, *asked: DescribeConfigsResource, with_more: bool = True, version: int = 4
) -> list[DescribeConfigsResult]:
    """What is said of several resources, with synonyms and documentation if `with_more`."""
    request = DescribeConfigsRequest(
        resources=[*asked],
        include_synonyms=with_more,
        include_documentation=with_more if version >= 3 else False,
    )
    return answer(broker.ask(request, version), DescribeConfigsResponse).results


def describe(
    broker: Broker,
    kind: int,
    name: str,
    *keys: str,
    with_more: bool = True,
    version: int = 4,
) -> dict[str, DescribeConfigsResourceResult]:
    """The settings of one resource, all of them if no keys are given."""
    asked = DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=[*keys] if keys else None
    )
    (result,) = describe_all(broker, asked, with_more=with_more, version=version)
    assert result.error_code == ErrorCode.NONE, (ErrorCode(result.error_code), result.error_message)
    assert (result.resource_type, result.resource_name) == (kind, name)
    return {config.name: config for config in result.configs}


def value(broker: Broker, name: str, *, kind: int = TOPICS, of: str = TOPIC) -> tuple[str | None, int]:
    """The value of one setting, and where it comes from."""
    config = describe(broker, kind, of, name)[name]
    return config.value, config.config_source


@pytest.mark.behaviour(80)
@pytest.mark.parametrize(
    ("kind", "name", "scope"),
    [
        (TOPICS, TOPIC, Scope.TOPIC),
        (BROKERS, THIS_BROKER, Scope.BROKER),
        (GROUPS, "any group", Scope.GROUP),
    ],
)
@pytest.mark.parametrize("version", [1, 3, 4])
def test_every_setting_is_described_with_its_source_and_type(
    broker: Broker, kind: int, name: str, scope: Scope, version: int
) -> None:
    broker.create_topic()
    found = describe(broker, kind, name, version=version)
    public = {each for each in SETTINGS[scope] if not each.startswith("internal.")}
    assert set(found) == public
    for config in found.values():
        setting = SETTINGS[scope][config.name]
        assert config.config_source in (OF_CLUSTER, OF_FILE, OF_DEFAULT)
        assert config.synonyms or config.value is None, config.name
        assert config.is_sensitive == setting.is_sensitive
        if version >= 3:
            assert config.config_type == setting.type.code
            assert config.documentation == setting.doc


@pytest.mark.behaviour(80)
def test_a_setting_comes_with_all_values_that_it_has_or_would_have() -> None:
    with Broker({"log.retention.ms": "4000"}) as broker:
        broker.create_topic(settings={"retention.ms": "1000"})
        assert broker.alter(BROKERS, ALL_BROKERS, ("log.retention.ms", SET, "3000")) == ErrorCode.NONE
        assert broker.alter(BROKERS, THIS_BROKER, ("log.retention.ms", SET, "2000")) == ErrorCode.NONE
        found = describe(broker, TOPICS, TOPIC, "retention.ms")["retention.ms"]
        assert (found.value, found.config_source, found.config_type) == ("1000", OF_TOPIC, LONG)
        *set_by_somebody, default = found.synonyms
        assert [(each.name, each.value, each.source) for each in set_by_somebody] == [
            ("retention.ms", "1000", OF_TOPIC),
            ("log.retention.ms", "2000", OF_BROKER),
            ("log.retention.ms", "3000", OF_CLUSTER),
            ("log.retention.ms", "4000", OF_FILE),
        ]
        assert (default.name, default.source) == ("log.retention.hours", OF_DEFAULT)
        # Each that is taken away lets the next one hold.
        assert broker.alter(TOPICS, TOPIC, ("retention.ms", DELETE, None)) == ErrorCode.NONE
        assert value(broker, "retention.ms") == ("2000", OF_BROKER)
        assert broker.alter(BROKERS, THIS_BROKER, ("log.retention.ms", DELETE, None)) == ErrorCode.NONE
        assert value(broker, "retention.ms") == ("3000", OF_CLUSTER)
        assert broker.alter(BROKERS, ALL_BROKERS, ("log.retention.ms", DELETE, None)) == ErrorCode.NONE
        assert value(broker, "retention.ms") == ("4000", OF_FILE)


@pytest.mark.behaviour(80)
def test_which_settings_are_read_only_or_secret_and_of_what_type(broker: Broker) -> None:
    secret = {"ssl.keystore.password": "hidden"}
    broker.restart(secret)
    broker.create_topic()
    of_broker = describe(broker, BROKERS, THIS_BROKER)
    password = of_broker["ssl.keystore.password"]
    assert (password.is_sensitive, password.value, password.config_type) == (True, None, PASSWORD)
    assert [each.value for each in password.synonyms] == [None] * len(password.synonyms)
    for name, is_read_only, kind in [
        ("node.id", True, INT),
        ("num.partitions", True, INT),
        ("auto.create.topics.enable", True, BOOLEAN),
        ("log.retention.ms", False, LONG),
        ("log.cleanup.policy", False, LIST),
    ]:
        assert (of_broker[name].read_only, of_broker[name].config_type) == (is_read_only, kind), name
    assert of_broker["node.id"].config_source == OF_FILE
    assert not any(config.read_only for config in describe(broker, TOPICS, TOPIC).values())


@pytest.mark.behaviour(80)
def test_only_what_is_asked_for_is_described(broker: Broker) -> None:
    broker.create_topic()
    found = describe(broker, TOPICS, TOPIC, "retention.ms", "segment.ms", "no.such.setting", with_more=False)
    assert set(found) == {"retention.ms", "segment.ms"}
    assert all(not config.synonyms and config.documentation is None for config in found.values())


@pytest.mark.behaviour(80)
def test_each_resource_that_cannot_be_described_has_an_error_of_its_own(broker: Broker) -> None:
    broker.create_topic()
    asked = [
        (TOPICS, "missing", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPICS, "not a name", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (BROKERS, "7", ErrorCode.INVALID_REQUEST),
        (BROKER_LOGGERS, THIS_BROKER, ErrorCode.INVALID_REQUEST),
        (CLIENT_METRICS, "subscription", ErrorCode.INVALID_REQUEST),
        (GROUPS, "", ErrorCode.INVALID_REQUEST),
        (TOPICS, TOPIC, ErrorCode.NONE),
    ]
    results = describe_all(
        broker,
        *(
            DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
            for kind, name, _ in asked
        ),
    )
    assert [(each.resource_type, each.resource_name, ErrorCode(each.error_code)) for each in results] == asked
    assert [bool(each.configs) for each in results] == [code is ErrorCode.NONE for _, _, code in asked]
    assert all(each.error_message for each in results[:-1])


# ---------------------------------------------------------------- changing settings


@pytest.mark.behaviour(80)
def test_all_four_operations_change_a_setting_and_leave_the_others(broker: Broker) -> None:
    broker.create_topic(settings={"segment.ms": "5000"})
    policy = "cleanup.policy"

    def after(operation: int, text: str | None) -> tuple[str | None, int]:
        assert broker.alter(TOPICS, TOPIC, (policy, operation, text)) == ErrorCode.NONE
        assert value(broker, "segment.ms") == ("5000", OF_TOPIC)
        return value(broker, policy)

    assert value(broker, policy) == ("delete", OF_DEFAULT)
    # Something is appended to what holds, even if nobody has set it.
    assert after(APPEND, "compact") == ("delete,compact", OF_TOPIC)
    assert after(APPEND, "compact") == ("delete,compact", OF_TOPIC)
    assert after(SUBTRACT, "delete") == ("compact", OF_TOPIC)
    assert after(SUBTRACT, "delete") == ("compact", OF_TOPIC)
    assert after(SET, "delete") == ("delete", OF_TOPIC)
    assert after(DELETE, None) == ("delete", OF_DEFAULT)
    assert after(DELETE, None) == ("delete", OF_DEFAULT)


@pytest.mark.behaviour(80)
@pytest.mark.parametrize(
    ("change", "code"),
    [
        (("retention.ms", SET, "soon"), ErrorCode.INVALID_CONFIG),
        (("retention.ms", SET, "-2"), ErrorCode.INVALID_CONFIG),
        (("no.such.setting", SET, "1"), ErrorCode.INVALID_CONFIG),
        (("no.such.setting", DELETE, None), ErrorCode.INVALID_CONFIG),
        (("retention.ms", APPEND, "1"), ErrorCode.INVALID_CONFIG),
        (("retention.ms", SUBTRACT, "1"), ErrorCode.INVALID_CONFIG),
        (("cleanup.policy", APPEND, "forget"), ErrorCode.INVALID_CONFIG),
        (("retention.ms", SET, None), ErrorCode.INVALID_REQUEST),
        (("retention.ms", 4, "1"), ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_change_that_makes_no_sense_changes_nothing(
    broker: Broker, change: tuple[str, int, str | None], code: ErrorCode
) -> None:
    broker.create_topic()
    before = describe(broker, TOPICS, TOPIC)
    assert broker.alter(TOPICS, TOPIC, ("segment.ms", SET, "5000"), change) == code
    assert describe(broker, TOPICS, TOPIC) == before


@pytest.mark.behaviour(80)
def test_a_change_can_be_tried(broker: Broker) -> None:
    broker.create_topic()
    tried = ("retention.ms", SET, "5000")
    assert broker.alter(TOPICS, TOPIC, tried, validate_only=True) == ErrorCode.NONE
    assert value(broker, "retention.ms") == ("604800000", OF_DEFAULT)
    wrong = ("retention.ms", SET, "soon")
    assert broker.alter(TOPICS, TOPIC, wrong, validate_only=True) == ErrorCode.INVALID_CONFIG


@pytest.mark.behaviour(80)
def test_the_broker_without_a_name_is_the_default_of_all(broker: Broker) -> None:
    change = ("log.segment.bytes", SET, "2097152")
    assert broker.alter(BROKERS, ALL_BROKERS, change) == ErrorCode.NONE
    # Only what was set for all is described there, which the cluster did with one setting when it began.
    assert set(describe(broker, BROKERS, ALL_BROKERS)) == {"log.segment.bytes", "min.insync.replicas"}
    assert value(broker, "log.segment.bytes", kind=BROKERS, of=THIS_BROKER) == ("2097152", OF_CLUSTER)
    broker.create_topic()
    assert value(broker, "segment.bytes") == ("2097152", OF_CLUSTER)
    # What a broker reads only from its file cannot be changed.
    for name in (ALL_BROKERS, THIS_BROKER):
        assert broker.alter(BROKERS, name, ("num.partitions", SET, "3")) == ErrorCode.INVALID_REQUEST
    assert broker.alter(BROKERS, "7", change) == ErrorCode.BROKER_ID_NOT_REGISTERED


@pytest.mark.behaviour(80)
def test_a_group_has_settings_before_it_has_members(broker: Broker) -> None:
    change = ("consumer.session.timeout.ms", SET, "50000")
    assert broker.alter(GROUPS, "g", change) == ErrorCode.NONE
    assert value(broker, "consumer.session.timeout.ms", kind=GROUPS, of="g") == ("50000", OF_GROUP)
    assert value(broker, "consumer.session.timeout.ms", kind=GROUPS, of="h") == ("45000", OF_DEFAULT)


def replace(broker: Broker, settings: Mapping[str, str], *, validate_only: bool = False) -> ErrorCode:
    """Give a topic these settings and no others, in the older way."""
    asked = AlterConfigsResource(
        resource_type=TOPICS,
        resource_name=TOPIC,
        configs=[AlterConfigsAlterableConfig(name=name, value=text) for name, text in settings.items()],
    )
    request = AlterConfigsRequest(resources=[asked], validate_only=validate_only)
    return ErrorCode(answer(broker.ask(request), AlterConfigsResponse).responses[0].error_code)


@pytest.mark.behaviour(80)
def test_the_older_way_to_change_settings_replaces_all_of_them(broker: Broker) -> None:
    broker.create_topic(settings={"segment.ms": "5000", "retention.ms": "6000"})
    assert replace(broker, {"retention.ms": "7000"}, validate_only=True) == ErrorCode.NONE
    assert value(broker, "segment.ms") == ("5000", OF_TOPIC)
    assert replace(broker, {"retention.ms": "soon"}) == ErrorCode.INVALID_CONFIG
    assert value(broker, "segment.ms") == ("5000", OF_TOPIC)
    assert replace(broker, {"retention.ms": "7000"}) == ErrorCode.NONE
    assert value(broker, "retention.ms") == ("7000", OF_TOPIC)
    assert value(broker, "segment.ms") == ("604800000", OF_DEFAULT)


@pytest.mark.behaviour(80)
@pytest.mark.parametrize("restart", [Broker.restart, Broker.crash])
def test_changed_settings_outlive_the_broker(broker: Broker, restart: Callable[[Broker], None]) -> None:
    broker.create_topic(settings={"segment.ms": "5000"})
    assert broker.alter(TOPICS, TOPIC, ("retention.ms", SET, "6000")) == ErrorCode.NONE
    assert broker.alter(BROKERS, ALL_BROKERS, ("log.segment.bytes", SET, "2097152")) == ErrorCode.NONE
    restart(broker)
    assert value(broker, "segment.ms") == ("5000", OF_TOPIC)
    assert value(broker, "retention.ms") == ("6000", OF_TOPIC)
    assert value(broker, "segment.bytes") == ("2097152", OF_CLUSTER)
    assert broker.log().config.segment_bytes == 2 << 20


# ---------------------------------------------------------------- creating topics


def topic(
    name: str = TOPIC,
    *,
    partitions: int = 1,
    factor: int = 1,
    settings: Mapping[str, str | None] | None = None,
    replicas: list[list[int]] | None = None,
) -> CreatableTopic:
    """A topic to create; `replicas` are the brokers of each partition, placed by hand."""
    return CreatableTopic(
        name=name,
        num_partitions=partitions if replicas is None else -1,
        replication_factor=factor if replicas is None else -1,
        assignments=[
            CreatableReplicaAssignment(partition_index=at, broker_ids=ids)
            for at, ids in enumerate(replicas or [])
        ],
        configs=[CreatableTopicConfig(name=key, value=text) for key, text in (settings or {}).items()],
    )


def create(
    broker: Broker, *topics: CreatableTopic, version: int = 7, validate_only: bool = False
) -> dict[str, CreatableTopicResult]:
    """What came of each topic."""
    request = CreateTopicsRequest(topics=[*topics], timeout_ms=10_000, validate_only=validate_only)
    response = answer(broker.ask(request, version), CreateTopicsResponse)
    return {result.name: result for result in response.topics}


def names(broker: Broker) -> list[str | None]:
    """All topics that Metadata knows."""
    return [
        each.name for each in answer(broker.ask(MetadataRequest(topics=None), 12), MetadataResponse).topics
    ]


@pytest.mark.behaviour(81)
@pytest.mark.honours("num.partitions", "default.replication.factor")
@pytest.mark.parametrize("version", [4, 5, 7])
def test_minus_one_stands_for_the_defaults_of_the_cluster(version: int) -> None:
    with Broker({"num.partitions": "3", "default.replication.factor": "2"}) as broker:
        OtherBroker(broker).heartbeat()
        result = create(broker, topic(partitions=-1, factor=-1), version=version)[TOPIC]
        assert result.error_code == ErrorCode.NONE
        made = broker.topic()
        assert [len(each.replica_nodes) for each in made.partitions] == [2, 2, 2]
        if version >= 5:
            assert (result.num_partitions, result.replication_factor) == (3, 2)


@pytest.mark.behaviour(81)
def test_the_reply_to_a_creation_tells_the_topic_as_it_is(broker: Broker) -> None:
    asked = topic(partitions=2, settings={"retention.ms": "5000"})
    result = create(broker, asked)[TOPIC]
    assert result.topic_id == broker.topic().topic_id
    assert (result.num_partitions, result.replication_factor) == (2, 1)
    told = {config.name: (config.value, config.config_source) for config in result.configs or []}
    assert told["retention.ms"] == ("5000", OF_TOPIC)
    for config in describe(broker, TOPICS, TOPIC).values():
        assert told[config.name] == (config.value, config.config_source)
    # Older clients are told less.
    older = create(broker, topic("older"), version=4)["older"]
    assert (older.num_partitions, older.replication_factor, older.configs) == (-1, -1, [])


@pytest.mark.behaviour(81)
def test_metadata_shows_a_topic_with_its_leaders_as_soon_as_it_is_created(broker: Broker) -> None:
    for number in range(5):
        name = f"topic-{number}"
        assert create(broker, topic(name, partitions=3))[name].error_code == ErrorCode.NONE
        shown = broker.topic(name)
        assert shown.error_code == ErrorCode.NONE
        assert [(each.error_code, each.leader_id) for each in shown.partitions] == [(0, 1)] * 3
        assert broker.append([b"x"], name, partition=2) == 0
        assert broker.delete_topic(name) == ErrorCode.NONE
        assert broker.topic(name).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.behaviour(81)
def test_each_topic_that_cannot_be_created_has_an_error_of_its_own(broker: Broker) -> None:
    broker.create_topic("exists")
    broker.create_topic("with.a.dot")
    expected = {
        "exists": (topic("exists"), ErrorCode.TOPIC_ALREADY_EXISTS),
        "with_a_dot": (topic("with_a_dot"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        "a b": (topic("a b"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        "": (topic(""), ErrorCode.INVALID_TOPIC_EXCEPTION),
        "none": (topic("none", partitions=0), ErrorCode.INVALID_PARTITIONS),
        "fewer": (topic("fewer", partitions=-2), ErrorCode.INVALID_PARTITIONS),
        "unplaced": (topic("unplaced", factor=0), ErrorCode.INVALID_REPLICATION_FACTOR),
        "too-wide": (topic("too-wide", factor=2), ErrorCode.INVALID_REPLICATION_FACTOR),
        "elsewhere": (topic("elsewhere", replicas=[[7]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        "doubled": (topic("doubled", replicas=[[1, 1]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        "soon": (topic("soon", settings={"retention.ms": "soon"}), ErrorCode.INVALID_CONFIG),
        "unknown": (topic("unknown", settings={"no.such": "1"}), ErrorCode.INVALID_CONFIG),
        "unset": (topic("unset", settings={"retention.ms": None}), ErrorCode.INVALID_CONFIG),
        "fine": (topic("fine", replicas=[[1], [1]]), ErrorCode.NONE),
    }
    results = create(broker, *(asked for asked, _ in expected.values()))
    assert {name: ErrorCode(result.error_code) for name, result in results.items()} == {
        name: code for name, (_, code) in expected.items()
    }
    assert all(result.error_message for name, result in results.items() if name != "fine")
    assert names(broker) == ["exists", "fine", "with.a.dot"]


@pytest.mark.behaviour(81)
def test_a_topic_that_is_named_twice_is_not_created(broker: Broker) -> None:
    results = create(broker, topic("twice"), topic("twice"), topic("once"))
    assert {name: ErrorCode(result.error_code) for name, result in results.items()} == {
        "twice": ErrorCode.INVALID_REQUEST,
        "once": ErrorCode.NONE,
    }
    assert names(broker) == ["once"]


@pytest.mark.behaviour(81)
def test_a_creation_can_be_tried(broker: Broker) -> None:
    tried = create(broker, topic("new", partitions=2), topic("wrong", partitions=0), validate_only=True)
    assert (tried["new"].error_code, tried["new"].num_partitions) == (ErrorCode.NONE, 2)
    assert ErrorCode(tried["wrong"].error_code) is ErrorCode.INVALID_PARTITIONS
    assert names(broker) == []
    assert create(broker, topic("new"))["new"].error_code == ErrorCode.NONE


# ---------------------------------------------------------------- more partitions


def grow(
    broker: Broker, *topics: tuple[str, int, list[list[int]] | None], validate_only: bool = False
) -> list[tuple[str, ErrorCode]]:
    """Ask for more partitions, each topic as (name, count, replicas of the new ones)."""
    request = CreatePartitionsRequest(
        topics=[
            CreatePartitionsTopic(
                name=name,
                count=count,
                assignments=None
                if replicas is None
                else [CreatePartitionsAssignment(broker_ids=ids) for ids in replicas],
            )
            for name, count, replicas in topics
        ],
        timeout_ms=10_000,
        validate_only=validate_only,
    )
    results = answer(broker.ask(request), CreatePartitionsResponse).results
    return [(result.name, ErrorCode(result.error_code)) for result in results]


@pytest.mark.behaviour(81)
def test_every_topic_that_is_to_grow_has_one_result(broker: Broker) -> None:
    for name in ("grows", "placed", "same", "shrinks", "misplaced"):
        broker.create_topic(name, partitions=2)
    asked = [
        ("grows", 5, None, ErrorCode.NONE),
        ("placed", 3, [[1]], ErrorCode.NONE),
        ("same", 2, None, ErrorCode.INVALID_PARTITIONS),
        ("shrinks", 1, None, ErrorCode.INVALID_PARTITIONS),
        ("misplaced", 3, [[7]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("missing", 3, None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    wanted = [(name, count, replicas) for name, count, replicas, _ in asked]
    expected = [(name, code) for name, _, _, code in asked]
    assert grow(broker, *wanted, validate_only=True) == expected
    assert len(broker.topic("grows").partitions) == 2
    assert grow(broker, *wanted) == expected
    counts = {name: len(broker.topic(name).partitions) for name, *_ in asked[:-1]}
    assert counts == {"grows": 5, "placed": 3, "same": 2, "shrinks": 2, "misplaced": 2}
    # They are there at once.
    assert broker.append([b"x"], "grows", partition=4) == 0


# ---------------------------------------------------------------- deleting topics


@pytest.mark.behaviour(81)
def test_topics_are_deleted_by_name_and_by_id_and_each_has_a_result(broker: Broker) -> None:
    broker.create_topic("by-name")
    topic_id = broker.create_topic("by-id")
    request = DeleteTopicsRequest(
        topics=[
            DeleteTopicState(name="by-name", topic_id=ZERO_UUID),
            DeleteTopicState(name=None, topic_id=topic_id),
            DeleteTopicState(name="missing", topic_id=ZERO_UUID),
        ],
        timeout_ms=10_000,
    )
    results = answer(broker.ask(request, 6), DeleteTopicsResponse).responses
    assert [(each.name, ErrorCode(each.error_code)) for each in results] == [
        ("by-name", ErrorCode.NONE),
        ("by-id", ErrorCode.NONE),
        ("missing", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    assert names(broker) == []


@pytest.mark.honours("delete.topic.enable")
def test_topics_are_deleted_only_where_that_is_allowed() -> None:
    with Broker({"delete.topic.enable": "false"}) as broker:
        broker.create_topic()
        assert broker.delete_topic() == ErrorCode.TOPIC_DELETION_DISABLED
        assert names(broker) == [TOPIC]
        broker.restart({"delete.topic.enable": "true"})
        assert broker.delete_topic() == ErrorCode.NONE
        assert names(broker) == []


# ---------------------------------------------------------------- what else settings change


@pytest.mark.honours("unclean.leader.election.enable")
@pytest.mark.parametrize("is_allowed", [True, False])
def test_a_replica_that_may_lack_records_leads_only_where_that_is_allowed(
    broker: Broker, is_allowed: bool
) -> None:
    OtherBroker(broker).heartbeat()
    settings = {"unclean.leader.election.enable": str(is_allowed).lower()}
    broker.create_topic(brokers=[1, 2], settings=settings)
    # It hands its partition over to the other broker, which is never heard of again.
    broker.restart()
    assert broker.topic().partitions[0].isr_nodes == [2]
    broker.run_for(20_000)
    (partition,) = broker.topic().partitions
    assert partition.leader_id == (1 if is_allowed else -1)
    assert (1 in partition.isr_nodes) == is_allowed


@pytest.mark.honours("replica.high.watermark.checkpoint.interval.ms")
@pytest.mark.parametrize("interval_ms", [2_000, 20_000])
def test_how_often_high_watermarks_are_written_down(interval_ms: int) -> None:
    with Broker({"replica.high.watermark.checkpoint.interval.ms": str(interval_ms)}) as broker:
        broker.create_topic()
        at = TopicPartition(TopicName(TOPIC), PartitionIndex(0))
        disk = broker.log().disk
        broker.append([b"x", b"y"])
        broker.run_until(lambda: checkpoints.read_offsets(disk, checkpoints.HIGH_WATERMARKS).get(at) == 2)
        assert interval_ms <= broker.now_ms < interval_ms + 500
