"""A small client for Kafka's protocol, async, with a synchronous face.

    async with connect("localhost:9092", linger_ms=20) as client:
        async with client.producer() as producer:
            delivery = await producer.send("orders", b"value", key=b"key")
            print((await delivery).offset)
        async for record in client.consumer(["orders"], auto_offset_reset="earliest"):
            print(record.value)
        async for record in client.consumer(["orders"], group_id="billing"):
            print(record.value)  # together with all others of the group

`connect_sync` gives the same with methods that block. Settings have Kafka's names, with "." or "_".
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from moldau.client.admin import AlterOperation, NewTopic, ResourceType
from moldau.client.client import Client, open_client
from moldau.client.committed import CommittedOffset
from moldau.client.consumer import Consumer, ConsumerRecord
from moldau.client.errors import ClientError, Unreachable
from moldau.client.group_consumer import GroupConsumer
from moldau.client.offsets import EARLIEST, LATEST, MAX_TIMESTAMP
from moldau.client.producer import Delivered, Delivery, Producer
from moldau.client.settings import ClientSettings, SettingValue, parse_addresses
from moldau.world.ports import Clock, Network, Randomness, Tasks

if TYPE_CHECKING:
    from moldau.client.blocking import BlockingClient

__all__ = [
    "EARLIEST",
    "LATEST",
    "MAX_TIMESTAMP",
    "AlterOperation",
    "Client",
    "ClientError",
    "CommittedOffset",
    "Consumer",
    "ConsumerRecord",
    "Delivered",
    "Delivery",
    "GroupConsumer",
    "NewTopic",
    "Producer",
    "ResourceType",
    "Unreachable",
    "connect",
    "connect_sync",
    "open_client",
]


def connect(bootstrap_servers: str, **settings: SettingValue) -> AbstractAsyncContextManager[Client]:
    """A client of the cluster at `host:port,...`, on the real machine."""
    parsed = ClientSettings.parse(settings)
    return open_client(_real_ports(parsed), parse_addresses(bootstrap_servers), parsed)


def connect_sync(bootstrap_servers: str, **settings: SettingValue) -> BlockingClient:
    """The same with methods that block, for scripts and Spark's workers; its loop runs in a thread."""
    from moldau.client.blocking import BlockingClient

    ClientSettings.parse(settings)  # what is wrong with them shows here rather than in the thread
    return BlockingClient(lambda: connect(bootstrap_servers, **settings))


@dataclass(frozen=True, slots=True)
class _Ports:
    """The real machine, less the disk, which a client does not need."""

    clock: Clock
    randomness: Randomness
    tasks: Tasks
    network: Network


def _real_ports(settings: ClientSettings) -> _Ports:
    from moldau.world.real import RealClock, RealRandomness, RealTasks
    from moldau.world.real.network import RealNetwork

    tls = None
    if settings.security_protocol == "SSL":
        from moldau.client.tls import client_tls
        from moldau.world.real.tls import client_context

        asked = client_tls(settings)
        assert asked is not None, "TLS was asked for"
        tls = client_context(asked)
    return _Ports(
        clock=RealClock(),
        randomness=RealRandomness(),
        tasks=RealTasks(),
        network=RealNetwork(client_tls=tls),
    )
