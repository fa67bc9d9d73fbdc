"""The settings of topics and brokers as a cluster keeps them: where values come from, and changing them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from moldau.cli._connect import Target, run
from moldau.cli._errors import NotFound, no_such_topic
from moldau.cli._output import note

if TYPE_CHECKING:
    from moldau.client import Client, ResourceType

TOPIC: Final = 2

DYNAMIC_TOPIC: Final = 1
DYNAMIC_BROKER: Final = 2
DYNAMIC_DEFAULT_BROKER: Final = 3
DEFAULT: Final = 5
DYNAMIC_CLIENT_METRICS: Final = 7
DYNAMIC_GROUP: Final = 8
# The numbers of DescribeConfigs, and what Kafka's tools call them.
SOURCES: Final = {
    0: "UNKNOWN",
    DYNAMIC_TOPIC: "DYNAMIC_TOPIC_CONFIG",
    DYNAMIC_BROKER: "DYNAMIC_BROKER_CONFIG",
    DYNAMIC_DEFAULT_BROKER: "DYNAMIC_DEFAULT_BROKER_CONFIG",
    4: "STATIC_BROKER_CONFIG",
    DEFAULT: "DEFAULT_CONFIG",
    6: "DYNAMIC_BROKER_LOGGER_CONFIG",
    DYNAMIC_CLIENT_METRICS: "DYNAMIC_CLIENT_METRICS_CONFIG",
    DYNAMIC_GROUP: "DYNAMIC_GROUP_CONFIG",
}
# The name under which all brokers share settings.
ALL_BROKERS: Final = "default"


async def resource(client: Client, kind: str, name: str) -> tuple[ResourceType, str]:
    """A topic or broker that exists, as requests name it."""
    from moldau.client import ResourceType

    if kind == "topic":
        topics = await client.admin.list_topics()
        if name not in topics:
            raise no_such_topic(name, topics)
        return ResourceType.TOPIC, name
    if name == ALL_BROKERS:
        return ResourceType.BROKER, ""
    brokers = [str(broker.node_id) for broker in (await client.admin.describe_cluster()).brokers]
    if name not in brokers:
        raise NotFound(
            f"There is no broker '{name}'; there are {', '.join(brokers)}, and '{ALL_BROKERS}' for all."
        )
    return ResourceType.BROKER, name


def change_settings(
    target: Target, kind: str, name: str, changes: Mapping[str, str | None], *, dry_run: bool = False
) -> None:
    """Set and, where the value is None, reset settings of a topic or broker."""

    async def change(client: Client) -> None:
        resource_type, resource_name = await resource(client, kind, name)
        await client.admin.alter_configs(resource_type, resource_name, changes, validate_only=dry_run)
        note(f"{kind} {name}: {', '.join(changes)} {'could be changed' if dry_run else 'changed'}")

    run(target, change)
