"""What the parts of a group shard share: the groups of all kinds, their offsets and their deadlines."""

from __future__ import annotations

from moldau.coordinator.group.classic.group import ClassicGroup
from moldau.coordinator.group.committed import CommittedOffsets
from moldau.coordinator.group.group import Group
from moldau.coordinator.group.history import Histories
from moldau.coordinator.timers import Timers
from moldau.model.errors import ErrorCode, KafkaError


class GroupState:
    """The groups of one partition of `__consumer_offsets`."""

    __slots__ = ("groups", "histories", "offsets", "timers")

    def __init__(self) -> None:
        self.groups: dict[str, Group] = {}
        self.histories = Histories()
        self.offsets = CommittedOffsets()
        self.timers: Timers[object] = Timers()

    def group(self, group_id: str) -> Group:
        """The group of any kind; GROUP_ID_NOT_FOUND if there is none."""
        group = self.groups.get(group_id)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        return group

    def forget(self, group: Group, *, is_moved: bool = False) -> None:
        """Take a group away; if there are offsets, one is left in its place that has only those.

        What is known of a group that is moved to another protocol is still of interest.
        """
        group_id = group.group_id
        if self.offsets.of_group(group_id) or self.offsets.pending(group_id):
            self.groups[group_id] = ClassicGroup(group_id)
        else:
            del self.groups[group_id]
        if not is_moved:
            self.histories.forget(group_id)
