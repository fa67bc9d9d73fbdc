"""The partitions that have a replica here: opened and closed as the metadata says, flushed together."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

from moldau.log import checkpoints
from moldau.log.config import LogConfig
from moldau.log.log import FlushWork, Log
from moldau.metadata.image import LocalPartition, Topic, topic_resource
from moldau.metadata.view import ClusterView
from moldau.model.errors import ErrorCode, KafkaError
from moldau.model.ids import (
    LeaderEpoch,
    NodeId,
    TopicId,
    TopicName,
    TopicPartition,
    uuid_from_random,
    uuid_to_text,
)
from moldau.model.settings.table import Durability
from moldau.node.logs import get_logger
from moldau.node.metrics import Histogram
from moldau.node.waiting import Waiting
from moldau.replica.leader import Leader, PartitionConfig
from moldau.world.ports import DiskFailed, Flush, World

log = get_logger(__name__)

# How many partitions are opened or closed before others get their turn.
_SLICE: Final = 8
# While less than this is left on the disk, nothing is produced: the metadata and the indexes need the rest.
FREE_BYTES_MIN: Final = 64 * 1024 * 1024
_NAME_LENGTH_MAX: Final = 255
_CHECKPOINTS: Final = (
    checkpoints.RECOVERY_POINTS,
    checkpoints.HIGH_WATERMARKS,
    checkpoints.LOG_STARTS,
    checkpoints.CLEANED_ENDS,
)
_NO_STARTS: Final[Mapping[Replica, int]] = {}
_DELETED: Final = "-delete"
_STRAY: Final = "-stray"


class Replica:
    """One partition on this broker, and who waits for it."""

    __slots__ = ("at", "leader", "leader_epoch", "leader_id", "log", "topic_id", "waiting")

    def __init__(self, at: TopicPartition, topic_id: TopicId, log_: Log, waiting: Waiting) -> None:
        self.at = at
        self.topic_id = topic_id
        self.log = log_
        self.leader: Leader | None = None
        self.leader_id = NodeId(-1)
        self.leader_epoch = LeaderEpoch(-1)
        self.waiting = waiting


class Partitions:
    """All replicas of this broker, in one data directory."""

    def __init__(self, world: World, node_id: NodeId, *, flush_seconds: Histogram) -> None:
        self._world = world
        self._disk = world.disk
        self._node_id = node_id
        self._flush_seconds = flush_seconds
        self._replicas: dict[tuple[str, int], Replica] = {}
        self._crowds: dict[Waiting, None] = {}
        self._dirty: dict[Replica, None] = {}
        self._dirty_or_waiting = asyncio.Event()
        self._orphan_flushes: list[Flush] = []
        self._flush_turns: list[asyncio.Future[None]] = []
        self.has_room = True
        """Whether the disk has room for more than what the broker needs itself."""
        self._unopened: dict[TopicPartition, dict[str, int]] = {}
        """What the checkpoints of the last process say of logs that this one has not opened yet."""
        self._was_clean = False
        self._writing_checkpoints = asyncio.Lock()
        self._checkpoint_writes = 0
        self._checkpointed: dict[str, dict[TopicPartition, int]] | None = {}
        """What the files of checkpoints hold, as far as this process has written them; None if in doubt."""

    # ------------------------------------------------------------ finding

    def __iter__(self) -> Iterator[Replica]:
        return iter(list(self._replicas.values()))

    def __len__(self) -> int:
        return len(self._replicas)

    def find(self, topic: str, partition: int) -> Replica | None:
        """The replica here, if there is one."""
        return self._replicas.get((topic, partition))

    def led(self, view: ClusterView, topic: str, partition: int) -> tuple[Replica, Leader]:
        """The replica and its leader; KafkaError that says whether the client should look elsewhere."""
        replica = self._replicas.get((topic, partition))
        if replica is not None and replica.leader is not None:
            return replica, replica.leader
        known = view.image.topics.get(TopicName(topic))
        if known is None or known.partition(partition) is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    # ------------------------------------------------------------ starting and stopping

    def load(self) -> None:
        """Read what the last process has left in the directory; before anything is opened."""
        disk = self._disk
        with _failing("the data directory cannot be read"):
            for name in _CHECKPOINTS:
                for at, offset in checkpoints.read_offsets(disk, name).items():
                    self._unopened.setdefault(at, {})[name] = offset
            self._was_clean = checkpoints.read_clean_shutdown(disk) is not None
            if self._was_clean:
                disk.flush_blocking(checkpoints.remove_clean_shutdown(disk))
        for name in disk.list(""):
            is_half_written = name.startswith(_CHECKPOINTS) and name.endswith(checkpoints.TEMPORARY_SUFFIX)
            if is_half_written or name.endswith(f"{_DELETED}/"):
                self._remove(name.removesuffix("/"))

    def _remove(self, path: str) -> None:
        """Remove what nobody needs; if that fails, the next start tries again."""
        try:
            self._disk.remove(path)
        except OSError as error:
            log.error("files that are no longer needed stay", path=path, error=str(error))

    def set_strays_aside(self, view: ClusterView) -> None:
        """Rename the directories that belong to no partition of this broker; never delete on doubt."""
        with _failing("strays cannot be set aside"):
            self._set_strays_aside(view)
        self._unopened.clear()

    def _set_strays_aside(self, view: ClusterView) -> None:
        for name in self._disk.list(""):
            directory = name.removesuffix("/")
            topic, dash, number = directory.rpartition("-")
            if directory == name or not dash or not number.isdigit() or topic == "__cluster_metadata":
                continue
            known = view.image.topics.get(TopicName(topic))
            partition = known.partition(int(number)) if known is not None else None
            is_here = partition is not None and self._node_id in partition.replicas
            if known is None or not is_here or not self._is_of(directory, known.id):
                self._set_aside(directory, _STRAY)

    def _is_of(self, directory: str, topic_id: TopicId) -> bool:
        found = checkpoints.read_topic_id(self._disk, directory)
        return found is None or found == topic_id

    def _set_aside(self, directory: str, suffix: str) -> str:
        unique = uuid_to_text(uuid_from_random(self._world.randomness.bytes(16)))
        keep = _NAME_LENGTH_MAX - len(f".{unique}{suffix}")
        aside = f"{directory[:keep]}.{unique}{suffix}"
        self._disk.rename(directory, aside)
        self._orphan_flushes.append(Flush(directories=("",)))
        self._dirty_or_waiting.set()
        if suffix == _STRAY:
            log.warning("data without metadata set aside", directory=directory, aside=aside)
        return aside

    async def close(self, broker_epoch: int) -> None:
        """Close every log and say so on disk, so that the next start need not look at them."""
        try:
            await self._close_logs()
            await self.write_checkpoints()
            # A log that nobody has looked at since a crash is not closed properly.
            if self._was_clean or not self._unopened:
                await self._flush(checkpoints.write_clean_shutdown(self._disk, broker_epoch))
        except OSError as error:
            # The next start finds no word of a proper end, and looks at the logs itself.
            raise DiskFailed(f"the logs cannot be closed: {error}") from error

    async def _close_logs(self) -> None:
        works = []
        for replica in self:
            replica.waiting.give_up(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            replica.leader = None
            works.append((replica, replica.log.close()))
        await self._flush(_merged([work.flush for _, work in works]))
        for replica, work in works:
            replica.log.flushed(work)

    # ------------------------------------------------------------ following the metadata

    async def follow(self, view: ClusterView, changes: tuple[LocalPartition, ...]) -> None:
        """Lead, or follow, in these partitions as the metadata now says; opens what is new here."""
        opened: dict[tuple[str, int], Replica] = {}
        for number, local in enumerate(changes):
            if number % _SLICE == _SLICE - 1:
                await asyncio.sleep(0)
            at = local.topic_partition
            if at not in self._replicas:
                config = self.config_of(view, view.image.topics[at.topic], at.partition)
                with _failing(f"the log of {at} cannot be opened"):
                    opened[at] = self.open(at, local.topic_id, config.log)
        await self._flush_recovered([replica for replica in opened.values() if replica.log.must_flush])
        # Nobody may see what a power cut could still take back.
        self._replicas |= opened
        for number, local in enumerate(changes):
            if number % _SLICE == _SLICE - 1:
                await asyncio.sleep(0)
            self._unopened.pop(local.topic_partition, None)
            self._take_over(view, local)

    async def _flush_recovered(self, opened: list[Replica]) -> None:
        """Make durable what was found in the logs, all of it together: after a crash that is every log."""
        works = []
        for replica in opened:
            with _failing(f"the log of {replica.at} cannot be flushed"):
                works.append((replica, replica.log.begin_flush()))
        await self._flush(_merged([work.flush for _, work in works]))
        for replica, work in works:
            replica.log.flushed(work)

    def _take_over(self, view: ClusterView, local: LocalPartition) -> None:
        at, partition = local.topic_partition, local.partition
        replica = self._replicas[at]
        config = self.config_of(view, view.image.topics[at.topic], at.partition)
        replica.leader_id, replica.leader_epoch = partition.leader, partition.leader_epoch
        if partition.leader != self._node_id:
            replica.leader = None
            replica.waiting.give_up(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        elif replica.leader is None or replica.leader.epoch != partition.leader_epoch:
            # Who waits was promised something by the leader of another epoch.
            replica.waiting.give_up(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            replica.leader = Leader(
                replica.log, config, me=self._node_id, epoch=partition.leader_epoch, isr=partition.isr
            )
            self.appended(replica)
        else:
            replica.leader.isr_changed(partition.isr)
            self.advance(replica)

    def config_of(self, view: ClusterView, topic: Topic, index: int) -> PartitionConfig:
        """The configuration of a partition."""
        texts = view.image.texts(topic_resource(topic.name))
        settings = view.topic_settings(texts) if texts else view.topic_defaults
        isr_size_min = view.isr_size_min(topic, topic.partitions[index])
        config = PartitionConfig.of(settings, view.broker_settings, isr_size_min=isr_size_min)
        # Whoever commits an offset is told that it stays committed, whatever the topic's settings say.
        return replace(config, durability=Durability.FLUSHED) if topic.is_internal else config

    def configure(self, view: ClusterView, topic: Topic) -> None:
        """Take over changed settings of a topic."""
        for index in range(len(topic.partitions)):
            replica = self._replicas.get((topic.name, index))
            if replica is not None:
                config = self.config_of(view, topic, index)
                replica.log.config = config.log
                if replica.leader is not None:
                    replica.leader.configure(config)
                    self.advance(replica)

    def open(self, at: TopicPartition, topic_id: TopicId, config: LogConfig) -> Replica:
        """The replica of a partition, with its log as the last process has left it, or a new one.

        The log may have to be flushed before it is written to.
        """
        directory = str(at)
        if self._disk.exists(directory) and not self._is_of(directory, topic_id):
            self._set_aside(directory, _STRAY)
        # A checkpoint names a partition, and speaks of the directory that was there when it was written.
        known = self._unopened.get(at, {}) if self._disk.exists(directory) else {}
        opened = Log.open_unflushed(
            self._disk,
            directory,
            config,
            recovery_point=known.get(checkpoints.RECOVERY_POINTS, 0),
            is_clean=self._was_clean and checkpoints.RECOVERY_POINTS in known,
            now_ms=self._world.clock.wall_ms(),
            log_start_offset=known.get(checkpoints.LOG_STARTS, 0),
            high_watermark=known.get(checkpoints.HIGH_WATERMARKS, 0),
            cleaned_end_offset=known.get(checkpoints.CLEANED_ENDS, 0),
        )
        if checkpoints.read_topic_id(self._disk, directory) is None:
            self._orphan_flushes.append(checkpoints.write_topic_id(self._disk, directory, topic_id))
        report = opened.recovery_report
        if report.bytes_cut or report.segments_removed:
            log.warning(
                "the torn end of a log is cut off",
                partition=directory,
                bytes=report.bytes_cut,
                segments=report.segments_removed,
                log_end=opened.log_end_offset,
            )
        for damage in opened.corrupt_ranges:
            log.error(
                "damaged records",
                partition=directory,
                offset=damage.offset,
                offset_end=damage.offset_end,
            )
        return Replica(at, topic_id, opened, Waiting(self._crowds))

    async def forget(self, closed: tuple[LocalPartition, ...]) -> None:
        """Close partitions that are no longer here, and delete their files, off the loop."""
        aside = []
        for number, local in enumerate(closed):
            if number % _SLICE == _SLICE - 1:
                await asyncio.sleep(0)
            at = local.topic_partition
            replica = self._replicas.get(at)
            if replica is None or replica.topic_id != local.topic_id:
                continue
            del self._replicas[at]
            self._dirty.pop(replica, None)
            replica.leader = None
            replica.waiting.give_up(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            with _failing(f"the log of {at} cannot be set aside"):
                aside.append(self._set_aside(str(at), _DELETED))
        if aside:
            # A topic that is created under the same name must not be taken for this one after a crash.
            with _failing("what was deleted cannot be written down"):
                await self.write_checkpoints()
        for directory in aside:
            await self._world.tasks.off_loop(lambda directory=directory: self._remove(directory))  # type: ignore[misc]

    # ------------------------------------------------------------ appending and flushing

    def appended(self, replica: Replica) -> None:
        """Something was appended: commit it at once, or have it flushed."""
        leader = replica.leader
        if leader is not None and not leader.needs_flush_to_commit:
            self.advance(replica)
            if not replica.log.is_flush_due(self._world.clock.wall_ms()):
                return
        self._dirty[replica] = None
        self._dirty_or_waiting.set()

    def advance(self, replica: Replica) -> None:
        """Commit what can be committed, and tell who waits for it."""
        leader = replica.leader
        if leader is not None and leader.advance_high_watermark():
            replica.waiting.committed(replica.log.high_watermark)

    def expire_waiting(self, now_ms: int) -> None:
        """Tell those who wait for a commit and whose time is over."""
        for waiting in list(self._crowds):
            waiting.expire(now_ms)

    async def flushed(self) -> None:
        """Return once everything that is dirty now is durable."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._flush_turns.append(turn)
        self._dirty_or_waiting.set()
        await turn

    async def run_flushes(self) -> None:
        """Flush what is dirty, all of it together, again and again; what comes meanwhile is the next turn."""
        while True:
            await self._dirty_or_waiting.wait()
            self._dirty_or_waiting.clear()
            works: list[tuple[Replica, FlushWork]] = []
            dirty, self._dirty = self._dirty, {}
            orphans, self._orphan_flushes = self._orphan_flushes, []
            turns, self._flush_turns = self._flush_turns, []
            for replica in dirty:
                if replica.log.is_dirty:
                    try:
                        works.append((replica, replica.log.begin_flush()))
                    except OSError as error:
                        raise DiskFailed(f"the log of {replica.at} cannot be flushed: {error}") from error
            began_ms = self._world.clock.now_ms()
            await self._flush(_merged([*orphans, *(work.flush for _, work in works)]))
            self._flush_seconds.observe((self._world.clock.now_ms() - began_ms) / 1000)
            for replica, work in works:
                replica.log.flushed(work)
                self.advance(replica)
            for turn in turns:
                if not turn.done():
                    turn.set_result(None)

    async def _flush(self, work: Flush) -> None:
        if not work:
            return
        try:
            await self._disk.flush(work)
        except OSError as error:
            # What the page cache holds is in doubt now, so that nothing here may be acknowledged any more.
            raise DiskFailed(f"the data directory cannot be flushed: {error}") from error

    # ------------------------------------------------------------ checkpoints

    async def advance_log_starts(self, starts: Mapping[Replica, int]) -> None:
        """Let logs begin later; OSError if there is no room to write that down.

        Nobody sees it before it is durable, so that no crash brings back what somebody saw gone.
        """
        await self.write_checkpoints(starts)
        for replica, offset in starts.items():
            replica.log.advance_log_start(offset)

    async def write_checkpoints(self, starts: Mapping[Replica, int] = _NO_STARTS) -> None:
        """Write down what a restart may believe without reading the logs; OSError if there is no room.

        `starts` are the log starts that are about to be.
        """
        async with self._writing_checkpoints:
            known = dict(self._unopened)
            for replica in self:
                each = replica.log
                known[replica.at] = {
                    checkpoints.RECOVERY_POINTS: each.recovery_point,
                    checkpoints.HIGH_WATERMARKS: each.high_watermark,
                    checkpoints.LOG_STARTS: max(each.log_start_offset, starts.get(replica, 0)),
                    checkpoints.CLEANED_ENDS: each.cleaned_end_offset,
                }
            changed = {}
            for name in _CHECKPOINTS:
                offsets = {at: each[name] for at, each in known.items() if name in each}
                if self._checkpointed is None or self._checkpointed.get(name) != offsets:
                    changed[name] = offsets
            # A flush goes on when whoever asked for it is gone, and the next one must not write into what it
            # is about to give its name.
            self._checkpoint_writes += 1
            works = [
                checkpoints.write_offsets(self._disk, name, offsets, number=self._checkpoint_writes)
                for name, offsets in changed.items()
            ]
            # If this is not awaited to its end, nobody knows in which order the files get their names.
            written, self._checkpointed = self._checkpointed, None
            await self._flush(_merged(works))
            if written is not None:
                self._checkpointed = written | changed

    def flush_everything_soon(self) -> None:
        """Have the logs flushed that commit without it, so that their recovery points move."""
        for replica in self:
            if replica.log.is_dirty:
                self._dirty[replica] = None
        self._dirty_or_waiting.set()

    def look_at_disk(self) -> None:
        """See how much room is left."""
        has_room = self._disk.free_bytes() >= FREE_BYTES_MIN
        if has_room != self.has_room:
            self.has_room = has_room
            if has_room:
                log.info("the disk has room again, records are accepted")
            else:
                log.error("the disk is nearly full, no records are accepted", free_bytes_min=FREE_BYTES_MIN)


@contextmanager
def _failing(what: str) -> Iterator[None]:
    """A block in which a disk that refuses something ends the node: half of it may be done."""
    try:
        yield
    except OSError as error:
        raise DiskFailed(f"{what}: {error}") from error


def _merged(works: list[Flush]) -> Flush:
    """Several works as one: files first, then renames, then directories, each directory once."""
    if len(works) == 1:
        return works[0]
    directories = dict.fromkeys(directory for work in works for directory in work.directories)
    return Flush(
        files=tuple(file for work in works for file in work.files),
        renames=tuple(rename for work in works for rename in work.renames),
        directories=tuple(directories),
    )
