"""The log of the metadata quorum and the snapshots beside it, as its core sees and changes them."""

from __future__ import annotations

from typing import Final

from moldau.log.checkpoints import RECOVERY_POINTS, TEMPORARY_SUFFIX, read_offsets, write_offsets
from moldau.log.config import LogConfig
from moldau.log.log import CorruptRange, Log
from moldau.model.ids import Epoch, Offset, PartitionIndex, TopicName, TopicPartition
from moldau.node.quorum_files import EMPTY_STATE, PART_SUFFIX, checkpoint_name, list_snapshots
from moldau.raft.log_view import OffsetAndEpoch
from moldau.world.ports import DiskFailed, File, Flush, World

PATH: Final = "__cluster_metadata-0"
_AT: Final = TopicPartition(TopicName("__cluster_metadata"), PartitionIndex(0))
_RECOVERY_POINT: Final = f"{PATH}/{RECOVERY_POINTS}"
_READ_BYTES: Final = 1_048_576
_SNAPSHOTS_KEPT: Final = 2


class QuorumLog:
    """The log and the snapshots beside it: answers the core's LogView, and changes as effects say."""

    def __init__(self, world: World, *, segment_bytes: int) -> None:
        self._world = world
        self._disk = world.disk
        self.snapshots = list_snapshots(world.disk, PATH)
        start = self.latest_snapshot
        for name in world.disk.list(PATH):
            if name.startswith(RECOVERY_POINTS) and name.endswith(TEMPORARY_SUFFIX):
                world.disk.remove(f"{PATH}/{name}")
        self.recovery_point = read_offsets(world.disk, _RECOVERY_POINT).get(_AT, 0)
        """Up to where the log is known to have been durable and committed: it is not torn before that."""
        self.log = Log.open(
            world.disk,
            PATH,
            # Snapshots decide what may go, not the age of records.
            LogConfig(segment_bytes=segment_bytes, is_deleted=False, file_delete_delay_ms=0),
            recovery_point=max(start.offset, self.recovery_point),
            is_clean=False,
            now_ms=world.clock.wall_ms(),
            log_start_offset=start.offset,
            high_watermark=start.offset,
        )
        self._refuse_damage(start.offset)
        # A power cut may have come after a snapshot was downloaded and before it replaced the log.
        if self.log.log_end_offset > start.offset:
            first_epoch = self.log.epochs.epoch_at(start.offset)
            if first_epoch is None or first_epoch < start.epoch:
                self._restart_log(start.offset)

    def _refuse_damage(self, start: Offset) -> None:
        """DiskFailed if something is lost that was committed: who forgets it may elect the wrong leader."""
        while (scrub := self.log.begin_scrub()) is not None:
            self.log.scrubbed(scrub, scrub.carry_out())
        damaged = [each for each in self.log.corrupt_ranges if each.offset_end > start]
        end = self.log.log_end_offset
        if not damaged and end < self.recovery_point:
            damaged = [CorruptRange(end, self.recovery_point)]
        if damaged:
            ranges = ", ".join(f"{each.offset} to {each.offset_end}" for each in damaged)
            raise DiskFailed(
                f"the metadata log in {PATH} is damaged where it was durable, at offsets {ranges}. "
                "Nothing was cut off. Put the directory back from a copy or, if there are other controllers, "
                "remove this one from the quorum and add it anew with an empty directory"
            )

    # ------------------------------------------------------------ LogView

    @property
    def start_offset(self) -> Offset:
        """The first offset that the log still holds."""
        return Offset(self.log.log_start_offset)

    @property
    def end_offset(self) -> Offset:
        """The offset of the next record."""
        return Offset(self.log.log_end_offset)

    @property
    def flushed_offset(self) -> Offset:
        """The end of what would survive a power cut."""
        return Offset(self.log.flushed_end_offset)

    @property
    def last_epoch(self) -> Epoch:
        """The epoch of the last record, or of the snapshot if there is none after it."""
        return self.epoch_before(self.end_offset)

    @property
    def latest_snapshot(self) -> OffsetAndEpoch:
        """The newest snapshot on disk."""
        return self.snapshots[-1] if self.snapshots else EMPTY_STATE

    def end_of_epoch(self, epoch: Epoch) -> OffsetAndEpoch:
        """The largest epoch in the log that is not above `epoch`, and the offset after its last record."""
        starts = list(self.log.epochs) if self.end_offset > self.start_offset else []
        ends = [*(start.start_offset for start in starts[1:]), self.log.log_end_offset]
        found = [
            OffsetAndEpoch(Offset(end), Epoch(start.epoch))
            for start, end in zip(starts, ends, strict=False)
            if start.epoch <= epoch
        ]
        return found[-1] if found else OffsetAndEpoch(self.start_offset, self._epoch_before_start())

    def snapshot_size(self, snapshot_id: OffsetAndEpoch) -> int | None:
        """The length of a snapshot in bytes; None if it is not here."""
        if snapshot_id not in self.snapshots:
            return None
        return self._disk.open(f"{PATH}/{checkpoint_name(snapshot_id)}").size()

    def epoch_before(self, offset: Offset) -> Epoch:
        """The epoch of the record that ends at `offset`."""
        if offset <= self.start_offset:
            return self._epoch_before_start()
        epoch = self.log.epochs.epoch_at(offset - 1)
        assert epoch is not None, offset
        return Epoch(epoch)

    def _epoch_before_start(self) -> Epoch:
        ends_here = [s.epoch for s in self.snapshots if s.offset == self.start_offset]
        return ends_here[-1] if ends_here else EMPTY_STATE.epoch

    # ------------------------------------------------------------ reading

    def read(self, start: Offset, *, bytes_max: int) -> bytes:
        """Whole batches from `start` on; none if the log has moved on while the reply waited."""
        if not self.start_offset <= start <= self.end_offset:
            return b""
        found = self.log.read(start, bytes_max=bytes_max, end_limit=self.log.log_end_offset)
        return found.records.read() if found.records is not None else b""

    def batches(self, start: Offset, end: Offset) -> list[bytes]:
        """The batches from `start` up to `end`, in stretches."""
        stretches: list[bytes] = []
        while start < end:
            found = self.log.read(start, bytes_max=_READ_BYTES, end_limit=end)
            assert found.records is not None, (start, end)
            stretches.append(found.records.read())
            start = Offset(found.end_offset)
        return stretches

    def read_snapshot_file(
        self, snapshot_id: OffsetAndEpoch, position: int = 0, bytes_max: int | None = None
    ) -> bytes:
        """A stretch of a snapshot, or all of it; nothing if it went while the reply waited."""
        if snapshot_id not in self.snapshots:
            return b""
        file = self._disk.open(f"{PATH}/{checkpoint_name(snapshot_id)}")
        data = file.read(position, file.size() if bytes_max is None else bytes_max)
        file.close()
        return data

    # ------------------------------------------------------------ changing

    def append(self, batch: bytes, epoch: Epoch) -> None:
        """Append as the leader of `epoch`."""
        self.log.append_as_leader(bytearray(batch), leader_epoch=epoch, now_ms=self._world.clock.wall_ms())

    def append_as_follower(self, records: bytes) -> None:
        """Append the leader's batches."""
        self.log.append_as_follower(records, now_ms=self._world.clock.wall_ms())

    def note_recovery_point(self) -> Flush | None:
        """Write down what a restart need not doubt, unless it stands there already; to be flushed.

        What is committed is never truncated, so that this need not be taken back.
        """
        point = min(self.log.flushed_end_offset, self.log.high_watermark)
        if point <= self.recovery_point:
            return None
        self.recovery_point = point
        return write_offsets(self._disk, _RECOVERY_POINT, {_AT: point})

    def truncate(self, end: Offset) -> None:
        """Cut the log at `end`, durably, so that what went cannot come back under what follows."""
        self.log.truncate_to(end)
        self._flush_now()

    def trim(self, start: Offset) -> None:
        """Drop the log before `start`, and all but the newest snapshots."""
        self.log.advance_log_start(start)
        self.log.roll()
        now_ms = self._world.clock.wall_ms()
        self.log.delete_segments(now_ms)
        self.log.remove_deleted(now_ms)
        for snapshot_id in self.snapshots[:-_SNAPSHOTS_KEPT]:
            self._disk.remove(f"{PATH}/{checkpoint_name(snapshot_id)}")
        self.snapshots = self.snapshots[-_SNAPSHOTS_KEPT:]

    def snapshot_saved(self, snapshot_id: OffsetAndEpoch) -> None:
        """A snapshot is durable under its name."""
        self.snapshots = sorted({*self.snapshots, snapshot_id})

    def load(self, snapshot_id: OffsetAndEpoch) -> None:
        """Give a downloaded snapshot its name, and let the log start anew at its end."""
        # Its name first: a log that starts where no snapshot ends has lost everything before.
        name = f"{PATH}/{checkpoint_name(snapshot_id)}"
        self._disk.flush_blocking(Flush(renames=((name + PART_SUFFIX, name),), directories=(PATH,)))
        self.snapshot_saved(snapshot_id)
        self._restart_log(snapshot_id.offset)

    def _restart_log(self, offset: Offset) -> None:
        self.log.truncate_fully(offset)
        self._flush_now()

    def _flush_now(self) -> None:
        work = self.log.begin_flush()
        self._disk.flush_blocking(work.flush)
        self.log.flushed(work)

    def write_part(self, snapshot_id: OffsetAndEpoch, position: int, data: bytes) -> None:
        """Keep a piece of a snapshot that is being downloaded."""
        name = f"{PATH}/{checkpoint_name(snapshot_id)}{PART_SUFFIX}"
        file = self._disk.open(name, create=True)
        file.truncate(position)
        file.append((data,))
        file.close()

    def open_part(self, snapshot_id: OffsetAndEpoch) -> File:
        """The file of a downloaded snapshot."""
        return self._disk.open(f"{PATH}/{checkpoint_name(snapshot_id)}{PART_SUFFIX}")

    def read_part(self, snapshot_id: OffsetAndEpoch) -> bytes:
        """A downloaded snapshot."""
        file = self.open_part(snapshot_id)
        data = file.read(0, file.size())
        file.close()
        return data
