import pytest
from coordinator.group.live import GROUP, Live, subscription

from moldau.model.errors import ErrorCode
from moldau.wire.messages.group_records import GroupMetadataValue
from moldau.wire.messages.groups import LeaveGroupRequest, LeaveGroupResponse

NONE = ErrorCode.NONE
DELAY_MS = 3_000


# ---------------------------------------------------------------------------------------------- joining


def test_a_new_member_is_given_an_id_and_asked_to_come_with_it() -> None:
    live = Live()
    asked = live.join(client_id="ada")
    assert asked.code is ErrorCode.MEMBER_ID_REQUIRED
    assert asked.joined.member_id.startswith("ada-")
    assert len(asked.joined.member_id) == len("ada-") + 36
    assert live.join(asked.joined.member_id).is_parked


def test_a_client_from_before_kip_394_is_let_in_at_once() -> None:
    live = Live()
    asked = live.join(version=3)
    assert asked.is_parked
    live.wait(DELAY_MS)
    assert asked.joined.error_code == NONE
    assert asked.joined.member_id


def test_an_id_that_was_never_given_is_unknown() -> None:
    live = Live()
    assert live.join("made-up").code is ErrorCode.UNKNOWN_MEMBER_ID
    live.join_known()
    assert live.join("made-up").code is ErrorCode.UNKNOWN_MEMBER_ID
    assert live.join("made-up").joined.member_id == "made-up"


def test_one_who_does_not_come_back_with_its_id_is_forgotten_and_so_is_the_group() -> None:
    live = Live()
    given = live.join(session_timeout_ms=10_000).joined.member_id
    live.wait(9_999)
    assert GROUP in live.shard.state.groups
    live.wait(1)
    assert GROUP not in live.shard.state.groups
    assert live.join(given).code is ErrorCode.UNKNOWN_MEMBER_ID
    assert live.log == []


def test_an_empty_group_waits_for_more_members_as_long_as_they_come() -> None:
    live = Live()
    first = live.join_known(client_id="a", rebalance_timeout_ms=60_000)
    live.wait(DELAY_MS - 1)
    second = live.join_known(client_id="b", rebalance_timeout_ms=60_000)
    live.wait(1)
    assert first.is_parked, "somebody has come since"
    live.wait(DELAY_MS - 1)
    assert first.is_parked
    live.wait(1)
    assert first.joined.generation_id == second.joined.generation_id == 1
    assert live.state == "CompletingRebalance"


def test_the_wait_for_more_members_ends_with_the_rebalance_timeout() -> None:
    live = Live()
    first = live.join_known(client_id="m", rebalance_timeout_ms=10_000)
    for number in range(12):
        live.wait(1_000)
        if not first.is_parked:
            break
        live.join_known(client_id=f"m{number}", rebalance_timeout_ms=10_000)
    assert first.joined.error_code == NONE
    assert 9 <= number <= 10


@pytest.mark.honours("group.initial.rebalance.delay.ms")
def test_without_a_delay_the_first_member_begins_at_once() -> None:
    live = Live({"group.initial.rebalance.delay.ms": "0"})
    asked = live.join_known()
    live.wait(0)
    assert asked.joined.generation_id == 1


def test_the_leader_learns_of_all_members_and_the_others_of_none() -> None:
    live = Live()
    asked = [
        live.join_known(client_id=name, protocols={"range": subscription(name)}, instance_id=None)
        for name in ("a", "b", "c")
    ]
    live.wait(2 * DELAY_MS)
    leader, *others = (each.joined for each in asked)
    assert leader.leader == leader.member_id
    assert [(each.member_id, each.metadata) for each in leader.members] == [
        (each.member_id, subscription(name))
        for each, name in zip((leader, *others), ("a", "b", "c"), strict=True)
    ]
    for other in others:
        assert other.members == []
        assert other.leader == leader.member_id
        assert (other.protocol_type, other.protocol_name) == ("consumer", "range")


PREFERENCES = [
    pytest.param(["ab"], "a", id="alone"),
    pytest.param(["ab", "ba", "ba"], "b", id="majority"),
    pytest.param(["abc", "cb", "bc"], "b", id="only what all speak"),
    pytest.param(["ab", "ba"], "a", id="a tie goes to the first"),
    pytest.param(["aab", "ba", "ab"], "a", id="a name twice counts once"),
]


@pytest.mark.parametrize(("members", "chosen"), PREFERENCES)
def test_members_vote_for_the_protocol(members: list[str], chosen: str) -> None:
    live = Live()
    asked = [
        live.join_known(client_id=f"m{number}", protocols=dict.fromkeys(preferences, b""))
        for number, preferences in enumerate(members)
    ]
    live.wait(2 * DELAY_MS)
    assert [each.joined.protocol_name for each in asked] == [chosen] * len(members)


@pytest.mark.parametrize(
    ("protocol_type", "protocols"), [("consumer", {"sticky": b""}), ("connect", {"range": b""})]
)
def test_one_who_shares_no_protocol_with_the_group_cannot_join(
    protocol_type: str, protocols: dict[str, bytes]
) -> None:
    live = Live()
    live.stable("a")
    asked = live.join(protocol_type=protocol_type, protocols=protocols)
    assert asked.code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert live.state == "Stable"


@pytest.mark.parametrize(("protocol_type", "protocols"), [("", {"range": b""}), ("consumer", {})])
def test_the_first_member_must_speak_something(protocol_type: str, protocols: dict[str, bytes]) -> None:
    live = Live()
    asked = live.join(protocol_type=protocol_type, protocols=protocols)
    assert asked.code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert GROUP not in live.shard.state.groups


def test_a_group_needs_a_name() -> None:
    live = Live()
    assert live.join(group_id="").code is ErrorCode.INVALID_GROUP_ID
    assert live.sync("m", 1, group_id="").code is ErrorCode.INVALID_GROUP_ID
    assert live.heartbeat("m", 1, group_id="") is ErrorCode.INVALID_GROUP_ID


@pytest.mark.honours("group.min.session.timeout.ms")
@pytest.mark.honours("group.max.session.timeout.ms")
@pytest.mark.parametrize(
    ("timeout_ms", "code"),
    [
        (99, ErrorCode.INVALID_SESSION_TIMEOUT),
        (100, ErrorCode.MEMBER_ID_REQUIRED),
        (200, ErrorCode.MEMBER_ID_REQUIRED),
        (201, ErrorCode.INVALID_SESSION_TIMEOUT),
    ],
)
def test_a_session_timeout_must_be_within_the_broker_s_limits(timeout_ms: int, code: ErrorCode) -> None:
    live = Live({"group.min.session.timeout.ms": "100", "group.max.session.timeout.ms": "200"})
    assert live.join(session_timeout_ms=timeout_ms).code is code


@pytest.mark.honours("group.max.size")
def test_a_full_group_takes_nobody_else_until_somebody_leaves() -> None:
    live = Live({"group.max.size": "2"})
    one, _ = live.stable("a", "b")
    assert live.join(client_id="c").code is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert live.leave(one) == [NONE]
    assert live.join(client_id="c").code is ErrorCode.MEMBER_ID_REQUIRED


def test_when_the_limit_was_lowered_the_last_to_come_back_find_no_room() -> None:
    live = Live({"group.max.size": "3"})
    ids = live.stable("a", "b", "c")
    live.around = Live({"group.max.size": "2"}).around
    live.reload()
    assert live.state == "PreparingRebalance"
    assert live.join(ids[0]).is_parked
    assert live.join(ids[1]).is_parked
    last = live.join(ids[2])
    assert last.code is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert live.state == "CompletingRebalance"
    assert sorted(live.group().members) == sorted(ids[:2])


def test_a_join_that_is_repeated_takes_the_place_of_the_first() -> None:
    live = Live()
    asked = live.join_known()
    member_id = next(iter(live.group().members))
    again = live.join(member_id)
    assert asked.code is ErrorCode.REBALANCE_IN_PROGRESS
    live.wait(2 * DELAY_MS)
    assert again.joined.generation_id == 1


def test_new_members_whose_join_is_parked_for_too_long_are_let_go() -> None:
    live = Live()
    live.stable("a", rebalance_timeout_ms=600_000, session_timeout_ms=1_000_000)
    newcomer = live.join_known(client_id="b", rebalance_timeout_ms=600_000)
    live.wait(299_999)
    assert newcomer.is_parked
    live.wait(1)
    assert newcomer.code is ErrorCode.UNKNOWN_MEMBER_ID
    assert newcomer.joined.member_id == ""
    assert live.state == "PreparingRebalance", "the first member has still to join again"


# -------------------------------------------------------------------------------------- joining again


def test_a_follower_that_changes_nothing_disturbs_nobody() -> None:
    live = Live()
    _, follower = live.stable("a", "b")
    again = live.join(follower)
    assert (again.joined.error_code, again.joined.generation_id, again.joined.members) == (NONE, 1, [])
    assert live.state == "Stable"
    assert live.sync(follower, 1).synced.assignment == follower.encode()


def test_a_leader_that_joins_again_has_everybody_join_again() -> None:
    live = Live()
    leader, follower = live.stable("a", "b")
    again = live.join(leader)
    assert again.is_parked
    assert live.heartbeat(follower, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    live.join(follower)
    assert again.joined.generation_id == 2
    assert len(again.joined.members) == 2


def test_a_follower_with_another_subscription_has_everybody_join_again() -> None:
    live = Live()
    leader, follower = live.stable("a", "b")
    again = live.join(follower, protocols={"range": subscription("u")})
    assert again.is_parked
    assert live.heartbeat(leader, 1) is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_join_that_is_repeated_while_the_assignment_is_awaited_gets_the_same_answer() -> None:
    live = Live()
    asked = [live.join_known(client_id=name) for name in "ab"]
    live.wait(2 * DELAY_MS)
    for each in asked:
        again = live.join(each.joined.member_id)
        assert again.joined == each.joined
    assert live.state == "CompletingRebalance"


def test_who_does_not_join_again_in_time_is_left_behind() -> None:
    live = Live()
    ids = live.stable("a", "b", "c", rebalance_timeout_ms=20_000, session_timeout_ms=60_000)
    asked = live.join(ids[1], protocols={"range": subscription("u")}, rebalance_timeout_ms=20_000)
    live.wait(19_999)
    assert asked.is_parked
    live.wait(1)
    assert asked.joined.generation_id == 2
    assert asked.joined.leader == ids[1], "the leader was left behind"
    assert list(live.group().members) == [ids[1]]
    assert live.heartbeat(ids[0], 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_rebalance_waits_for_those_who_were_only_given_an_id() -> None:
    live = Live()
    (leader,) = live.stable("a", session_timeout_ms=60_000)
    given = live.join(client_id="b", session_timeout_ms=10_000).joined.member_id
    again = live.join(leader, session_timeout_ms=60_000)
    assert again.is_parked
    live.wait(10_000)
    assert again.joined.generation_id == 2
    assert live.join(given).code is ErrorCode.UNKNOWN_MEMBER_ID


# ------------------------------------------------------------------------------------------- the assignment


def test_all_wait_for_the_leader_s_assignment_and_those_without_one_get_nothing() -> None:
    live = Live()
    asked = [live.join_known(client_id=name) for name in "abc"]
    live.wait(2 * DELAY_MS)
    leader, second, third = (each.joined.member_id for each in asked)
    waiting = live.sync(second, 1)
    assert waiting.is_parked
    assert live.heartbeat(second, 1) is NONE
    assert live.sync(leader, 1, {leader: b"1", second: b"2"}).synced.assignment == b"1"
    assert waiting.synced.assignment == b"2"
    assert (waiting.synced.protocol_type, waiting.synced.protocol_name) == ("consumer", "range")
    late = live.sync(third, 1).synced
    assert (late.error_code, late.assignment) == (NONE, b"")
    assert live.state == "Stable"


@pytest.mark.parametrize(
    ("member", "generation", "options", "code"),
    [
        ("leader", 2, {}, ErrorCode.ILLEGAL_GENERATION),
        ("leader", 0, {}, ErrorCode.ILLEGAL_GENERATION),
        ("stranger", 1, {}, ErrorCode.UNKNOWN_MEMBER_ID),
        ("leader", 1, {"instance_id": "x"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ("leader", 1, {"protocol_type": "connect"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ("leader", 1, {"protocol_name": "sticky"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ("leader", 1, {"group_id": "other"}, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_a_sync_that_does_not_fit_the_generation_is_refused(
    member: str, generation: int, options: dict[str, str], code: ErrorCode
) -> None:
    live = Live()
    asked = live.join_known()
    live.wait(DELAY_MS)
    member_id = asked.joined.member_id if member == "leader" else member
    assert live.sync(member_id, generation, **options).code is code  # type: ignore[arg-type]


def test_a_sync_while_others_are_joining_has_to_wait_for_the_next_generation() -> None:
    live = Live()
    leader, follower = live.stable("a", "b")
    live.join(leader)
    assert live.sync(follower, 1).code is ErrorCode.REBALANCE_IN_PROGRESS


def test_when_the_leader_goes_before_it_has_assigned_those_who_wait_join_again() -> None:
    live = Live()
    asked = [live.join_known(client_id=name, session_timeout_ms=10_000) for name in "ab"]
    live.wait(2 * DELAY_MS)
    leader, follower = (each.joined.member_id for each in asked)
    waiting = live.sync(follower, 1)
    live.wait(10_000)
    assert waiting.code is ErrorCode.REBALANCE_IN_PROGRESS
    assert leader not in live.group().members
    again = live.join(follower)
    assert again.joined.leader == follower
    assert again.joined.generation_id == 2


def test_who_never_asks_for_its_assignment_is_let_go_although_it_is_alive() -> None:
    live = Live()
    asked = [live.join_known(client_id=name, rebalance_timeout_ms=20_000) for name in "ab"]
    live.wait(2 * DELAY_MS)
    leader, follower = (each.joined.member_id for each in asked)
    assert live.sync(leader, 1, {leader: b"1"}).synced.error_code == NONE
    for _ in range(4):
        assert live.heartbeat(leader, 1) is NONE
        assert live.heartbeat(follower, 1) is NONE
        live.wait(5_000)
    assert follower not in live.group().members
    assert live.state == "PreparingRebalance"


def test_an_assignment_too_large_for_the_log_fails_and_the_group_goes_on() -> None:
    live = Live()
    live.batch_bytes_max = 10_000
    asked = [live.join_known(client_id=name) for name in "ab"]
    live.wait(2 * DELAY_MS)
    leader, follower = (each.joined.member_id for each in asked)
    waiting = live.sync(follower, 1)
    assert live.sync(leader, 1, {leader: bytes(10_000)}).code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert waiting.code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert live.state == "PreparingRebalance"
    assert live.log == []


def test_the_generation_is_written_once_its_assignment_is_there() -> None:
    live = Live()
    asked = live.join_known(protocols={"range": b"meta"}, session_timeout_ms=7_000)
    live.wait(DELAY_MS)
    assert live.log == []
    member_id = asked.joined.member_id
    live.sync(member_id, 1, {member_id: b"mine"})
    (record,) = live.log
    value = record.value
    assert isinstance(value, GroupMetadataValue)
    assert (value.protocol_type, value.generation, value.protocol) == ("consumer", 1, "range")
    assert value.leader == member_id
    (member,) = value.members
    assert (member.member_id, member.client_id, member.client_host) == (member_id, "ada", "/127.0.0.1")
    assert (member.session_timeout, member.rebalance_timeout) == (7_000, 60_000)
    assert (member.subscription, member.assignment) == (b"meta", b"mine")


# -------------------------------------------------------------------------------- heartbeats and sessions


def test_a_heartbeat_keeps_a_member_and_its_silence_ends_it() -> None:
    live = Live()
    (member,) = live.stable("a", session_timeout_ms=10_000)
    for _ in range(5):
        live.wait(9_999)
        assert live.heartbeat(member, 1) is NONE
    live.wait(10_000)
    assert live.heartbeat(member, 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert live.state == "Empty"
    assert live.group().generation == 2


def test_a_heartbeat_of_another_generation_or_of_a_stranger_is_refused() -> None:
    live = Live()
    (member,) = live.stable("a")
    assert live.heartbeat(member, 2) is ErrorCode.ILLEGAL_GENERATION
    assert live.heartbeat("stranger", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert live.heartbeat(member, 1, group_id="other") is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_heartbeat_while_the_group_rebalances_says_so_and_keeps_the_member() -> None:
    live = Live()
    leader, follower = live.stable("a", "b", session_timeout_ms=10_000)
    live.join(leader)
    for _ in range(4):
        live.wait(9_000)
        assert live.heartbeat(follower, 1) is ErrorCode.REBALANCE_IN_PROGRESS


def test_members_whose_requests_are_parked_need_not_be_heard_of() -> None:
    live = Live()
    leader, follower = live.stable("a", "b", session_timeout_ms=10_000, rebalance_timeout_ms=60_000)
    parked = live.join(leader, session_timeout_ms=10_000)
    for _ in range(3):
        live.wait(9_000)
        live.heartbeat(follower, 1)
    assert parked.is_parked
    live.join(follower)
    assert parked.joined.generation_id == 2
    live.wait(10_000)
    assert live.state == "Empty", "from then on they do"


# ------------------------------------------------------------------------------------------------ leaving


def test_when_a_member_leaves_the_others_join_again() -> None:
    live = Live()
    leader, follower = live.stable("a", "b")
    assert live.leave(leader) == [NONE]
    assert live.heartbeat(follower, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    again = live.join(follower)
    assert again.joined.leader == follower
    assert [each.member_id for each in again.joined.members] == [follower]


def test_several_may_leave_at_once_each_with_an_outcome_of_its_own() -> None:
    live = Live()
    a, b = live.stable("a", "b")
    assert live.leave(a, "stranger", b, ("", "nobody")) == [
        NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
        NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
    ]
    assert live.state == "Empty"
    assert live.leave(a, group_id="other") == [ErrorCode.UNKNOWN_MEMBER_ID]


@pytest.mark.parametrize("version", [0, 1, 2])
def test_older_clients_leave_one_by_one(version: int) -> None:
    live = Live()
    (member,) = live.stable("a")
    leave = LeaveGroupRequest(group_id=GROUP, member_id=member)
    assert live.ask(leave, version=version).reply(LeaveGroupResponse).error_code == NONE
    again = live.ask(leave, version=version).reply(LeaveGroupResponse)
    assert (again.error_code, again.members) == (ErrorCode.UNKNOWN_MEMBER_ID, [])


def test_one_who_was_only_given_an_id_may_leave_too() -> None:
    live = Live()
    given = live.join().joined.member_id
    assert live.leave(given) == [NONE]
    assert GROUP not in live.shard.state.groups


def test_one_who_leaves_while_its_join_is_parked_is_answered() -> None:
    live = Live()
    asked = live.join_known()
    (member,) = live.group().members
    assert live.leave(member) == [NONE]
    assert asked.code is ErrorCode.UNKNOWN_MEMBER_ID


def test_the_last_to_leave_leaves_an_empty_group_that_remembers_its_generation() -> None:
    live = Live()
    (member,) = live.stable("a")
    live.leave(member)
    assert live.state == "Empty"
    value = live.log[-1].value
    assert isinstance(value, GroupMetadataValue)
    assert (value.generation, value.members, value.protocol, value.leader) == (2, [], None, None)
    live.reload()
    asked = live.join_known()
    live.wait(DELAY_MS)
    assert asked.joined.generation_id == 3


# ----------------------------------------------------------------------------------------- static members


def test_a_static_member_gets_its_id_at_once_and_it_begins_with_its_name() -> None:
    live = Live()
    asked = live.join(instance_id="ada-1")
    assert asked.is_parked
    live.wait(DELAY_MS)
    assert asked.joined.member_id.startswith("ada-1-")


def test_a_static_member_that_is_back_changes_nothing_but_its_id() -> None:
    live = Live()
    leader = live.join(instance_id="one")
    follower = live.join(instance_id="two")
    live.wait(2 * DELAY_MS)
    ids = [leader.joined.member_id, follower.joined.member_id]
    live.assign(ids)
    back = live.join(instance_id="two")
    assert (back.joined.error_code, back.joined.generation_id) == (NONE, 1)
    new_id = back.joined.member_id
    assert new_id != ids[1]
    assert back.joined.leader == ids[0]
    assert back.joined.skip_assignment is False
    assert live.heartbeat(ids[0], 1, instance_id="one") is NONE
    assert live.sync(new_id, 1, instance_id="two").synced.assignment == ids[1].encode()
    live.reload()
    assert live.sync(new_id, 1, instance_id="two").synced.assignment == ids[1].encode()


@pytest.mark.parametrize("version", [8, 9])
def test_a_static_leader_that_is_back_must_not_assign_again(version: int) -> None:
    live = Live()
    asked = live.join(instance_id="one")
    live.wait(DELAY_MS)
    old_id = asked.joined.member_id
    live.assign([old_id])
    back = live.join(instance_id="one", version=version).joined
    assert back.error_code == NONE
    if version >= 9:
        assert (back.leader, back.skip_assignment) == (back.member_id, True)
        assert [each.member_id for each in back.members] == [back.member_id]
    else:
        # It would assign if it knew, and the others would not join to hear of it.
        assert (back.leader, back.skip_assignment, back.members) == (old_id, False, [])
    assert live.group().leader_id == back.member_id


def test_what_is_left_of_a_static_member_is_fenced() -> None:
    live = Live()
    asked = live.join(instance_id="one")
    live.wait(DELAY_MS)
    old_id = asked.joined.member_id
    live.assign([old_id])
    live.join(instance_id="one")
    fenced = ErrorCode.FENCED_INSTANCE_ID
    assert live.heartbeat(old_id, 1, instance_id="one") is fenced
    assert live.sync(old_id, 1, instance_id="one").code is fenced
    assert live.join(old_id, instance_id="one").code is fenced
    assert live.leave((old_id, "one")) == [fenced]
    assert live.commit({("t", 0): 1}, member_id=old_id, generation=1, instance_id="one") is fenced
    assert live.heartbeat(old_id, 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_parked_request_of_a_static_member_is_fenced_when_it_comes_again() -> None:
    live = Live()
    first = live.join(instance_id="one")
    second = live.join(instance_id="one")
    assert first.code is ErrorCode.FENCED_INSTANCE_ID
    live.wait(DELAY_MS)
    assert second.joined.generation_id == 1
    live.join_known(client_id="b")
    third = live.join(second.joined.member_id, instance_id="one")
    assert third.joined.generation_id == 2
    parked = live.sync(second.joined.member_id, 2, instance_id="one")
    assert live.group().leader_id == second.joined.member_id
    assert not parked.is_parked


def test_a_static_member_that_is_back_during_the_assignment_has_all_join_again() -> None:
    live = Live()
    one, two = live.join(instance_id="one"), live.join(instance_id="two")
    live.wait(2 * DELAY_MS)
    waiting = live.sync(two.joined.member_id, 1, instance_id="two")
    back = live.join(instance_id="two")
    assert waiting.code is ErrorCode.FENCED_INSTANCE_ID
    assert back.is_parked
    assert live.heartbeat(one.joined.member_id, 1, instance_id="one") is ErrorCode.REBALANCE_IN_PROGRESS
    live.join(one.joined.member_id, instance_id="one")
    assert back.joined.generation_id == 2


def test_a_static_member_that_is_back_with_other_protocols_may_change_the_vote() -> None:
    live = Live()
    one = live.join(instance_id="one", protocols={"a": b"", "b": b""})
    live.wait(DELAY_MS)
    member_id = one.joined.member_id
    live.sync(member_id, 1, {member_id: b"x"}, instance_id="one", protocol_name="a")
    assert live.state == "Stable"
    back = live.join(instance_id="one", protocols={"b": b""})
    assert back.joined.generation_id == 2
    assert back.joined.protocol_name == "b"


def test_static_members_stay_until_their_session_ends_though_they_do_not_join_again() -> None:
    live = Live()
    one = live.join(instance_id="one", session_timeout_ms=100_000, rebalance_timeout_ms=20_000)
    two = live.join(instance_id="two", session_timeout_ms=100_000, rebalance_timeout_ms=20_000)
    live.wait(2 * DELAY_MS)
    ids = [one.joined.member_id, two.joined.member_id]
    live.assign(ids)
    again = live.join(ids[0], instance_id="one", session_timeout_ms=100_000, rebalance_timeout_ms=20_000)
    live.wait(20_000)
    assert again.joined.generation_id == 2
    assert len(again.joined.members) == 2


def test_when_no_static_member_joins_again_the_group_waits_until_they_expire() -> None:
    live = Live()
    one = live.join(instance_id="one", session_timeout_ms=50_000, rebalance_timeout_ms=20_000)
    dynamic = live.join_known(session_timeout_ms=50_000, rebalance_timeout_ms=20_000)
    live.wait(2 * DELAY_MS)
    ids = [one.joined.member_id, dynamic.joined.member_id]
    live.assign(ids)
    live.leave(ids[1])
    live.wait(20_000)
    assert live.state == "PreparingRebalance"
    assert list(live.group().members) == [ids[0]]
    live.wait(30_000)
    assert live.state == "Empty"


def test_an_admin_may_remove_a_static_member_by_its_name() -> None:
    live = Live()
    one = live.join(instance_id="one")
    live.wait(DELAY_MS)
    live.assign([one.joined.member_id])
    assert live.leave(("", "one")) == [NONE]
    assert live.state == "Empty"


# -------------------------------------------------------------------------------- when a broker takes over


def test_members_go_on_after_a_failover_as_if_nothing_had_been() -> None:
    live = Live()
    leader, follower = live.stable("a", "b")
    live.reload()
    assert live.state == "Stable"
    assert live.heartbeat(leader, 1) is NONE
    assert live.join(follower).joined.generation_id == 1
    assert live.sync(follower, 1).synced.assignment == follower.encode()
    assert live.commit({("t", 0): 5}, member_id=leader, generation=1) is NONE


def test_members_that_are_not_heard_of_after_a_failover_expire() -> None:
    live = Live()
    live.stable("a", "b", session_timeout_ms=10_000)
    live.reload()
    live.wait(10_000)
    assert live.state == "Empty"


def test_a_failover_in_the_middle_of_a_rebalance_brings_the_last_generation_back() -> None:
    live = Live()
    leader, follower = live.stable("a", "b")
    live.join(leader)
    live.join(follower)
    assert live.group().generation == 2
    live.reload()
    assert live.group().generation == 1
    assert live.heartbeat(leader, 2) is ErrorCode.ILLEGAL_GENERATION
    assert live.heartbeat(leader, 1) is NONE


def test_what_members_tell_one_another_is_passed_on_byte_by_byte() -> None:
    """Cooperative assignors put owned partitions and generations there (KIP-429)."""
    live = Live()
    said = {"cooperative-sticky": bytes(range(256)), "range": b"\xff\xfe"}
    asked = live.join_known(protocols=said)
    live.wait(DELAY_MS)
    (member,) = asked.joined.members
    assert member.metadata == said["cooperative-sticky"]
    member_id = asked.joined.member_id
    reply = live.sync(
        member_id, 1, {member_id: bytes(reversed(range(256)))}, protocol_name="cooperative-sticky"
    )
    assert reply.synced.assignment == bytes(reversed(range(256)))
    again = live.join(member_id, protocols=said)
    live.wait(0)
    assert again.joined.generation_id == 2, "the follow-up rebalance begins at once"
