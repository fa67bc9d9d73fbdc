"""Who is killed when follows from a seed."""

from collections import Counter

import pytest
from spark.chaos.plan import Kill, Moment, Role, Victim, plan


def test_a_seed_is_a_plan() -> None:
    assert plan(7, 30) == plan(7, 30)
    assert plan(7, 30) != plan(8, 30)


@pytest.mark.parametrize("seed", range(20))
def test_every_victim_has_its_share(seed: int) -> None:
    assert set(Counter(kill.victim for kill in plan(seed, 30)).values()) == {10}
    assert {kill.victim for kill in plan(seed, 3)} == {*Victim}


def test_every_kind_of_kill_comes_up() -> None:
    kills = [kill for seed in range(40) for kill in plan(seed, 30)]

    def pairs(of: Victim) -> set[Moment]:
        return {kill.moment for kill in kills if kill.victim is of}

    assert all(pairs(victim) == {*Moment} for victim in Victim)
    assert {kill.role for kill in kills if kill.victim is Victim.WORKER} == {*Role}
    assert {kill.down_s for kill in kills if kill.victim is Victim.BROKER} == {0.0, 1.0, 5.0}
    assert {kill.is_hurried for kill in kills} == {False, True}


@pytest.mark.parametrize("seed", range(20))
def test_a_plan_can_be_carried_out(seed: int) -> None:
    kills = plan(seed, 30)
    assert not kills[0].is_hurried, "there must be something to kill"
    assert all(is_possible(kill) for kill in kills)


def is_possible(kill: Kill) -> bool:
    return (kill.moment is not Moment.LOGGED or kill.query == "table") and 0 <= kill.pick < 1
