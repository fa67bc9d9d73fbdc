"""Static members: they come back to what they had."""

import pytest
from coordinator.group.consumer.consumers import Consumer, Consumers, settle

from moldau.model.errors import ErrorCode
from moldau.wire.messages.consumer_groups import ConsumerGroupHeartbeatResponse


def two(group: Consumers) -> tuple[Consumer, Consumer]:
    a = Consumer(group, "a", "t", instance="one").join()
    b = Consumer(group, "b", "t", instance="two").join()
    settle(a, b)
    return a, b


def test_a_static_member_that_left_for_a_while_comes_back_to_what_it_had_and_nobody_notices() -> None:
    group = Consumers({"t": 4})
    a, b = two(group)
    had, epoch, whys = a.names, group.consumers.epoch, group.why()
    a.leave(-2)
    again = Consumer(group, "a2", "t", instance="one").join()
    assert (again.names, again.epoch) == (had, epoch)
    assert (group.consumers.epoch, group.why(), group.state) == (epoch, whys, "Stable")
    assert b.beat().epoch == epoch
    assert list(group.consumers.members) == ["b", "a2"]


@pytest.mark.behaviour(62)
def test_the_reply_to_who_leaves_for_a_while_says_so() -> None:
    group = Consumers()
    two(group)
    reply = group.beat("a", -2, instance="one").reply(ConsumerGroupHeartbeatResponse)
    assert (reply.member_id, reply.member_epoch) == ("a", -2)


def test_while_it_is_away_nobody_gets_what_it_had() -> None:
    group = Consumers({"t": 4})
    a, b = two(group)
    a.leave(-2)
    c = Consumer(group, "c", "t").join()
    for _ in range(3):
        b.beat()
        c.beat()
    assert len(b.names) + len(c.names) == 2
    assert group.has("a") == a.names or len(group.has("a")) == 2


def test_a_static_member_that_stays_away_is_cast_out() -> None:
    group = Consumers({"t": 4})
    a, b = two(group)
    a.leave(-2)
    group.wait(40_000)
    b.beat()
    group.wait(5_000)
    assert list(group.consumers.members) == ["b"]
    assert b.beat().names == ["t0", "t1", "t2", "t3"]


def test_a_static_member_may_leave_for_good() -> None:
    group = Consumers({"t": 4})
    a, b = two(group)
    a.leave(-1)
    assert list(group.consumers.members) == ["b"]
    assert b.beat().names == ["t0", "t1", "t2", "t3"]


@pytest.mark.behaviour(64)
def test_an_instance_that_has_not_left_is_not_given_away() -> None:
    group = Consumers()
    two(group)
    assert group.enter("a2", instance="one").code is ErrorCode.UNRELEASED_INSTANCE_ID
    assert group.member("a").subscription.instance_id == "one"


def test_a_static_member_that_was_fenced_joins_again_under_its_id() -> None:
    group = Consumers({"t": 4})
    a, b = two(group)
    assert group.beat("a", 99, instance="one", owned=[]).code is ErrorCode.FENCED_MEMBER_EPOCH
    a.join()
    settle(a, b)
    assert sorted(a.names + b.names) == ["t0", "t1", "t2", "t3"]


def test_whoever_was_replaced_is_fenced() -> None:
    group = Consumers()
    a, _ = two(group)
    a.leave(-2)
    Consumer(group, "a2", "t", instance="one").join()
    for epoch in (a.epoch, -1, -2):
        assert group.beat("a", epoch, instance="one").code is ErrorCode.FENCED_INSTANCE_ID
    # Without its instance it is nobody.
    assert group.beat("a", a.epoch).code is ErrorCode.UNKNOWN_MEMBER_ID


def test_an_instance_that_nobody_knows_has_to_join() -> None:
    group = Consumers()
    two(group)
    for epoch in (3, -1, -2):
        assert group.beat("x", epoch, instance="nobody").code is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_static_member_away_may_not_go_on_as_if_it_were_not() -> None:
    group = Consumers()
    a, _ = two(group)
    a.leave(-2)
    assert group.beat("a", a.epoch, instance="one", owned=[]).code is ErrorCode.FENCED_MEMBER_EPOCH


def test_a_static_member_that_comes_back_with_other_topics_has_the_group_assigned_anew() -> None:
    group = Consumers({"t": 2, "u": 2})
    a, b = two(group)
    a.leave(-2)
    again = Consumer(group, "a2", "u", instance="one").join()
    settle(again, b)
    assert (again.names, b.names) == (["u0", "u1"], ["t0", "t1"])
    assert group.why()[-1] == "a2 subscribed to other topics"


def test_a_full_group_lets_a_static_member_come_back() -> None:
    group = Consumers(group_consumer_max_size="2")
    a, _ = two(group)
    a.leave(-2)
    assert Consumer(group, "a2", "t", instance="one").join().names


def test_what_a_static_member_was_giving_up_is_free_when_it_leaves_for_a_while() -> None:
    group = Consumers({"t": 2})
    a = Consumer(group, "a", "t", instance="one").join()
    b = Consumer(group, "b", "t").join()
    a.beat(gives_up=False)
    a.leave(-2)
    assert b.beat().names == ["t1"]
    again = Consumer(group, "a2", "t", instance="one").join()
    assert again.names == ["t0"]


def test_commits_of_the_one_before_are_not_taken_for_those_of_its_successor() -> None:
    group = Consumers()
    a, _ = two(group)
    a.leave(-2)
    again = Consumer(group, "a2", "t", instance="one").join()
    partition = again.owned[0]
    assert group.commit({partition: 1}, member_id="a", generation=a.epoch) is ErrorCode.UNKNOWN_MEMBER_ID
    assert group.commit({partition: 1}, member_id="a2", generation=again.epoch) is ErrorCode.NONE


def test_a_member_may_take_another_instance_id() -> None:
    group = Consumers()
    a = Consumer(group, "a", "t", instance="one").join()
    a.instance = "two"
    a.join()
    assert group.consumers.static_member_ids == {"two": "a"}
