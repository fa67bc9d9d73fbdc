"""The consumer of a Python worker, kept from task to task.

A consumer of its own for each task would cost a connection, and the agreement on versions that each begins
with: more than the records of a small task.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from moldau.client.blocking import BlockingClient, BlockingConsumer
from moldau.client.settings import SettingValue

# Those that no task has at the moment, one for each client and its settings.
_idle: Final[dict[tuple[object, ...], BlockingConsumer]] = {}


@contextmanager
def borrowed_consumer(
    client: BlockingClient, settings: Mapping[str, SettingValue]
) -> Iterator[BlockingConsumer]:
    """A consumer for one task, with nothing assigned; one whose task fails, or stops early, is closed.

    It may have fetches under way, whose replies would come to the next task.
    """
    key = (id(client), *sorted(settings.items()))
    consumer = _idle.pop(key, None) or client.consumer((), **settings)
    try:
        yield consumer
        consumer.assign(())
    except BaseException:
        consumer.close()
        raise
    if key in _idle:
        consumer.close()
    else:
        _idle[key] = consumer
