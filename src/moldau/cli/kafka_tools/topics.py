"""`kafka-topics`: create, list, describe, alter and delete topics."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from moldau.cli._connect import Ask, Target, asking, parse_pairs, run
from moldau.cli._errors import Failure, failure_of
from moldau.cli._output import note
from moldau.cli.kafka_tools._tool import (
    INT32,
    INT32_MAX,
    ExecutingTool,
    connection_options,
    matching,
    target_of,
)
from moldau.cli.topic import changed_settings, create_one, every_topic

if TYPE_CHECKING:
    from moldau.client import Client
    from moldau.wire.messages.metadata import (
        DescribeTopicPartitionsResponsePartition,
        DescribeTopicPartitionsResponseTopic,
    )

# Flags -> the actions that they go with.
_ACTIONS_OF: Final = {
    "configs": ("create",),
    "partitions": ("create", "alter"),
    "replication_factor": ("create",),
    "replica_assignment": ("create", "alter"),
    "if_exists": ("alter", "delete", "describe"),
    "if_not_exists": ("create",),
    "exclude_internal": ("list", "describe"),
    "under_replicated_partitions": ("describe",),
    "unavailable_partitions": ("describe",),
    "under_min_isr_partitions": ("describe",),
    "at_min_isr_partitions": ("describe",),
    "topics_with_overrides": ("describe",),
}
_FILTERS: Final = (
    "under_replicated_partitions",
    "unavailable_partitions",
    "under_min_isr_partitions",
    "at_min_isr_partitions",
)
_PARTITIONS_PER_RESPONSE: Final = 2000
_REPLICATION_FACTOR_MAX: Final = 2**15 - 1
_ID: Final = re.compile("[+-]?[0-9]+")
_COLLISIONS: Final = (
    "WARNING: Due to limitations in metric names, topics with a period ('.') or underscore ('_') could"
    " collide. To avoid issues it is best to use either, but not both."
)


@click.command("kafka-topics", cls=ExecutingTool)
@click.option("--list", "actions", flag_value="list", multiple=True, help="List the topics.")
@click.option("--describe", "actions", flag_value="describe", multiple=True, help="Describe topics.")
@click.option("--create", "actions", flag_value="create", multiple=True, help="Create a topic.")
@click.option("--alter", "actions", flag_value="alter", multiple=True, help="Add partitions.")
@click.option("--delete", "actions", flag_value="delete", multiple=True, help="Delete topics.")
@click.option("--topic", metavar="NAME", help="The topic; a regular expression unless creating.")
@click.option("--topic-id", metavar="ID", help="Instead, to describe one.")
@click.option("--partitions", type=INT32, help="How many partitions.")
@click.option("--replication-factor", type=INT32, help="How many replicas of each.")
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
@click.option(
    "--partition-size-limit-per-response",
    "partitions_per_response",
    type=INT32,
    default=_PARTITIONS_PER_RESPONSE,
    show_default=True,
    help="How many partitions to ask for at a time.",
)
@click.option("--delete-config", metavar="NAME", help="Taken without effect, as in Kafka since 4.0.")
@connection_options("--command-config")
@click.pass_context
def command(
    ctx: click.Context,
    actions: tuple[str, ...],
    topic: str | None,
    topic_id: str | None,
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
    partitions_per_response: int,
    delete_config: str | None,
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
    from moldau.model.ids import uuid_to_text

    action = actions[0]
    if delete_config is not None:
        note("delete-config option is no longer supported and deprecated since version 4.0.")
    check_flags(action, ctx.params)
    target = target_of(bootstrap, config_file)
    placed = [] if replica_assignment is None else parse_assignment(replica_assignment)
    if action == "create":
        assert topic is not None
        create(target, topic, partitions, replication_factor, placed, configs, if_not_exists)
        return
    with asking(target) as ask:
        known = {
            each.name: uuid_to_text(each.topic_id)
            for each in every_topic(ask)
            if each.name is not None and not (exclude_internal and each.is_internal)
        }
        is_by_id = topic_id is not None and action == "describe"
        if is_by_id:
            chosen = [name for name, text in known.items() if text == topic_id]
        else:
            chosen = list(known) if topic is None else matching(topic, known)
        if not chosen and not if_exists and action != "list" and (is_by_id or topic is not None):
            what = f"TopicId '{topic_id}'" if is_by_id else f"Topic '{topic}'"
            raise Failure(f"{what} does not exist as expected")
        if action == "list":
            click.echo("".join(f"{name}\n" for name in chosen), nl=False)
        elif action == "describe":
            filters = Filters(
                under_replicated=under_replicated_partitions,
                unavailable=unavailable_partitions,
                under_min_isr=under_min_isr_partitions,
                at_min_isr=at_min_isr_partitions,
            )
            described = described_topics(ask, chosen, partitions_per_response, is_by_id=is_by_id)
            describe(ask, described, filters, only_overrides=topics_with_overrides)
    if action == "alter":
        assert partitions is not None
        alter(target, chosen, partitions, placed)
    elif action == "delete":
        delete(target, chosen)


def check_flags(action: str, given: Mapping[str, object]) -> None:
    """End the command unless the flags go together."""
    for name, actions in _ACTIONS_OF.items():
        if given[name] and action not in actions:
            raise click.UsageError(f'Option "{flag(name)}" can\'t be used with option "{flag(action)}"')
    if action not in ("list", "describe") and given["topic"] is None:
        raise click.UsageError('Missing required argument "[topic]"')
    if action == "describe" and given["if_exists"] and given["topic"] is None and given["topic_id"] is None:
        raise click.UsageError("--topic or --topic-id is required to describe a topic")
    if action == "alter" and given["partitions"] is None:
        raise click.UsageError('Missing required argument "[partitions]"')
    together = [name for name in ("partitions", "replication_factor") if given[name] is not None]
    if action == "create" and given["replica_assignment"] is not None and together:
        raise click.UsageError(f'Option "[replica-assignment]" can\'t be used with "{flag(together[0])}"')
    if len([name for name in _FILTERS if given[name]]) > 1 or (
        given["topics_with_overrides"] and any(given[name] for name in _FILTERS)
    ):
        raise click.UsageError("Only one of the reports can be had at a time")


def flag(name: str) -> str:
    """A flag as Kafka names it in its complaints."""
    return f"[{'config' if name == 'configs' else name.replace('_', '-')}]"


def parse_assignment(text: str) -> list[list[int]]:
    """`1:2,2:3` as the brokers of each partition; refused in Kafka's words."""
    placed: list[list[int]] = []
    for index, part in enumerate(text.rstrip(",").split(",")):
        brokers = [parse_id(word.strip()) for word in part.rstrip(":").split(":")]
        twice = [str(broker) for broker in dict.fromkeys(brokers) if brokers.count(broker) > 1]
        if twice:
            raise Failure(f"Partition replica lists may not contain duplicate entries: {','.join(twice)}")
        placed.append(brokers)
        if len(brokers) != len(placed[0]):
            raise Failure(f"Partition {index} has different replication factor: {brokers}")
    return placed


def parse_id(text: str) -> int:
    """The id of a broker as Java's parseInt reads it."""
    if not _ID.fullmatch(text) or abs(int(text)) > INT32_MAX:
        raise Failure(f'For input string: "{text}"')
    return int(text)


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
    if "." in topic or "_" in topic:
        click.echo(_COLLISIONS)
    if replication_factor is not None and not 1 <= replication_factor <= _REPLICATION_FACTOR_MAX:
        raise Failure(f"The replication factor must be between 1 and {_REPLICATION_FACTOR_MAX} inclusive")
    if partitions is not None and partitions < 1:
        raise Failure("The partitions must be greater than 0")

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
            if placed and len(placed) <= count < partitions:
                # The first are those of the partitions that there are. Sent without any, the cluster would
                # place the new ones, and nobody can take them back.
                raise Failure(
                    f"Replicas cannot be assigned so: {partitions - count} partitions are added, and 0 are"
                    " assigned."
                )
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


def describe(
    ask: Ask, topics: list[DescribeTopicPartitionsResponseTopic], filters: Filters, *, only_overrides: bool
) -> None:
    """`--describe`."""
    from moldau.model.ids import uuid_to_text

    for topic in topics:
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


def described_topics(
    ask: Ask, topics: list[str], partitions_per_response: int, *, is_by_id: bool
) -> list[DescribeTopicPartitionsResponseTopic]:
    """Topics with all that brokers know of their partitions, a page at a time."""
    from moldau.model.errors import ErrorCode, KafkaError
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
        request = DescribeTopicPartitionsRequest(
            topics=wanted, cursor=cursor, response_partition_limit=partitions_per_response
        )
        reply = ask(request, DescribeTopicPartitionsResponse)
        for topic in reply.topics:
            assert topic.name is not None
            if topic.error_code != ErrorCode.NONE:
                raise failure_of(KafkaError(ErrorCode(topic.error_code)), topic.name)
            if topic.name in found:
                found[topic.name].partitions.extend(topic.partitions)
            else:
                found[topic.name] = topic
        cursor = reply.next_cursor
        if cursor is None:
            break
    for topic in found.values() if is_by_id else ():
        for row in topic.partitions:
            # Kafka asks by id for the metadata, which does not say these.
            row.eligible_leader_replicas = row.last_known_elr = None
    return [found[name] for name in sorted(found)]
