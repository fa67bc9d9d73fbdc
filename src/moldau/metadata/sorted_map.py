"""A map that never changes: a changed copy shares with its original all but the chunks that were touched."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from itertools import chain
from operator import itemgetter
from typing import Final, Generic, TypeVar, overload

from moldau.model.ids import Uuid

# What can be compared with its like; tuples are of these.
K = TypeVar("K", bound=str | int | Uuid | bytes | tuple[object, ...])
V = TypeVar("V")
D = TypeVar("D")

# A change copies one chunk and the list of chunks. 128 keeps both short up to a million entries.
_CHUNK_SIZE_MAX: Final = 128


class SortedMap(Generic[K, V]):
    """A mapping in the order of its keys; values are never None."""

    __slots__ = ("_chunks", "_firsts", "_size")

    def __init__(self) -> None:
        # An empty map still has a chunk to look into, so that a look-up needs no branch.
        self._chunks: list[dict[K, V]] = [{}]
        self._firsts: list[K] = []
        self._size = 0

    def __getitem__(self, key: K) -> V:
        # A key before all others is looked for in the last chunk, which does not have it either.
        return self._chunks[bisect_right(self._firsts, key) - 1][key]

    @overload
    def get(self, key: K) -> V | None: ...
    @overload
    def get(self, key: K, default: D) -> V | D: ...
    def get(self, key: K, default: D | None = None) -> V | D | None:
        """The value of the key, or the default."""
        return self._chunks[bisect_right(self._firsts, key) - 1].get(key, default)

    def __contains__(self, key: K) -> bool:
        return key in self._chunks[bisect_right(self._firsts, key) - 1]

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[K]:
        return chain.from_iterable(self._chunks)

    def values(self) -> Iterator[V]:
        """The values, in the order of their keys."""
        return chain.from_iterable(chunk.values() for chunk in self._chunks)

    def items(self) -> Iterator[tuple[K, V]]:
        """Keys with their values, in the order of the keys."""
        return chain.from_iterable(chunk.items() for chunk in self._chunks)

    def keys_from(self, key: K) -> Iterator[K]:
        """The keys that are not smaller than this one."""
        first = self._index_of(key)
        yield from (each for each in self._chunks[first] if each >= key)  # type: ignore[operator]
        yield from chain.from_iterable(self._chunks[first + 1 :])

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SortedMap):
            return NotImplemented
        if self._size != other._size:
            return False
        return all(mine == theirs for mine, theirs in zip(self.items(), other.items(), strict=True))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"SortedMap({dict(self.items())!r})"

    def changed(self, changes: Mapping[K, V | None]) -> SortedMap[K, V]:
        """A map with these values put in place; None takes a key away."""
        if not changes:
            return self
        by_chunk: dict[int, dict[K, V | None]] = {}
        for key, value in changes.items():
            by_chunk.setdefault(self._index_of(key), {})[key] = value
        chunks: list[dict[K, V]] = []
        firsts: list[K] = []
        size = self._size
        untouched = 0
        for index in sorted(by_chunk):
            chunks += self._chunks[untouched:index]
            firsts += self._firsts[untouched:index]
            merged = _merged(self._chunks[index], by_chunk[index])
            size += len(merged) - len(self._chunks[index])
            parts = _split(merged)
            chunks += parts
            firsts += [next(iter(part)) for part in parts]
            untouched = index + 1
        chunks += self._chunks[untouched:]
        firsts += self._firsts[untouched:]
        result: SortedMap[K, V] = SortedMap()
        if chunks:
            result._chunks, result._firsts, result._size = chunks, firsts, size
        return result

    def _index_of(self, key: K) -> int:
        # A key before all others belongs into the first chunk.
        return max(bisect_right(self._firsts, key) - 1, 0)


def _merged(chunk: dict[K, V], changes: dict[K, V | None]) -> dict[K, V]:
    merged = {**chunk, **changes}
    if len(merged) > len(chunk):
        merged = dict(sorted(merged.items(), key=itemgetter(0)))
    return {key: value for key, value in merged.items() if value is not None}


def _split(chunk: dict[K, V]) -> list[dict[K, V]]:
    if len(chunk) <= _CHUNK_SIZE_MAX:
        return [chunk] if chunk else []
    # Half full, so that the next keys fit without splitting again.
    items = list(chunk.items())
    step = _CHUNK_SIZE_MAX // 2
    return [dict(items[start : start + step]) for start in range(0, len(items), step)]
