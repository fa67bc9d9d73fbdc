"""What the quorum may know of its own log: the node answers, and changes it only as effects say."""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct

from moldau.model.ids import Epoch, Offset


class OffsetAndEpoch(Struct, frozen=True, order=True):
    """A place in the log: the end of an epoch, or of what a snapshot holds. Names a snapshot, as in Kafka."""

    offset: Offset
    epoch: Epoch


class LogView(Protocol):
    """The log and its snapshots, for reading."""

    @property
    def start_offset(self) -> Offset:
        """The first offset that the log still holds; a snapshot holds what was before it."""
        ...

    @property
    def end_offset(self) -> Offset:
        """The offset of the next record."""
        ...

    @property
    def flushed_offset(self) -> Offset:
        """The end of what would survive a power cut."""
        ...

    @property
    def last_epoch(self) -> Epoch:
        """The epoch of the last record, or of the snapshot if the log is empty."""
        ...

    @property
    def latest_snapshot(self) -> OffsetAndEpoch:
        """The newest snapshot on disk; (0, 0) stands for the empty state that every log starts from."""
        ...

    def end_of_epoch(self, epoch: Epoch) -> OffsetAndEpoch:
        """The largest epoch in the log that is not above `epoch`, and the offset after its last record.

        An epoch below everything that the log holds gives the start of the log and the epoch of its snapshot.
        """
        ...

    def snapshot_size(self, snapshot_id: OffsetAndEpoch) -> int | None:
        """The length of a snapshot in bytes; None if it is not here."""
        ...
