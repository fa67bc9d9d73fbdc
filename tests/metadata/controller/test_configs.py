import pytest
from metadata.cluster import Cluster

from moldau.metadata.image import ALL_BROKERS, Resource, ResourceType
from moldau.model.errors import ErrorCode
from moldau.wire.messages.configs import (
    AlterConfigsAlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResponse,
    IncrementalAlterConfigsAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
)

SET, DELETE, APPEND, SUBTRACT = range(4)
TOPIC, BROKER, GROUP = ResourceType.TOPIC, ResourceType.BROKER, ResourceType.GROUP


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster()
    cluster.start(1, 2)
    cluster.create_on("orders", [1, 2])
    return cluster


def texts(cluster: Cluster, kind: ResourceType, name: str) -> dict[str, str]:
    return dict(cluster.image.texts(Resource(kind, name)))


def test_a_setting_is_set_changed_and_taken_away(cluster: Cluster) -> None:
    assert cluster.alter(TOPIC, "orders", ("retention.ms", SET, "5")) == (0, None)
    assert cluster.alter(TOPIC, "orders", ("retention.bytes", SET, "7"), ("retention.ms", SET, "6")) == (
        0,
        None,
    )
    assert texts(cluster, TOPIC, "orders") == {"retention.ms": "6", "retention.bytes": "7"}
    assert cluster.alter(TOPIC, "orders", ("retention.ms", DELETE, None)) == (0, None)
    assert texts(cluster, TOPIC, "orders") == {"retention.bytes": "7"}


@pytest.mark.parametrize(
    ("operations", "expected"),
    [
        # The default is there before anything is appended to it.
        ([(APPEND, "compact")], "delete,compact"),
        ([(SET, "compact"), (APPEND, "delete")], "compact,delete"),
        ([(SET, "compact"), (APPEND, "compact")], "compact"),
        ([(SET, "compact,delete"), (SUBTRACT, "delete")], "compact"),
        ([(SET, "compact"), (SUBTRACT, "delete")], "compact"),
        ([(APPEND, "compact"), (SUBTRACT, "delete,compact")], ""),
    ],
)
def test_lists_are_appended_to_and_subtracted_from(
    operations: list[tuple[int, str]], expected: str, cluster: Cluster
) -> None:
    for operation, text in operations:
        assert cluster.alter(TOPIC, "orders", ("cleanup.policy", operation, text)) == (0, None)
    assert texts(cluster, TOPIC, "orders")["cleanup.policy"] == expected


def test_what_stays_the_same_is_not_written_again(cluster: Cluster) -> None:
    cluster.alter(TOPIC, "orders", ("retention.ms", SET, "5"))
    end = cluster.next_offset
    cluster.alter(TOPIC, "orders", ("retention.ms", SET, "5"), ("retention.bytes", DELETE, None))
    assert cluster.next_offset == end


REFUSED: dict[str, tuple[ResourceType | int, str, tuple[str, int, str | None], ErrorCode, str]] = {
    "an unknown topic": (
        TOPIC,
        "nil",
        ("retention.ms", SET, "5"),
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "'nil'",
    ),
    "an impossible topic": (
        TOPIC,
        "a/b",
        ("retention.ms", SET, "5"),
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        "'a/b'",
    ),
    "all topics": (TOPIC, "", ("retention.ms", SET, "5"), ErrorCode.INVALID_REQUEST, "all topics"),
    "an unknown setting": (
        TOPIC,
        "orders",
        ("retention.mss", SET, "5"),
        ErrorCode.INVALID_CONFIG,
        "Did you mean retention.ms",
    ),
    "taking away an unknown setting": (
        TOPIC,
        "orders",
        ("retention.mss", DELETE, None),
        ErrorCode.INVALID_CONFIG,
        "Did you mean retention.ms",
    ),
    "an impossible value": (
        TOPIC,
        "orders",
        ("retention.ms", SET, "-5"),
        ErrorCode.INVALID_CONFIG,
        "'-5' for retention.ms",
    ),
    "no value": (TOPIC, "orders", ("retention.ms", SET, None), ErrorCode.INVALID_REQUEST, "no value"),
    "appending to a number": (
        TOPIC,
        "orders",
        ("retention.ms", APPEND, "5"),
        ErrorCode.INVALID_CONFIG,
        "list",
    ),
    "an unknown operation": (
        TOPIC,
        "orders",
        ("retention.ms", 9, "5"),
        ErrorCode.INVALID_REQUEST,
        "operation 9",
    ),
    "a broker that is no number": (
        BROKER,
        "one",
        ("log.retention.ms", SET, "5"),
        ErrorCode.INVALID_REQUEST,
        "'one'",
    ),
    "a broker that is not there": (
        BROKER,
        "9",
        ("log.retention.ms", SET, "5"),
        ErrorCode.BROKER_ID_NOT_REGISTERED,
        "node 9",
    ),
    "a broker's unknown setting": (
        BROKER,
        "",
        ("log.retention.mss", SET, "5"),
        ErrorCode.INVALID_CONFIG,
        "Did you mean log.retention.ms",
    ),
    "a broker's read-only setting": (
        BROKER,
        "1",
        ("log.retention.hours", SET, "5"),
        ErrorCode.INVALID_REQUEST,
        "read-only",
    ),
    "a broker's impossible value": (
        BROKER,
        "",
        ("log.segment.bytes", SET, "much"),
        ErrorCode.INVALID_REQUEST,
        "'much' for log.segment.bytes",
    ),
    "min.insync.replicas of one broker": (
        BROKER,
        "1",
        ("min.insync.replicas", SET, "2"),
        ErrorCode.INVALID_CONFIG,
        "cannot differ",
    ),
    "taking away everybody's min.insync.replicas": (
        BROKER,
        "",
        ("min.insync.replicas", DELETE, None),
        ErrorCode.INVALID_CONFIG,
        "cannot be taken away",
    ),
    "a group without a name": (
        GROUP,
        "",
        ("consumer.session.timeout.ms", SET, "50000"),
        ErrorCode.INVALID_REQUEST,
        "",
    ),
    "a group's unknown setting": (GROUP, "g", ("session", SET, "5"), ErrorCode.INVALID_CONFIG, "'session'"),
    "a logger": (
        ResourceType.BROKER_LOGGER,
        "1",
        ("x", SET, "INFO"),
        ErrorCode.INVALID_REQUEST,
        "broker_logger",
    ),
    "a resource of no known type": (99, "x", ("y", SET, "z"), ErrorCode.INVALID_REQUEST, "99"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_change_is_refused_with_what_was_wrong(what: str, cluster: Cluster) -> None:
    kind, name, change, code, message = REFUSED[what]
    end = cluster.next_offset
    found, text = cluster.alter(kind, name, change)
    assert found == code
    assert text is not None
    assert message in text
    assert cluster.next_offset == end


def test_settings_of_one_broker_of_all_brokers_and_of_a_group(cluster: Cluster) -> None:
    assert cluster.alter(BROKER, "2", ("log.retention.ms", SET, "5")) == (0, None)
    assert cluster.alter(BROKER, "", ("log.retention.ms", SET, "6")) == (0, None)
    assert cluster.alter(GROUP, "readers", ("consumer.session.timeout.ms", SET, "50000")) == (0, None)
    assert texts(cluster, BROKER, "2") == {"log.retention.ms": "5"}
    assert texts(cluster, BROKER, "")["log.retention.ms"] == "6"
    assert texts(cluster, GROUP, "readers") == {"consumer.session.timeout.ms": "50000"}


def test_brokers_cannot_be_given_what_topics_could_not_fall_back_to(cluster: Cluster) -> None:
    assert cluster.alter(BROKER, "", ("log.cleaner.max.compaction.lag.ms", SET, "8")) == (0, None)
    code, message = cluster.alter(BROKER, "", ("log.cleaner.min.compaction.lag.ms", SET, "9"))
    assert code == ErrorCode.INVALID_REQUEST
    assert message is not None
    assert "must not exceed" in message
    cluster.create_on("payments", [1])


def test_each_resource_has_its_own_result_and_those_that_are_well_are_changed(cluster: Cluster) -> None:
    def resource(name: str, *configs: tuple[str, str]) -> IncrementalAlterConfigsResource:
        return IncrementalAlterConfigsResource(
            resource_type=TOPIC,
            resource_name=name,
            configs=[
                IncrementalAlterConfigsAlterableConfig(name=key, config_operation=SET, value=text)
                for key, text in configs
            ],
        )

    cluster.create_on("payments", [1])
    cluster.create_on("refunds", [1])
    reply = cluster.ask(
        IncrementalAlterConfigsRequest(
            resources=[
                resource("orders", ("retention.ms", "5")),
                resource("payments", ("retention.ms", "5")),
                resource("refunds", ("retention.ms", "5"), ("retention.ms", "6")),
                resource("payments", ("retention.ms", "6")),
            ],
            validate_only=False,
        )
    )
    assert isinstance(reply, IncrementalAlterConfigsResponse)
    invalid = ErrorCode.INVALID_REQUEST
    assert [each.error_code for each in reply.responses] == [0, invalid, invalid, invalid]
    assert [resource.name for resource in cluster.image.configs if resource.type == TOPIC] == ["orders"]


def replace_all(
    cluster: Cluster, name: str, configs: dict[str, str | None], *, validate_only: bool = False
) -> int:
    reply = cluster.ask(
        AlterConfigsRequest(
            resources=[
                AlterConfigsResource(
                    resource_type=TOPIC,
                    resource_name=name,
                    configs=[
                        AlterConfigsAlterableConfig(name=key, value=text) for key, text in configs.items()
                    ],
                )
            ],
            validate_only=validate_only,
        )
    )
    assert isinstance(reply, AlterConfigsResponse)
    return reply.responses[0].error_code


def test_the_old_way_replaces_all_settings(cluster: Cluster) -> None:
    cluster.alter(TOPIC, "orders", ("retention.ms", SET, "5"), ("retention.bytes", SET, "7"))
    assert replace_all(cluster, "orders", {"retention.ms": "6"}, validate_only=True) == 0
    assert texts(cluster, TOPIC, "orders") == {"retention.ms": "5", "retention.bytes": "7"}
    assert replace_all(cluster, "orders", {"retention.ms": "6", "segment.ms": "8"}) == 0
    assert texts(cluster, TOPIC, "orders") == {"retention.ms": "6", "segment.ms": "8"}
    assert replace_all(cluster, "orders", {"retention.ms": None}) == ErrorCode.INVALID_REQUEST
    assert replace_all(cluster, "orders", {"retention.mss": "6"}) == ErrorCode.INVALID_CONFIG
    assert replace_all(cluster, "orders", {}) == 0
    assert texts(cluster, TOPIC, "orders") == {}


def test_another_min_insync_replicas_clears_who_was_eligible_under_the_old_one(cluster: Cluster) -> None:
    cluster.alter(TOPIC, "orders", ("min.insync.replicas", SET, "2"))
    cluster.fence(2)
    assert cluster.partition("orders").elr == (2,)
    cluster.alter(TOPIC, "orders", ("retention.ms", SET, "5"))
    assert cluster.partition("orders").elr == (2,)
    cluster.alter(TOPIC, "orders", ("min.insync.replicas", SET, "1"))
    assert cluster.partition("orders").elr == ()


def test_for_all_brokers_it_clears_the_eligible_of_all_topics(cluster: Cluster) -> None:
    assert texts(cluster, BROKER, "") == {"min.insync.replicas": "1"}
    assert cluster.alter(*ALL_BROKERS, ("min.insync.replicas", SET, "2")) == (0, None)
    cluster.fence(2)
    assert cluster.partition("orders").elr == (2,)
    assert cluster.alter(*ALL_BROKERS, ("min.insync.replicas", SET, "1")) == (0, None)
    assert cluster.partition("orders").elr == ()
