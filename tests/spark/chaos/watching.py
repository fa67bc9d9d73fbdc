"""Sees from the files of a query what it is doing at the moment."""

from __future__ import annotations

import os
from pathlib import Path

from spark.chaos import setup
from spark.chaos.plan import Moment


class Watch:
    """The files of one query, and of the topic that it writes to."""

    def __init__(self, folder: Path, broker_data: Path, query: str) -> None:
        self._offsets = setup.checkpoint(folder, query) / "offsets"
        self._commits = setup.checkpoint(folder, query) / "commits"
        self._table = setup.table(folder) if query == "table" else None
        self._logs = [
            broker_data / f"{query}-{partition}"
            for partition in range(setup.PARTITIONS.get(query, 0) if query in setup.OUTPUTS else 0)
        ]

    def committed(self) -> int:
        """The last micro-batch that is done; -1 before the first."""
        return _last_number(self._commits)

    def planned(self) -> int:
        """The last micro-batch whose offsets are decided; -1 before the first."""
        return _last_number(self._offsets)

    def sees(self, moment: Moment) -> Sight:
        """What to look at for this moment."""
        return Sight(self, moment)

    def state(self, moment: Moment) -> int:
        """A number that changes when the moment comes."""
        match moment:
            case Moment.OFFSETS:
                return self.planned()
            case Moment.COMMITTED:
                return self.committed()
            case Moment.LOGGED:
                assert self._table is not None, "only files have a log"
                return _last_number(self._table / "_spark_metadata")
            case Moment.WRITING:
                return self._written()
            case _:
                raise AssertionError(moment)

    def is_in_batch(self) -> bool:
        """Whether a micro-batch runs, or did when the driver was killed."""
        return self.planned() > self.committed()

    def _written(self) -> int:
        if self._table is not None:
            return sum(name.endswith(".parquet") for name in _names(self._table))
        return sum(_bytes(log / name) for log in self._logs for name in _names(log) if name.endswith(".log"))


class Sight:
    """Waits for one moment to come."""

    def __init__(self, watch: Watch, moment: Moment) -> None:
        self._watch = watch
        self._moment = moment
        self._before = None if moment in (Moment.ANY, Moment.BATCH) else watch.state(moment)

    def has_come(self) -> bool:
        """Whether it is here now, or was since this was made."""
        match self._moment:
            case Moment.ANY:
                return True
            case Moment.BATCH:
                return self._watch.is_in_batch()
            case Moment.LOGGED:
                return self._has_changed() and self._watch.is_in_batch()
            case _:
                return self._has_changed()

    def _has_changed(self) -> bool:
        now = self._watch.state(self._moment)
        # While a topic is written to, segments may also come and go.
        has_changed, self._before = now != self._before, now
        return has_changed


def _last_number(folder: Path) -> int:
    """The greatest number that is the name of a file, or begins it, as in `9.compact`."""
    numbers = (name.removesuffix(".compact") for name in _names(folder))
    return max((int(name) for name in numbers if name.isdigit()), default=-1)


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except FileNotFoundError:
        return []


def _bytes(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
