"""Who reads what is near to whom, where members and replicas say in which rack they are."""

from collections import Counter
from collections.abc import Sequence
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.coordinator.group.assignors import ASSIGNORS, Partitions, Subscriber
from moldau.coordinator.group.assignors.assignment import PartitionCounts, PartitionRacks
from moldau.coordinator.group.assignors.nearness import exchanged
from moldau.model.ids import TopicId, Uuid

RACKS = ("a", "b", "c")
NEAR = st.lists(st.sampled_from(RACKS), unique=True).map(lambda racks: tuple(sorted(racks)))


def topic(number: int) -> TopicId:
    return TopicId(Uuid(number.to_bytes(16, "big")))


def near_count(owners: Sequence[str], near: Sequence[tuple[str, ...]], racks: dict[str, str | None]) -> int:
    return sum(racks[owner] in where for owner, where in zip(owners, near, strict=True))


@st.composite
def owned(draw: st.DrawFn, size_max: int) -> tuple[list[str], list[tuple[str, ...]], dict[str, str | None]]:
    """Who has what, where each thing is, and where everybody is."""
    racks = draw(st.lists(st.none() | st.sampled_from(RACKS), min_size=1, max_size=5))
    where = {f"m{number}": rack for number, rack in enumerate(racks)}
    owners = draw(st.lists(st.sampled_from(sorted(where)), max_size=size_max))
    return owners, [draw(NEAR) for _ in owners], where


@given(owned(40))
def test_everybody_ends_with_as_much_as_before_and_no_less_is_near(
    drawn: tuple[list[str], list[tuple[str, ...]], dict[str, str | None]],
) -> None:
    owners, near, racks = drawn
    found = exchanged(owners, near, racks)
    assert Counter(found) == Counter(owners)
    moved = [at for at, (before, after) in enumerate(zip(owners, found, strict=True)) if before != after]
    gained = near_count(found, near, racks) - near_count(owners, near, racks)
    assert gained >= 0
    assert bool(gained) == bool(moved), "what moves makes something near"
    assert exchanged(found, near, racks) == found


@given(owned(6))
def test_no_other_exchange_would_bring_more_near(
    drawn: tuple[list[str], list[tuple[str, ...]], dict[str, str | None]],
) -> None:
    owners, near, racks = drawn
    best = max(near_count(each, near, racks) for each in permutations(owners))
    assert near_count(exchanged(owners, near, racks), near, racks) == best


# -------------------------------------------------------------------------------------------- assignors


@st.composite
def placed_groups(draw: st.DrawFn) -> tuple[list[Subscriber], PartitionCounts, PartitionRacks]:
    """Members in racks, with topics whose replicas are in racks."""
    counts = {topic(number): draw(st.integers(0, 7)) for number in range(draw(st.integers(1, 4)))}
    racks = {each: [draw(NEAR) for _ in range(count)] for each, count in counts.items()}
    members = []
    for number in range(draw(st.integers(1, 6))):
        topics = tuple(sorted(draw(st.lists(st.sampled_from(sorted(counts)), unique=True))))
        rack = draw(st.none() | st.sampled_from(RACKS))
        members.append(Subscriber(f"m{number}", topics, rack=rack))
    return members, counts, racks


def sizes(assigned: dict[str, Partitions]) -> dict[str, int]:
    return {member_id: sum(map(len, partitions.values())) for member_id, partitions in assigned.items()}


@pytest.mark.parametrize("name", ASSIGNORS)
@given(group=placed_groups())
def test_racks_change_who_has_what_and_not_how_much(
    name: str, group: tuple[list[Subscriber], PartitionCounts, PartitionRacks]
) -> None:
    members, counts, racks = group
    without, found = ASSIGNORS[name](members, counts), ASSIGNORS[name](members, counts, racks)
    assert sizes(found) == sizes(without)
    wanted = dict.fromkeys(each for member in members for each in member.topics)
    everything = [(each, number) for each in wanted for number in range(counts[each])]
    given_out = [
        (each, number) for has in found.values() for each, numbers in has.items() for number in numbers
    ]
    assert sorted(given_out) == sorted(everything)
    for member in members:
        assert found[member.member_id].keys() <= set(member.topics)
        assert all(list(numbers) == sorted(numbers) for numbers in found[member.member_id].values())


@pytest.mark.parametrize("name", ASSIGNORS)
@given(group=placed_groups(), order=st.randoms(use_true_random=False))
def test_an_assignment_to_members_in_racks_is_made_again_as_it_is(
    name: str, group: tuple[list[Subscriber], PartitionCounts, PartitionRacks], order: st.DataObject
) -> None:
    members, counts, racks = group
    found = ASSIGNORS[name](members, counts, racks)
    again = [
        Subscriber(each.member_id, each.topics, found[each.member_id], each.instance_id, each.rack)
        for each in members
    ]
    order.shuffle(again)  # type: ignore[attr-defined]  # it is a Random
    assert ASSIGNORS[name](again, counts, racks) == found


@pytest.mark.parametrize("name", ASSIGNORS)
def test_members_read_what_is_near_where_replicas_are_in_one_rack_each(name: str) -> None:
    members = [Subscriber(f"m{rack}", (topic(1),), rack=rack) for rack in RACKS]
    racks = {topic(1): [(RACKS[(number + number // 3) % 3],) for number in range(9)]}
    found = ASSIGNORS[name](members, {topic(1): 9}, racks)
    for rack in RACKS:
        assert [racks[topic(1)][number] for number in found[f"m{rack}"][topic(1)]] == [(rack,)] * 3


def test_ranges_of_topics_that_are_joined_move_together() -> None:
    topics = (topic(1), topic(2))
    members = [Subscriber("m1", topics, rack="b"), Subscriber("m2", topics, rack="a")]
    racks = {each: [("a",), ("a",), ("b",), ("b",)] for each in topics}
    found = ASSIGNORS["range"](members, dict.fromkeys(topics, 4), racks)
    assert found == {"m1": dict.fromkeys(topics, (2, 3)), "m2": dict.fromkeys(topics, (0, 1))}


def test_a_partition_stays_where_nobody_is_nearer() -> None:
    members = [
        Subscriber("m1", (topic(1),), {topic(1): (1,)}, rack="a"),
        Subscriber("m2", (topic(1),), {topic(1): (0,)}, rack="a"),
    ]
    racks = {topic(1): [("b",), ("a", "b")]}
    assert ASSIGNORS["uniform"](members, {topic(1): 2}, racks) == {
        "m1": {topic(1): (1,)},
        "m2": {topic(1): (0,)},
    }
