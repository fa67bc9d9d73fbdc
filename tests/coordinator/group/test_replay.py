"""Whatever happens, the log tells it: loading it gives the state that serving left, compacted or not."""

from collections.abc import Sequence

from coordinator.group.live import Live, subscription
from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.coordinator.group.classic.group import ClassicGroup
from moldau.coordinator.group.shard import GroupShard
from moldau.coordinator.shard import CoordinatorRecord
from moldau.metadata.image import Delta, Topic
from moldau.model.ids import ZERO_UUID, TopicId, TopicName
from moldau.wire.messages.group_records import GroupMetadataValue
from moldau.wire.messages.groups import (
    DeleteGroupsRequest,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from moldau.wire.messages.internal_logs import GROUP_LOG

GROUPS = ["one", "two"]
TOPICS = ["t", "u"]

Logged = tuple[dict[str, GroupMetadataValue], dict[str, dict[tuple[str, int], int]], list[str]]


def logged(shard: GroupShard) -> Logged:
    """All that is to survive: generations, offsets, and which groups there are because of them."""
    state = shard.state
    generations, offsets = {}, {}
    for group_id, group in state.groups.items():
        assert isinstance(group, ClassicGroup)
        if group.logged is not None:
            generations[group_id] = group.logged
        found = {
            (topic, partition): value.offset
            for topic, partitions in state.offsets.of_group(group_id).items()
            for partition, value in partitions.items()
        }
        if found:
            offsets[group_id] = found
    return generations, offsets, sorted({*generations, *offsets})


def compacted(log: Sequence[CoordinatorRecord], *, keeps_tombstones: bool) -> list[CoordinatorRecord]:
    newest = {GROUP_LOG.encode_key(record.key): number for number, record in enumerate(log)}
    return [
        record
        for number, record in enumerate(log)
        if newest[GROUP_LOG.encode_key(record.key)] == number
        and (keeps_tombstones or record.value is not None)
    ]


STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            [
                *("join", "join", "static", "rejoin", "sync", "sync", "leave", "heartbeat", "wait"),
                *("commit", "delete offsets", "delete group", "delete topic", "fail over"),
            ]
        ),
        st.sampled_from(GROUPS),
        st.integers(min_value=0, max_value=5),
    ),
    max_size=60,
)


def step(live: Live, action: str, group_id: str, number: int) -> None:
    group = live.shard.state.groups.get(group_id)
    members = list(group.members) if isinstance(group, ClassicGroup) else []
    generation = group.generation if isinstance(group, ClassicGroup) else 0
    member_id = members[number % len(members)] if members else "nobody"
    instance_id = None
    if isinstance(group, ClassicGroup) and members:
        instance_id = group.members[member_id].instance_id
    topic = TOPICS[number % len(TOPICS)]
    protocols = {"range": subscription(topic)}
    if action == "join":
        live.join_known(group_id=group_id, protocols=protocols)
    elif action == "static":
        live.join(group_id=group_id, instance_id=f"i{number}", protocols=protocols)
    elif action == "rejoin":
        live.join(member_id, group_id=group_id, instance_id=instance_id, protocols=protocols)
    elif action == "sync":
        leader = group.leader_id if isinstance(group, ClassicGroup) else None
        assignments = dict.fromkeys(members, b"%d" % number) if member_id == leader else {}
        live.sync(member_id, generation, assignments, instance_id=instance_id, group_id=group_id)
    elif action == "leave":
        live.leave((member_id, instance_id) if instance_id is not None else member_id, group_id=group_id)
    elif action == "heartbeat":
        live.heartbeat(member_id, generation, instance_id=instance_id, group_id=group_id)
    elif action == "wait":
        live.wait((1, 3_000, 9_000, 60_000, 600_000, 2_000_000)[number])
    elif action == "commit":
        at = {(topic, number): number, (topic, 0): number}
        live.commit(at, group_id=group_id)
        live.commit(
            at, group_id=group_id, member_id=member_id, generation=generation, instance_id=instance_id
        )
    elif action == "delete offsets":
        partitions = [OffsetDeleteRequestPartition(partition_index=index) for index in (0, number)]
        live.ask(
            OffsetDeleteRequest(
                group_id=group_id, topics=[OffsetDeleteRequestTopic(name=topic, partitions=partitions)]
            )
        )
    elif action == "delete group":
        live.ask(DeleteGroupsRequest(groups_names=[group_id]))
    elif action == "delete topic":
        gone = Topic(TopicName(topic), TopicId(ZERO_UUID), ())
        live.metadata_changed(Delta(topics_deleted=(gone,)))
    elif action == "fail over":
        live.reload()


@settings(max_examples=400)
@given(STEPS)
def test_what_was_served_is_what_is_loaded(steps: list[tuple[str, str, int]]) -> None:
    live = Live({"offsets.retention.minutes": "10"})
    for action, group_id, number in steps:
        step(live, action, group_id, number)
        served = logged(live.shard)
        for log in (
            live.log,
            compacted(live.log, keeps_tombstones=True),
            compacted(live.log, keeps_tombstones=False),
        ):
            loaded = GroupShard()
            for record in log:
                loaded.apply(record)
            assert logged(loaded) == served
            assert sorted(loaded.state.groups) == served[2]


@settings(max_examples=200)
@given(STEPS)
def test_sessions_add_up_after_every_step(steps: list[tuple[str, str, int]]) -> None:
    live = Live()
    for action, group_id, number in steps:
        step(live, action, group_id, number)
        for group in live.shard.state.groups.values():
            assert isinstance(group, ClassicGroup)
            waiting = [member for member in group.members.values() if member.join is not None]
            assert group.waiting_count == len(waiting)
            assert not waiting or group.state_name == "PreparingRebalance"
            assert all(member.member_id == key for key, member in group.members.items())
            assert all(member.session is not None for member in group.members.values())
            assert group.is_empty <= (not group.members)
            assert (group.leader_id in group.members) == bool(group.members)
            named = {
                member.instance_id: key
                for key, member in group.members.items()
                if member.instance_id is not None
            }
            assert group.static_members == named
            if group.state_name in ("Stable", "CompletingRebalance"):
                assert set(group.state.unsynced) <= set(group.members)  # type: ignore[union-attr]
            has_deadline = any(
                member.session is not None and member.session.is_set for member in group.members.values()
            )
            is_rebalancing = group.rebalance is not None and group.rebalance.is_set
            assert not group.members or has_deadline or is_rebalancing, "somebody would wait for ever"
