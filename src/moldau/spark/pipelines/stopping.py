"""Ending queries between two micro-batches, so that none is cut in the middle and has to be done again.

Spark has no such end. Its `stop` interrupts a query wherever it is. Between two micro-batches a query looks
at the mark that `stop` sets, the state TERMINATED; but to set that mark is not enough, for since Spark 4.3 a
query looks again when it has planned a micro-batch, and interrupts itself if it is marked (SPARK-57963).

But a query plans a micro-batch, and commits one, only while it holds the lock of its progress. So we take
that lock, with which nothing can begin, and look where the query is:

    waits for the lock to commit            marked and let go; it commits, sees the mark, and ends
    waits for the lock, its trigger done    marked and let go; it sees the mark, and ends
    waits for the lock to plan              it is past the mark: let go unmarked, and locked again at once
    is in a micro-batch                     left alone until it waits for the lock to commit
    waits for its trigger                   marked, and then woken; it sees the mark, and ends
    is on its way to a trigger              marked, and looked at again, for it may just have passed the mark

A source that does not answer is asked what is new with the lock held, for as long as it likes: a minute,
where brokers are away. So it is when the query begins, and asks the source to prepare. Such a query is
interrupted after some seconds. Nothing is planned then; and if the source answers in that very moment, what
is planned has not begun, as after a kill: the next run does it, and only it.

What is read and written, and how often, makes no difference.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from py4j.java_gateway import JavaObject

_POLL_S: Final = 0.02
_LOCK_TIMEOUT_MS: Final = 50
_CUT_OFF_S: Final = 2.0
# How long a source may take to say what is new. Longer than one that answers needs, and short enough that
# all is over within the ten seconds that containers are given to stop.
_ANSWER_S: Final = 3.0
# What Spark says that a query does while it asks one of its sources, and nothing else.
_ASKING: Final = "Getting offsets from"
# Has no micro-batches, so that it does not matter where it is.
_CONTINUOUS: Final = "ContinuousExecution"
_STATES: Final = "org.apache.spark.sql.execution.streaming.runtime"


def active_queries(java_session: JavaObject) -> list[JavaObject]:
    """The queries that run in any session of this Spark, those of graphs too."""
    running = java_session.sharedState().activeStreamingQueries()
    # Py4J goes through the names and asks for each: there is none where a query has just ended.
    return [query for query in running.values() if query is not None]


def finish_batches(
    java_session: JavaObject,
    *,
    deadline_s: float,
    is_over: Callable[[], bool] = lambda: True,
    unanswered: Callable[[str], object] = lambda name: None,
) -> list[str]:
    """Let each query finish its micro-batch, and end it; gives the names of those that were cut off in one.

    That happens at the deadline. A query that only waits for what it reads is not waited for, and
    `unanswered` is told its name. Queries may come up meanwhile, as they do in graphs, until `is_over`. A
    Java lock belongs to a thread of Java, which PySpark has one of for each thread here: all is done in the
    thread of the caller.
    """
    endings: dict[str, _Ending] = {}
    queries: dict[str, JavaObject] = {}
    try:
        while True:
            queries = {str(query.runId()): query for query in active_queries(java_session)}
            if not queries and is_over():
                break
            for run_id, query in queries.items():
                if run_id not in endings:
                    endings[run_id] = _Ending(query, unanswered)
            for run_id, ending in endings.items():
                if run_id in queries:
                    ending.go_on()
                else:
                    # It has ended, but for telling those who wait for that: for this it needs the lock too.
                    ending.let_go()
            if time.monotonic() > deadline_s:
                break
            time.sleep(_POLL_S)
    finally:
        for ending in endings.values():
            # Spark may be on its way out by itself.
            with contextlib.suppress(Exception):
                ending.let_go()
    for run_id in queries:
        if not endings[run_id].is_sure:
            endings[run_id].cut_off()
    return [ending.name for ending in endings.values() if ending.has_left_something()]


class _Ending:
    """How far one query is on its way to its end."""

    def __init__(self, query: JavaObject, unanswered: Callable[[str], object]) -> None:
        self.name = str(query.name() or query.id())
        self._query = query
        self._unanswered = unanswered
        self._thread = query.queryExecutionThread()
        self._lock = query.awaitProgressLock()
        self._is_locked = False
        self._is_marked = False
        # Whether it ends by itself from here, with nothing planned that is not committed.
        self.is_sure = False
        # Since when it has been waiting for its sources, and whether that has been too long.
        self._waiting_since_s: float | None = None
        self._is_given_up = False
        self._is_cut_off = False

    def go_on(self) -> None:
        """Look where the query stands, and do what is due there; the module says what."""
        if self.is_sure or self._is_given_up:
            return
        if self._query.getClass().getSimpleName() == _CONTINUOUS:
            self.is_sure = True
            self._query.stop()
            return
        if not (self._is_locked or self._take_lock()):
            if self._is_asking():
                self._give_up_in_time()
            else:
                self._waiting_since_s = None
            return
        # In this order: one that waits for the lock stays where it is, as long as we have it.
        waits_for_lock = self._lock.hasQueuedThread(self._thread)
        is_in_trigger = self._query.status().isTriggerActive()
        if is_in_trigger and not (waits_for_lock and self._has_planned()):
            self._unmark()
            self._waiting_since_s = None
            if waits_for_lock:
                self.let_go()
                # The lock is fair: we have it again when the query has planned, and not before.
                self._take_lock()
            return
        self._mark()
        if waits_for_lock:
            self.is_sure = True
            self.let_go()
        elif self._waits_for_trigger():
            self.is_sure = True
            self.let_go()
            self._thread.interrupt()
        else:
            # Marked as it is, and not past the mark, or it would wait for the lock.
            self._give_up_in_time()

    def let_go(self) -> None:
        """Let the query plan and commit."""
        if self._is_locked:
            self._is_locked = False
            self._lock.unlock()

    def cut_off(self) -> None:
        """Interrupt it wherever it is."""
        self._is_cut_off = True
        _interrupt(self._query, self.name)

    def has_left_something(self) -> bool:
        """Whether something is planned that is not committed, once it has ended."""
        return self._is_cut_off or (self._is_given_up and not self._is_all_committed())

    def _give_up_in_time(self) -> None:
        """Interrupt it if it has been waiting for its sources for long, with nothing planned."""
        now_s = time.monotonic()
        self._waiting_since_s = self._waiting_since_s or now_s
        if now_s - self._waiting_since_s >= _ANSWER_S:
            self._is_given_up = True
            self._unanswered(self.name)
            # It needs the lock to end.
            self.let_go()
            _interrupt(self._query, self.name)

    def _is_asking(self) -> bool:
        return str(self._query.status().message()).startswith(_ASKING) and not self._has_planned()

    def _is_all_committed(self) -> bool:
        planned, committed = self._query.offsetLog(), self._query.commitLog()
        return bool(planned.getLatestBatchId().equals(committed.getLatestBatchId()))

    def _take_lock(self) -> bool:
        milliseconds = _constant(self._lock, "java.util.concurrent.TimeUnit", "MILLISECONDS")
        self._is_locked = bool(self._lock.tryLock(_LOCK_TIMEOUT_MS, milliseconds))
        return self._is_locked

    def _mark(self) -> None:
        self._query.state().set(_constant(self._lock, f"{_STATES}.TERMINATED$"))
        self._is_marked = True

    def _unmark(self) -> None:
        if self._is_marked:
            self._query.state().set(_constant(self._lock, f"{_STATES}.ACTIVE$"))
            self._is_marked = False

    def _has_planned(self) -> bool:
        return bool(self._query.getLatestExecutionContext().isCurrentBatchConstructed())

    def _waits_for_trigger(self) -> bool:
        """Whether it sleeps between two triggers: then it comes to the mark before all else."""
        is_asleep = self._thread.getState().toString() == "TIMED_WAITING"
        return bool(is_asleep and self._query.status().message() == "Waiting for next trigger")


def _constant(java: JavaObject, owner: str, name: str = "MODULE$") -> JavaObject:
    """What a class of Java, or an object of Scala, has to offer to all."""
    return java.getClass().forName(owner).getField(name).get(None)


def _interrupt(query: JavaObject, name: str) -> None:
    """Interrupt a query wherever it is; one that is in Python code does not notice, and is not waited for."""
    stopping = threading.Thread(target=query.stop, name=f"stop {name}", daemon=True)
    stopping.start()
    stopping.join(_CUT_OFF_S)
