"""Reading partitions from given offsets, up to given ends or for ever."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Final

from moldau.cli._errors import OutOfReach

if TYPE_CHECKING:
    from moldau.client import Client
    from moldau.model.ids import TopicPartition
    from moldau.wire.records.record import Record

Batch = tuple["TopicPartition", list["Record"]]

_POLL_MS: Final = 500


async def read(
    client: Client,
    starts: Mapping[TopicPartition, int],
    *,
    ends: Mapping[TopicPartition, int] | None = None,
    count: int | None = None,
    idle_ms: int | None = None,
    stall_ms: int | None = None,
    settings: Mapping[str, str],
) -> AsyncIterator[Batch]:
    """Records as they come, until all ends are reached, `count` were given or none came for `idle_ms`.

    A partition that has an end and gives nothing for `stall_ms` cannot be read, which is a Failure.
    """
    clock = client.cluster.world.clock
    left = {place: end for place, end in (ends or {}).items() if starts[place] < end}
    wanted = {place: offset for place, offset in starts.items() if ends is None or place in left}
    if not wanted or count == 0:
        return
    consumer = client.consumer(dict(wanted), **{"auto_offset_reset": "none", **settings})
    news_ms = clock.now_ms()
    while ends is None or left:
        polled = await consumer.poll(timeout_ms=_POLL_MS if idle_ms is None else min(_POLL_MS, idle_ms))
        now_ms = clock.now_ms()
        for place, records in polled.items():
            news_ms = now_ms
            end = left.get(place)
            if end is not None and records[-1].offset >= end:
                records = [record for record in records if record.offset < end]  # noqa: PLW2901
            if count is not None:
                records = records[:count]  # noqa: PLW2901
                count -= len(records)
            yield place, records
            if count == 0:
                return
        for place in [place for place, end in left.items() if await consumer.position(place) >= end]:
            news_ms = now_ms
            del left[place]
            consumer.pause(place)
        if idle_ms is not None and now_ms - news_ms >= idle_ms:
            return
        if left and stall_ms is not None and now_ms - news_ms >= stall_ms:
            names = ", ".join(str(place) for place in left)
            raise OutOfReach(f"Nothing came from {names} within {stall_ms / 1000:g} s.")
