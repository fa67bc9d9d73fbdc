"""One run: a scenario under a seed, from the first fault to the last check.

A run has a safety phase with faults, then everything heals (or only a random core of it), then a liveness
phase in which all that was begun must end, then a final check. A checker runs after every step of the loop.
"""

from __future__ import annotations

import gc
import importlib
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar, Protocol

from moldau.sim.cluster import Cluster
from moldau.sim.faults import Nemesis
from moldau.sim.scenarios import SCENARIOS
from moldau.sim.trace import Event


class Violation(Exception):
    """Something that must hold did not."""


class Scenario(Protocol):
    """A cluster, its work, and what must hold; one object plays one run."""

    faults: ClassVar[Sequence[str]]  # the kinds that a seed may turn on
    safety_ms: ClassVar[int]
    liveness_ms: ClassVar[int]

    def build(self, cluster: Cluster) -> Sequence[str]:
        """Add the nodes and start them; gives the names of those that may be hurt."""
        ...

    def core(self, cluster: Cluster) -> Sequence[str] | None:
        """The victims that are healed before the liveness phase; None for all."""
        ...

    def check_step(self) -> None:
        """Raise Violation if something is wrong right now; called after every step, so it must be quick."""
        ...

    def heal(self) -> None:
        """The faults are over: begin what has to end in the liveness phase."""
        ...

    def is_settled(self) -> bool:
        """Whether all that was begun has ended."""
        ...

    def check_end(self) -> None:
        """Raise Violation if something is wrong after all has settled."""
        ...


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a run; plain data, so that it can cross processes."""

    scenario: str
    seed: int
    digest: str
    event_count: int
    virtual_ms: int
    faults: tuple[str, ...]
    counts: tuple[tuple[str, int], ...]
    notable: tuple[Event, ...]
    failure: str | None
    failure_detail: str = ""

    @property
    def is_ok(self) -> bool:
        """Whether everything held."""
        return self.failure is None


def play(name: str, seed: int) -> Outcome:
    """Run a scenario of the table under a seed."""
    return play_scenario(load(name), name=name, seed=seed)


def load(name: str) -> Scenario:
    """A new scenario of that name; KeyError if there is none."""
    return scenario_class(name)()


def scenario_class(name: str) -> type[Scenario]:
    """The class behind a name of the table."""
    module, _, attribute = SCENARIOS[name].partition(":")
    found: type[Scenario] = getattr(importlib.import_module(module), attribute)
    return found


def play_scenario(scenario: Scenario, *, name: str, seed: int) -> Outcome:
    """Run a scenario under a seed; what goes wrong in it is part of the outcome."""
    cluster = Cluster(f"{name} {seed}")
    nemesis: Nemesis | None = None
    failure: BaseException | None = None
    with collected_by_count_alone():
        try:
            victims = scenario.build(cluster)
            nemesis = Nemesis(cluster, scenario.faults, victims=victims)
            _phases(scenario, cluster, nemesis)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001  an escape or a power cut is a finding, like any exception
            failure = error
        finally:
            cluster.close()
    return Outcome(
        scenario=name,
        seed=seed,
        digest=cluster.trace.hexdigest(),
        event_count=cluster.trace.event_count,
        virtual_ms=cluster.loop.now_us // 1000,
        faults=tuple(nemesis.kinds) if nemesis else (),
        counts=tuple(sorted(cluster.trace.kinds.items())),
        notable=tuple(cluster.trace.notable),
        failure=None if failure is None else f"{type(failure).__name__}: {failure}",
        failure_detail="" if failure is None else "".join(traceback.format_exception(failure)),
    )


def _phases(scenario: Scenario, cluster: Cluster, nemesis: Nemesis) -> None:
    cluster.loop.after_step = scenario.check_step
    nemesis.start()
    cluster.run_for(scenario.safety_ms)
    nemesis.heal(scenario.core(cluster))
    scenario.heal()
    if not cluster.run_until(scenario.is_settled, timeout_ms=scenario.liveness_ms):
        raise Violation(f"not settled {scenario.liveness_ms} ms after the faults ended")
    scenario.check_end()
    cluster.loop.check_tasks()


@contextmanager
def collected_by_count_alone() -> Iterator[None]:
    """A block without the cycle collector, whose moments depend on what else this process has done."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
