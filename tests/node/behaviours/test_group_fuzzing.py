"""Requests about groups whose fields hold anything: the broker answers all of them, and groups go on."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from node.broker import TOPIC, Broker, answer
from node.members import GROUP, Member, commit, committed, find_coordinator, stable
from wire.contents import arbitrary, fields_of

from moldau.model.errors import ErrorCode
from moldau.wire.compiler import ArrayOf
from moldau.wire.message import Request
from moldau.wire.messages import spoken_versions
from moldau.wire.messages.consumer_groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from moldau.wire.messages.groups import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    ListGroupsRequest,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
    SyncGroupRequest,
)
from moldau.wire.types import Struct

FUZZED = "fuzzed"
# What makes sense now and then, so that a request gets further than its first check.
SENSIBLE: dict[str, list[Any]] = {
    "group_id": [FUZZED, FUZZED, ""],
    "group_ids": [[FUZZED]],
    "groups_names": [[FUZZED]],
    "member_id": ["ada", "ada", "bob", ""],
    "group_instance_id": [None, None, None, "one"],
    "instance_id": [None, None, None, "one"],
    "protocol_type": ["consumer", "consumer", "consumer", ""],
    "protocol_name": ["range", "range", None],
    # Of a protocol or of a topic.
    "name": [TOPIC, "range"],
    "generation_id": [-1, 0, 1, 2],
    "generation_id_or_member_epoch": [-1, -1, 0, 1, 2],
    "member_epoch": [0, 0, 0, 1, 2, -1, -2],
    "session_timeout_ms": [10_000, 10_000, 10_000, 0, -1],
    "rebalance_timeout_ms": [10_000, 10_000, 10_000, 1, -1],
    "subscribed_topic_names": [[TOPIC], [TOPIC], [TOPIC, TOPIC], [], None],
    "subscribed_topic_regex": [None, None, None, "t.*", "(", "(a+)+$", ""],
    "server_assignor": [None, None, None, "uniform", "range", "none"],
    "rack_id": [None, None, "a"],
    "topic_partitions": [[], [], None],
    "partition_index": [0, 0, 1, -1, 2**31 - 1],
}
# As often as they lead somewhere new.
KINDS: dict[type[Request], int] = {
    JoinGroupRequest: 3,
    ConsumerGroupHeartbeatRequest: 3,
    SyncGroupRequest: 2,
    HeartbeatRequest: 2,
    LeaveGroupRequest: 2,
    OffsetCommitRequest: 2,
    OffsetFetchRequest: 1,
    OffsetDeleteRequest: 1,
    DeleteGroupsRequest: 1,
    DescribeGroupsRequest: 1,
    ConsumerGroupDescribeRequest: 1,
    ListGroupsRequest: 1,
    FindCoordinatorRequest: 1,
}


@st.composite
def requests(draw: st.DrawFn) -> tuple[Request, int]:
    """A request, and the version in which it is sent."""
    kind = draw(st.sampled_from([kind for kind, times in KINDS.items() for _ in range(times)]))
    spoken = spoken_versions(kind.declaration.key)
    version = draw(st.integers(spoken.lowest, spoken.highest))
    request = draw(arbitrary(kind, version, is_flexible=kind.declaration.flexible.includes(version)))
    make_sensible(draw, request, version)
    return request, version


def make_sensible(draw: st.DrawFn, message: Struct, version: int) -> None:
    """Give most fields a value that somebody might mean."""
    for name, wire_type, is_nullable in fields_of(type(message), version):
        value = getattr(message, name)
        sensible = SENSIBLE.get(name)
        if sensible is not None and draw(st.integers(0, 15)):
            chosen = draw(st.sampled_from(sensible))
            if chosen is not None or is_nullable:
                setattr(message, name, chosen)
        elif isinstance(wire_type, ArrayOf) and value:
            for each in value:
                if isinstance(each, Struct):
                    make_sensible(draw, each, version)


@pytest.mark.slow
@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(requests(), min_size=5, max_size=25))
def test_whatever_requests_say_the_broker_and_its_groups_go_on(sent: list[tuple[Request, int]]) -> None:
    settings = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "2"}
    with Broker(settings) as broker:
        broker.create_topic(partitions=2)
        find_coordinator(broker, GROUP, FUZZED)
        bystander = Member(broker)
        stable([bystander])
        for request, version in sent:
            # Joins and syncs may wait for others, and malformed contents end their connection.
            wire = broker.connect(client_id="fuzz")
            wire.send(request, version)
            broker.run_for(10)
        assert bystander.heartbeat() is ErrorCode.NONE
        assert bystander.commit({(TOPIC, 0): 7}) is ErrorCode.NONE

        # After a crash all is loaded, and whoever was let in is gone when its session is over.
        broker.crash()
        find_coordinator(broker, GROUP, FUZZED)
        assert committed(broker)[TOPIC, 0] == 7
        broker.run_for(60_000)
        newcomer = Member(broker, group_id="new")
        find_coordinator(broker, "new")
        stable([newcomer])
        heartbeat = ConsumerGroupHeartbeatRequest(
            group_id=FUZZED,
            member_id="newcomer",
            member_epoch=0,
            rebalance_timeout_ms=10_000,
            subscribed_topic_names=[TOPIC],
            topic_partitions=[],
        )
        joined = answer(broker.ask(heartbeat), ConsumerGroupHeartbeatResponse)
        # Members of some other protocol type, which nobody has expired yet, may still have the group.
        assert joined.error_code in (ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND), joined
        if joined.error_code == ErrorCode.NONE:
            code = commit(
                broker, {(TOPIC, 1): 3}, group_id=FUZZED, member_id="newcomer", generation=joined.member_epoch
            )
            assert code is ErrorCode.NONE
