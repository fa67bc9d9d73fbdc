"""Kafka's tools, ours beside the real ones: the same flags, the same output, the same ends."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import kafka_jars
import pytest
from cli.conftest import Cli
from clients.broker_process import BrokerProcess
from clients.drivers import kafka_tools as real
from clients.foreign.programs import java_command

TOOLS = {
    "kafka-topics": real.TOPICS,
    "kafka-configs": real.CONFIGS,
    "kafka-get-offsets": real.GET_OFFSETS,
    "kafka-console-consumer": real.CONSUMER,
    "kafka-console-producer": real.PRODUCER,
}


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


def comparable(printed: str) -> str:
    """Output without what Java leaves to chance: the order of a topic's settings."""

    def in_order(settings: re.Match[str]) -> str:
        return "Configs: " + ",".join(sorted(settings[1].split(",")))

    lines = (re.sub(r"Configs: (.*)", in_order, line) for line in printed.splitlines())
    # Kafka warns of metrics that Moldau does not have, and of flags that are old.
    return "\n".join(line for line in lines if not re.match(r"WARNING: |.*is deprecated", line))


@pytest.fixture(scope="module")
def filled(broker: BrokerProcess) -> None:
    """Topics, settings and records to look at."""
    from click.testing import CliRunner

    from moldau.cli import main

    def cli(*arguments: str, text: str | None = None) -> None:
        result = CliRunner(env={"MOLDAU_BOOTSTRAP_SERVER": broker.address}).invoke(
            main, arguments, input=text
        )
        assert result.exit_code == 0, result.output

    cli(
        "topic",
        "create",
        "orders",
        "-p",
        "3",
        "-c",
        "retention.ms=1000",
        "-c",
        "cleanup.policy=compact,delete",
    )
    # Records of 1970 must not be deleted while they are looked at.
    cli("topic", "create", "ordered", "-p", "1", "-c", "retention.ms=-1")
    cli("config", "set", "broker", "default", "log.retention.ms=999999")
    cli("config", "set", "broker", "1", "log.retention.ms=888888")
    lines = '{"key":"a","value":"1","timestamp":1000}\n{"key":null,"value":null,"timestamp":2000}\n'
    lines += '{"key":"b","value":"2","timestamp":3000,"headers":{"x":"1","y":null}}\n'
    cli("produce", "ordered", "--format", "json", text=lines)


@pytest.mark.slow
@pytest.mark.usefixtures("filled")
@pytest.mark.parametrize(
    "words",
    [
        "kafka-topics --list",
        "kafka-topics --list --topic order.*",
        "kafka-topics --list --topic orders,absent",
        "kafka-topics --describe --topic orders",
        "kafka-topics --describe",
        "kafka-topics --describe --topic absent",
        "kafka-topics --describe --topic absent --if-exists",
        "kafka-topics --describe --under-replicated-partitions",
        "kafka-topics --describe --at-min-isr-partitions",
        "kafka-topics --describe --topics-with-overrides",
        "kafka-topics --create --topic orders",
        "kafka-topics --create --topic orders --if-not-exists",
        "kafka-topics --create --topic bad/name",
        "kafka-topics --alter --topic orders --partitions 3",
        "kafka-topics --alter --topic absent --partitions 3",
        "kafka-topics --delete --topic absent",
        "kafka-topics --delete --topic absent --if-exists",
        "kafka-topics --version",
        "kafka-topics",
        "kafka-topics --list --create",
        "kafka-topics --create",
        "kafka-topics --lst",
        "kafka-configs --describe --topic orders",
        "kafka-configs --describe --topic ordered",
        "kafka-configs --describe --all --topic orders",
        "kafka-configs --describe --entity-type topics",
        "kafka-configs --describe --entity-type topics --entity-name absent",
        "kafka-configs --describe --entity-type brokers",
        "kafka-configs --describe --broker 1",
        "kafka-configs --describe --broker-defaults",
        "kafka-configs --alter --topic orders --add-config retention.ms=1000,cleanup.policy=[compact,delete]",
        "kafka-configs --alter --topic orders --delete-config segment.bytes",
        "kafka-configs --alter --broker-defaults --add-config log.retention.ms=999999",
        "kafka-configs --alter --topic orders --add-config absent=1",
        "kafka-configs --alter --topic absent --add-config retention.ms=1",
        "kafka-configs",
        "kafka-get-offsets",
        "kafka-get-offsets --topic orders",
        "kafka-get-offsets --topic ordered --time earliest",
        "kafka-get-offsets --topic ordered --time -3",
        "kafka-get-offsets --topic ordered --time 2000",
        "kafka-get-offsets --topic ordered --time 9999999999999",
        "kafka-get-offsets --topic orders --partitions 0,2",
        "kafka-get-offsets --topic-partitions orders:1,ordered:0-1",
        "kafka-get-offsets --topic-partitions orders:1-,ordered",
        "kafka-get-offsets --topic absent",
        "kafka-get-offsets --topic ordered --time soon",
        "kafka-console-consumer --topic ordered --partition 0 --offset earliest --max-messages 3",
        "kafka-console-consumer --topic ordered --partition 0 --offset 1 --timeout-ms 1000"
        " --formatter-property print.key=true --formatter-property print.timestamp=true"
        " --formatter-property print.offset=true --formatter-property print.partition=true"
        " --formatter-property print.headers=true",
        "kafka-console-consumer --topic ordered --partition 0 --offset 0 --max-messages 3 --property"
        " print.key=true --property key.separator=| --property null.literal=NIL --property line.separator=;",
        "kafka-console-consumer --topic ordered --partition 0 --offset 0 --max-messages 1 --property"
        " print.key=true --property print.value=false",
        "kafka-console-consumer --topic ordered --offset 2",
        "kafka-console-consumer --topic ordered --partition 0 --offset soon",
        "kafka-console-consumer",
    ],
)
def test_ours_prints_and_ends_as_kafkas(cli: Cli, kafka: real.KafkaTools, words: str) -> None:
    name, *arguments = words.split(" ")
    theirs = kafka._ask(TOOLS[name], *arguments)
    ours = cli(name, *arguments, exit_code=theirs.status)
    assert comparable(ours.stdout) == comparable(theirs.printed.decode())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "lines"),
    [
        ("", "one\r\ntwo\n\nlast"),
        ("--property parse.key=true", "k\tv\n\t\n"),
        ("--reader-property parse.key=true --reader-property key.separator=:", "k:v:w\nk2:\n"),
        ("--reader-property parse.headers=true --reader-property parse.key=true", "a:1,b:2\tk\tv\n"),
        ("--reader-property parse.headers=true --reader-property null.marker=NIL", "a:NIL\tNIL\nNIL\tx\n"),
        ("--reader-property parse.key=true", "no key\n"),
        ("--property parse.key=true --property ignore.error=true", "no key\nk\tv\n"),
        ("--compression-codec zstd --request-required-acks -1", "x\n"),
        ("--compression-codec --sync", "x\ny\n"),
    ],
)
def test_ours_reads_lines_as_kafkas(cli: Cli, kafka: real.KafkaTools, words: str, lines: str) -> None:
    name = f"{len(words)}-{len(lines)}"
    for whose in ("theirs", "ours"):
        cli("topic", "create", f"{whose}-{name}", "-p", "1")
    theirs = kafka._ask(real.PRODUCER, "--topic", f"theirs-{name}", *words.split(), data=lines.encode())
    cli(
        "kafka-console-producer",
        *("--topic", f"ours-{name}", *words.split()),
        input=lines,
        exit_code=theirs.status,
    )
    records = [
        cli("consume", f"{whose}-{name}", "--format", "%k|%s|%h;", "--null", "NIL").stdout
        for whose in ("theirs", "ours")
    ]
    assert records[0] == records[1]


# ---------------------------------------------------------------- ours alone


def test_a_tutorial_can_be_pasted(cli: Cli, broker: BrokerProcess, tmp_path: Path) -> None:
    server = ["--bootstrap-server", broker.address]
    created = cli("kafka-topics.sh", "--create", "--topic", "quickstart-events", *server)
    assert created.stdout == "Created topic quickstart-events.\n"
    described = cli("kafka-topics.sh", "--describe", "--topic", "quickstart-events", *server).stdout
    assert described.startswith("Topic: quickstart-events\tTopicId: ")
    assert "\tPartitionCount: 1\tReplicationFactor: 1\tConfigs: " in described
    events = "This is my first event\nThis is my second event\n"
    cli("kafka-console-producer.sh", "--topic", "quickstart-events", *server, input=events)
    consumer = [sys.executable, "-m", "moldau", "kafka-console-consumer.sh", "--topic", "quickstart-events"]
    with subprocess.Popen(
        [*consumer, "--from-beginning", *server], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert [process.stdout.readline() for _ in range(2)] == events.splitlines(keepends=True)
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=30)
    assert process.returncode == 130
    assert stderr.startswith("Processed a total of 2 messages\n")
    assert cli("kafka-topics.sh", "--delete", "--topic", "quickstart-events", *server).stdout == ""


def test_settings_of_the_client_come_from_a_file_or_a_flag(cli: Cli, tmp_path: Path, log: str) -> None:
    settings = tmp_path / "client.properties"
    settings.write_text("client.id=mine\nsasl.mechanism=PLAIN\n")
    listed = cli("kafka-topics", "--list", "--command-config", str(settings))
    assert listed.stderr == "WARN sasl.mechanism is not a setting of this client and has no effect.\n"
    produced = cli("kafka-console-producer", "--topic", log, "--producer-property", "acks=1", input="x\n")
    assert produced.stderr == ""
    # With acks=1 the record may be written before it can be read.
    while (read := cli("consume", log).stdout) != "x\n":
        assert read == ""


def test_a_consumer_follows_all_topics_that_match(cli: Cli, log: str) -> None:
    cli("produce", log, "a", "b")
    read = cli(
        "kafka-console-consumer", "--include", f"{log[:-1]}.", "--from-beginning", "--max-messages", "2"
    )
    assert read.stdout == "a\nb\n"
    assert read.stderr == "Processed a total of 2 messages\n"


def test_a_group_goes_on_where_it_has_committed(cli: Cli, log: str) -> None:
    cli("produce", log, "a", "b", "c")
    words = ["kafka-console-consumer", "--topic", log, "--group", f"g-{log}"[:200], "--from-beginning"]
    assert cli(*words, "--max-messages", "2").stdout == "a\nb\n"
    assert cli(*words, "--max-messages", "1").stdout == "c\n"


@pytest.mark.parametrize(
    "words", ["kafka-topics --list", "kafka-get-offsets", "kafka-configs --describe --topic x"]
)
def test_a_cluster_that_is_not_there_is_a_failure(cli: Cli, words: str) -> None:
    result = cli(*words.split(), "--bootstrap-server", "127.0.0.1:1", exit_code=1)
    assert "No broker could be reached" in result.output
    assert "Traceback" not in result.output
