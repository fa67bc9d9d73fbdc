"""`moldau topic`: create, look at, change, fill and read topics."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from moldau.cli import SuggestingGroup
from moldau.cli._connect import (
    Ask,
    Target,
    asking,
    cluster_options,
    complete_setting,
    pairs_callback,
    run,
    topic_argument,
)
from moldau.cli._errors import Failure, failure_of, no_such_topic
from moldau.cli._output import (
    Cell,
    Json,
    confirm,
    note,
    output_option,
    print_facts,
    print_json,
    print_table,
    yes_option,
)
from moldau.cli._positions import AtOffset, End, Span, Where, WhereType, offsets_at, partitions_of, spans

if TYPE_CHECKING:
    from moldau.client import Client
    from moldau.client.admin import NewTopic
    from moldau.model.ids import TopicPartition
    from moldau.wire.messages.metadata import MetadataResponseTopic


class TopicGroup(SuggestingGroup):
    """The commands below, and those that read and write records, which are imported only when they run."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All commands, in the order of the alphabet."""
        return sorted([*super().list_commands(ctx), "consume", "produce"])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """One command; `moldau topic consume` is `moldau consume`."""
        if cmd_name == "consume":
            from moldau.cli import consume

            return consume.command
        if cmd_name == "produce":
            from moldau.cli import produce

            return produce.command
        return super().get_command(ctx, cmd_name)


@click.group(cls=TopicGroup)
def command() -> None:
    """Create, look at, change, fill and read topics.

    \b
    Examples:
      moldau topic create orders -p 6 -c retention.ms=86400000
      moldau topic list
      moldau topic describe orders --offsets
      moldau topic alter orders --set cleanup.policy=compact --unset retention.ms
      moldau topic trim orders --before -1d
    """


config_option = click.option(
    "-c",
    "--config",
    "configs",
    metavar="NAME=VALUE",
    multiple=True,
    callback=pairs_callback,
    shell_complete=complete_setting,
    help="A setting of the topic; may be given several times.",
)
dry_run_option = click.option("--dry-run", is_flag=True, help="Only say whether it could be done.")


# ---------------------------------------------------------------- looking


@command.command("list")
@click.option("--internal", is_flag=True, help="Show those that brokers keep for themselves too.")
@output_option
@cluster_options
def list_topics(target: Target, internal: bool, output: str) -> None:
    """Show the topics.

    \b
    Examples:
      moldau topic list
      moldau topic list -o json | jq -r '.[].name'
    """
    with asking(target) as ask:
        topics = [topic for topic in every_topic(ask) if internal or not topic.is_internal]
    rows = [
        {
            "name": topic.name,
            "partitions": len(topic.partitions),
            "replication_factor": max((len(row.replica_nodes) for row in topic.partitions), default=0),
            "internal": topic.is_internal,
        }
        for topic in topics
    ]
    if output == "json":
        print_json(rows)
    else:
        print_table(
            ["TOPIC", "PARTITIONS", "REPLICAS"],
            [(row["name"], row["partitions"], row["replication_factor"]) for row in rows],
        )
        if not rows:
            note("There are no topics; moldau topic create NAME makes one.")


@command.command("describe")
@topic_argument(several=True)
@click.option("--offsets", is_flag=True, help="Show which offsets each partition holds.")
@output_option
@cluster_options
def describe(target: Target, topics: tuple[str, ...], offsets: bool, output: str) -> None:
    """Show partitions, replicas and settings of topics.

    Settings are those that differ from the defaults of Kafka; `moldau config get` shows all.

    \b
    Examples:
      moldau topic describe orders
      moldau topic describe orders --offsets -o json | jq '.[].partitions[].end'
    """
    with asking(target) as ask:
        known = {topic.name: topic for topic in every_topic(ask)}
        for name in topics:
            if name not in known:
                raise no_such_topic(name, [each for each in known if each])
        described = [described_topic(known[name]) for name in topics]
        configs = {name: changed_settings(ask, name) for name in topics}
    if offsets:
        add_offsets(target, described)
    documents = [{**topic, "configs": configs[str(topic["name"])]} for topic in described]
    if output == "json":
        print_json(documents)
        return
    for number, topic in enumerate(documents):
        if number:
            click.echo()
        show_topic(topic, offsets=offsets)


def every_topic(ask: Ask) -> list[MetadataResponseTopic]:
    """All topics, by name."""
    from moldau.model.errors import ErrorCode, KafkaError
    from moldau.wire.messages.metadata import MetadataRequest, MetadataResponse

    reply = ask(MetadataRequest(topics=None, allow_auto_topic_creation=False), MetadataResponse)
    if reply.error_code != ErrorCode.NONE:
        raise failure_of(KafkaError(ErrorCode(reply.error_code)))
    return sorted(reply.topics, key=lambda topic: topic.name or "")


def described_topic(topic: MetadataResponseTopic) -> dict[str, Json]:
    """A topic as `describe -o json` shows it, without its settings."""
    from moldau.model.ids import uuid_to_text

    return {
        "name": topic.name,
        "topic_id": uuid_to_text(topic.topic_id),
        "internal": topic.is_internal,
        "partitions": [
            {
                "partition": row.partition_index,
                "leader": None if row.leader_id < 0 else row.leader_id,
                "leader_epoch": row.leader_epoch,
                "replicas": list(row.replica_nodes),
                "isr": list(row.isr_nodes),
                "offline": list(row.offline_replicas),
            }
            for row in sorted(topic.partitions, key=lambda row: row.partition_index)
        ],
    }


def changed_settings(ask: Ask, topic: str) -> dict[str, str | None]:
    """The settings of a topic that are not Kafka's defaults, by name."""
    from moldau.cli._settings import DEFAULT, TOPIC
    from moldau.model.errors import ErrorCode, KafkaError
    from moldau.wire.messages.configs import (
        DescribeConfigsRequest,
        DescribeConfigsResource,
        DescribeConfigsResponse,
    )

    resource = DescribeConfigsResource(resource_type=TOPIC, resource_name=topic, configuration_keys=None)
    reply = ask(DescribeConfigsRequest(resources=[resource]), DescribeConfigsResponse)
    for row in reply.results:
        if row.error_code != ErrorCode.NONE:
            raise failure_of(KafkaError(ErrorCode(row.error_code), row.error_message), topic)
    entries = sorted(reply.results[0].configs, key=lambda entry: entry.name)
    return {entry.name: entry.value for entry in entries if entry.config_source != DEFAULT}


def add_offsets(target: Target, topics: list[dict[str, Json]]) -> None:
    """Say of each partition which offsets it holds."""
    from moldau.client.offsets import place_of

    async def look(client: Client) -> None:
        for topic in topics:
            rows = topic["partitions"]
            assert isinstance(rows, list)
            held = await spans(
                client.admin, [place_of((str(topic["name"]), row["partition"])) for row in rows]
            )
            for row, span in zip(rows, held.values(), strict=True):
                row["start"], row["end"] = span.first, span.end

    run(target, look)


def show_topic(topic: dict[str, Json], *, offsets: bool) -> None:
    """A topic for people."""
    rows, configs = topic["partitions"], topic["configs"]
    assert isinstance(rows, list)
    assert isinstance(configs, dict)
    print_facts({"topic": str(topic["name"]), "id": str(topic["topic_id"])})
    if configs:
        print_facts({f"  {name}": value for name, value in configs.items()})
    columns = ["PARTITION", "LEADER", "EPOCH", "REPLICAS", "ISR", *(["START", "END"] if offsets else [])]
    print_table(
        columns,
        [
            (
                row["partition"],
                row["leader"],
                row["leader_epoch"],
                ",".join(map(str, row["replicas"])),
                ",".join(map(str, row["isr"])),
                *((row["start"], row["end"]) if offsets else ()),
            )
            for row in rows
        ],
    )


# ---------------------------------------------------------------- changing


@command.command("create")
@click.argument("names", metavar="TOPIC...", nargs=-1, required=True)
@click.option(
    "-p", "--partitions", type=click.IntRange(min=1), help="How many; left to the cluster if not given."
)
@click.option(
    "-r", "--replication-factor", type=click.IntRange(min=1), help="How many replicas of each; the same."
)
@click.option(
    "--replicas",
    metavar="1:2,2:3",
    help="Place partitions by hand: the brokers of each with colons, partitions with commas.",
)
@config_option
@click.option("--if-not-exists", is_flag=True, help="A topic that exists is left as it is.")
@dry_run_option
@cluster_options
def create(
    target: Target,
    names: tuple[str, ...],
    partitions: int | None,
    replication_factor: int | None,
    replicas: str | None,
    configs: dict[str, str],
    if_not_exists: bool,
    dry_run: bool,
) -> None:
    """Create topics.

    \b
    Examples:
      moldau topic create orders
      moldau topic create orders payments -p 6 -r 3
      moldau topic create prices -c cleanup.policy=compact -c retention.ms=-1
    """
    if replicas is not None and (partitions is not None or replication_factor is not None):
        raise click.UsageError(
            "--replicas says how many partitions and replicas there are: leave the others out."
        )
    placed = [] if replicas is None else parse_replicas(replicas)

    async def create_all(client: Client) -> None:
        from moldau.client import NewTopic

        for name in names:
            topic = NewTopic(
                name,
                -1 if partitions is None else partitions,
                -1 if replication_factor is None else replication_factor,
                configs,
                placed,
            )
            is_new = await create_one(client, topic, if_not_exists=if_not_exists, validate_only=dry_run)
            note(
                f"{name} {'could be created' if dry_run else 'created'}"
                if is_new
                else f"{name} exists already"
            )

    run(target, create_all)


async def create_one(
    client: Client, topic: NewTopic, *, if_not_exists: bool, validate_only: bool = False
) -> bool:
    """Create a topic; tells whether it is new."""
    from moldau.client import ClientError
    from moldau.model.errors import ErrorCode

    try:
        await client.admin.create_topics(topic, validate_only=validate_only)
    except ClientError as error:
        if error.code != ErrorCode.TOPIC_ALREADY_EXISTS or not if_not_exists:
            raise
        return False
    return True


def parse_replicas(text: str) -> list[list[int]]:
    """`1:2,2:3` as the brokers of each partition."""
    try:
        return [[int(broker) for broker in part.split(":")] for part in text.split(",")]
    except ValueError:
        raise click.BadParameter(f"'{text}' must look like 1:2,2:3.", param_hint="--replicas") from None


@command.command("delete")
@topic_argument(several=True)
@click.option("--if-exists", is_flag=True, help="A topic that does not exist is passed over.")
@yes_option
@cluster_options
def delete(target: Target, topics: tuple[str, ...], if_exists: bool, is_sure: bool) -> None:
    """Delete topics with all their records.

    \b
    Examples:
      moldau topic delete orders
      moldau topic delete orders payments --yes --if-exists
    """
    with asking(target) as ask:
        known = [topic.name for topic in every_topic(ask) if topic.name]
    for name in topics:
        if name not in known and not if_exists:
            raise no_such_topic(name, known)
    confirm(f"Delete {', '.join(topics)} with all records?", is_sure=is_sure)

    async def delete_all(client: Client) -> None:
        for name in topics:
            if name in known:
                await client.admin.delete_topics(name)
            note(f"{name} {'deleted' if name in known else 'does not exist'}")

    run(target, delete_all)


@command.command("alter")
@topic_argument()
@click.option(
    "--set",
    "-c",
    "--config",
    "changes",
    metavar="NAME=VALUE",
    multiple=True,
    callback=pairs_callback,
    shell_complete=complete_setting,
    help="Change a setting; may be given several times.",
)
@click.option(
    "--unset",
    "resets",
    metavar="NAME",
    multiple=True,
    shell_complete=complete_setting,
    help="Let the default count again.",
)
@dry_run_option
@cluster_options
def alter(
    target: Target, topic: str, changes: dict[str, str], resets: tuple[str, ...], dry_run: bool
) -> None:
    """Change settings of a topic.

    \b
    Examples:
      moldau topic alter orders --set retention.ms=3600000 --set max.message.bytes=2000000
      moldau topic alter orders --unset retention.ms
    """
    if not changes and not resets:
        raise click.UsageError("Say what to change, with --set or --unset.")
    from moldau.cli._settings import change_settings

    change_settings(target, "topic", topic, {**changes, **dict.fromkeys(resets)}, dry_run=dry_run)


@command.command("add-partitions")
@topic_argument()
@click.option("--total", type=click.IntRange(min=1), required=True, help="How many there are to be in all.")
@dry_run_option
@cluster_options
def add_partitions(target: Target, topic: str, total: int, dry_run: bool) -> None:
    """Let a topic have more partitions.

    There is no way back, and keys go to other partitions than before.

    \b
    Example:
      moldau topic add-partitions orders --total 12
    """

    async def add(client: Client) -> None:
        known = await client.admin.list_topics()
        if topic not in known:
            raise no_such_topic(topic, known)
        await client.admin.add_partitions(topic, total, validate_only=dry_run)
        note(f"{topic} {'could have' if dry_run else 'has'} {total} partitions")

    run(target, add)


@command.command("trim")
@topic_argument()
@click.option(
    "--before",
    "where",
    type=WhereType(),
    required=True,
    metavar="WHERE",
    help="What stays first: an offset (42), a time (-1d, 2030-01-31, @MS), so many of each partition (-1000),"
    " or end for nothing.",
)
@click.option(
    "-p",
    "--partition",
    "partitions",
    type=click.IntRange(min=0),
    multiple=True,
    help="Only this one; may be given several times.",
)
@yes_option
@output_option
@cluster_options
def trim(
    target: Target, topic: str, where: Where, partitions: tuple[int, ...], is_sure: bool, output: str
) -> None:
    """Delete the oldest records of a topic.

    \b
    Examples:
      moldau topic trim orders --before -7d          what is older than a week
      moldau topic trim orders --before 42 -p 0      what lies before an offset
      moldau topic trim orders --before end --yes    everything
    """

    async def look(client: Client) -> tuple[dict[TopicPartition, Span], dict[TopicPartition, int]]:
        places = await partitions_of(client, topic, partitions)
        held = await spans(client.admin, places)
        cuts = await offsets_at(client.admin, held, where)
        for place, span in held.items():
            if cuts[place] > span.end:
                raise Failure(f"{place} ends at offset {span.end}, before {cuts[place]}.")
        if not isinstance(where, AtOffset | End):
            cuts = {place: max(cut, held[place].first) for place, cut in cuts.items()}
        return held, cuts

    async def trim_all(client: Client) -> list[dict[str, Cell]]:
        starts = await client.admin.delete_records(
            {(place.topic, place.partition): cut for place, cut in cuts.items()}
        )
        return [
            {"topic": place.topic, "partition": place.partition, "start": starts[place], "end": span.end}
            for place, span in held.items()
        ]

    held, cuts = run(target, look)
    doomed = sum(max(0, cut - held[place].first) for place, cut in cuts.items())
    # Not while the loop runs: it would take an interrupt for itself.
    confirm(f"Delete {doomed} offsets of {topic}?", is_sure=is_sure)
    rows = run(target, trim_all)
    if output == "json":
        print_json(rows)
    else:
        print_table(
            ["PARTITION", "START", "END"],
            [(row["partition"], row["start"], row["end"]) for row in rows],
        )
