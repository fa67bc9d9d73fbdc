"""The active controller on a node: decide, append, apply at once, wait for the commit, reply."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

from moldau.metadata.controller.decisions import Circumstances, ControllerDecision
from moldau.metadata.controller.state import Controller
from moldau.metadata.frames import encode_frame
from moldau.model.decision import Decision
from moldau.model.draws import SEED_BYTES
from moldau.model.errors import ErrorCode, KafkaError
from moldau.model.ids import ClusterId, NodeId, Offset
from moldau.node.logs import get_logger
from moldau.node.metadata import MetadataMachine
from moldau.node.quorum import Change, QuorumNode
from moldau.node.waiting import is_set_within
from moldau.raft.roles import Leader
from moldau.wire.message import MetadataRecord, Request, Response
from moldau.world.ports import World

log = get_logger(__name__)

COMMIT_TIMEOUT_MS: Final = 10_000
# How often partitions are given back to their preferred leaders, and how many at a time.
_REBALANCE_MS: Final = 300_000
_REBALANCED_MAX: Final = 1_000


class ActiveController:
    """Runs the controller while this node leads the quorum, and says NOT_CONTROLLER while it does not."""

    def __init__(
        self,
        world: World,
        quorum: QuorumNode,
        machine: MetadataMachine,
        *,
        cluster_id: ClusterId,
        node_id: NodeId,
        static: Mapping[str, str],
        bootstrap: Sequence[MetadataRecord],
    ) -> None:
        self._world = world
        self._quorum = quorum
        self._machine = machine
        self._cluster_id = cluster_id
        self._node_id = node_id
        self._static = static
        self._bootstrap = bootstrap
        self._controller: Controller | None = None
        self._woken = asyncio.Event()
        self._rebalance_at_ms = 0

    @property
    def is_active(self) -> bool:
        """Whether requests are decided here."""
        return self._controller is not None

    def wake(self) -> None:
        """The role or the committed records have changed; the quorum tells so in the middle of its steps."""
        role = self._quorum.quorum.role if self._quorum.is_open else None
        if not isinstance(role, Leader):
            # What is known beyond the committed image dies with the leadership.
            self._controller = None
        self._woken.set()

    async def handle(self, request: Request) -> Response:
        """Decide on a request, and answer once all that the decision saw is committed."""
        controller = self._controller
        if controller is None:
            raise KafkaError(ErrorCode.NOT_CONTROLLER)
        decision = controller.decide(request, self._circumstances())
        self._append(controller, decision)
        # A deadline may be nearer now.
        self._woken.set()
        await self._committed(self._quorum.view.end_offset)
        if self._controller is not controller:
            # Another leader may have written other records in the place of those that this decision saw.
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT if decision.records else ErrorCode.NOT_CONTROLLER)
        return decision.reply

    async def run(self) -> None:
        """Become active when this node leads, and do what nobody asks for."""
        while True:
            self._woken.clear()
            self._activate_if_due()
            pause_ms = self._work()
            await is_set_within(self._woken, self._world.clock, pause_ms)

    # ------------------------------------------------------------ within

    def _activate_if_due(self) -> None:
        role = self._quorum.quorum.role if self._quorum.is_open else None
        if self._controller is not None or not isinstance(role, Leader):
            return
        # Everything that earlier leaders have left is committed along with the first record of this one.
        if self._quorum.applied <= role.start_offset:
            return
        controller = Controller(
            self._machine.image, cluster_id=self._cluster_id, node_id=self._node_id, static=self._static
        )
        now_ms = self._world.clock.now_ms()
        controller.activate(now_ms)
        self._rebalance_at_ms = now_ms + _REBALANCE_MS
        self._controller = controller
        if not controller.image.features:
            self._append(controller, Decision(None, tuple(self._bootstrap)))
        log.info("active controller", node_id=self._node_id, epoch=role.epoch)

    def _work(self) -> int:
        """Fence who is silent, and so on; gives how long there is nothing to do."""
        controller, now_ms = self._controller, self._world.clock.now_ms()
        if controller is None:
            return _REBALANCE_MS
        while self._append(controller, controller.fence_silent_brokers(now_ms)):
            pass
        self._append(controller, controller.elect_missing_leaders())
        if now_ms >= self._rebalance_at_ms:
            self._rebalance_at_ms = now_ms + _REBALANCE_MS
            self._append(controller, controller.prefer_first_replicas(count_max=_REBALANCED_MAX))
        due_ms = min(self._rebalance_at_ms, controller.next_deadline_ms() or self._rebalance_at_ms)
        return max(due_ms - now_ms, 1)

    def _circumstances(self) -> Circumstances:
        return Circumstances(
            now_ms=self._world.clock.now_ms(),
            next_offset=self._quorum.view.end_offset,
            seed=self._world.randomness.bytes(SEED_BYTES),
        )

    def _append(self, controller: Controller, decision: ControllerDecision[object]) -> bool:
        records = decision.records
        if not records:
            return False
        appended = self._quorum.append([Change(None, encode_frame(record)) for record in records])
        last = Offset(appended.offset + len(records) - 1)
        controller.replay(records, offset=last, epoch=appended.epoch)
        return True

    async def _committed(self, end: Offset) -> None:
        try:
            async with self._world.clock.timeout_ms(COMMIT_TIMEOUT_MS):
                await self._quorum.until_applied(end)
        except TimeoutError:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT) from None
