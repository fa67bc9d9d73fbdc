"""Members that say in which rack they are read what is there, as far as all get equally much."""

import pytest
from coordinator.group.consumer.consumers import Consumer, Consumers, settle

A, B, C = 1, 2, 3


def in_racks(group: Consumers, **racks: str) -> list[Consumer]:
    """Members named after the letters of their racks."""
    members = [Consumer(group, name, "t", rack=rack).join() for name, rack in racks.items()]
    settle(*members)
    return members


@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_members_read_what_is_in_their_rack(assignor: str) -> None:
    group = Consumers({"t": 6}, group_consumer_assignors=assignor)
    group.place("t", [C], [B], [A], [A], [C], [B])
    a, b, c = in_racks(group, a="a", b="b", c="c")
    assert (a.names, b.names, c.names) == (["t2", "t3"], ["t1", "t5"], ["t0", "t4"])


def test_a_replica_in_the_rack_is_enough() -> None:
    group = Consumers({"t": 4})
    group.place("t", [A, B], [A, B], [A, C], [A, C])
    b, c = in_racks(group, b="b", c="c")
    assert (b.names, c.names) == (["t0", "t1"], ["t2", "t3"])


def test_nobody_gets_more_because_it_is_near() -> None:
    group = Consumers({"t": 4})
    group.place("t", [A], [A], [A], [A])
    a, b = in_racks(group, a="a", b="b")
    assert len(a.names) == len(b.names) == 2


def test_when_replicas_move_to_other_racks_readers_follow() -> None:
    group = Consumers({"t": 2})
    group.place("t", [A], [B])
    a, b = in_racks(group, a="a", b="b")
    assert (a.names, b.names) == (["t0"], ["t1"])
    group.place("t", [B], [A])
    settle(a, b)
    assert (a.names, b.names) == (["t1"], ["t0"])


def test_members_without_a_rack_take_what_is_left() -> None:
    group = Consumers({"t": 4})
    group.place("t", [B], [B], [A], [A])
    anywhere = Consumer(group, "0", "t").join()
    (b,) = in_racks(group, b="b")
    settle(anywhere, b)
    assert (b.names, anywhere.names) == (["t0", "t1"], ["t2", "t3"])
