"""Figures with their spread: medians of rounds, and percentiles of many samples."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Spread:
    """What several rounds gave: the one in the middle, and how far the others lie apart."""

    median: float
    low: float
    high: float
    rounds: int

    def __str__(self) -> str:
        return f"{short(self.median)} ({short(self.low)}–{short(self.high)})"


def spread(values: Sequence[float]) -> Spread:
    """The median of at least one round, the lowest and the highest."""
    assert values, "there was at least one round"
    ordered = sorted(values)
    return Spread(median(ordered), ordered[0], ordered[-1], len(ordered))


def median(values: Sequence[float]) -> float:
    """The value in the middle, or the mean of the two there."""
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def percentile(samples: Sequence[float], percent: float) -> float:
    """The smallest sample that at least so many percent of all do not exceed (the nearest rank)."""
    assert samples, "a percentile of nothing"
    assert 0 < percent <= 100, percent
    ordered = sorted(samples)
    # Rounded first, because 99.9 / 100 * 1000 is a little more than 999.
    rank = math.ceil(round(percent * len(ordered) / 100, 6))
    return ordered[max(rank, 1) - 1]


def short(value: float) -> str:
    """Three digits that count, for tables: 0.0123, 1.23, 12.3, 123, 12,300."""
    if value == 0:
        return "0"
    # By way of the rounded value: 0.9996 is 1.00, not 1.000.
    rounded = float(f"{value:.3g}")
    return f"{rounded:,.{max(2 - math.floor(math.log10(abs(rounded))), 0)}f}"
