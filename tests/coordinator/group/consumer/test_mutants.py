"""Known bugs, put back: each is noticed by a plot of its own, and by the random runs."""

from collections.abc import Callable
from types import ModuleType

import pytest
from coordinator.group.consumer.consumers import Consumer, Consumers, settle
from coordinator.group.consumer.test_ownership import play
from mutants import (
    group_holder_lost_on_reassignment,
    group_late_request_counts,
    group_silence_confirms_revocation,
)


def check_one_reader(*consumers: Consumer) -> None:
    read = [name for each in consumers for name in each.names]
    assert len(read) == len(set(read)), f"a partition has two readers: {sorted(read)}"


def given_back_while_it_was_to_be_given_up() -> None:
    """b comes, so that a is to give t1 up; b goes, so that a keeps it; c comes, and must wait for it."""
    group = Consumers({"t": 2})
    a = Consumer(group, "a", "t").join()
    b = Consumer(group, "b", "t").join()
    a.beat()
    b.leave()
    a.beat()
    c = Consumer(group, "c", "t").join()
    check_one_reader(a, c)
    settle(a, c)
    check_one_reader(a, c)


def silent_while_it_gives_up() -> None:
    """a is to give t1 up and still reads it, while it sends heartbeats that say nothing."""
    group = Consumers({"t": 2})
    a = Consumer(group, "a", "t").join()
    b = Consumer(group, "b", "t").join()
    a.beat(gives_up=False)
    a.beat(gives_up=False)
    b.beat()
    check_one_reader(a, b)


def an_old_request_arrives() -> None:
    """a joined twice, because the first request did not arrive; it does when a is to give t1 up."""
    group = Consumers({"t": 2})
    a = Consumer(group, "a", "t")
    a.take(group.enter("a", connection=2))
    b = Consumer(group, "b", "t").join()
    group.beat("a", a.epoch, connection=2)
    group.enter("a", connection=1)
    b.beat()
    check_one_reader(a, b)


PLOTS: list[tuple[ModuleType, Callable[[], None]]] = [
    (group_holder_lost_on_reassignment, given_back_while_it_was_to_be_given_up),
    (group_silence_confirms_revocation, silent_while_it_gives_up),
    (group_late_request_counts, an_old_request_arrives),
]


@pytest.mark.parametrize(("mutant", "plot"), PLOTS, ids=[mutant.__name__ for mutant, _ in PLOTS])
def test_a_plot_notices_its_mutant_and_nothing_else(mutant: ModuleType, plot: Callable[[], None]) -> None:
    plot()
    with mutant.applied(), pytest.raises(AssertionError, match="two readers"):
        plot()


@pytest.mark.parametrize(
    "mutant",
    [group_holder_lost_on_reassignment, group_silence_confirms_revocation],
    ids=lambda each: each.__name__,
)
def test_random_runs_notice_a_mutant(mutant: ModuleType) -> None:
    noticed = 0
    with mutant.applied():
        for seed in range(12):
            try:
                play(seed, 300)
            except AssertionError:
                noticed += 1
    assert noticed
