"""Clients of several languages share groups, through all that can happen to members and to the broker."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from clients.drivers import REFERENCE, make_driver
from clients.drivers.driver import GroupProtocol, NewRecord, ToolchainMissing
from clients.members import COMMANDS
from clients.members.history import check_history, check_nothing_owned_twice
from clients.members.member import Member
from clients.rough_broker import RoughBroker
from confluent_kafka import KafkaError, Message, Producer

# Every wait has a limit of its own; all together they may take longer than one test does elsewhere.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

PARTITIONS = 8
WAIT_S = 120
PAUSE_BETWEEN_RECORDS_S = 0.005

# Small enough to be quick, and no smaller than what a busy machine needs to be in time.
BROKER_SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.session.timeout.ms": "6000",
    "group.consumer.heartbeat.interval.ms": "1000",
    "group.consumer.min.heartbeat.interval.ms": "1000",
}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RoughBroker]:
    with RoughBroker(tmp_path, BROKER_SETTINGS) as running:
        yield running
        running.check_health()


class Load(threading.Thread):
    """Somebody who writes numbered records to all partitions, until told to stop."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        super().__init__(daemon=True)
        self._topic = topic
        self._enough = threading.Event()
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "log_level": 2})
        self.written: set[tuple[int, int]] = set()
        self.refused: list[KafkaError] = []

    def run(self) -> None:
        number = 0
        while not self._enough.wait(PAUSE_BETWEEN_RECORDS_S):
            self._producer.produce(
                self._topic, b"%d" % number, partition=number % PARTITIONS, on_delivery=self._on_delivery
            )
            self._producer.poll(0)
            number += 1
        self._producer.flush()

    def stop(self) -> set[tuple[int, int]]:
        """Write no more; gives partition and offset of all that was written."""
        self._enough.set()
        self.join()
        assert self.refused == []
        return set(self.written)

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        partition, offset = message.partition(), message.offset()
        if error is not None or partition is None or offset is None:
            self.refused.append(error or KafkaError(KafkaError._FAIL))
        else:
            self.written.add((partition, offset))


class Group:
    """A group under load: its members, those of the past too, and what is written for it to read."""

    def __init__(self, broker: RoughBroker, stack: ExitStack) -> None:
        self.broker = broker
        self._stack = stack
        self.name = f"group-{uuid.uuid4().hex[:8]}"
        self.topic = f"topic-{uuid.uuid4().hex[:8]}"
        self.members: list[Member] = []
        self.load = Load(broker.address, self.topic)

    def join(self, client: str, protocol: GroupProtocol = "classic") -> Member:
        """A new member."""
        member = Member(client, self.broker.address, group=self.name, topic=self.topic, protocol=protocol)
        self._stack.callback(member.close)
        self.members.append(member)
        return member

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for a condition; what everybody knows is told if it does not come."""
        deadline = time.monotonic() + WAIT_S
        while not condition():
            assert time.monotonic() < deadline, f"not within {WAIT_S} s: {what}\n{self._told()}"
            time.sleep(0.05)

    def until_shared(self, *members: Member) -> None:
        """Wait until these members, and they alone, have all partitions among them, and each has some."""

        def is_shared() -> bool:
            owned = [member.owned() for member in members]
            return all(owned) and sum(map(len, owned)) == PARTITIONS == len(frozenset().union(*owned))

        self.until(is_shared, f"{[member.name for member in members]} share the partitions")

    def until_all_read(self, written: set[tuple[int, int]]) -> None:
        """Wait until every record was processed, by whomever, and the end of each partition is committed."""
        ends = dict.fromkeys(range(PARTITIONS), 0)
        for partition, offset in written:
            ends[partition] = max(ends[partition], offset + 1)
        self.until(lambda: written <= self._read(), "all that was written is read")
        self.until(lambda: self._committed() == ends, f"the group has committed {ends}")

    def until_more_is_read(self, *members: Member) -> None:
        """Wait until each of the members has read something that is written from now on."""
        before = {id(member): len(member.read()) for member in members}
        self.until(
            lambda: all(len(member.read()) > before[id(member)] for member in members), "everybody reads on"
        )

    def _read(self) -> set[tuple[int, int]]:
        return {each for member in self.members for each in member.read()}

    def _committed(self) -> dict[int, int]:
        found = dict.fromkeys(range(PARTITIONS), 0)
        for member in self.members:
            for partition, offset in member.committed().items():
                found[partition] = max(found[partition], offset)
        return found

    def _told(self) -> str:
        lines = [
            f"{member.name}: runs {member.is_running()}, owns {sorted(member.owned())}, "
            f"read {len(member.read())}, said {member.said()[-600:]}"
            for member in self.members
        ]
        return "\n".join([*lines, f"written {len(self.load.written)}", self.broker.log()[-3000:]])


@contextmanager
def group_under_load(broker: RoughBroker) -> Iterator[Group]:
    """A group, and a producer that writes meanwhile."""
    with ExitStack() as stack:
        group = Group(broker, stack)
        create_topic(broker, group.topic)
        group.load.start()
        stack.callback(group.load.stop)
        yield group


def create_topic(broker: RoughBroker, topic: str, partitions: int = PARTITIONS) -> None:
    reference = make_driver(REFERENCE, broker.address)
    reference.create_topic(topic, partitions=partitions)
    reference.close()


def with_clients(*clients: str) -> None:
    """Skip the test where one of these cannot run."""
    for client in clients:
        try:
            COMMANDS[client]()
        except ToolchainMissing as missing:
            pytest.skip(f"{client}: {missing}")


def everybody_leaves_and_a_newcomer_goes_on(
    group: Group, members: Sequence[Member], newcomer: str, protocol: GroupProtocol = "classic"
) -> None:
    """After all is read and committed, the next member reads what comes then, and nothing else."""
    written = group.load.stop()
    group.until_all_read(written)
    for member in members:
        member.leave()
    check_history(group.members)
    last = group.join(newcomer, protocol)
    group.until_shared(last)
    reference = make_driver(REFERENCE, group.broker.address)
    added = {
        (placed.partition, placed.offset)
        for partition in range(PARTITIONS)
        for placed in reference.produce(group.topic, [NewRecord(b"more", partition=partition)])
    }
    reference.close()
    group.until(lambda: added <= set(last.read()), "the newcomer reads what comes")
    assert sorted(last.read()) == sorted(added)
    last.leave()


def test_clients_of_all_languages_share_a_classic_group_and_survive_each_other(broker: RoughBroker) -> None:
    clients = (
        "librdkafka",
        "kafka-python",
        "aiokafka",
        "Java client",
        "kafkajs",
        "franz-go",
        "moldau.client",
    )
    with_clients(*clients)
    with group_under_load(broker) as group:
        librdkafka, kafka_python, aiokafka, java, kafkajs, franz_go, own = map(group.join, clients)
        group.until_shared(*group.members)
        group.until_more_is_read(*group.members)

        aiokafka.leave()
        group.until_shared(librdkafka, kafka_python, java, kafkajs, franz_go, own)

        java.kill()
        group.until_shared(librdkafka, kafka_python, kafkajs, franz_go, own)

        franz_go.pause()
        librdkafka.pause()
        group.until_shared(kafka_python, kafkajs, own)
        franz_go.resume()
        librdkafka.resume()
        group.until_shared(librdkafka, kafka_python, kafkajs, franz_go, own)

        java = group.join("Java client")
        kafkajs.kill()
        group.until_shared(librdkafka, kafka_python, java, franz_go, own)
        group.until_more_is_read(librdkafka, kafka_python, java, franz_go, own)

        broker.kill()
        broker.start()
        aiokafka = group.join("aiokafka")
        remaining = [librdkafka, kafka_python, java, franz_go, own, aiokafka]
        group.until_shared(*remaining)
        group.until_more_is_read(*remaining)
        everybody_leaves_and_a_newcomer_goes_on(group, remaining, "librdkafka")
        check_nothing_owned_twice(group.members)


def test_clients_share_a_group_that_the_coordinator_assigns(broker: RoughBroker) -> None:
    with_clients("librdkafka", "Java client")
    with group_under_load(broker) as group:
        java, other_java = (group.join("Java client", "consumer") for _ in range(2))
        librdkafka, other_librdkafka = (group.join("librdkafka", "consumer") for _ in range(2))
        own = group.join("moldau.client", "consumer")
        group.until_shared(*group.members)
        group.until_more_is_read(*group.members)

        other_java.kill()
        group.until_shared(java, librdkafka, other_librdkafka, own)

        java.pause()
        other_librdkafka.pause()
        group.until_shared(librdkafka, own)
        java.resume()
        other_librdkafka.resume()
        group.until_shared(java, librdkafka, other_librdkafka, own)

        librdkafka.leave()
        group.until_shared(java, other_librdkafka, own)

        broker.kill()
        broker.start()
        librdkafka = group.join("librdkafka", "consumer")
        remaining = [java, librdkafka, other_librdkafka, own]
        group.until_shared(*remaining)
        group.until_more_is_read(*remaining)
        everybody_leaves_and_a_newcomer_goes_on(group, remaining, "Java client", "consumer")
        check_nothing_owned_twice(group.members)


def test_a_group_moves_to_the_new_protocol_and_back_while_it_reads(broker: RoughBroker) -> None:
    with_clients("librdkafka", "Java client")
    with group_under_load(broker) as group:
        classic = [group.join("librdkafka"), group.join("Java client")]
        group.until_shared(*classic)
        group.until_more_is_read(*classic)

        new = [group.join("librdkafka", "consumer"), group.join("Java client", "consumer")]
        group.until_shared(*classic, *new)
        group.until_more_is_read(*classic, *new)
        for member in classic:
            member.leave()
        group.until_shared(*new)
        group.until_more_is_read(*new)

        classic = [group.join("librdkafka"), group.join("Java client")]
        group.until_shared(*classic, *new)
        for member in new:
            member.leave()
        group.until_shared(*classic)
        group.until_more_is_read(*classic)
        everybody_leaves_and_a_newcomer_goes_on(group, classic, "librdkafka")
        check_nothing_owned_twice(group.members)
