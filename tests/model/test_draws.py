from collections import Counter

import pytest

from moldau.model.draws import Draws

SEED = bytes(range(16))


def test_the_same_seed_gives_the_same_draws_and_another_seed_others() -> None:
    first, second, other = Draws(SEED), Draws(SEED), Draws(SEED[::-1])
    drawn = [first.uuid() for _ in range(100)]
    assert drawn == [second.uuid() for _ in range(100)]
    assert not set(drawn) & {other.uuid() for _ in range(100)}
    assert len(set(drawn)) == 100


def test_numbers_stay_below_their_bound_and_reach_all_of_it() -> None:
    draws = Draws(SEED)
    counts = Counter(draws.below(5) for _ in range(5_000))
    assert sorted(counts) == [0, 1, 2, 3, 4]
    assert min(counts.values()) > 800


def test_a_shuffle_keeps_everything() -> None:
    items = list(range(20))
    shuffled = Draws(SEED).shuffled(items)
    assert sorted(shuffled) == items == list(range(20))
    assert shuffled != items


def test_a_short_seed_is_refused() -> None:
    with pytest.raises(AssertionError):
        Draws(b"short")
