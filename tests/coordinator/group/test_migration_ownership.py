"""Classic members and members with epochs come and go at random, and the group changes its kind.

No partition is read by two, whatever the group is at the time; and when nothing changes any more, all are
read.
"""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest
from coordinator.group.consumer.classics import Classic, assignment, assignment_of
from coordinator.group.consumer.consumers import Consumer, Consumers, Partition
from coordinator.group.consumer.network import logged
from coordinator.group.live import GROUP, Asked

from moldau.coordinator.group.classic.group import ClassicGroup
from moldau.coordinator.group.consumer.embedded import read_subscription
from moldau.coordinator.group.consumer.group import ConsumerGroup
from moldau.coordinator.group.shard import GroupShard
from moldau.coordinator.shard import CoordinatorRecord
from moldau.model.errors import ErrorCode, KafkaError
from moldau.wire.messages.groups import JoinGroupResponse, SyncGroupResponse
from moldau.wire.messages.internal_logs import GROUP_LOG

PARTITIONS = 5


class Wanderer(Classic):
    """A classic consumer that takes one small step at a time, in a group of whatever kind."""

    def __init__(self, group: Consumers, *, is_cooperative: bool) -> None:
        super().__init__(group, "t", is_cooperative=is_cooperative)
        self.joining: Asked | None = None
        self.syncing: Asked | None = None

    @property
    def is_parked(self) -> bool:
        return any(each is not None and each.is_parked for each in (self.joining, self.syncing))

    def step(self) -> None:
        if self.is_parked:
            return
        if self.syncing is not None:
            asked, self.syncing = self.syncing, None
            self.take_sync(asked)
        elif self.joining is not None:
            asked, self.joining = self.joining, None
            if self.taken_in(asked) is ErrorCode.NONE:
                self.syncing = self.ask_sync(asked.reply(JoinGroupResponse))
        elif self.must_join:
            self.joining = self.ask_join()
        else:
            self.beat()

    def ask_sync(self, joined: JoinGroupResponse) -> Asked:
        assignments = {}
        if joined.leader == self.member_id:
            assignments = lead(
                {each.member_id: each.metadata for each in joined.members}, self.is_cooperative
            )
        return self.group.sync(self.member_id, self.generation, assignments, protocol_name=self.protocol)

    def take_sync(self, asked: Asked) -> None:
        if isinstance(asked.answer, KafkaError):
            self.refused(asked.answer.code)
            return
        reply = asked.reply(SyncGroupResponse)
        if reply.error_code != ErrorCode.NONE:
            self.refused(ErrorCode(reply.error_code))
            return
        given = assignment(reply.assignment)
        self.must_join = self.is_cooperative and not set(self.owned) <= set(given)
        self.owned = given


def lead(members: dict[str, bytes], is_cooperative: bool) -> dict[str, bytes]:
    """What a leader assigns; a cooperative one gives nobody what another still has."""
    owners = {
        (topic.topic, each): member_id
        for member_id, metadata in members.items()
        for topic in read_subscription(metadata).owned_partitions
        for each in topic.partitions
    }
    share = -(-PARTITIONS // len(members))
    given: dict[str, list[Partition]] = {member_id: [] for member_id in members}
    rest = []
    for partition in [("t", number) for number in range(PARTITIONS)]:
        owner = owners.get(partition)
        if is_cooperative and owner is not None and len(given[owner]) < share:
            given[owner].append(partition)
        else:
            rest.append(partition)
    for partition in rest:
        least = min(members, key=lambda each: len(given[each]))
        if not is_cooperative or owners.get(partition, least) == least:
            given[least].append(partition)
    return {member_id: assignment_of(*partitions) for member_id, partitions in given.items()}


class Migrations:
    """A group, its members of both kinds, and what must hold between them."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.group = Consumers({"t": PARTITIONS})
        self.is_cooperative = self.random.random() < 0.5
        self.members: list[Consumer | Wanderer] = []
        self.count = 0
        self.known: dict[int, str] = {}
        self.kinds: list[type] = []
        self.newest: dict[bytes, tuple[int, CoordinatorRecord]] = {}
        self.followed = 0

    def step(self) -> None:
        kind = self.random.random()
        if kind < 0.03 and len(self.members) < 5:
            self.count += 1
            is_classic = self.random.random() < 0.5
            self.members.append(
                Wanderer(self.group, is_cooperative=self.is_cooperative)
                if is_classic
                else Consumer(self.group, f"m{self.count}", "t")
            )
        elif kind < 0.05 and self.members:
            self.depart(self.random.choice(self.members))
        elif kind < 0.07:
            self.group.wait(self.random.choice([1000, 3000, 11_000]))
        elif self.members:
            self.go_on(self.random.choice(self.members))
        self.check()

    def depart(self, member: Consumer | Wanderer) -> None:
        if isinstance(member, Wanderer):
            # Its connection is busy while it waits.
            if member.is_parked:
                return
            member.owned = []
            if member.member_id and GROUP in self.group.shard.state.groups:
                self.group.leave(member.member_id)
        elif member.epoch:
            member.owned = []
            self.group.beat(member.member_id, -1)
        self.members.remove(member)

    def go_on(self, member: Consumer | Wanderer) -> None:
        if isinstance(member, Wanderer):
            member.step()
            return
        asked = member.ask_full()
        if isinstance(asked.answer, KafkaError):
            member.epoch, member.owned = 0, []
        else:
            member.take(asked)

    def rest(self) -> None:
        for _ in range(60):
            for member in self.members:
                self.go_on(member)
                self.check()
            self.group.wait(1000)
            self.check()

    def check(self) -> None:
        group = self.group.shard.state.groups.get(GROUP)
        self.kinds.append(type(group))
        inside = group.members if isinstance(group, ClassicGroup | ConsumerGroup) else {}
        read: dict[Partition, object] = {}
        for member in self.members:
            # Whoever the coordinator has given up reads at its own peril, until it hears of it.
            if member.member_id in inside:
                for partition in member.owned:
                    assert partition not in read, f"two members read {partition}"
                    read[partition] = member
        for record in self.group.log[self.followed :]:
            self.newest[GROUP_LOG.encode_key(record.key)] = (self.followed, record)
            self.followed += 1
        loaded = GroupShard()
        for _, record in sorted(self.newest.values(), key=lambda each: each[0]):
            loaded.apply(record)
        assert logged(loaded) == logged(self.group.shard)
        # A classic group that is still gathering is in no log.
        there = loaded.state.groups.get(GROUP)
        if isinstance(group, ClassicGroup) and group.logged is not None:
            assert isinstance(there, ClassicGroup) and there.logged == group.logged

    def check_settled(self) -> None:
        if self.members:
            read = sorted(partition for member in self.members for partition in member.owned)
            assert read == [("t", number) for number in range(PARTITIONS)]


@pytest.mark.parametrize("seed", range(30))
def test_no_partition_is_read_by_two_while_groups_change_their_kind(seed: int) -> None:
    migrations = Migrations(seed)
    for _ in range(400):
        migrations.step()
    migrations.rest()
    migrations.check_settled()


def test_the_runs_do_change_the_kind_of_the_group() -> None:
    changes = 0
    for seed in range(5):
        migrations = Migrations(seed)
        for _ in range(400):
            migrations.step()
        kinds = [kind for kind in migrations.kinds if kind is not type(None)]
        changes += sum(one is not other for one, other in pairwise(kinds))
    assert changes >= 5
