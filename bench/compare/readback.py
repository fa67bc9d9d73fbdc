"""Whether records are exactly those that numbered producers were told to write."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from moldau.bench.payloads import NUMBER, WrongPayload, filler
from moldau.bench.pipeline import Reader
from moldau.bench.site import Topic
from moldau.wire.records.columns import runs_in, to_arrow

Numbers = npt.NDArray[np.uint64]


def check_topic(topic: Topic, *, total: int, value_bytes: int) -> None:
    """Read everything, and raise unless the numbers up to the total are there, once each, and filler."""
    read = [
        numbers_of(values, value_bytes=value_bytes)
        for leader in dict.fromkeys(topic.leaders)
        for values in read_values(topic, leader)
    ]
    check_numbers(np.concatenate(read) if read else np.empty(0, np.uint64), total=total)


def read_values(topic: Topic, leader: str) -> Iterator[list[bytes]]:
    """The values of the partitions that a broker leads, fetch by fetch."""
    partitions = [index for index, each in enumerate(topic.leaders) if each == leader]
    with Reader(leader, topic.name, partitions, wait_ms_max=0, fetch_bytes_max=4 * 2**20) as reader:
        while read := reader.fetch():
            for _, records in read:
                yield to_arrow(runs_in(records)).column("value").to_pylist()


def numbers_of(values: list[bytes], *, value_bytes: int) -> Numbers:
    """The numbers in values, which must all have the right size and the right filler."""
    if any(len(each) != value_bytes for each in values):
        raise WrongPayload(f"a value is not of {value_bytes} bytes")
    rows = np.frombuffer(b"".join(values), np.uint8).reshape(-1, value_bytes)
    if not (rows[:, NUMBER.size :] == np.frombuffer(filler(value_bytes - NUMBER.size), np.uint8)).all():
        raise WrongPayload("a value has other bytes than were written")
    return np.ascontiguousarray(rows[:, : NUMBER.size]).view(f">u{NUMBER.size}").ravel().astype(np.uint64)


def check_numbers(read: Numbers, *, total: int) -> None:
    """Raise unless exactly the numbers up to the total were read, once each."""
    if len(read) != total:
        raise WrongPayload(f"{len(read)} records are there, where {total} were written")
    if not np.array_equal(np.sort(read), np.arange(total, dtype=np.uint64)):
        raise WrongPayload("records are missing, or there twice")
