"""What commands about groups share: their lag, reading as a member, and names for the shell."""

from __future__ import annotations

import difflib
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

import click

from moldau.cli._connect import BOOTSTRAP, Target, parse_bootstrap, run
from moldau.cli._errors import Failure, NotFound, OutOfReach
from moldau.cli._positions import spans
from moldau.cli._reading import Batch

if TYPE_CHECKING:
    from moldau.client import Client, CommittedOffset
    from moldau.client.groups import GroupView, MemberView
    from moldau.model.ids import TopicPartition

Decorated = TypeVar("Decorated", bound=Callable[..., object])

_POLL_MS: Final = 500


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """A partition that a group reads or has read: how far it is, and who reads it now."""

    place: TopicPartition
    committed: CommittedOffset | None
    # None where the topic is gone.
    end: int | None
    member: MemberView | None

    @property
    def lag(self) -> int | None:
        """How many offsets the group is behind the end."""
        return None if self.committed is None or self.end is None else self.end - self.committed.offset


async def describe_group(client: Client, name: str) -> GroupView:
    """A group; NotFound if there is none of that name, with the nearest that there is."""
    from moldau.client import ClientError
    from moldau.model.errors import ErrorCode

    try:
        return (await client.admin.describe_groups(name))[name]
    except ClientError as error:
        if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
            raise
    raise no_such_group(name, [group.group_id for group in await client.admin.list_groups()])


async def lags(client: Client, group: GroupView) -> list[PartitionLag]:
    """Every partition that the group has committed or reads, by topic."""
    committed = await client.admin.group_offsets(group.group_id)
    readers = {place: member for member in group.members for place in member.assignment}
    places = sorted({*committed, *readers})
    ends = await ends_of(client, places)
    return [
        PartitionLag(place, committed.get(place), ends.get(place), readers.get(place)) for place in places
    ]


async def ends_of(client: Client, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """Where partitions end; those of topics that are gone are left out."""
    from moldau.client import LATEST

    topics = await client.admin.list_topics()
    there = [
        place
        for place in places
        if place.topic in topics and place.partition in topics[place.topic].partitions
    ]
    if not there:
        return {}
    found = await client.admin.list_offsets(dict.fromkeys(there, LATEST))
    return {place: row.offset for place, row in found.items()}


async def read_as_member(
    client: Client,
    group: str,
    topics: Iterable[str] = (),
    *,
    pattern: str | None = None,
    is_endless: bool,
    count: int | None = None,
    idle_ms: int | None = None,
    stall_ms: int,
    isolation_level: str,
    auto_offset_reset: str,
    is_committing: bool = True,
) -> AsyncIterator[Batch]:
    """Records as a member of a group gets them; what the caller has gone past is committed, if wanted.

    Ends with `count` records, when none came for `idle_ms` or, unless it is endless, at what was the end of
    the partitions when they were assigned. A group that assigns nothing for `stall_ms` is a Failure.
    """
    clock = client.cluster.world.clock
    isolation = int(isolation_level == "read_committed")
    ends: dict[TopicPartition, int] = {}
    async with client.consumer(
        topics,
        group_id=group,
        pattern=pattern,
        enable_auto_commit=False,
        isolation_level=isolation_level,
        auto_offset_reset=auto_offset_reset,
    ) as consumer:
        news_ms = clock.now_ms()
        while count is None or count > 0:
            wait_ms = _POLL_MS if idle_ms is None else min(_POLL_MS, idle_ms)
            polled = await consumer.poll(timeout_ms=wait_ms, records_max=count)
            now_ms = clock.now_ms()
            for place, records in polled.items():
                news_ms = now_ms
                if count is not None:
                    count -= len(records)
                yield place, records
            if polled and is_committing:
                # Only now: whoever ends in the midst of what was polled reads it again.
                await consumer.commit()
            if idle_ms is not None and now_ms - news_ms >= idle_ms:
                break
            places = await consumer.assignment()
            if is_endless:
                continue
            if not places and now_ms - news_ms >= stall_ms:
                raise OutOfReach(f"The group {group} assigned nothing within {stall_ms / 1000:g} s.")
            new = [place for place in places if place not in ends]
            if new:
                held = await spans(client.admin, new, isolation_level=isolation)
                ends |= {place: span.end for place, span in held.items()}
            positions = [(await consumer.position(place), ends[place]) for place in places]
            if places and all(position >= end for position, end in positions):
                break
        if is_committing:
            # Also where nothing came: the group is there now, and goes on from here.
            await consumer.commit()


def no_such_group(name: str, others: Iterable[str] = ()) -> Failure:
    """A group was asked for that does not exist; perhaps one of the others was meant."""
    near = difflib.get_close_matches(name, list(others), n=1)
    hint = f"Did you mean '{near[0]}'?" if near else "moldau group list shows all."
    return NotFound(f"There is no group '{name}'. {hint}")


def complete_group(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """The groups that a shell may complete a word to; none if the cluster does not answer at once."""
    target = ctx.params.get("target") or Target(parse_bootstrap(BOOTSTRAP))
    try:
        listed = run(Target(target.addresses, timeout_s=1.0), lambda client: client.admin.list_groups())
    except click.ClickException:
        return []
    return [group.group_id for group in listed if group.group_id.startswith(incomplete)]


def group_argument(*, several: bool = False) -> Callable[[Decorated], Decorated]:
    """A GROUP that the shell can complete, or some."""
    if several:
        return click.argument(
            "groups", metavar="GROUP...", nargs=-1, required=True, shell_complete=complete_group
        )
    return click.argument("group", metavar="GROUP", shell_complete=complete_group)
