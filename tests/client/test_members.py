"""Both kinds of members as cores: what they send, when, and what they do about each answer."""

from __future__ import annotations

import pytest

from moldau.client.assignors import Subscription
from moldau.client.classic_member import ClassicMember
from moldau.client.consumer_member import ConsumerMember
from moldau.client.embedded import read_assignment, write_assignment, write_subscription
from moldau.client.member import Learn, Send, Topics, Wait, Wanted
from moldau.client.metadata import Metadata
from moldau.client.offsets import place_of
from moldau.client.settings import ClientSettings, SettingValue
from moldau.model.errors import ErrorCode, KafkaError
from moldau.model.ids import TopicPartition, Uuid
from moldau.wire.messages.consumer_groups import (
    ConsumerGroupHeartbeatAssignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupHeartbeatTopicPartitions,
)
from moldau.wire.messages.groups import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
    LeaveGroupRequest,
    LeaveGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from moldau.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

ORDERS = Uuid(b"orders-topic-id!")


def place(index: int) -> TopicPartition:
    return place_of(("orders", index))


def metadata(partition_count: int = 2) -> Metadata:
    known = Metadata()
    if partition_count:
        learn(known, partition_count)
    return known


def learn(known: Metadata, partition_count: int = 2) -> None:
    rows = [
        MetadataResponsePartition(
            error_code=0, partition_index=index, leader_id=1, leader_epoch=0, replica_nodes=[1], isr_nodes=[1]
        )
        for index in range(partition_count)
    ]
    topic = MetadataResponseTopic(error_code=0, name="orders", topic_id=ORDERS, partitions=rows)
    known.apply(MetadataResponse(brokers=[], topics=[topic]))


# ---------------------------------------------------------------- KIP-848


def consumer_member(known: Metadata | None = None, **settings: SettingValue) -> ConsumerMember:
    return ConsumerMember(
        "billing",
        Topics(("orders",)),
        ClientSettings.parse(settings),
        metadata() if known is None else known,
        member_id="me",
    )


def beat(member: ConsumerMember, now_ms: int) -> ConsumerGroupHeartbeatRequest:
    step = member.step(now_ms)
    assert isinstance(step, Send), step
    assert isinstance(step.request, ConsumerGroupHeartbeatRequest)
    return step.request


def told(epoch: int, *indexes: int, error: ErrorCode = ErrorCode.NONE) -> ConsumerGroupHeartbeatResponse:
    rows = [ConsumerGroupHeartbeatTopicPartitions(topic_id=ORDERS, partitions=list(indexes))]
    return ConsumerGroupHeartbeatResponse(
        throttle_time_ms=0,
        error_code=error,
        member_id="me",
        member_epoch=epoch,
        heartbeat_interval_ms=5_000,
        assignment=ConsumerGroupHeartbeatAssignment(topic_partitions=rows if indexes else []),
    )


def unchanged(epoch: int) -> ConsumerGroupHeartbeatResponse:
    answer = told(epoch)
    answer.assignment = None
    return answer


def joined() -> ConsumerMember:
    """A member of epoch 1 that owns both partitions, at time 0."""
    member = consumer_member()
    beat(member, 0)
    member.answered(told(1, 0, 1), 0)
    member.own([place(0), place(1)])
    beat(member, 0)
    member.answered(unchanged(1), 0)
    return member


def test_the_first_heartbeat_says_everything_and_the_next_only_that_the_member_lives() -> None:
    member = joined()
    first = beat(consumer_member(), 0)
    assert (first.member_epoch, first.subscribed_topic_names, first.topic_partitions) == (0, ["orders"], [])
    assert first.rebalance_timeout_ms == 300_000
    assert member.step(4_999) == Wait(5_000)
    later = beat(member, 5_000)
    assert later.member_epoch == 1
    assert (later.subscribed_topic_names, later.topic_partitions, later.rebalance_timeout_ms) == (
        None,
        None,
        -1,
    )


def test_what_was_given_up_is_told_at_once_so_that_others_need_not_wait() -> None:
    member = joined()
    beat(member, 5_000)
    member.answered(told(1, 0), 5_000)
    assert member.wanted == Wanted((place(0),))
    assert member.step(5_001) == Wait(10_000)
    member.own([place(0)])
    (row,) = beat(member, 5_002).topic_partitions or []
    assert (row.topic_id, row.partitions) == (ORDERS, [0])
    assert member.wanted is None


def test_a_heartbeat_that_nobody_answered_is_repeated_in_full() -> None:
    member = joined()
    beat(member, 5_000)
    member.failed(5_000, 100)
    assert member.step(5_050) == Wait(5_100)
    again = beat(member, 5_100)
    assert again.member_epoch == 1
    assert again.subscribed_topic_names == ["orders"]
    assert [row.partitions for row in again.topic_partitions or []] == [[0, 1]]


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.UNKNOWN_MEMBER_ID,
        # The group was moved to the classic protocol, or deleted, while the member was silent for too long.
        ErrorCode.GROUP_ID_NOT_FOUND,
    ],
)
def test_a_fenced_member_drops_everything_before_it_joins_again(code: ErrorCode) -> None:
    member = joined()
    beat(member, 5_000)
    member.answered(told(0, error=code), 5_000)
    assert member.wanted == Wanted((), is_lost=True)
    assert member.epoch == -1
    assert member.step(6_000) == Wait()
    member.own([])
    again = beat(member, 6_000)
    assert (again.member_epoch, again.topic_partitions) == (0, [])


def test_topics_whose_names_are_not_known_yet_are_asked_for_before_they_are_wanted() -> None:
    known = metadata(0)
    member = consumer_member(known)
    beat(member, 0)
    member.answered(told(1, 0), 0)
    assert member.wanted is None
    assert member.step(0) == Learn(("orders",))
    member.learned(0, 100)
    assert member.step(0) == Wait(100)
    learn(known)
    member.learned(100, 100)
    assert member.wanted == Wanted((place(0),))


def test_whoever_does_not_poll_leaves_and_comes_back_when_it_does() -> None:
    member = joined()
    beat(member, 5_000)
    member.stall()
    # The answer to a heartbeat that was under way is none to the farewell.
    member.answered(unchanged(1), 5_001)
    assert beat(member, 5_002).member_epoch == -1
    member.answered(unchanged(-1), 5_003)
    assert member.step(9_999_999) == Wait()
    assert member.wanted == Wanted((), is_lost=True)
    member.own([])
    assert beat(member, 10_000_000).member_epoch == 0


@pytest.mark.parametrize(("instance_id", "epoch"), [("", -1), ("till-1", -2)])
def test_a_static_member_leaves_only_for_a_while(instance_id: str, epoch: int) -> None:
    member = consumer_member(group_instance_id=instance_id)
    assert member.farewell() is None
    beat(member, 0)
    member.answered(told(1), 0)
    farewell = member.farewell()
    assert farewell is not None
    assert isinstance(farewell.request, ConsumerGroupHeartbeatRequest)
    assert farewell.request.member_epoch == epoch


def test_an_error_that_does_not_pass_ends_the_membership() -> None:
    member = consumer_member()
    beat(member, 0)
    member.answered(told(0, error=ErrorCode.UNSUPPORTED_ASSIGNOR), 0)
    assert isinstance(member.error, KafkaError)
    assert member.error.code is ErrorCode.UNSUPPORTED_ASSIGNOR
    assert member.step(1_000_000) == Wait()


def test_a_new_subscription_is_told_and_takes_back_a_pattern() -> None:
    member = joined()
    member.subscribe(Topics(pattern="or.*"))
    told_pattern = beat(member, 1)
    assert (told_pattern.subscribed_topic_names, told_pattern.subscribed_topic_regex) == ([], "or.*")
    member.answered(unchanged(1), 1)
    member.subscribe(Topics(("orders",)))
    told_names = beat(member, 2)
    assert (told_names.subscribed_topic_names, told_names.subscribed_topic_regex) == (["orders"], "")


# ---------------------------------------------------------------- classic


def classic_member(known: Metadata | None = None, **settings: SettingValue) -> ClassicMember:
    return ClassicMember(
        "billing", Topics(("orders",)), ClientSettings.parse(settings), metadata() if known is None else known
    )


def asked(member: ClassicMember, now_ms: int = 0) -> object:
    step = member.step(now_ms)
    if step == Learn(("orders",)):
        member.learned(now_ms, 100)
        step = member.step(now_ms)
    assert isinstance(step, Send), step
    return step.request


def join_reply(
    *others: str, generation: int = 1, leader: str = "me", protocol: str = "range", **owned: tuple[int, ...]
) -> JoinGroupResponse:
    rows = [
        JoinGroupResponseMember(
            member_id=name,
            metadata=write_subscription(
                Subscription(("orders",), tuple(map(place, owned.get(name, ())))), rack_id=None
            ),
        )
        for name in ("me", *others)
    ]
    return JoinGroupResponse(
        error_code=0,
        generation_id=generation,
        protocol_type="consumer",
        protocol_name=protocol,
        leader=leader,
        member_id="me",
        members=rows if leader == "me" else [],
    )


def sync_reply(*indexes: int, error: ErrorCode = ErrorCode.NONE) -> SyncGroupResponse:
    return SyncGroupResponse(error_code=error, assignment=write_assignment(map(place, indexes)))


def heartbeat_reply(error: ErrorCode) -> HeartbeatResponse:
    return HeartbeatResponse(error_code=error)


def stable(*indexes: int, **settings: SettingValue) -> ClassicMember:
    """A member of generation 1 that owns these partitions, at time 0."""
    member = classic_member(metadata(), **settings)
    asked(member)
    member.answered(join_reply(leader="other", protocol="range"), 0)
    assert isinstance(asked(member), SyncGroupRequest)
    member.answered(sync_reply(*indexes), 0)
    member.own(map(place, indexes))
    beat_request = asked(member, 3_000)
    assert isinstance(beat_request, HeartbeatRequest)
    member.answered(heartbeat_reply(ErrorCode.NONE), 3_000)
    return member


def test_a_new_member_joins_again_with_the_id_it_was_given() -> None:
    member = classic_member()
    request = asked(member)
    assert isinstance(request, JoinGroupRequest)
    assert request.member_id == ""
    assert [protocol.name for protocol in request.protocols] == ["range", "cooperative-sticky"]
    required = join_reply(generation=-1)
    required.error_code = ErrorCode.MEMBER_ID_REQUIRED
    member.answered(required, 0)
    again = asked(member)
    assert isinstance(again, JoinGroupRequest)
    assert again.member_id == "me"


def test_the_leader_assigns_to_all_and_the_others_to_nobody() -> None:
    leader = classic_member()
    asked(leader)
    leader.answered(join_reply("you"), 0)
    request = asked(leader)
    assert isinstance(request, SyncGroupRequest)
    given = {row.member_id: read_assignment(bytes(row.assignment)) for row in request.assignments}
    assert given == {"me": (place(0),), "you": (place(1),)}
    follower = classic_member()
    asked(follower)
    follower.answered(join_reply(leader="other"), 0)
    request = asked(follower)
    assert isinstance(request, SyncGroupRequest)
    assert request.assignments == []


def test_eager_members_give_up_everything_before_they_join_and_beat_until_then() -> None:
    member = stable(0, 1)
    assert isinstance(asked(member, 6_000), HeartbeatRequest)
    member.answered(heartbeat_reply(ErrorCode.REBALANCE_IN_PROGRESS), 6_000)
    assert isinstance(asked(member, 6_000), HeartbeatRequest)
    assert member.wanted == Wanted(())
    # The application answers while the heartbeat is under way.
    member.own([])
    member.answered(heartbeat_reply(ErrorCode.REBALANCE_IN_PROGRESS), 6_001)
    request = asked(member, 6_001)
    assert isinstance(request, JoinGroupRequest)
    assert request.reason == "the group is rebalancing"


def test_cooperative_members_keep_what_they_have_and_join_once_more_when_they_gave_something_up() -> None:
    member = stable(0, 1, partition_assignment_strategy="cooperative-sticky")
    asked(member, 6_000)
    member.answered(heartbeat_reply(ErrorCode.REBALANCE_IN_PROGRESS), 6_000)
    assert isinstance(asked(member, 6_000), JoinGroupRequest)
    assert not member.wanted
    member.answered(join_reply("you", generation=2, protocol="cooperative-sticky", me=(0, 1)), 6_100)
    request = asked(member, 6_100)
    assert isinstance(request, SyncGroupRequest)
    given = {row.member_id: read_assignment(bytes(row.assignment)) for row in request.assignments}
    assert given == {"me": (place(0),), "you": ()}
    member.answered(sync_reply(0), 6_200)
    assert member.wanted == Wanted((place(0),))
    member.own([place(0)])
    request = asked(member, 6_200)
    assert isinstance(request, JoinGroupRequest)
    assert request.reason == "partitions were given up"


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION])
def test_a_classic_member_that_is_unknown_drops_everything_before_it_joins_again(code: ErrorCode) -> None:
    member = stable(0)
    asked(member, 6_000)
    member.answered(heartbeat_reply(code), 6_000)
    assert member.wanted == Wanted((), is_lost=True)
    assert member.epoch == -1
    assert member.step(6_000) == Wait()
    member.own([])
    request = asked(member, 6_000)
    assert isinstance(request, JoinGroupRequest)
    assert request.member_id == ("" if code is ErrorCode.UNKNOWN_MEMBER_ID else "me")


def test_a_rebalance_during_the_sync_means_joining_again() -> None:
    member = classic_member()
    asked(member)
    member.answered(join_reply("you"), 0)
    asked(member)
    member.answered(sync_reply(error=ErrorCode.REBALANCE_IN_PROGRESS), 0)
    assert isinstance(asked(member), JoinGroupRequest)


def test_the_leader_assigns_anew_when_a_topic_has_grown() -> None:
    known = metadata()
    member = classic_member(known)
    asked(member)
    member.answered(join_reply(), 0)
    asked(member)
    member.answered(sync_reply(0, 1), 0)
    member.own([place(0), place(1)])
    assert isinstance(asked(member, 3_000), HeartbeatRequest)
    member.answered(heartbeat_reply(ErrorCode.NONE), 3_000)
    learn(known, 3)
    member.step(3_001)
    assert member.wanted == Wanted(())
    member.own([])
    request = asked(member, 3_002)
    assert isinstance(request, JoinGroupRequest)
    assert request.reason == "topics have changed"


def test_a_classic_member_that_does_not_poll_leaves_and_comes_back_as_a_new_one() -> None:
    member = stable(0)
    member.stall()
    request = asked(member, 300_000)
    assert isinstance(request, LeaveGroupRequest)
    member.answered(LeaveGroupResponse(error_code=0), 300_000)
    assert member.step(400_000) == Wait()
    assert member.wanted == Wanted((), is_lost=True)
    member.own([])
    request = asked(member, 400_000)
    assert isinstance(request, JoinGroupRequest)
    assert request.member_id == ""


def test_whoever_stalls_while_it_joins_leaves_once_it_has() -> None:
    member = classic_member()
    asked(member)
    member.stall()
    assert member.step(1) == Wait()
    member.answered(join_reply("you"), 2)
    assert isinstance(asked(member, 3), LeaveGroupRequest)


@pytest.mark.parametrize(("instance_id", "leaves"), [("", True), ("till-1", False)])
def test_a_static_classic_member_does_not_say_goodbye(instance_id: str, leaves: bool) -> None:
    member = stable(0, group_instance_id=instance_id)
    assert (member.farewell() is not None) == leaves


def test_after_the_coordinator_was_lost_a_member_that_synced_joins_again() -> None:
    member = classic_member()
    asked(member)
    member.answered(join_reply("you"), 0)
    asked(member)
    member.failed(0, 100)
    assert member.step(50) == Wait(100)
    assert isinstance(asked(member, 100), JoinGroupRequest)
