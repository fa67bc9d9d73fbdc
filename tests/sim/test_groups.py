"""A group of readers in the simulator: random seeds, plots without chance, mutants to be caught."""

from collections.abc import Callable
from types import ModuleType

import pytest
from mutants import (
    group_answers_before_loaded,
    group_commit_answered_before_flush,
    group_holder_lost_on_reassignment,
    group_silence_confirms_revocation,
    group_stale_commit_counts,
)
from sim.groups import ToldGroup

from moldau.model.errors import ErrorCode
from moldau.sim.run import Violation, play

SEEDS = 100
SEEDS_AT_ONCE = 5


@pytest.mark.parametrize("first", range(0, SEEDS, SEEDS_AT_ONCE))
def test_nothing_is_skipped_or_read_by_two_under_random_faults(first: int) -> None:
    for seed in range(first, first + SEEDS_AT_ONCE):
        outcome = play("groups", seed)
        assert outcome.is_ok, f"{outcome.failure_detail}\nAgain: moldau sim --scenario groups --seed {seed}"


def test_a_seed_replays_exactly() -> None:
    assert play("groups", 3).digest == play("groups", 3).digest


# ---------------------------------------------------------------- plots that catch one mutant each


def lose_power_once_a_commit_is_answered() -> None:
    """The disk is slow, and the power goes as soon as a commit has succeeded."""
    with ToldGroup() as group:
        member = group.join("a")
        member.read(0, 0, 10)
        assert member.commit(0, 5) is ErrorCode.NONE
        group.look()
        group.run_for(100)
        group.disk.flush_ms = (200, 200)
        assert member.commit(0, 10) is ErrorCode.NONE
        group.disk.flush_ms = (0, 5)
        group.lose_power()
        group.look()


def lose_power_once_a_commit_is_seen() -> None:
    """Nobody has heard of the commit but somebody who asked meanwhile; what he was told must stay."""
    with ToldGroup() as group:
        member = group.join("a")
        member.read(0, 0, 10)
        assert member.commit(0, 5) is ErrorCode.NONE
        group.run_for(100)
        group.disk.flush_ms = (200, 200)
        written = member.send_commit(0, 10)
        group.run_for(50)
        group.look()
        # It was seen, so that it is there from now on.
        group.history.on_committed(written, group.sim.loop.now_us)
        group.disk.flush_ms = (0, 5)
        group.lose_power()
        group.look()


def ask_while_it_starts() -> None:
    """A coordinator that has just started is asked where the group is, again and again."""
    with ToldGroup({"offsets.load.buffer.size": "1"}) as group:
        member = group.join("a")
        member.read(0, 0, 60)
        for offset in range(1, 60):
            assert member.commit(0, offset) is ErrorCode.NONE
        group.lose_power()
        group.look()


def give_back_what_was_to_be_given_up() -> None:
    """b comes, so that a is to give one up; b goes, so that a keeps it; c comes, and must wait for it."""
    with ToldGroup() as group:
        a = group.join("a")
        b = group.join("b")
        a.beat()
        b.leave()
        a.beat()
        c = group.join("c")
        a.beat()
        c.beat()
        a.give_up()
        a.beat()
        c.beat()
        assert len(a.owned) == len(c.owned) == 1


def be_silent_while_giving_up() -> None:
    """a is to give one up and still reads it, while it sends heartbeats that say nothing."""
    with ToldGroup() as group:
        a = group.join("a")
        b = group.join("b")
        a.beat()
        a.beat()
        b.beat()
        a.give_up()
        a.beat()
        b.beat()
        assert len(a.owned) == len(b.owned) == 1


def commit_after_it_was_given_to_another() -> None:
    """a gives a partition up, b reads on and commits; a commits once more in the epoch in which it had it."""
    with ToldGroup() as group:
        a = group.join("a")
        (first, second) = sorted(a.owned)
        for index in (first, second):
            a.read(index, 0, 5)
        b = group.join("b")
        a.beat()
        (lost,) = a.owned - a.wanted
        assert a.commit(lost, 5) is ErrorCode.NONE
        epoch = a.epoch
        a.give_up()
        a.beat()
        b.beat()
        assert b.owned == {lost}
        b.read(lost, 5, 5)
        assert b.commit(lost, 10) is ErrorCode.NONE
        now, a.epoch = a.epoch, epoch
        a.commit(lost, 4)
        a.epoch = now
        group.look()


Plot = Callable[[], None]

PLOTS: list[tuple[ModuleType, Plot]] = [
    (group_commit_answered_before_flush, lose_power_once_a_commit_is_answered),
    (group_commit_answered_before_flush, lose_power_once_a_commit_is_seen),
    (group_answers_before_loaded, ask_while_it_starts),
    (group_holder_lost_on_reassignment, give_back_what_was_to_be_given_up),
    (group_silence_confirms_revocation, be_silent_while_giving_up),
    (group_stale_commit_counts, commit_after_it_was_given_to_another),
]
NAMES = [f"{mutant.__name__.removeprefix('mutants.')}-{plot.__name__}" for mutant, plot in PLOTS]


@pytest.mark.parametrize(("mutant", "plot"), PLOTS, ids=NAMES)
def test_a_mutant_is_caught_by_its_plot(mutant: ModuleType, plot: Plot) -> None:
    with mutant.applied(), pytest.raises(Violation):
        plot()


@pytest.mark.parametrize("plot", [plot for _, plot in PLOTS], ids=lambda plot: plot.__name__)
def test_nothing_is_wrong_with_the_plot_itself(plot: Plot) -> None:
    plot()
