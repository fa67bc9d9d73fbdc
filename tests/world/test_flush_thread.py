"""The thread that flushes: one flush at a time, with all in the next that came meanwhile."""

import asyncio
import threading
import time
import weakref
from collections.abc import Iterator

import pytest

from moldau.sim.disk import SimDisk
from moldau.world.ports import Flush
from moldau.world.real.flushing import FlushThread


class SlowDisk:
    """Carries out one flush each time it is let."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, ...]] = []
        self.has_begun = threading.Semaphore(0)
        self.may_go_on = threading.Semaphore(0)
        self.error: BaseException | None = None

    def carry_out(self, work: Flush) -> None:
        self.seen.append(work.directories)
        self.has_begun.release()
        assert self.may_go_on.acquire(timeout=30)
        if self.error is not None:
            raise self.error


@pytest.fixture
def disk() -> SlowDisk:
    return SlowDisk()


@pytest.fixture
def thread(disk: SlowDisk) -> Iterator[FlushThread]:
    thread = FlushThread(disk.carry_out)
    yield thread
    disk.may_go_on.release(100)
    thread.close()


def of(name: str) -> Flush:
    return Flush(directories=(name,))


async def begun(disk: SlowDisk) -> None:
    assert await asyncio.to_thread(disk.has_begun.acquire, timeout=30)


async def asked(thread: FlushThread, names: str) -> list[asyncio.Task[None]]:
    """Flushes that the thread has been asked for."""
    tasks = [asyncio.create_task(thread.flush(of(name))) for name in names]
    await asyncio.sleep(0)
    return tasks


def test_flushes_asked_for_while_one_runs_are_done_together_as_the_next(
    disk: SlowDisk, thread: FlushThread
) -> None:
    async def scenario() -> None:
        (first,) = await asked(thread, "a")
        await begun(disk)
        rest = await asked(thread, "bcb")
        assert disk.seen == [("a",)]
        disk.may_go_on.release()
        await first
        await begun(disk)
        assert disk.seen == [("a",), ("b", "c")]
        assert not any(task.done() for task in rest)
        disk.may_go_on.release()
        await asyncio.gather(*rest)

    asyncio.run(scenario())


def test_a_caller_that_gives_up_does_not_stop_the_others(disk: SlowDisk, thread: FlushThread) -> None:
    async def scenario() -> None:
        await asked(thread, "x")
        await begun(disk)
        impatient, patient = await asked(thread, "ab")
        impatient.cancel()
        disk.may_go_on.release(2)
        await patient
        assert impatient.cancelled()
        assert disk.seen == [("x",), ("a", "b")]

    asyncio.run(scenario())


def test_a_failure_reaches_everyone_in_the_group_and_nobody_after_it(
    disk: SlowDisk, thread: FlushThread
) -> None:
    async def scenario() -> None:
        (first,) = await asked(thread, "x")
        await begun(disk)
        tasks = await asked(thread, "ab")
        disk.may_go_on.release()
        await first
        await begun(disk)
        disk.error = OSError("broken")
        disk.may_go_on.release()
        errors = await asyncio.gather(*tasks, return_exceptions=True)
        assert [str(error) for error in errors] == ["broken"] * 2
        disk.error = None
        disk.may_go_on.release()
        await thread.flush(of("c"))

    asyncio.run(scenario())


def test_what_was_asked_for_is_done_before_the_thread_ends(disk: SlowDisk, thread: FlushThread) -> None:
    async def scenario() -> None:
        tasks = await asked(thread, "a")
        await begun(disk)
        tasks += await asked(thread, "b")
        disk.may_go_on.release(2)
        thread.close()
        await asyncio.gather(*tasks)
        assert disk.seen == [("a",), ("b",)]

    asyncio.run(scenario())


def test_a_file_that_was_flushed_is_let_go_of() -> None:
    thread = FlushThread(lambda work: None)
    file = SimDisk().open("a", create=True)
    is_there = weakref.ref(file)
    asyncio.run(thread.flush(Flush(files=(file,))))
    del file
    deadline = time.monotonic() + 30
    while is_there() is not None:
        # It may just be on its way back to its queue.
        assert time.monotonic() < deadline
        time.sleep(0.001)
    thread.close()


def test_a_loop_that_has_ended_stops_no_flush(disk: SlowDisk, thread: FlushThread) -> None:
    async def give_up() -> None:
        await asked(thread, "a")
        await begun(disk)

    asyncio.run(give_up())
    disk.may_go_on.release(2)
    asyncio.run(thread.flush(of("b")))
    assert disk.seen == [("a",), ("b",)]
