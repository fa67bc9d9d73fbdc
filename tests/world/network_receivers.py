"""Receivers for the tests of networks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from moldau.world.ports import Connection


class Recorder:
    """A Receiver that keeps all that happens to it."""

    connection: Connection

    def __init__(self, *, on_data: Callable[[Recorder, bytes], None] | None = None, room: int = 4096) -> None:
        self.received = bytearray()
        self.pieces: list[int] = []
        self.events: list[str] = []
        self.error: Exception | None = None
        self._on_data = on_data
        self._room = bytearray(room)
        self._changed = asyncio.Event()

    def connected(self, connection: Connection) -> None:
        self.connection = connection
        self._happened("connected")

    def buffer_to_fill(self, hint: int) -> memoryview:
        return memoryview(self._room)

    def filled(self, count: int) -> None:
        data = bytes(self._room[:count])
        self.received += data
        self.pieces.append(count)
        self._changed.set()
        if self._on_data is not None:
            self._on_data(self, data)

    def pause_sending(self) -> None:
        self._happened("pause")

    def resume_sending(self) -> None:
        self._happened("resume")

    def disconnected(self, error: Exception | None) -> None:
        self.error = error
        self._happened("disconnected")

    async def until(self, is_reached: Callable[[], bool], timeout_ms: int = 10_000) -> None:
        """Wait until something holds that depends on what happens here."""
        async with asyncio.timeout(timeout_ms / 1000):
            while not is_reached():
                self._changed.clear()
                await self._changed.wait()

    async def until_event(self, name: str) -> None:
        """Wait until something of that name has happened."""
        await self.until(lambda: name in self.events)

    def _happened(self, name: str) -> None:
        self.events.append(name)
        self._changed.set()


def echo(recorder: Recorder, data: bytes) -> None:
    """Send back what arrives."""
    recorder.connection.send([data])
