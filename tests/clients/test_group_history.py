"""What is checked in the history of a group is found where it does not hold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import pytest
from clients.members.history import check_commits_kept, check_no_gaps, check_nothing_owned_twice
from clients.members.member import Committed, Disturbed, Event, Read, Rebalanced


@dataclass
class Told:
    """A member that has told these events."""

    name: str
    events: list[Event]


def rebalanced(at: int, kind: Literal["assigned", "revoked", "lost"], *partitions: int) -> Rebalanced:
    return Rebalanced(at, kind, frozenset(partitions))


def test_a_partition_that_goes_from_one_to_the_other_has_one_owner() -> None:
    one = Told("one", [rebalanced(1, "assigned", 0, 1), rebalanced(5, "revoked", 0)])
    check_nothing_owned_twice([one, Told("other", [rebalanced(5, "assigned", 0)])])


def test_a_partition_that_comes_before_it_goes_has_two_owners() -> None:
    one = Told("one", [rebalanced(1, "assigned", 0, 1), rebalanced(5, "revoked", 0)])
    with pytest.raises(AssertionError, match="owned twice"):
        check_nothing_owned_twice([one, Told("other", [rebalanced(4, "assigned", 0), Committed(6, {0: 1})])])


@pytest.mark.parametrize("end", [Disturbed(9), rebalanced(9, "lost", 0)])
def test_who_could_not_tell_owned_until_the_coordinator_last_answered(end: Event) -> None:
    one = Told("one", [rebalanced(1, "assigned", 0), Committed(5, {0: 7}), end])
    check_nothing_owned_twice([one, Told("other", [rebalanced(6, "assigned", 0)])])
    with pytest.raises(AssertionError, match="owned twice"):
        check_nothing_owned_twice([one, Told("other", [rebalanced(4, "assigned", 0)])])


def test_who_goes_on_before_what_was_committed_is_found() -> None:
    one = Told("one", [rebalanced(1, "assigned", 0), Committed(5, {0: 7})])
    check_commits_kept([one, Told("other", [rebalanced(6, "assigned", 0), Read(7, 0, 7)])])
    with pytest.raises(AssertionError, match="committed was 7"):
        check_commits_kept([one, Told("other", [rebalanced(6, "assigned", 0), Read(7, 0, 6)])])


def test_who_leaves_a_record_out_is_found() -> None:
    check_no_gaps([Told("one", [Read(1, 0, 4), Read(2, 0, 5), Read(3, 0, 4), Read(4, 1, 9)])])
    with pytest.raises(AssertionError, match="from 4 to 6"):
        check_no_gaps([Told("one", [Read(1, 0, 4), Read(2, 0, 6)])])
