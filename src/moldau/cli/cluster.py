"""`moldau cluster`: look at the cluster as a whole."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import click

from moldau.cli import SuggestingGroup
from moldau.cli._connect import Ask, Target, asking, cluster_options, run
from moldau.cli._errors import Failure, NotFound, failure_of
from moldau.cli._output import Cell, output_option, print_facts, print_json, print_table, styled

if TYPE_CHECKING:
    from moldau.client import Client
    from moldau.client.admin import LogDirectory
    from moldau.wire.messages.metadata import DescribeClusterResponse, MetadataResponseTopic
    from moldau.wire.messages.raft import DescribeQuorumResponsePartitionData

_METADATA_TOPIC = "__cluster_metadata"
# How many partitions a finding names before it only counts them.
_NAMED_MAX = 5


@click.group(cls=SuggestingGroup)
def command() -> None:
    """Look at the cluster: brokers, health, quorum, features, disks.

    \b
    Examples:
      moldau cluster info
      moldau cluster health && echo all is well
      moldau cluster log-dirs -o json
    """


# ---------------------------------------------------------------- info


@command.command("info")
@output_option
@cluster_options
def info(target: Target, output: str) -> None:
    """Show the cluster's id and its brokers.

    \b
    Example:
      moldau cluster info -o json | jq -r .cluster_id
    """
    with asking(target) as ask:
        reply = described_cluster(ask)
    brokers = [
        {
            "id": row.broker_id,
            "host": row.host,
            "port": row.port,
            "rack": row.rack,
            "fenced": row.is_fenced,
        }
        for row in sorted(reply.brokers, key=lambda row: row.broker_id)
    ]
    if output == "json":
        print_json({"cluster_id": reply.cluster_id, "controller_id": reply.controller_id, "brokers": brokers})
        return
    print_facts({"cluster": reply.cluster_id, "controller": reply.controller_id})
    print_table(
        ["BROKER", "HOST", "PORT", "RACK", "FENCED"],
        [(row["id"], row["host"], row["port"], row["rack"], row["fenced"]) for row in brokers],
    )


def described_cluster(ask: Ask) -> DescribeClusterResponse:
    """The brokers, those that are fenced too."""
    from moldau.wire.messages.metadata import DescribeClusterRequest, DescribeClusterResponse

    request = DescribeClusterRequest(include_cluster_authorized_operations=False, include_fenced_brokers=True)
    reply = ask(request, DescribeClusterResponse)
    check(reply.error_code, reply.error_message)
    return reply


# ---------------------------------------------------------------- health


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that should hold, and what was found."""

    name: str
    ok: bool
    detail: str


@command.command("health")
@output_option
@cluster_options
def health(target: Target, output: str) -> None:
    """Say whether all is well: brokers, quorum, leaders, replicas.

    Ends with exit code 1 if it is not.

    \b
    Example:
      until moldau cluster health; do sleep 1; done
    """
    from moldau.cli.topic import every_topic

    with asking(target) as ask:
        checks = [
            brokers_check(described_cluster(ask)),
            quorum_check(described_quorum(ask)),
            *partition_checks(every_topic(ask)),
        ]
    is_healthy = all(check.ok for check in checks)
    if output == "json":
        print_json({"healthy": is_healthy, "checks": [asdict(check) for check in checks]})
    else:
        for check in checks:
            mark = styled("ok  ", colour="green") if check.ok else styled("FAIL", colour="red", bold=True)
            click.echo(f"{mark}  {check.name}: {check.detail}")
    if not is_healthy:
        sys.exit(Failure.exit_code)


def brokers_check(cluster: DescribeClusterResponse) -> Check:
    """Whether brokers take part."""
    fenced = sorted(row.broker_id for row in cluster.brokers if row.is_fenced)
    count = len(cluster.brokers) - len(fenced)
    detail = f"{count} up" + (f", fenced: {', '.join(map(str, fenced))}" if fenced else "")
    return Check("brokers", count > 0 and not fenced, detail)


def quorum_check(quorum: DescribeQuorumResponsePartitionData) -> Check:
    """Whether the controllers have a leader."""
    voters = ", ".join(str(row.replica_id) for row in quorum.current_voters)
    is_led = quorum.leader_id >= 0
    return Check(
        "quorum", is_led, f"{f'node {quorum.leader_id}' if is_led else 'nobody'} leads, voters: {voters}"
    )


def partition_checks(topics: list[MetadataResponseTopic]) -> list[Check]:
    """Whether partitions have leaders and all their replicas."""
    rows = [(f"{topic.name}-{row.partition_index}", row) for topic in topics for row in topic.partitions]
    return [
        partitions_check(name, [place for place, row in rows if lacks(row)], len(rows))
        for name, lacks in (
            ("leaders", lambda row: row.leader_id < 0),
            ("replicas in sync", lambda row: len(row.isr_nodes) < len(row.replica_nodes)),
            ("replicas online", lambda row: bool(row.offline_replicas)),
        )
    ]


def partitions_check(name: str, lacking: list[str], total: int) -> Check:
    """Whether no partition lacks something, and which do."""
    if not lacking:
        return Check(name, True, f"of all partitions ({total})")
    more = ", ..." if len(lacking) > _NAMED_MAX else ""
    return Check(
        name,
        False,
        f"{len(lacking)} of {total} partitions lack some: {', '.join(lacking[:_NAMED_MAX])}{more}",
    )


# ---------------------------------------------------------------- quorum and features


@command.command("quorum")
@output_option
@cluster_options
def quorum(target: Target, output: str) -> None:
    """Show the metadata quorum: who leads, who votes, who lags.

    \b
    Example:
      moldau cluster quorum -o json | jq .leader_id
    """
    with asking(target) as ask:
        reply = described_quorum(ask)
    leader_end = max((row.log_end_offset for row in reply.current_voters), default=-1)
    replicas: list[dict[str, Cell]] = [
        {
            "id": row.replica_id,
            "role": role if row.replica_id != reply.leader_id else "leader",
            "log_end_offset": row.log_end_offset,
            "lag": max(0, leader_end - row.log_end_offset) if row.log_end_offset >= 0 else None,
            "last_fetch_timestamp": row.last_fetch_timestamp if row.last_fetch_timestamp >= 0 else None,
            "last_caught_up_timestamp": row.last_caught_up_timestamp
            if row.last_caught_up_timestamp >= 0
            else None,
        }
        for role, rows in (("voter", reply.current_voters), ("observer", reply.observers))
        for row in sorted(rows, key=lambda row: row.replica_id)
    ]
    if output == "json":
        print_json(
            {
                "leader_id": None if reply.leader_id < 0 else reply.leader_id,
                "leader_epoch": reply.leader_epoch,
                "high_watermark": reply.high_watermark,
                "replicas": replicas,
            }
        )
        return
    print_facts(
        {"leader": reply.leader_id, "epoch": reply.leader_epoch, "high watermark": reply.high_watermark}
    )
    print_table(
        ["NODE", "ROLE", "LOG END", "LAG"],
        [(row["id"], row["role"], row["log_end_offset"], row["lag"]) for row in replicas],
    )


def described_quorum(ask: Ask) -> DescribeQuorumResponsePartitionData:
    """The state of the metadata log's quorum."""
    from moldau.wire.messages.raft import (
        DescribeQuorumRequest,
        DescribeQuorumRequestPartitionData,
        DescribeQuorumRequestTopicData,
        DescribeQuorumResponse,
    )

    partition = DescribeQuorumRequestPartitionData(partition_index=0)
    topic = DescribeQuorumRequestTopicData(topic_name=_METADATA_TOPIC, partitions=[partition])
    reply = ask(DescribeQuorumRequest(topics=[topic]), DescribeQuorumResponse)
    check(reply.error_code, reply.error_message)
    row = reply.topics[0].partitions[0]
    check(row.error_code, row.error_message)
    return row


@command.command("features")
@output_option
@cluster_options
def features(target: Target, output: str) -> None:
    """Show the features: at which level the cluster has each, and what the broker supports.

    \b
    Example:
      moldau cluster features -o json | jq '.[] | select(.name == "metadata.version")'
    """
    from moldau.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

    request = ApiVersionsRequest(client_software_name="moldau-cli", client_software_version="1")
    with asking(target) as ask:
        reply = ask(request, ApiVersionsResponse)
    levels = {row.name: row.max_version_level for row in reply.finalized_features}
    rows: list[dict[str, Cell]] = [
        {
            "name": row.name,
            "level": levels.get(row.name, 0),
            "min_supported": row.min_version,
            "max_supported": row.max_version,
        }
        for row in sorted(reply.supported_features, key=lambda row: row.name)
    ]
    if output == "json":
        print_json(rows)
    else:
        print_table(
            ["FEATURE", "LEVEL", "MIN", "MAX"],
            [(row["name"], row["level"], row["min_supported"], row["max_supported"]) for row in rows],
        )


# ---------------------------------------------------------------- disks


@command.command("log-dirs")
@click.option(
    "--broker", "brokers", type=int, multiple=True, help="Only this one; may be given several times."
)
@output_option
@cluster_options
def log_dirs(target: Target, brokers: tuple[int, ...], output: str) -> None:
    """Show where brokers keep partitions, and how large these are.

    \b
    Examples:
      moldau cluster log-dirs
      moldau cluster log-dirs --broker 1 -o json | jq '[.[].partitions[].bytes] | add'
    """

    async def look(client: Client) -> dict[int, list[LogDirectory]]:
        known = [broker.node_id for broker in (await client.admin.describe_cluster()).brokers]
        for node_id in brokers:
            if node_id not in known:
                raise NotFound(f"There is no broker {node_id}; there are {', '.join(map(str, known))}.")
        return {
            node_id: await client.admin.describe_log_dirs(node_id) for node_id in brokers or sorted(known)
        }

    found = run(target, look)
    if output == "json":
        print_json(
            [
                {
                    "broker": node_id,
                    "path": directory.path,
                    "total_bytes": None if directory.total_bytes < 0 else directory.total_bytes,
                    "usable_bytes": None if directory.usable_bytes < 0 else directory.usable_bytes,
                    "partitions": [
                        {"topic": place.topic, "partition": place.partition, "bytes": size}
                        for place, size in sorted(directory.partitions.items())
                    ],
                }
                for node_id, directories in found.items()
                for directory in directories
            ]
        )
        return
    print_table(
        ["BROKER", "DIRECTORY", "PARTITION", "BYTES"],
        [
            (node_id, directory.path, str(place), size)
            for node_id, directories in found.items()
            for directory in directories
            for place, size in sorted(directory.partitions.items())
        ],
    )


def check(code: int, message: str | None) -> None:
    """End the command with what a reply reports, unless it reports no error."""
    from moldau.model.errors import ErrorCode, KafkaError

    if code != ErrorCode.NONE:
        raise failure_of(KafkaError(ErrorCode(code), message or None))
