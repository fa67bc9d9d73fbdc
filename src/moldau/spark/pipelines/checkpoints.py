"""How far a query had come when it was started, as Spark's own logs in its checkpoint say."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from py4j.java_gateway import JavaObject

# What each source of a query has written down; None for a source without anything new.
Offsets = Sequence[Mapping[str, object] | None]


@dataclass(frozen=True, slots=True)
class Logged:
    """The offsets up to which all is committed, and those of the micro-batch behind them, if there is one."""

    done: Offsets = ()
    planned: Offsets = ()


def logged(query: JavaObject) -> Logged:
    """What the checkpoint of a query that runs says, wherever it is kept."""
    offsets = query.offsetLog()
    planned, committed = offsets.getLatestBatchId(), query.commitLog().getLatestBatchId()
    done = _offsets(offsets, committed.get()) if committed.isDefined() else ()
    if planned.isEmpty() or planned.equals(committed):
        return Logged(done)
    return Logged(done, _offsets(offsets, planned.get()))


def _offsets(log: JavaObject, number: int) -> Offsets:
    entry = log.get(number)
    if entry.isEmpty():
        return ()
    found: list[Mapping[str, object] | None] = []
    each = entry.get().offsets().iterator()
    while each.hasNext():
        offset = each.next()
        document = json.loads(offset.get().json()) if offset.isDefined() else None
        found.append(document if isinstance(document, dict) else None)
    return found
