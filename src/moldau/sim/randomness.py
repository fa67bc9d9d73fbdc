"""Chance that can be repeated: every draw of a simulation follows from its seed."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


class Seeded:
    """The Randomness port under a seed, and the further draws that a simulation makes."""

    def __init__(self, seed: int | str) -> None:
        self.seed = str(seed)
        # A text is hashed by SHA-512 here, never by hash(), so that it means the same in every process.
        self._random = random.Random(self.seed)

    def fork(self, name: str) -> Seeded:
        """A stream of its own for `name`, so that draws in one place do not move those in another."""
        return Seeded(f"{self.seed}/{name}")

    def below(self, bound: int) -> int:
        """A whole number from 0 up to, and without, `bound`."""
        return self._random.randrange(bound)

    def bytes(self, count: int) -> bytes:
        """`count` random bytes."""
        return self._random.randbytes(count)

    def between(self, low: int, high: int) -> int:
        """A whole number from `low` to `high`, both included."""
        return self._random.randint(low, high)

    def chance(self, probability: float) -> bool:
        """True as often as `probability` says."""
        return self._random.random() < probability

    def choice(self, options: Sequence[T]) -> T:
        """One of `options`."""
        return self._random.choice(options)

    def some(self, options: Sequence[T]) -> list[T]:
        """A random part of `options`, in their order; each is in or out by a coin of its own."""
        return [option for option in options if self._random.random() < 0.5]

    def shuffled(self, options: Sequence[T]) -> list[T]:
        """`options` in another order."""
        return self._random.sample(options, len(options))
