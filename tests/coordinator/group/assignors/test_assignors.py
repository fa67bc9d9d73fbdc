from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.coordinator.group.assignors import ASSIGNORS, Partitions, Subscriber
from moldau.coordinator.group.assignors.assignment import PartitionCounts
from moldau.model.ids import TopicId, Uuid

Assigned = dict[str, Partitions]


def topic(number: int) -> TopicId:
    return TopicId(Uuid(number.to_bytes(16, "big")))


def member(name: str, *topics: int, owned: Partitions | None = None, static: str | None = None) -> Subscriber:
    return Subscriber(
        name,
        tuple(topic(each) for each in sorted(topics)),
        owned or {},
        None if static is None else static,
    )


def sizes(assigned: Assigned) -> dict[str, int]:
    return {member_id: sum(map(len, partitions.values())) for member_id, partitions in assigned.items()}


def owners(assigned: Assigned) -> dict[tuple[TopicId, int], str]:
    return {
        (topic_id, partition): member_id
        for member_id, partitions in assigned.items()
        for topic_id, numbers in partitions.items()
        for partition in numbers
    }


def with_what_they_got(members: Sequence[Subscriber], assigned: Assigned) -> list[Subscriber]:
    return [
        Subscriber(each.member_id, each.topics, assigned[each.member_id], each.instance_id)
        for each in members
    ]


# ------------------------------------------------------------------------------------------ groups, drawn

COUNTS = st.dictionaries(st.integers(1, 6).map(topic), st.integers(0, 9), min_size=1, max_size=6)


@st.composite
def groups(draw: st.DrawFn, *, is_even: bool = False) -> tuple[list[Subscriber], PartitionCounts]:
    """Members with subscriptions, and with what an earlier assignment, maybe of other topics, left them."""
    counts = draw(COUNTS)
    topics = sorted(counts)
    names = draw(st.lists(st.integers(0, 99), min_size=1, max_size=8, unique=True))
    every = tuple(draw(st.lists(st.sampled_from(topics), unique=True).map(sorted)))
    earlier: dict[str, dict[TopicId, list[int]]] = {}
    for topic_id in [*topics, topic(7)]:
        for partition in range(draw(st.integers(0, counts.get(topic_id, 3)))):
            owner = draw(st.sampled_from([*map(str, names), ""]))
            earlier.setdefault(owner, {}).setdefault(topic_id, []).append(partition)
    members = []
    for name in map(str, names):
        wanted = every if is_even else tuple(sorted(draw(st.lists(st.sampled_from(topics), unique=True))))
        owned = {topic_id: tuple(numbers) for topic_id, numbers in earlier.get(name, {}).items()}
        instance = draw(st.none() | st.just(f"i{name}"))
        members.append(Subscriber(name, wanted, owned, instance))
    return members, counts


# ------------------------------------------------------------------------------------- what all promise


@pytest.mark.parametrize("name", ASSIGNORS)
@given(group=groups())
def test_every_subscribed_partition_has_one_owner_who_subscribed(
    name: str, group: tuple[list[Subscriber], PartitionCounts]
) -> None:
    members, counts = group
    assigned = ASSIGNORS[name](members, counts)
    assert assigned.keys() == {each.member_id for each in members}
    wanted = {topic_id for each in members for topic_id in each.topics}
    assert sum(sizes(assigned).values()) == len(owners(assigned)), "a partition has two owners"
    assert owners(assigned).keys() == {(t, number) for t in wanted for number in range(counts[t])}
    for each in members:
        assert assigned[each.member_id].keys() <= set(each.topics)
        for numbers in assigned[each.member_id].values():
            assert numbers and list(numbers) == sorted(numbers)


@pytest.mark.parametrize("name", ASSIGNORS)
@given(group=groups(), order=st.randoms(use_true_random=False))
def test_the_order_of_members_does_not_matter(
    name: str,
    group: tuple[list[Subscriber], PartitionCounts],
    order: Random,
) -> None:
    members, counts = group
    shuffled = list(members)
    order.shuffle(shuffled)
    assert ASSIGNORS[name](shuffled, counts) == ASSIGNORS[name](members, counts)


@pytest.mark.parametrize("name", ASSIGNORS)
@given(group=groups())
def test_an_assignment_is_made_again_as_it_is(
    name: str, group: tuple[list[Subscriber], PartitionCounts]
) -> None:
    members, counts = group
    assigned = ASSIGNORS[name](members, counts)
    assert ASSIGNORS[name](with_what_they_got(members, assigned), counts) == assigned


@pytest.mark.parametrize("name", ASSIGNORS)
def test_nobody_gets_nothing(name: str) -> None:
    assert ASSIGNORS[name]([], {}) == {}
    assert ASSIGNORS[name]([member("a"), member("b")], {}) == {"a": {}, "b": {}}


# ---------------------------------------------------------------------------------------------- uniform

uniform = ASSIGNORS["uniform"]


@given(group=groups(is_even=True))
def test_uniform_members_with_the_same_topics_are_at_most_one_apart(
    group: tuple[list[Subscriber], PartitionCounts],
) -> None:
    members, counts = group
    found = sizes(uniform(members, counts)).values()
    assert max(found) - min(found) <= 1


@given(group=groups(is_even=True))
def test_uniform_moves_no_more_than_balance_asks_for(group: tuple[list[Subscriber], PartitionCounts]) -> None:
    members, counts = group
    assigned = uniform(members, counts)
    now = owners(assigned)
    wanted = members[0].topics
    had = {
        each.member_id: [
            (t, number) for t in wanted for number in each.owned.get(t, ()) if number < counts[t]
        ]
        for each in members
    }
    kept = sum(now[partition] == member_id for member_id, mine in had.items() for partition in mine)
    # The most that any balanced assignment could have left where it is.
    share, extra_count = divmod(sum(counts[t] for t in wanted), len(members))
    over = sum(len(mine) > share for mine in had.values())
    assert kept == sum(min(len(mine), share) for mine in had.values()) + min(extra_count, over)


@given(group=groups())
def test_uniform_leaves_no_move_that_would_help(group: tuple[list[Subscriber], PartitionCounts]) -> None:
    members, counts = group
    assigned = uniform(members, counts)
    load = sizes(assigned)
    for giver in members:
        for topic_id in assigned[giver.member_id]:
            takers = [each.member_id for each in members if topic_id in each.topics]
            assert load[giver.member_id] - min(load[taker] for taker in takers) <= 1


def test_uniform_spreads_a_topic_over_all_members() -> None:
    assigned = uniform([member("a", 1, 2), member("b", 1, 2)], {topic(1): 4, topic(2): 4})
    assert {m: {t: len(p) for t, p in each.items()} for m, each in assigned.items()} == {
        "a": {topic(1): 2, topic(2): 2},
        "b": {topic(1): 2, topic(2): 2},
    }


def test_uniform_gives_a_newcomer_some_of_every_topic() -> None:
    counts = {topic(1): 4, topic(2): 4}
    alone = uniform([member("a", 1, 2)], counts)["a"]
    assigned = uniform([member("a", 1, 2, owned=alone), member("b", 1, 2)], counts)
    assert assigned["a"] == {topic(1): (0, 1), topic(2): (0, 1)}
    assert assigned["b"] == {topic(1): (2, 3), topic(2): (2, 3)}


def test_uniform_changes_one_assignment_for_one_partition_more() -> None:
    before = uniform([member("a", 1), member("b", 1), member("c", 1)], {topic(1): 3})
    members = with_what_they_got([member("a", 1), member("b", 1), member("c", 1)], before)
    after = uniform(members, {topic(1): 4})
    assert sum(after[each] != before[each] for each in before) == 1


@given(group=groups())
def test_uniform_hands_out_what_is_free_before_it_takes_from_anybody(
    group: tuple[list[Subscriber], PartitionCounts],
) -> None:
    # Somebody leaves a balanced group: what the others had stays theirs.
    members, counts = group
    members = [Subscriber(each.member_id, tuple(sorted(counts)), {}) for each in members]
    if len(members) == 1:
        return
    assigned = uniform(members, counts)
    gone, *rest = with_what_they_got(members, assigned)
    after = owners(uniform(rest, counts))
    moved = [partition for partition, owner in owners(assigned).items() if after[partition] != owner]
    assert {owners(assigned)[partition] for partition in moved} <= {gone.member_id}


# ------------------------------------------------------------------------------------------------ range

by_range = ASSIGNORS["range"]


def test_range_cuts_topics_of_one_size_alike() -> None:
    assigned = by_range([member("a", 1, 2), member("b", 1, 2)], {topic(1): 3, topic(2): 3})
    assert assigned == {
        "a": {topic(1): (0, 1), topic(2): (0, 1)},
        "b": {topic(1): (2,), topic(2): (2,)},
    }


@given(group=groups(is_even=True), size=st.integers(0, 9))
def test_range_joins_every_partition_with_its_twin(
    group: tuple[list[Subscriber], PartitionCounts], size: int
) -> None:
    members, counts = group
    assigned = by_range(members, dict.fromkeys(counts, size))
    for partitions in assigned.values():
        assert len(set(partitions.values())) <= 1


@given(group=groups())
def test_range_gives_runs(group: tuple[list[Subscriber], PartitionCounts]) -> None:
    members, counts = group
    for partitions in by_range(members, counts).values():
        for numbers in partitions.values():
            assert numbers == tuple(range(numbers[0], numbers[-1] + 1))


def test_range_lets_static_members_keep_their_runs_when_they_come_back_under_another_id() -> None:
    counts = {topic(1): 3}
    before = by_range([member("m1", 1, static="one"), member("m2", 1, static="two"), member("a", 1)], counts)
    after = by_range([member("z9", 1, static="one"), member("b0", 1, static="two"), member("a", 1)], counts)
    assert (before["m1"], before["m2"], before["a"]) == (after["z9"], after["b0"], after["a"])


def test_range_with_more_members_than_partitions_leaves_the_last_without() -> None:
    assigned = by_range([member("a", 1), member("b", 1), member("c", 1)], {topic(1): 2})
    assert assigned == {"a": {topic(1): (0,)}, "b": {topic(1): (1,)}, "c": {}}
