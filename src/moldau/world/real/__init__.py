"""The real machine behind the ports: asyncio and the operating system."""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import ssl
import time
from collections.abc import Callable, Coroutine, Mapping
from typing import TypeVar

from moldau.world.clock import LoopClock
from moldau.world.ports import Address, World
from moldau.world.real.disk import RealDisk
from moldau.world.real.network import RealNetwork
from moldau.world.real.turns import TurnLoop
from moldau.world.tasks import ScopedTasks

T = TypeVar("T")


def real_world(
    directory: str,
    *,
    client_tls: ssl.SSLContext | None = None,
    held: Mapping[Address, socket.socket] | None = None,
) -> World:
    """The world of one node whose data is in `directory`; `held` are sockets that listen for it already."""
    return World(
        clock=RealClock(),
        randomness=RealRandomness(),
        tasks=RealTasks(),
        disk=RealDisk(directory),
        network=RealNetwork(client_tls=client_tls, held=held),
    )


def run(work: Coroutine[object, object, T]) -> T:
    """Run a coroutine on a real loop to its end."""
    with asyncio.Runner(loop_factory=TurnLoop) as runner:
        return runner.run(work)


class RealClock(LoopClock):
    """The Clock port on the machine's clocks: asked several times for each request, so without detours."""

    def __init__(self) -> None:
        super().__init__(wall_ms=self.wall_ms)

    def now_ms(self) -> int:
        """Milliseconds that only rise; of no meaning outside this node."""
        return time.monotonic_ns() // 1_000_000

    def now_us(self) -> int:
        """The same in microseconds."""
        return time.monotonic_ns() // 1_000

    def wall_ms(self) -> int:
        """Milliseconds since 1970; may jump either way."""
        return time.time_ns() // 1_000_000


class RealRandomness:
    """The Randomness port on the operating system's generator."""

    def below(self, bound: int) -> int:
        """A whole number from 0 up to, and without, `bound`."""
        return secrets.randbelow(bound)

    def bytes(self, count: int) -> bytes:
        """`count` random bytes."""
        return os.urandom(count)


class RealTasks(ScopedTasks):
    """The Tasks port with threads for work off the loop."""

    async def off_loop(self, work: Callable[[], T]) -> T:
        """Run `work`, which must not touch the node's state, without holding the loop."""
        return await asyncio.get_running_loop().run_in_executor(None, work)
