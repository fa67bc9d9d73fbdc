"""The range assignor: each topic is cut into one run of partitions per subscriber."""

from __future__ import annotations

from collections.abc import Sequence

from moldau.coordinator.group.assignors.assignment import (
    NO_RACKS,
    PartitionCounts,
    PartitionRacks,
    Partitions,
    Subscriber,
)
from moldau.coordinator.group.assignors.nearness import has_near_and_far, near_to_members
from moldau.model.ids import TopicId


def assign_ranges(
    members: Sequence[Subscriber], counts: PartitionCounts, racks: PartitionRacks = NO_RACKS
) -> dict[str, Partitions]:
    """Topics of one size and with the same subscribers are cut alike, so that they can be joined.

    Where racks are known, equal numbers of such topics go together to somebody to whom all of them are near.
    """
    ordered = sorted(members, key=_static_first)
    subscribers: dict[TopicId, list[str]] = {}
    for member in ordered:
        for topic in member.topics:
            subscribers.setdefault(topic, []).append(member.member_id)

    assigned: dict[str, dict[TopicId, tuple[int, ...]]] = {each.member_id: {} for each in members}
    for topic, member_ids in subscribers.items():
        share, extra_count = divmod(counts[topic], len(member_ids))
        start = 0
        for position, member_id in enumerate(member_ids):
            end = start + share + (position < extra_count)
            if start == end:
                break
            assigned[member_id][topic] = tuple(range(start, end))
            start = end
    if not has_near_and_far(ordered, racks):
        return {**assigned}
    joined: dict[tuple[int, tuple[str, ...]], list[TopicId]] = {}
    for topic, member_ids in subscribers.items():
        joined.setdefault((counts[topic], tuple(member_ids)), []).append(topic)
    groups = [
        [tuple((topic, partition) for topic in topics) for partition in range(count)]
        for (count, _), topics in joined.items()
    ]
    return near_to_members(assigned, ordered, racks, groups)


def _static_first(member: Subscriber) -> tuple[bool, str]:
    # A static member comes back under another member id and the same instance id, to the same range.
    if member.instance_id is None:
        return True, member.member_id
    return False, member.instance_id
