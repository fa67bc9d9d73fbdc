"""Items made one ahead."""

import threading
from collections.abc import Generator

import pytest

from moldau.spark.ahead import one_ahead


def nothing() -> None:
    """Items that come without waiting need no stopping."""


def threads() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name.startswith("moldau reads ahead")]


def test_the_next_item_is_made_while_one_is_used() -> None:
    is_second_made = threading.Event()

    def items() -> Generator[int]:
        yield 1
        is_second_made.set()
        yield 2

    ahead = one_ahead(items(), stop=nothing)
    assert next(ahead) == 1
    assert is_second_made.wait(10)
    assert list(ahead) == [2]


def test_nothing_is_an_item_like_any_other() -> None:
    assert list(one_ahead((each for each in (None, 0, None)), stop=nothing)) == [None, 0, None]
    assert list(one_ahead((each for each in range(0)), stop=nothing)) == []


def test_what_goes_wrong_goes_wrong_behind_what_came_before() -> None:
    def items() -> Generator[int]:
        yield 1
        raise ValueError("no more")

    ahead = one_ahead(items(), stop=nothing)
    assert next(ahead) == 1
    with pytest.raises(ValueError, match="no more"):
        next(ahead)
    assert list(ahead) == []


def test_whoever_stops_early_ends_the_making_and_its_thread() -> None:
    is_stopped, is_closed = threading.Event(), threading.Event()

    def items() -> Generator[int]:
        try:
            yield 1
            assert is_stopped.wait(10), "nobody else ends this"
            yield 2
        finally:
            is_closed.set()

    ahead = one_ahead(items(), stop=is_stopped.set)
    next(ahead)
    assert len(threads()) == 1
    del ahead
    assert is_closed.is_set()
    assert not threads()
