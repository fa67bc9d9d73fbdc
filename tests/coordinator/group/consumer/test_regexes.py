"""Subscriptions by regular expression."""

import pytest
from coordinator.group.consumer.consumers import Consumer, Consumers, settle

from moldau.coordinator.group.consumer.regexes import matching
from moldau.model.errors import ErrorCode
from moldau.model.ids import TopicName
from moldau.wire.messages.group_records import (
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
)


def regex_records(group: Consumers) -> list[tuple[str, list[str] | None]]:
    found: list[tuple[str, list[str] | None]] = []
    for key, value in group.log:
        if isinstance(key, ConsumerGroupRegularExpressionKey):
            assert value is None or isinstance(value, ConsumerGroupRegularExpressionValue)
            found.append((key.regular_expression, None if value is None else value.topics))
    return found


@pytest.mark.behaviour(65)
def test_a_member_reads_the_topics_whose_whole_name_matches() -> None:
    group = Consumers({"orders-eu": 1, "orders-us": 1, "old-orders-eu": 1, "other": 1})
    a = Consumer(group, "a", regex="orders-.*").join()
    assert a.names == ["orders-eu0", "orders-us0"]
    assert regex_records(group) == [("orders-.*", ["orders-eu", "orders-us"])]


def test_names_and_an_expression_add_up() -> None:
    group = Consumers({"orders-eu": 1, "other": 1, "more": 1})
    a = Consumer(group, "a", "other", regex="orders-.*").join()
    assert a.names == ["orders-eu0", "other0"]


@pytest.mark.behaviour(65)
def test_topics_that_come_and_go_are_noticed() -> None:
    group = Consumers({"orders-eu": 1})
    a = Consumer(group, "a", regex="orders-.*").join()
    group.create("orders-us", 1)
    group.create("unrelated", 1)
    assert a.beat().names == ["orders-eu0", "orders-us0"]
    settle(a)
    group.delete("orders-eu")
    assert a.beat().names == ["orders-us0"]
    assert regex_records(group)[1:] == [
        ("orders-.*", ["orders-eu", "orders-us"]),
        ("orders-.*", ["orders-us"]),
    ]
    assert group.why()[1:] == ["topics were created, deleted or changed"] * 2


def test_a_topic_created_anew_is_another_topic() -> None:
    group = Consumers({"orders-eu": 1})
    a = Consumer(group, "a", regex="orders-.*").join()
    group.delete("orders-eu")
    group.create("orders-eu", 2)
    settle(a)
    assert a.names == ["orders-eu0", "orders-eu1"]


def test_what_came_while_nobody_coordinated_is_noticed_with_the_first_heartbeat() -> None:
    group = Consumers({"orders-eu": 1})
    a = Consumer(group, "a", regex="orders-.*").join()
    log = list(group.log)
    group.create("orders-us", 1)
    group.log = log
    group.reload(log)
    settle(a)
    assert a.names == ["orders-eu0", "orders-us0"]


def test_an_expression_that_nobody_uses_any_more_is_forgotten() -> None:
    group = Consumers({"orders-eu": 1, "other": 1})
    a = Consumer(group, "a", regex="orders-.*").join()
    b = Consumer(group, "b", regex="orders-.*").join()
    settle(a, b)
    a.leave()
    assert list(group.consumers.regexes) == ["orders-.*"]
    group.beat("b", b.epoch, regex="oth.*")
    assert list(group.consumers.regexes) == ["oth.*"]
    b.leave()
    assert group.consumers.regexes == {}
    assert regex_records(group)[-1] == ("oth.*", None)


def test_a_member_may_go_from_an_expression_to_names() -> None:
    group = Consumers({"orders-eu": 1, "other": 1})
    a = Consumer(group, "a", regex="orders-.*").join()
    a.take(group.beat("a", a.epoch, topics=["other"], regex=""))
    settle(a)
    assert (a.names, group.consumers.regexes) == (["other0"], {})


@pytest.mark.behaviour(65)
@pytest.mark.parametrize("regex", ["(", "[a", "*", "(?=x)", r"(a)\1", "a{1001}"])
def test_what_re2_does_not_understand_is_refused_and_changes_nothing(regex: str) -> None:
    group = Consumers()
    assert group.enter("a", topics=None, regex=regex).code is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert group.log == []
    a = Consumer(group, "a", "t").join()
    written = len(group.log)
    assert group.beat("a", a.epoch, regex=regex).code is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert (len(group.log), group.member("a").subscription.interest.regex) == (written, "")


def test_an_expression_that_would_take_others_for_ever_takes_no_time() -> None:
    group = Consumers({"a" * 200: 1})
    assert Consumer(group, "m", regex="(a*)*b").join().names == []


def test_an_expression_that_matches_more_than_a_record_holds_is_refused() -> None:
    group = Consumers({f"topic-{number:0100}": 1 for number in range(30)})
    group.batch_bytes_max = 2000
    assert group.enter("a", topics=None, regex="topic-.*").code is ErrorCode.INVALID_REQUEST
    assert group.log == []


def test_a_group_whose_expression_would_match_too_much_stays_with_what_it_had() -> None:
    group = Consumers({"topic-0": 1})
    a = Consumer(group, "a", regex="topic-.*").join()
    group.batch_bytes_max = 600
    for number in range(1, 9):
        group.create(f"topic-{number:0100}", 1)
    assert 1 <= len(group.consumers.regexes["topic-.*"].topics) < 9
    settle(a)


def test_offsets_of_topics_that_match_are_kept() -> None:
    group = Consumers({"orders-eu": 1})
    Consumer(group, "a", regex="orders-.*").join()
    assert group.consumers.is_subscribed_to("orders-eu")
    assert not group.consumers.is_subscribed_to("other")


def test_an_expression_that_somebody_else_wrote_and_nobody_understands_matches_nothing() -> None:
    assert matching("(", [TopicName("t")]) == []


def test_members_with_names_and_with_expressions_share_a_group() -> None:
    group = Consumers({"orders-eu": 2, "orders-us": 2})
    a = Consumer(group, "a", regex="orders-.*").join()
    b = Consumer(group, "b", "orders-us").join()
    settle(a, b)
    assert (a.names, b.names) == (["orders-eu0", "orders-eu1"], ["orders-us0", "orders-us1"])
