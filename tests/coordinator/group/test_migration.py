"""From classic groups to consumer groups and back, while the members stay."""

import pytest
from coordinator.group.consumer.classics import Classic, assignment_of, subscription
from coordinator.group.consumer.consumers import Consumer, Consumers
from coordinator.group.consumer.test_guests import rest
from coordinator.group.live import GROUP, Asked

from moldau.coordinator.group.classic.group import ClassicGroup
from moldau.coordinator.group.consumer.group import ConsumerGroup
from moldau.model.errors import ErrorCode
from moldau.wire.messages.groups import JoinGroupResponse, SyncGroupResponse


def classic_group(group: Consumers, *members: Classic) -> None:
    """A stable classic group in which the first of the members reads t0 and t1, the second t2 and t3, ..."""
    asked = [each.ask_join() for each in members]
    group.wait(0)
    for each, joined in zip(members, asked, strict=True):
        assert each.taken_in(joined) is ErrorCode.NONE
    given = {each.member_id: assignment_of(("t", 2 * n), ("t", 2 * n + 1)) for n, each in enumerate(members)}
    leader_first = sorted(members, key=lambda each: each.member_id != group.group().leader_id)
    for each in leader_first:
        assignments = given if each is leader_first[0] else {}
        synced = group.sync(
            each.member_id,
            each.generation,
            assignments,
            protocol_name=each.protocol,
            instance_id=each.instance,
        )
        assert synced.reply(SyncGroupResponse).error_code == ErrorCode.NONE
        each.owned = [("t", 2 * members.index(each)), ("t", 2 * members.index(each) + 1)]
    assert group.state == "Stable"


def kind(group: Consumers) -> type:
    return type(group.shard.state.groups[GROUP])


# ------------------------------------------------------------------------------------- to consumer groups


@pytest.mark.behaviour(66)
@pytest.mark.parametrize("is_cooperative", [False, True])
def test_a_classic_group_becomes_a_consumer_group_when_such_a_member_joins(is_cooperative: bool) -> None:
    group = Consumers({"t": 4})
    c, d = (Classic(group, "t", is_cooperative=is_cooperative) for _ in range(2))
    classic_group(group, c, d)
    a = Consumer(group, "a", "t").join()
    assert kind(group) is ConsumerGroup
    # They have what they had, until they come and give some of it up.
    assert (a.names, group.has(c.member_id), group.has(d.member_id)) == ([], ["t0", "t1"], ["t2", "t3"])
    assert c.beat() is ErrorCode.REBALANCE_IN_PROGRESS
    rest(a, c, d)
    assert sorted(a.names + c.names + d.names) == ["t0", "t1", "t2", "t3"]
    assert min(map(len, (a.names, c.names, d.names))) == 1
    assert group.state == "Stable"


def test_the_epoch_of_the_group_is_its_generation_at_first() -> None:
    group = Consumers({"t": 4})
    c = Classic(group, "t")
    classic_group(group, c)
    a = Consumer(group, "a", "t").join()
    assert (group.member(c.member_id).current.epoch, a.epoch) == (c.generation, c.generation + 1)


def test_offsets_stay_where_they_are() -> None:
    group = Consumers({"t": 4})
    c = Classic(group, "t")
    classic_group(group, c)
    assert group.commit({("t", 0): 5}, member_id=c.member_id, generation=c.generation) is ErrorCode.NONE
    Consumer(group, "a", "t").join()
    assert group.committed() == {("t", 0): 5}
    assert group.commit({("t", 0): 6}, member_id=c.member_id, generation=c.generation) is ErrorCode.NONE


def test_whoever_waits_in_the_classic_group_is_told_to_join_again() -> None:
    group = Consumers({"t": 4})
    c, d = Classic(group, "t"), Classic(group, "t")
    classic_group(group, c, d)
    joining = c.ask_join()
    assert joining.is_parked
    a = Consumer(group, "a", "t").join()
    assert joining.reply(JoinGroupResponse).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    c.must_join = True
    rest(a, c, d)
    assert sorted(a.names + c.names + d.names) == ["t0", "t1", "t2", "t3"]


def test_a_group_whose_first_generation_is_still_gathering_can_become_one_too() -> None:
    group = Consumers({"t": 4}, group_initial_rebalance_delay_ms="3000")
    c = Classic(group, "t")
    joining = c.ask_join()
    assert joining.is_parked
    a = Consumer(group, "a", "t").join()
    assert joining.reply(JoinGroupResponse).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    rest(a, c)
    assert len(a.names) == len(c.names) == 2


def test_a_sync_that_waits_for_the_leader_is_told_to_join_again() -> None:
    group = Consumers({"t": 4})
    c, d = Classic(group, "t"), Classic(group, "t")
    asked = [c.ask_join(), d.ask_join()]
    group.wait(0)
    for each, joined in zip((c, d), asked, strict=True):
        each.taken_in(joined)
    follower = next(each for each in (c, d) if each.member_id != group.group().leader_id)
    syncing: Asked = group.sync(follower.member_id, follower.generation)
    assert syncing.is_parked
    a = Consumer(group, "a", "t").join()
    assert syncing.reply(SyncGroupResponse).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    c.must_join = d.must_join = True
    rest(a, c, d)
    assert sorted(a.names + c.names + d.names) == ["t0", "t1", "t2", "t3"]


def test_the_deadlines_of_the_classic_group_mean_nothing_any_more() -> None:
    group = Consumers({"t": 4})
    c = Classic(group, "t")
    classic_group(group, c)
    a = Consumer(group, "a", "t").join()
    for _ in range(5):
        group.wait(6_000)
        rest(a, c)
    assert list(group.consumers.members) == [c.member_id, "a"]
    group.wait(10_000)
    assert list(group.consumers.members) == ["a"]


def test_a_partition_that_a_careless_assignor_gave_to_two_stays_with_one() -> None:
    group = Consumers({"t": 2})
    c, d = Classic(group, "t"), Classic(group, "t")
    asked = [c.ask_join(), d.ask_join()]
    group.wait(0)
    for each, joined in zip((c, d), asked, strict=True):
        each.taken_in(joined)
    both = {c.member_id: assignment_of(("t", 0), ("t", 1)), d.member_id: assignment_of(("t", 1))}
    leader_first = sorted((c, d), key=lambda each: each.member_id != group.group().leader_id)
    for each in leader_first:
        group.sync(each.member_id, each.generation, both if each is leader_first[0] else {})
    a = Consumer(group, "a", "t").join()
    c.must_join = d.must_join = True
    rest(a, c, d)
    assert sorted(a.names + c.names + d.names) == ["t0", "t1"]


def test_what_a_cooperative_member_has_yet_to_give_up_is_its_own() -> None:
    """Found by seed 373 of the groups: it was assigned less, and had not heard of that."""
    group = Consumers({"t": 2})
    c = Classic(group, "t", is_cooperative=True)
    classic_group(group, c)
    d = Classic(group, "t", is_cooperative=True)
    joining, again = d.ask_join(), c.ask_join()
    for each, joined in ((c, again), (d, joining)):
        assert each.taken_in(joined) is ErrorCode.NONE
    # c is the leader, and is to give t1 up before anybody else gets it.
    group.sync(c.member_id, c.generation, {c.member_id: assignment_of(("t", 0))}, protocol_name=c.protocol)
    a = Consumer(group, "a", "t").join()
    assert (a.names, c.names, group.has(c.member_id)) == ([], ["t0", "t1"], ["t0", "t1"])
    c.must_join = d.must_join = True
    rest(a, c, d)
    assert sorted(a.names + c.names + d.names) == ["t0", "t1"]


def test_an_empty_classic_group_just_becomes_one() -> None:
    group = Consumers({"t": 2})
    assert group.commit({("t", 0): 5}) is ErrorCode.NONE
    assert kind(group) is ClassicGroup
    a = Consumer(group, "a", "t").join()
    assert (kind(group), a.names, group.committed()) == (ConsumerGroup, ["t0", "t1"], {("t", 0): 5})


def test_a_classic_group_that_everybody_left_becomes_one() -> None:
    group = Consumers({"t": 2})
    c = Classic(group, "t")
    classic_group(group, c)
    c.leave()
    Consumer(group, "a", "t").join()
    group.reload()
    assert (kind(group), group.state) == (ConsumerGroup, "Stable")


REFUSED = {
    "it may not": {"group.consumer.migration.policy": "downgrade"},
    "it may not at all": {"group.consumer.migration.policy": "DISABLED"},
    "it has too many members": {"group.consumer.max.size": "1"},
}


@pytest.mark.honours("group.consumer.migration.policy")
@pytest.mark.parametrize("why", REFUSED)
def test_a_group_stays_classic_if(why: str) -> None:
    texts = {name.replace(".", "_"): text for name, text in REFUSED[why].items()}
    group = Consumers({"t": 4}, **texts)
    c, d = Classic(group, "t"), Classic(group, "t")
    classic_group(group, c, d)
    written = len(group.log)
    assert group.enter("a").code is ErrorCode.GROUP_ID_NOT_FOUND
    assert (kind(group), len(group.log), c.beat()) == (ClassicGroup, written, ErrorCode.NONE)


@pytest.mark.parametrize(
    ("protocol_type", "metadata", "assigned"),
    [
        ("connect", subscription(("t",), []), b""),
        ("consumer", b"nonsense", b""),
        ("consumer", subscription(("t",), []), b"nonsense"),
        ("consumer", subscription(("t",), []), assignment_of(("t", 0), user_data=b"mine")),
    ],
)
def test_a_group_stays_classic_if_nobody_can_tell_what_its_members_have(
    protocol_type: str, metadata: bytes, assigned: bytes
) -> None:
    group = Consumers({"t": 4})
    joined = group.join_known(protocol_type=protocol_type, protocols={"range": metadata})
    group.wait(0)
    member_id = joined.joined.member_id
    group.sync(member_id, 1, {member_id: assigned}, protocol_type=protocol_type)
    assert group.enter("a").code is ErrorCode.GROUP_ID_NOT_FOUND
    assert kind(group) is ClassicGroup


def test_a_group_that_would_not_fit_into_one_batch_stays_classic() -> None:
    group = Consumers({"t": 4})
    c = Classic(group, "t")
    classic_group(group, c)
    group.batch_bytes_max = 200
    assert group.enter("a").code is ErrorCode.GROUP_ID_NOT_FOUND
    assert kind(group) is ClassicGroup


def test_a_heartbeat_that_is_refused_leaves_the_classic_group_alone() -> None:
    group = Consumers({"t": 4})
    c = Classic(group, "t")
    classic_group(group, c)
    joining = Classic(group, "t").ask_join()
    assert joining.is_parked
    assert group.enter("a", topics=None, regex="(").code is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert (kind(group), joining.is_parked) == (ClassicGroup, True)


# -------------------------------------------------------------------------------------- to classic groups


def mixed(group: Consumers, *, is_cooperative: bool = False) -> tuple[Consumer, Classic, Classic]:
    a = Consumer(group, "a", "t").join()
    c = Classic(group, "t", is_cooperative=is_cooperative).join()
    d = Classic(group, "t", is_cooperative=is_cooperative).join()
    rest(a, c, d)
    return a, c, d


@pytest.mark.behaviour(66)
@pytest.mark.parametrize("is_cooperative", [False, True])
def test_when_the_last_member_of_the_new_kind_leaves_the_group_is_a_classic_one(is_cooperative: bool) -> None:
    group = Consumers({"t": 6})
    a, c, d = mixed(group, is_cooperative=is_cooperative)
    epoch = group.consumers.epoch
    a.leave()
    assert (kind(group), group.state) == (ClassicGroup, "PreparingRebalance")
    assert group.group().generation == epoch
    assert c.beat() is ErrorCode.REBALANCE_IN_PROGRESS
    joins = [c.ask_join(), d.ask_join()]
    assert [each.joined.generation_id for each in joins] == [epoch + 1] * 2
    assert any(each.joined.members for each in joins), "one of them leads"


def test_the_same_when_it_is_cast_out() -> None:
    group = Consumers({"t": 6})
    _, c, d = mixed(group)
    for _ in range(6):
        group.wait(8_000)
        if kind(group) is ConsumerGroup:
            rest(c, d)
    assert kind(group) is ClassicGroup


@pytest.mark.behaviour(66)
def test_a_group_that_went_back_is_loaded_as_a_classic_one() -> None:
    group = Consumers({"t": 6})
    a, c, d = mixed(group)
    a.leave()
    group.reload()
    assert kind(group) is ClassicGroup
    assert sorted(group.group().members) == sorted([c.member_id, d.member_id])
    assert group.group().state_name == "Stable"


def test_members_that_went_back_expire_as_classic_members_do() -> None:
    group = Consumers({"t": 6})
    a, _, _ = mixed(group)
    a.leave()
    group.wait(61_000)
    assert group.group().is_empty


def test_a_group_may_go_there_and_back_again() -> None:
    group = Consumers({"t": 6})
    a, c, d = mixed(group)
    a.leave()
    b = Consumer(group, "b", "t").join()
    assert kind(group) is ConsumerGroup
    c.must_join = d.must_join = True
    rest(b, c, d)
    assert sorted(b.names + c.names + d.names) == [f"t{number}" for number in range(6)]


def test_who_has_not_joined_again_keeps_what_it_had_there_and_back() -> None:
    """Found by seed 45 of the groups: the classic group had what members were to have, not what they had."""
    group = Consumers({"t": 2})
    c = Classic(group, "t")
    classic_group(group, c)
    # c hears neither of a nor of b: it reads on.
    a = Consumer(group, "a", "t").join()
    assert group.is_to_have(c.member_id) == ["t0"]
    a.leave()
    assert kind(group) is ClassicGroup
    b = Consumer(group, "b", "t").join()
    assert kind(group) is ConsumerGroup
    assert (b.names, c.names) == ([], ["t0", "t1"])
    group.reload()
    assert group.has(c.member_id) == ["t0", "t1"]
    rest(b, c)
    assert sorted(b.names + c.names) == ["t0", "t1"]


@pytest.mark.parametrize("policy", ["upgrade", "Disabled"])
def test_a_group_stays_a_consumer_group_if_it_may_not_go_back(policy: str) -> None:
    group = Consumers({"t": 6}, group_consumer_migration_policy=policy)
    a, c, d = mixed(group)
    a.leave()
    assert kind(group) is ConsumerGroup
    rest(c, d)
    assert sorted(c.names + d.names) == [f"t{number}" for number in range(6)]


def test_a_group_stays_a_consumer_group_if_it_is_too_large_for_a_classic_one() -> None:
    group = Consumers({"t": 6}, group_max_size="1")
    a, c, d = mixed(group)
    a.leave()
    assert kind(group) is ConsumerGroup
    rest(c, d)


def test_a_group_stays_a_consumer_group_if_it_does_not_fit_into_one_batch() -> None:
    group = Consumers({"t": 6})
    a, c, d = mixed(group)
    group.batch_bytes_max = 400
    a.leave()
    assert kind(group) is ConsumerGroup
    rest(c, d)


def test_an_empty_consumer_group_becomes_a_classic_one_when_such_a_member_joins() -> None:
    group = Consumers({"t": 6})
    Consumer(group, "a", "t").join().leave()
    c = Classic(group, "t")
    classic_group(group, c)
    assert kind(group) is ClassicGroup
    group.reload()
    assert (kind(group), c.beat()) == (ClassicGroup, ErrorCode.NONE)


def static(group: Consumers) -> tuple[Consumer, Classic]:
    a = Consumer(group, "a", "t", instance="one").join()
    c = Classic(group, "t", instance="two").join()
    rest(a, c)
    return a, c


def test_when_the_last_member_of_the_new_kind_comes_back_as_a_classic_one_nobody_has_to_join_again() -> None:
    group = Consumers({"t": 4})
    a, c = static(group)
    a.leave(-2)
    again = Classic(group, "t", instance="one")
    assert again.taken_in(again.ask_join()) is ErrorCode.NONE
    assert again.sync() is ErrorCode.NONE
    assert (kind(group), group.state) == (ClassicGroup, "Stable")
    assert (again.names, c.beat()) == (["t0", "t1"], ErrorCode.NONE)
    group.reload()
    assert (again.beat(), c.beat()) == (ErrorCode.NONE, ErrorCode.NONE)


def test_the_same_in_the_middle_of_a_rebalance_has_all_join_again() -> None:
    group = Consumers({"t": 4})
    a, c = static(group)
    group.grow("t", 8)
    c.join()
    a.leave(-2)
    again = Classic(group, "t", instance="one")
    joining = again.ask_join()
    assert (kind(group), group.state) == (ClassicGroup, "PreparingRebalance")
    assert joining.is_parked
    assert c.beat() is not ErrorCode.NONE
    c.ask_join()
    assert not joining.is_parked


def test_a_static_member_that_comes_back_as_a_classic_one_among_others_of_the_new_kind_is_a_guest() -> None:
    group = Consumers({"t": 6})
    a, c = static(group)
    b = Consumer(group, "b", "t").join()
    rest(a, b, c)
    had = a.names
    a.leave(-2)
    again = Classic(group, "t", instance="one").join()
    assert (kind(group), again.names) == (ConsumerGroup, had)
