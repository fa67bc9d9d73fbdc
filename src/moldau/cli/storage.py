"""`moldau storage`: make a data directory ready for a node, and look at one."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TypedDict

import click

from moldau.cli._config import config_option, read_config
from moldau.cli._serving import complaints
from moldau.log.checkpoints import META_PROPERTIES, read_identity
from moldau.model.errors import MalformedMessage
from moldau.model.ids import ClusterId, DirectoryId, uuid_from_random, uuid_to_text
from moldau.node.config import NodeConfig
from moldau.node.storage import (
    UnusableDirectory,
    format_directory,
    lock_directory,
    parse_initial_controllers,
    standalone_voters,
)
from moldau.raft.voters import VoterSet
from moldau.world.real.disk import RealDisk


class Info(TypedDict):
    """What `moldau storage info -o json` prints: names are stable, what is unknown is null."""

    directory: str
    cluster_id: str | None
    node_id: int | None
    directory_id: str | None
    problems: list[str]


@click.group()
def command() -> None:
    """Make the data directory of a node ready, or look at it.

    \b
    Examples:
      moldau storage format -c server.properties -t $(moldau storage random-uuid) --standalone
      moldau storage info -c server.properties
    """


@command.command("random-uuid")
def random_uuid() -> None:
    """Print a new id for a cluster or a directory."""
    click.echo(new_id())


@command.command("format")
@config_option
@click.option(
    "-t", "--cluster-id", required=True, metavar="ID", help="The cluster's id, the same for all nodes."
)
@click.option("-s", "--standalone", "is_standalone", is_flag=True, help="Begin a quorum of this node alone.")
@click.option(
    "-I",
    "--initial-controllers",
    metavar="LIST",
    help="Begin a quorum of several: id@host:port:directory-id,... the same for all of them.",
)
@click.option(
    "-N", "--no-initial-controllers", "is_joining", is_flag=True, help="Join a quorum that others begin."
)
@click.option(
    "-g", "--ignore-formatted", is_flag=True, help="Succeed if the directory is formatted for this node."
)
@click.option(
    "-f",
    "--feature",
    "features",
    multiple=True,
    metavar="NAME=LEVEL",
    help="Begin with a feature at a level.",
)
def format_storage(
    path: Path | None,
    cluster_id: str,
    is_standalone: bool,
    initial_controllers: str | None,
    is_joining: bool,
    ignore_formatted: bool,
    features: tuple[str, ...],
) -> None:
    """Make a data directory a node's, once, before its first start.

    A controller must know the quorum that it is part of: alone with --standalone, one of several with
    --initial-controllers, or a later one with --no-initial-controllers. A node that is the only one in
    controller.quorum.voters is alone without being told so, and a broker needs none of this.

    \b
    Examples:
      moldau storage format -c server.properties -t ID --standalone
      moldau storage format -c c1.properties -t ID \\
          --initial-controllers 1@a:9093:DIRECTORY-ID,2@b:9093:DIRECTORY-ID,3@c:9093:DIRECTORY-ID
    """
    if is_standalone + is_joining + (initial_controllers is not None) > 1:
        raise click.UsageError(
            "Give only one of --standalone, --initial-controllers and --no-initial-controllers."
        )
    config, levels = read_config(path), parse_levels(features)
    with complaints(config.log_directory):
        is_new = format_for(
            config,
            ClusterId(cluster_id),
            lambda directory_id: (
                chosen_voters(config, directory_id, is_standalone=is_standalone, is_joining=is_joining)
                if initial_controllers is None
                else parse_initial_controllers(initial_controllers, config)
            ),
            levels=levels,
            is_ignoring_formatted=ignore_formatted,
        )
    done = "is formatted" if is_new else "was formatted already"
    click.echo(f"{config.log_directory} {done}: node {config.node_id} of cluster {cluster_id}.")


@command.command("info")
@config_option
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
def info(path: Path | None, output: str) -> None:
    """Show whose data directory it is; exit code 1 if a node cannot start with it."""
    config = read_config(path)
    with complaints(config.log_directory):
        found = information(config)
    if output == "json":
        click.echo(json.dumps(found, indent=2))
    else:
        rows = {name: value for name, value in found.items() if name != "problems"}
        rows["problems"] = "; ".join(found["problems"]) or "none"
        for name, value in rows.items():
            click.echo(f"{name.replace('_', ' '):<12}  {'–' if value is None else value}")
    sys.exit(bool(found["problems"]))


def format_for(
    config: NodeConfig,
    cluster_id: ClusterId,
    voters_with: Callable[[DirectoryId], VoterSet],
    *,
    levels: Mapping[str, int],
    is_ignoring_formatted: bool,
) -> bool:
    """Make the directory the node's in this cluster; `voters_with` its id is the quorum that begins."""
    directory_id = DirectoryId(uuid_from_random(os.urandom(16)))
    voters = voters_with(directory_id)
    mine = voters.find(config.node_id)
    disk = RealDisk(config.log_directory)
    try:
        lock_directory(disk, config)
        return format_directory(
            disk,
            config,
            cluster_id=cluster_id,
            directory_id=directory_id if mine is None else mine.key.directory_id,
            voters=voters,
            levels=levels,
            timestamp=time.time_ns() // 1_000_000,
            is_ignoring_formatted=is_ignoring_formatted,
        )
    finally:
        disk.close()


def format_if_new(config: NodeConfig, cluster_id: str | None) -> bool:
    """Format a directory that never was, as the settings say; without a cluster's id it is a new cluster's.

    Only a node that is the whole quorum can begin one. A broker must be told which cluster it joins.
    """
    if cluster_id is None and is_formatted(config.log_directory):
        return False
    if cluster_id is None and not config.is_controller:
        raise UnusableDirectory(
            f"The directory {config.log_directory} is not formatted, and a broker joins a cluster that"
            " exists: give its --cluster-id."
        )
    return format_for(
        config,
        ClusterId(cluster_id or new_id()),
        lambda directory_id: chosen_voters(
            config, directory_id, is_standalone=config.is_alone, is_joining=False
        ),
        levels={},
        is_ignoring_formatted=True,
    )


def is_formatted(directory: str) -> bool:
    """Whether a directory says that it is some node's."""
    return os.path.exists(os.path.join(directory, META_PROPERTIES))


def new_id() -> str:
    """An id that nothing else has."""
    return uuid_to_text(uuid_from_random(os.urandom(16)))


def chosen_voters(
    config: NodeConfig, directory_id: DirectoryId, *, is_standalone: bool, is_joining: bool
) -> VoterSet:
    """The quorum that the options and controller.quorum.voters ask for; none for a node that joins one."""
    others = [node_id for node_id, _ in config.quorum_voters if node_id != config.node_id]
    if is_joining or (not config.is_controller and not is_standalone):
        return VoterSet()
    if others:
        raise UnusableDirectory(
            f"controller.quorum.voters names other nodes ({', '.join(map(str, others))}): format all of them"
            " with the same --initial-controllers id@host:port:directory-id,... where"
            " 'moldau storage random-uuid' makes the directories' ids."
        )
    if not is_standalone and not config.quorum_voters:
        raise UnusableDirectory(
            "A controller must know its quorum: give --standalone, --initial-controllers or"
            " --no-initial-controllers."
        )
    return standalone_voters(config, directory_id)


def parse_levels(features: Iterable[str]) -> dict[str, int]:
    """The levels that were asked for, by the features' names."""
    levels = {}
    for feature in features:
        name, _, level = feature.partition("=")
        if not name or not level.isdecimal():
            raise click.BadParameter(
                f"{feature!r} must be NAME=LEVEL, such as group.version=1.", param_hint="--feature"
            )
        levels[name] = int(level)
    return levels


def information(config: NodeConfig) -> Info:
    """What the directory says about itself, and what is wrong with it."""
    found = Info(
        directory=config.log_directory, cluster_id=None, node_id=None, directory_id=None, problems=[]
    )
    if not os.path.isdir(config.log_directory):
        found["problems"].append("there is no such directory")
        return found
    disk = RealDisk(config.log_directory)
    try:
        identity = read_identity(disk)
    except MalformedMessage as error:
        found["problems"].append(str(error))
        return found
    finally:
        disk.close()
    if identity is None:
        found["problems"].append("the directory is not formatted")
        return found
    found["cluster_id"], found["node_id"] = identity.cluster_id, identity.node_id
    if identity.directory_id is not None:
        found["directory_id"] = uuid_to_text(identity.directory_id)
    if identity.node_id != config.node_id:
        found["problems"].append(f"node.id is {config.node_id} in the settings")
    return found
