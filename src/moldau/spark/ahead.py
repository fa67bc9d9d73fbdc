"""Items made while those before them are used, by a thread of their own."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

T = TypeVar("T")

_NO_MORE: Final = object()


def one_ahead(items: Generator[T], *, stop: Callable[[], None]) -> Iterator[T]:
    """The same items: when one is given out, the next is begun.

    `stop` is called for whoever stops early, and has to make the next item end soon, however it ends.
    """
    with ThreadPoolExecutor(1, thread_name_prefix="moldau reads ahead") as thread:
        upcoming = thread.submit(next, items, _NO_MORE)
        try:
            while (item := upcoming.result()) is not _NO_MORE:
                upcoming = thread.submit(next, items, _NO_MORE)
                yield item  # type: ignore[misc]  # it is not the mark of the end
        finally:
            stop()
            # Behind what is being made, for a generator cannot be closed while it runs.
            thread.submit(items.close).result()
