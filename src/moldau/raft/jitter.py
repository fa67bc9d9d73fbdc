"""Numbers that differ between nodes and follow from one seed, so that elections rarely collide."""

from __future__ import annotations

_MASK = 2**64 - 1


class Jitter:
    """A stream of numbers (SplitMix64): the seed is the only chance in it."""

    def __init__(self, seed: int) -> None:
        self._state = seed & _MASK

    def below(self, bound: int) -> int:
        """The next number from 0 up to, and without, `bound`; 0 if the bound leaves no choice."""
        self._state = (self._state + 0x9E3779B97F4A7C15) & _MASK
        mixed = self._state
        mixed = ((mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9) & _MASK
        mixed = ((mixed ^ mixed >> 27) * 0x94D049BB133111EB) & _MASK
        mixed ^= mixed >> 31
        return mixed % bound if bound > 0 else 0
