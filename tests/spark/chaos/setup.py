"""Where everything is that the run and its driver must both find."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

INPUT: Final = "inputs"
OUTPUTS: Final = ("copy", "counts")
PARTITIONS: Final = {INPUT: 4, "copy": 3, "counts": 2}
DATA_SOURCE: Final = "moldau"


@dataclass(frozen=True, slots=True)
class Setup:
    """A folder, a broker, and which data source each query uses: `module:class`, or that of Moldau."""

    folder: str
    bootstrap_servers: str
    master: str
    life: int
    sources: Mapping[str, str] = field(default_factory=dict)
    sinks: Mapping[str, str] = field(default_factory=dict)

    def write(self) -> Path:
        """Leave it for the driver."""
        path = Path(self.folder) / f"driver-{self.life}.json"
        path.write_text(json.dumps(asdict(self)))
        return path

    @classmethod
    def read(cls, path: Path) -> Setup:
        """What was left."""
        return cls(**json.loads(path.read_text()))

    @property
    def log(self) -> Path:
        """What the driver and its JVM print."""
        return Path(self.folder) / f"driver-{self.life}.log"


def group_of(query: str) -> str:
    """The group to which a query commits its progress."""
    return f"chaos-{query}"


def checkpoint(folder: Path, query: str) -> Path:
    """What Spark knows of a query."""
    return folder / "checkpoints" / query


def table(folder: Path) -> Path:
    """The Parquet files."""
    return folder / "table"


def events(folder: Path) -> Path:
    """What drivers note, a line of JSON each."""
    return folder / "events.jsonl"


def finish(folder: Path) -> Path:
    """A file that tells the driver to read what is left, and end."""
    return folder / "finish"


def rows(folder: Path) -> Path:
    """The rows of the table as Spark reads them, written by the driver at the end."""
    return folder / "rows.parquet"


def done(folder: Path) -> Path:
    """A file that the driver leaves when it has done all that it was told."""
    return folder / "done.json"
