"""Where each row goes: its topic by option or column, its partition by column, by key, or anywhere.

All of a chunk at once: no row is ever a Python object. Keys go where the Java client sends them. Rows without
a key go to one partition of their topic until about a batch's worth went there, then to the next, as batches
fill sooner that way than if each row went elsewhere (KIP-480).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from moldau.spark.sink.columns import HEADERS, KEY, PARTITION, TOPIC, VALUE, Columns
from moldau.spark.sink.errors import BadRow, BadTopic, described
from moldau.wire.records.columns import key_hashes

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

# The most that a record takes besides key, value and headers, and a header besides its key and value: lengths
# and deltas at their longest.
RECORD_OVERHEAD_BYTES: Final = 36
HEADER_OVERHEAD_BYTES: Final = 10

_NOWHERE: Final = -1


@dataclass(frozen=True, slots=True)
class Topic:
    """What must be known of a topic to place rows in it; `available` are partitions with a leader."""

    partition_count: int
    available: tuple[int, ...]


Lookup = Callable[[str, int], Topic]
"""Gives the topic of a name, looked up anew if it lacks a partition; BadTopic if it cannot be had."""


@dataclass(frozen=True, slots=True)
class Placed:
    """For each row of a chunk: which of the topics, which partition, and how large a record at most."""

    topics: tuple[str, ...]
    topic: Ints
    partition: Ints
    size_bytes: Ints


class Placer:
    """Places rows chunk by chunk, and remembers where those without a key went last."""

    def __init__(self, columns: Columns, lookup: Lookup, *, task: int, switch_bytes: int) -> None:
        self._task = task
        self._columns = columns
        self._lookup = lookup
        self._switch_bytes = max(switch_bytes, 1)
        self._sent_bytes: dict[str, int] = {}

    def place(self, chunk: pa.RecordBatch, first_row: int) -> Placed:
        """Where the rows of the chunk go; BadRow names one that has no place, counting from `first_row`."""
        if self._columns.has_headers:
            row = _row_with_bad_header(chunk.column(HEADERS))
            if row is not None:
                raise BadRow(
                    f"{self._named(chunk, row, first_row)} has a header that is null, or has no key."
                )
        topics, topic = self._topics(chunk, first_row)
        sizes = record_sizes(chunk, self._columns)
        hashes = key_hashes(chunk.column(KEY)) if self._columns.has_key else None
        given = self._given_partitions(chunk)
        partition = np.empty(chunk.num_rows, np.int64)
        for code, name in enumerate(topics):
            rows = slice(None) if len(topics) == 1 else np.flatnonzero(topic == code)
            asked = None if given is None else given[rows]
            try:
                view = self._lookup(name, _NOWHERE if asked is None else int(asked.max()))
            except BadTopic as error:
                if self._columns.topic is not None:
                    raise BadTopic(f"Option {TOPIC!r}: {error}") from None
                row = int(np.flatnonzero(topic == code)[0])
                raise BadRow(f"{self._named(chunk, row, first_row)} cannot be written: {error}") from None
            chosen = self._by_key(name, view, sizes[rows], None if hashes is None else hashes[rows])
            if asked is not None:
                chosen = np.where(asked == _UNSAID, chosen, asked)
                wrong = np.flatnonzero((chosen < 0) | (chosen >= view.partition_count))
                if len(wrong):
                    row = int(np.arange(chunk.num_rows)[rows][wrong[0]])
                    raise BadRow(
                        f"{self._named(chunk, row, first_row)} has partition {chosen[wrong[0]]}, and topic"
                        f" {name!r} has {view.partition_count} partitions, from 0 on."
                    )
            partition[rows] = chosen
        return Placed(topics, topic, partition, sizes)

    def _topics(self, chunk: pa.RecordBatch, first_row: int) -> tuple[tuple[str, ...], Ints]:
        if self._columns.topic is not None:
            return (self._columns.topic,), np.zeros(chunk.num_rows, np.int64)
        column = chunk.column(TOPIC)
        if column.null_count:
            row = int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0])
            raise BadRow(
                f"{self._named(chunk, row, first_row)} has no topic: its column {TOPIC!r} is null. Fill it,"
                f" or use the option {TOPIC!r}."
            )
        encoded = column.dictionary_encode()
        return tuple(encoded.dictionary.to_pylist()), encoded.indices.to_numpy().astype(np.int64)

    def _given_partitions(self, chunk: pa.RecordBatch) -> Ints | None:
        if not self._columns.has_partition:
            return None
        import pyarrow as pa

        column = chunk.column(PARTITION)
        if column.null_count == len(column):
            return None
        numbers: Ints = column.cast(pa.int64()).fill_null(_UNSAID).to_numpy()
        return numbers

    def _by_key(self, name: str, topic: Topic, sizes: Ints, hashes: NDArray[np.int32] | None) -> Ints:
        if hashes is None:
            return self._anywhere(name, topic, sizes)
        chosen: Ints = (hashes % topic.partition_count).astype(np.int64)
        keyless = np.flatnonzero(hashes == _NOWHERE)
        if len(keyless):
            chosen[keyless] = self._anywhere(name, topic, sizes[keyless])
        return chosen

    def _anywhere(self, name: str, topic: Topic, sizes: Ints) -> Ints:
        """One partition after the other, of those that have a leader."""
        choices = np.array(topic.available or range(topic.partition_count), np.int64)
        # Tasks begin at different partitions, or all that is small would go to the first.
        before = self._sent_bytes.get(name, self._task * self._switch_bytes)
        ends = before + sizes.cumsum()
        if len(ends):
            self._sent_bytes[name] = int(ends[-1])
        turns = (ends - sizes) // self._switch_bytes
        return choices[turns % len(choices)]

    def _named(self, chunk: pa.RecordBatch, row: int, first_row: int) -> str:
        key = chunk.column(KEY)[row].as_py() if self._columns.has_key else None
        return described(first_row + row, self._task, key.encode() if isinstance(key, str) else key)


# What stands for a partition that a row leaves open; no row can say it, as columns hold 32 bits.
_UNSAID: Final = -(2**40)


def record_sizes(chunk: pa.RecordBatch, columns: Columns) -> Ints:
    """For each row the most bytes that its record can have."""
    sizes: Ints = np.full(chunk.num_rows, RECORD_OVERHEAD_BYTES, np.int64)
    sizes += _lengths(chunk.column(VALUE))
    if columns.has_key:
        sizes += _lengths(chunk.column(KEY))
    if columns.has_headers:
        headers = chunk.column(HEADERS)
        if headers.null_count < len(headers):
            entries = headers.values
            each = _lengths(entries.field("key")) + _lengths(entries.field("value")) + HEADER_OVERHEAD_BYTES
            ends = np.concatenate(([0], each.cumsum()))
            bounds = headers.offsets.to_numpy()
            sizes += ends[bounds[1:]] - ends[bounds[:-1]]
    return sizes


def _row_with_bad_header(headers: pa.Array) -> int | None:
    """The first row that has a header which is null, or whose key is."""
    if headers.null_count == len(headers):
        return None
    entries = headers.values
    if not entries.null_count and not entries.field("key").null_count:
        return None
    is_bad = (entries.is_null().to_numpy(zero_copy_only=False)) | (
        entries.field("key").is_null().to_numpy(zero_copy_only=False)
    )
    bad_before = np.concatenate(([0], is_bad.cumsum()))
    bounds = headers.offsets.to_numpy()
    is_present = headers.is_valid().to_numpy(zero_copy_only=False)
    rows = np.flatnonzero((bad_before[bounds[1:]] > bad_before[bounds[:-1]]) & is_present)
    return int(rows[0]) if len(rows) else None


def _lengths(column: pa.Array) -> Ints:
    """How many bytes each string has."""
    import pyarrow as pa

    if pa.types.is_null(column.type):
        return np.zeros(len(column), np.int64)
    is_large = column.type in (pa.large_binary(), pa.large_string())
    offsets = np.frombuffer(column.buffers()[1], np.int64 if is_large else np.int32)
    lengths: Ints = np.diff(offsets[column.offset : column.offset + len(column) + 1]).astype(np.int64)
    return lengths
