"""What the parts of a group shard share: the groups of all kinds, their offsets and their deadlines."""

from __future__ import annotations

from moldau.coordinator.group.classic.group import ClassicGroup
from moldau.coordinator.group.committed import CommittedOffsets
from moldau.coordinator.group.group import Group
from moldau.coordinator.timers import Timers
from moldau.model.errors import ErrorCode, KafkaError


class GroupState:
    """The groups of one partition of `__consumer_offsets`."""

    __slots__ = ("groups", "offsets", "timers")

    def __init__(self) -> None:
        self.groups: dict[str, Group] = {}
        self.offsets = CommittedOffsets()
        self.timers: Timers[object] = Timers()

    def group(self, group_id: str) -> Group:
        """The group of any kind; GROUP_ID_NOT_FOUND if there is none."""
        group = self.groups.get(group_id)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        return group

    def forget(self, group: Group) -> None:
        """Take a group away; if there are offsets, one is left in its place that has only those."""
        group_id = group.group_id
        if self.offsets.of_group(group_id) or self.offsets.pending(group_id):
            self.groups[group_id] = ClassicGroup(group_id)
        else:
            del self.groups[group_id]
