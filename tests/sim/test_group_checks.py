"""What a history of a group takes for a contradiction, and what it does not."""

from collections.abc import Callable

import pytest

from moldau.model.ids import PartitionIndex, TopicName, TopicPartition
from moldau.sim.group_checks import GroupHistory
from moldau.sim.run import Violation

AT = TopicPartition(TopicName("t"), PartitionIndex(0))
FORMER_MEMBER = "former"


def is_member(reader: str) -> bool | None:
    return None if reader == "nobody knows" else reader != FORMER_MEMBER


def reads(history: GroupHistory, reader: str, *offsets: int, now_us: int) -> None:
    for offset in offsets:
        history.on_read(reader, AT, offset, now_us)


def commits(history: GroupHistory, reader: str, offset: int, *, sent_us: int, done_us: int | None) -> None:
    written = history.on_commit(reader, {AT: offset}, sent_us)
    if done_us is not None:
        history.on_committed(written, done_us)


def told(history: GroupHistory, offset: int, *, asked_us: int, now_us: int) -> None:
    history.on_told("somebody", {AT: offset}, [AT], asked_us=asked_us, now_us=now_us)


def begun(*offsets: int) -> GroupHistory:
    """One reader that has read some."""
    history = GroupHistory(is_member)
    history.on_granted("a", [AT], 10)
    reads(history, "a", *offsets, now_us=20)
    return history


def the_next_one_goes_on_where_the_last_one_committed() -> None:
    history = begun(0, 1, 2)
    commits(history, "a", 2, sent_us=30, done_us=40)
    history.on_given_up("a", [AT])
    history.on_granted("b", [AT], 50)
    reads(history, "b", 2, 3, now_us=60)


def a_commit_that_was_not_answered_happened() -> None:
    history = begun(0, 1, 2)
    commits(history, "a", 3, sent_us=30, done_us=None)
    told(history, 3, asked_us=40, now_us=50)


def a_commit_that_was_not_answered_did_not_happen() -> None:
    history = begun(0, 1, 2)
    commits(history, "a", 2, sent_us=30, done_us=35)
    commits(history, "a", 3, sent_us=40, done_us=None)
    history.on_gone("a")
    history.on_granted("b", [AT], 50)
    reads(history, "b", 2, now_us=60)


def one_who_is_no_member_any_more_reads_on() -> None:
    history = GroupHistory(is_member)
    history.on_granted(FORMER_MEMBER, [AT], 10)
    history.on_granted("b", [AT], 20)
    history.check_owners()


def nobody_can_say_who_is_a_member() -> None:
    history = GroupHistory(is_member)
    history.on_granted("nobody knows", [AT], 10)
    history.on_granted("b", [AT], 20)


def two_members_read() -> None:
    history = begun(0)
    history.on_granted("b", [AT], 20)


def given_twice() -> None:
    begun(0).on_granted("a", [AT], 20)


def read_after_it_was_given_up() -> None:
    history = begun(0)
    history.on_given_up("a", [AT])
    reads(history, "a", 1, now_us=20)


def a_record_is_left_out() -> None:
    begun(0, 1, 3)


def a_record_is_read_again() -> None:
    begun(0, 1, 1)


def begun_behind_what_was_committed() -> None:
    history = begun(0, 1, 2)
    commits(history, "a", 2, sent_us=30, done_us=40)
    history.on_gone("a")
    history.on_granted("b", [AT], 50)
    reads(history, "b", 3, now_us=60)


def begun_at_a_commit_that_was_overwritten() -> None:
    history = begun(0, 1, 2)
    commits(history, "a", 1, sent_us=30, done_us=40)
    commits(history, "a", 2, sent_us=50, done_us=60)
    history.on_gone("a")
    history.on_granted("b", [AT], 70)
    reads(history, "b", 1, now_us=80)


def a_commit_is_lost() -> None:
    history = begun(0, 1, 2)
    commits(history, "a", 2, sent_us=30, done_us=40)
    told(history, 0, asked_us=50, now_us=60)


def a_commit_counts_after_another_has_the_partition() -> None:
    history = begun(0, 1, 2)
    commits(history, "a", 1, sent_us=30, done_us=None)
    history.on_gone("a")
    history.on_granted("b", [AT], 40)
    reads(history, "b", 0, 1, 2, now_us=50)
    commits(history, "b", 3, sent_us=60, done_us=70)
    told(history, 1, asked_us=80, now_us=90)


def one_commits_what_it_has_given_up() -> None:
    history = begun(0, 1, 2)
    history.on_given_up("a", [AT])
    commits(history, "a", 1, sent_us=30, done_us=40)
    told(history, 1, asked_us=50, now_us=60)


def what_nobody_has_read_is_committed() -> None:
    commits(begun(0, 1), "a", 3, sent_us=30, done_us=None)


FINE: list[Callable[[], object]] = [
    the_next_one_goes_on_where_the_last_one_committed,
    a_commit_that_was_not_answered_happened,
    a_commit_that_was_not_answered_did_not_happen,
    one_who_is_no_member_any_more_reads_on,
    nobody_can_say_who_is_a_member,
]
WRONG: list[Callable[[], object]] = [
    two_members_read,
    given_twice,
    read_after_it_was_given_up,
    a_record_is_left_out,
    a_record_is_read_again,
    begun_behind_what_was_committed,
    begun_at_a_commit_that_was_overwritten,
    a_commit_is_lost,
    a_commit_counts_after_another_has_the_partition,
    one_commits_what_it_has_given_up,
    what_nobody_has_read_is_committed,
]


@pytest.mark.parametrize("happens", FINE, ids=lambda happens: happens.__name__)
def test_what_may_happen_is_no_contradiction(happens: Callable[[], object]) -> None:
    happens()


@pytest.mark.parametrize("happens", WRONG, ids=lambda happens: happens.__name__)
def test_what_must_not_happen_is_noticed(happens: Callable[[], object]) -> None:
    with pytest.raises(Violation):
        happens()


def test_what_was_not_read_is_known() -> None:
    assert begun(0, 1).unread(AT, [0, 1, 2, 3]) == [2, 3]
