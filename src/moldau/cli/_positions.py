"""Where in a partition to begin or to cut: words for either end, offsets, counts from the end, times."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final

import click

from moldau.cli._errors import NotFound, no_such_topic
from moldau.cli._records import INT64_MAX

if TYPE_CHECKING:
    from moldau.client import Client
    from moldau.client.admin import Admin
    from moldau.model.ids import TopicPartition

_UNITS_MS: Final = {
    "ms": 1,
    "s": 1_000,
    "m": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
    "w": 7 * 86_400_000,
}
_DIGITS: Final = re.compile(r"[0-9]+")
_AGO: Final = re.compile(r"-(\d+)(ms|s|m|h|d|w)", re.ASCII)


@dataclass(frozen=True, slots=True)
class Beginning:
    """The first offset that the log holds."""


@dataclass(frozen=True, slots=True)
class End:
    """The offset that the next record will have."""


@dataclass(frozen=True, slots=True)
class AtOffset:
    """This offset, in every partition."""

    offset: int


@dataclass(frozen=True, slots=True)
class BeforeEnd:
    """So many offsets before the end, in every partition."""

    count: int


@dataclass(frozen=True, slots=True)
class AtTime:
    """The first record that is not older."""

    timestamp_ms: int


Where = Beginning | End | AtOffset | BeforeEnd | AtTime


def parse_where(text: str, *, now_ms: int) -> Where:
    """What `text` means; ValueError if it means nothing."""
    word = text.strip()
    if any(int(number) > INT64_MAX for number in _DIGITS.findall(word)):
        raise ValueError("no offset and no time is as large")
    match word.lower():
        case "beginning" | "earliest":
            return Beginning()
        case "end" | "latest":
            return End()
    if word.isascii() and word.isdigit():
        return AtOffset(int(word))
    if word[:1] == "@" and word[1:].isascii() and word[1:].isdigit():
        return AtTime(int(word[1:]))
    if word[:1] == "-" and word[1:].isascii() and word[1:].isdigit():
        return BeforeEnd(int(word[1:]))
    if ago := _AGO.fullmatch(word):
        return AtTime(_since_1970(now_ms - int(ago[1]) * _UNITS_MS[ago[2]]))
    try:
        # Without a zone it is the time on the user's clock.
        return AtTime(_since_1970(int(datetime.fromisoformat(word).astimezone().timestamp() * 1000)))
    except OverflowError as error:
        raise ValueError("no clock shows this time") from error


def _since_1970(timestamp_ms: int) -> int:
    # No record is older, and what is negative means something else in a request.
    return max(timestamp_ms, 0)


class WhereType(click.ParamType[Where]):
    """A place in a partition, as an option takes it."""

    name = "where"

    def convert(self, value: str | Where, param: click.Parameter | None, ctx: click.Context | None) -> Where:
        """The place that the word means."""
        if not isinstance(value, str):
            return value
        try:
            return parse_where(value, now_ms=time.time_ns() // 1_000_000)
        except ValueError:
            self.fail(
                f"'{value}' must be beginning, end, an offset (42), a count from the end (-10), a time ago"
                " (-1h) or a time (2030-01-31T12:00, @1700000000000).",
                param,
                ctx,
            )


@dataclass(frozen=True, slots=True)
class Span:
    """The offsets that a partition holds: the first, and the one after the last."""

    first: int
    end: int


async def partitions_of(client: Client, topic: str, wanted: tuple[int, ...]) -> list[TopicPartition]:
    """The partitions of a topic that were asked for, or all."""
    topics = await client.admin.list_topics()
    if topic not in topics:
        raise no_such_topic(topic, topics)
    views = topics[topic].partitions
    for index in wanted:
        if index not in views:
            raise NotFound(f"{topic} has no partition {index}: it has {len(views)}, from 0.")
    return [views[index].place for index in wanted or views]


async def spans(
    admin: Admin, places: Iterable[TopicPartition], *, isolation_level: int = 0
) -> dict[TopicPartition, Span]:
    """What each partition holds at present."""
    from moldau.client.offsets import EARLIEST, LATEST

    asked = list(places)
    firsts = await admin.list_offsets(dict.fromkeys(asked, EARLIEST))
    ends = await admin.list_offsets(dict.fromkeys(asked, LATEST), isolation_level=isolation_level)
    return {place: Span(firsts[place].offset, ends[place].offset) for place in asked}


async def offsets_at(
    admin: Admin, held: dict[TopicPartition, Span], where: Where
) -> dict[TopicPartition, int]:
    """The offset of that place in each partition; it may lie outside of what the partition holds."""
    match where:
        case Beginning():
            return {place: span.first for place, span in held.items()}
        case End():
            return {place: span.end for place, span in held.items()}
        case AtOffset(offset):
            return dict.fromkeys(held, offset)
        case BeforeEnd(count):
            return {place: max(span.first, span.end - count) for place, span in held.items()}
        case AtTime(timestamp_ms):
            found = await admin.list_offsets(dict.fromkeys(held, timestamp_ms))
            # Where all is older, what comes next will not be.
            return {
                place: span.end if found[place].offset < 0 else found[place].offset
                for place, span in held.items()
            }
