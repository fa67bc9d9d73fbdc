import pytest
from coordinator.group.live import GROUP, Live, subscription

from moldau.model.errors import ErrorCode
from moldau.wire.messages.groups import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
)

NONE = ErrorCode.NONE


def listed(live: Live, *, states: list[str] | None = None, types: list[str] | None = None) -> list[str]:
    request = ListGroupsRequest(states_filter=states or [], types_filter=types or [])
    return [each.group_id for each in live.ask(request).reply(ListGroupsResponse).groups]


def described(live: Live, group_id: str = GROUP, *, version: int = 6) -> DescribedGroup:
    asked = live.ask(DescribeGroupsRequest(groups=[group_id]), version=version)
    (group,) = asked.reply(DescribeGroupsResponse).groups
    return group


def deleted(live: Live, *group_ids: str) -> dict[str, ErrorCode]:
    asked = live.ask(DeleteGroupsRequest(groups_names=list(group_ids)))
    results = asked.reply(DeleteGroupsResponse).results
    return {each.group_id: ErrorCode(each.error_code) for each in results}


def test_groups_are_listed_by_state_and_type() -> None:
    live = Live()
    live.commit({("t", 0): 1}, group_id="simple")
    live.stable("a")
    assert listed(live) == ["simple", GROUP]
    assert listed(live, states=["Stable"]) == [GROUP]
    assert listed(live, states=["empty", "STABLE"]) == ["simple", GROUP]
    assert listed(live, states=["nonsense"]) == []
    assert listed(live, types=["Classic"]) == ["simple", GROUP]
    assert listed(live, types=["consumer"]) == []
    groups = live.ask(ListGroupsRequest()).reply(ListGroupsResponse).groups
    assert [(each.protocol_type, each.group_state, each.group_type) for each in groups] == [
        ("", "Empty", "classic"),
        ("consumer", "Stable", "classic"),
    ]


def test_a_stable_group_is_described_with_all_that_its_members_said_and_got() -> None:
    live = Live()
    (member_id,) = live.stable("a")
    group = described(live)
    assert (group.error_code, group.group_state, group.protocol_type) == (NONE, "Stable", "consumer")
    assert group.protocol_data == "range"
    (member,) = group.members
    assert (member.member_id, member.client_id, member.client_host) == (member_id, "a", "/127.0.0.1")
    assert (member.member_metadata, member.member_assignment) == (subscription("t"), member_id.encode())


def test_a_group_that_rebalances_is_described_without_what_is_not_settled() -> None:
    live = Live()
    live.join_known()
    group = described(live)
    assert (group.group_state, group.protocol_data) == ("PreparingRebalance", "")
    assert [(each.member_metadata, each.member_assignment) for each in group.members] == [(b"", b"")]


def test_a_group_that_is_not_there_is_dead_or_an_error() -> None:
    older = described(Live(), version=5)
    assert (older.error_code, older.group_state) == (NONE, "Dead")
    newer = described(Live(), version=6)
    assert (newer.error_code, newer.group_state) == (ErrorCode.GROUP_ID_NOT_FOUND, "Dead")
    assert newer.error_message


def test_groups_without_members_are_deleted_with_their_offsets() -> None:
    live = Live()
    live.commit({("t", 0): 1}, group_id="simple")
    (member,) = live.stable("a")
    live.commit({("t", 0): 1}, member_id=member, generation=1)
    assert deleted(live, "simple", GROUP, "none", "simple") == {
        "simple": NONE,
        GROUP: ErrorCode.NON_EMPTY_GROUP,
        "none": ErrorCode.GROUP_ID_NOT_FOUND,
    }
    live.leave(member)
    assert deleted(live, GROUP) == {GROUP: NONE}
    for _ in range(2):
        assert listed(live) == []
        assert live.committed("simple") == live.committed() == {}
        live.reload()


@pytest.mark.parametrize("count", [1, 5_000])
def test_a_deleted_group_leaves_nothing_in_the_log_whatever_it_had(count: int) -> None:
    live = Live()
    live.commit({("t", partition): 1 for partition in range(count)})
    assert deleted(live, GROUP) == {GROUP: NONE}
    newest = {str(record.key): record.value for record in live.log}
    assert all(value is None for value in newest.values())
