"""The simulated loop: its time, its order, and the processes that share it."""

import asyncio
from collections.abc import Callable, Iterator

import pytest

from moldau.sim.loop import CURRENT_PROCESS, Process, SimLoop, Stalled
from moldau.sim.randomness import Seeded


@pytest.fixture
def loop() -> Iterator[SimLoop]:
    loop = SimLoop()
    yield loop
    loop.close()


# ---------------------------------------------------------------------------------------------- time


def test_time_jumps_to_the_next_timer(loop: SimLoop) -> None:
    async def scenario() -> None:
        await asyncio.sleep(86_400)
        assert loop.time() == 86_400
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.25):
                await loop.create_future()
        assert loop.time() == 86_400.25

    loop.run_until_complete(scenario())


def test_timers_run_by_time_and_equal_times_in_the_order_asked_for(loop: SimLoop) -> None:
    seen: list[str] = []
    loop.call_later(2, seen.append, "late")
    for name in "abc":
        loop.call_later(1, seen.append, name)
    loop.call_at(0.5, seen.append, "early")
    loop.call_later(1.5, seen.append, "never").cancel()
    loop.run_forever()
    assert seen == ["early", "a", "b", "c", "late"]


def test_ready_callbacks_run_in_their_order(loop: SimLoop) -> None:
    seen: list[int] = []
    for number in range(5):
        loop.call_soon(seen.append, number)
    loop.run_forever()
    assert seen == [0, 1, 2, 3, 4]


def test_running_for_a_while_ends_at_that_time_even_if_nothing_happens(loop: SimLoop) -> None:
    loop.run_for(1500)
    assert loop.time() == 1.5
    loop.call_later(10, lambda: None)
    assert not loop.run_until(lambda: False, timeout_ms=500)
    assert loop.time() == 2.0


def test_asyncio_works_on_it(loop: SimLoop) -> None:
    async def double(number: int) -> int:
        await asyncio.sleep(number)
        return number * 2

    async def scenario() -> list[int]:
        queue: asyncio.Queue[int] = asyncio.Queue()
        task = asyncio.create_task(queue.get())
        await queue.put(7)
        async with asyncio.Lock():
            return [await task, *await asyncio.gather(double(2), double(1))]

    assert loop.run_until_complete(scenario()) == [7, 4, 2]
    assert loop.time() == 2


def test_waiting_for_what_cannot_happen_is_noticed(loop: SimLoop) -> None:
    with pytest.raises(Stalled, match="nothing is left to do"):
        loop.run_until_complete(loop.create_future())


def test_a_loop_that_spins_is_noticed(loop: SimLoop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moldau.sim.loop.STEPS_PER_INSTANT_MAX", 100)

    def spin() -> None:
        loop.call_soon(spin)

    loop.call_soon(spin)
    with pytest.raises(Stalled, match="time did not move"):
        loop.run_forever()


def test_an_exception_that_nobody_handles_ends_the_run(loop: SimLoop) -> None:
    def fail() -> None:
        raise ValueError("from a callback")

    async def failing() -> None:
        raise ValueError("from a task")

    def start_failing() -> None:
        loop.create_task(failing())

    loop.call_soon(fail)
    with pytest.raises(ValueError, match="from a callback"):
        loop.run_forever()
    # Nobody will ever await that task.
    loop.call_soon(start_failing)
    with pytest.raises(ValueError, match="from a task"):
        loop.run_forever()


def test_a_checker_runs_after_every_step(loop: SimLoop) -> None:
    seen: list[float] = []
    loop.after_step = lambda: seen.append(loop.time())
    loop.call_soon(lambda: None)
    loop.call_later(1, lambda: None)
    loop.run_forever()
    assert seen == [0, 1]


# ---------------------------------------------------------------------------------------------- order


def order_under(seed: int) -> list[str]:
    """In which order the callbacks of three processes run."""
    loop = SimLoop(order=Seeded(seed))
    seen: list[str] = []
    processes = [Process(name) for name in "abc"]
    for number in range(4):
        for process in processes:
            loop.call_soon(seen.append, f"{process.name}{number}", context=process.context)
    loop.run_forever()
    loop.close()
    return seen


def test_a_seed_shuffles_processes_and_keeps_the_order_within_each() -> None:
    orders = [order_under(seed) for seed in range(10)]
    assert len({tuple(order) for order in orders}) > 5
    for order in orders:
        for name in "abc":
            assert [each for each in order if each[0] == name] == [f"{name}{number}" for number in range(4)]


def test_equal_seeds_give_equal_orders() -> None:
    assert order_under(3) == order_under(3)


# ---------------------------------------------------------------------------------------------- processes


def start(loop: SimLoop, process: Process, seen: list[str]) -> asyncio.Task[None]:
    """A task in a process that ticks every second and says when it is torn down."""

    async def tick() -> None:
        try:
            while True:
                await asyncio.sleep(1)
                seen.append(f"{process.name} at {loop.time():.0f}")
        finally:
            seen.append(f"{process.name} cleaned up")

    return loop.create_task(tick(), context=process.context)


def test_what_a_process_starts_belongs_to_it(loop: SimLoop) -> None:
    process = Process("ada")
    found: list[Process | None] = []

    async def main() -> None:
        await asyncio.gather(child(), child())

    async def child() -> None:
        await asyncio.sleep(1)
        loop.call_soon(lambda: found.append(CURRENT_PROCESS.get()))

    loop.create_task(main(), context=process.context)
    loop.run_forever()
    assert found == [process, process]
    assert not process.tasks


def test_a_paused_process_waits_while_others_go_on_and_then_catches_up(loop: SimLoop) -> None:
    seen: list[str] = []
    ada, bob = Process("ada"), Process("bob")
    tasks = [start(loop, ada, seen), start(loop, bob, seen)]
    loop.run_for(1_500)
    loop.pause(ada)
    loop.run_for(2_000)
    assert seen == ["ada at 1", "bob at 1", "bob at 2", "bob at 3"]
    loop.resume(ada)
    loop.run_for(600)
    assert "ada at 4" in seen
    for task in tasks:
        task.cancel()
    loop.run_for(1)


def test_nothing_of_a_killed_process_runs_again_not_even_its_finally_blocks(loop: SimLoop) -> None:
    seen: list[str] = []
    ada = Process("ada")
    task = start(loop, ada, seen)
    loop.run_for(1_500)
    loop.kill(ada)
    task.cancel()
    loop.run_for(10_000)
    assert seen == ["ada at 1"]
    assert list(ada.tasks) == [task]
    task._log_destroy_pending = False  # type: ignore[attr-defined]


def test_the_trace_tells_equal_runs_from_unequal_ones() -> None:
    def digest(build: Callable[[SimLoop], object]) -> str:
        loop = SimLoop()
        build(loop)
        loop.run_forever()
        loop.close()
        return loop.trace.hexdigest()

    def first(loop: SimLoop) -> None:
        loop.call_later(1, loop.stop)

    def later(loop: SimLoop) -> None:
        loop.call_later(2, loop.stop)

    assert digest(first) == digest(first)
    assert digest(first) != digest(later)
