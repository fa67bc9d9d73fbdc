"""A classic consumer, eager or cooperative, that may find itself in a consumer group."""

from __future__ import annotations

from coordinator.group.consumer.consumers import Consumers, Partition
from coordinator.group.live import Asked

from moldau.model.errors import ErrorCode, KafkaError
from moldau.wire.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
)
from moldau.wire.messages.groups import JoinGroupResponse, SyncGroupResponse

VERSION = 3


class Classic:
    """A member that joins, syncs and sends heartbeats; in a classic group it can lead."""

    def __init__(
        self,
        group: Consumers,
        *topics: str,
        is_cooperative: bool = False,
        instance: str | None = None,
        client_id: str = "classic",
    ) -> None:
        self.group = group
        self.topics = topics
        self.is_cooperative = is_cooperative
        self.instance = instance
        self.client_id = client_id
        self.member_id = ""
        self.generation = -1
        self.owned: list[Partition] = []
        self.must_join = True
        self.parked: Asked | None = None

    @property
    def protocol(self) -> str:
        return "cooperative-sticky" if self.is_cooperative else "range"

    @property
    def names(self) -> list[str]:
        return [f"{topic}{partition}" for topic, partition in self.owned]

    @property
    def progress(self) -> object:
        return self.generation, list(self.owned), self.must_join

    # ------------------------------------------------------------ step by step

    def ask_join(self) -> Asked:
        """Join; who is eager gives up everything before."""
        if not self.is_cooperative:
            self.owned = []
        asked = self._ask_join()
        if not asked.is_parked and asked.code is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = asked.joined.member_id
            asked = self._ask_join()
        return asked

    def _ask_join(self) -> Asked:
        return self.group.join(
            self.member_id,
            protocols={self.protocol: subscription(self.topics, self.owned, self.generation)},
            instance_id=self.instance,
            client_id=self.client_id,
        )

    def taken_in(self, asked: Asked) -> ErrorCode:
        """Take the reply to a join."""
        reply = asked.reply(JoinGroupResponse)
        code = ErrorCode(reply.error_code)
        if code is ErrorCode.NONE:
            self.member_id, self.generation, self.must_join = reply.member_id, reply.generation_id, False
        elif code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
            self.lose()
        return code

    def sync(self) -> ErrorCode:
        """Ask for the assignment, and do what it says; in a consumer group it is there at once."""
        asked = self.group.sync(
            self.member_id, self.generation, instance_id=self.instance, protocol_name=self.protocol
        )
        if isinstance(asked.answer, KafkaError):
            return self.refused(asked.code)
        reply = asked.reply(SyncGroupResponse)
        code = ErrorCode(reply.error_code)
        if code is not ErrorCode.NONE:
            return self.refused(code)
        assigned = assignment(reply.assignment)
        # A cooperative member that had to give something up says so by joining again.
        self.must_join = self.is_cooperative and not set(self.owned) <= set(assigned)
        self.owned = assigned
        return code

    def beat(self) -> ErrorCode:
        return self.refused(self.group.heartbeat(self.member_id, self.generation, instance_id=self.instance))

    def refused(self, code: ErrorCode) -> ErrorCode:
        if code is ErrorCode.REBALANCE_IN_PROGRESS:
            self.must_join = True
        elif code is not ErrorCode.NONE:
            self.lose(keeps_id=code is ErrorCode.ILLEGAL_GENERATION)
        return code

    def lose(self, *, keeps_id: bool = False) -> None:
        self.owned, self.generation, self.must_join = [], -1, True
        if not keeps_id:
            self.member_id = ""

    # ------------------------------------------------------------ as a member of a consumer group

    def join(self) -> Classic:
        assert self.taken_in(self.ask_join()) is ErrorCode.NONE
        assert self.sync() is ErrorCode.NONE
        return self

    def go_on(self) -> Classic:
        """A heartbeat, and whatever it asks for."""
        if not self.must_join:
            self.beat()
        if self.must_join:
            self.join()
        return self

    def leave(self) -> None:
        self.group.leave(self.member_id)
        self.owned = []


def subscription(topics: tuple[str, ...], owned: list[Partition], generation: int = -1) -> bytes:
    by_topic: dict[str, list[int]] = {}
    for topic, partition in owned:
        by_topic.setdefault(topic, []).append(partition)
    said = ConsumerProtocolSubscription(
        topics=list(topics),
        owned_partitions=[TopicPartition(topic=each, partitions=by_topic[each]) for each in by_topic],
        generation_id=generation,
    )
    return VERSION.to_bytes(2, "big") + said.encode(VERSION)


def assignment(data: bytes) -> list[Partition]:
    if not data:
        return []
    version = int.from_bytes(data[:2], "big")
    given = ConsumerProtocolAssignment.decode(data[2:], version)
    return sorted((topic.topic, each) for topic in given.assigned_partitions for each in topic.partitions)


def assignment_of(*partitions: Partition, user_data: bytes | None = None) -> bytes:
    by_topic: dict[str, list[int]] = {}
    for topic, partition in partitions:
        by_topic.setdefault(topic, []).append(partition)
    given = ConsumerProtocolAssignment(
        assigned_partitions=[TopicPartition(topic=each, partitions=by_topic[each]) for each in by_topic],
        user_data=user_data,
    )
    return (0).to_bytes(2, "big") + given.encode(0)
