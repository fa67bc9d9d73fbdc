"""Writing records to a topic: as many under way as are worth it, their fates told in order."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from typing import TYPE_CHECKING, Final

from moldau.cli._errors import failure_of
from moldau.cli._records import NewRecord

if TYPE_CHECKING:
    from moldau.client import Client, Delivered, Delivery

UNDER_WAY_MAX: Final = 10_000


async def write(
    client: Client,
    topic: str,
    batches: AsyncIterator[list[NewRecord]],
    *,
    settings: Mapping[str, str],
    on_delivered: Callable[[Delivered], None],
) -> None:
    """Write all records; an empty batch says that all so far are to be settled before more can come."""
    from moldau.client import ClientError

    under_way: deque[Delivery] = deque()
    settled = 0

    async def settle(down_to: int) -> None:
        nonlocal settled
        while len(under_way) > down_to:
            try:
                delivered = await under_way.popleft()
            except ClientError as error:
                what = f"Record {settled + 1} was not written: "
                raise failure_of(error, error.where, what=what) from error
            settled += 1
            on_delivered(delivered)

    async with client.producer(**settings) as producer:
        async for batch in batches:
            for record in batch:
                under_way.append(
                    await producer.send(
                        topic,
                        record.value,
                        key=record.key,
                        partition=record.partition,
                        headers=record.headers,
                        timestamp=record.timestamp,
                    )
                )
            await settle(UNDER_WAY_MAX if batch else 0)
        await producer.flush()
        await settle(0)
