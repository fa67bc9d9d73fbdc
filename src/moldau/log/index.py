"""The indexes beside a segment: from offset to position, from time to offset, and its aborted transactions.

An index lives in memory as the bytes of its file. New entries are written out when the segment is sealed or
closed, not before: those of an unsealed segment are rebuilt after a crash anyway. Files grow as they need to,
where Kafka reserves `segment.index.bytes` for each.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left, bisect_right
from typing import Final, NamedTuple

from moldau.world.ports import Disk, File

RELATIVE_OFFSET_MAX: Final = 2**31 - 1

_OFFSET_ENTRY: Final = struct.Struct(">ii")
_TIME_ENTRY: Final = struct.Struct(">qi")
_TIMESTAMP: Final = struct.Struct(">q")
_ABORTED_ENTRY: Final = struct.Struct(">hqqqq")
_ABORTED_VERSION: Final = 0


class AbortedTransaction(NamedTuple):
    """A transaction of which consumers who read committed data must skip the records."""

    producer_id: int
    first_offset: int
    last_offset: int
    """Of the marker that ended it."""
    last_stable_offset: int
    """What the last stable offset became with that marker; nothing aborted below it is indexed later."""


class Index:
    """Entries of one size in rising order; what the three kinds have in common."""

    def __init__(self, disk: Disk, path: str, entry: struct.Struct, *, is_new: bool) -> None:
        self.path = path
        self._disk = disk
        self._entry = entry
        self._entries: bytearray | None = bytearray() if is_new else None
        self._saved_bytes = 0

    def __len__(self) -> int:
        return len(self.entries) // self._entry.size

    @property
    def entries(self) -> bytearray:
        """The bytes, read on first use; an incomplete entry at the end is left out."""
        if self._entries is None:
            self._entries = bytearray()
            if self._disk.exists(self.path):
                file = self._disk.open(self.path)
                data = file.read(0, file.size())
                file.close()
                self._entries += data[: len(data) - len(data) % self._entry.size]
            self._saved_bytes = len(self._entries)
        return self._entries

    def save(self, *, is_always: bool = False) -> File | None:
        """Write out what is new; the file is then to be flushed. An empty one is made only if `is_always`."""
        entries = self.entries
        if not entries and not is_always and not self._disk.exists(self.path):
            return None
        file = self._disk.open(self.path, create=True)
        if file.size() > self._saved_bytes:
            file.truncate(self._saved_bytes)
        if len(entries) > self._saved_bytes:
            file.append((memoryview(entries)[self._saved_bytes :],))
            self._saved_bytes = len(entries)
        return file

    def release(self) -> None:
        """Give the memory back; only for an index that has been saved."""
        if self._entries is not None and self._saved_bytes == len(self._entries):
            self._entries = None

    def keep_first(self, count: int) -> None:
        """Drop all entries but the first `count`."""
        size = count * self._entry.size
        if size < len(self.entries):
            del self.entries[size:]
            self._saved_bytes = min(self._saved_bytes, size)

    def clear(self) -> None:
        """Drop all entries, read or not, to build them anew."""
        self._entries = bytearray()
        self._saved_bytes = 0

    def _field(self, number: int, field: int) -> int:
        value: int = self._entry.unpack_from(self.entries, number * self._entry.size)[field]
        return value


class OffsetIndex(Index):
    """Where some of a segment's batches begin, by their last offset."""

    def __init__(self, disk: Disk, path: str, base_offset: int, *, is_new: bool) -> None:
        super().__init__(disk, path, _OFFSET_ENTRY, is_new=is_new)
        self._base_offset = base_offset
        # The first offsets of the last batches that have an entry: those that this process has indexed. The
        # file has no room for them, and who wants to stop at such a batch would have to look into it.
        self._firsts = array("q")

    def append(self, *, first: int, offset: int, position: int) -> None:
        """Note the batch at `position`, which begins with the offset `first` and ends with `offset`."""
        self.entries.extend(_OFFSET_ENTRY.pack(offset - self._base_offset, position))
        self._firsts.append(first)

    def keep_first(self, count: int) -> None:
        """Drop all entries but the first `count`."""
        dropped = len(self) - count
        if dropped > 0:
            del self._firsts[-dropped:]
        super().keep_first(count)

    def clear(self) -> None:
        """Drop all entries, read or not, to build them anew."""
        super().clear()
        self._firsts = array("q")

    def release(self) -> None:
        """Give the memory back; only for an index that has been saved."""
        super().release()
        self._firsts = array("q")

    def is_full(self, bytes_max: int) -> bool:
        """Whether another entry would exceed `bytes_max`."""
        return len(self.entries) > bytes_max - _OFFSET_ENTRY.size

    def position_of(self, offset: int) -> int:
        """Start of a batch from which a forward scan meets `offset`."""
        relative = offset - self._base_offset
        count = bisect_right(range(len(self)), relative, key=lambda number: self._field(number, 0))
        return self._field(count - 1, 1) if count else 0

    def floor(self, position: int) -> tuple[int, int | None]:
        """The last known start of a batch at or before `position`, and the batch's first offset if known."""
        count = bisect_right(range(len(self)), position, key=lambda number: self._field(number, 1))
        if not count:
            return 0, self._base_offset
        number = count - 1 - (len(self) - len(self._firsts))
        return self._field(count - 1, 1), self._firsts[number] if number >= 0 else None

    def last_position(self) -> int:
        """Start of the last batch that has an entry; 0 if none has."""
        return self._field(len(self) - 1, 1) if len(self) else 0

    def truncate(self, offset: int) -> None:
        """Drop the entries of batches that reach `offset`."""
        relative = offset - self._base_offset
        self.keep_first(bisect_left(range(len(self)), relative, key=lambda number: self._field(number, 0)))

    def items(self) -> list[tuple[int, int]]:
        """All entries as (offset, position)."""
        return [
            (self._base_offset + offset, position)
            for offset, position in _OFFSET_ENTRY.iter_unpack(self.entries)
        ]


class TimeIndex(Index):
    """The greatest timestamp up to some of a segment's batches, and the end of the batch that has it."""

    def __init__(self, disk: Disk, path: str, base_offset: int, *, is_new: bool) -> None:
        super().__init__(disk, path, _TIME_ENTRY, is_new=is_new)
        self._base_offset = base_offset

    def append_if_later(self, *, timestamp: int, offset: int) -> None:
        """Note a greatest timestamp, unless the last entry already says so."""
        entries = self.entries
        last: int = _TIMESTAMP.unpack_from(entries, len(entries) - _TIME_ENTRY.size)[0] if entries else -1
        if timestamp > last:
            entries.extend(_TIME_ENTRY.pack(timestamp, offset - self._base_offset))

    def is_full(self, bytes_max: int) -> bool:
        """Whether only the entry that is reserved for sealing is left."""
        return len(self.entries) > bytes_max - 2 * _TIME_ENTRY.size

    def last(self) -> tuple[int, int] | None:
        """The last entry, as (timestamp, offset)."""
        return self._item(len(self) - 1) if len(self) else None

    def offset_before(self, timestamp: int) -> int:
        """An offset before which all records are older than `timestamp`."""
        count = bisect_right(range(len(self)), timestamp, key=lambda number: self._field(number, 0))
        return self._item(count - 1)[1] if count else self._base_offset

    def truncate(self, offset: int) -> None:
        """Drop the entries that name `offset` or a later one."""
        relative = offset - self._base_offset
        self.keep_first(bisect_left(range(len(self)), relative, key=lambda number: self._field(number, 1)))

    def items(self) -> list[tuple[int, int]]:
        """All entries as (timestamp, offset)."""
        return [self._item(number) for number in range(len(self))]

    def _item(self, number: int) -> tuple[int, int]:
        return self._field(number, 0), self._base_offset + self._field(number, 1)


class TransactionIndex(Index):
    """The aborted transactions whose marker is in the segment, in the order of their markers."""

    def __init__(self, disk: Disk, path: str, *, is_new: bool) -> None:
        super().__init__(disk, path, _ABORTED_ENTRY, is_new=is_new)

    def append(self, aborted: AbortedTransaction) -> None:
        """Note a transaction that was just aborted."""
        self.entries.extend(_ABORTED_ENTRY.pack(_ABORTED_VERSION, *aborted))

    def items(self) -> list[AbortedTransaction]:
        """All entries."""
        return [AbortedTransaction(*rest) for _, *rest in _ABORTED_ENTRY.iter_unpack(self.entries)]

    def truncate(self, offset: int) -> None:
        """Drop the transactions whose marker is at `offset` or later."""
        self.keep_first(bisect_left(range(len(self)), offset, key=lambda number: self._field(number, 3)))
