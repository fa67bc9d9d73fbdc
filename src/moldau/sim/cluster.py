"""Nodes on one simulated network, and what can happen to them: kills, power cuts, pauses, moved clocks."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import TypeVar

from moldau.sim.disk import Operation, PowerCut, SimDisk, Survives
from moldau.sim.loop import Process, ProcessState, SimLoop
from moldau.sim.network import SimNetwork
from moldau.sim.randomness import Seeded
from moldau.sim.trace import Trace
from moldau.world.clock import LoopClock
from moldau.world.ports import DiskFailed, World
from moldau.world.tasks import ScopedTasks

T = TypeVar("T")
Main = Callable[[World], Coroutine[object, object, None]]

# Simulated calendars start on a day like any other: 2024-02-29, 12:00 UTC.
EPOCH_MS = 1_709_208_000_000


class Cluster:
    """All nodes of a simulation and the world they share; everything in it follows from the seed."""

    def __init__(self, seed: int | str, *, is_order_seeded: bool = True) -> None:
        self.randomness = Seeded(seed)
        self.trace = Trace()
        self.loop = SimLoop(self.trace, order=self.randomness.fork("order") if is_order_seeded else None)
        self.network = SimNetwork(self.loop, self.randomness.fork("network"))
        self.nodes: dict[str, SimNode] = {}

    def add(self, name: str, main: Main, *, flush_ms: tuple[int, int] = (0, 5)) -> SimNode:
        """A machine called `name`, off until it is started; `main` is the program it runs."""
        assert name not in self.nodes, f"{name} is there already"
        node = SimNode(self, name, main, flush_ms=flush_ms)
        self.nodes[name] = node
        return node

    def start_all(self) -> None:
        """Start every node that does not run."""
        for node in self.nodes.values():
            if not node.is_alive:
                node.start()

    def run_until(self, is_reached: Callable[[], bool], *, timeout_ms: int = 60_000) -> bool:
        """Run until `is_reached`, for at most `timeout_ms` of virtual time; tells whether it was."""
        return self.loop.run_until(is_reached, timeout_ms=timeout_ms)

    def run_for(self, duration_ms: int) -> None:
        """Run for `duration_ms` of virtual time."""
        self.loop.run_for(duration_ms)

    def close(self) -> None:
        """Take the simulation apart without running another line of what was killed in it."""
        for node in self.nodes.values():
            node.bury()
        self.loop.close()

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class SimNode:
    """One machine: its disk and clock last, its processes come and go."""

    def __init__(self, cluster: Cluster, name: str, main: Main, *, flush_ms: tuple[int, int]) -> None:
        self.name = name
        self.main = main
        self.start_count = 0
        self.wall_skew_ms = 0
        # Told when a process has ended by itself, with what ended it.
        self.on_ended: Callable[[BaseException | None], None] | None = None
        # Told of what a crash leaves of the disk, while that of the process that died can still be read.
        self.on_crashed: Callable[[SimDisk, Survives], None] | None = None
        self._cluster = cluster
        self._randomness = cluster.randomness.fork(name)
        self._network = cluster.network.endpoint(name)
        self._process: Process | None = None
        self._dead: list[Process] = []
        self._crash_count = 0
        self.disk = SimDisk(self._randomness.fork("disk"), sleep_ms=sleep_ms, flush_ms=flush_ms)
        self.disk.on_operation = self._on_disk_operation

    @property
    def is_alive(self) -> bool:
        """Whether a process of it runs or is paused."""
        return self._process is not None

    @property
    def is_paused(self) -> bool:
        """Whether its process waits for `resume`."""
        return self._process is not None and self._process.state is ProcessState.PAUSED

    @property
    def task_count(self) -> int:
        """How many tasks of its process have not ended."""
        return len(self._process.tasks) if self._process is not None else 0

    def start(self) -> None:
        """Boot the machine if need be, and run `main` in a new process."""
        assert self._process is None, f"{self.name} is running"
        self.start_count += 1
        self._network.host.is_on = True
        process = self._process = Process(self.name)
        randomness = self._randomness.fork(f"life {self.start_count}")
        world = World(
            clock=SimClock(self._cluster.loop, self, offset_ms=randomness.below(1_000_000_000)),
            randomness=randomness,
            tasks=SimTasks(randomness.fork("tasks")),
            disk=self.disk,
            network=self._network,
        )
        self._note("start")
        loop = self._cluster.loop
        task = loop.create_task(self.main(world), name=f"{self.name} main", context=process.context)
        task.add_done_callback(lambda done: self._on_end(process, done), context=process.context)

    def kill(self) -> None:
        """kill -9: nothing more of it runs, its page cache stays, its peers see resets."""
        self._end_process(is_silent=False)
        self._crash_disk(Survives.EVERYTHING)
        self._note("kill")

    def power_cut(self, survives: Survives = Survives.SOME) -> None:
        """The machine goes dark: unflushed changes are at risk, its peers see nothing at all."""
        if self._process is not None:
            self._end_process(is_silent=True)
        self._network.host.is_on = False
        self._crash_disk(survives)
        self._note("power cut", f"keeping {survives.value}")

    def stop(self, *, timeout_ms: int = 60_000) -> bool:
        """Cancel `main`, as SIGTERM would, and wait for it to end; tells whether it did."""
        assert self._process is not None, f"{self.name} does not run"
        self._note("stop")
        for task in self._process.tasks:
            if task.get_name() == f"{self.name} main":
                task.cancel()
        return self._cluster.run_until(lambda: not self.is_alive, timeout_ms=timeout_ms)

    def pause(self) -> None:
        """SIGSTOP: its callbacks wait while the world goes on."""
        if self._process is not None:
            self._cluster.loop.pause(self._process)
            self._note("pause")

    def resume(self) -> None:
        """SIGCONT."""
        if self._process is not None and self.is_paused:
            self._cluster.loop.resume(self._process)
            self._note("resume")

    def restart(self) -> None:
        """Start it again, killing it first if it runs."""
        if self._process is not None:
            self.kill()
        self.start()

    def move_clock(self, by_ms: int) -> None:
        """Set its calendar forward or back; the clock that only rises does not notice."""
        self.wall_skew_ms += by_ms
        self._note("clock moved", f"{by_ms:+} ms")

    def bury(self) -> None:
        """Close what its processes left unfinished, silently."""
        self.disk.power_off()
        if self._process is not None:
            self._end_process(is_silent=True)
        for process in self._dead:
            for task in list(process.tasks):
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                # Their `finally` blocks run now; the run is over and its disk is off, so nothing comes of it.
                with contextlib.suppress(BaseException):
                    task.get_coro().close()

    def _end_process(self, *, is_silent: bool) -> None:
        assert self._process is not None, f"{self.name} does not run"
        process, self._process = self._process, None
        self._cluster.loop.kill(process)
        self._cluster.network.process_ended(process, is_silent=is_silent)
        self._dead.append(process)

    def _crash_disk(self, survives: Survives) -> None:
        """Give the next process its disk, and leave the dead one none."""
        self._crash_count += 1
        image = self.disk.crash(survives, self._randomness.fork(f"crash {self._crash_count}"))
        if self.on_crashed is not None:
            self.on_crashed(image, survives)
        self.disk.power_off()
        self.disk = image

    def _on_end(self, process: Process, done: asyncio.Task[None]) -> None:
        """`main` returned or raised: the process is over, and so is all it left running."""
        if self._process is not process:
            return
        error = None if done.cancelled() else done.exception()
        self._end_process(is_silent=isinstance(error, PowerCut))
        self._note("end", type(error).__name__ if error else "")
        if isinstance(error, PowerCut):
            self.power_cut()
        else:
            self._crash_disk(Survives.EVERYTHING)
        if self.on_ended is not None:
            self.on_ended(error)
        # A failed disk ends a node by design; anything else that reaches here is a bug.
        if error is not None and not isinstance(error, PowerCut | DiskFailed):
            raise error

    def _on_disk_operation(self, operation: Operation) -> None:
        self._cluster.trace.step(self._cluster.loop.now_us, self.name, str(operation))

    def _note(self, kind: str, detail: str = "") -> None:
        self._cluster.loop.note(kind, detail, place=self.name)


class SimClock(LoopClock):
    """The clock of one life of a node: its zero is its own, its calendar can be wrong."""

    def __init__(self, loop: SimLoop, node: SimNode, *, offset_ms: int) -> None:
        super().__init__(wall_ms=lambda: EPOCH_MS + loop.now_us // 1000 + node.wall_skew_ms)
        self._loop = loop
        self._offset_ms = offset_ms

    def now_ms(self) -> int:
        """Milliseconds that only rise; two nodes never agree on them, as two machines do not."""
        return self._offset_ms + self._loop.now_us // 1000

    def now_us(self) -> int:
        """The same in microseconds."""
        return self._offset_ms * 1000 + self._loop.now_us


class SimTasks(ScopedTasks):
    """The Tasks port: work off the loop takes some virtual time, then runs in one piece."""

    def __init__(self, randomness: Seeded) -> None:
        self._randomness = randomness

    async def off_loop(self, work: Callable[[], T]) -> T:
        """Run `work`, which must not touch the node's state, without holding the loop."""
        await asyncio.sleep(self._randomness.between(0, 5_000) / 1_000_000)
        return work()


async def sleep_ms(duration_ms: int) -> None:
    """How simulated disks wait."""
    await asyncio.sleep(duration_ms / 1000)
