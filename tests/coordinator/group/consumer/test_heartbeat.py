"""What a heartbeat does: joining, staying, confirming, leaving, and every way to be refused."""

import pytest
from coordinator.group.consumer.consumers import REBALANCE_TIMEOUT_MS, Consumer, Consumers, settle
from coordinator.group.live import GROUP

from moldau.coordinator.group.consumer.member import MemberState
from moldau.model.errors import ErrorCode
from moldau.wire.messages.consumer_groups import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse

FULL: dict[str, object] = {"topics": ["t"], "owned": [], "rebalance_timeout_ms": REBALANCE_TIMEOUT_MS}


# --------------------------------------------------------------------------------------- joining, staying


@pytest.mark.behaviour(62)
def test_the_first_member_gets_everything_at_once() -> None:
    group = Consumers({"t": 3})
    reply = group.enter("a").reply(ConsumerGroupHeartbeatResponse)
    assert (reply.member_id, reply.member_epoch, reply.heartbeat_interval_ms) == ("a", 2, 5000)
    assert reply.assignment is not None
    assert [each.partitions for each in reply.assignment.topic_partitions] == [[0, 1, 2]]
    assert group.state == "Stable"


@pytest.mark.behaviour(62)
def test_a_member_without_an_id_is_given_one_up_to_version_0() -> None:
    group = Consumers()
    given = group.enter("", version=0).reply(ConsumerGroupHeartbeatResponse).member_id
    assert given and group.has(given)


def test_a_heartbeat_that_changes_nothing_writes_nothing_and_brings_no_assignment() -> None:
    group = Consumers()
    a = Consumer(group, "a", "t").join()
    written = len(group.log)
    reply = group.beat("a", a.epoch).reply(ConsumerGroupHeartbeatResponse)
    assert (reply.member_epoch, reply.assignment, len(group.log)) == (2, None, written)


@pytest.mark.behaviour(62)
def test_a_member_that_says_everything_hears_everything() -> None:
    group = Consumers()
    a = Consumer(group, "a", "t").join()
    reply = a.ask_full().reply(ConsumerGroupHeartbeatResponse)
    assert reply.assignment is not None


@pytest.mark.behaviour(62)
def test_what_a_heartbeat_does_not_say_has_not_changed() -> None:
    group = Consumers()
    asked = group.enter("a", rack="a", assignor="range")
    said = group.member("a").subscription
    group.beat("a", asked.reply(ConsumerGroupHeartbeatResponse).member_epoch)
    assert group.member("a").subscription == said
    assert (said.rack_id, said.assignor, said.rebalance_timeout_ms) == ("a", "range", REBALANCE_TIMEOUT_MS)


def test_a_member_without_topics_is_in_the_group() -> None:
    group = Consumers()
    a = Consumer(group, "a").join()
    assert (a.names, group.state) == ([], "Stable")


def test_a_topic_that_does_not_exist_yet_is_read_when_it_does() -> None:
    group = Consumers({})
    a = Consumer(group, "a", "new").join()
    assert a.names == []
    group.create("new", 2)
    assert a.beat().names == ["new0", "new1"]
    assert group.why() == ["a joined", "topics were created, deleted or changed"]


def test_new_partitions_are_read() -> None:
    group = Consumers({"t": 1})
    a = Consumer(group, "a", "t").join()
    group.grow("t", 3)
    assert a.beat().names == ["t0", "t1", "t2"]


def test_a_deleted_topic_is_given_up() -> None:
    group = Consumers({"t": 1, "u": 1})
    a = Consumer(group, "a", "t", "u").join()
    group.delete("u")
    assert a.beat().names == ["t0"]
    settle(a)
    assert group.state == "Stable"


def test_another_leader_of_a_partition_is_no_reason_to_assign_anew() -> None:
    group = Consumers()
    a = Consumer(group, "a", "t").join()
    group.change()
    written = len(group.log)
    a.beat()
    assert len(group.log) == written


def test_groups_of_other_topics_are_left_alone() -> None:
    group = Consumers()
    a = Consumer(group, "a", "t").join()
    group.create("other", 3)
    written = len(group.log)
    a.beat()
    assert len(group.log) == written


# ------------------------------------------------------------------------------------------- handing over


@pytest.mark.behaviour(63)
def test_a_partition_is_handed_over_only_when_its_owner_has_given_it_up() -> None:
    group = Consumers({"t": 2})
    a = Consumer(group, "a", "t").join()
    b = Consumer(group, "b", "t").join()
    assert b.names == []
    a.beat(gives_up=False)
    assert group.member("a").current.state is MemberState.UNREVOKED_PARTITIONS
    b.beat()
    assert b.names == []
    assert group.member("b").current.state is MemberState.UNRELEASED_PARTITIONS
    # It says nothing, so that it has confirmed nothing.
    a.beat(gives_up=False)
    assert b.beat().names == []
    group.beat("a", a.epoch, owned=[("t", 0)])
    assert b.beat().names == ["t1"]
    assert (group.has("a"), group.state) == (["t0"], "Stable")


@pytest.mark.behaviour(63)
def test_a_member_that_gives_up_stays_in_its_epoch_until_it_has() -> None:
    group = Consumers({"t": 2})
    a = Consumer(group, "a", "t").join()
    Consumer(group, "b", "t").join()
    assert a.beat().epoch == 2
    assert a.beat().epoch == 3


@pytest.mark.behaviour(63)
def test_a_member_that_still_has_what_it_is_to_give_up_is_told_again_and_no_more() -> None:
    group = Consumers({"t": 2})
    a = Consumer(group, "a", "t").join()
    Consumer(group, "b", "t").join()
    a.beat(gives_up=False)
    written = len(group.log)
    group.beat("a", a.epoch, owned=[("t", 0), ("t", 1)])
    assert len(group.log) == written


def test_a_partition_given_back_while_it_was_to_be_given_up_has_one_owner_all_the_time() -> None:
    group = Consumers({"t": 2})
    a = Consumer(group, "a", "t").join()
    b = Consumer(group, "b", "t").join()
    a.beat()
    b.leave()
    a.beat()
    assert a.names == ["t0", "t1"]
    c = Consumer(group, "c", "t").join()
    assert (c.names, group.member("c").current.state) == ([], MemberState.UNRELEASED_PARTITIONS)


def test_a_member_that_wants_no_topic_any_more_gives_all_up() -> None:
    group = Consumers({"t": 2, "u": 2})
    a = Consumer(group, "a", "t").join()
    b = Consumer(group, "b", "t", "u").join()
    settle(a, b)
    a.subscribe("u")
    assert not [name for name in a.names if name.startswith("t")]
    settle(a, b)
    assert sorted(a.names + b.names) == ["t0", "t1", "u0", "u1"]


@pytest.mark.behaviour(64)
def test_commits_hold_for_the_epoch_in_which_a_partition_came() -> None:
    group = Consumers({"t": 2})
    a = Consumer(group, "a", "t").join()
    assert group.commit({("t", 0): 5}, member_id="a", generation=2) is ErrorCode.NONE
    b = Consumer(group, "b", "t").join()
    settle(a, b)
    assert (a.epoch, b.epoch) == (3, 3)
    # It has had t0 since epoch 2, and has given t1 up.
    assert group.commit({("t", 0): 6}, member_id="a", generation=2) is ErrorCode.NONE
    assert group.commit({("t", 1): 6}, member_id="a", generation=2) is ErrorCode.STALE_MEMBER_EPOCH
    assert group.commit({("t", 1): 6}, member_id="b", generation=2) is ErrorCode.STALE_MEMBER_EPOCH
    assert group.commit({("t", 1): 6}, member_id="b", generation=3) is ErrorCode.NONE
    assert group.commit({("t", 0): 7}, member_id="a", generation=9) is ErrorCode.STALE_MEMBER_EPOCH
    assert group.commit({("t", 0): 7}, member_id="x", generation=3) is ErrorCode.UNKNOWN_MEMBER_ID
    assert (
        group.commit({("t", 0): 7}, member_id="a", generation=3, version=8) is ErrorCode.UNSUPPORTED_VERSION
    )
    assert group.committed() == {("t", 0): 6, ("t", 1): 6}


# ------------------------------------------------------------------------------------------- lost replies


@pytest.mark.behaviour(64)
def test_a_member_whose_reply_was_lost_may_come_with_its_last_epoch() -> None:
    group = Consumers({"t": 2})
    a = Consumer(group, "a", "t").join()
    b = Consumer(group, "b", "t").join()
    a.beat()
    lost = group.beat("a", a.epoch, owned=a.owned)
    assert lost.reply(ConsumerGroupHeartbeatResponse).member_epoch == 3
    assert a.epoch == 2
    for _ in range(3):
        assert a.ask_full().code is ErrorCode.NONE
    assert a.beat(full=True).epoch == 3
    settle(a, b)
    assert (a.names, b.names) == (["t0"], ["t1"])


@pytest.mark.behaviour(64)
def test_a_member_with_its_last_epoch_and_more_than_it_was_given_is_fenced() -> None:
    group = Consumers({"t": 2})
    a = Consumer(group, "a", "t").join()
    Consumer(group, "b", "t").join()
    a.beat()
    a.beat()
    everything = [("t", 0), ("t", 1)]
    assert group.beat("a", 2, owned=everything).code is ErrorCode.FENCED_MEMBER_EPOCH
    assert group.beat("a", 2).code is ErrorCode.FENCED_MEMBER_EPOCH
    assert group.beat("a", 2, owned=[("t", 0)]).code is ErrorCode.NONE


@pytest.mark.behaviour(64)
@pytest.mark.parametrize("epoch", [1, 4, 99])
def test_a_member_with_an_epoch_that_is_not_its_own_is_fenced(epoch: int) -> None:
    group = Consumers()
    a = Consumer(group, "a", "t").join()
    a.subscribe("t", "u")
    assert group.beat("a", epoch, owned=[]).code is ErrorCode.FENCED_MEMBER_EPOCH


@pytest.mark.behaviour(64)
def test_a_fenced_member_joins_again_under_its_id() -> None:
    group = Consumers({"t": 2})
    a = Consumer(group, "a", "t").join()
    b = Consumer(group, "b", "t").join()
    settle(a, b)
    a.join()
    settle(a, b)
    assert (a.names, b.names) == (["t0"], ["t1"])


def test_a_request_over_a_connection_that_the_member_gave_up_says_nothing() -> None:
    # It had no partitions when it sent this, and the request was long on its way.
    group = Consumers({"t": 2})
    group.enter("a", connection=7)
    b = Consumer(group, "b", "t").join()
    group.beat("a", 2, connection=8)
    assert group.member("a").current.state is MemberState.UNREVOKED_PARTITIONS
    late = group.enter("a", connection=7)
    assert late.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert b.beat().names == []


# ------------------------------------------------------------------------------------------------ leaving


def test_what_a_member_leaves_behind_is_free_at_once() -> None:
    group = Consumers({"t": 2})
    a = Consumer(group, "a", "t").join()
    b = Consumer(group, "b", "t").join()
    a.leave()
    assert b.beat().names == ["t0", "t1"]
    assert group.why()[-1] == "a left"


def test_the_last_to_leave_leaves_an_empty_group() -> None:
    group = Consumers()
    Consumer(group, "a", "t").join().leave()
    assert group.state == "Empty"
    assert Consumer(group, "b", "t").join().names


@pytest.mark.behaviour(62)
def test_the_reply_to_who_leaves_has_the_epoch_with_which_it_left() -> None:
    group = Consumers()
    Consumer(group, "a", "t").join()
    reply = group.beat("a", -1).reply(ConsumerGroupHeartbeatResponse)
    assert (reply.member_id, reply.member_epoch, reply.error_code) == ("a", -1, ErrorCode.NONE)


@pytest.mark.honours("consumer.session.timeout.ms", "group.consumer.session.timeout.ms")
def test_a_member_that_is_silent_for_longer_than_a_session_is_cast_out() -> None:
    group = Consumers({"t": 2})
    a = Consumer(group, "a", "t").join()
    b = Consumer(group, "b", "t").join()
    group.wait(44_000)
    b.beat()
    group.wait(1_000)
    assert list(group.consumers.members) == ["b"]
    assert group.why()[-1] == "a sent no heartbeat within the session timeout"
    assert group.beat("a", a.epoch).code is ErrorCode.UNKNOWN_MEMBER_ID
    assert b.beat().names == ["t0", "t1"]


@pytest.mark.behaviour(63)
def test_a_member_that_gives_nothing_up_is_cast_out_after_its_rebalance_timeout() -> None:
    group = Consumers({"t": 2})
    a = Consumer(group, "a", "t").join()
    b = Consumer(group, "b", "t").join()
    a.beat(gives_up=False)
    for _ in range(6):
        assert "a" in group.consumers.members
        group.wait(10_000)
        group.beat("a", a.epoch) if "a" in group.consumers.members else None
        b.beat()
    assert group.why()[-1] == "a gave up no partitions within the rebalance timeout"
    assert b.beat().names == ["t0", "t1"]


def test_a_member_that_gives_up_in_time_is_not_cast_out() -> None:
    group = Consumers({"t": 2})
    a = Consumer(group, "a", "t").join()
    b = Consumer(group, "b", "t").join()
    settle(a, b)
    for _ in range(20):
        group.wait(30_000)
        settle(a, b)
    assert list(group.consumers.members) == ["a", "b"]


def test_sessions_begin_anew_when_another_broker_takes_over() -> None:
    group = Consumers({"t": 2})
    a = Consumer(group, "a", "t").join()
    b = Consumer(group, "b", "t").join()
    a.beat(gives_up=False)
    group.wait(40_000)
    group.reload()
    assert group.member("a").current.state is MemberState.UNREVOKED_PARTITIONS
    group.wait(30_000)
    b.beat()
    group.wait(20_000)
    assert list(group.consumers.members) == ["b"]


# ----------------------------------------------------------------------------------------------- refusals

INVALID: dict[str, dict[str, object]] = {
    "no group id": {"member_id": "a", "epoch": 0, **FULL, "group_id": ""},
    "a blank group id": {"member_id": "a", "epoch": 0, **FULL, "group_id": " "},
    "no member id from version 1 on": {"member_id": "", "epoch": 0, **FULL},
    "no member id to stay with": {"member_id": "", "epoch": 3, "version": 0},
    "no member id to leave with": {"member_id": "", "epoch": -1, "version": 0},
    "an empty instance id": {"member_id": "a", "epoch": 0, **FULL, "instance": ""},
    "an empty rack id": {"member_id": "a", "epoch": 0, **FULL, "rack": ""},
    "no rebalance timeout": {"member_id": "a", "epoch": 0, **FULL, "rebalance_timeout_ms": -1},
    "no partitions told": {"member_id": "a", "epoch": 0, **FULL, "owned": None},
    "partitions when joining": {"member_id": "a", "epoch": 0, **FULL, "owned": [("t", 0)]},
    "no subscription": {"member_id": "a", "epoch": 0, **FULL, "topics": None},
    "an impossible epoch": {"member_id": "a", "epoch": -3},
    "a dynamic member that leaves for a while": {"member_id": "a", "epoch": -2},
}


@pytest.mark.parametrize("what", INVALID)
def test_invalid_requests_are_refused(what: str) -> None:
    group = Consumers()
    assert group.beat(**INVALID[what]).code is ErrorCode.INVALID_REQUEST  # type: ignore[arg-type]
    assert (group.log, group.shard.state.groups) == ([], {})


@pytest.mark.honours("group.consumer.assignors")
def test_an_assignor_that_is_not_offered_is_refused() -> None:
    group = Consumers(group_consumer_assignors="range")
    assert group.enter("a", assignor="uniform").code is ErrorCode.UNSUPPORTED_ASSIGNOR
    assert group.enter("a", assignor="range").code is ErrorCode.NONE


def test_who_does_not_join_is_not_let_into_a_group_that_is_not_there() -> None:
    group = Consumers()
    for epoch in (5, -1):
        assert group.beat("a", epoch).code is ErrorCode.GROUP_ID_NOT_FOUND


@pytest.mark.behaviour(64)
def test_somebody_unknown_is_told_so() -> None:
    group = Consumers()
    Consumer(group, "a", "t").join()
    for epoch in (2, -1):
        assert group.beat("x", epoch).code is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.honours("group.consumer.max.size")
def test_a_full_group_takes_nobody_and_keeps_its_members() -> None:
    group = Consumers(group_consumer_max_size="2")
    a = Consumer(group, "a", "t").join()
    Consumer(group, "b", "t").join()
    assert group.enter("c").code is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert a.join().beat().epoch


def test_what_would_not_fit_into_a_record_is_refused_and_changes_nothing() -> None:
    group = Consumers()
    group.batch_bytes_max = 4000
    topics = [f"topic-{number:0200}" for number in range(20)]
    assert group.enter("a", topics=topics).code is ErrorCode.INVALID_REQUEST
    assert (group.log, group.why()) == ([], [])


# ----------------------------------------------------------------------------------------------- settings


@pytest.mark.behaviour(65)
@pytest.mark.honours("consumer.heartbeat.interval.ms", "group.consumer.heartbeat.interval.ms")
@pytest.mark.honours("group.consumer.min.heartbeat.interval.ms", "group.consumer.max.heartbeat.interval.ms")
@pytest.mark.parametrize(("asked_for", "given"), [("8000", 8000), ("20", 5000), ("20000", 15000)])
def test_a_group_may_have_its_own_heartbeat_interval_within_the_brokers_bounds(
    asked_for: str, given: int
) -> None:
    group = Consumers()
    group.configure_group("consumer.heartbeat.interval.ms", asked_for)
    reply = group.enter("a").reply(ConsumerGroupHeartbeatResponse)
    assert reply.heartbeat_interval_ms == given
    assert (
        group.enter("a", group_id="others").reply(ConsumerGroupHeartbeatResponse).heartbeat_interval_ms
        == 5000
    )


@pytest.mark.behaviour(65)
@pytest.mark.honours("group.consumer.min.session.timeout.ms", "group.consumer.max.session.timeout.ms")
@pytest.mark.parametrize(("asked_for", "given"), [("50000", 50_000), ("10", 45_000), ("90000", 60_000)])
def test_a_group_may_have_its_own_session_timeout_within_the_brokers_bounds(
    asked_for: str, given: int
) -> None:
    group = Consumers()
    group.configure_group("consumer.session.timeout.ms", asked_for)
    Consumer(group, "a", "t").join()
    group.wait(given - 1)
    assert group.consumers.members
    group.wait(1)
    assert not group.consumers.members


@pytest.mark.honours("consumer.assignment.interval.ms", "group.consumer.assignment.interval.ms")
@pytest.mark.honours("group.consumer.min.assignment.interval.ms", "group.consumer.max.assignment.interval.ms")
@pytest.mark.parametrize(
    ("texts", "interval_ms"),
    [
        ({"group_consumer_assignment_interval_ms": "1000"}, 1000),
        ({"group_consumer_min_assignment_interval_ms": "2000"}, 2000),
        (
            {
                "group_consumer_assignment_interval_ms": "9000",
                "group_consumer_max_assignment_interval_ms": "3000",
            },
            3000,
        ),
    ],
)
def test_members_that_come_together_are_assigned_together(texts: dict[str, str], interval_ms: int) -> None:
    group = Consumers({"t": 6}, **texts)
    a = Consumer(group, "a", "t").join()
    others = [Consumer(group, name, "t").join() for name in ("b", "c")]
    assert (group.state, group.consumers.target_epoch) == ("Assigning", 2)
    group.wait(interval_ms - 1)
    assert a.beat().names == ["t0", "t1", "t2", "t3", "t4", "t5"]
    group.wait(1)
    assert a.beat().names == ["t0", "t1"]
    assert group.consumers.target_epoch == 4
    settle(a, *others)
    assert group.state == "Stable"


def test_a_calendar_that_was_set_back_does_not_stop_a_group() -> None:
    group = Consumers(group_consumer_assignment_interval_ms="1000")
    a = Consumer(group, "a", "t").join()
    group.wall_offset_ms -= 1_000_000
    Consumer(group, "b", "t").join()
    assert a.beat().names == ["t0", "t1", "t2"]


def test_the_assignor_that_most_ask_for_assigns() -> None:
    group = Consumers({"t": 3, "u": 3})
    a = Consumer(group, "a", "t", "u", assignor="range").join()
    b = Consumer(group, "b", "t", "u").join()
    settle(a, b)
    assert (a.names, b.names) == (["t0", "t1", "u0", "u1"], ["t2", "u2"])
    c = Consumer(group, "c", assignor="uniform").join()
    d = Consumer(group, "d", assignor="uniform").join()
    settle(a, b, c, d)
    assert (len(a.names), len(b.names)) == (3, 3)


def test_a_heartbeat_costs_the_same_however_many_members_there_are() -> None:
    # Counted, not timed: with a hundred times the members, it looks at as many of them.
    looked_at = []
    for count in (3, 300):
        group = Consumers({"t": 300})
        members = [Consumer(group, f"{number:03}", "t") for number in range(count)]
        for each in members:
            each.join()
        settle(*members)
        counting = CountingDict(group.consumers.members)
        group.consumers.members = counting
        group.ask(
            ConsumerGroupHeartbeatRequest(group_id=GROUP, member_id="001", member_epoch=members[0].epoch)
        )
        looked_at.append(counting.looked_at)
    assert looked_at[0] == looked_at[1] > 0


class CountingDict(dict):  # type: ignore[type-arg]
    """Counts how many of its items are looked at."""

    looked_at = 0

    def get(self, *arguments):  # type: ignore[no-untyped-def]
        self.looked_at += 1
        return super().get(*arguments)

    def __getitem__(self, key):  # type: ignore[no-untyped-def]
        self.looked_at += 1
        return super().__getitem__(key)

    def __iter__(self):  # type: ignore[no-untyped-def]
        self.looked_at += len(self)
        return super().__iter__()

    def items(self):  # type: ignore[no-untyped-def]
        self.looked_at += len(self)
        return super().items()

    def values(self):  # type: ignore[no-untyped-def]
        self.looked_at += len(self)
        return super().values()
