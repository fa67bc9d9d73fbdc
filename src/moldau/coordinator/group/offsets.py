"""Offsets: members and others commit and read them, and those go that nobody will ask for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from moldau.coordinator.group.classic.group import ClassicGroup
from moldau.coordinator.group.group import Group
from moldau.coordinator.group.part import Alarm, Applier, Decider
from moldau.coordinator.group.records import NO_TIMESTAMP, offset_tombstone
from moldau.coordinator.group.state import GroupState
from moldau.coordinator.shard import (
    Circumstances,
    CoordinatorRecord,
    Draft,
    ShardDecision,
    Ticket,
)
from moldau.coordinator.timers import Timer
from moldau.metadata.image import Delta, Image
from moldau.model.decision import Decision
from moldau.model.errors import ErrorCode, KafkaError
from moldau.model.ids import ZERO_UUID, ProducerId, TopicName, Uuid
from moldau.model.settings.table import (
    MINUTE_MS,
    OFFSET_METADATA_MAX_BYTES,
    OFFSETS_RETENTION_CHECK_INTERVAL_MS,
    OFFSETS_RETENTION_MINUTES,
)
from moldau.wire.message import CoordinatorKey, Request, Response
from moldau.wire.messages.group_records import (
    LegacyOffsetCommitKey,
    LegacyOffsetCommitValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from moldau.wire.messages.groups import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)

NO_OFFSET: Final = -1
NO_EPOCH: Final = -1
_TIMESTAMP_MAX: Final = 2**63 - 1
_DEFAULT_RETENTION: Final = -1
# From this version on a group that is not there is called so, whatever protocol its member speaks.
_GROUP_ID_NOT_FOUND: Final = 9
# How many offsets one look for old ones goes through before others get their turn.
_OFFSETS_PER_LOOK: Final = 2_000


@dataclass(frozen=True, slots=True)
class LookForOldOffsets:
    """It is time to see which offsets have expired."""


class Offsets:
    """The part that commits, reads, deletes and expires offsets of groups of every kind."""

    def __init__(self, state: GroupState) -> None:
        self._state = state
        self._look = Timer[object](LookForOldOffsets())
        self._still_to_look_at: list[str] = []

    @property
    def deciders(self) -> Mapping[type[Request], Decider]:
        """The requests about offsets; topics that do not exist or must not be seen have been taken out."""
        return {
            OffsetCommitRequest: self.commit,
            OffsetFetchRequest: self.fetch,
            OffsetDeleteRequest: self.delete,
        }

    @property
    def appliers(self) -> Mapping[type[CoordinatorKey], Applier]:
        """The records of offsets."""
        return {OffsetCommitKey: self.apply, LegacyOffsetCommitKey: self.apply_legacy}

    @property
    def alarms(self) -> Mapping[type[object], Alarm]:
        """The time to look for old offsets."""
        return {LookForOldOffsets: self.look_for_old}

    # ------------------------------------------------------------ committing

    def commit(
        self, request: OffsetCommitRequest, ticket: Ticket, circumstances: Circumstances
    ) -> ShardDecision[Response | None]:
        """Commit offsets for a member, or for anybody if the group has no members."""
        group_id, epoch = request.group_id, request.generation_id_or_member_epoch
        group = self._state.groups.get(group_id)
        check = None
        if group is not None:
            check = group.check_commit(
                member_id=request.member_id,
                instance_id=request.group_instance_id,
                epoch=epoch,
                is_transactional=False,
                version=ticket.version,
            )
        elif epoch >= 0:
            # Without an epoch it comes from somebody who uses no group management, and the group is made.
            raise KafkaError(
                ErrorCode.GROUP_ID_NOT_FOUND
                if ticket.version >= _GROUP_ID_NOT_FOUND
                else ErrorCode.ILLEGAL_GENERATION
            )
        records: list[CoordinatorRecord] = []
        topics = []
        wall_ms = circumstances.wall_ms
        note_length_max = circumstances.settings[OFFSET_METADATA_MAX_BYTES]
        retention_ms = request.retention_time_ms
        expires_ms = NO_TIMESTAMP
        if retention_ms != _DEFAULT_RETENTION:
            expires_ms = min(wall_ms + retention_ms, _TIMESTAMP_MAX)
        for topic in request.topics:
            name, topic_id = topic.name, topic.topic_id
            partitions = []
            for each in topic.partitions:
                index, note = each.partition_index, each.committed_metadata
                if note is not None and len(note) > note_length_max:
                    partitions.append(
                        OffsetCommitResponsePartition(
                            partition_index=index, error_code=ErrorCode.OFFSET_METADATA_TOO_LARGE
                        )
                    )
                    continue
                if check is not None:
                    check(name, topic_id, index)
                partitions.append(OffsetCommitResponsePartition(partition_index=index, error_code=0))
                records.append(
                    CoordinatorRecord(
                        OffsetCommitKey(group=group_id, topic=name, partition=index),
                        OffsetCommitValue(
                            offset=each.committed_offset,
                            leader_epoch=each.committed_leader_epoch,
                            metadata=note or "",
                            commit_timestamp=wall_ms,
                            expire_timestamp=expires_ms,
                            topic_id=topic_id,
                        ),
                    )
                )
            topics.append(OffsetCommitResponseTopic(name=name, topic_id=topic_id, partitions=partitions))
        if group is not None:
            group.heard_of(request.member_id, circumstances.now_ms)
        return Decision(OffsetCommitResponse(topics=topics), tuple(records))

    # ------------------------------------------------------------ reading

    def fetch(
        self, request: OffsetFetchRequest, ticket: Ticket, circumstances: Circumstances
    ) -> ShardDecision[Response | None]:
        """The offsets of groups of this shard, in the form of version 8 and later."""
        image, require_stable = circumstances.image, request.require_stable
        groups = [self._fetch_group(each, image, require_stable) for each in request.groups]
        return Decision(OffsetFetchResponse(groups=groups))

    def _fetch_group(
        self, wanted: OffsetFetchRequestGroup, image: Image, require_stable: bool
    ) -> OffsetFetchResponseGroup:
        group = self._state.groups.get(wanted.group_id)
        if group is not None:
            try:
                group.check_fetch(member_id=wanted.member_id, member_epoch=wanted.member_epoch)
            except KafkaError as error:
                return OffsetFetchResponseGroup(group_id=wanted.group_id, topics=[], error_code=error.code)
        topics = self._all_topics(wanted.group_id, image) if wanted.topics is None else wanted.topics
        return OffsetFetchResponseGroup(
            group_id=wanted.group_id,
            topics=[self._fetch_topic(wanted.group_id, topic, image, require_stable) for topic in topics],
        )

    def _all_topics(self, group_id: str, image: Image) -> list[OffsetFetchRequestTopics]:
        topics = []
        for name, partitions in self._state.offsets.of_group(group_id).items():
            topic_id = _id_now(name, image)
            indexes = [at for at, value in partitions.items() if not _is_of_another(value.topic_id, topic_id)]
            if indexes:
                topics.append(OffsetFetchRequestTopics(name=name, partition_indexes=sorted(indexes)))
        return topics

    def _fetch_topic(
        self, group_id: str, topic: OffsetFetchRequestTopics, image: Image, require_stable: bool
    ) -> OffsetFetchResponseTopics:
        topic_id = topic.topic_id
        if topic_id == ZERO_UUID:
            # Who asks by name means the topic that has it now, which may not be the one that was read.
            topic_id = _id_now(topic.name, image)
        offsets = self._state.offsets
        found = offsets.of_group(group_id).get(topic.name, {})
        partitions = []
        for index in topic.partition_indexes:
            value = found.get(index)
            if require_stable and offsets.is_pending(group_id, topic.name, index):
                partitions.append(_no_offset(index, ErrorCode.UNSTABLE_OFFSET_COMMIT))
            elif value is None or _is_of_another(value.topic_id, topic_id):
                partitions.append(_no_offset(index, ErrorCode.NONE))
            else:
                partitions.append(
                    OffsetFetchResponsePartitions(
                        partition_index=index,
                        committed_offset=value.offset,
                        committed_leader_epoch=value.leader_epoch,
                        metadata=value.metadata,
                        error_code=0,
                    )
                )
        return OffsetFetchResponseTopics(name=topic.name, topic_id=topic.topic_id, partitions=partitions)

    # ------------------------------------------------------------ deleting

    def delete(
        self, request: OffsetDeleteRequest, ticket: Ticket, circumstances: Circumstances
    ) -> ShardDecision[Response | None]:
        """Forget offsets of topics that no member reads."""
        group = self._state.group(request.group_id)
        group.check_offset_deletion()
        draft = Draft()
        topics = [self._delete_topic(group, topic, draft) for topic in request.topics]
        return draft.decision(
            OffsetDeleteResponse(error_code=ErrorCode.NONE, throttle_time_ms=0, topics=topics)
        )

    def _delete_topic(
        self, group: Group, topic: OffsetDeleteRequestTopic, draft: Draft
    ) -> OffsetDeleteResponseTopic:
        group_id, name = group.group_id, topic.name
        is_subscribed = group.is_subscribed_to(name)
        if not is_subscribed:
            found = self._state.offsets.of_group(group_id).get(name, {})
            draft.records += (
                offset_tombstone(group_id, topic=name, partition=each.partition_index)
                for each in topic.partitions
                if each.partition_index in found
                or self._state.offsets.is_pending(group_id, name, each.partition_index)
            )
        code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if is_subscribed else ErrorCode.NONE
        return OffsetDeleteResponseTopic(
            name=name,
            partitions=[
                OffsetDeleteResponsePartition(partition_index=each.partition_index, error_code=code)
                for each in topic.partitions
            ],
        )

    # ------------------------------------------------------------ what the log says

    def apply(self, key: OffsetCommitKey, value: OffsetCommitValue | None) -> None:
        """A commit, or the end of one; a group that only commits is there as long as its offsets are."""
        groups = self._state.groups
        self._state.offsets.apply(key, value)
        group = groups.get(key.group)
        if value is not None and group is None:
            groups[key.group] = ClassicGroup(key.group)
        elif value is None and isinstance(group, ClassicGroup) and group.is_unheard_of:
            self._state.forget(group)

    def apply_legacy(self, key: LegacyOffsetCommitKey, value: LegacyOffsetCommitValue | None) -> None:
        """A commit as Kafka 0.8.2 wrote it."""
        newer = None
        if value is not None:
            newer = OffsetCommitValue(
                offset=value.offset, metadata=value.metadata, commit_timestamp=value.commit_timestamp
            )
        self.apply(OffsetCommitKey(group=key.group, topic=key.topic, partition=key.partition), newer)

    def stage(self, key: OffsetCommitKey, value: OffsetCommitValue, producer_id: ProducerId) -> None:
        """A commit that counts once its transaction does."""
        self._state.offsets.stage(key, value, producer_id)
        if key.group not in self._state.groups:
            self._state.groups[key.group] = ClassicGroup(key.group)

    def end_transaction(self, producer_id: ProducerId, *, is_commit: bool) -> None:
        """Commit or drop what a transaction has staged."""
        for group_id in self._state.offsets.end_transaction(producer_id, is_commit=is_commit):
            group = self._state.groups[group_id]
            if isinstance(group, ClassicGroup) and group.is_unheard_of:
                self._state.forget(group)

    # ------------------------------------------------------------ expiring

    def loaded(self, draft: Draft, circumstances: Circumstances) -> None:
        """Look for old offsets from time to time."""
        self._look_again(circumstances)

    def metadata_changed(self, delta: Delta, draft: Draft, circumstances: Circumstances) -> None:
        """Forget the offsets in topics that are gone; one that was created anew keeps those of its own."""
        if not delta.topics_deleted:
            return
        deleted = {str(topic.name): topic.id for topic in delta.topics_deleted}
        offsets = self._state.offsets
        for group_id, topic in offsets.groups_of_topics(deleted):
            draft.records += (
                offset_tombstone(group_id, topic=topic, partition=partition)
                for partition, value in offsets.of_group(group_id)[topic].items()
                if not _is_of_another(value.topic_id, deleted[topic])
            )
        draft.records += (
            offset_tombstone(place.group_id, topic=place.topic, partition=place.partition)
            for place, value in offsets.pending_in(deleted)
            if not _is_of_another(value.topic_id, deleted[place.topic])
        )

    def look_for_old(self, _: LookForOldOffsets, draft: Draft, circumstances: Circumstances) -> None:
        """Go through some groups, and the next time through more, until all have been looked at."""
        waiting = self._still_to_look_at
        if not waiting:
            waiting += reversed(self._state.groups)
        looked_at = 0
        while waiting and looked_at < _OFFSETS_PER_LOOK:
            group = self._state.groups.get(waiting.pop())
            if group is not None and group.expires:
                looked_at += 1 + self._expire(group, draft, circumstances)
        if waiting:
            self._state.timers.set(self._look, circumstances.now_ms)
        else:
            self._look_again(circumstances)

    def _look_again(self, circumstances: Circumstances) -> None:
        interval_ms = circumstances.settings[OFFSETS_RETENTION_CHECK_INTERVAL_MS]
        self._state.timers.set(self._look, circumstances.now_ms + interval_ms)

    def _expire(self, group: Group, draft: Draft, circumstances: Circumstances) -> int:
        """Forget the old offsets of a group, and the group if none are left; how many it had."""
        group_id, offsets = group.group_id, self._state.offsets
        retention_ms = circumstances.settings[OFFSETS_RETENTION_MINUTES] * MINUTE_MS
        count = kept = 0
        for topic, partitions in offsets.of_group(group_id).items():
            count += len(partitions)
            if group.is_subscribed_to(topic):
                kept += len(partitions)
                continue
            for partition, value in partitions.items():
                if _is_old(group, value, circumstances.wall_ms, retention_ms) and not offsets.is_pending(
                    group_id, topic, partition
                ):
                    draft.records.append(offset_tombstone(group_id, topic=topic, partition=partition))
                else:
                    kept += 1
        if not kept and group.is_empty and not offsets.pending(group_id):
            draft.records += group.tombstones()
        return count


def _is_old(group: Group, value: OffsetCommitValue, wall_ms: int, retention_ms: int) -> bool:
    begins_ms = group.retention_begins_ms(value.commit_timestamp)
    if begins_ms is None:
        return False
    if value.expire_timestamp != NO_TIMESTAMP:
        return wall_ms >= value.expire_timestamp
    return wall_ms - begins_ms >= retention_ms


def _id_now(topic: str, image: Image) -> Uuid:
    known = image.topics.get(TopicName(topic))
    return ZERO_UUID if known is None else known.id


def _is_of_another(topic_id: Uuid, wanted: Uuid) -> bool:
    """Whether both are known, and name different topics."""
    return topic_id != wanted and ZERO_UUID not in (topic_id, wanted)


def _no_offset(index: int, code: ErrorCode) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(
        partition_index=index,
        committed_offset=NO_OFFSET,
        committed_leader_epoch=NO_EPOCH,
        metadata="",
        error_code=code,
    )
