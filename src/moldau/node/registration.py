"""A broker's life as the controller sees it: it registers, proves that it lives, asks before it leaves."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final

from moldau.metadata.features import SUPPORTED_FEATURES
from moldau.model.errors import ErrorCode, KafkaError
from moldau.model.ids import BrokerEpoch, ClusterId, DirectoryId, Offset, uuid_from_random
from moldau.node.config import NodeConfig
from moldau.node.controller_channel import ControllerChannel
from moldau.node.logs import get_logger
from moldau.node.waiting import is_set_within
from moldau.wire.messages.brokers import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    Feature,
    Listener,
)
from moldau.world.ports import ConnectionLost, World

log = get_logger(__name__)

_REGISTRATION_VERSION: Final = 4
_HEARTBEAT_VERSION: Final = 1
_RETRY_MS: Final = 100


class RegistrationRefused(Exception):
    """The controller will not have this broker; the text says why."""


class Registration:
    """Keeps this broker registered and unfenced."""

    def __init__(
        self,
        world: World,
        config: NodeConfig,
        channel: ControllerChannel,
        *,
        cluster_id: ClusterId,
        directory_id: DirectoryId,
        previous_epoch: int,
        heartbeat_ms: int,
        metadata_offset: Callable[[], Offset],
    ) -> None:
        self._world = world
        self._config = config
        self._channel = channel
        self._cluster_id = cluster_id
        self._directory_id = directory_id
        self._previous_epoch = previous_epoch
        self._heartbeat_ms = heartbeat_ms
        self._metadata_offset = metadata_offset
        self._incarnation_id = uuid_from_random(world.randomness.bytes(16))
        self._is_leaving = False
        self._may_go = asyncio.Event()
        self._is_registered = asyncio.Event()
        self._woken = asyncio.Event()
        self.epoch = BrokerEpoch(-1)
        self.heard_ms = 0
        """When the controller has last answered a heartbeat."""

    async def run(self) -> None:
        """Register, then send heartbeats until this broker may go."""
        self.epoch = await self._register()
        self._is_registered.set()
        log.info("registered", broker=self._config.node_id, epoch=self.epoch)
        while not self._may_go.is_set():
            self._woken.clear()
            pause_ms = await self._heartbeat()
            if self._may_go.is_set():
                return
            await is_set_within(self._woken, self._world.clock, pause_ms)

    async def registered(self) -> BrokerEpoch:
        """The epoch of this process, once the controller has given it one."""
        await self._is_registered.wait()
        return self.epoch

    async def leave(self) -> None:
        """Ask the controller to move leadership away, and return when this broker may go."""
        self._is_leaving = True
        self._woken.set()
        await self._may_go.wait()

    def wake(self) -> None:
        """Something has changed that the controller would like to know."""
        self._woken.set()

    async def _register(self) -> BrokerEpoch:
        request = BrokerRegistrationRequest(
            broker_id=self._config.node_id,
            cluster_id=self._cluster_id,
            incarnation_id=self._incarnation_id,
            listeners=[
                Listener(
                    name=listener.name,
                    host=listener.advertised.host,
                    port=listener.advertised.port,
                    security_protocol=listener.protocol,
                )
                for listener in self._config.broker_listeners
            ],
            features=[
                Feature(name=name, min_supported_version=lowest, max_supported_version=highest)
                for name, lowest, highest in SUPPORTED_FEATURES
            ],
            rack=self._config.rack,
            log_dirs=[self._directory_id],
            previous_broker_epoch=self._previous_epoch,
        )
        while True:
            error = ErrorCode.NOT_CONTROLLER
            with contextlib.suppress(ConnectionLost):
                response = await self._channel.ask(request, version=_REGISTRATION_VERSION)
                assert isinstance(response, BrokerRegistrationResponse)
                error = ErrorCode(response.error_code)
                if error is ErrorCode.NONE:
                    return BrokerEpoch(response.broker_epoch)
            # Another incarnation may only not have been given up for dead yet.
            if not error.is_retriable and error not in (
                ErrorCode.NOT_CONTROLLER,
                ErrorCode.DUPLICATE_BROKER_REGISTRATION,
            ):
                raise RegistrationRefused(
                    f"the controller refuses this broker: {error.name}: {error.message}"
                )
            await self._world.clock.sleep_ms(_RETRY_MS)

    async def _heartbeat(self) -> int:
        """Send one; gives how long to wait before the next."""
        request = BrokerHeartbeatRequest(
            broker_id=self._config.node_id,
            broker_epoch=self.epoch,
            current_metadata_offset=self._metadata_offset(),
            want_fence=False,
            want_shut_down=self._is_leaving,
        )
        try:
            response = await self._channel.ask(request, version=_HEARTBEAT_VERSION)
        except (ConnectionLost, KafkaError):
            return _RETRY_MS
        assert isinstance(response, BrokerHeartbeatResponse)
        error = ErrorCode(response.error_code)
        if error is ErrorCode.STALE_BROKER_EPOCH:
            raise RegistrationRefused(
                "another process has registered under the id of this broker, or somebody has unregistered it"
            )
        if error is not ErrorCode.NONE:
            return _RETRY_MS
        self.heard_ms = self._world.clock.now_ms()
        if response.should_shut_down:
            self._may_go.set()
        return self._heartbeat_ms if not response.is_fenced and not self._is_leaving else _RETRY_MS
