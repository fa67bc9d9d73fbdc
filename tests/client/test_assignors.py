"""Who reads what in a classic group: nobody twice, nothing forgotten, and little moved."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.client.assignors import ASSIGNORS, Assigned, Subscription, assign_sticky, assignors_named
from moldau.client.offsets import place_of
from moldau.model.ids import TopicPartition

COUNTS = {"a": 3, "b": 2}


def places(*texts: str) -> list[TopicPartition]:
    """`a0` is partition 0 of topic a."""
    return [place_of((text[0], int(text[1:]))) for text in texts]


def members(**topics: str) -> dict[str, Subscription]:
    return {name: Subscription(tuple(wanted)) for name, wanted in topics.items()}


@pytest.mark.parametrize(
    ("assignor", "expected"),
    [
        ("range", {"x": places("a0", "a1", "b0"), "y": places("a2", "b1")}),
        ("roundrobin", {"x": places("a0", "a2", "b1"), "y": places("a1", "b0")}),
        ("cooperative-sticky", {"x": places("a0", "a2", "b1"), "y": places("a1", "b0")}),
    ],
)
def test_two_members_of_two_topics_share_them_as_each_assignor_says(
    assignor: str, expected: Assigned
) -> None:
    assert ASSIGNORS[assignor].assign(members(y="ab", x="ab"), COUNTS) == expected


def test_static_members_are_counted_by_their_instance_whatever_id_they_came_back_with() -> None:
    before = {"m9": Subscription(("a",), instance_id="one"), "m1": Subscription(("a",), instance_id="two")}
    after = {"m1": Subscription(("a",), instance_id="one"), "m9": Subscription(("a",), instance_id="two")}
    assign = ASSIGNORS["range"].assign
    assert assign(before, COUNTS)["m9"] == assign(after, COUNTS)["m1"] == places("a0", "a1")


def test_what_moves_is_given_to_nobody_until_its_owner_has_let_go() -> None:
    group = {"x": Subscription(("a",), tuple(places("a0", "a1", "a2")), 4), "y": Subscription(("a",))}
    first = ASSIGNORS["cooperative-sticky"].assign(group, COUNTS)
    assert first == {"x": places("a0", "a1"), "y": []}
    group = {"x": Subscription(("a",), tuple(first["x"]), 5), "y": Subscription(("a",), (), 5)}
    assert ASSIGNORS["cooperative-sticky"].assign(group, COUNTS) == {
        "x": places("a0", "a1"),
        "y": places("a2"),
    }


def test_of_two_who_claim_a_partition_the_one_of_the_later_generation_has_it() -> None:
    claim = tuple(places("a0", "a1"))
    group = {"x": Subscription(("a",), claim, 3), "y": Subscription(("a",), claim, 4)}
    assigned = assign_sticky(group, {"a": 2})
    assert assigned == {"x": places("a0"), "y": places("a1")} or assigned["y"] == places("a0")
    assert ASSIGNORS["cooperative-sticky"].assign(group, {"a": 2})["x"] == []


def test_an_assignor_that_nobody_knows_is_refused_with_those_there_are() -> None:
    with pytest.raises(ValueError, match="no assignor 'best', only range, roundrobin, cooperative-sticky"):
        assignors_named(["range", "best"])


@st.composite
def groups(draw: st.DrawFn) -> tuple[dict[str, Subscription], dict[str, int]]:
    counts = draw(st.dictionaries(st.sampled_from("abcd"), st.integers(1, 6), min_size=1))
    names = draw(st.lists(st.sampled_from("stuvwxyz"), min_size=1, unique=True))
    return {
        name: Subscription(
            tuple(draw(st.lists(st.sampled_from("abcde"), unique=True))),
            tuple(
                place_of(each)
                for each in draw(
                    st.lists(st.tuples(st.sampled_from("abcde"), st.integers(0, 7)), unique=True)
                )
            ),
            draw(st.integers(-1, 3)),
        )
        for name in names
    }, counts


@pytest.mark.parametrize("name", ["range", "roundrobin"])
@given(groups())
def test_every_partition_that_somebody_wants_is_read_by_exactly_one_who_wants_it(
    name: str, group: tuple[dict[str, Subscription], dict[str, int]]
) -> None:
    check_complete(ASSIGNORS[name].assign(*group), *group)


@given(groups())
def test_sticky_is_complete_and_no_move_would_make_it_more_even(
    group: tuple[dict[str, Subscription], dict[str, int]],
) -> None:
    subscriptions, counts = group
    assigned = assign_sticky(subscriptions, counts)
    check_complete(assigned, subscriptions, counts)
    for member, owned in assigned.items():
        for place in owned:
            for other, wanted in subscriptions.items():
                if place.topic in wanted.topics:
                    assert len(assigned[other]) + 1 >= len(owned), (member, other, place)


@given(groups())
def test_once_all_have_what_sticky_gave_them_nothing_moves_any_more(
    group: tuple[dict[str, Subscription], dict[str, int]],
) -> None:
    subscriptions, counts = group
    assigned = assign_sticky(subscriptions, counts)
    settled = {
        member: Subscription(wanted.topics, tuple(assigned[member]), 9)
        for member, wanted in subscriptions.items()
    }
    assert assign_sticky(settled, counts) == assigned
    assert ASSIGNORS["cooperative-sticky"].assign(settled, counts) == assigned


def check_complete(
    assigned: Assigned, subscriptions: dict[str, Subscription], counts: dict[str, int]
) -> None:
    wanted = {topic for each in subscriptions.values() for topic in each.topics if topic in counts}
    given_out = [place for owned in assigned.values() for place in owned]
    assert sorted(given_out) == sorted(
        place_of((topic, index)) for topic in wanted for index in range(counts[topic])
    )
    for member, owned in assigned.items():
        assert {place.topic for place in owned} <= set(subscriptions[member].topics)
