"""How the simulated disk groups flushes."""

import asyncio

from moldau.sim.flushing import FlushGroups
from moldau.world.ports import Flush


class SlowDisk:
    """Carries out one flush each time it is let."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, ...]] = []
        self.may_go_on = asyncio.Semaphore(0)
        self.error: BaseException | None = None

    async def carry_out(self, work: Flush) -> None:
        self.seen.append(work.directories)
        await self.may_go_on.acquire()
        if self.error is not None:
            raise self.error


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_flushes_asked_for_while_one_runs_are_done_together_as_the_next() -> None:
    async def scenario() -> None:
        disk = SlowDisk()
        groups = FlushGroups(disk.carry_out)
        first = asyncio.create_task(groups.flush(Flush(directories=("a",))))
        await settle()
        rest = [asyncio.create_task(groups.flush(Flush(directories=(name,)))) for name in "bcb"]
        await settle()
        assert disk.seen == [("a",)]
        disk.may_go_on.release()
        await settle()
        assert first.done()
        assert disk.seen == [("a",), ("b", "c")]
        assert not any(task.done() for task in rest)
        disk.may_go_on.release()
        await asyncio.gather(*rest)

    asyncio.run(scenario())


def test_a_caller_that_gives_up_does_not_stop_the_others() -> None:
    async def scenario() -> None:
        disk = SlowDisk()
        groups = FlushGroups(disk.carry_out)
        impatient, patient = (asyncio.create_task(groups.flush(Flush(directories=("a",)))) for _ in range(2))
        await settle()
        impatient.cancel()
        disk.may_go_on.release()
        await patient
        assert impatient.cancelled()

    asyncio.run(scenario())


def test_a_failure_reaches_everyone_in_the_group_and_nobody_after_it() -> None:
    async def scenario() -> None:
        disk = SlowDisk()
        groups = FlushGroups(disk.carry_out)
        disk.error = OSError("broken")
        tasks = [asyncio.create_task(groups.flush(Flush(directories=("a",)))) for _ in range(2)]
        await settle()
        disk.may_go_on.release()
        assert [str(error) for error in await asyncio.gather(*tasks, return_exceptions=True)] == [
            "broken"
        ] * 2
        disk.error = None
        disk.may_go_on.release()
        await groups.flush(Flush(directories=("b",)))

    asyncio.run(scenario())
