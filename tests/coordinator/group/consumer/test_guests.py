"""Classic members of a consumer group: joined, synced and told to come again."""

import pytest
from coordinator.group.consumer.classics import Classic, subscription
from coordinator.group.consumer.consumers import Consumer, Consumers

from moldau.coordinator.group.consumer.member import MemberState
from moldau.model.errors import ErrorCode
from moldau.wire.messages.groups import LeaveGroupRequest, LeaveGroupResponse


def rest(*members: Consumer | Classic) -> None:
    """Let all go on until nothing changes any more."""
    for _ in range(12):
        before = [each.progress for each in members]
        for each in members:
            if isinstance(each, Classic):
                each.go_on()
            else:
                each.beat()
        if [each.progress for each in members] == before:
            return
    raise AssertionError("they do not come to rest")


@pytest.mark.behaviour(66)
@pytest.mark.parametrize("is_cooperative", [False, True])
def test_a_classic_member_joins_a_consumer_group_and_gets_its_share(is_cooperative: bool) -> None:
    group = Consumers({"t": 4})
    a = Consumer(group, "a", "t").join()
    c = Classic(group, "t", is_cooperative=is_cooperative).join()
    assert c.names == []
    rest(a, c)
    assert len(a.names) == len(c.names) == 2
    assert sorted(a.names + c.names) == ["t0", "t1", "t2", "t3"]
    assert group.state == "Stable"
    assert group.member(c.member_id).is_classic


def test_a_classic_member_is_asked_for_a_member_id_first() -> None:
    group = Consumers()
    Consumer(group, "a", "t").join()
    asked = group.join(protocols={"range": subscription(("t",), [])})
    assert asked.code is ErrorCode.MEMBER_ID_REQUIRED
    assert list(group.consumers.members) == ["a"]
    # Before version 4 nobody knew of that.
    assert group.join(protocols={"range": subscription(("t",), [])}, version=3).code is ErrorCode.NONE


@pytest.mark.parametrize("is_cooperative", [False, True])
def test_a_classic_member_gives_up_before_anybody_else_gets_it(is_cooperative: bool) -> None:
    group = Consumers({"t": 4})
    a = Consumer(group, "a", "t").join()
    c = Classic(group, "t", is_cooperative=is_cooperative).join()
    rest(a, c)
    had = set(c.names)
    b = Consumer(group, "b", "t").join()
    a.beat()
    a.beat()
    b.beat()
    assert not had & {*a.names, *b.names}
    assert c.beat() is ErrorCode.REBALANCE_IN_PROGRESS
    rest(a, b, c)
    assert sorted(a.names + b.names + c.names) == ["t0", "t1", "t2", "t3"]


def test_a_cooperative_member_goes_on_reading_what_it_keeps() -> None:
    group = Consumers({"t": 6})
    a = Consumer(group, "a", "t").join()
    c = Classic(group, "t", is_cooperative=True).join()
    rest(a, c)
    kept = set(c.names)
    b = Consumer(group, "b", "t").join()
    for _ in range(6):
        a.beat()
        b.beat()
        c.go_on()
        assert len(kept & set(c.names)) >= 1
    assert set(c.names) < kept


def test_a_classic_member_waits_for_what_others_have_and_is_told_when_all_of_it_is_free() -> None:
    group = Consumers({"t": 4})
    a = Consumer(group, "a", "t").join()
    c = Classic(group, "t").join()
    assert group.member(c.member_id).current.state is MemberState.UNRELEASED_PARTITIONS
    assert c.beat() is ErrorCode.NONE
    a.beat()
    assert c.beat() is ErrorCode.NONE
    a.beat()
    assert c.beat() is ErrorCode.REBALANCE_IN_PROGRESS
    assert c.join().names == ["t2", "t3"]


def test_who_is_told_to_join_and_does_not_is_cast_out_after_the_rebalance_timeout() -> None:
    group = Consumers({"t": 4})
    a = Consumer(group, "a", "t").join()
    c = Classic(group, "t").join()
    rest(a, c)
    b = Consumer(group, "b", "t").join()
    a.beat()
    assert c.beat() is ErrorCode.REBALANCE_IN_PROGRESS
    for _ in range(12):
        group.wait(5_000)
        a.beat()
        b.beat()
        if c.member_id in group.consumers.members:
            group.heartbeat(c.member_id, c.generation)
    assert list(group.consumers.members) == ["a", "b"]
    assert "did not join again" in group.why()[-1]


def test_who_joins_and_does_not_sync_is_cast_out_after_the_rebalance_timeout() -> None:
    group = Consumers({"t": 4})
    a = Consumer(group, "a", "t").join()
    c = Classic(group, "t")
    c.taken_in(c.ask_join())
    for _ in range(12):
        group.wait(5_000)
        a.beat()
        if c.member_id in group.consumers.members:
            group.heartbeat(c.member_id, c.generation)
    assert list(group.consumers.members) == ["a"]
    assert "did not ask for its assignment" in group.why()[-1]


def test_a_classic_member_has_the_session_timeout_that_it_asked_for() -> None:
    group = Consumers({"t": 4})
    a = Consumer(group, "a", "t").join()
    c = Classic(group, "t").join()
    group.wait(9_999)
    assert c.beat() is ErrorCode.NONE
    group.wait(10_000)
    assert list(group.consumers.members) == ["a"]
    assert c.beat() is ErrorCode.UNKNOWN_MEMBER_ID
    a.beat()


def test_the_sessions_of_classic_members_begin_anew_after_a_failover() -> None:
    group = Consumers({"t": 4})
    a = Consumer(group, "a", "t").join()
    c = Classic(group, "t").join()
    group.reload()
    assert c.beat() is ErrorCode.NONE
    group.wait(10_000)
    assert list(group.consumers.members) == ["a"]
    a.beat()


REFUSALS: dict[str, tuple[ErrorCode, dict[str, object]]] = {
    "another generation": (ErrorCode.ILLEGAL_GENERATION, {"generation": 77}),
    "somebody unknown": (ErrorCode.UNKNOWN_MEMBER_ID, {"member_id": "x"}),
    "a member with an epoch": (ErrorCode.UNKNOWN_MEMBER_ID, {"member_id": "a"}),
    "an instance that is somebody else's": (ErrorCode.FENCED_INSTANCE_ID, {"instance_id": "one"}),
    "an instance that nobody has": (ErrorCode.UNKNOWN_MEMBER_ID, {"instance_id": "none"}),
}


@pytest.mark.parametrize("what", REFUSALS)
@pytest.mark.parametrize("request_kind", ["sync", "heartbeat"])
def test_refusals_of_syncs_and_heartbeats(what: str, request_kind: str) -> None:
    group = Consumers()
    Consumer(group, "a", "t", instance="one").join()
    c = Classic(group, "t").join()
    code, changed = REFUSALS[what]
    said: dict[str, object] = {"member_id": c.member_id, "generation": c.generation} | changed
    if request_kind == "sync":
        assert group.sync(**said).code is code  # type: ignore[arg-type]
    else:
        assert group.heartbeat(**said) is code  # type: ignore[arg-type]


@pytest.mark.parametrize(("type_", "name"), [("connect", "range"), ("consumer", "sticky")])
def test_a_sync_under_another_protocol_is_refused(type_: str, name: str) -> None:
    group = Consumers()
    Consumer(group, "a", "t").join()
    c = Classic(group, "t").join()
    asked = group.sync(c.member_id, c.generation, protocol_type=type_, protocol_name=name)
    assert asked.code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_a_sync_before_a_newer_target_is_to_join_again() -> None:
    group = Consumers({"t": 4})
    Consumer(group, "a", "t").join()
    c = Classic(group, "t")
    c.taken_in(c.ask_join())
    Consumer(group, "b", "t").join()
    assert c.sync() is ErrorCode.REBALANCE_IN_PROGRESS


@pytest.mark.parametrize(
    ("protocol_type", "protocols"),
    [
        ("connect", {"range": subscription(("t",), [])}),
        ("consumer", {"sticky": subscription(("t",), [])}),
        ("consumer", {"range": b"?"}),
        ("consumer", {"range": b"\xff\xff" + subscription(("t",), [])[2:]}),
        ("consumer", {}),
    ],
)
def test_who_speaks_another_protocol_than_the_other_classic_members_is_refused(
    protocol_type: str, protocols: dict[str, bytes]
) -> None:
    group = Consumers()
    Consumer(group, "a", "t").join()
    Classic(group, "t").join()
    asked = group.join("m", protocol_type=protocol_type, protocols=protocols)
    assert asked.code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert "m" not in group.consumers.members


def test_a_full_group_takes_no_classic_member_either() -> None:
    group = Consumers(group_consumer_max_size="1")
    Consumer(group, "a", "t").join()
    assert Classic(group, "t").ask_join().code is ErrorCode.GROUP_MAX_SIZE_REACHED


def test_a_classic_member_leaves_or_is_made_to() -> None:
    group = Consumers({"t": 4})
    a = Consumer(group, "a", "t").join()
    c = Classic(group, "t").join()
    d = Classic(group, "t", instance="two").join()
    assert group.leave(c.member_id, ("", "two"), "x", ("", "three"), ("y", "two")) == [
        ErrorCode.NONE,
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_INSTANCE_ID,
    ]
    assert list(group.consumers.members) == ["a"]
    assert d.beat() is ErrorCode.UNKNOWN_MEMBER_ID
    assert len(a.beat().names) == 4


def test_leaving_alone_in_an_old_version() -> None:
    group = Consumers()
    Consumer(group, "a", "t").join()
    c = Classic(group, "t").join()
    request = LeaveGroupRequest(group_id="orders", member_id=c.member_id)
    assert group.ask(request, version=2).reply(LeaveGroupResponse).error_code == ErrorCode.NONE
    assert group.ask(request, version=2).reply(LeaveGroupResponse).error_code == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.behaviour(66)
def test_commits_of_classic_members_hold_for_their_generation() -> None:
    group = Consumers({"t": 4})
    a = Consumer(group, "a", "t").join()
    c = Classic(group, "t").join()
    rest(a, c)
    partition = c.owned[0]
    said = {"member_id": c.member_id, "version": 8}
    assert group.commit({partition: 1}, generation=c.generation, **said) is ErrorCode.NONE  # type: ignore[arg-type]
    for generation in (c.generation - 1, c.generation + 1):
        code = group.commit({partition: 1}, generation=generation, **said)  # type: ignore[arg-type]
        assert code is ErrorCode.ILLEGAL_GENERATION


def test_a_static_classic_member_comes_back_to_what_it_had() -> None:
    group = Consumers({"t": 4})
    a = Consumer(group, "a", "t").join()
    c = Classic(group, "t", instance="two").join()
    rest(a, c)
    epoch = group.consumers.epoch
    again = Classic(group, "t", instance="two").join()
    assert (again.names, again.member_id != c.member_id) == (c.names, True)
    assert group.consumers.epoch == epoch
    assert c.beat() is ErrorCode.FENCED_INSTANCE_ID


def test_a_classic_member_may_come_back_as_one_with_epochs() -> None:
    group = Consumers({"t": 4})
    a = Consumer(group, "a", "t").join()
    c = Classic(group, "t", instance="two").join()
    rest(a, c)
    again = Consumer(group, "c2", "t", instance="two").join()
    assert again.names == c.names
    assert group.consumers.classic_count == 0
    assert c.beat() is ErrorCode.FENCED_INSTANCE_ID


def test_a_join_over_a_connection_that_the_member_gave_up_says_nothing() -> None:
    group = Consumers({"t": 2})
    a = Consumer(group, "a", "t").join()
    c = Classic(group, "t").join()
    rest(a, c)
    group.shard.consumer.roster.sessions.heard_over("orders", c.member_id, 9)
    assert c.ask_join().code is ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_a_member_that_was_cast_out_and_still_reads_is_not_taken_for_a_new_one() -> None:
    group = Consumers({"t": 4})
    a = Consumer(group, "a", "t").join()
    c = Classic(group, "t", is_cooperative=True).join()
    rest(a, c)
    group.wait(10_000)
    assert list(group.consumers.members) == ["a"]
    assert c.ask_join().code is ErrorCode.UNKNOWN_MEMBER_ID
    c.lose()
    rest(a, c)
    assert sorted(a.names + c.names) == ["t0", "t1", "t2", "t3"]
