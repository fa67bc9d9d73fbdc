"""Committed offsets of a group: writing, reading and forgetting them at its coordinator."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

from moldau.client.coordinator import GroupCoordinator
from moldau.client.errors import check, code_of
from moldau.client.offsets import place_of
from moldau.model.errors import ErrorCode
from moldau.model.ids import TopicPartition
from moldau.wire.messages.groups import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)

# From version 10 on topics go by their ids, which a tool need not know.
_BY_NAME_MAX: Final = 9
_GROUPS_SINCE: Final = 8
_NO_OFFSET: Final = -1


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """The offset to go on with, the epoch of the record before it, and what the application adds."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""


Place = TypeVar("Place", bound=tuple[str, int])
# Offsets as applications give them, with or without what belongs to them.
Offsets = Mapping[Place, int | CommittedOffset]


def committed_offsets(offsets: Offsets[Place]) -> dict[TopicPartition, CommittedOffset]:
    """The same, typed."""
    return {
        place_of(place): offset if isinstance(offset, CommittedOffset) else CommittedOffset(offset)
        for place, offset in offsets.items()
    }


@dataclass(frozen=True, slots=True)
class Committer:
    """Who commits: a member of the group, or by default somebody who administers an empty one."""

    member_id: str = ""
    epoch: int = -1
    instance_id: str | None = None


async def commit_offsets(
    coordinator: GroupCoordinator, committer: Committer, offsets: Mapping[TopicPartition, CommittedOffset]
) -> None:
    """Commit once; the first partition that is refused raises."""
    topics: dict[str, list[OffsetCommitRequestPartition]] = {}
    for place, committed in sorted(offsets.items(), key=lambda item: item[0]):
        topics.setdefault(place.topic, []).append(
            OffsetCommitRequestPartition(
                partition_index=place.partition,
                committed_offset=committed.offset,
                committed_leader_epoch=committed.leader_epoch,
                committed_metadata=committed.metadata,
            )
        )
    request = OffsetCommitRequest(
        group_id=coordinator.group_id,
        generation_id_or_member_epoch=committer.epoch,
        member_id=committer.member_id,
        group_instance_id=committer.instance_id,
        topics=[OffsetCommitRequestTopic(name=name, partitions=rows) for name, rows in topics.items()],
    )
    response = await coordinator.ask(request, OffsetCommitResponse, version_max=_BY_NAME_MAX)
    for topic in response.topics:
        for row in topic.partitions:
            check(row.error_code, where=place_of((topic.name, row.partition_index)))


async def fetch_offsets(
    coordinator: GroupCoordinator,
    partitions: Iterable[TopicPartition] | None,
    committer: Committer = Committer(),  # frozen
    *,
    require_stable: bool = True,
) -> dict[TopicPartition, CommittedOffset]:
    """What is committed for these partitions, or all, once; those without an offset are left out."""
    topics: dict[str, list[int]] = {}
    for place in partitions or ():
        topics.setdefault(place.topic, []).append(place.partition)
    is_all = partitions is None
    request = OffsetFetchRequest(
        groups=[
            OffsetFetchRequestGroup(
                group_id=coordinator.group_id,
                member_id=committer.member_id or None,
                member_epoch=committer.epoch,
                topics=None
                if is_all
                else [
                    OffsetFetchRequestTopics(name=name, partition_indexes=rows)
                    for name, rows in topics.items()
                ],
            )
        ],
        require_stable=require_stable,
    )
    if await coordinator.version_of(OffsetFetchRequest) < _GROUPS_SINCE:
        request = OffsetFetchRequest(
            group_id=coordinator.group_id,
            topics=None
            if is_all
            else [
                OffsetFetchRequestTopic(name=name, partition_indexes=rows) for name, rows in topics.items()
            ],
        )
    response = await coordinator.ask(request, OffsetFetchResponse, version_max=_BY_NAME_MAX)
    described = response.groups[0] if response.groups else response
    check(described.error_code, where=coordinator.group_id)
    found: dict[TopicPartition, CommittedOffset] = {}
    for topic in described.topics:
        for row in topic.partitions:
            place = place_of((topic.name, row.partition_index))
            check(row.error_code, where=place)
            if row.committed_offset != _NO_OFFSET:
                found[place] = CommittedOffset(
                    row.committed_offset, row.committed_leader_epoch, row.metadata or ""
                )
    return found


async def delete_offsets(
    coordinator: GroupCoordinator, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, ErrorCode]:
    """Forget what is committed for these partitions; tells how it went with each."""
    topics: dict[str, list[OffsetDeleteRequestPartition]] = {}
    for place in partitions:
        row = OffsetDeleteRequestPartition(partition_index=place.partition)
        topics.setdefault(place.topic, []).append(row)
    request = OffsetDeleteRequest(
        group_id=coordinator.group_id,
        topics=[OffsetDeleteRequestTopic(name=name, partitions=rows) for name, rows in topics.items()],
    )
    response = await coordinator.ask(request, OffsetDeleteResponse)
    check(response.error_code, where=coordinator.group_id)
    return {
        place_of((topic.name, row.partition_index)): code_of(row.error_code)
        for topic in response.topics
        for row in topic.partitions
    }
