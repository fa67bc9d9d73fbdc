"""Which partition a record goes to: by its key as the Java client and librdkafka do, by turns, or sticky.

A partitioner is any callable of topic, key and partition count that gives a partition, or None where the
record may go anywhere; the producer then keeps to one partition until a batch is full (`Sticky`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from zlib import crc32

from moldau.model.settings.setting import InvalidSetting
from moldau.wire.records.kernel import murmur2

Partitioner = Callable[[str, bytes | None, int], int | None]

_UINT32 = 0xFFFFFFFF
_FNV_BASIS = 0x811C9DC5
_FNV_PRIME = 0x01000193


def fnv1a(data: bytes) -> int:
    """32-bit FNV-1a as Sarama and librdkafka use it: the absolute value of a signed number."""
    hashed = _FNV_BASIS
    for byte in data:
        hashed = (hashed ^ byte) * _FNV_PRIME & _UINT32
    return 2**32 - hashed if hashed >> 31 else hashed


def by_murmur2(topic: str, key: bytes | None, count: int) -> int:
    """librdkafka's `murmur2`: records without a key go where those with an empty key go."""
    return (murmur2(key or b"") & 0x7FFFFFFF) % count


def by_murmur2_or_anywhere(topic: str, key: bytes | None, count: int) -> int | None:
    """The Java client's choice, and librdkafka's `murmur2_random`."""
    return None if key is None else (murmur2(key) & 0x7FFFFFFF) % count


def by_crc32(topic: str, key: bytes | None, count: int) -> int:
    """librdkafka's `consistent`."""
    return crc32(key or b"") % count


def by_crc32_or_anywhere(topic: str, key: bytes | None, count: int) -> int | None:
    """librdkafka's own default, `consistent_random`, for which an empty key is none."""
    return crc32(key) % count if key else None


def by_fnv1a(topic: str, key: bytes | None, count: int) -> int:
    """librdkafka's `fnv1a`."""
    return fnv1a(key or b"") % count


def by_fnv1a_or_anywhere(topic: str, key: bytes | None, count: int) -> int | None:
    """librdkafka's `fnv1a_random`."""
    return None if key is None else fnv1a(key) % count


def anywhere(topic: str, key: bytes | None, count: int) -> None:
    """Pay no heed to keys."""


class RoundRobin:
    """Each record of a topic to the next partition, whatever its key."""

    def __init__(self) -> None:
        self._next: dict[str, int] = {}

    def __call__(self, topic: str, key: bytes | None, count: int) -> int:
        turn = self._next.get(topic, 0) % count
        self._next[topic] = turn + 1
        return turn


_BY_NAME: Mapping[str, Callable[[], Partitioner]] = {
    "default": lambda: by_murmur2_or_anywhere,
    "murmur2": lambda: by_murmur2,
    "murmur2_random": lambda: by_murmur2_or_anywhere,
    "consistent": lambda: by_crc32,
    "consistent_random": lambda: by_crc32_or_anywhere,
    "fnv1a": lambda: by_fnv1a,
    "fnv1a_random": lambda: by_fnv1a_or_anywhere,
    "round_robin": RoundRobin,
    "sticky": lambda: anywhere,
}


def partitioner_named(name: str) -> Partitioner:
    """The partitioner that the setting `partitioner` names."""
    make = _BY_NAME.get(name)
    if make is None:
        raise InvalidSetting(f"There is no partitioner {name!r}; there are {', '.join(_BY_NAME)}.")
    return make()


class Sticky:
    """One partition of a topic for all that may go anywhere, until a batch's worth of bytes went there.

    Batches fill sooner than if each record went elsewhere (KIP-480), and by counting bytes rather than
    batches a slow broker is not given more than its share (KIP-794).
    """

    def __init__(self, *, switch_bytes: int, below: Callable[[int], int]) -> None:
        self._switch_bytes = max(switch_bytes, 1)
        self._below = below
        self._current: dict[str, int] = {}
        self._sent_bytes: dict[str, int] = {}

    def choose(self, topic: str, available: Sequence[int], size_bytes: int) -> int:
        """The partition for a record of this size; `available` are those that have a leader."""
        current = self._current.get(topic)
        sent = self._sent_bytes.get(topic, 0)
        if current is None or sent >= self._switch_bytes or current not in available:
            others = [partition for partition in available if partition != current] or available
            current = self._current[topic] = others[self._below(len(others))]
            sent = 0
        self._sent_bytes[topic] = sent + size_bytes
        return current
