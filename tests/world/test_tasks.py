"""Tasks that end with their block, in the order they were started."""

import asyncio
from collections.abc import Callable

import pytest

from moldau.world.tasks import ScopedTasks, TaskScope

tasks = ScopedTasks()


async def for_ever(name: str, ends: list[str]) -> None:
    try:
        await asyncio.get_running_loop().create_future()
    finally:
        ends.append(name)


async def failing(message: str = "broken") -> None:
    raise RuntimeError(message)


async def answer() -> int:
    return 42


def test_leaving_the_block_cancels_in_the_order_of_starting() -> None:
    async def scenario() -> list[str]:
        ends: list[str] = []
        async with tasks.scope() as scope:
            for name in "dacb":
                scope.start(for_ever(name, ends), name=name)
            await asyncio.sleep(0)
        return ends

    assert asyncio.run(scenario()) == list("dacb")


def test_an_awaited_task_gives_its_result_and_its_exception_to_who_awaits() -> None:
    async def scenario() -> None:
        async with tasks.scope() as scope:
            assert await scope.start(answer(), name="answer") == 42
            with pytest.raises(RuntimeError, match="broken"):
                await scope.start(failing(), name="failing")
            await asyncio.sleep(0)

    asyncio.run(scenario())


async def wait_in_block(scope: TaskScope) -> None:
    await asyncio.get_running_loop().create_future()


async def leave_block(scope: TaskScope) -> None:
    await asyncio.sleep(0)


@pytest.mark.parametrize("body", [wait_in_block, leave_block])
def test_an_exception_that_nobody_awaits_ends_the_owner_with_it(
    body: Callable[[TaskScope], asyncio.Future[None]],
) -> None:
    async def block(ends: list[str]) -> None:
        async with tasks.scope() as scope:
            scope.start(for_ever("other", ends), name="other")
            scope.start(failing(), name="failing")
            await body(scope)

    async def scenario() -> list[str]:
        ends: list[str] = []
        with pytest.raises(RuntimeError, match="broken"):
            await block(ends)
        # The cancellation that ended the block does not reach what comes after it.
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        owner = asyncio.current_task()
        assert owner is not None
        assert owner.cancelling() == 0
        return ends

    assert asyncio.run(scenario()) == ["other"]


def test_a_cancelled_owner_takes_its_tasks_along_and_stays_cancelled() -> None:
    async def scenario() -> list[str]:
        ends: list[str] = []

        async def owner() -> None:
            async with tasks.scope() as scope:
                scope.start(for_ever("child", ends), name="child")
                await asyncio.get_running_loop().create_future()

        task = asyncio.create_task(owner())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return ends

    assert asyncio.run(scenario()) == ["child"]


def test_what_the_block_raises_itself_comes_first() -> None:
    async def scenario() -> None:
        async with tasks.scope() as scope:
            scope.start(failing("task"), name="failing")
            raise ValueError("block")

    with pytest.raises(ValueError, match="block"):
        asyncio.run(scenario())


def test_one_task_can_be_ended_before_its_scope() -> None:
    async def scenario() -> list[str]:
        ends: list[str] = []
        async with tasks.scope() as scope:
            first = scope.start(for_ever("first", ends), name="first")
            scope.start(for_ever("second", ends), name="second")
            await asyncio.sleep(0)
            first.cancel()
            await asyncio.sleep(0)
            assert ends == ["first"]
        return ends

    assert asyncio.run(scenario()) == ["first", "second"]
