"""Numbers and ids drawn from one random value, so that a decision is a function of its arguments."""

from __future__ import annotations

from hashlib import blake2b
from typing import Final, TypeVar

from moldau.model.ids import Uuid, uuid_from_random

T = TypeVar("T")

SEED_BYTES: Final = 16
_DRAW_BYTES: Final = 16


class Draws:
    """A sequence of draws; the same seed gives the same sequence, and different seeds share nothing."""

    def __init__(self, seed: bytes) -> None:
        assert len(seed) >= SEED_BYTES, "a short seed would give the same ids twice"
        self._seed = seed
        self._count = 0

    def uuid(self) -> Uuid:
        """An id that was never drawn before."""
        return uuid_from_random(self._draw())

    def below(self, bound: int) -> int:
        """A whole number from 0 up to, and without, `bound`."""
        # 128 bits leave no bias worth mentioning.
        return int.from_bytes(self._draw(), "big") % bound

    def shuffled(self, items: list[T]) -> list[T]:
        """The items in another order (Fisher and Yates)."""
        shuffled = list(items)
        for last in range(len(shuffled) - 1, 0, -1):
            other = self.below(last + 1)
            shuffled[last], shuffled[other] = shuffled[other], shuffled[last]
        return shuffled

    def _draw(self) -> bytes:
        self._count += 1
        return blake2b(self._count.to_bytes(8, "big"), key=self._seed, digest_size=_DRAW_BYTES).digest()
