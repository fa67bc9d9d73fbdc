"""How commands fail: the exit code and the line that people see."""

from __future__ import annotations

import pytest

from moldau.cli._errors import failure_of, no_such_topic
from moldau.client.errors import ClientError
from moldau.model.errors import ErrorCode, KafkaError


@pytest.mark.parametrize(
    ("code", "exit_code"),
    [
        (ErrorCode.INVALID_CONFIG, 1),
        (ErrorCode.TOPIC_ALREADY_EXISTS, 1),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 3),
        (ErrorCode.RESOURCE_NOT_FOUND, 3),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, 4),
        (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, 4),
        (ErrorCode.SASL_AUTHENTICATION_FAILED, 4),
        (ErrorCode.NETWORK_EXCEPTION, 5),
        (ErrorCode.REQUEST_TIMED_OUT, 5),
        (ErrorCode.LEADER_NOT_AVAILABLE, 5),
    ],
)
def test_scripts_can_tell_failures_apart(code: ErrorCode, exit_code: int) -> None:
    assert failure_of(KafkaError(code)).exit_code == exit_code


def test_a_failure_says_where_why_and_what_helps_in_one_line() -> None:
    failure = failure_of(ClientError(ErrorCode.MESSAGE_TOO_LARGE, "It is\ntoo large."), "orders-0")
    assert failure.message == (
        "orders-0: It is too large. Raise max.message.bytes of the topic, or max.request.size here."
        " (MESSAGE_TOO_LARGE)"
    )


def test_a_place_that_was_named_is_not_named_again() -> None:
    error = KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, "Topic 'orders' already exists.")
    assert failure_of(error, "orders").message == "Topic 'orders' already exists. (TOPIC_ALREADY_EXISTS)"


def test_a_topic_that_is_not_there_may_have_been_mistyped() -> None:
    assert no_such_topic("ordres", ["orders", "payments"]).message.endswith("Did you mean 'orders'?")
    assert no_such_topic("x", ["orders"]).message.endswith("moldau topic list shows all.")
