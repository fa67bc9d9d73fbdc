"""Ending queries between two micro-batches, so that none is cut in the middle and has to be done again."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from py4j.java_gateway import JavaObject

_POLL_S: Final = 0.05
_CUT_OFF_S: Final = 2.0
_TERMINATED: Final = "org.apache.spark.sql.execution.streaming.runtime.TERMINATED$"


def active_queries(java_session: JavaObject) -> list[JavaObject]:
    """The queries that run in any session of this Spark, those of graphs too."""
    return list(java_session.sharedState().activeStreamingQueries().values())


def finish_batches(
    java_session: JavaObject, *, deadline_s: float, is_over: Callable[[], bool] = lambda: True
) -> list[str]:
    """Let each query finish its micro-batch, and end it; gives the names of those cut off at the deadline.

    Spark's own `stop` interrupts a micro-batch wherever it is. What it interrupts is done again at the next
    start, which costs time, and writes records to a topic twice. So a query is marked as ended first, begins
    no other micro-batch, and is stopped when it is between two, where `stop` only wakes it from waiting for
    its trigger. Queries may come up meanwhile, as they do in graphs, until `is_over`.
    """
    terminated = java_session.getClass().forName(_TERMINATED).getField("MODULE$").get(None)
    idle_before: list[JavaObject] = []
    while True:
        queries = active_queries(java_session)
        for query in queries:
            query.state().set(terminated)
        busy = [query for query in queries if _is_busy(query)]
        idle = [query for query in queries if query not in busy]
        for query in idle:
            # A query that had just looked at its mark may have begun since: who is idle twice, stays so.
            if query in idle_before:
                query.stop()
        idle_before = idle
        if time.monotonic() > deadline_s:
            return [_cut_off(query) for query in busy]
        if not queries and is_over():
            return []
        time.sleep(_POLL_S)


def _is_busy(query: JavaObject) -> bool:
    """Whether a micro-batch is under way, from when its offsets are written down until it is committed."""
    if query.status().isTriggerActive():
        return True
    planned, done = (each.getLatestBatchId().toString() for each in (query.offsetLog(), query.commitLog()))
    return bool(planned != done)


def _cut_off(query: JavaObject) -> str:
    """Interrupt a query wherever it is; one that is in Python code does not notice, and is not waited for."""
    name = str(query.name() or query.id())
    stopping = threading.Thread(target=query.stop, name=f"stop {name}", daemon=True)
    stopping.start()
    stopping.join(_CUT_OFF_S)
    return name
