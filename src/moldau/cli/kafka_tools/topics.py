"""`kafka-topics`: create, list, describe, alter and delete topics."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from moldau.cli._connect import Ask, Target, asking, parse_pairs, run
from moldau.cli._errors import Failure
from moldau.cli.kafka_tools._tool import ExecutingTool, connection_options, matching, target_of
from moldau.cli.topic import changed_settings, create_one, every_topic, parse_replicas

if TYPE_CHECKING:
    from moldau.client import Client
    from moldau.wire.messages.metadata import (
        DescribeTopicPartitionsResponsePartition,
        DescribeTopicPartitionsResponseTopic,
    )


@click.command("kafka-topics", cls=ExecutingTool)
@click.option("--list", "actions", flag_value="list", multiple=True, help="List the topics.")
@click.option("--describe", "actions", flag_value="describe", multiple=True, help="Describe topics.")
@click.option("--create", "actions", flag_value="create", multiple=True, help="Create a topic.")
@click.option("--alter", "actions", flag_value="alter", multiple=True, help="Add partitions.")
@click.option("--delete", "actions", flag_value="delete", multiple=True, help="Delete topics.")
@click.option("--topic", metavar="NAME", help="The topic; a regular expression unless creating.")
@click.option("--partitions", type=click.IntRange(min=1), help="How many partitions.")
@click.option("--replication-factor", type=click.IntRange(min=1), help="How many replicas of each.")
@click.option("--replica-assignment", metavar="1:2,2:3", help="Brokers of each partition.")
@click.option("--config", "configs", metavar="NAME=VALUE", multiple=True, help="A setting of the topic.")
@click.option("--if-exists", is_flag=True, help="Pass over a topic that does not exist.")
@click.option("--if-not-exists", is_flag=True, help="Pass over a topic that exists.")
@click.option("--exclude-internal", is_flag=True, help="Leave out internal topics.")
@click.option("--under-replicated-partitions", is_flag=True, help="Only those that lack replicas.")
@click.option("--unavailable-partitions", is_flag=True, help="Only those without a leader.")
@click.option("--under-min-isr-partitions", is_flag=True, help="Only those below min.insync.replicas.")
@click.option("--at-min-isr-partitions", is_flag=True, help="Only those at min.insync.replicas.")
@click.option("--topics-with-overrides", is_flag=True, help="Only topics with settings of their own.")
@connection_options("--command-config")
def command(
    actions: tuple[str, ...],
    topic: str | None,
    partitions: int | None,
    replication_factor: int | None,
    replica_assignment: str | None,
    configs: tuple[str, ...],
    if_exists: bool,
    if_not_exists: bool,
    exclude_internal: bool,
    under_replicated_partitions: bool,
    unavailable_partitions: bool,
    under_min_isr_partitions: bool,
    at_min_isr_partitions: bool,
    topics_with_overrides: bool,
    bootstrap: str,
    config_file: Path | None,
) -> None:
    """Create, list, describe, alter and delete topics.

    \b
    Examples:
      moldau kafka-topics --bootstrap-server localhost:9092 --create --topic orders --partitions 3
      moldau kafka-topics --bootstrap-server localhost:9092 --describe --topic orders
    """
    if len(actions) != 1:
        raise click.UsageError(
            "Command must include exactly one action: --list, --describe, --create, --alter or --delete"
        )
    action = actions[0]
    if topic is None and action in ("create", "alter", "delete"):
        raise click.UsageError('Missing required argument "[topic]"')
    target = target_of(bootstrap, config_file)
    placed = [] if replica_assignment is None else parse_replicas(replica_assignment)
    if action == "create":
        assert topic is not None
        create(target, topic, partitions, replication_factor, placed, configs, if_not_exists)
        return
    with asking(target) as ask:
        known = [
            each.name
            for each in every_topic(ask)
            if each.name is not None and not (exclude_internal and each.is_internal)
        ]
        chosen = known if topic is None else matching(topic, known)
        if topic is not None and not chosen and not if_exists and action != "list":
            raise Failure(f"Topic '{topic}' does not exist as expected")
        if action == "list":
            click.echo("".join(f"{name}\n" for name in chosen), nl=False)
        elif action == "describe":
            filters = Filters(
                under_replicated=under_replicated_partitions,
                unavailable=unavailable_partitions,
                under_min_isr=under_min_isr_partitions,
                at_min_isr=at_min_isr_partitions,
            )
            describe(ask, chosen, filters, only_overrides=topics_with_overrides)
    if action == "alter":
        if partitions is None:
            raise click.UsageError('Missing required argument "[partitions]"')
        alter(target, chosen, partitions, placed)
    elif action == "delete":
        delete(target, chosen)


def create(
    target: Target,
    topic: str,
    partitions: int | None,
    replication_factor: int | None,
    placed: list[list[int]],
    configs: tuple[str, ...],
    if_not_exists: bool,
) -> None:
    """`--create`."""
    settings = parse_pairs(configs)

    async def create_topic(client: Client) -> bool:
        from moldau.client import NewTopic

        return await create_one(
            client,
            NewTopic(topic, partitions or -1, replication_factor or -1, settings, placed),
            if_not_exists=if_not_exists,
        )

    if run(target, create_topic):
        click.echo(f"Created topic {topic}.")


def alter(target: Target, topics: list[str], partitions: int, placed: list[list[int]]) -> None:
    """`--alter`."""

    async def add(client: Client) -> None:
        for name in topics:
            count = len((await client.admin.describe_topics(name))[name].partitions)
            await client.admin.add_partitions(name, partitions, replicas=placed[count:])

    run(target, add)


def delete(target: Target, topics: list[str]) -> None:
    """`--delete`."""

    async def delete_all(client: Client) -> None:
        if topics:
            await client.admin.delete_topics(*topics)

    run(target, delete_all)


# ---------------------------------------------------------------- describing


class Filters:
    """Which partitions are shown; all, if nothing in particular is looked for."""

    def __init__(
        self, *, under_replicated: bool, unavailable: bool, under_min_isr: bool, at_min_isr: bool
    ) -> None:
        self._under_replicated = under_replicated
        self._unavailable = unavailable
        self._under_min_isr = under_min_isr
        self._at_min_isr = at_min_isr
        self.is_any = under_replicated or unavailable or under_min_isr or at_min_isr

    def shows(self, partition: DescribeTopicPartitionsResponsePartition, min_isr: int) -> bool:
        """Whether a partition is one of those looked for."""
        isr = len(partition.isr_nodes)
        return (
            not self.is_any
            or (self._under_replicated and isr < len(partition.replica_nodes))
            or (self._unavailable and partition.leader_id < 0)
            or (self._under_min_isr and isr < min_isr)
            or (self._at_min_isr and isr == min_isr)
        )


def describe(ask: Ask, topics: list[str], filters: Filters, *, only_overrides: bool) -> None:
    """`--describe`."""
    from moldau.model.ids import uuid_to_text

    for topic in described(ask, topics):
        assert topic.name is not None
        settings = changed_settings(ask, topic.name)
        if only_overrides and not settings:
            continue
        if not filters.is_any:
            replicas = max((len(row.replica_nodes) for row in topic.partitions), default=0)
            click.echo(
                f"Topic: {topic.name}\tTopicId: {uuid_to_text(topic.topic_id)}"
                f"\tPartitionCount: {len(topic.partitions)}\tReplicationFactor: {replicas}"
                f"\tConfigs: {','.join(f'{name}={value}' for name, value in settings.items())}"
            )
        if not only_overrides:
            min_isr = int(settings.get("min.insync.replicas") or 1)
            for row in topic.partitions:
                if filters.shows(row, min_isr):
                    click.echo(partition_line(topic.name, row))


def partition_line(topic: str, row: DescribeTopicPartitionsResponsePartition) -> str:
    """A partition as Kafka shows it."""

    def joined(nodes: list[int] | None) -> str:
        return "N/A" if nodes is None else ",".join(map(str, nodes))

    return (
        f"\tTopic: {topic}\tPartition: {row.partition_index}"
        f"\tLeader: {'none' if row.leader_id < 0 else row.leader_id}"
        f"\tReplicas: {joined(row.replica_nodes)}\tIsr: {joined(row.isr_nodes)}"
        f"\tElr: {joined(row.eligible_leader_replicas)}\tLastKnownElr: {joined(row.last_known_elr)}"
    )


def described(ask: Ask, topics: list[str]) -> list[DescribeTopicPartitionsResponseTopic]:
    """Topics with all that brokers know of their partitions, a page at a time."""
    from moldau.wire.messages.metadata import (
        Cursor,
        DescribeTopicPartitionsRequest,
        DescribeTopicPartitionsResponse,
        TopicRequest,
    )

    found: dict[str, DescribeTopicPartitionsResponseTopic] = {}
    cursor: Cursor | None = None
    while topics:
        wanted = [TopicRequest(name=name) for name in topics if cursor is None or name >= cursor.topic_name]
        reply = ask(
            DescribeTopicPartitionsRequest(topics=wanted, cursor=cursor), DescribeTopicPartitionsResponse
        )
        for topic in reply.topics:
            assert topic.name is not None
            if topic.name in found:
                found[topic.name].partitions.extend(topic.partitions)
            else:
                found[topic.name] = topic
        cursor = reply.next_cursor
        if cursor is None:
            break
    return [found[name] for name in sorted(found)]
