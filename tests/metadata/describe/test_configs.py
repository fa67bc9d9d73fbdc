import pytest
from metadata.cluster import Cluster

from moldau.metadata.describe.configs import describe_configs, list_config_resources
from moldau.metadata.image import ResourceType
from moldau.model.errors import ErrorCode, KafkaError
from moldau.model.settings.resolve import SETTINGS, Source
from moldau.model.settings.setting import Scope
from moldau.model.settings.types import TypeCode
from moldau.wire.messages.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResult,
    ListConfigResourcesRequest,
)

SET = 0
TOPIC, BROKER, GROUP = ResourceType.TOPIC, ResourceType.BROKER, ResourceType.GROUP


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster(static={"log.retention.hours": "3", "ssl.key.password": "secret"})
    cluster.start(1, 2)
    cluster.create_on("orders", [1], configs={"segment.ms": "9"})
    return cluster


def describe(
    cluster: Cluster, kind: int, name: str, *keys: str, with_synonyms: bool = True, with_docs: bool = False
) -> DescribeConfigsResult:
    reply = describe_configs(
        cluster.active.view,
        DescribeConfigsRequest(
            resources=[
                DescribeConfigsResource(
                    resource_type=kind, resource_name=name, configuration_keys=list(keys) or None
                )
            ],
            include_synonyms=with_synonyms,
            include_documentation=with_docs,
        ),
    )
    reply.encode(4)
    (result,) = reply.results
    return result


def one(cluster: Cluster, kind: int, name: str, key: str) -> DescribeConfigsResourceResult:
    result = describe(cluster, kind, name, key)
    assert result.error_code == 0, result
    (config,) = result.configs
    return config


def test_every_setting_of_a_topic_is_told(cluster: Cluster) -> None:
    result = describe(cluster, TOPIC, "orders")
    names = [each.name for each in result.configs]
    assert names == sorted(name for name in SETTINGS[Scope.TOPIC] if not name.startswith("internal."))
    assert not any(each.read_only for each in result.configs)


def test_a_value_comes_with_its_source_and_with_what_it_hides(cluster: Cluster) -> None:
    cluster.alter(BROKER, "", ("log.retention.ms", SET, "7000"))
    cluster.alter(BROKER, "1", ("log.retention.ms", SET, "6000"))
    cluster.alter(TOPIC, "orders", ("retention.ms", SET, "5000"))
    config = one(cluster, TOPIC, "orders", "retention.ms")
    assert (config.value, config.config_source, config.config_type) == ("5000", Source.TOPIC, TypeCode.LONG)
    assert [(each.name, each.value, each.source) for each in config.synonyms] == [
        ("retention.ms", "5000", Source.TOPIC),
        ("log.retention.ms", "6000", Source.BROKER),
        ("log.retention.ms", "7000", Source.CLUSTER),
        ("log.retention.hours", str(3 * 3_600_000), Source.STATIC),
        ("log.retention.hours", str(168 * 3_600_000), Source.DEFAULT),
    ]


def test_synonyms_and_documentation_are_told_only_on_demand(cluster: Cluster) -> None:
    (config,) = describe(cluster, TOPIC, "orders", "segment.ms", with_synonyms=False).configs
    assert (config.value, config.synonyms, config.documentation) == ("9", [], None)
    (config,) = describe(cluster, TOPIC, "orders", "segment.ms", with_docs=True).configs
    assert config.documentation


def test_every_setting_of_a_broker_is_told_and_secrets_are_not(cluster: Cluster) -> None:
    result = describe(cluster, BROKER, "1")
    public = [name for name in SETTINGS[Scope.BROKER] if not name.startswith("internal.")]
    assert [each.name for each in result.configs] == sorted(public)
    password = one(cluster, BROKER, "1", "ssl.key.password")
    assert (password.value, password.is_sensitive, password.config_source) == (None, True, Source.STATIC)
    assert [each.value for each in password.synonyms] == [None, None]
    assert one(cluster, BROKER, "1", "log.retention.hours").read_only
    assert not one(cluster, BROKER, "1", "log.retention.ms").read_only


def test_of_all_brokers_only_that_is_told_which_was_set_for_all(cluster: Cluster) -> None:
    cluster.alter(BROKER, "", ("log.retention.ms", SET, "7000"))
    cluster.alter(BROKER, "1", ("log.retention.ms", SET, "6000"))
    told = {each.name: (each.value, each.config_source) for each in describe(cluster, BROKER, "").configs}
    assert told == {
        "log.retention.ms": ("7000", Source.CLUSTER),
        "min.insync.replicas": ("1", Source.CLUSTER),
    }


def test_settings_of_a_group(cluster: Cluster) -> None:
    cluster.alter(GROUP, "readers", ("consumer.session.timeout.ms", SET, "50000"))
    assert one(cluster, GROUP, "readers", "consumer.session.timeout.ms").config_source == Source.GROUP
    assert one(cluster, GROUP, "others", "consumer.session.timeout.ms").config_source == Source.DEFAULT


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (TOPIC, "nil", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "a/b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (BROKER, "2", ErrorCode.INVALID_REQUEST),
        (BROKER, "one", ErrorCode.INVALID_REQUEST),
        (GROUP, "", ErrorCode.INVALID_REQUEST),
        (77, "x", ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_this_broker_cannot_tell(kind: int, name: str, code: ErrorCode, cluster: Cluster) -> None:
    result = describe(cluster, kind, name)
    assert (result.error_code, result.resource_type, result.resource_name) == (code, kind, name)
    assert result.configs == []
    assert result.error_message


def test_a_key_that_does_not_exist_is_not_told(cluster: Cluster) -> None:
    assert [each.name for each in describe(cluster, TOPIC, "orders", "segment.ms", "nil").configs] == [
        "segment.ms"
    ]


def test_the_resources_that_have_settings_are_listed(cluster: Cluster) -> None:
    cluster.alter(GROUP, "readers", ("consumer.session.timeout.ms", SET, "50000"))

    def listed(*kinds: int, version: int = 1) -> list[tuple[int, str]]:
        request = ListConfigResourcesRequest(resource_types=list(kinds))
        reply = list_config_resources(cluster.active.view, request, version=version)
        return [(each.resource_type, each.resource_name) for each in reply.config_resources]

    brokers = [(BROKER, "1"), (BROKER, "2")]
    assert listed() == [(TOPIC, "orders"), *brokers, (GROUP, "readers")]
    assert listed(BROKER) == brokers
    assert listed(ResourceType.CLIENT_METRICS) == listed(version=0) == []
    with pytest.raises(KafkaError) as refused:
        listed(77)
    assert refused.value.code is ErrorCode.UNSUPPORTED_VERSION
