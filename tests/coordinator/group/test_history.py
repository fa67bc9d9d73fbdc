"""Why a classic group rebalanced: what the group remembers of who came, went and was late."""

from coordinator.group.consumer.classics import Classic
from coordinator.group.consumer.consumers import Consumer, Consumers
from coordinator.group.live import GROUP, Live, subscription

from moldau.coordinator.group.history import Cause, What
from moldau.wire.messages.groups import DeleteGroupsRequest

AT_ONCE = {"group.initial.rebalance.delay.ms": "0"}


def causes(live: Live) -> list[list[tuple[What, str | None]]]:
    """Of each generation what happened, and to whom."""
    return [[(each.what, each.who) for each in one.causes] for one in live.shard.state.histories.of(GROUP)]


def members(live: Live, *names: str) -> list[str]:
    """The ids of members who have joined together, by their names."""
    return sorted(live.stable(*names))


def test_who_joined_and_left_is_remembered_with_the_generation_and_the_time() -> None:
    live = Live()
    ada, bob = members(live, "ada", "bob")
    (first,) = live.shard.state.histories.of(GROUP)
    assert first.epoch == 1
    assert first.causes == (
        Cause(What.JOINED, ada, "ada at /127.0.0.1"),
        Cause(What.JOINED, bob, "bob at /127.0.0.1"),
    )
    live.wait(1_000)
    live.leave(bob)
    live.join(ada)
    second = live.shard.state.histories.of(GROUP)[-1]
    assert second.causes == (Cause(What.LEFT, bob, "bob at /127.0.0.1"),)
    assert (second.epoch, second.wall_ms - first.wall_ms) == (2, 1_000)


def test_who_was_silent_or_late_is_remembered() -> None:
    live = Live()
    ada, bob, cid = members(live, "ada", "bob", "cid")

    def wait_with(*awake: str) -> None:
        live.wait(4_000)
        for each in awake:
            live.heartbeat(each, 1)

    while cid in live.group().members:
        wait_with(ada, bob)
    live.join(ada)
    while bob in live.group().members:
        wait_with(bob)
    assert causes(live)[-1] == [
        (What.SESSION_OVER, "cid at /127.0.0.1"),
        (What.JOIN_OVER, "bob at /127.0.0.1"),
    ]


def test_who_asked_for_another_assignment_is_remembered() -> None:
    live = Live(AT_ONCE)
    (ada,) = live.stable("ada")
    live.join(ada)
    assert causes(live)[-1] == [(What.LEADER_JOINED, "ada at /127.0.0.1")]
    live.assign([ada])
    live.join(ada, protocols={"range": subscription("other")})
    assert causes(live)[-1] == [(What.JOINED_ANEW, "ada at /127.0.0.1")]


def test_a_group_that_is_deleted_is_forgotten() -> None:
    live = Live(AT_ONCE)
    (ada,) = live.stable("ada")
    live.leave(ada)
    assert causes(live)[-1] == [(What.LEFT, "ada at /127.0.0.1")]
    live.ask(DeleteGroupsRequest(groups_names=[GROUP]))
    assert causes(live) == []


def test_what_is_known_of_a_group_outlives_its_move_to_the_other_protocol_and_back() -> None:
    group = Consumers({"t": 2})
    Classic(group, "t").ask_join()
    group.wait(0)
    a = Consumer(group, "a", "t").join()
    assert causes(group) == [[(What.JOINED, "classic at /127.0.0.1")], [(What.JOINED, "ada at /127.0.0.1")]]
    a.leave()
    (moved,) = [cause.what for cause in group.group().causes]
    assert moved is What.MOVED
    assert len(causes(group)) == 2
