"""An asyncio loop on virtual time: it never waits, and the order of what it runs follows from a seed."""

from __future__ import annotations

import asyncio
import contextvars
import enum
import heapq
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from typing import TypeVar, TypeVarTuple

from moldau.sim.disk import PowerCut
from moldau.sim.escape import LOOP_ESCAPES, loop_refusal, sealed
from moldau.sim.randomness import Seeded
from moldau.sim.trace import Trace

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

# So many callbacks without a tick of the clock are a loop that spins.
STEPS_PER_INSTANT_MAX = 200_000
# How far the seeded order may look ahead among what is ready.
READY_WINDOW = 8


class Stalled(Exception):
    """The simulation cannot go on: nothing is left to do, or time no longer moves."""


class ProcessState(enum.Enum):
    """Whether the callbacks of a process run, wait, or never run again."""

    RUNNING = "running"
    PAUSED = "paused"
    DEAD = "dead"


class Process:
    """One life of a node, from its start to its end; everything it schedules carries its context."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.state = ProcessState.RUNNING
        self.context = contextvars.copy_context()
        self.context.run(CURRENT_PROCESS.set, self)
        # Kept in the order of their creation, and after death too: a coroutine that is dropped runs its
        # `finally` blocks, which no process does once it was killed.
        self.tasks: dict[asyncio.Task[object], None] = {}
        self.waiting: list[asyncio.Handle] = []

    @property
    def is_dead(self) -> bool:
        """Whether nothing of it will ever run again."""
        return self.state is ProcessState.DEAD


CURRENT_PROCESS: contextvars.ContextVar[Process | None] = contextvars.ContextVar("process", default=None)


class SimLoop(asyncio.BaseEventLoop):
    """The loop that all nodes of a simulation share."""

    def __init__(self, trace: Trace | None = None, *, order: Seeded | None = None) -> None:
        self._is_inside = False
        super().__init__()
        # Debug mode takes stack traces, and its time with it.
        self.set_debug(False)
        self.trace = trace or Trace()
        # Called after every callback; what it raises ends the run.
        self.after_step: Callable[[], None] | None = None
        self._order = order
        self._now_us = 0
        self._steps_this_instant = 0
        self._due: deque[asyncio.Handle] = deque()
        self._timers: list[tuple[int, int, asyncio.TimerHandle]] = []
        self._timer_count = 0
        self._task_count = 0
        self._failures: list[BaseException] = []
        self._failed_tasks: list[asyncio.Task[object]] = []
        self._is_stopping = False
        self._outside = contextvars.copy_context()

    # ------------------------------------------------------------ running

    @property
    def now_us(self) -> int:
        """Virtual microseconds since the simulation began."""
        return self._now_us

    def time(self) -> float:
        """Virtual seconds since the simulation began."""
        return self._now_us / 1_000_000

    def run_until(self, is_reached: Callable[[], bool], *, timeout_ms: int) -> bool:
        """Run until `is_reached`, for at most `timeout_ms` of virtual time; tells whether it was."""
        end_us = self._now_us + timeout_ms * 1000
        with self._inside():
            while not is_reached():
                next_us = self._next_us()
                if next_us is None or next_us > end_us:
                    self._now_us = max(self._now_us, end_us)
                    return is_reached()
                self._step()
        return True

    def run_for(self, duration_ms: int) -> None:
        """Run for `duration_ms` of virtual time."""
        self.run_until(lambda: False, timeout_ms=duration_ms)

    def run_until_complete(self, future: Awaitable[T]) -> T:  # type: ignore[override]
        """Run until `future` is done, however long that takes."""
        with self._inside():
            task: asyncio.Future[T] = asyncio.ensure_future(future, loop=self)
            while not task.done():
                if self._next_us() is None:
                    raise Stalled(f"nothing is left to do, and {task!r} is not done")
                self._step()
        return task.result()

    def run_forever(self) -> None:
        """Run until `stop`, or until nothing is left to do."""
        with self._inside():
            while not self._is_stopping and self._next_us() is not None:
                self._step()
        self._is_stopping = False
        self.check_tasks()

    def stop(self) -> None:
        """Let `run_forever` return after the callback that runs now."""
        self._is_stopping = True

    def is_running(self) -> bool:
        """Whether callbacks are being run."""
        return self._is_inside

    def close(self) -> None:
        """Forget all that was scheduled."""
        self._due.clear()
        self._timers.clear()
        super().close()

    # ------------------------------------------------------------ scheduling

    def call_soon(
        self,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        """Run `callback` after everything that is ready now."""
        handle = asyncio.Handle(callback, args, self, context)
        self._due.append(handle)
        return handle

    def call_later(
        self,
        delay: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """Run `callback` after `delay` virtual seconds."""
        return self.call_at_us(
            self._now_us + max(0, round(delay * 1_000_000)), callback, *args, context=context
        )

    def call_at(
        self,
        when: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """Run `callback` at a virtual time in seconds."""
        return self.call_at_us(round(when * 1_000_000), callback, *args, context=context)

    def call_at_us(
        self,
        when_us: int,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """Run `callback` at a virtual time in microseconds."""
        handle = asyncio.TimerHandle(when_us / 1_000_000, callback, args, self, context)
        self._timer_count += 1
        # The count keeps equal times in the order they were asked for.
        heapq.heappush(self._timers, (max(when_us, self._now_us), self._timer_count, handle))
        return handle

    def call_outside(self, delay_us: int, callback: Callable[[*Ts], object], *args: *Ts) -> None:
        """Run `callback` as no process's own, so that it runs whoever dies."""
        self.call_at_us(self._now_us + delay_us, callback, *args, context=self._outside)

    def create_task(  # type: ignore[override]
        self,
        coro: Coroutine[object, object, T],
        *,
        name: str | None = None,
        context: contextvars.Context | None = None,
    ) -> asyncio.Task[T]:
        """Run a coroutine as a task of the current process."""
        self._task_count += 1
        # asyncio's own names count all tasks of the interpreter, which differs from run to run.
        own_name = f"{getattr(coro, '__qualname__', 'task')}#{self._task_count}"
        task = asyncio.Task(coro, loop=self, name=name or own_name, context=context)
        process = (context or contextvars.copy_context()).get(CURRENT_PROCESS)
        if process is not None:
            process.tasks[task] = None
        task.add_done_callback(lambda done: self._on_task_done(done, process))
        return task

    def check_tasks(self) -> None:
        """Raise what ended a task and was never looked at; asyncio would say so when it collects the task."""
        for task in self._failed_tasks:
            if is_unseen(task) and not isinstance(error := task.exception(), PowerCut):
                assert error is not None
                raise error

    def call_exception_handler(self, context: dict[str, object]) -> None:
        """An exception that nobody handled ends the run, save the power cut of a node's own machine."""
        error = context.get("exception")
        if isinstance(error, PowerCut):
            return
        if isinstance(error, BaseException):
            self._failures.append(error)
        else:
            self._failures.append(RuntimeError(str(context.get("message"))))

    # ------------------------------------------------------------ processes

    def pause(self, process: Process) -> None:
        """Let the callbacks of `process` wait, as SIGSTOP does."""
        if process.state is ProcessState.RUNNING:
            process.state = ProcessState.PAUSED

    def resume(self, process: Process) -> None:
        """Run what has waited, in its order."""
        if process.state is ProcessState.PAUSED:
            process.state = ProcessState.RUNNING
            self._due.extend(process.waiting)
            process.waiting.clear()

    def kill(self, process: Process) -> None:
        """Let nothing of `process` ever run again."""
        process.state = ProcessState.DEAD

    def note(self, kind: str, detail: str = "", *, place: str | None = None) -> None:
        """Write an event into the trace, at the current process or at `place`."""
        process = CURRENT_PROCESS.get()
        self.trace.note(self._now_us, place or (process.name if process else "-"), kind, detail)

    # ------------------------------------------------------------ within

    def _inside(self) -> _Inside:
        return _Inside(self)

    def _next_us(self) -> int | None:
        """When the next callback runs, or None if there is none."""
        while self._timers and self._timers[0][2].cancelled():
            heapq.heappop(self._timers)
        if self._due:
            return self._now_us
        return self._timers[0][0] if self._timers else None

    def _step(self) -> None:
        """Run one callback."""
        if not self._due:
            self._now_us = max(self._now_us, self._timers[0][0])
            self._steps_this_instant = 0
        while self._timers and self._timers[0][0] <= self._now_us:
            self._due.append(heapq.heappop(self._timers)[2])
        handle = self._take()
        if handle is not None and not handle.cancelled():
            self._run(handle)
        if self._failures:
            raise self._failures.pop(0)

    def _take(self) -> asyncio.Handle | None:
        """The next callback: the oldest, or with a seeded order the oldest of some process."""
        if self._order is None or len(self._due) == 1:
            handle = self._due.popleft()
        else:
            window = [process_of(self._due[at]) for at in range(min(READY_WINDOW, len(self._due)))]
            at = window.index(self._order.choice(window))
            handle = self._due[at]
            del self._due[at]
        process = process_of(handle)
        if process is None or process.state is ProcessState.RUNNING:
            return handle
        # The dead keep theirs too, so that nothing is dropped.
        process.waiting.append(handle)
        return None

    def _run(self, handle: asyncio.Handle) -> None:
        process = process_of(handle)
        self.trace.step(self._now_us, process.name if process else "-", name_of(handle))
        handle._run()
        self._steps_this_instant += 1
        if self._steps_this_instant > STEPS_PER_INSTANT_MAX:
            raise Stalled(
                f"{STEPS_PER_INSTANT_MAX} callbacks ran and time did not move; last: {name_of(handle)}"
            )
        if self.after_step is not None:
            self.after_step()

    def _on_task_done(self, task: asyncio.Task[T], process: Process | None) -> None:
        if process is not None:
            process.tasks.pop(task, None)
        if is_unseen(task):
            # Kept until someone looks: when a task is collected differs between versions of Python.
            self._failed_tasks = [*filter(is_unseen, self._failed_tasks), task]

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Cancelled timers leave the heap when their time comes."""


for _name in LOOP_ESCAPES:
    setattr(SimLoop, _name, loop_refusal(_name))


class _Inside:
    """A block in which the loop is the running one and the machine is out of reach."""

    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop
        self._sealed = sealed()

    def __enter__(self) -> None:
        assert not self._loop._is_inside, "the simulation is already running"
        asyncio._set_running_loop(self._loop)
        self._loop._is_inside = True
        self._sealed.__enter__()

    def __exit__(self, *error: object) -> None:
        self._sealed.__exit__(None, None, None)
        self._loop._is_inside = False
        asyncio._set_running_loop(None)


def process_of(handle: asyncio.Handle) -> Process | None:
    """The process that a callback belongs to."""
    context: contextvars.Context = handle._context  # type: ignore[attr-defined]
    return context.get(CURRENT_PROCESS)


def is_unseen(task: asyncio.Task[T]) -> bool:
    """Whether a task has failed and nobody has asked for its exception."""
    return bool(task._log_traceback)


def name_of(handle: asyncio.Handle) -> str:
    """A name for a callback that is the same in every run: never an address."""
    callback = handle._callback  # type: ignore[attr-defined]
    owner = getattr(callback, "__self__", None)
    if isinstance(owner, asyncio.Task):
        return owner.get_name()
    return str(getattr(callback, "__qualname__", type(callback).__name__))
