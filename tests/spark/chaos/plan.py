"""Who is killed when: a list that follows from a seed. Pure."""

from __future__ import annotations

import random
from dataclasses import dataclass
from enum import Enum
from typing import Final

QUERIES: Final = ("table", "copy", "counts")


class Victim(Enum):
    """What is killed with SIGKILL."""

    DRIVER = "driver"
    WORKER = "worker"
    BROKER = "broker"


class Role(Enum):
    """Which Python process of the driver's."""

    TASK = "a task's worker"
    TASKS = "all of the tasks' workers"
    DAEMON = "the daemon of the tasks' workers"
    SOURCE = "the driver's side of a source"
    SINK = "the driver's side of a sink"


class Moment(Enum):
    """When; all but the first are seen in files that Spark or the broker writes."""

    ANY = "at any time"
    BATCH = "while a micro-batch runs"
    OFFSETS = "right after offsets/N"
    WRITING = "while a task writes"
    LOGGED = "right after the file sink's log, before commits/N"
    COMMITTED = "right after commits/N"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kill:
    """One line of a plan."""

    victim: Victim
    moment: Moment
    # The query whose files tell the moment.
    query: str
    # How long to wait: all of it for ANY, behind what was seen for the others.
    wait_s: float
    # Before everything has recovered from the kill before.
    is_hurried: bool = False
    # How long a broker stays down.
    down_s: float = 0.0
    # Of a worker: which, and which of several.
    role: Role = Role.TASK
    pick: float = 0.0


# One worker may be idle; of all of them some are at work.
_ROLES: Final = {Role.TASK: 2, Role.TASKS: 4, Role.DAEMON: 1, Role.SOURCE: 2, Role.SINK: 1}
_ANY_WAIT_S_MAX: Final = 8.0
_BATCH_WAIT_S_MAX: Final = 0.5
_DOWN_S: Final = (0.0, 1.0, 5.0)
_HURRIED_SHARE: Final = 0.25


def plan(seed: int, count: int) -> tuple[Kill, ...]:
    """So many kills, of each victim the same number, more or less."""
    chance = random.Random(seed)
    victims = [[*Victim][number % len(Victim)] for number in range(count)]
    chance.shuffle(victims)
    return tuple(_kill(victim, chance, is_first=number == 0) for number, victim in enumerate(victims))


def _kill(victim: Victim, chance: random.Random, *, is_first: bool) -> Kill:
    moment = chance.choice([*Moment])
    # Only files have a log.
    query = "table" if moment is Moment.LOGGED else chance.choice(QUERIES)
    return Kill(
        victim=victim,
        moment=moment,
        query=query,
        wait_s=_wait_s(moment, chance),
        is_hurried=chance.random() < _HURRIED_SHARE and not is_first,
        down_s=chance.choice(_DOWN_S) if victim is Victim.BROKER else 0.0,
        role=chance.choices([*_ROLES], [*_ROLES.values()])[0] if victim is Victim.WORKER else Role.TASK,
        pick=chance.random(),
    )


def _wait_s(moment: Moment, chance: random.Random) -> float:
    match moment:
        case Moment.ANY:
            return chance.uniform(0, _ANY_WAIT_S_MAX)
        case Moment.BATCH:
            return chance.uniform(0, _BATCH_WAIT_S_MAX)
        case _:
            # Now, or in a moment.
            return chance.choice((0.0, chance.uniform(0, 0.05)))
