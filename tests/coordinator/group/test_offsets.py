import pytest
from coordinator.group.live import GROUP, Live, subscription

from moldau.coordinator.shard import CoordinatorRecord
from moldau.metadata.image import Delta, Topic
from moldau.model.errors import ErrorCode
from moldau.model.ids import ProducerId, TopicId, TopicName, Uuid
from moldau.wire.messages.group_records import (
    GroupMetadataKey,
    LegacyOffsetCommitKey,
    LegacyOffsetCommitValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
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
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponsePartitions,
)

NONE = ErrorCode.NONE
MINUTE_MS = 60_000
ID, OTHER_ID = Uuid(bytes(15) + b"\1"), Uuid(bytes(15) + b"\2")


def fetch(
    live: Live,
    topic: str,
    partition: int,
    *,
    topic_id: Uuid | None = None,
    require_stable: bool = False,
    group_id: str = GROUP,
) -> OffsetFetchResponsePartitions:
    wanted = OffsetFetchRequestTopics(name=topic, partition_indexes=[partition])
    if topic_id is not None:
        wanted.topic_id = topic_id
    asked = live.ask(
        OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(group_id=group_id, topics=[wanted])],
            require_stable=require_stable,
        )
    )
    (group,) = asked.reply(OffsetFetchResponse).groups
    (of_topic,) = group.topics
    return of_topic.partitions[0]


# --------------------------------------------------------------------------------------------- committing


def test_what_is_committed_comes_back_with_its_note_and_its_epoch() -> None:
    live = Live()
    assert live.commit({("t", 3): 42}, note="déjà vu", epoch=7) is NONE
    live.reload()
    found = fetch(live, "t", 3)
    assert (found.committed_offset, found.committed_leader_epoch, found.metadata) == (42, 7, "déjà vu")


def test_a_null_note_is_an_empty_one() -> None:
    live = Live()
    live.commit({("t", 0): 1}, note=None)
    assert fetch(live, "t", 0).metadata == ""


@pytest.mark.honours("offset.metadata.max.bytes")
def test_a_note_that_is_too_long_fails_its_partition_alone() -> None:
    live = Live({"offset.metadata.max.bytes": "10"})
    asked = live.ask(
        OffsetCommitRequest(
            group_id=GROUP,
            member_id="",
            topics=[
                OffsetCommitRequestTopic(
                    name="t",
                    partitions=[
                        OffsetCommitRequestPartition(
                            partition_index=index, committed_offset=1, committed_metadata="x" * length
                        )
                        for index, length in enumerate((10, 11))
                    ],
                )
            ],
        )
    )
    (topic,) = asked.reply(OffsetCommitResponse).topics
    assert [each.error_code for each in topic.partitions] == [NONE, ErrorCode.OFFSET_METADATA_TOO_LARGE]
    assert live.committed() == {("t", 0): 1}


def test_anybody_may_commit_for_a_group_without_members() -> None:
    live = Live()
    assert live.commit({("t", 0): 1}) is NONE
    assert live.state == "Empty"
    (member,) = live.stable("a")
    assert live.commit({("t", 0): 2}) is ErrorCode.UNKNOWN_MEMBER_ID
    live.leave(member)
    assert live.commit({("t", 0): 3}) is NONE


def test_members_commit_in_their_generation_also_while_others_join() -> None:
    live = Live()
    leader, follower = live.stable("a", "b")
    assert live.commit({("t", 0): 1}, member_id=leader, generation=1) is NONE
    assert live.commit({("t", 0): 1}, member_id=leader, generation=0) is ErrorCode.ILLEGAL_GENERATION
    assert live.commit({("t", 0): 1}, member_id="x", generation=1) is ErrorCode.UNKNOWN_MEMBER_ID
    live.join(leader)
    assert live.commit({("t", 0): 2}, member_id=follower, generation=1) is NONE
    live.join(follower)
    assert live.state == "CompletingRebalance"
    assert live.commit({("t", 0): 3}, member_id=follower, generation=1) is ErrorCode.ILLEGAL_GENERATION
    assert live.commit({("t", 0): 3}, member_id=follower, generation=2) is ErrorCode.REBALANCE_IN_PROGRESS
    assert live.committed() == {("t", 0): 2}


@pytest.mark.parametrize(
    ("version", "code"), [(8, ErrorCode.ILLEGAL_GENERATION), (9, ErrorCode.GROUP_ID_NOT_FOUND)]
)
def test_a_member_of_a_group_that_is_not_there_cannot_commit(version: int, code: ErrorCode) -> None:
    assert Live().commit({("t", 0): 1}, member_id="m", generation=1, version=version) is code


def test_a_commit_is_as_good_as_a_heartbeat() -> None:
    live = Live()
    (member,) = live.stable("a", session_timeout_ms=10_000)
    for _ in range(4):
        live.wait(9_000)
        assert live.commit({("t", 0): 1}, member_id=member, generation=1) is NONE
    live.wait(10_000)
    assert live.commit({("t", 0): 1}, member_id=member, generation=1) is ErrorCode.UNKNOWN_MEMBER_ID


# ------------------------------------------------------------------------------------------------ reading


def test_what_was_never_committed_is_no_error() -> None:
    live = Live()
    live.commit({("t", 0): 1})
    for found in (fetch(live, "t", 1), fetch(live, "u", 0), fetch(live, "t", 0, group_id="other")):
        assert (found.committed_offset, found.error_code, found.metadata) == (-1, NONE, "")
        assert found.committed_leader_epoch == -1


def test_all_offsets_of_several_groups_can_be_read_at_once() -> None:
    live = Live()
    live.commit({("t", 0): 1, ("u", 5): 2}, group_id="one")
    live.commit({("t", 0): 3}, group_id="two")
    asked = live.ask(
        OffsetFetchRequest(
            groups=[
                OffsetFetchRequestGroup(group_id=group_id, topics=None) for group_id in ("one", "two", "none")
            ]
        )
    )
    groups = asked.reply(OffsetFetchResponse).groups
    assert [(group.group_id, len(group.topics)) for group in groups] == [("one", 2), ("two", 1), ("none", 0)]


def test_an_offset_of_another_topic_of_the_same_name_is_none() -> None:
    live = Live()
    live.ask(
        OffsetCommitRequest(
            group_id=GROUP,
            member_id="",
            topics=[
                OffsetCommitRequestTopic(
                    name="t",
                    topic_id=ID,
                    partitions=[
                        OffsetCommitRequestPartition(
                            partition_index=0, committed_offset=9, committed_metadata=""
                        )
                    ],
                )
            ],
        )
    )
    assert fetch(live, "t", 0, topic_id=ID).committed_offset == 9
    assert fetch(live, "t", 0).committed_offset == 9
    assert fetch(live, "t", 0, topic_id=OTHER_ID).committed_offset == -1


# ----------------------------------------------------------------------------------------------- deleting


def delete(live: Live, *places: tuple[str, int]) -> list[ErrorCode] | ErrorCode:
    asked = live.ask(
        OffsetDeleteRequest(
            group_id=GROUP,
            topics=[
                OffsetDeleteRequestTopic(
                    name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=partition)]
                )
                for topic, partition in places
            ],
        )
    )
    if asked.code is not NONE:
        return asked.code
    topics = asked.reply(OffsetDeleteResponse).topics
    return [ErrorCode(each.error_code) for topic in topics for each in topic.partitions]


def test_offsets_are_deleted_where_no_member_reads() -> None:
    live = Live()
    live.commit({("t", 0): 1, ("u", 0): 2, ("u", 1): 3})
    live.stable("a", protocols={"range": subscription("t")})
    assert delete(live, ("t", 0), ("u", 0), ("v", 0)) == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, NONE, NONE]
    assert live.committed() == {("t", 0): 1, ("u", 1): 3}


def test_where_nobody_can_tell_what_members_read_no_offsets_are_deleted() -> None:
    live = Live()
    live.commit({("t", 0): 1})
    asked = live.join_known(protocol_type="connect")
    live.wait(3_000)
    assert asked.joined.error_code == NONE
    assert delete(live, ("t", 0)) is ErrorCode.NON_EMPTY_GROUP


def test_a_consumer_whose_subscription_cannot_be_read_may_read_anything() -> None:
    live = Live()
    live.commit({("t", 0): 1})
    live.stable("a", protocols={"range": b"\0"})
    assert delete(live, ("t", 0)) == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC]


def test_offsets_of_a_group_that_is_not_there_cannot_be_deleted() -> None:
    assert delete(Live(), ("t", 0)) is ErrorCode.GROUP_ID_NOT_FOUND


def test_a_group_that_only_commits_goes_with_its_last_offset() -> None:
    live = Live()
    live.commit({("t", 0): 1})
    assert delete(live, ("t", 0)) == [NONE]
    assert GROUP not in live.shard.state.groups


def test_offsets_go_with_their_topic_and_those_of_the_next_one_stay() -> None:
    live = Live()
    live.commit({("t", 0): 1, ("u", 0): 2})
    live.log.append(
        CoordinatorRecord(
            OffsetCommitKey(group=GROUP, topic="t", partition=1),
            OffsetCommitValue(offset=5, metadata="", commit_timestamp=0, topic_id=OTHER_ID),
        )
    )
    live.shard.apply(live.log[-1])
    live.metadata_changed(Delta(topics_deleted=(Topic(TopicName("t"), TopicId(ID), ()),)))
    assert live.committed() == {("u", 0): 2, ("t", 1): 5}


# ----------------------------------------------------------------------------------------------- expiring

RETENTION = {"offsets.retention.minutes": "10", "offsets.retention.check.interval.ms": str(MINUTE_MS)}


@pytest.mark.honours("offsets.retention.minutes")
def test_offsets_of_a_group_that_only_commits_expire_after_their_last_commit() -> None:
    live = Live(RETENTION)
    live.commit({("t", 0): 1, ("t", 1): 1})
    live.wait(5 * MINUTE_MS)
    live.commit({("t", 1): 2})
    live.wait(5 * MINUTE_MS)
    assert live.committed() == {("t", 1): 2}
    live.wait(5 * MINUTE_MS)
    assert live.committed() == {}
    assert GROUP not in live.shard.state.groups
    live.reload()
    assert GROUP not in live.shard.state.groups


def test_offsets_of_a_group_with_members_expire_after_it_became_empty() -> None:
    live = Live(RETENTION)
    (member,) = live.stable("a", session_timeout_ms=20 * MINUTE_MS)
    live.commit({("t", 0): 1}, member_id=member, generation=1)
    live.wait(19 * MINUTE_MS)
    assert live.committed() == {("t", 0): 1}
    live.leave(member)
    live.wait(9 * MINUTE_MS)
    assert live.committed() == {("t", 0): 1}
    live.wait(2 * MINUTE_MS)
    assert live.committed() == {}
    assert isinstance(live.log[-1].key, GroupMetadataKey)
    assert live.log[-1].value is None


def test_an_active_subscription_protects_offsets_and_no_others() -> None:
    live = Live(RETENTION)
    (member,) = live.stable("a", session_timeout_ms=20 * MINUTE_MS)
    live.commit({("t", 0): 1, ("u", 0): 1}, member_id=member, generation=1)
    live.wait(11 * MINUTE_MS)
    assert live.committed() == {("t", 0): 1}
    assert live.state == "Stable"


def test_while_members_join_no_offsets_expire() -> None:
    live = Live(RETENTION)
    leader, _ = live.stable("a", "b", session_timeout_ms=25 * MINUTE_MS, rebalance_timeout_ms=25 * MINUTE_MS)
    live.commit({("u", 0): 1}, member_id=leader, generation=1)
    live.join(leader, rebalance_timeout_ms=25 * MINUTE_MS)
    live.wait(15 * MINUTE_MS)
    assert live.state == "PreparingRebalance"
    assert live.committed() == {("u", 0): 1}


def test_clients_before_kafka_2_1_choose_when_their_offsets_expire() -> None:
    live = Live(RETENTION)
    live.commit({("t", 0): 1}, retention_ms=2 * MINUTE_MS, version=4)
    live.commit({("t", 1): 1}, retention_ms=30 * MINUTE_MS, version=4)
    live.reload()
    live.wait(3 * MINUTE_MS)
    assert live.committed() == {("t", 1): 1}
    live.wait(20 * MINUTE_MS)
    assert live.committed() == {("t", 1): 1}


def test_an_offset_that_is_to_be_kept_for_ever_and_longer_is_kept() -> None:
    """Found by arbitrary requests: no timestamp is so late, and the broker ended."""
    live = Live(RETENTION)
    assert live.commit({("t", 0): 1}, retention_ms=2**63 - 1, version=4) is ErrorCode.NONE
    value = live.log[-1].value
    assert isinstance(value, OffsetCommitValue)
    assert OffsetCommitValue.decode(value.encode(1), 1).expire_timestamp == 2**63 - 1
    live.reload()
    live.wait(30 * MINUTE_MS)
    assert live.committed() == {("t", 0): 1}


@pytest.mark.honours("offsets.retention.check.interval.ms")
def test_old_offsets_are_looked_for_from_time_to_time() -> None:
    live = Live(RETENTION | {"offsets.retention.check.interval.ms": str(60 * MINUTE_MS)})
    live.commit({("t", 0): 1})
    live.wait(59 * MINUTE_MS)
    assert live.committed() == {("t", 0): 1}
    live.wait(MINUTE_MS)
    assert live.committed() == {}


def test_one_look_does_not_go_through_all_groups() -> None:
    live = Live(RETENTION)
    for number in range(30):
        live.commit({("t", partition): 1 for partition in range(500)}, group_id=f"g{number}")
    live.now_ms += 60 * MINUTE_MS
    decisions = 0
    while (next_ms := live.shard.next_deadline_ms()) is not None and next_ms <= live.now_ms:
        decision = live.shard.deadlines_passed(live.circumstances())
        assert len(decision.records) <= 3_000
        live.carry_out(decision)
        decisions += 1
    assert decisions >= 7
    assert live.shard.state.groups == {}


# ------------------------------------------------------------------------------------- transactions' seam


def staged(topic: str, partition: int, offset: int) -> CoordinatorRecord:
    return CoordinatorRecord(
        OffsetCommitKey(group=GROUP, topic=topic, partition=partition),
        OffsetCommitValue(offset=offset, metadata="", commit_timestamp=0),
    )


P, Q = ProducerId(1), ProducerId(2)


def test_an_offset_in_a_transaction_counts_once_it_is_committed() -> None:
    live = Live()
    live.commit({("t", 0): 1})
    live.shard.apply(staged("t", 0, 2), P)
    assert fetch(live, "t", 0).committed_offset == 1
    assert fetch(live, "t", 0, require_stable=True).error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT
    assert fetch(live, "t", 1, require_stable=True).error_code == NONE
    live.shard.end_transaction(P, is_commit=True)
    assert fetch(live, "t", 0, require_stable=True).committed_offset == 2


def test_an_offset_in_an_aborted_transaction_never_was() -> None:
    live = Live()
    live.shard.apply(staged("t", 0, 2), P)
    assert GROUP in live.shard.state.groups
    live.shard.end_transaction(P, is_commit=False)
    assert live.committed() == {}
    assert GROUP not in live.shard.state.groups
    live.shard.end_transaction(P, is_commit=False)


def test_of_a_transaction_and_a_plain_commit_the_later_record_wins() -> None:
    live = Live()
    live.shard.apply(staged("t", 0, 2), P)
    live.shard.apply(staged("t", 0, 3), Q)
    live.commit({("t", 0): 4})
    live.shard.apply(staged("t", 0, 5), Q)
    live.shard.end_transaction(P, is_commit=True)
    assert fetch(live, "t", 0).committed_offset == 4
    live.shard.end_transaction(Q, is_commit=True)
    assert fetch(live, "t", 0).committed_offset == 5


def test_deleting_reaches_what_open_transactions_have_staged() -> None:
    live = Live()
    live.shard.apply(staged("t", 0, 2), P)
    live.shard.apply(staged("u", 0, 2), P)
    assert delete(live, ("t", 0)) == [NONE]
    live.metadata_changed(Delta(topics_deleted=(Topic(TopicName("u"), TopicId(ID), ()),)))
    live.shard.end_transaction(P, is_commit=True)
    assert live.committed() == {}


# --------------------------------------------------------------------------------------------- old records


def test_offsets_as_kafka_0_8_2_wrote_them_are_read() -> None:
    live = Live()
    key = LegacyOffsetCommitKey(group=GROUP, topic="t", partition=0)
    value = LegacyOffsetCommitValue(offset=5, metadata="old", commit_timestamp=1)
    live.shard.apply(CoordinatorRecord(key, value))
    assert fetch(live, "t", 0).metadata == "old"
    live.shard.apply(CoordinatorRecord(key, None))
    assert live.committed() == {}
