"""Consumers that others wrote, in one group: they share partitions, leave, are killed, and forget nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Self

import pytest
from clients.group_member import CLIENTS
from clients.raw_client import wait_until
from clients.rough_broker import RoughBroker
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from moldau.model.errors import ErrorCode

TOPIC = "jobs"
GROUP = "workers"
PARTITIONS = 6
TIMEOUT_S = 60
TESTS = Path(__file__).parents[1]


class MemberProcess:
    """One consumer, and what it has told so far; a context manager that kills it, if it still runs."""

    def __init__(self, client: str, address: str, *, group: str = GROUP, instance: str | None = None) -> None:
        self.client = client
        self.assigned: list[int] = []
        self.got: list[tuple[int, int, str]] = []
        command = [sys.executable, "-m", "clients.group_member", client, address, TOPIC, group]
        paths = [str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])]
        self._process = subprocess.Popen(
            command + ([instance] if instance is not None else []),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
            text=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            told = json.loads(line)
            if "assigned" in told:
                self.assigned = told["assigned"]
            elif "got" in told:
                partition, offset, value = told["got"]
                self.got.append((partition, offset, value))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def kill(self) -> None:
        """End it as a crash does: nobody is told."""
        self._process.kill()
        self._process.wait()
        self._reader.join()
        self.assigned = []

    def leave(self) -> None:
        """Let it leave the group."""
        self._process.terminate()
        assert self._process.wait(timeout=TIMEOUT_S) == 0, self.client
        self._reader.join()
        self.assigned = []


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RoughBroker]:
    settings = {"group.initial.rebalance.delay.ms": "200"}
    with RoughBroker(tmp_path, settings) as made:
        with made.connect() as client:
            assert client.create_topic(TOPIC, partitions=PARTITIONS) == ErrorCode.NONE
        yield made
        made.check_health()


class Work:
    """Numbered records, some to every partition."""

    def __init__(self, broker: RoughBroker) -> None:
        self.values: list[str] = []
        self._producer = Producer({"bootstrap.servers": broker.address})

    def add(self, count: int = 60) -> None:
        for number in range(count):
            value = f"job-{len(self.values)}"
            self._producer.produce(TOPIC, value, partition=number % PARTITIONS)
            self.values.append(value)
        assert self._producer.flush(TIMEOUT_S) == 0


@contextmanager
def members(broker: RoughBroker, *clients: str) -> Iterator[list[MemberProcess]]:
    started: list[MemberProcess] = []
    try:
        for client in clients:
            started.append(MemberProcess(client, broker.address))
        yield started
    finally:
        for member in started:
            member.kill()


def wait_for_shares(alive: Sequence[MemberProcess]) -> None:
    """Every partition has one owner, and each member has as many as the others."""

    def is_shared() -> bool:
        owned = sorted(partition for member in alive for partition in member.assigned)
        sizes = {len(member.assigned) for member in alive}
        return owned == list(range(PARTITIONS)) and max(sizes) - min(sizes) <= 1

    wait_until(is_shared, "the partitions are shared", TIMEOUT_S)


def values_got(of: Sequence[MemberProcess]) -> Counter[str]:
    return Counter(value for member in of for _, _, value in member.got)


def wait_for_work(of: Sequence[MemberProcess], work: Work) -> None:
    wait_until(lambda: set(values_got(of)) >= set(work.values), "all work is done", TIMEOUT_S)


def committed(broker: RoughBroker) -> list[int]:
    """The positions of the group, as an admin sees them."""
    consumer = Consumer({"bootstrap.servers": broker.address, "group.id": GROUP})
    try:
        found = consumer.committed([TopicPartition(TOPIC, each) for each in range(PARTITIONS)], timeout=30)
    finally:
        consumer.close()
    return [each.offset for each in found]


def test_clients_of_three_kinds_share_one_group(broker: RoughBroker) -> None:
    work = Work(broker)
    work.add()
    with members(broker, *CLIENTS) as all_of_them:
        wait_for_shares(all_of_them)
        work.add()
        wait_for_work(all_of_them, work)
        assert all(member.got for member in all_of_them)
        leaving, killed, last = all_of_them
        leaving.leave()
        wait_for_shares([killed, last])
        work.add()
        wait_for_work(all_of_them, work)
        killed.kill()
        # Nobody has said that it is gone: its session has to end first.
        wait_for_shares([last])
        work.add()
        wait_for_work(all_of_them, work)
        last.leave()
        assert committed(broker) == [len(work.values) // PARTITIONS] * PARTITIONS


@pytest.mark.slow
@pytest.mark.parametrize("client", CLIENTS)
def test_a_member_goes_on_when_the_broker_is_killed_and_started_again(
    broker: RoughBroker, client: str
) -> None:
    work = Work(broker)
    work.add()
    with members(broker, client) as (member,):
        wait_for_work([member], work)
        broker.kill()
        broker.start()
        work.add()
        wait_for_work([member], work)
    assert not [value for value, count in values_got([member]).items() if count > 1], "nothing comes twice"


@pytest.mark.slow
@pytest.mark.parametrize("client", CLIENTS)
def test_positions_are_kept_while_nobody_is_there(broker: RoughBroker, client: str) -> None:
    work = Work(broker)
    work.add()
    with members(broker, client) as (before,):
        wait_for_work([before], work)
        before.leave()
    broker.stop()
    broker.start()
    work.add()
    with members(broker, client) as (after,):
        wait_for_work([before, after], work)
        assert set(values_got([after])) == set(work.values[60:])


def test_static_members_come_back_to_what_they_had(broker: RoughBroker) -> None:
    with (
        MemberProcess("librdkafka", broker.address, instance="one") as one,
        MemberProcess("kafka-python", broker.address, instance="two") as two,
    ):
        wait_for_shares([one, two])
        had, others = one.assigned, two.assigned
        one.kill()
        with MemberProcess("librdkafka", broker.address, instance="one") as back:
            wait_until(lambda: bool(back.assigned), "it has its partitions again", TIMEOUT_S)
            assert back.assigned == had
            assert two.assigned == others


def test_an_admin_sees_groups_and_deletes_them(broker: RoughBroker) -> None:
    work = Work(broker)
    work.add()
    admin = AdminClient({"bootstrap.servers": broker.address})
    with members(broker, "librdkafka") as (member,):
        wait_for_work([member], work)
        listed = admin.list_consumer_groups().result()
        assert [(each.group_id, each.state.name) for each in listed.valid] == [(GROUP, "STABLE")]
        described = admin.describe_consumer_groups([GROUP])[GROUP].result()
        assert [len(each.assignment.topic_partitions) for each in described.members] == [PARTITIONS]
        assert described.members[0].host == "/127.0.0.1"
        member.leave()
    wanted = ConsumerGroupTopicPartitions(GROUP)
    offsets = admin.list_consumer_group_offsets([wanted])[GROUP].result()
    assert [each.offset for each in offsets.topic_partitions] == [10] * PARTITIONS
    moved = ConsumerGroupTopicPartitions(GROUP, [TopicPartition(TOPIC, 0, 3)])
    admin.alter_consumer_group_offsets([moved])[GROUP].result()
    assert committed(broker)[0] == 3
    admin.delete_consumer_groups([GROUP])[GROUP].result()
    assert admin.list_consumer_groups().result().valid == []
