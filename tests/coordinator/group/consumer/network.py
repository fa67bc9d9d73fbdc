"""Consumers behind a network that loses, delays and reorders, and a coordinator that fails over."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from random import Random

from coordinator.group.consumer.consumers import REBALANCE_TIMEOUT_MS, Consumers
from coordinator.group.live import GROUP, Asked

from moldau.coordinator.group.consumer.group import ConsumerGroup
from moldau.coordinator.group.shard import GroupShard
from moldau.coordinator.shard import CoordinatorRecord
from moldau.model.errors import ErrorCode, KafkaError
from moldau.model.ids import Uuid
from moldau.wire.messages.consumer_groups import ConsumerGroupHeartbeatResponse
from moldau.wire.messages.internal_logs import GROUP_LOG

# A topic that is created anew is another one, so it goes by its id.
Partition = tuple[Uuid, int]

LOST = (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID)


@dataclass
class Connection:
    """One connection: what was sent over it arrives in order, late or never."""

    number: int
    requests: deque[dict[str, object]] = field(default_factory=deque)
    replies: deque[Asked] = field(default_factory=deque)


class Client:
    """A consumer as a real one: one request at a time, revoking takes its time, a timeout reconnects."""

    def __init__(self, name: str, topics: tuple[str, ...], instance: str | None = None) -> None:
        self.name = name
        self.topics = topics
        self.instance = instance
        self.epoch = 0
        self.owned: list[Partition] = []
        self.wanted: list[Partition] | None = None
        self.connection: Connection | None = None
        self.is_waiting = False
        self.says_all = True
        self.has_news = False
        self.is_member = False
        # The coordinator has given it up, and it does not know yet: what it reads does not count.
        self.is_expired = False

    @property
    def is_giving_up(self) -> bool:
        return self.wanted is not None

    def request(self) -> dict[str, object]:
        said: dict[str, object] = {"member_id": self.name, "epoch": self.epoch, "instance": self.instance}
        if self.says_all or self.epoch == 0:
            said |= {"topics": self.topics, "rebalance_timeout_ms": REBALANCE_TIMEOUT_MS}
            said["owned"] = list(self.owned)
        elif self.has_news:
            said["owned"] = list(self.owned)
        self.says_all = self.has_news = False
        return said

    def take(self, asked: Asked) -> None:
        """Do what a reply says, which may take a while."""
        self.is_waiting = False
        if isinstance(asked.answer, KafkaError):
            if asked.answer.code in LOST:
                self.lose()
            self.says_all = True
            return
        reply = asked.reply(ConsumerGroupHeartbeatResponse)
        self.epoch = reply.member_epoch
        if reply.assignment is not None:
            self.wanted = sorted(
                (topic.topic_id, each)
                for topic in reply.assignment.topic_partitions
                for each in topic.partitions
            )
            if set(self.owned) <= set(self.wanted):
                # Giving up takes a while, getting does not: what is not told as owned must not be read later.
                self.give_up()

    def lose(self) -> None:
        self.epoch, self.owned, self.wanted, self.is_expired = 0, [], None, False

    def give_up(self) -> None:
        """Revoking is done: now it has what it was told to have."""
        assert self.wanted is not None
        self.has_news = self.has_news or self.wanted != self.owned
        self.owned, self.wanted = self.wanted, None


class Network:
    """A group of clients whose messages go astray; every step keeps what must hold."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.group = Consumers({"t": 5, "u": 3})
        self.clients: list[Client] = []
        self.connections: list[Connection] = []
        self.connection_count = 0
        self.client_count = 0
        self.standby = GroupShard()
        self.followed = 0
        self.newest: dict[bytes, tuple[int, CoordinatorRecord]] = {}

    # ------------------------------------------------------------ what may happen

    def step(self) -> None:
        actions = (
            [self.send] * 8
            + [self.deliver_request] * 10
            + [self.deliver_reply] * 10
            + [self.finish_revocation] * 6
            + [self.time_out] * 2
            + [
                self.deliver_late,
                self.restart,
                self.arrive,
                self.depart,
                self.subscribe,
                self.wait,
                self.fail_over,
                self.change_topics,
            ]
        )
        self.random.choice(actions)()
        self.check()

    def arrive(self) -> None:
        if len(self.clients) < 6:
            self.client_count += 1
            topics = self.random.choice([("t",), ("t", "u"), ("u",), ("t", "u", "v")])
            instance = f"i{self.client_count}" if self.random.random() < 0.3 else None
            self.clients.append(Client(f"m{self.client_count}", topics, instance))

    def restart(self) -> None:
        """A static member goes, mostly with a word, and comes back under another id."""
        static = [client for client in self.clients if client.instance is not None]
        if static:
            client = self.random.choice(static)
            self.clients.remove(client)
            if client.epoch and self.random.random() < 0.7:
                said = {"member_id": client.name, "epoch": -2, "instance": client.instance}
                self._ask(said, self._new_connection())
            self.client_count += 1
            self.clients.append(Client(f"m{self.client_count}", client.topics, client.instance))

    def depart(self) -> None:
        if self.clients and self.random.random() < 0.5:
            client = self.random.choice(self.clients)
            self.clients.remove(client)
            if client.epoch and self.random.random() < 0.7:
                # It stops reading before it says so.
                client.owned, client.wanted = [], None
                said = {"member_id": client.name, "epoch": -1, "instance": client.instance}
                self._ask(said, self._new_connection())
            # Otherwise it is gone without a word, and reads nothing any more.

    def subscribe(self) -> None:
        if self.clients:
            client = self.random.choice(self.clients)
            client.topics = self.random.choice([("t",), ("t", "u"), ("u",), ()])
            client.says_all = True

    def send(self) -> None:
        idle = [client for client in self.clients if not client.is_waiting]
        if idle:
            client = self.random.choice(idle)
            if client.connection is None:
                client.connection = self._new_connection()
            client.connection.requests.append(client.request())
            client.is_waiting = True

    def deliver_request(self) -> None:
        current = [each.connection for each in self.clients if each.connection is not None]
        self._deliver([each for each in current if each.requests])

    def deliver_late(self) -> None:
        """What a client has long given up arrives."""
        current = [each.connection for each in self.clients]
        self._deliver([each for each in self.connections if each.requests and each not in current])

    def _deliver(self, busy: list[Connection]) -> None:
        if busy:
            connection = self.random.choice(busy)
            asked = self._ask(connection.requests.popleft(), connection)
            connection.replies.append(asked)

    def deliver_reply(self) -> None:
        ready = [each for each in self.clients if each.connection is not None and each.connection.replies]
        if ready:
            client = self.random.choice(ready)
            assert client.connection is not None
            client.take(client.connection.replies.popleft())

    def finish_revocation(self) -> None:
        giving_up = [client for client in self.clients if client.is_giving_up]
        if giving_up:
            self.random.choice(giving_up).give_up()

    def time_out(self) -> None:
        """A client hears nothing, and tries again over another connection; the old request may arrive yet."""
        waiting = [client for client in self.clients if client.is_waiting]
        if waiting:
            client = self.random.choice(waiting)
            old, client.connection = client.connection, self._new_connection()
            client.is_waiting, client.says_all = False, True
            assert old is not None
            if self.random.random() < 0.5:
                self.connections.remove(old)

    def wait(self) -> None:
        self.group.wait(self.random.choice([100, 5_000, 20_000, 50_000]))
        self._notice_the_expired()

    def fail_over(self) -> None:
        if self.random.random() < 0.4:
            log = self.compacted() if self.random.random() < 0.5 else None
            self.group.reload(log)
            # Whatever is on its way to the old coordinator never comes to the new one.
            for connection in self.connections:
                connection.requests.clear()

    def change_topics(self) -> None:
        has_v = self.group.partition_count("v") > 0
        match self.random.randrange(4):
            case 0 if not has_v:
                self.group.create("v", 2)
            case 1 if has_v:
                self.group.delete("v")
            case 2:
                self.group.grow("u", min(self.group.partition_count("u") + 1, 6))

    def heal(self) -> None:
        """Everything arrives from now on, and everybody has as much time as it takes."""
        for connection in list(self.connections):
            while connection.requests:
                connection.replies.append(self._ask(connection.requests.popleft(), connection))
                self.check()
        for client in self.clients:
            client.is_waiting, client.says_all, client.connection = False, True, self._new_connection()
        gone = [each for each in self.group_members() if each not in [client.name for client in self.clients]]
        for _ in range(12 if not gone else 24):
            for client in self.clients:
                assert client.connection is not None
                client.take(self._ask(client.request(), client.connection))
                self.check()
                if client.is_giving_up:
                    client.give_up()
                self.check()
            self.group.wait(5_000)
            self._notice_the_expired()

    # ------------------------------------------------------------ what must hold

    def check(self) -> None:
        self._check_log()
        held: dict[Partition, str] = {}
        for client in self.clients:
            if not client.is_expired:
                for partition in client.owned:
                    assert partition not in held, f"{held[partition]} and {client.name} read {partition}"
                    held[partition] = client.name

    def check_settled(self) -> None:
        group = self.group.shard.state.groups.get(GROUP)
        if not self.clients or not isinstance(group, ConsumerGroup):
            return
        assert group.state_name == "Stable", group.state_name
        wanted = {topic for client in self.clients for topic in client.topics}
        everything = [
            (self.group.topic_id(topic), each)
            for topic in wanted
            for each in range(self.group.partition_count(topic))
        ]
        read = [partition for client in self.clients for partition in client.owned]
        assert sorted(read) == sorted(everything)
        for client in self.clients:
            assert {self.group.name(topic_id) for topic_id, _ in client.owned} <= set(client.topics)

    def _check_log(self) -> None:
        """A standby that follows the log, and one that loads it compacted, have the state of the leader."""
        for record in self.group.log[self.followed :]:
            self.standby.apply(record)
            self.newest[GROUP_LOG.encode_key(record.key)] = (self.followed, record)
            self.followed += 1
        loaded = GroupShard()
        for record in self.compacted():
            loaded.apply(record)
        live = logged(self.group.shard)
        assert logged(self.standby) == live
        assert logged(loaded) == live

    def compacted(self) -> list[CoordinatorRecord]:
        """The last record of every key, with or without those that say that there is nothing."""
        keeps_tombstones = self.followed % 2 == 0
        kept = sorted(self.newest.values(), key=lambda each: each[0])
        return [record for _, record in kept if keeps_tombstones or record.value is not None]

    # ------------------------------------------------------------ within

    def group_members(self) -> list[str]:
        group = self.group.shard.state.groups.get(GROUP)
        return list(group.members) if isinstance(group, ConsumerGroup) else []

    def _ask(self, said: dict[str, object], connection: Connection) -> Asked:
        asked = self.group.beat(**said, connection=connection.number)  # type: ignore[arg-type]
        self._notice_the_expired()
        for client in self.clients:
            if client.connection is connection and not isinstance(asked.answer, KafkaError):
                client.is_member = True
                if said["epoch"] == 0:
                    assert not client.owned
                    client.is_expired = False
        return asked

    def _notice_the_expired(self) -> None:
        members = self.group_members()
        for client in self.clients:
            if client.is_member and client.name not in members:
                client.is_member, client.is_expired = False, True

    def _new_connection(self) -> Connection:
        self.connection_count += 1
        connection = Connection(self.connection_count)
        self.connections.append(connection)
        return connection


def logged(shard: GroupShard) -> dict[str, object]:
    """All that the log is to tell, with what is counted along the way."""
    return {
        group_id: {name: getattr(group, name) for name in ConsumerGroup.__slots__ if name != "_topics"}
        for group_id, group in shard.state.groups.items()
        if isinstance(group, ConsumerGroup)
    }
