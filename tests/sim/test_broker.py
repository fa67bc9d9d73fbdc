"""One broker and its clients in the simulator: random seeds, and mutants that must be caught."""

import pytest

from moldau.sim.run import play

SEEDS = 120
SEEDS_AT_ONCE = 5


@pytest.mark.parametrize("first", range(0, SEEDS, SEEDS_AT_ONCE))
def test_nothing_is_lost_doubled_or_moved_under_random_faults(first: int) -> None:
    for seed in range(first, first + SEEDS_AT_ONCE):
        outcome = play("broker", seed)
        assert outcome.is_ok, f"{outcome.failure_detail}\nAgain: moldau sim --scenario broker --seed {seed}"


def test_a_seed_replays_exactly() -> None:
    assert play("broker", 3).digest == play("broker", 3).digest
