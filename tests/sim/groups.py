"""A group whose members do only what a test tells them, and a history of what they hear."""

from __future__ import annotations

from collections.abc import Mapping

from node.broker import TOPIC, Broker, Wire, answer
from node.members import GROUP, commit_code, commit_request, committed_group, find_coordinator

from moldau.coordinator.group.consumer.group import ConsumerGroup
from moldau.coordinator.group.shard import GroupShard
from moldau.model.errors import ErrorCode
from moldau.model.ids import PartitionIndex, TopicName, TopicPartition
from moldau.sim.disk import Survives
from moldau.sim.group_checks import GroupHistory, Write
from moldau.wire.messages.consumer_groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupHeartbeatTopicPartitions,
)
from moldau.wire.messages.groups import OffsetCommitResponse

_REBALANCE_TIMEOUT_MS = 60_000
_QUICK = {
    "offsets.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.assignment.interval.ms": "0",
}


def place(index: int) -> TopicPartition:
    return TopicPartition(TopicName(TOPIC), PartitionIndex(index))


class ToldGroup(Broker):
    """A topic with two partitions, a group that reads it, and somebody who asks what it has committed."""

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        super().__init__({**_QUICK, **(settings or {})})
        self.history = GroupHistory(self._is_member)
        self.members: dict[str, ToldMember] = {}
        self.topic_id = self.create_topic(partitions=2)
        find_coordinator(self)

    def join(self, name: str) -> ToldMember:
        """A new member of the new kind, after its first heartbeat."""
        member = self.members[name] = ToldMember(self, name)
        member.beat()
        return member

    def look(self) -> None:
        """Ask what is committed until the coordinator answers, and note that."""
        while True:
            asked_us = self.sim.loop.now_us
            group = committed_group(self)
            if group.error_code == ErrorCode.NONE:
                break
            assert ErrorCode(group.error_code).is_retriable, ErrorCode(group.error_code)
            self.run_for(5)
        found = {
            place(each.partition_index): each.committed_offset
            for topic in group.topics
            for each in topic.partitions
        }
        now_us = self.sim.loop.now_us
        self.history.on_told("somebody", found, [place(0), place(1)], asked_us=asked_us, now_us=now_us)

    def lose_power(self) -> None:
        """The machine goes dark and is started again; its clients come back to it."""
        self._machine.power_cut(Survives.NOTHING)
        self.start()
        for member in self.members.values():
            member.wire = self.connect(client_id=member.name)

    def _is_member(self, name: str) -> bool | None:
        shard = self.node.groups.shard_of(GROUP)
        if not isinstance(shard, GroupShard):
            return None
        group = shard.state.groups.get(GROUP)
        return isinstance(group, ConsumerGroup) and name in group.members


class ToldMember:
    """A member of the new kind; what is taken from it, it reads on until it is told to give it up."""

    def __init__(self, group: ToldGroup, name: str) -> None:
        self.group = group
        self.name = name
        self.wire: Wire = group.connect(client_id=name)
        self.epoch = 0
        self.owned: set[int] = set()
        self.wanted: set[int] = set()
        self._has_news = True

    def beat(self) -> None:
        """Say what has changed, and take what there is to take."""
        is_joining = self.epoch == 0
        request = ConsumerGroupHeartbeatRequest(group_id=GROUP, member_id=self.name, member_epoch=self.epoch)
        if is_joining:
            request.rebalance_timeout_ms = _REBALANCE_TIMEOUT_MS
            request.subscribed_topic_names = [TOPIC]
        if self._has_news:
            partitions = sorted(self.owned)
            request.topic_partitions = [
                ConsumerGroupHeartbeatTopicPartitions(topic_id=self.group.topic_id, partitions=partitions)
            ]
            if is_joining:
                request.topic_partitions = []
        reply = answer(self.wire.ask(request), ConsumerGroupHeartbeatResponse)
        assert reply.error_code == ErrorCode.NONE, ErrorCode(reply.error_code)
        self._has_news = False
        self.epoch = reply.member_epoch
        if reply.assignment is not None:
            self.wanted = {each for topic in reply.assignment.topic_partitions for each in topic.partitions}
        if self.owned <= self.wanted:
            self._take()

    def give_up(self) -> None:
        """Read no more what is to be given up; the next heartbeat says so."""
        self.group.history.on_given_up(self.name, map(place, self.owned - self.wanted))
        self.owned &= self.wanted
        self._has_news = True
        self._take()

    def leave(self) -> None:
        """Leave for good."""
        self.group.history.on_given_up(self.name, map(place, self.owned))
        self.owned = set()
        request = ConsumerGroupHeartbeatRequest(group_id=GROUP, member_id=self.name, member_epoch=-1)
        answer(self.wire.ask(request), ConsumerGroupHeartbeatResponse)

    def read(self, index: int, first: int, count: int) -> None:
        """Read some records of a partition."""
        for offset in range(first, first + count):
            self.group.history.on_read(self.name, place(index), offset, self._now_us)

    def commit(self, index: int, offset: int) -> ErrorCode:
        """Commit, and note what came of it."""
        written = self.send_commit(index, offset)
        code = commit_code(answer(self.wire.receive(), OffsetCommitResponse))
        if code is ErrorCode.NONE:
            self.group.history.on_committed(written, self._now_us)
        return code

    def send_commit(self, index: int, offset: int) -> list[Write]:
        """Commit, and wait for nothing."""
        written = self.group.history.on_commit(self.name, {place(index): offset}, self._now_us)
        self.wire.send(
            commit_request({(TOPIC, index): offset}, member_id=self.name, generation=self.epoch), 9
        )
        return written

    def _take(self) -> None:
        new = self.wanted - self.owned
        if new:
            self._has_news = True
        self.owned |= new
        self.group.history.on_granted(self.name, [place(index) for index in sorted(new)], self._now_us)

    @property
    def _now_us(self) -> int:
        return self.group.sim.loop.now_us
