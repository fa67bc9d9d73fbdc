"""Kafka's tools, ours beside the real ones: the same flags, the same output, the same ends."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import kafka_jars
import pytest
from cli.conftest import Cli
from click.testing import CliRunner
from clients.broker_process import BrokerProcess
from clients.drivers import kafka_tools as real
from clients.foreign.programs import java_command

from moldau.cli import KAFKA_TOOLS, main
from moldau.cli._errors import NotFound
from moldau.cli.kafka_tools.topics import described_topics
from moldau.model.errors import ErrorCode
from moldau.model.ids import ZERO_UUID
from moldau.wire.message import Request, Response
from moldau.wire.messages.metadata import (
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponseTopic,
)

R = TypeVar("R", bound=Response)

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


# Where Java prints whole entities in an order of its own.
UNORDERED = (
    "kafka-configs --describe --entity-type topics",
    "kafka-configs --describe --entity-type clients",
)


def comparable(printed: str, words: str) -> list[str]:
    """Output without what Java leaves to chance: the order of a topic's settings."""

    def in_order(settings: re.Match[str]) -> str:
        return "Configs: " + ",".join(sorted(settings[1].split(",")))

    lines = (re.sub(r"Configs: (.*)", in_order, line) for line in printed.splitlines())
    # The same of the quotas.
    lines = (
        re.sub(r"(?<= are )(.*_.*=.*)", lambda part: ", ".join(sorted(part[1].split(", "))), line)
        for line in lines
    )
    # Kafka warns of flags that are old.
    kept = [line for line in lines if not re.match(r".*is deprecated", line)]
    return sorted(kept) if words in UNORDERED else kept


@pytest.fixture(scope="module")
def filled(broker: BrokerProcess) -> None:
    """Topics, settings and records to look at."""

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
    cli("topic", "create", "stamped", "-p", "1", "-c", "message.timestamp.type=LogAppendTime")
    cli("produce", "stamped", "now")
    cli("topic", "create", "numbers", "-p", "1")
    # 123456789 as a long, which is a small number as a double.
    cli("produce", "numbers", "--format", "json", text='{"value": {"base64": "AAAAAAdbzRU="}}')
    # Of this group there are only settings.
    cli("kafka-configs", "--alter", "--group=steered", "--add-config", "consumer.session.timeout.ms=50000")
    quotas = ("--add-config", "producer_byte_rate=1048576,request_percentage=50")
    for whose in ("--client=shop", "--client-defaults", "--user=ada"):
        cli("kafka-configs", "--alter", whose, *quotas)
    cli("kafka-configs", "--alter", "--user=ada", "--client=shop", *quotas)


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
        "kafka-topics --create --topic bad/na_me",
        "kafka-topics --create --topic kept_apart --replication-factor 3",
        "kafka-topics --create --topic new --replication-factor 3",
        "kafka-topics --create --topic new --replication-factor 0",
        "kafka-topics --create --topic new --replication-factor 40000",
        "kafka-topics --create --topic new --partitions 0",
        "kafka-topics --create --topic new --replica-assignment 1:x",
        "kafka-topics --create --topic new --replica-assignment 99999999999",
        "kafka-topics --create --topic new --replica-assignment 1:1,2",
        "kafka-topics --create --topic new --replica-assignment 1:2,2",
        "kafka-topics --create --topic new --replica-assignment 5",
        "kafka-topics --alter --topic orders --partitions 4 --replica-assignment 5",
        "kafka-topics --alter --topic orders --partitions 3",
        "kafka-topics --alter --topic absent --partitions 3",
        "kafka-topics --delete --topic absent",
        "kafka-topics --delete --topic absent --if-exists",
        "kafka-topics --describe --if-exists",
        "kafka-topics --describe --topic-id AAAAAAAAAAAAAAAAAAAAAQ",
        "kafka-topics --describe --topic-id AAAAAAAAAAAAAAAAAAAAAQ --if-exists",
        "kafka-topics --describe --partition-size-limit-per-response 2",
        "kafka-topics --describe --partition-size-limit-per-response 0",
        "kafka-topics --describe --partition-size-limit-per-response -1",
        "kafka-topics --describe --under-min-isr-partitions --topics-with-overrides",
        "kafka-topics --list --exclude-internal --delete-config x",
        "kafka-topics --list --partitions 3",
        "kafka-topics --list --if-exists",
        "kafka-topics --alter --topic orders --config retention.ms=1",
        "kafka-topics --alter --topic orders",
        "kafka-topics --create --topic new --replica-assignment 1 --partitions 1",
        "kafka-topics --create --topic new --if-exists",
        "kafka-topics --delete --topic orders --if-not-exists",
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
        "kafka-configs --describe --entity-type groups",
        "kafka-configs --describe --group steered",
        "kafka-configs --describe --group absent",
        "kafka-configs --describe --all --group absent",
        "kafka-configs --describe --entity-type client-metrics",
        "kafka-configs --describe --client-metrics absent",
        "kafka-configs --describe --all --topic absent",
        "kafka-configs --describe --topic bad/name",
        "kafka-configs --describe --broker one",
        "kafka-configs --alter --broker one --add-config log.retention.ms=4",
        "kafka-configs --alter --topic orders --add-config retention.ms=1000,cleanup.policy=[compact,delete]",
        "kafka-configs --alter --topic orders --delete-config segment.bytes",
        "kafka-configs --alter --broker-defaults --add-config log.retention.ms=999999",
        "kafka-configs --alter --topic orders --add-config absent=1",
        "kafka-configs --alter --topic absent --add-config retention.ms=1",
        "kafka-configs",
        "kafka-configs --alter --topic orders",
        "kafka-configs --alter --add-config retention.ms=1",
        "kafka-configs --describe --topic orders --add-config retention.ms=1",
        "kafka-configs --describe --entity-type topics --topic orders",
        "kafka-configs --describe --entity-type users --entity-type clients",
        "kafka-configs --describe --entity-type clients",
        "kafka-configs --describe --client shop",
        "kafka-configs --describe --client-defaults",
        "kafka-configs --describe --client absent",
        "kafka-configs --describe --user ada --client shop",
        "kafka-configs --describe --entity-type users --entity-name ada --entity-type clients"
        " --entity-default",
        "kafka-configs --describe --ip 10.0.0.1",
        "kafka-configs --alter --client shop --add-config producer_byte_rate=1.5e7",
        "kafka-configs --alter --user ada --add-config producer_byte_rate=1024",
        "kafka-configs --alter --user-defaults --add-config request_percentage=200.5",
        "kafka-configs --alter --user ada --client shop --add-config consumer_byte_rate=2048",
        "kafka-configs --alter --client shop --add-config producer_byte_rate=fast",
        "kafka-configs --alter --client shop --add-config retention.ms=1",
        "kafka-configs --alter --client shop --delete-config request_percentage",
        "kafka-configs --alter --ip 10.0.0.1 --add-config connection_creation_rate=100",
        "kafka-configs --alter --topic orders --delete-config absent",
        "kafka-configs --alter --broker 1 --delete-config log.segment.bytes",
        "kafka-configs --describe --broker 7",
        "kafka-configs --describe --entity-type planets",
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
        "kafka-console-consumer --topic stamped --partition 0 --offset 0 --max-messages 1 --property"
        " print.timestamp=true --property print.value=false",
        "kafka-console-consumer --topic numbers --partition 0 --offset 0 --max-messages 1"
        " --formatter-property value.deserializer=org.apache.kafka.common.serialization.LongDeserializer",
        "kafka-console-consumer --topic numbers --partition 0 --offset 0 --max-messages 1"
        " --value-deserializer org.apache.kafka.common.serialization.DoubleDeserializer",
        "kafka-console-consumer --topic ordered --partition 0 --offset 0 --max-messages 1 --property"
        " value.deserializer=org.apache.kafka.common.serialization.LongDeserializer --skip-message-on-error",
        "kafka-console-consumer --topic ordered --partition 0 --offset 0 --max-messages 3 --formatter"
        " org.apache.kafka.tools.consumer.NoOpMessageFormatter",
        "kafka-console-consumer --topic ordered --partition 0 --offset 0 --group g",
        "kafka-console-consumer --topic ordered --partition 0 --offset 0 --timeout-ms 500 --max-messages -1",
        "kafka-console-consumer --topic ordered --offset 2",
        "kafka-console-consumer --topic ordered --partition 0 --offset soon",
        "kafka-console-consumer",
    ],
)
def test_ours_prints_and_ends_as_kafkas(cli: Cli, kafka: real.KafkaTools, words: str) -> None:
    name, *arguments = words.split(" ")
    theirs = kafka._ask(TOOLS[name], *arguments)
    ours = cli(name, *arguments, exit_code=theirs.status)
    assert comparable(ours.stdout, words) == comparable(theirs.printed.decode(), words)


@pytest.mark.slow
@pytest.mark.parametrize("name", TOOLS)
def test_ours_has_every_flag_of_kafkas(kafka: real.KafkaTools, name: str) -> None:
    usage = kafka._ask(TOOLS[name], "--help")
    theirs = set(re.findall(r"^(--[a-z][a-z.-]+)", usage.printed.decode() + usage.complaints, re.MULTILINE))
    command = main.get_command(main.make_context("moldau", [name]), name)
    assert command is not None
    parameters = command.get_params(command.make_context(name, [], resilient_parsing=True))
    ours = {flag for parameter in parameters for flag in parameter.opts if flag.startswith("--")}
    assert len(theirs) > 5
    assert ours == theirs


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
        (
            "--max-partition-memory-bytes 1000 --metadata-expiry-ms 1000 --socket-buffer-size 100000"
            " --line-reader org.apache.kafka.tools.LineMessageReader --timeout 1 --retry-backoff-ms 10",
            "x\ny\n",
        ),
        ("--line-reader absent.Reader", "x\n"),
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


# Commands as tutorials print them, quotes and line breaks included -> what they print.
TUTORIALS = {
    "Kafka's quickstart": (
        """
bin/kafka-topics.sh --create --topic quickstart --bootstrap-server localhost:9092
bin/kafka-console-producer.sh --topic quickstart --bootstrap-server localhost:9092 <<END
This is my first event
This is my second event
END
bin/kafka-console-consumer.sh --topic quickstart --from-beginning --max-messages 2 \\
    --bootstrap-server localhost:9092
bin/kafka-topics.sh --delete --topic quickstart --bootstrap-server localhost:9092
""",
        "Created topic quickstart.\nThis is my first event\nThis is my second event\n",
    ),
    "keys, with a separator of one's own": (
        """
bin/kafka-topics.sh --bootstrap-server localhost:9092 --create --topic keyed \\
    --replication-factor 1 --partitions 1 --config "cleanup.policy=compact"
echo 'user_id:{"name":"Ada: the first"}' | bin/kafka-console-producer.sh --topic keyed \\
    --bootstrap-server localhost:9092 --property "parse.key=true" --property "key.separator=:"
bin/kafka-console-consumer.sh --bootstrap-server localhost:9092 --topic keyed --from-beginning \\
    --property print.key=true --property key.separator="-" --timeout-ms 1000
bin/kafka-topics.sh --bootstrap-server localhost:9092 --delete --topic keyed
""",
        'Created topic keyed.\nuser_id-{"name":"Ada: the first"}\n',
    ),
    "retention": (
        """
bin/kafka-topics.sh --create --bootstrap-server localhost:9092 --topic kept --partitions 2
bin/kafka-configs.sh --bootstrap-server localhost:9092 --alter --entity-type topics --entity-name kept \\
    --add-config 'retention.ms=604800000,cleanup.policy=[compact,delete]'
bin/kafka-configs.sh --bootstrap-server localhost:9092 --describe --entity-type topics --entity-name kept \\
    | grep -o 'retention.ms=[0-9]*' | head -1
bin/kafka-topics.sh --alter --bootstrap-server localhost:9092 --topic kept --partitions 3
bin/kafka-get-offsets.sh --bootstrap-server localhost:9092 --topic kept
bin/kafka-topics.sh --list --bootstrap-server localhost:9092 | grep kept
bin/kafka-topics.sh --bootstrap-server localhost:9092 --delete --topic 'kept|kept-.*'
""",
        "Created topic kept.\nCompleted updating config for topic kept.\nretention.ms=604800000\n"
        "kept:0:0\nkept:1:0\nkept:2:0\nkept\n",
    ),
}


@pytest.mark.parametrize("title", TUTORIALS)
def test_commands_of_tutorials_run_in_a_shell(broker: BrokerProcess, tmp_path: Path, title: str) -> None:
    script, printed = TUTORIALS[title]
    (tmp_path / "bin").mkdir()
    for name in KAFKA_TOOLS:
        tool = tmp_path / "bin" / f"{name}.sh"
        tool.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m moldau {name}.sh "$@"\n')
        tool.chmod(0o755)
    done = subprocess.run(
        ["sh", "-e", "-c", script.replace("localhost:9092", broker.address)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == printed


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


@pytest.mark.parametrize("is_in_file", [True, False])
def test_a_consumer_joins_the_group_that_its_properties_name(
    cli: Cli, log: str, tmp_path: Path, is_in_file: bool
) -> None:
    group = f"g-{log}"[:200]
    properties = {"group.id": group, "auto.offset.reset": "earliest"}
    words = ["kafka-console-consumer", "--topic", log]
    if is_in_file:
        path = tmp_path / "consumer.properties"
        path.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
        words += ["--consumer.config", str(path)]
    else:
        words += [f"--consumer-property={name}={value}" for name, value in properties.items()]
    cli("produce", log, "a", "b", "c")
    read = cli(*words, "--max-messages", "2")
    assert (read.stdout, read.stderr) == ("a\nb\n", "Processed a total of 2 messages\n")
    listed = cli("kafka-consumer-groups", "--list").stdout.splitlines()
    assert group in listed
    assert cli(*words, "--max-messages", "1").stdout == "c\n"
    refused = cli(*words, "--group", "another", exit_code=1)
    assert f"do not match. Detected group ids: 'another', '{group}'" in refused.stderr
    refused = cli(*words, "--partition", "0", exit_code=1)
    assert "Options group and partition cannot be specified together." in refused.stderr


def test_a_group_commits_nothing_where_its_properties_say_so(cli: Cli, log: str) -> None:
    cli("produce", log, "a", "b")
    words = ["kafka-console-consumer", "--topic", log, "--group", f"g-{log}"[:200], "--from-beginning"]
    words += ["--max-messages", "1", "--consumer-property", "enable.auto.commit=false"]
    assert cli(*words).stdout == cli(*words).stdout == "a\n"


def test_a_consumer_begins_where_its_properties_say(cli: Cli, log: str) -> None:
    cli("produce", log, "a", "b")
    words = ["kafka-console-consumer", "--topic", log, "--timeout-ms", "1000", "--consumer-property"]
    assert cli(*words, "auto.offset.reset=earliest").stdout == "a\nb\n"
    assert cli(*words, "auto.offset.reset=latest").stdout == ""
    assert cli(*words, "auto.offset.reset=latest", "--from-beginning", exit_code=1).stderr == (
        "Error: Can't simultaneously specify --from-beginning and 'auto.offset.reset=latest', please remove"
        " one option\n"
    )
    assert "auto.offset.reset is none" in cli(*words, "auto.offset.reset=none", exit_code=1).stderr
    assert "must be one of earliest" in cli(*words, "auto.offset.reset=soon", exit_code=1).stderr


def test_a_consumer_that_begins_beyond_the_end_is_moved_as_the_policy_says(cli: Cli, log: str) -> None:
    cli("produce", log, "a", "b")
    words = ["kafka-console-consumer", "--topic", log, "--partition", "0", "--offset", "1000"]
    assert cli(*words, "--timeout-ms", "1000").stdout == ""
    earliest = ["--consumer-property", "auto.offset.reset=earliest", "--max-messages", "2"]
    assert cli(*words, *earliest).stdout == "a\nb\n"
    none = ["--consumer-property", "auto.offset.reset=none", "--timeout-ms", "30000"]
    assert "OFFSET_OUT_OF_RANGE" in cli(*words, *none, exit_code=1).stderr


def test_a_consumer_has_the_isolation_level_of_its_properties(cli: Cli, log: str) -> None:
    cli("produce", log, "a")
    words = ["kafka-console-consumer", "--topic", log, "--from-beginning", "--max-messages", "1"]
    words.append("--consumer-property")
    assert cli(*words, "isolation.level=read_committed").stdout == "a\n"
    refused = cli(*words, "isolation.level=serializable", exit_code=1)
    assert "isolation.level is 'serializable', which must be one of read_uncommitted" in refused.stderr
    flag = ["--isolation-level", "read_committed"]
    assert cli(*words, "isolation.level=serializable", *flag).stdout == "a\n"


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("kafka-console-producer --broker-list localhost:9092 --topic x", "--bootstrap-server"),
        ("kafka-topics --zookeeper localhost:2181 --list", "--bootstrap-server"),
        ("kafka-console-consumer --whitelist x", "--include"),
    ],
)
def test_who_gives_a_flag_of_long_ago_is_told_that_of_today(cli: Cli, words: str, hint: str) -> None:
    result = cli(*words.split(), exit_code=1)
    flag = words.split()[1]
    assert f"No such option '{flag}'. Did you mean '{hint}'?" in result.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--replica-assignment 1:x", 'For input string: "x"'),
        (
            "--replica-assignment 1:2,2",
            "Partition 1 has different replication factor: [2]",
        ),
        ("--replication-factor 3", "Replicas cannot be placed"),
        ("--config absent=1", "There is no topic setting 'absent'"),
    ],
)
def test_why_a_topic_cannot_be_created_is_said_without_its_name(cli: Cli, words: str, said: str) -> None:
    printed = cli("kafka-topics", "--create", "--topic", "new", *words.split(), exit_code=1).stdout
    assert printed.startswith(f"Error while executing topic command : {said}")


def test_a_topic_whose_metrics_could_be_taken_for_anothers_is_warned_of(cli: Cli) -> None:
    words = ["kafka-topics", "--create", "--if-not-exists", "--topic"]
    for name in ("with_line", "with.dot"):
        warning, *_ = cli(*words, name).stdout.splitlines()
        assert warning.startswith("WARNING: Due to limitations in metric names, topics with a period")
    assert "WARNING" not in cli(*words, "with-dash").stdout


def test_a_page_without_room_is_a_page_all_the_same(cli: Cli, topic: str) -> None:
    words = ["kafka-topics", "--describe", "--topic", topic]
    assert cli(*words, "--partition-size-limit-per-response", "0").stdout == cli(*words).stdout


def test_what_a_broker_has_against_a_topic_is_said() -> None:
    # Deleted, perhaps, after it was listed.
    topic = DescribeTopicPartitionsResponseTopic(
        error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name="gone", topic_id=ZERO_UUID, partitions=[]
    )
    said = DescribeTopicPartitionsResponse(throttle_time_ms=0, topics=[topic])

    def ask(request: Request, reply: type[R]) -> R:
        assert isinstance(said, reply)
        return said

    with pytest.raises(NotFound, match="gone"):
        described_topics(ask, ["gone"], 2000, is_by_id=False)


def test_all_groups_are_described_that_read_or_have_settings(cli: Cli, log: str) -> None:
    setting = "consumer.session.timeout.ms=50000"
    cli("kafka-configs", "--alter", "--group", "g", "--add-config", setting)
    cli("produce", log, "a")
    cli("consume", log, "--group", log[:100])
    described = cli("kafka-configs", "--describe", "--entity-type", "groups").stdout
    assert f"Dynamic configs for group g are:\n  {setting} sensitive=false" in described
    assert f"Dynamic configs for group {log[:100]} are:\n" in described
    assert "doesn't exist" in cli("kafka-configs", "--describe", "--group", "absent").stdout
    assert cli("kafka-configs", "--describe", "--entity-type", "client-metrics").stdout == ""


def test_the_flag_of_ours_says_where_the_cluster_is(cli: Cli, broker: BrokerProcess) -> None:
    unreachable = cli("kafka-topics", "--list", "-b", "127.0.0.1:1", exit_code=1)
    assert "-b says where to look" in unreachable.stdout
    cli("kafka-topics", "--list", "-b", broker.address)


@pytest.mark.parametrize(
    "words", ["kafka-topics --list", "kafka-get-offsets", "kafka-configs --describe --topic x"]
)
def test_a_cluster_that_is_not_there_is_a_failure(cli: Cli, words: str) -> None:
    result = cli(*words.split(), "--bootstrap-server", "127.0.0.1:1", exit_code=1)
    assert "No broker could be reached" in result.output
    assert "Traceback" not in result.output
