"""The producer of a Python worker, kept from task to task.

A producer of its own for each task would cost a connection and a producer id, and brokers remember every
producer id for a day, with every partition that it wrote to: a stream has tasks every second.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from moldau.client.blocking import BlockingProducer
from moldau.client.settings import ClientSettings, SettingValue
from moldau.spark.connections import shared_client
from moldau.spark.options import WriteOptions

# What tasks make of their rows: large batches, because brokers take in batches and not records.
BATCH_BYTES: Final = 512 * 2**10

# Those that no task has at the moment, one for each client and its settings.
_idle: Final[dict[tuple[object, ...], BlockingProducer]] = {}


def producer_settings(options: WriteOptions) -> dict[str, SettingValue]:
    """The settings that a query's producers have besides the defaults."""
    delivery_timeout_ms = ClientSettings.parse(options.settings).delivery_timeout_ms
    # A task has nothing better to do than to wait for room, as long as what it has sent may still arrive.
    return {"batch_size": BATCH_BYTES, "max_block_ms": delivery_timeout_ms, **options.settings}


@contextmanager
def borrowed_producer(options: WriteOptions) -> Iterator[BlockingProducer]:
    """A producer for one task; what it has not sent when the task fails is never sent."""
    settings = producer_settings(options)
    patience_s = ClientSettings.parse(settings).max_block_ms / 1_000
    client = shared_client(options.bootstrap_servers, options.settings, patience_s=patience_s)
    key = (id(client), *sorted(settings.items()))
    producer = _idle.pop(key, None) or client.producer(**settings)  # type: ignore[arg-type]  # no partitioner
    try:
        yield producer
    except BaseException:
        producer.abandon()
        raise
    if key in _idle:
        producer.close()
    else:
        _idle[key] = producer
