"""What a broker does by itself: checkpoints, retention, compaction, scrubbing, and giving up on who waits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Final

from moldau.log import compaction
from moldau.model.ids import TopicPartition
from moldau.node.connections import Server
from moldau.node.logs import get_logger
from moldau.node.metrics import LoopLag
from moldau.node.partitions import Partitions, Replica
from moldau.world.ports import DiskFailed, Flush, World

log = get_logger(__name__)

_EXPIRE_MS: Final = 100
_SWEEP_MS: Final = 1_000
_LAG_MS: Final = 100
# Between two rounds over all partitions, of each of which one segment is read.
_SCRUB_MS: Final = 1_000
_SCRUB_BYTES_PER_SECOND: Final = 16 * 1024 * 1024
# Looking whether something is to be done takes some microseconds for each segment of a log.
_LOOKS_PER_TURN: Final = 50
_KEYS_MAX: Final = 1_000_000
_SECRET_BYTES: Final = 16


@dataclass(frozen=True, slots=True)
class Intervals:
    """How often things are done."""

    checkpoint_ms: int
    retention_ms: int
    compaction_ms: int


class Housekeeping:
    """The broker's regular work, each kind in a task of its own."""

    def __init__(self, world: World, partitions: Partitions, intervals: Callable[[], Intervals]) -> None:
        self._world = world
        self._partitions = partitions
        self._intervals = intervals
        """Asked before each pause, as settings change."""

    async def run_expiry(self, server: Server) -> None:
        """Answer those whose time is over, close idle connections, look at the disk."""
        clock = self._world.clock
        swept_ms = clock.now_ms()
        while True:
            await clock.sleep_ms(_EXPIRE_MS)
            now_ms = clock.now_ms()
            self._partitions.expire_waiting(now_ms)
            if now_ms - swept_ms >= _SWEEP_MS:
                swept_ms = now_ms
                server.sweep(now_ms)
                self._partitions.look_at_disk()

    async def run_loop_lag(self, lag: LoopLag) -> None:
        """Measure how late the loop is."""
        clock = self._world.clock
        while True:
            expected_us = clock.now_us() + _LAG_MS * 1000
            await clock.sleep_ms(_LAG_MS)
            lag.woke(expected_seconds=expected_us / 1_000_000, actual_seconds=clock.now_us() / 1_000_000)

    async def run_checkpoints(self) -> None:
        """Write down regularly what a restart may believe."""
        while True:
            await self._world.clock.sleep_ms(self._intervals().checkpoint_ms)
            self._partitions.flush_everything_soon()
            await self._partitions.flushed()
            try:
                await self._partitions.write_checkpoints()
            except OSError as error:
                log.error("checkpoints cannot be written", error=str(error))

    async def run_retention(self) -> None:
        """Delete what topics no longer keep, one partition at a time."""
        while True:
            await self._world.clock.sleep_ms(self._intervals().retention_ms)
            await self.apply_retention()

    async def apply_retention(self) -> None:
        """One round over all partitions."""
        now_ms = self._world.clock.wall_ms()
        starts = {}
        async for replica in self._in_turns():
            start = replica.log.start_after_retention(now_ms)
            if start > replica.log.log_start_offset:
                starts[replica] = start
        if starts:
            try:
                await self._partitions.advance_log_starts(starts)
            except OSError as error:
                log.error("logs cannot begin later", error=str(error))
        async for replica in self._in_turns():
            try:
                replica.log.expire_producers(now_ms)
                removed = replica.log.delete_segments(now_ms)
                replica.log.remove_deleted(now_ms)
            except OSError as error:
                log.error("retention failed", partition=str(replica.at), error=str(error))
                continue
            if removed:
                log.info("segments deleted", partition=str(replica.at), count=removed)
            if replica.log.is_dirty:
                self._partitions.appended(replica)
            await asyncio.sleep(0)

    async def run_scrubbing(self) -> None:
        """Look for rot, slowly, in what was not verified when the broker started."""
        while True:
            await self._world.clock.sleep_ms(_SCRUB_MS)
            for replica in self._partitions:
                await self._scrub(replica)

    async def _scrub(self, replica: Replica) -> None:
        try:
            scrub = replica.log.begin_scrub()
            if scrub is None:
                return
            damages = await self._world.tasks.off_loop(scrub.carry_out)
            found = replica.log.scrubbed(scrub, damages)
        except OSError as error:
            log.error("scrubbing failed", partition=str(replica.at), error=str(error))
            return
        for each in found:
            log.error(
                "damaged records",
                partition=str(replica.at),
                offset=each.offset,
                offset_end=each.offset_end,
            )
        await self._world.clock.sleep_ms(scrub.size_bytes * 1000 // _SCRUB_BYTES_PER_SECOND)

    async def run_compaction(self) -> None:
        """Compact the partition that needs it, one after the other."""
        while True:
            await self._world.clock.sleep_ms(self._intervals().compaction_ms)
            async for replica in self._in_turns():
                if compaction.is_due(replica.log, self._world.clock.wall_ms()):
                    await self.compact(replica)

    async def _in_turns(self) -> AsyncIterator[Replica]:
        """All partitions that are still here; others have a turn now and then while they are looked at."""
        for number, replica in enumerate(self._partitions):
            if number % _LOOKS_PER_TURN == _LOOKS_PER_TURN - 1:
                await asyncio.sleep(0)
            if self._partitions.find(*replica.at) is replica:
                yield replica

    async def compact(self, replica: Replica) -> None:
        """One round over one partition, in steps between which everybody else has a turn."""
        clock = self._world.clock
        round_ = compaction.Compaction(
            replica.log,
            now_ms=clock.wall_ms(),
            keys_max=_KEYS_MAX,
            secret=self._world.randomness.bytes(_SECRET_BYTES),
        )
        at: TopicPartition = replica.at
        log.info("compaction begins", partition=str(at))
        while not round_.is_done and not round_.is_abandoned:
            if self._partitions.find(at.topic, at.partition) is not replica:
                return
            began_us = clock.now_us()
            try:
                match round_.step_apart():
                    case Flush() as flush:
                        await self._world.disk.flush(flush)
                    case compaction.Heavy(work):
                        round_.done(await self._world.tasks.off_loop(work))
            except OSError as error:
                raise DiskFailed(f"compaction of {at} failed: {error}") from error
            # Others have the loop for as long as this step has had it.
            await clock.sleep_ms((clock.now_us() - began_us) // 1000)
        log.info("compaction ended", partition=str(at), size_bytes=replica.log.size_bytes)
