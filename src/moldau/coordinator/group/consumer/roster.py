"""The consumer groups of a shard, with what is known of them that is in no log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from moldau.coordinator.group.assignors import ASSIGNORS
from moldau.coordinator.group.consumer.change import GroupChange
from moldau.coordinator.group.consumer.group import ConsumerGroup
from moldau.coordinator.group.consumer.hashing import TopicHashes
from moldau.coordinator.group.consumer.member import Member, MemberState
from moldau.coordinator.group.consumer.reconcile import Owned
from moldau.coordinator.group.consumer.records import check_sizes
from moldau.coordinator.group.consumer.sessions import RevocationOver, SessionOver, Sessions
from moldau.coordinator.group.group import Group
from moldau.coordinator.group.history import Cause, What, person
from moldau.coordinator.group.state import GroupState
from moldau.coordinator.shard import Circumstances, Draft
from moldau.model.errors import ErrorCode, KafkaError
from moldau.model.settings.resolve import Settings
from moldau.model.settings.setting import Setting
from moldau.model.settings.table import (
    CONSUMER_ASSIGNMENT_INTERVAL_MS,
    CONSUMER_HEARTBEAT_INTERVAL_MS,
    CONSUMER_SESSION_TIMEOUT_MS,
    GROUP_CONSUMER_ASSIGNORS,
    GROUP_CONSUMER_MAX_ASSIGNMENT_INTERVAL_MS,
    GROUP_CONSUMER_MAX_HEARTBEAT_INTERVAL_MS,
    GROUP_CONSUMER_MAX_SESSION_TIMEOUT_MS,
    GROUP_CONSUMER_MIN_ASSIGNMENT_INTERVAL_MS,
    GROUP_CONSUMER_MIN_HEARTBEAT_INTERVAL_MS,
    GROUP_CONSUMER_MIN_SESSION_TIMEOUT_MS,
)


class Downgrade(Protocol):
    """What a group becomes when only classic members are left in it."""

    def __call__(
        self, group: ConsumerGroup, leaving: Mapping[str, What], draft: Draft, circumstances: Circumstances
    ) -> bool:
        """Make it a classic group, if that may be; False if it stays what it is."""
        ...


class Roster:
    """The consumer groups of a shard, their sessions and their recent past."""

    def __init__(self, state: GroupState, downgrade: Downgrade) -> None:
        self._state = state
        self._downgrade = downgrade
        self.sessions = Sessions(state.timers)
        self.hashes = TopicHashes()
        # The groups whose topics were compared with the metadata since either has changed.
        self._compared: dict[str, None] = {}

    def any_group(self, group_id: str) -> Group | None:
        """The group of this name, of whatever kind."""
        return self._state.groups.get(group_id)

    def group(self, group_id: str) -> ConsumerGroup:
        """The group; GROUP_ID_NOT_FOUND if there is none of this kind."""
        group = self._state.groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            what = "does not exist" if group is None else "is not a consumer group"
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id!r} {what}.")
        return group

    def groups(self) -> Sequence[ConsumerGroup]:
        """All of them."""
        return [group for group in self._state.groups.values() if isinstance(group, ConsumerGroup)]

    # ------------------------------------------------------------------------------ the steps of a change

    def raise_epoch(self, change: GroupChange, *causes: Cause) -> None:
        """Have the group assigned anew if there is a cause, or if its topics may have changed and have."""
        if causes or change.group.group_id not in self._compared:
            change.raise_epoch(self.hashes, *causes)

    def assign(self, change: GroupChange, circumstances: Circumstances) -> None:
        """Make a new target if the group needs one, and the last one is not quite new."""
        if change.epoch <= change.target_epoch:
            return
        made_ms = change.group.target_timestamp_ms
        settings = group_settings(circumstances, change.group.group_id)
        # So many members that come at once are assigned once. The calendar may have been set back since.
        if made_ms and 0 <= circumstances.wall_ms - made_ms < settings.assignment_interval_ms:
            return
        change.make_target(default_assignor(circumstances.settings), circumstances.wall_ms)

    def advance(
        self,
        change: GroupChange,
        member_id: str,
        owned: Owned | None,
        circumstances: Circumstances,
        *,
        wants_other_topics: bool,
    ) -> Member:
        """Bring the group up to date, and a member one step towards what it is to have."""
        group = change.group
        causes = []
        if wants_other_topics:
            what = What.SUBSCRIBED if change.is_known(member_id) else What.JOINED
            causes.append(cause_of(what, change.member(member_id)))
            change.resolve_regexes(circumstances.wall_ms)
        if group.regexes and group.group_id not in self._compared:
            change.refresh_regexes(circumstances.image.topics, circumstances.wall_ms)
        self.raise_epoch(change, *causes)
        self.assign(change, circumstances)
        change.reconcile(member_id, owned, wants_other_topics=wants_other_topics)
        return change.member(member_id)

    def settle(self, change: GroupChange, draft: Draft, circumstances: Circumstances) -> None:
        """The change is decided, unless it is too large to be written."""
        check_sizes(change.records, circumstances.batch_bytes_max)
        group_id = change.group.group_id
        draft.records += change.records
        self._compared[group_id] = None
        if change.causes:
            self._state.histories.add(
                group_id, wall_ms=circumstances.wall_ms, epoch=change.epoch, causes=change.causes
            )

    def watch_revocation(self, group_id: str, member: Member, circumstances: Circumstances) -> None:
        """A member that has just been told to give partitions up has its rebalance timeout for that."""
        if member.current.state is MemberState.UNREVOKED_PARTITIONS and not member.is_classic:
            deadline_ms = circumstances.now_ms + member.subscription.rebalance_timeout_ms
            self.sessions.expect(RevocationOver, group_id, member.member_id, deadline_ms)
        else:
            self.sessions.expect_no_more(RevocationOver, group_id, member.member_id)

    def heard_of(self, group_id: str, member: Member, circumstances: Circumstances) -> None:
        """A member is alive."""
        classic = member.subscription.classic
        timeout_ms = (
            group_settings(circumstances, group_id).session_timeout_ms
            if classic is None
            else classic.session_timeout_ms
        )
        self.sessions.expect(SessionOver, group_id, member.member_id, circumstances.now_ms + timeout_ms)

    def remove(
        self, group: ConsumerGroup, leaving: Mapping[str, What], draft: Draft, circumstances: Circumstances
    ) -> None:
        """Members leave or are cast out; if only classic ones are left, the group becomes a classic one."""
        if not leaving or self._downgrade(group, leaving, draft, circumstances):
            return
        change = GroupChange(group, circumstances.image)
        causes = [cause_of(what, group.members[member_id]) for member_id, what in leaving.items()]
        for member_id in leaving:
            change.remove(member_id)
        if group.regexes:
            change.resolve_regexes(circumstances.wall_ms)
        self.raise_epoch(change, *causes)
        self.settle(change, draft, circumstances)

    # ------------------------------------------------------------------------------------ what it forgets

    def metadata_changed(self, topic: str) -> None:
        """A topic was created, deleted or changed: the next heartbeat looks at groups that read it."""
        self.hashes.forget(topic)
        for group in self.groups():
            if group.group_id in self._compared and group.is_subscribed_to(topic):
                del self._compared[group.group_id]

    def forget(self, group_id: str) -> None:
        """The group is gone."""
        self._compared.pop(group_id, None)


def cause_of(what: What, member: Member) -> Cause:
    """What happened to a member, told to people."""
    said = member.subscription
    who = person(said.instance_id, client_id=said.client_id, host=said.client_host)
    return Cause(what, member.member_id, who)


# ----------------------------------------------------------------------------------------------- settings


class GroupSettings:
    """How a group is run: as it is set for the group, within what the broker allows."""

    __slots__ = ("_broker", "_group")

    def __init__(self, group: Settings, broker: Settings) -> None:
        self._group = group
        self._broker = broker

    @property
    def session_timeout_ms(self) -> int:
        """How long a member may be silent."""
        return self._within(
            CONSUMER_SESSION_TIMEOUT_MS,
            GROUP_CONSUMER_MIN_SESSION_TIMEOUT_MS,
            GROUP_CONSUMER_MAX_SESSION_TIMEOUT_MS,
        )

    @property
    def heartbeat_interval_ms(self) -> int:
        """How often a member says that it is alive."""
        return self._within(
            CONSUMER_HEARTBEAT_INTERVAL_MS,
            GROUP_CONSUMER_MIN_HEARTBEAT_INTERVAL_MS,
            GROUP_CONSUMER_MAX_HEARTBEAT_INTERVAL_MS,
        )

    @property
    def assignment_interval_ms(self) -> int:
        """How far apart two targets are at least."""
        return self._within(
            CONSUMER_ASSIGNMENT_INTERVAL_MS,
            GROUP_CONSUMER_MIN_ASSIGNMENT_INTERVAL_MS,
            GROUP_CONSUMER_MAX_ASSIGNMENT_INTERVAL_MS,
        )

    def _within(self, row: Setting[int], least: Setting[int], most: Setting[int]) -> int:
        return max(self._broker[least], min(self._group[row], self._broker[most]))


def group_settings(circumstances: Circumstances, group_id: str) -> GroupSettings:
    """How this group is run."""
    return GroupSettings(circumstances.around.group_settings(group_id), circumstances.settings)


def assignors(settings: Settings) -> list[str]:
    """The assignors that members may ask for."""
    return [name for name in settings[GROUP_CONSUMER_ASSIGNORS] if name in ASSIGNORS]


def default_assignor(settings: Settings) -> str:
    """The one that is taken if nobody asks for any."""
    return next(iter(assignors(settings)), "uniform")
