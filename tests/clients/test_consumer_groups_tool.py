"""Kafka's own kafka-consumer-groups lists, describes, resets and deletes the groups of the broker."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from clients.drivers import REFERENCE, make_driver
from clients.drivers.driver import GroupProtocol, NewRecord, ToolchainMissing
from clients.drivers.kafka_tools import KafkaTools, start
from clients.members.member import Member
from clients.raw_client import wait_until
from clients.rough_broker import RoughBroker

# Every wait has a limit of its own; all together they may take longer than one test does elsewhere.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

PARTITIONS = 2
RECORDS = 10
WAIT_S = 60
SETTINGS = {
    "offsets.topic.num.partitions": "3",
    "offsets.topic.replication.factor": "1",
    "group.initial.rebalance.delay.ms": "0",
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RoughBroker]:
    with RoughBroker(tmp_path_factory.mktemp("broker"), SETTINGS) as running:
        reference = make_driver(REFERENCE, running.address)
        reference.create_topic("rivers", partitions=PARTITIONS)
        for partition in range(PARTITIONS):
            reference.produce(
                "rivers", [NewRecord(b"%d" % each, partition=partition) for each in range(RECORDS)]
            )
        reference.close()
        yield running
        running.check_health()


@pytest.fixture(scope="module")
def tool(broker: RoughBroker) -> Iterator[KafkaTools]:
    try:
        tools = start(broker.address)
    except ToolchainMissing as missing:
        pytest.skip(str(missing))
    yield tools
    tools.close()


@contextmanager
def member(broker: RoughBroker, group: str, protocol: GroupProtocol) -> Iterator[Member]:
    """Somebody who has read and committed everything, and is still in the group."""
    joined = Member("librdkafka", broker.address, group=group, topic="rivers", protocol=protocol)
    everything = dict.fromkeys(range(PARTITIONS), RECORDS)
    try:
        wait_until(lambda: joined.committed() == everything, f"{group} has committed", WAIT_S)
        yield joined
    finally:
        joined.close()


def table(printed: str) -> list[dict[str, str]]:
    """The rows of a table with a heading."""
    heading, *rows = [line.split() for line in printed.splitlines() if line.strip()]
    return [dict(zip(heading, row, strict=False)) for row in rows]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_groups_are_listed_and_described(
    broker: RoughBroker, tool: KafkaTools, protocol: GroupProtocol
) -> None:
    group = f"described-{protocol}"
    with member(broker, group, protocol):
        assert group in tool.groups("--list").split()
        rows = {row["GROUP"]: row for row in table(tool.groups("--list", "--type", protocol, "--state"))}
        assert rows[group]["STATE"] == "Stable"
        described = table(tool.groups("--describe", "--group", group, "--offsets"))
        positions = [(row["PARTITION"], row["CURRENT-OFFSET"], row["LAG"]) for row in described]
        assert sorted(positions) == [("0", str(RECORDS), "0"), ("1", str(RECORDS), "0")]
        assert "-" not in [row["CONSUMER-ID"] for row in described]
        (only,) = table(tool.groups("--describe", "--group", group, "--members", "--verbose"))
        assert (only["GROUP"], only["#PARTITIONS"]) == (group, str(PARTITIONS))
        state = tool.groups("--describe", "--group", group, "--state")
        assert "Stable" in state
        assert broker.address in state


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_offsets_are_reset_when_nobody_is_in_the_group(
    broker: RoughBroker, tool: KafkaTools, protocol: GroupProtocol
) -> None:
    group = f"reset-{protocol}"
    request = ("--reset-offsets", "--group", group, "--topic", "rivers")
    with member(broker, group, protocol) as joined:
        assert "inactive" in tool.groups(*request, "--to-offset", "4", "--execute")
        joined.leave()
    moved = table(tool.groups(*request, "--to-offset", "4", "--execute"))
    assert sorted((row["PARTITION"], row["NEW-OFFSET"]) for row in moved) == [("0", "4"), ("1", "4")]
    with member(broker, group, protocol) as joined:
        assert sorted(joined.read()) == [
            (partition, offset) for partition in range(PARTITIONS) for offset in range(4, RECORDS)
        ]
        joined.leave()
    tool.groups("--delete-offsets", "--group", group, "--topic", "rivers:1")
    described = table(tool.groups("--describe", "--group", group, "--offsets"))
    assert [row["PARTITION"] for row in described if row["GROUP"] == group] == ["0"]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_is_deleted_when_it_is_empty(
    broker: RoughBroker, tool: KafkaTools, protocol: GroupProtocol
) -> None:
    group = f"deleted-{protocol}"
    with member(broker, group, protocol) as joined:
        assert "GroupNotEmptyException" in tool.groups("--delete", "--group", group)
        joined.leave()
    assert "was successful" in tool.groups("--delete", "--group", group)
    assert group not in tool.groups("--list").split()
    assert "GroupIdNotFoundException" in tool.groups("--delete", "--group", group)
