"""The consumer group protocol: a heartbeat joins, keeps alive, confirms and leaves; the coordinator assigns.

Each heartbeat takes a member one step further. Whatever changes the group raises its epoch; a new epoch gets
a new target, the assignment that all are to reach; and each member goes from what it has to its target at its
own pace, giving up first. Nobody gets a partition that another may still be reading.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final, get_args

from moldau.coordinator.group.classic.group import ClassicGroup
from moldau.coordinator.group.consumer.change import GroupChange
from moldau.coordinator.group.consumer.describe import described
from moldau.coordinator.group.consumer.group import ConsumerGroup, unknown_member
from moldau.coordinator.group.consumer.member import (
    JOINING,
    LEAVING,
    LEAVING_FOR_A_WHILE,
    Member,
    Subscription,
    with_epoch,
    without_epochs,
)
from moldau.coordinator.group.consumer.reconcile import Owned
from moldau.coordinator.group.consumer.regexes import check_regex
from moldau.coordinator.group.consumer.roster import (
    Roster,
    assignors,
    default_assignor,
    group_settings,
)
from moldau.coordinator.group.consumer.sessions import JoinOver, Over, RevocationOver, SessionOver, SyncOver
from moldau.coordinator.group.history import Cause, What
from moldau.coordinator.group.migration import Migration
from moldau.coordinator.group.part import Alarm, Applier, Decider
from moldau.coordinator.group.state import GroupState
from moldau.coordinator.shard import Circumstances, Draft, ShardDecision, Ticket
from moldau.metadata.image import Delta
from moldau.model.decision import Decision
from moldau.model.errors import ErrorCode, KafkaError
from moldau.model.ids import TopicId, TopicName, uuid_to_text
from moldau.model.settings.table import GROUP_CONSUMER_MAX_SIZE
from moldau.wire.message import CoordinatorKey, CoordinatorValue, Request, Response
from moldau.wire.messages import group_records as wire
from moldau.wire.messages.consumer_groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatAssignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupHeartbeatTopicPartitions,
)

Decided = ShardDecision[Response | None]

# From this version on members make their ids themselves (KIP-1082).
_OWN_MEMBER_ID: Final = 1
_UNCHANGED: Final = -1

_LATE: Final[Mapping[type[Over], What]] = {
    SessionOver: What.SESSION_OVER,
    RevocationOver: What.REVOCATION_OVER,
    JoinOver: What.JOIN_OVER,
    SyncOver: What.SYNC_OVER,
}


ConsumerGroupKey = (
    wire.ConsumerGroupMetadataKey
    | wire.ConsumerGroupPartitionMetadataKey
    | wire.ConsumerGroupMemberMetadataKey
    | wire.ConsumerGroupTargetAssignmentMetadataKey
    | wire.ConsumerGroupTargetAssignmentMemberKey
    | wire.ConsumerGroupCurrentMemberAssignmentKey
    | wire.ConsumerGroupRegularExpressionKey
)


class ConsumerProtocol:
    """The part of a group shard that runs consumer groups."""

    def __init__(self, state: GroupState, migration: Migration) -> None:
        self._state = state
        self._migration = migration
        self.roster = Roster(state, migration.downgrade)

    @property
    def deciders(self) -> Mapping[type[Request], Decider]:
        """The heartbeat that does everything, and the question what all look like."""
        return {ConsumerGroupHeartbeatRequest: self.heartbeat, ConsumerGroupDescribeRequest: self.describe}

    @property
    def appliers(self) -> Mapping[type[CoordinatorKey], Applier]:
        """All records of consumer groups."""
        return dict.fromkeys(get_args(ConsumerGroupKey), self.apply)

    @property
    def alarms(self) -> Mapping[type[object], Alarm]:
        """What members may be late with."""
        return dict.fromkeys(_LATE, self.over)

    # ---------------------------------------------------------------------------------- what the log says

    def apply(self, key: ConsumerGroupKey, value: CoordinatorValue | None) -> None:
        """Take in a record; one that takes away what is not there says nothing."""
        group = self._state.groups.get(key.group_id)
        if value is None and isinstance(key, wire.ConsumerGroupMemberMetadataKey):
            self.roster.sessions.forget(key.group_id, key.member_id)
        if value is None and not isinstance(group, ConsumerGroup):
            return
        if not isinstance(group, ConsumerGroup):
            # It was one of another kind, or had nothing but offsets.
            group = self._state.groups[key.group_id] = ConsumerGroup(key.group_id)
        if value is None and isinstance(key, wire.ConsumerGroupMetadataKey):
            self.roster.forget(key.group_id)
            self._state.forget(group)
        else:
            group.apply(key, value)

    def loaded(self, draft: Draft, circumstances: Circumstances) -> None:
        """Expect to hear of every member within its session timeout."""
        for group in self.roster.groups():
            for member in group.members.values():
                self.roster.heard_of(group.group_id, member, circumstances)
                self.roster.watch_revocation(group.group_id, member, circumstances)

    def metadata_changed(self, delta: Delta, draft: Draft, circumstances: Circumstances) -> None:
        """Groups whose topics have changed are assigned anew, and expressions stand for other topics."""
        created = [topic.name for topic in delta.topics_created]
        deleted = [topic.name for topic in delta.topics_deleted]
        changed = [
            change.topic
            for change in delta.partitions_changed
            # Leaders and in-sync replicas come and go, and mean nothing here.
            if change.before is None or change.before.replicas != change.after.replicas
        ]
        for topic in dict.fromkeys((*created, *deleted, *changed)):
            self.roster.metadata_changed(topic)
        if created or deleted:
            for group in self.roster.groups():
                if group.regexes:
                    self._refresh(group, created, draft, circumstances)

    def _refresh(
        self,
        group: ConsumerGroup,
        created: list[TopicName],
        draft: Draft,
        circumstances: Circumstances,
    ) -> None:
        change = GroupChange(group, circumstances.image)
        if change.refresh_regexes(created, circumstances.wall_ms):
            self.roster.raise_epoch(change, Cause(What.TOPICS_CHANGED))
            try:
                self.roster.settle(change, draft, circumstances)
            except KafkaError:
                # More topics match than the log can hold in a record; the group stays with those it had.
                return

    # ------------------------------------------------------------------------------------------ heartbeat

    def heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, ticket: Ticket, circumstances: Circumstances
    ) -> Decided:
        """Join, stay or leave; the reply has the assignment if it may be news."""
        _check(request, ticket.version, assignors(circumstances.settings))
        if self.roster.sessions.is_late(request.group_id, request.member_id, ticket.connection):
            # What it says was true once; the member has sent another heartbeat since.
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "The member uses a newer connection.")
        if request.member_epoch in (LEAVING, LEAVING_FOR_A_WHILE):
            return self._leave(request, circumstances)

        draft = Draft()
        is_joining = request.member_epoch == JOINING
        group, upgrade = self._group(request.group_id, draft, circumstances, is_joining=is_joining)
        member_id = request.member_id or uuid_to_text(circumstances.draws.uuid())
        size_max = circumstances.settings[GROUP_CONSUMER_MAX_SIZE]
        if len(group.members) >= size_max and not _is_known(group, member_id, request.instance_id):
            raise KafkaError(ErrorCode.GROUP_MAX_SIZE_REACHED, f"The group has {size_max} members already.")

        change = GroupChange(group, circumstances.image)
        owned = _owned(request)
        before = _admit(change, request, member_id, owned)
        subscription = _subscription(request, before.subscription, ticket)
        if subscription.interest.regex != before.subscription.interest.regex and subscription.interest.regex:
            check_regex(subscription.interest.regex)
        wants_other_topics = change.put_subscription(member_id, subscription)
        member = self.roster.advance(
            change, member_id, owned, circumstances, wants_other_topics=wants_other_topics
        )

        self.roster.settle(change, draft, circumstances)
        if upgrade is not None:
            self._migration.dismiss(upgrade, draft)
            for each in group.members.values():
                self.roster.heard_of(group.group_id, each, circumstances)
        self.roster.heard_of(group.group_id, member, circumstances)
        self.roster.sessions.heard_over(group.group_id, member_id, ticket.connection)
        if member.current != before.current:
            self.roster.watch_revocation(group.group_id, member, circumstances)

        is_news = is_joining or _is_full(request) or member.current.assigned != before.current.assigned
        interval_ms = group_settings(circumstances, group.group_id).heartbeat_interval_ms
        return draft.decision(_reply(member, interval_ms, with_assignment=is_news))

    def _group(
        self, group_id: str, draft: Draft, circumstances: Circumstances, *, is_joining: bool
    ) -> tuple[ConsumerGroup, ClassicGroup | None]:
        """The group, which somebody who joins may make, and the classic one that it takes the place of."""
        found = self._state.groups.get(group_id)
        if not is_joining or isinstance(found, ConsumerGroup):
            return self.roster.group(group_id), None
        if found is None:
            return ConsumerGroup(group_id), None
        if not isinstance(found, ClassicGroup):
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id!r} is a {found.kind} group.")
        if found.is_empty:
            draft.records += found.tombstones()
            return ConsumerGroup(group_id), None
        group, records = self._migration.upgrade(found, self.roster.hashes, circumstances)
        draft.records += records
        return group, found

    def _leave(self, request: ConsumerGroupHeartbeatRequest, circumstances: Circumstances) -> Decided:
        """Leave for good, or let one's place be kept for as long as a session lasts."""
        group = self.roster.group(request.group_id)
        member = _leaving(group, request)
        draft = Draft()
        if request.member_epoch == LEAVING or request.instance_id is None:
            self.roster.remove(group, {member.member_id: What.LEFT}, draft, circumstances)
        else:
            change = GroupChange(group, circumstances.image)
            # What it had is its successor's from the beginning.
            assigned = with_epoch(without_epochs(member.current.assigned), JOINING)
            away = replace(member.current, epoch=LEAVING_FOR_A_WHILE, assigned=assigned, revoking={})
            change.put_current(member.member_id, away)
            draft.records += change.records
            self.roster.sessions.expect_no_more(RevocationOver, group.group_id, member.member_id)
        return draft.decision(
            ConsumerGroupHeartbeatResponse(
                throttle_time_ms=0,
                error_code=ErrorCode.NONE,
                member_id=request.member_id,
                member_epoch=request.member_epoch,
                heartbeat_interval_ms=0,
            )
        )

    # ------------------------------------------------------------------------------ when a member is late

    def over(self, over: Over, draft: Draft, circumstances: Circumstances) -> None:
        """Cast a member out that did not do in time what it had to do."""
        group = self._state.groups.get(over.group_id)
        if isinstance(group, ConsumerGroup) and over.member_id in group.members:
            self.roster.remove(group, {over.member_id: _LATE[type(over)]}, draft, circumstances)

    # ----------------------------------------------------------------------------------------- describing

    def describe(
        self, request: ConsumerGroupDescribeRequest, ticket: Ticket, circumstances: Circumstances
    ) -> Decided:
        """The groups that were asked for, each with its own error."""
        assignor = default_assignor(circumstances.settings)
        return Decision(
            ConsumerGroupDescribeResponse(
                throttle_time_ms=0,
                groups=[
                    described(group_id, self._state.groups.get(group_id), assignor, circumstances.image)
                    for group_id in request.group_ids
                ],
            )
        )


# ------------------------------------------------------------------------------- who may send a heartbeat


def _check(request: ConsumerGroupHeartbeatRequest, version: int, assignor_names: list[str]) -> None:
    """INVALID_REQUEST or UNSUPPORTED_ASSIGNOR for what no group could grant."""
    epoch = request.member_epoch
    wrong = None
    if not request.group_id.strip():
        wrong = "The group id is empty."
    elif not request.member_id.strip() and (version >= _OWN_MEMBER_ID or epoch > 0 or epoch == LEAVING):
        wrong = "The member id is empty."
    elif request.instance_id is not None and not request.instance_id.strip():
        wrong = "The instance id is empty."
    elif request.rack_id is not None and not request.rack_id.strip():
        wrong = "The rack id is empty."
    elif epoch < LEAVING_FOR_A_WHILE:
        wrong = f"There is no epoch {epoch}."
    elif epoch == LEAVING_FOR_A_WHILE and request.instance_id is None:
        wrong = "Only a static member leaves for a while."
    elif epoch == JOINING:
        if request.rebalance_timeout_ms == _UNCHANGED:
            wrong = "Who joins must say its rebalance timeout."
        elif request.topic_partitions is None or request.topic_partitions:
            wrong = "Who joins has no partitions, and must say so."
        elif request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
            wrong = "Who joins must say what it subscribes to."
    if wrong is not None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, wrong)
    if request.server_assignor is not None and request.server_assignor not in assignor_names:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"There is no assignor {request.server_assignor!r}; there are {', '.join(assignor_names)}.",
        )


def _is_known(group: ConsumerGroup, member_id: str, instance_id: str | None) -> bool:
    return member_id in group.members or group.static_member(instance_id) is not None


def _admit(
    change: GroupChange, request: ConsumerGroupHeartbeatRequest, member_id: str, owned: Owned | None
) -> Member:
    """Who sends the heartbeat, as known so far; KafkaError unless it may."""
    group = change.group
    is_joining = request.member_epoch == JOINING
    if request.instance_id is not None:
        holder = group.static_member(request.instance_id)
        if not is_joining:
            check_instance(group, holder, member_id, request.instance_id)
        elif holder is not None and holder.member_id != member_id:
            if not holder.is_classic and holder.current.epoch != LEAVING_FOR_A_WHILE:
                raise KafkaError(
                    ErrorCode.UNRELEASED_INSTANCE_ID,
                    f"{holder.member_id!r} is {request.instance_id!r}, and has not left.",
                )
            change.succeed(holder, member_id)
            return change.member(member_id)
    known = group.members.get(member_id)
    if known is None:
        if not is_joining:
            raise unknown_member(group.group_id, member_id)
        return Member(member_id)
    _check_epoch(known, request.member_epoch, owned)
    return known


def _check_epoch(member: Member, epoch: int, owned: Owned | None) -> None:
    """FENCED_MEMBER_EPOCH unless the member joins, or is in its epoch, or may not have heard of it yet."""
    current = member.current
    if epoch in (JOINING, current.epoch):
        return
    if epoch < current.epoch and epoch == current.previous_epoch and owned is not None:
        # The reply may have been lost, if the member has nothing but what it was given.
        is_within = all(
            partition in current.assigned.get(topic_id, ())
            for topic_id, partitions in owned.items()
            for partition in partitions
        )
        if is_within:
            return
    raise KafkaError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The member is in epoch {current.epoch}, and came with {epoch}: give up everything and join again.",
    )


def check_instance(group: ConsumerGroup, holder: Member | None, member_id: str, instance_id: str) -> Member:
    """The static member; KafkaError if there is none, or another process has taken its place."""
    if holder is None:
        raise KafkaError(
            ErrorCode.UNKNOWN_MEMBER_ID, f"Group {group.group_id!r} has no instance {instance_id!r}."
        )
    if holder.member_id != member_id:
        raise KafkaError(
            ErrorCode.FENCED_INSTANCE_ID, f"{instance_id!r} is {holder.member_id!r} now, not {member_id!r}."
        )
    return holder


def _leaving(group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest) -> Member:
    if request.instance_id is not None:
        holder = group.static_member(request.instance_id)
        return check_instance(group, holder, request.member_id, request.instance_id)
    member = group.members.get(request.member_id)
    if member is None:
        raise unknown_member(group.group_id, request.member_id)
    return member


# ---------------------------------------------------------------------------------- what a heartbeat says


def _owned(request: ConsumerGroupHeartbeatRequest) -> dict[TopicId, dict[int, None]] | None:
    if request.topic_partitions is None:
        return None
    return {
        TopicId(topic.topic_id): dict.fromkeys(topic.partitions)
        for topic in request.topic_partitions
        if topic.partitions
    }


def _subscription(
    request: ConsumerGroupHeartbeatRequest, before: Subscription, ticket: Ticket
) -> Subscription:
    """What the member says of itself now; what it does not say has not changed."""
    interest = before.interest
    if request.subscribed_topic_names is not None:
        interest = interest._replace(topics=tuple(sorted({*map(TopicName, request.subscribed_topic_names)})))
    if request.subscribed_topic_regex is not None:
        interest = interest._replace(regex=request.subscribed_topic_regex)
    timeout_ms = request.rebalance_timeout_ms
    return Subscription(
        interest=interest,
        instance_id=before.instance_id if request.instance_id is None else request.instance_id,
        rack_id=before.rack_id if request.rack_id is None else request.rack_id,
        client_id=ticket.client_id,
        client_host=ticket.client_host,
        rebalance_timeout_ms=before.rebalance_timeout_ms if timeout_ms == _UNCHANGED else timeout_ms,
        assignor=before.assignor if request.server_assignor is None else request.server_assignor,
    )


def _is_full(request: ConsumerGroupHeartbeatRequest) -> bool:
    """Whether the member says everything, as it does after it was not answered."""
    is_subscribed = request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None
    return (
        is_subscribed and request.rebalance_timeout_ms != _UNCHANGED and request.topic_partitions is not None
    )


def _reply(
    member: Member, heartbeat_interval_ms: int, *, with_assignment: bool
) -> ConsumerGroupHeartbeatResponse:
    assignment = None
    if with_assignment:
        assignment = ConsumerGroupHeartbeatAssignment(
            topic_partitions=[
                ConsumerGroupHeartbeatTopicPartitions(topic_id=topic_id, partitions=list(epochs))
                for topic_id, epochs in member.current.assigned.items()
            ]
        )
    return ConsumerGroupHeartbeatResponse(
        throttle_time_ms=0,
        error_code=ErrorCode.NONE,
        member_id=member.member_id,
        member_epoch=member.current.epoch,
        heartbeat_interval_ms=heartbeat_interval_ms,
        assignment=assignment,
    )
