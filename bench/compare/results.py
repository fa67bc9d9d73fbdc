"""The figures of a comparison, as they are kept in JSON and shown."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

from moldau.bench.figures import Spread, median, spread

SERVER_CPU = "server CPU"
CLIENT_CPU = "client CPU"
CPU_UNIT = "s/million"


@dataclass(frozen=True, slots=True)
class Figure:
    """One reading of one row, for the contenders of one pair: a value of each round, None where it failed."""

    row: str
    group: str
    title: str
    pair: str
    reading: str
    unit: str
    is_more_better: bool
    values: dict[str, list[float | None]]

    def spread_of(self, contender: str) -> Spread | None:
        """The median of a contender's rounds; None if it took no part."""
        found = [value for value in self.values.get(contender, ()) if value is not None]
        return spread(found) if found else None

    def advantage(self, ours: str, theirs: str) -> float | None:
        """How many times as good we are, as the median over rounds, each by itself; below 1 we are behind."""
        ratios = []
        for our, their in zip(self.values.get(ours, ()), self.values.get(theirs, ()), strict=False):
            if our and their:
                ratios.append(our / their if self.is_more_better else their / our)
        return median(ratios) if ratios else None


@dataclass(frozen=True, slots=True)
class Results:
    """A whole run."""

    facts: dict[str, str]
    rounds: int
    missing: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    figures: list[Figure] = field(default_factory=list)

    def figure(self, row: str, pair: str, reading: str) -> Figure | None:
        """One figure, if it was measured."""
        for each in self.figures:
            if (each.row, each.pair, each.reading) == (row, pair, reading):
                return each
        return None

    def to_json(self) -> str:
        """As text, a line for each figure."""
        content = asdict(self)
        figures = ",\n  ".join(json.dumps(each) for each in content.pop("figures"))
        head = json.dumps(content, indent=1).removesuffix("\n}")
        return f'{head},\n "figures": [\n  {figures}\n ]\n}}\n'

    @classmethod
    def from_json(cls, text: str) -> Results:
        """From text."""
        content = json.loads(text)
        content["figures"] = [Figure(**each) for each in content["figures"]]
        return cls(**content)


def read_results(path: Path) -> Results:
    """What an earlier run has left."""
    return Results.from_json(path.read_text())
