"""What ConsumerGroupDescribe, ListGroups and the history say of a group."""

from coordinator.group.consumer.consumers import Consumer, Consumers, settle
from coordinator.group.live import GROUP

from moldau.coordinator.group.history import Cause, What
from moldau.model.errors import ErrorCode
from moldau.wire.messages.consumer_groups import (
    ConsumerGroupDescribeAssignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)
from moldau.wire.messages.groups import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
)


def describe(group: Consumers, *group_ids: str) -> list[DescribedGroup]:
    request = ConsumerGroupDescribeRequest(group_ids=list(group_ids), include_authorized_operations=False)
    return group.ask(request).reply(ConsumerGroupDescribeResponse).groups


def partitions(assignment: ConsumerGroupDescribeAssignment) -> dict[str, list[int]]:
    return {topic.topic_name: topic.partitions for topic in assignment.topic_partitions}


def test_a_group_in_the_middle_of_a_rebalance_shows_what_members_have_and_are_to_have() -> None:
    group = Consumers({"t": 4})
    a = Consumer(group, "a", "t", instance="one").join()
    Consumer(group, "b", regex="t.*", assignor="range").join()
    a.beat(gives_up=False)
    (found,) = describe(group, GROUP)
    assert (found.group_state, found.group_epoch, found.assignment_epoch) == ("Reconciling", 3, 3)
    assert (found.assignor_name, found.error_code) == ("range", ErrorCode.NONE)
    first, second = found.members
    assert (first.member_id, first.instance_id, first.member_epoch, first.member_type) == ("a", "one", 2, 1)
    assert (first.client_id, first.client_host, first.subscribed_topic_names) == ("ada", "/127.0.0.1", ["t"])
    # What it has yet to give up, it has.
    assert partitions(first.assignment) == {"t": [0, 1, 2, 3]}
    assert partitions(first.target_assignment) == {"t": [0, 1]}
    assert (second.subscribed_topic_regex, partitions(second.assignment)) == ("t.*", {})
    assert partitions(second.target_assignment) == {"t": [2, 3]}


def test_a_group_that_nobody_asked_an_assignor_of_shows_the_default() -> None:
    group = Consumers()
    Consumer(group, "a", "t").join()
    (found,) = describe(group, GROUP)
    assert (found.assignor_name, found.group_state) == ("uniform", "Stable")


def test_groups_that_are_not_there_or_not_of_this_kind_are_errors_of_their_own() -> None:
    group = Consumers()
    group.join_known(group_id="classic")
    Consumer(group, "a", "t").join()
    none, classic, found = describe(group, "none", "classic", GROUP)
    assert (none.error_code, none.error_message) == (69, "Group none not found.")
    assert (classic.error_code, classic.error_message) == (69, "Group classic is not a consumer group.")
    assert found.error_code == ErrorCode.NONE


def test_topics_that_were_deleted_are_not_shown() -> None:
    group = Consumers({"t": 1, "u": 1})
    Consumer(group, "a", "t", "u").join()
    group.delete("u")
    (found,) = describe(group, GROUP)
    assert partitions(found.members[0].assignment) == {"t": [0]}


def test_groups_are_listed_with_their_kind_and_state() -> None:
    group = Consumers()
    Consumer(group, "a", "t").join()
    listed = group.ask(ListGroupsRequest(types_filter=["consumer"])).reply(ListGroupsResponse).groups
    assert [(each.group_id, each.protocol_type, each.group_state, each.group_type) for each in listed] == [
        (GROUP, "consumer", "Stable", "consumer")
    ]


def test_only_an_empty_group_is_deleted_and_with_it_all_that_the_log_says_of_it() -> None:
    group = Consumers({"t": 1})
    a = Consumer(group, "a", regex="t").join()
    request = DeleteGroupsRequest(groups_names=[GROUP])
    assert group.ask(request).reply(DeleteGroupsResponse).results[0].error_code == ErrorCode.NON_EMPTY_GROUP
    a.leave()
    assert group.ask(request).reply(DeleteGroupsResponse).results[0].error_code == ErrorCode.NONE
    assert GROUP not in group.shard.state.groups
    newest = {(type(key), str(key)): value for key, value in group.log}
    assert set(newest.values()) == {None}
    assert group.shard.state.histories.of(GROUP) == ()


def test_the_group_remembers_why_it_was_assigned_anew_who_it_was_and_when() -> None:
    group = Consumers({"t": 2})
    a = Consumer(group, "a", "t").join()
    group.wait(1000)
    b = Consumer(group, "b", "t", instance="two").join()
    settle(a, b)
    group.wait(1000)
    b.leave()
    first, second, third = group.shard.state.histories.of(GROUP)
    assert [each.epoch for each in (first, second, third)] == [2, 3, 4]
    assert second.wall_ms - first.wall_ms == third.wall_ms - second.wall_ms == 1000
    assert first.causes == (Cause(What.JOINED, "a", "ada at /127.0.0.1"),)
    assert second.causes == (Cause(What.JOINED, "b", "two"),)
    assert third.causes == (Cause(What.LEFT, "b", "two"),)


def test_the_group_remembers_no_more_than_the_latest() -> None:
    group = Consumers({"t": 2})
    a = Consumer(group, "a", "t").join()
    for number in range(50):
        a.subscribe("t", f"u{number}")
    found = group.shard.state.histories.of(GROUP)
    assert (len(found), found[-1].epoch) == (32, 52)
