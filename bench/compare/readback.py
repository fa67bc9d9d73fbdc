"""Whether the records of a topic are exactly those that numbered producers were told to write."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from moldau.bench.payloads import NUMBER, WrongPayload, filler
from moldau.bench.pipeline import Reader
from moldau.wire.records.columns import runs_in, to_arrow


def check_topic(
    address: str, topic: str, *, partitions: int, numbers: range, value_bytes: int, is_ordered: bool
) -> None:
    """Read everything, and raise unless each number is there once, with its filler, perhaps in order."""
    parts = [
        part
        for partition in range(partitions)
        for part in read_numbers(address, topic, partition=partition, value_bytes=value_bytes)
    ]
    read = np.concatenate(parts) if parts else np.empty(0, np.uint64)
    check_numbers(read, numbers, is_ordered=is_ordered)


def read_numbers(address: str, topic: str, *, partition: int, value_bytes: int) -> Iterable[np.ndarray]:
    """The numbers of the records of a partition, fetch by fetch, after a look at their filler."""
    with Reader(address, topic, partition=partition, wait_ms_max=0, fetch_bytes_max=4 * 2**20) as reader:
        while read := reader.fetch():
            values = to_arrow(runs_in(read)).column("value")
            yield numbers_of(b"".join(values.to_pylist()) if values.null_count else values, value_bytes)


def numbers_of(values: object, value_bytes: int) -> np.ndarray:
    """The numbers in a column of values, which must be of one size and have the right filler."""
    lengths = np.frombuffer(values.buffers()[1], np.int32)[: len(values) + 1]
    if not np.array_equal(np.diff(lengths), np.full(len(values), value_bytes)):
        raise WrongPayload(f"a value is not of {value_bytes} bytes")
    rows = np.frombuffer(values.buffers()[2], np.uint8)[lengths[0] : lengths[-1]].reshape(-1, value_bytes)
    if not (rows[:, NUMBER.size :] == np.frombuffer(filler(value_bytes - NUMBER.size), np.uint8)).all():
        raise WrongPayload("a value has other bytes than were written")
    return rows[:, : NUMBER.size].copy().view(f">u{NUMBER.size}").ravel().astype(np.uint64)


def check_numbers(read: np.ndarray, numbers: range, *, is_ordered: bool) -> None:
    """Raise unless exactly these numbers were read, once each."""
    if len(read) != len(numbers):
        raise WrongPayload(f"{len(read)} records are there, where {len(numbers)} were written")
    expected = np.arange(numbers.start, numbers.stop, dtype=np.uint64)
    if not np.array_equal(read if is_ordered else np.sort(read), expected):
        raise WrongPayload("records are missing, there twice, or out of order")
