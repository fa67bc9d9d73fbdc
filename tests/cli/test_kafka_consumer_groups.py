"""`kafka-consumer-groups`, ours beside Kafka's own: the same flags, the same output, the same ends."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import kafka_jars
import pytest
from cli.conftest import Cli
from click.testing import CliRunner
from clients.broker_process import BrokerProcess
from clients.drivers import kafka_tools as real
from clients.foreign.programs import java_command

from moldau.cli import main
from moldau.cli.kafka_tools._group_changes import parse_datetime, parse_duration
from moldau.client import CommittedOffset, NewTopic, connect_sync

TOOL = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"


@pytest.fixture(scope="module")
def kafka(broker: BrokerProcess) -> Iterator[real.KafkaTools]:
    """Kafka's own tools; a test that asks for them is skipped where they cannot be had."""
    try:
        kafka_jars.kafka_jars()
        kafka_jars.find_java()
    except kafka_jars.Unavailable as why:
        pytest.skip(str(why))
    tools = real.KafkaTools(java_command("ConsoleTools"), broker.address)
    yield tools
    tools.close()


@pytest.fixture(scope="module")
def groups(broker: BrokerProcess) -> Iterator[None]:
    """A group that has read, and three that read: a classic one, one with a static member, one of KIP-848."""
    with connect_sync(broker.address, client_id="reader") as client:
        client.admin.create_topics(NewTopic("orders", 3), NewTopic("others", 1))
        with client.producer() as producer:
            for number in range(30):
                producer.send("orders", b"%d" % number, partition=number % 3)
        client.admin.alter_group_offsets(
            "past",
            {
                ("orders", 0): CommittedOffset(5, 0),
                ("orders", 1): CommittedOffset(2),
                ("others", 0): CommittedOffset(0),
            },
        )
        readers = []
        for group, instance, protocol in (
            ("reading", "", "classic"),
            ("static", "till-1", "classic"),
            ("modern", "till-2", "consumer"),
        ):
            reader = client.group_consumer(
                ["orders"],
                group_id=group,
                group_protocol=protocol,
                group_instance_id=instance,
                auto_offset_reset="earliest",
            )
            count = 0
            while count < 30:
                count += sum(map(len, reader.poll(timeout_ms=500).values()))
            reader.commit()
            readers.append(reader)
        yield
        for reader in readers:
            reader.close()


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a person might have written by hand."""
    path = tmp_path_factory.mktemp("plan") / "plan.csv"
    path.write_text("orders,0,3\norders,1,99\n")
    return path


@pytest.mark.slow
@pytest.mark.usefixtures("groups")
@pytest.mark.parametrize(
    "words",
    [
        "--list",
        "--list --state",
        "--list --type --state Empty",
        "--list --state Stable,Empty",
        "--list --type classic",
        "--list --type --state",
        "--describe --group past",
        "--describe --group past --verbose",
        "--describe --group reading",
        "--describe --group reading --offsets --verbose",
        "--describe --group reading --members",
        "--describe --group reading --members --verbose",
        "--describe --group static --members",
        "--describe --group static --members --verbose",
        "--describe --group modern --members --verbose",
        "--describe --group modern --state --verbose",
        "--describe --group modern --offsets --verbose",
        "--delete-offsets --group modern --topic orders",
        "--delete --group modern",
        "--describe --group past --members",
        "--describe --group past --state",
        "--describe --group reading --state",
        "--describe --group reading --state --verbose",
        "--describe --all-groups",
        "--describe --all-groups --state",
        "--describe --group reading --group past --members",
        "--describe --group absent",
        "--reset-offsets --group past --all-topics --to-earliest",
        "--reset-offsets --group past --topic orders --to-latest --dry-run",
        "--reset-offsets --group past --topic orders:0,2 --to-offset 50 --dry-run",
        "--reset-offsets --group past --topic orders:0 --shift-by -1 --dry-run",
        "--reset-offsets --group past --topic orders --shift-by -1 --dry-run",
        "--reset-offsets --group past --topic orders --to-current --dry-run --export",
        "--reset-offsets --group past --group new --topic orders --to-current --dry-run --export",
        "--reset-offsets --group past --from-file PLAN --dry-run",
        "--reset-offsets --group new --from-file PLAN --dry-run --export",
        "--reset-offsets --group past --topic orders --to-datetime 2138-01-01T00:00:00.000 --dry-run",
        "--reset-offsets --group past --topic orders --to-datetime 2001-01-01T00:00:00.000+02:00 --dry-run",
        "--reset-offsets --group past --topic orders --by-duration P1DT1H --dry-run",
        "--reset-offsets --group reading --topic orders --to-earliest --dry-run",
        "--reset-offsets --group new --topic orders --to-earliest --dry-run",
        "--reset-offsets --group past --topic orders --dry-run",
        "--reset-offsets --group past --to-earliest --dry-run",
        "--reset-offsets --group past --topic orders --to-earliest --to-latest",
        "--reset-offsets --group past --topic orders --to-earliest --dry-run --execute",
        "--delete-offsets --group reading --topic orders",
        "--delete-offsets --group absent --topic orders",
        "--delete-offsets --group past",
        "--delete --group reading",
        "--delete --group absent",
        "--delete --group absent --topic orders",
        "--list --state Sleeping",
        "--list --describe",
        "--validate-regex orders-.*",
        "--validate-regex (orders",
        "--validate-regex orders)",
        "--validate-regex [a-",
        "--validate-regex [z-a]",
        "--validate-regex *",
        "--validate-regex a**",
        "--validate-regex a{2,1}",
        "--validate-regex (?=a)",
        "--validate-regex (?P<1",
        "--validate-regex a\\",
        "--validate-regex \\1",
        "--validate-regex a --list",
        "--validate-regex a --group past",
        "--list --group past",
        "--describe",
        "--describe --group past --members --state",
        "",
    ],
)
def test_ours_prints_and_ends_as_kafkas(cli: Cli, kafka: real.KafkaTools, plan: Path, words: str) -> None:
    arguments = [str(plan) if word == "PLAN" else word for word in words.split()]
    theirs = kafka._ask(TOOL, *arguments)
    ours = cli("kafka-consumer-groups", *arguments, exit_code=theirs.status)
    # Where Kafka's ends at once it cannot when it shares a process with others, and says so.
    printed = "" if theirs.status else theirs.printed.decode()
    assert comparable(ours.stdout) == comparable(printed)


def comparable(printed: str) -> list[str]:
    """The lines, sorted: Java leaves the order of groups, and of what is reset, to chance."""
    return sorted(line for line in printed.splitlines() if line)


@pytest.mark.slow
@pytest.mark.usefixtures("groups")
def test_what_ours_changes_theirs_sees(cli: Cli, kafka: real.KafkaTools) -> None:
    reset = ["--reset-offsets", "--group", "moved", "--topic", "orders", "--to-offset", "7", "--execute"]
    assert "moved           orders          2          7" in cli("kafka-consumer-groups", *reset).stdout
    seen = kafka._ask(TOOL, "--describe", "--group", "moved").printed.decode()
    assert [line.split()[3] for line in seen.splitlines() if line.startswith("moved")] == ["7", "7", "7"]
    forgotten = cli("kafka-consumer-groups", "--delete-offsets", "--group", "moved", "--topic", "orders:0")
    assert forgotten.stdout.startswith("Request succeeded for deleting offsets from group moved.\n")
    seen = kafka._ask(TOOL, "--describe", "--group", "moved").printed.decode()
    assert [line.split()[2] for line in seen.splitlines() if line.startswith("moved")] == ["1", "2"]
    gone = cli("kafka-consumer-groups", "--delete", "--group", "moved").stdout
    assert gone == "Deletion of requested consumer groups ('moved') was successful.\n"
    assert "moved" not in kafka._ask(TOOL, "--list").printed.decode().split()


def test_a_plan_that_was_exported_can_be_carried_out(cli: Cli, topic: str, tmp_path: Path) -> None:
    tool = ["kafka-consumer-groups", "--reset-offsets", "--group", f"g-{topic}"]
    cli("produce", topic, "a", "b", "-p", "0")
    exported = cli(*tool, "--topic", topic, "--to-latest", "--dry-run", "--export").stdout
    assert sorted(exported.split()) == [f"{topic},0,2", f"{topic},1,0"]
    path = tmp_path / "plan.csv"
    path.write_text(exported)
    cli(*tool, "--from-file", str(path), "--execute")
    described = cli("kafka-consumer-groups", "--describe", "--group", f"g-{topic}").stdout.splitlines()
    assert [line.split()[2:6] for line in described[2:]] == [["0", "2", "2", "0"], ["1", "0", "0", "0"]]


def test_a_cluster_that_is_not_there_is_a_failure() -> None:
    words = ["kafka-consumer-groups", "--list", "--bootstrap-server", "127.0.0.1:1"]
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 1
    assert "No broker could be reached" in result.output


@pytest.mark.parametrize(
    ("text", "expected_ms"),
    [
        ("P1D", 86_400_000),
        ("PT1H30M", 5_400_000),
        ("PT1.5S", 1_500),
        ("P1DT1S", 86_401_000),
        ("-PT1S", -1_000),
    ],
)
def test_durations_are_those_of_iso_8601(text: str, expected_ms: int) -> None:
    assert parse_duration(text) == expected_ms


def test_times_without_a_zone_are_utc() -> None:
    assert parse_datetime("1970-01-01T00:00:01.500") == 1_500
    assert parse_datetime("1970-01-01T01:00:00.000+01:00") == 0
