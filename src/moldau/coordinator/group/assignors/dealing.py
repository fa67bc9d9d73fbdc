"""Handing things out in turns, like cards, so that what belongs together is spread over many hands."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import TypeVar

T = TypeVar("T")


def deal(things: Iterable[T], quotas: Mapping[int, int]) -> Iterator[tuple[int, T]]:
    """Who gets what, for as many things as the quotas add up to."""
    hands = deque((hand, quota) for hand, quota in quotas.items() if quota)
    for thing in things:
        hand, quota = hands.popleft()
        yield hand, thing
        if quota > 1:
            hands.append((hand, quota - 1))
    assert not hands, "there are fewer things than quotas"
