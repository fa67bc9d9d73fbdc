"""Variables are named as for Kafka's containers, and what else begins with KAFKA_ does no harm."""

import pytest

from moldau.model.settings.resolve import SETTINGS
from moldau.model.settings.setting import Scope
from moldau.node.environment import read_environment, variable_of, warnings


@pytest.mark.parametrize(
    ("variable", "name"),
    [
        ("KAFKA_LOG_RETENTION_MS", "log.retention.ms"),
        ("KAFKA_NODE_ID", "node.id"),
        ("KAFKA_MOLDAU_ADMIN_LISTENER", "moldau.admin.listener"),
        ("KAFKA_LISTENER_NAME_CLIENTS_SSL_CLIENT_AUTH", "listener.name.clients.ssl.client.auth"),
        ("KAFKA_LISTENER_NAME_SASL__SSL_SCRAM___SHA___256_X", "listener.name.sasl_ssl.scram-sha-256.x"),
    ],
)
def test_underscores_are_dots_and_more_of_them_are_other_signs(variable: str, name: str) -> None:
    assert read_environment({variable: "5"}) == {name: ("5", variable)}
    assert variable_of(name) == variable


def test_every_setting_has_a_variable() -> None:
    for name in SETTINGS[Scope.BROKER]:
        assert list(read_environment({variable_of(name): ""})) == [name]


UNRELATED = {
    "KAFKA_HOME": "opt",
    "KAFKA_OPTS": "-Dx=y",
    "KAFKA_HEAP_OPTS": "-Xmx1g",
    "KAFKA_JMX_OPTS": "",
    "KAFKA_JVM_PERFORMANCE_OPTS": "",
    "KAFKA_LOG4J_OPTS": "",
    "KAFKA_LOG4J_ROOT_LOGLEVEL": "INFO",
    "KAFKA_VERSION": "4.3.0",
    "KAFKA_BOOTSTRAP_SERVERS": "localhost:9092",
    "KAFKA_PORT": "tcp://10.0.0.1:9092",
    "KAFKA_SERVICE_HOST": "10.0.0.1",
    "KAFKA_PORT_9092_TCP_ADDR": "10.0.0.1",
    "KAFKA_CLUSTER_ID": "x",
    "KAFKA_": "x",
    "LOG_RETENTION_MS": "5",
    "kafka_log_retention_ms": "5",
}


def test_what_others_keep_under_the_prefix_is_passed_over_in_silence() -> None:
    assert read_environment(UNRELATED) == {}
    assert warnings(UNRELATED) == []


def test_a_mistyped_variable_is_told_of_and_passed_over() -> None:
    assert read_environment({"KAFKA_LOG_RETENTON_MS": "5"}) == {}
    assert warnings(["KAFKA_LOG_RETENTON_MS", "KAFKA_NODE_ID", "PATH"]) == [
        "KAFKA_LOG_RETENTON_MS names no setting and is passed over. Did you mean KAFKA_LOG_RETENTION_MS?"
    ]
