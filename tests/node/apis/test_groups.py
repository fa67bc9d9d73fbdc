"""Who may do what to groups: every API asks for the group, and those that name topics for each of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from node.broker import TOPIC, Broker, answer
from node.members import GROUP, Member, commit, commit_request, committed, find_coordinator, stable

from moldau.model.errors import ErrorCode
from moldau.node.security import Operation, Principal, ResourceType
from moldau.wire.message import Request, Response
from moldau.wire.messages.groups import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    ListGroupsRequest,
    ListGroupsResponse,
    MemberIdentity,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    SyncGroupRequest,
)
from moldau.wire.types import Struct

READ, DESCRIBE, DELETE = Operation.READ, Operation.DESCRIBE, Operation.DELETE
OTHER = "other"


class Denies:
    """Denies some operations on some resources, and notes what was asked for."""

    def __init__(self, *denied: tuple[Operation, ResourceType, str]) -> None:
        self.denied = denied
        self.asked: list[tuple[Operation, ResourceType, str]] = []

    def authorize(
        self, principal: Principal, host: str, operation: Operation, resource_type: ResourceType, name: str
    ) -> bool:
        self.asked.append((operation, resource_type, name))
        return (operation, resource_type, name) not in self.denied


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker({"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "2"}) as made:
        made.create_topic()
        made.create_topic(OTHER)
        find_coordinator(made)
        commit(made, {(TOPIC, 0): 1, (OTHER, 0): 2})
        yield made


@contextmanager
def denied(broker: Broker, *what: tuple[Operation, ResourceType, str]) -> Iterator[Denies]:
    parts = broker.node.parts
    before, parts.authorizer = parts.authorizer, Denies(*what)
    try:
        yield parts.authorizer
    finally:
        parts.authorizer = before


def codes(struct: Struct) -> Iterator[int]:
    """All error codes of a response, at any depth."""
    for name in type(struct).declaration.fields:
        value = getattr(struct, name)
        if name == "error_code":
            yield value
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, Struct):
                yield from codes(each)


def protocol() -> list[JoinGroupRequestProtocol]:
    return [JoinGroupRequestProtocol(name="range", metadata=b"")]


OFFSETS_WANTED = [
    OffsetFetchRequestTopics(name=TOPIC, partition_indexes=[0]),
    OffsetFetchRequestTopics(name=OTHER, partition_indexes=[0]),
]

OF_GROUPS: list[tuple[Request, int, Operation]] = [
    (
        JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=10_000,
            member_id="",
            protocol_type="consumer",
            protocols=protocol(),
        ),
        9,
        READ,
    ),
    (
        SyncGroupRequest(
            group_id=GROUP,
            generation_id=1,
            member_id="m",
            protocol_type="consumer",
            protocol_name="range",
            assignments=[],
        ),
        5,
        READ,
    ),
    (HeartbeatRequest(group_id=GROUP, generation_id=1, member_id="m"), 4, READ),
    (LeaveGroupRequest(group_id=GROUP, members=[MemberIdentity(member_id="m")]), 5, READ),
    (commit_request({(TOPIC, 0): 1}), 9, READ),
    (OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=GROUP, topics=None)]), 9, DESCRIBE),
    (OffsetDeleteRequest(group_id=GROUP, topics=[]), 0, DELETE),
    (DescribeGroupsRequest(groups=[GROUP]), 6, DESCRIBE),
    (DeleteGroupsRequest(groups_names=[GROUP]), 2, DELETE),
    (FindCoordinatorRequest(key_type=0, coordinator_keys=[GROUP]), 6, DESCRIBE),
]


@pytest.mark.parametrize(
    ("request_", "version", "operation"), OF_GROUPS, ids=[type(each[0]).__name__ for each in OF_GROUPS]
)
def test_who_may_not_touch_a_group_is_told_so(
    broker: Broker, request_: Request, version: int, operation: Operation
) -> None:
    with denied(broker, (operation, ResourceType.GROUP, GROUP)):
        response = broker.ask(request_, version)
    assert ErrorCode.GROUP_AUTHORIZATION_FAILED in list(codes(response))
    assert committed(broker) == {(TOPIC, 0): 1, (OTHER, 0): 2}


def test_every_api_of_groups_is_in_the_table() -> None:
    assert len({type(request) for request, *_ in OF_GROUPS}) == 10


def by_topic(response: Response) -> dict[str, int]:
    assert isinstance(response, OffsetCommitResponse | OffsetDeleteResponse)
    return {topic.name: topic.partitions[0].error_code for topic in response.topics}


FAILED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_offsets_are_committed_only_in_topics_that_one_may_read(broker: Broker) -> None:
    with denied(broker, (READ, ResourceType.TOPIC, OTHER)):
        response = broker.ask(commit_request({(TOPIC, 0): 1, (OTHER, 0): 99}), 9)
    assert by_topic(response) == {TOPIC: ErrorCode.NONE, OTHER: FAILED}
    assert committed(broker) == {(TOPIC, 0): 1, (OTHER, 0): 2}


def test_offsets_are_deleted_only_in_topics_that_one_may_read(broker: Broker) -> None:
    topics = [
        OffsetDeleteRequestTopic(name=OTHER, partitions=[OffsetDeleteRequestPartition(partition_index=0)])
    ]
    with denied(broker, (READ, ResourceType.TOPIC, OTHER)):
        response = broker.ask(OffsetDeleteRequest(group_id=GROUP, topics=topics))
    assert by_topic(response) == {OTHER: FAILED}
    assert committed(broker) == {(TOPIC, 0): 1, (OTHER, 0): 2}


@pytest.mark.parametrize("wanted", [None, OFFSETS_WANTED], ids=["all", "named"])
def test_offsets_in_topics_that_one_may_not_see_are_hidden(
    broker: Broker, wanted: list[OffsetFetchRequestTopics] | None
) -> None:
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=GROUP, topics=wanted)])
    with denied(broker, (DESCRIBE, ResourceType.TOPIC, OTHER)):
        response = answer(broker.ask(request, 9), OffsetFetchResponse)
    found = {
        topic.name: (topic.partitions[0].committed_offset, topic.partitions[0].error_code)
        for topic in response.groups[0].topics
    }
    hidden = {} if wanted is None else {OTHER: (-1, FAILED)}
    assert found == {TOPIC: (1, ErrorCode.NONE)} | hidden


def test_groups_that_one_may_not_see_are_not_listed(broker: Broker) -> None:
    commit(broker, {(TOPIC, 0): 1}, group_id="secret")
    cluster = (DESCRIBE, ResourceType.CLUSTER, "kafka-cluster")
    with denied(broker, cluster, (DESCRIBE, ResourceType.GROUP, "secret")):
        listed = answer(broker.ask(ListGroupsRequest()), ListGroupsResponse).groups
        assert [each.group_id for each in listed] == [GROUP]
    with denied(broker, (DESCRIBE, ResourceType.GROUP, "secret")):
        listed = answer(broker.ask(ListGroupsRequest()), ListGroupsResponse).groups
        assert sorted(each.group_id for each in listed) == [GROUP, "secret"], "the cluster means all of them"


def test_a_member_needs_nothing_but_its_group(broker: Broker) -> None:
    member = Member(broker, group_id="mine")
    with denied(broker) as authorizer:
        stable([member])
        member.heartbeat()
        member.leave()
        of_groups = {(op, name) for op, kind, name in authorizer.asked if kind is ResourceType.GROUP}
        assert of_groups == {(READ, "mine")}
