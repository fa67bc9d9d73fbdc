"""Producer ids: from blocks, each once, and one block asked for at a time."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from moldau.model.errors import ErrorCode, KafkaError
from moldau.model.ids import BrokerEpoch, NodeId
from moldau.node.controller_channel import ControllerChannel
from moldau.node.producer_ids import ProducerIds
from moldau.wire.message import Request, Response
from moldau.wire.messages.brokers import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from moldau.world.ports import ConnectionLost

BLOCK = 10


class Controller(ControllerChannel):
    """A controller without a network: gives out blocks, as soon as it is let to."""

    def __init__(self) -> None:
        self.asked: list[AllocateProducerIdsRequest] = []
        self.arrivals = asyncio.Semaphore(0)
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.failure: ConnectionLost | ErrorCode | None = None
        self.first = 5000
        self.block = BLOCK

    async def ask(self, request: Request, *, version: int, timeout_ms: int | None = None) -> Response:
        assert isinstance(request, AllocateProducerIdsRequest)
        assert version == 0
        self.asked.append(request)
        self.arrivals.release()
        await self.may_answer.wait()
        if isinstance(self.failure, ConnectionLost):
            raise self.failure
        if self.failure is not None:
            return AllocateProducerIdsResponse(
                throttle_time_ms=0, error_code=self.failure, producer_id_start=0, producer_id_len=0
            )
        first, self.first = self.first, self.first + self.block
        return AllocateProducerIdsResponse(
            throttle_time_ms=0, error_code=0, producer_id_start=first, producer_id_len=self.block
        )


def play(scenario: Callable[[Controller, ProducerIds], Awaitable[None]]) -> None:
    async def run() -> None:
        controller = Controller()
        ids = ProducerIds(controller, broker_id=NodeId(3), broker_epoch=lambda: BrokerEpoch(77))
        await scenario(controller, ids)

    asyncio.run(run())


def test_ids_come_from_blocks_in_turn() -> None:
    async def scenario(controller: Controller, ids: ProducerIds) -> None:
        assert [await ids.next() for _ in range(2 * BLOCK + 1)] == list(range(5000, 5000 + 2 * BLOCK + 1))
        assert len(controller.asked) == 3

    play(scenario)


def test_the_controller_hears_which_registration_asks() -> None:
    async def scenario(controller: Controller, ids: ProducerIds) -> None:
        await ids.next()
        assert controller.asked == [AllocateProducerIdsRequest(broker_id=3, broker_epoch=77)]

    play(scenario)


def test_however_many_wait_one_block_is_asked_for_at_a_time() -> None:
    async def scenario(controller: Controller, ids: ProducerIds) -> None:
        controller.may_answer.clear()
        waiting = [asyncio.ensure_future(ids.next()) for _ in range(2 * BLOCK)]
        await controller.arrivals.acquire()
        controller.may_answer.set()
        given = await asyncio.gather(*waiting)
        assert sorted(given) == list(range(5000, 5000 + 2 * BLOCK))
        assert len(controller.asked) == 2

    play(scenario)


def test_whoever_gives_up_waiting_leaves_the_others_their_ids() -> None:
    async def scenario(controller: Controller, ids: ProducerIds) -> None:
        controller.may_answer.clear()
        asking, impatient, patient = (asyncio.ensure_future(ids.next()) for _ in range(3))
        await controller.arrivals.acquire()
        impatient.cancel()
        asking.cancel()
        await controller.arrivals.acquire()
        controller.may_answer.set()
        assert await patient == 5000
        assert impatient.cancelled() and asking.cancelled()

    play(scenario)


@pytest.mark.parametrize(
    "failure", [ConnectionLost("there is no active controller"), ErrorCode.STALE_BROKER_EPOCH]
)
def test_a_failure_is_told_to_all_who_wait_and_the_next_one_asks_again(
    failure: ConnectionLost | ErrorCode,
) -> None:
    async def scenario(controller: Controller, ids: ProducerIds) -> None:
        controller.may_answer.clear()
        controller.failure = failure
        waiting = [asyncio.ensure_future(ids.next()) for _ in range(3)]
        await controller.arrivals.acquire()
        controller.may_answer.set()
        for outcome in await asyncio.gather(*waiting, return_exceptions=True):
            assert isinstance(outcome, KafkaError)
            assert outcome.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert len(controller.asked) == 1
        controller.failure = None
        assert await ids.next() == 5000

    play(scenario)


def test_an_empty_block_is_a_failure() -> None:
    async def scenario(controller: Controller, ids: ProducerIds) -> None:
        controller.block = 0
        with pytest.raises(KafkaError) as refused:
            await ids.next()
        assert refused.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    play(scenario)
