"""What clients depend on in groups: the classic protocol, offsets, and the groups themselves."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from node.broker import TOPIC, Broker, answer, batch
from node.members import (
    COMMIT_VERSION,
    GROUP,
    OFFSETS_TOPIC,
    Member,
    assign,
    commit,
    commit_code,
    commit_request,
    committed,
    committed_group,
    find_coordinator,
    stable,
    until,
)

from moldau.model.errors import ErrorCode
from moldau.model.ids import TopicId, Uuid
from moldau.wire.messages import ApiKey
from moldau.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from moldau.wire.messages.groups import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    ListGroupsRequest,
    ListGroupsResponse,
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
from moldau.wire.messages.topics import DeleteTopicsRequest

NONE = ErrorCode.NONE
MINUTE_MS = 60_000
UNKNOWN_ID = TopicId(Uuid(bytes(15) + b"x"))


@pytest.fixture
def broker() -> Iterator[Broker]:
    # Few partitions, so that it starts quickly.
    with Broker({"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "5"}) as made:
        made.create_topic(partitions=10)
        find_coordinator(made)
        yield made


def subscription(*topics: str) -> bytes:
    names = b"".join(len(topic).to_bytes(2, "big") + topic.encode() for topic in topics)
    return b"\0\0" + len(topics).to_bytes(4, "big") + names + b"\xff\xff\xff\xff"


# ------------------------------------------------------------------------------------- finding coordinators


@pytest.mark.behaviour(9)
def test_the_oldest_versions_are_there_for_those_who_look_for_them(broker: Broker) -> None:
    request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
    versions = answer(broker.ask(request), ApiVersionsResponse).api_keys
    ranges = {each.api_key: (each.min_version, each.max_version) for each in versions}
    assert ranges[ApiKey.JOIN_GROUP] == (0, 9)
    assert ranges[ApiKey.OFFSET_COMMIT] == (2, 10)
    assert ranges[ApiKey.OFFSET_FETCH] == (1, 10)
    assert ranges[ApiKey.FIND_COORDINATOR] == (0, 6)
    member = Member(broker, version=0)
    assert member.join().error_code == NONE


@pytest.mark.parametrize("version", range(7))
def test_a_coordinator_is_found_and_its_topic_is_made_for_it(version: int) -> None:
    with Broker() as broker:
        request = FindCoordinatorRequest(key="g", key_type=0)
        if version >= 4:
            request = FindCoordinatorRequest(key_type=0, coordinator_keys=["g", "h"])
        reply = answer(broker.ask(request, version), FindCoordinatorResponse)
        found = reply.coordinators if version >= 4 else [reply]
        for each in found:
            assert (each.error_code, each.node_id, each.host, each.port) == (NONE, 1, "broker", 9092)
        topic = broker.topic(OFFSETS_TOPIC)
        assert topic.is_internal
        assert len(topic.partitions) == 50
        assert [len(each.replica_nodes) for each in topic.partitions] == [1] * 50
        log = broker.log(OFFSETS_TOPIC)
        assert log.config.is_compacted
        assert log.config.segment_bytes == 100 * 1024 * 1024


@pytest.mark.honours("offsets.topic.num.partitions")
@pytest.mark.honours("offsets.topic.segment.bytes")
def test_the_topic_of_groups_is_made_as_the_settings_say() -> None:
    settings = {"offsets.topic.num.partitions": "3", "offsets.topic.segment.bytes": "2000000"}
    with Broker(settings) as broker:
        broker.create_topic()
        find_coordinator(broker)
        assert len(broker.topic(OFFSETS_TOPIC).partitions) == 3
        assert broker.log(OFFSETS_TOPIC).config.segment_bytes == 2_000_000
        assert commit(broker, {(TOPIC, 0): 1}) is NONE


@pytest.mark.honours("offsets.topic.replication.factor")
def test_more_replicas_than_brokers_are_refused_only_if_somebody_wants_them() -> None:
    with Broker({"offsets.topic.replication.factor": "3"}) as broker:
        request = FindCoordinatorRequest(key_type=0, coordinator_keys=["g"])
        reply = answer(broker.ask(request), FindCoordinatorResponse)
        assert reply.coordinators[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_what_is_not_coordinated_here_is_said_so(broker: Broker) -> None:
    for key_type in (1, 2, 7):
        request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=["x"])
        reply = answer(broker.ask(request), FindCoordinatorResponse)
        assert reply.coordinators[0].error_code == ErrorCode.UNSUPPORTED_VERSION


def test_a_group_whose_topic_is_not_there_has_no_coordinator_here() -> None:
    with Broker() as broker:
        broker.create_topic()
        assert commit(broker, {(TOPIC, 0): 1}) is ErrorCode.NOT_COORDINATOR
        assert committed_group(broker).error_code == ErrorCode.NOT_COORDINATOR


def test_nobody_but_the_coordinator_writes_to_its_topic(broker: Broker) -> None:
    reply = broker.produce(batch([b"x"], key=b"k"), OFFSETS_TOPIC)
    assert reply.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


# -------------------------------------------------------------------------------------------------- joining


@pytest.mark.behaviour(50)
@pytest.mark.parametrize("version", range(4, 10))
def test_a_new_member_gets_an_id_first(broker: Broker, version: int) -> None:
    member = Member(broker, "ada", version=version)
    member.send_join()
    reply = member.joined()
    assert reply.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert reply.member_id.startswith("ada-")
    assert reply.protocol_name == (None if version >= 7 else "")
    member.send_join()
    assert member.joined().error_code == NONE


@pytest.mark.behaviour(50)
def test_an_id_that_was_given_counts_until_its_session_timeout(broker: Broker) -> None:
    first = Member(broker, "a", session_timeout_ms=60_000)
    stable([first])
    promised = Member(broker, "b", session_timeout_ms=10_000)
    promised.send_join()
    promised.joined()
    began_ms = broker.now_ms
    assert first.join().error_code == NONE
    assert 9_500 <= broker.now_ms - began_ms <= 11_000
    promised.send_join()
    assert promised.joined().error_code == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.behaviour(51)
@pytest.mark.honours("group.initial.rebalance.delay.ms")
def test_an_empty_group_waits_for_more_members() -> None:
    with Broker({"group.initial.rebalance.delay.ms": "2000"}) as broker:
        find_coordinator(broker)
        members = [Member(broker, name) for name in "abc"]
        began_ms = broker.now_ms
        stable(members)
        assert 3_900 <= broker.now_ms - began_ms <= 5_000, "extended once, as more came during the first wait"
        began_ms = broker.now_ms
        for member in sorted(members, key=lambda each: not each.leads):
            member.begin_join()
        assert members[0].joined().generation_id == 2
        assert broker.now_ms - began_ms < 1_000, "a group that is not empty does not wait"


@pytest.mark.behaviour(52)
def test_all_must_join_and_stragglers_are_left_behind(broker: Broker) -> None:
    members = [Member(broker, name, rebalance_timeout_ms=20_000, session_timeout_ms=30_000) for name in "abc"]
    members[0].begin_join()
    assert members[0].joined().error_code == NONE
    members[0].sync({})
    for member in members[1:]:
        member.begin_join()
    assert members[0].heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
    began_ms = broker.now_ms
    replies = [member.joined() for member in members[1:]]
    assert 19_000 <= broker.now_ms - began_ms <= 21_000
    leaders = [member for member in members[1:] if member.leads]
    assert len(leaders) == 1
    (listed,) = (reply.members for reply in replies if reply.members)
    assert {each.member_id for each in listed} == {member.member_id for member in members[1:]}
    assert members[0].heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.behaviour(52)
def test_the_protocol_is_one_that_all_speak_and_most_prefer(broker: Broker) -> None:
    members = [
        Member(broker, name, protocols=dict.fromkeys(protocols, b""))
        for name, protocols in (("a", ["x", "y", "z"]), ("b", ["z", "y"]), ("c", ["y", "z"]))
    ]
    members[0].join()
    members[0].sync({})
    for member in members[1:]:
        member.begin_join()
    members[0].begin_join()
    assert [member.joined().protocol_name for member in members] == ["y", "y", "y"]
    stranger = Member(broker, "d", protocols={"x": b""})
    stranger.send_join()
    assert stranger.joined().error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.behaviour(53)
def test_only_a_leader_or_a_change_makes_a_stable_group_rebalance(broker: Broker) -> None:
    members = [Member(broker, name) for name in "ab"]
    members[0].join()
    members[0].sync({})
    members[1].begin_join()
    members[0].begin_join()
    for member in members:
        member.joined()
    follower = next(member for member in members if not member.leads)
    leader = next(member for member in members if member.leads)
    again = follower.join()
    assert (again.error_code, again.generation_id) == (NONE, 2), "the same answer before the assignment"
    assign(members)
    again = follower.join()
    assert (again.error_code, again.generation_id) == (NONE, 2), "and after it"
    assert leader.heartbeat() is NONE
    leader.begin_join()
    assert follower.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
    follower.begin_join()
    assert leader.joined().generation_id == 3
    follower.joined()
    assign(members)
    follower.protocols = {"range": b"other topics"}
    follower.begin_join()
    assert leader.heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS


@pytest.mark.behaviour(54)
def test_what_a_heartbeat_says_in_every_state(broker: Broker) -> None:
    members = [Member(broker, name) for name in "ab"]
    members[0].join()
    assert members[0].heartbeat() is NONE, "the assignment is awaited"
    members[0].sync({})
    assert members[0].heartbeat() is NONE
    members[1].begin_join()
    assert members[0].heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
    members[0].begin_join()
    for member in members:
        member.joined()
    members[0].generation = 1
    assert members[0].heartbeat() is ErrorCode.ILLEGAL_GENERATION
    stranger = Member(broker, "c")
    stranger.member_id, stranger.generation = "nobody", 2
    assert stranger.heartbeat() is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.behaviour(55)
def test_members_wait_for_their_assignment_and_those_without_one_get_empty_bytes(broker: Broker) -> None:
    members = [Member(broker, name) for name in "ab"]
    members[0].join()
    members[0].sync({})
    members[1].begin_join()
    members[0].begin_join()
    for member in members:
        member.joined()
    leader = next(member for member in members if member.leads)
    follower = next(member for member in members if not member.leads)
    follower.send_sync()
    broker.run_for(1_000)
    assert not follower.wire.answers
    leader.sync({leader.member_id: b"all"})
    assert follower.synced().assignment == b""


@pytest.mark.behaviour(55)
def test_when_the_leader_crashes_before_it_assigns_the_others_join_again(broker: Broker) -> None:
    members = [Member(broker, name) for name in "ab"]
    members[0].join()
    members[0].sync({})
    members[1].begin_join()
    members[0].begin_join()
    for member in members:
        member.joined()
    follower = next(member for member in members if not member.leads)
    assert follower.sync().error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert follower.join().error_code == NONE
    assert follower.leads


@pytest.mark.behaviour(56)
def test_who_may_commit_when(broker: Broker) -> None:
    assert commit(broker, {(TOPIC, 0): 1}) is NONE, "nobody is in the group"
    members = [Member(broker, name) for name in "ab"]
    members[0].join()
    members[0].sync({})
    assert commit(broker, {(TOPIC, 0): 2}) is ErrorCode.UNKNOWN_MEMBER_ID
    members[1].begin_join()
    assert members[0].commit({(TOPIC, 0): 3}) is NONE, "others are joining"
    members[0].begin_join()
    for member in members:
        member.joined()
    assert members[0].commit({(TOPIC, 0): 4}) is ErrorCode.REBALANCE_IN_PROGRESS
    members[0].generation = 1
    assert members[0].commit({(TOPIC, 0): 4}) is ErrorCode.ILLEGAL_GENERATION
    assert committed(broker) == {(TOPIC, 0): 3}


@pytest.mark.behaviour(56)
@pytest.mark.honours("offset.metadata.max.bytes")
@pytest.mark.parametrize("version", range(2, 10))
def test_a_note_comes_back_as_it_was_and_must_not_be_too_long(broker: Broker, version: int) -> None:
    note = "ä" * 4096
    assert commit(broker, {(TOPIC, 0): 5}, note=note, epoch=0, version=version) is NONE
    (topic,) = committed_group(broker).topics
    assert topic.partitions[0].metadata == note
    assert topic.partitions[0].committed_leader_epoch == (0 if version >= 6 else -1)
    too_long = commit(broker, {(TOPIC, 0): 6}, note=f"{note}!", version=version)
    assert too_long is ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert committed(broker) == {(TOPIC, 0): 5}


@pytest.mark.behaviour(57)
def test_what_members_tell_each_other_is_none_of_the_broker_s_business(broker: Broker) -> None:
    member = Member(broker, protocols={"cooperative-sticky": bytes(range(256))})
    (listed,) = member.join().members
    assert listed.metadata == bytes(range(256))
    assert member.sync({member.member_id: b"\0\1\2"}).assignment == b"\0\1\2"
    began_ms = broker.now_ms
    assert member.join().generation_id == 2
    assert broker.now_ms - began_ms < 1_000, "the follow-up rebalance begins at once"


@pytest.mark.behaviour(58)
def test_a_static_member_comes_back_without_a_rebalance(broker: Broker) -> None:
    before = Member(broker, "a", instance_id="one")
    stable([before])
    after = Member(broker, "a", instance_id="one")
    reply = after.join()
    assert (reply.error_code, reply.generation_id, reply.skip_assignment) == (NONE, 1, True)
    assert after.member_id != before.member_id
    assert after.sync().assignment == before.member_id.encode()
    assert before.heartbeat() is ErrorCode.FENCED_INSTANCE_ID
    assert after.heartbeat() is NONE
    after.member_id = ""
    assert after.leave() is NONE, "an admin names it by its instance id"


@pytest.mark.behaviour(59)
def test_groups_are_listed_and_described_with_their_states_and_types(broker: Broker) -> None:
    commit(broker, {(TOPIC, 0): 1}, group_id="simple")
    member = Member(broker)
    stable([member])

    def listed(**filters: list[str]) -> dict[str, tuple[str, str, str]]:
        groups = answer(broker.ask(ListGroupsRequest(**filters)), ListGroupsResponse).groups  # type: ignore[arg-type]
        return {each.group_id: (each.protocol_type, each.group_state, each.group_type) for each in groups}

    both = {"simple": ("", "Empty", "classic"), GROUP: ("consumer", "Stable", "classic")}
    assert listed() == both
    assert listed(types_filter=["Classic"]) == both
    assert listed(types_filter=["consumer", "share"]) == {}
    assert list(listed(states_filter=["stable"])) == [GROUP]
    for version in range(6):
        groups = answer(broker.ask(ListGroupsRequest(), version), ListGroupsResponse).groups
        assert {each.group_id for each in groups} == {"simple", GROUP}

    def described(group_id: str, version: int) -> DescribedGroup:
        request = DescribeGroupsRequest(groups=[group_id], include_authorized_operations=version >= 3)
        return answer(broker.ask(request, version), DescribeGroupsResponse).groups[0]

    for version in range(7):
        found = described(GROUP, version)
        assert (found.error_code, found.group_state, found.protocol_data) == (NONE, "Stable", "range")
        assert [each.member_assignment for each in found.members] == [member.member_id.encode()]
        assert [each.client_host for each in found.members] == ["/client"]
        missing = described("none", version)
        assert missing.group_state == "Dead"
        assert missing.error_code == (ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else NONE)
    read_delete_describe = 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11
    assert described(GROUP, 6).authorized_operations == read_delete_describe


def delete(broker: Broker, *group_ids: str) -> dict[str, ErrorCode]:
    reply = answer(broker.ask(DeleteGroupsRequest(groups_names=list(group_ids))), DeleteGroupsResponse)
    return {each.group_id: ErrorCode(each.error_code) for each in reply.results}


@pytest.mark.behaviour(59)
def test_only_groups_without_members_are_deleted(broker: Broker) -> None:
    commit(broker, {(TOPIC, 0): 1}, group_id="simple")
    stable([Member(broker)])
    assert delete(broker, "simple", GROUP, "none") == {
        "simple": NONE,
        GROUP: ErrorCode.NON_EMPTY_GROUP,
        "none": ErrorCode.GROUP_ID_NOT_FOUND,
    }
    assert committed(broker, "simple") == {}
    broker.crash()
    find_coordinator(broker, "simple")
    assert committed(broker, "simple") == {}


# -------------------------------------------------------------------------------------------------- offsets


@pytest.mark.behaviour(60)
@pytest.mark.honours("offsets.retention.minutes")
@pytest.mark.honours("offsets.retention.check.interval.ms")
def test_offsets_expire_when_a_group_has_been_empty_for_long_enough() -> None:
    settings = {
        "offsets.retention.minutes": "10",
        "offsets.retention.check.interval.ms": str(MINUTE_MS),
        "group.initial.rebalance.delay.ms": "0",
    }
    with Broker(settings) as broker:
        broker.create_topic()
        broker.create_topic("other")
        find_coordinator(broker)
        member = Member(broker, protocols={"range": subscription(TOPIC)}, session_timeout_ms=25 * MINUTE_MS)
        stable([member])
        assert member.commit({(TOPIC, 0): 1, ("other", 0): 2}) is NONE
        assert commit(broker, {(TOPIC, 0): 3}, group_id="simple") is NONE
        broker.run_for(12 * MINUTE_MS)
        assert committed(broker) == {(TOPIC, 0): 1}, "a subscription protects only its own topics"
        assert committed(broker, "simple") == {}
        member.reconnect()
        assert member.leave() is NONE
        broker.run_for(8 * MINUTE_MS)
        assert committed(broker) == {(TOPIC, 0): 1}
        broker.run_for(4 * MINUTE_MS)
        assert committed(broker) == {}
        assert answer(broker.ask(ListGroupsRequest()), ListGroupsResponse).groups == []


@pytest.mark.behaviour(60)
def test_offsets_go_with_their_topic(broker: Broker) -> None:
    broker.create_topic("other")
    commit(broker, {(TOPIC, 0): 1, ("other", 0): 2})
    assert broker.delete_topic("other") is NONE
    until(broker, lambda: committed(broker) == {(TOPIC, 0): 1})
    broker.create_topic("other")
    broker.crash()
    find_coordinator(broker)
    assert committed(broker) == {(TOPIC, 0): 1}


@pytest.mark.behaviour(60)
def test_a_topic_of_the_same_name_begins_without_offsets_even_after_a_crash(broker: Broker) -> None:
    broker.create_topic("other")
    commit(broker, {("other", 0): 2})
    # The coordinator has no time to forget them.
    wire = broker.connect()
    wire.send(DeleteTopicsRequest(topic_names=["other"], timeout_ms=10_000), 5)
    broker.run_until(lambda: broker.node.partitions.find("other", 0) is None)
    broker.crash()
    broker.create_topic("other")
    find_coordinator(broker)
    assert committed(broker) == {}


@pytest.mark.behaviour(61)
@pytest.mark.parametrize("version", range(1, 8))
def test_offsets_of_one_group_are_read(broker: Broker, version: int) -> None:
    commit(broker, {(TOPIC, 1): 7})
    wanted = [OffsetFetchRequestTopic(name=TOPIC, partition_indexes=[1, 2])]
    reply = answer(
        broker.ask(OffsetFetchRequest(group_id=GROUP, topics=wanted), version), OffsetFetchResponse
    )
    (topic,) = reply.topics
    assert [(each.partition_index, each.committed_offset, each.error_code) for each in topic.partitions] == [
        (1, 7, NONE),
        (2, -1, NONE),
    ]
    if version >= 2:
        every = OffsetFetchRequest(group_id=GROUP, topics=None)
        (topic,) = answer(broker.ask(every, version), OffsetFetchResponse).topics
        assert [(each.partition_index, each.committed_offset) for each in topic.partitions] == [(1, 7)]


@pytest.mark.behaviour(61)
@pytest.mark.parametrize("version", [8, 9, 10])
def test_offsets_of_no_group_at_all_are_read_too(broker: Broker, version: int) -> None:
    """Nobody answered, and whatever came behind it on the connection waited for ever."""
    assert answer(broker.ask(OffsetFetchRequest(groups=[]), version), OffsetFetchResponse).groups == []


@pytest.mark.behaviour(61)
@pytest.mark.parametrize("version", [8, 9])
def test_offsets_of_several_groups_are_read_at_once(broker: Broker, version: int) -> None:
    find_coordinator(broker, "one", "two")
    commit(broker, {(TOPIC, 1): 7}, group_id="one")
    commit(broker, {(TOPIC, 2): 8}, group_id="two")
    request = OffsetFetchRequest(
        groups=[
            OffsetFetchRequestGroup(group_id="one", topics=None),
            OffsetFetchRequestGroup(
                group_id="two", topics=[OffsetFetchRequestTopics(name=TOPIC, partition_indexes=[2])]
            ),
            OffsetFetchRequestGroup(group_id="three", topics=None),
        ]
    )
    groups = answer(broker.ask(request, version), OffsetFetchResponse).groups
    assert [each.group_id for each in groups] == ["one", "two", "three"]
    found = [
        [(part.partition_index, part.committed_offset) for topic in each.topics for part in topic.partitions]
        for each in groups
    ]
    assert found == [[(1, 7)], [(2, 8)], []]


@pytest.mark.behaviour(61)
def test_topic_ids_stand_for_names_since_version_10(broker: Broker) -> None:
    topic_id = broker.create_topic("by-id")
    request = commit_request({("by-id", 0): 5, (TOPIC, 0): 6})
    request.topics[0].topic_id = topic_id
    request.topics[1].topic_id = UNKNOWN_ID
    reply = answer(broker.ask(request, 10), OffsetCommitResponse)
    codes = {each.topic_id: each.partitions[0].error_code for each in reply.topics}
    assert codes[topic_id] == NONE
    assert sorted(codes.values()) == [NONE, ErrorCode.UNKNOWN_TOPIC_ID]
    group = committed_group(broker, version=10)
    assert [(each.topic_id, each.partitions[0].committed_offset) for each in group.topics] == [(topic_id, 5)]
    wanted = [
        OffsetFetchRequestTopics(topic_id=each, partition_indexes=[0]) for each in (topic_id, UNKNOWN_ID)
    ]
    asked = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=GROUP, topics=wanted)])
    (group,) = answer(broker.ask(asked, 10), OffsetFetchResponse).groups
    found = {each.topic_id: each.partitions[0] for each in group.topics}
    assert found[topic_id].committed_offset == 5
    assert found[wanted[1].topic_id].error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_offsets_are_committed_only_where_there_are_partitions(broker: Broker) -> None:
    request = commit_request({(TOPIC, 0): 1, (TOPIC, 10): 2, ("none", 0): 3})
    reply = answer(broker.ask(request, COMMIT_VERSION), OffsetCommitResponse)
    codes = {
        (topic.name, each.partition_index): each.error_code
        for topic in reply.topics
        for each in topic.partitions
    }
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert codes == {(TOPIC, 0): NONE, (TOPIC, 10): unknown, ("none", 0): unknown}
    assert committed(broker) == {(TOPIC, 0): 1}
    nothing = commit_request({("none", 0): 3})
    assert commit_code(answer(broker.ask(nothing, COMMIT_VERSION), OffsetCommitResponse)) is unknown


def test_offsets_are_deleted_one_by_one(broker: Broker) -> None:
    commit(broker, {(TOPIC, 0): 1, (TOPIC, 1): 2})
    request = OffsetDeleteRequest(
        group_id=GROUP,
        topics=[
            OffsetDeleteRequestTopic(
                name=TOPIC,
                partitions=[OffsetDeleteRequestPartition(partition_index=index) for index in (0, 5, 99)],
            )
        ],
    )
    reply = answer(broker.ask(request), OffsetDeleteResponse)
    codes = {each.partition_index: each.error_code for topic in reply.topics for each in topic.partitions}
    assert codes == {0: NONE, 5: NONE, 99: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert committed(broker) == {(TOPIC, 1): 2}
    request.group_id = "none"
    assert answer(broker.ask(request), OffsetDeleteResponse).error_code == ErrorCode.GROUP_ID_NOT_FOUND


# ---------------------------------------------------------------------------------------------- connections


@pytest.mark.behaviour(2)
def test_a_parked_join_holds_its_own_line_and_no_other(broker: Broker) -> None:
    members = [Member(broker, name) for name in "ab"]
    members[0].join()
    members[0].sync({})
    members[1].begin_join()
    members[1].wire.send(commit_request({(TOPIC, 0): 1}, group_id="other"), COMMIT_VERSION)
    broker.run_for(2_000)
    assert not members[1].wire.answers, "what comes behind a join waits for it"
    assert members[0].heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS
    assert commit(broker, {(TOPIC, 0): 2}, group_id="third") is NONE
    assert committed(broker, "other") == {}
    members[0].begin_join()
    assert members[1].joined().error_code == NONE
    assert commit_code(answer(members[1].wire.receive(), OffsetCommitResponse)) is NONE


def test_a_member_stays_until_its_session_ends_although_its_connection_is_gone(broker: Broker) -> None:
    members = [Member(broker, name) for name in "ab"]
    members[0].join()
    members[0].sync({})
    members[1].begin_join()
    members[1].wire.close()
    members[0].begin_join()
    assert members[0].joined().generation_id == 2
    assert len({members[0].member_id, members[1].member_id}) == 2
    request = DescribeGroupsRequest(groups=[GROUP])
    group = answer(broker.ask(request), DescribeGroupsResponse).groups[0]
    assert len(group.members) == 2, "nobody knows yet that it is gone"
    assert members[0].sync({}).error_code == NONE
    until(broker, lambda: members[0].heartbeat() is ErrorCode.REBALANCE_IN_PROGRESS)
    again = members[0].join()
    assert [each.member_id for each in again.members] == [members[0].member_id]


@pytest.mark.behaviour(1)
def test_commits_of_one_connection_overlap_and_are_answered_in_order(broker: Broker) -> None:
    wire = broker.connect()
    wire.send_all([commit_request({(TOPIC, 0): offset}) for offset in range(50)], COMMIT_VERSION)
    log = broker.log(OFFSETS_TOPIC, partition=0)
    assert log is not None
    for _ in range(50):
        assert commit_code(answer(wire.receive(), OffsetCommitResponse)) is NONE
    assert committed(broker) == {(TOPIC, 0): 49}


def test_a_heartbeat_is_not_refused_while_the_coordinator_loads(broker: Broker) -> None:
    member = Member(broker)
    stable([member])
    broker.crash()
    member.wire = broker.connect()
    assert member.heartbeat() is NONE
    find_coordinator(broker)
    assert member.heartbeat() is NONE
