"""Producer ids, which a broker gives out one by one from the blocks that the controller gives it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from moldau.model.errors import ErrorCode, KafkaError
from moldau.model.ids import BrokerEpoch, NodeId
from moldau.node.controller_channel import ControllerChannel
from moldau.wire.messages.brokers import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from moldau.world.ports import ConnectionLost

_VERSION: Final = 0


class ProducerIds:
    """Gives out producer ids that no other broker gives out; however many wait, one block is asked for."""

    def __init__(
        self, channel: ControllerChannel, *, broker_id: NodeId, broker_epoch: Callable[[], BrokerEpoch]
    ) -> None:
        self._channel = channel
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._left = range(0)
        # Of the allocation under way: why it failed, or None if those who wait should look again.
        self._outcome: asyncio.Future[str | None] | None = None

    async def next(self) -> int:
        """An id that was never given out before; COORDINATOR_LOAD_IN_PROGRESS if none can be had now."""
        while not self._left:
            if self._outcome is None:
                await self._allocate()
            # Shielded, since whoever gives up waiting would cancel the future for all others too.
            elif (failure := await asyncio.shield(self._outcome)) is not None:
                raise _none_now(failure)
        producer_id, self._left = self._left[0], self._left[1:]
        return producer_id

    async def _allocate(self) -> None:
        outcome: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        self._outcome = outcome
        failure: str | None = None
        try:
            self._left = await self._block()
        except KafkaError as error:
            failure = error.message
            raise
        finally:
            # After a cancellation too: then one of those who wait asks in turn.
            self._outcome = None
            outcome.set_result(failure)

    async def _block(self) -> range:
        request = AllocateProducerIdsRequest(broker_id=self._broker_id, broker_epoch=self._broker_epoch())
        try:
            response = await self._channel.ask(request, version=_VERSION)
        except ConnectionLost as error:
            raise _none_now(str(error)) from None
        assert isinstance(response, AllocateProducerIdsResponse), response
        if response.error_code:
            raise _none_now(f"the controller answered with error {response.error_code}")
        first = response.producer_id_start
        block = range(first, first + response.producer_id_len)
        if first < 0 or not block:
            raise _none_now(f"the controller answered with {block}")
        return block


def _none_now(why: str) -> KafkaError:
    # The one error of InitProducerId after which every client comes again.
    return KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, why)
