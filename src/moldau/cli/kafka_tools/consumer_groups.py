"""`kafka-consumer-groups`: list, describe, reset and delete groups."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from moldau.cli._connect import Target, run
from moldau.cli._output import note
from moldau.cli.kafka_tools._group_changes import (
    WAYS,
    Way,
    delete,
    delete_offsets,
    print_csv,
    print_plans,
    reset,
)
from moldau.cli.kafka_tools._group_tool import GroupTool, Scope
from moldau.cli.kafka_tools._group_views import describe, list_groups, validate_regex
from moldau.cli.kafka_tools._tool import connection_options, target_of

if TYPE_CHECKING:
    from moldau.client import Client

_ACTIONS: Final = ("list", "describe", "delete", "reset-offsets", "delete-offsets", "validate-regex")


@click.command("kafka-consumer-groups", cls=GroupTool)
@click.option("--list", "action_list", is_flag=True, help="List all groups.")
@click.option("--describe", "action_describe", is_flag=True, help="Show lag, members or state of groups.")
@click.option("--delete", "action_delete", is_flag=True, help="Delete groups without members.")
@click.option("--reset-offsets", "action_reset", is_flag=True, help="Let groups go on elsewhere.")
@click.option("--delete-offsets", "action_delete_offsets", is_flag=True, help="Forget offsets of topics.")
@click.option("--group", "groups", multiple=True, metavar="GROUP", help="May be given several times.")
@click.option("--all-groups", is_flag=True, help="All groups.")
@click.option(
    "--topic", "topics", multiple=True, metavar="TOPIC[:0,1]", help="A topic, or some of its partitions."
)
@click.option("--all-topics", is_flag=True, help="All topics that the group has committed.")
@click.option("--members", is_flag=True, help="With --describe: show members.")
@click.option("--offsets", is_flag=True, help="With --describe: show lag, as without.")
@click.option(
    "--state",
    is_flag=False,
    flag_value="",
    metavar="[STATES]",
    help="With --describe: show the state; with --list too, or only groups in these states.",
)
@click.option(
    "--type",
    "types",
    is_flag=False,
    flag_value="",
    metavar="[TYPES]",
    help="With --list: show the type, or only groups of these types.",
)
@click.option("--verbose", is_flag=True, help="Show more of it.")
@click.option("--timeout", type=click.IntRange(min=1), default=5000, show_default=True, help="In ms.")
@click.option("--dry-run", is_flag=True, help="Only show what --reset-offsets would do.")
@click.option("--execute", is_flag=True, help="Do it.")
@click.option("--export", "is_export", is_flag=True, help="Show it as CSV.")
@click.option("--to-offset", type=int, metavar="OFFSET")
@click.option("--shift-by", type=int, metavar="N", help="By so many, back if negative.")
@click.option("--to-datetime", metavar="YYYY-MM-DDTHH:mm:SS.sss")
@click.option("--by-duration", metavar="PnDTnHnMnS", help="So long ago.")
@click.option("--to-earliest", is_flag=True)
@click.option("--to-latest", is_flag=True)
@click.option("--to-current", is_flag=True)
@click.option("--from-file", metavar="CSV", help="What --export has written.")
@click.option("--validate-regex", "regex", metavar="REGEX", help="Say whether brokers take this.")
@connection_options("--command-config")
def command(
    action_list: bool,
    action_describe: bool,
    action_delete: bool,
    action_reset: bool,
    action_delete_offsets: bool,
    groups: tuple[str, ...],
    all_groups: bool,
    topics: tuple[str, ...],
    all_topics: bool,
    members: bool,
    offsets: bool,
    state: str | None,
    types: str | None,
    verbose: bool,
    timeout: int,
    dry_run: bool,
    execute: bool,
    is_export: bool,
    to_offset: int | None,
    shift_by: int | None,
    to_datetime: str | None,
    by_duration: str | None,
    to_earliest: bool,
    to_latest: bool,
    to_current: bool,
    from_file: str | None,
    regex: str | None,
    bootstrap: str,
    config_file: Path | None,
) -> None:
    """List, describe, reset and delete groups.

    \b
    Examples:
      moldau kafka-consumer-groups --bootstrap-server localhost:9092 --describe --group billing
      moldau kafka-consumer-groups --group billing --topic orders --reset-offsets --to-earliest --execute
    """
    given = (
        *(action_list, action_describe, action_delete, action_reset, action_delete_offsets),
        regex is not None,
    )
    actions = [name for name, is_given in zip(_ACTIONS, given, strict=True) if is_given]
    values = (to_offset, shift_by, from_file, to_datetime, by_duration)
    flags = (to_latest, to_current, to_earliest)
    ways = [
        *(Way(name, str(value)) for name, value in zip(WAYS, values, strict=False) if value is not None),
        *(Way(name) for name, is_given in zip(WAYS[len(values) :], flags, strict=True) if is_given),
    ]
    check_usage(
        actions, ways, groups, topics, all_groups=all_groups, members=members, offsets=offsets, state=state
    )
    if action_reset and dry_run and execute:
        raise click.UsageError("Option [reset-offsets] only accepts one of [execute] and [dry-run]")
    if regex is not None:
        validate_regex(regex)
        return
    target = target_of(bootstrap, config_file)
    target = Target(target.addresses, timeout / 1000, target.settings)
    scope = Scope(groups, topics, is_all_groups=all_groups, is_all_topics=all_topics)

    async def act(client: Client) -> None:
        if action_list:
            await list_groups(client, state, types)
        elif action_describe:
            shown = "members" if members else "offsets" if state is None else "state"
            await describe(client, scope, shown, verbose=verbose)
        elif action_delete:
            await delete(client, scope)
        elif action_delete_offsets:
            await delete_offsets(client, groups[0], topics)
        else:
            if not dry_run and not execute:
                note("WARN: No action will be performed as the --execute option is missing.")
            plans = await reset(client, scope, ways, is_dry=not execute)
            if is_export:
                print_csv(plans, has_group=len(plans) > 1)
            else:
                print_plans(plans)

    run(target, act)


def check_usage(
    actions: Sequence[str],
    ways: Sequence[Way],
    groups: Sequence[str],
    topics: Sequence[str],
    *,
    all_groups: bool,
    members: bool,
    offsets: bool,
    state: str | None,
) -> None:
    """Refuse what cannot be meant, in Kafka's words."""
    for action in ("describe", "delete", "reset-offsets"):
        if action in actions and not groups and not all_groups:
            raise click.UsageError(f"Option [{action}] takes one of these options: [group], [all-groups]")
    if "describe" in actions and members + offsets + (state is not None) > 1:
        raise click.UsageError(
            "Option [describe] takes at most one of these options: [members], [offsets], [state]"
        )
    if "describe" in actions and state:
        raise click.UsageError("Option [describe] does not take a value for [state]")
    if "delete" in actions and topics:
        raise click.UsageError(
            "The consumer does not support topic-specific offset deletion from a consumer group."
        )
    if "delete-offsets" in actions and (not groups or not topics):
        raise click.UsageError("Option [delete-offsets] takes the following options: [topic], [group]")
    if "reset-offsets" in actions and len(ways) > 1:
        raise click.UsageError(f'Option "[{ways[0].name}]" can\'t be used with option "[{ways[1].name}]"')
    if groups and all_groups:
        raise click.UsageError('Option "[group]" can\'t be used with option "[all-groups]"')
    if groups and "list" in actions:
        raise click.UsageError('Option "[group]" can\'t be used with option "[list]"')
    if topics and ("list" in actions or "describe" in actions):
        other = "list" if "list" in actions else "describe"
        raise click.UsageError(f'Option "[topic]" can\'t be used with option "[{other}]"')
    if len(actions) != 1:
        raise click.UsageError(
            "Command must include exactly one action: --list, --describe, --delete, --reset-offsets,"
            " --delete-offsets, --validate-regex"
        )
