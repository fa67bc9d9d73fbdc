"""`moldau topic`, `moldau config`, `moldau cluster`: looking at a real broker and changing it."""

from __future__ import annotations

import json

import pytest
from cli.conftest import Cli, JsonOf
from click.testing import CliRunner
from clients.broker_process import BrokerProcess

from moldau.cli import main
from moldau.cli.cluster import partition_checks
from moldau.wire.messages.metadata import MetadataResponsePartition, MetadataResponseTopic

# ---------------------------------------------------------------- topics


def test_a_topic_is_created_shown_and_deleted(cli: Cli, json_of: JsonOf) -> None:
    assert cli("topic", "create", "life", "-p", "3", "-c", "retention.ms=1000").stderr == "life created\n"
    assert {"name": "life", "partitions": 3, "replication_factor": 1, "internal": False} in json_of(
        "topic", "list"
    )
    assert cli("topic", "delete", "life", "--yes").stderr == "life deleted\n"
    assert "life" not in cli("topic", "list").stdout


def test_the_json_of_a_topic_does_not_change(topic: str, cli: Cli) -> None:
    cli("topic", "alter", topic, "--set", "retention.ms=1000")
    (described,) = json.loads(cli("topic", "describe", topic, "--offsets", "-o", "json").stdout)
    assert len(described.pop("topic_id")) == 22
    assert described == {
        "name": topic,
        "internal": False,
        "partitions": [
            {
                "partition": partition,
                "leader": 1,
                "leader_epoch": 0,
                "replicas": [1],
                "isr": [1],
                "offline": [],
                "start": 0,
                "end": 0,
            }
            for partition in (0, 1)
        ],
        "configs": {"min.insync.replicas": "1", "retention.ms": "1000", "segment.index.bytes": "4096"},
    }


def test_people_get_a_table(topic: str, cli: Cli) -> None:
    lines = cli("topic", "describe", topic, "--offsets").stdout.splitlines()
    assert lines[0].split() == ["topic", topic]
    assert lines[-3].split() == ["PARTITION", "LEADER", "EPOCH", "REPLICAS", "ISR", "START", "END"]
    assert lines[-1].split() == ["1", "1", "0", "1", "1", "0", "0"]
    assert "\x1b" not in "".join(lines)


def test_the_slow_way_shows_the_same(topic: str, cli: Cli) -> None:
    quick = cli("topic", "describe", topic, "-o", "json").stdout
    assert cli("topic", "describe", topic, "-o", "json", "-X", "client.id=slow").stdout == quick


def test_a_topic_is_created_only_once(topic: str, cli: Cli) -> None:
    refused = cli("topic", "create", topic, exit_code=1)
    assert refused.stderr == f"Error: Topic '{topic}' already exists. (TOPIC_ALREADY_EXISTS)\n"
    assert cli("topic", "create", topic, "--if-not-exists").stderr == f"{topic} exists already\n"


def test_a_dry_run_changes_nothing(cli: Cli, topic: str) -> None:
    assert cli("topic", "create", "dry", "--dry-run").stderr == "dry could be created\n"
    cli("topic", "describe", "dry", exit_code=3)
    cli("topic", "add-partitions", topic, "--total", "5", "--dry-run")
    cli("topic", "alter", topic, "--set", "retention.ms=1", "--dry-run")
    (described,) = json.loads(cli("topic", "describe", topic, "-o", "json").stdout)
    assert len(described["partitions"]) == 2
    assert "retention.ms" not in described["configs"]


def test_replicas_can_be_placed_by_hand(cli: Cli, json_of: JsonOf) -> None:
    cli("topic", "create", "placed", "--replicas", "1,1,1")
    assert len(json.loads(cli("topic", "describe", "placed", "-o", "json").stdout)[0]["partitions"]) == 3
    assert "must look like" in cli("topic", "create", "x", "--replicas", "a", exit_code=2).stderr
    assert (
        "leave the others out"
        in cli("topic", "create", "x", "--replicas", "1", "-p", "1", exit_code=2).stderr
    )


def test_partitions_are_added(topic: str, cli: Cli) -> None:
    assert cli("topic", "add-partitions", topic, "--total", "4").stderr == f"{topic} has 4 partitions\n"
    assert (
        "would not be an increase"
        in cli("topic", "add-partitions", topic, "--total", "4", exit_code=1).stderr
    )


def test_settings_are_changed_and_reset(topic: str, cli: Cli, json_of: JsonOf) -> None:
    cli("topic", "alter", topic, "-c", "retention.ms=5", "--set", "cleanup.policy=compact,delete")
    assert json_of("config", "get", "topic", topic, "retention.ms") == [
        {
            "name": "retention.ms",
            "value": "5",
            "source": "DYNAMIC_TOPIC_CONFIG",
            "read_only": False,
            "sensitive": False,
        }
    ]
    cli("topic", "alter", topic, "--unset", "retention.ms")
    assert (
        json_of("config", "get", "topic", topic, "retention.ms", "cleanup.policy")[1]["value"]
        == "compact,delete"
    )
    assert "retention.ms " not in cli("config", "get", "topic", topic).stdout
    assert "Say what to change" in cli("topic", "alter", topic, exit_code=2).stderr
    assert "must be NAME=VALUE" in cli("topic", "alter", topic, "--set", "x", exit_code=2).stderr


@pytest.mark.parametrize(
    ("before", "starts"), [("end", [4, 0]), ("2", [2, None]), ("-1", [3, 0]), ("@0", [0, 0]), ("-1h", [0, 0])]
)
def test_a_topic_is_trimmed(topic: str, cli: Cli, before: str, starts: list[int | None]) -> None:
    cli("produce", topic, "-p", "0", "a", "b", "c", "d")
    partitions = [index for index, start in enumerate(starts) if start is not None]
    words = [word for index in partitions for word in ("-p", str(index))]
    printed = json.loads(
        cli("topic", "trim", topic, "--before", before, *words, "--yes", "-o", "json").stdout
    )
    assert [row["start"] for row in printed] == [starts[index] for index in partitions]
    left = cli("consume", topic, "-p", "0").stdout
    assert left == "".join(f"{value}\n" for value in "abcd"[starts[0] :])


def test_nothing_is_trimmed_beyond_the_end(topic: str, cli: Cli) -> None:
    cli("produce", topic, "-p", "0", "a")
    refused = cli("topic", "trim", topic, "--before", "2", "-p", "0", "--yes", exit_code=1)
    assert refused.stderr == f"Error: {topic}-0 ends at offset 1, before 2.\n"


def test_what_is_lost_is_asked_about(topic: str, cli: Cli) -> None:
    for arguments in (("topic", "delete", topic), ("topic", "trim", topic, "--before", "end")):
        assert "Confirm with --yes" in cli(*arguments, exit_code=2).stderr
    cli("topic", "describe", topic)


@pytest.mark.parametrize(
    "arguments",
    [
        ["topic", "describe", "absent"],
        ["topic", "delete", "absent", "--yes"],
        ["topic", "alter", "absent", "--set", "retention.ms=1"],
        ["topic", "add-partitions", "absent", "--total", "2"],
        ["topic", "trim", "absent", "--before", "end", "--yes"],
        ["topic", "produce", "absent", "x"],
        ["topic", "consume", "absent"],
        ["produce", "absent", "x"],
        ["consume", "absent"],
        ["config", "get", "topic", "absent"],
        ["config", "set", "topic", "absent", "retention.ms=1"],
        ["config", "delete", "topic", "absent", "retention.ms"],
        ["config", "get", "broker", "7"],
        ["cluster", "log-dirs", "--broker", "7"],
    ],
)
def test_what_does_not_exist_is_not_found(cli: Cli, arguments: list[str]) -> None:
    stderr = cli(*arguments, exit_code=3).stderr
    assert stderr.startswith("Error: There is no ")
    assert stderr.count("\n") == 1


def test_the_name_that_was_meant_is_suggested(cli: Cli) -> None:
    cli("topic", "create", "payments")
    assert "Did you mean 'payments'?" in cli("topic", "describe", "paymnets", exit_code=3).stderr
    assert "Did you mean 'create'?" in cli("topic", "crate", "x", exit_code=2).stderr
    stderr = cli("config", "get", "topic", "payments", "retention.mss", exit_code=3).stderr
    assert "Did you mean 'retention.ms'?" in stderr


# ---------------------------------------------------------------- settings


def test_settings_of_brokers_are_shown_and_changed(cli: Cli, json_of: JsonOf) -> None:
    cli("config", "set", "broker", "default", "log.retention.ms=5000000")
    shared = json_of("config", "get", "broker", "default")
    assert "log.retention.ms" in [row["name"] for row in shared]
    cli("config", "delete", "broker", "default", "log.retention.ms")
    (node_id,) = json_of("config", "get", "broker", "1", "node.id")
    assert (node_id["value"], node_id["read_only"]) == ("1", True)
    assert len(cli("config", "get", "broker", "1", "--all").stdout.splitlines()) > 50


def test_a_setting_that_does_not_exist_is_refused(topic: str, cli: Cli) -> None:
    refused = cli("config", "set", "topic", topic, "nope=1", exit_code=1)
    assert "(INVALID_CONFIG)" in refused.stderr


# ---------------------------------------------------------------- the cluster


def test_the_cluster_shows_itself(cli: Cli, json_of: JsonOf, broker: BrokerProcess) -> None:
    host, _, port = broker.address.rpartition(":")
    assert json_of("cluster", "info") == {
        "cluster_id": "TW9sZGF1VGVzdENsaWVudA",
        "controller_id": 1,
        "brokers": [{"id": 1, "host": host, "port": int(port), "rack": None, "fenced": False}],
    }
    assert host in cli("cluster", "info").stdout


def test_a_healthy_cluster_says_so(cli: Cli, json_of: JsonOf) -> None:
    health = json_of("cluster", "health")
    assert health["healthy"] is True
    names = [check["name"] for check in health["checks"]]
    assert names == ["brokers", "quorum", "leaders", "replicas in sync", "replicas online"]
    assert cli("cluster", "health").stdout.count("ok  ") == 5


def test_partitions_that_lack_something_are_named() -> None:
    row = MetadataResponsePartition(
        error_code=0,
        partition_index=3,
        leader_id=-1,
        replica_nodes=[1, 2],
        isr_nodes=[1],
        offline_replicas=[],
    )
    topic = MetadataResponseTopic(error_code=0, name="orders", partitions=[row])
    leaders, in_sync, online = partition_checks([topic])
    assert not leaders.ok
    assert leaders.detail == "1 of 1 partitions lack some: orders-3"
    assert not in_sync.ok
    assert online.ok


def test_the_quorum_shows_its_leader(cli: Cli, json_of: JsonOf) -> None:
    quorum = json_of("cluster", "quorum")
    assert quorum["leader_id"] == 1
    assert [(row["id"], row["role"], row["lag"]) for row in quorum["replicas"]] == [(1, "leader", 0)]
    assert "high watermark" in cli("cluster", "quorum").stdout


def test_features_have_levels(cli: Cli, json_of: JsonOf) -> None:
    features = json_of("cluster", "features")
    levels = {row["name"]: row["level"] for row in features}
    assert levels["metadata.version"] > 0
    assert "metadata.version" in cli("cluster", "features").stdout


def test_directories_have_sizes(topic: str, cli: Cli, json_of: JsonOf) -> None:
    cli("produce", topic, "-p", "0", "x" * 1000)
    (directory,) = json_of("cluster", "log-dirs")
    sizes = {(row["topic"], row["partition"]): row["bytes"] for row in directory["partitions"]}
    assert directory["broker"] == 1
    assert sizes[topic, 0] > 1000
    assert f"{topic}-1" in cli("cluster", "log-dirs", "--broker", "1").stdout


# ---------------------------------------------------------------- where the cluster is


def test_the_address_comes_from_the_flag_or_the_environment(broker: BrokerProcess) -> None:
    dead = {"MOLDAU_BOOTSTRAP_SERVER": "127.0.0.1:1"}
    runner = CliRunner()
    assert runner.invoke(main, ["topic", "list", "-b", broker.address], env=dead).exit_code == 0
    assert (
        runner.invoke(main, ["topic", "list"], env={"KAFKA_BOOTSTRAP_SERVERS": broker.address}).exit_code == 0
    )
    several = f"127.0.0.1:1,{broker.address}"
    assert runner.invoke(main, ["topic", "list", "--bootstrap-server", several], env=dead).exit_code == 0


@pytest.mark.parametrize(
    "command", [["topic", "list"], ["consume", "x"], ["produce", "x", "y"], ["cluster", "info"]]
)
def test_a_cluster_that_is_not_there_is_out_of_reach(command: list[str]) -> None:
    result = CliRunner().invoke(main, [*command, "-b", "127.0.0.1:1"])
    assert result.exit_code == 5
    assert result.stderr.startswith("Error: No broker could be reached. Tried 127.0.0.1:1: ")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("address", ["localhost:x", ":9092", "a:99999", ","])
def test_an_address_that_is_none_is_wrong_usage(address: str) -> None:
    assert CliRunner().invoke(main, ["topic", "list", "-b", address]).exit_code == 2


def test_a_client_setting_that_does_not_exist_is_wrong_usage(cli: Cli) -> None:
    refused = cli("topic", "list", "-X", "clent.id=x", exit_code=2)
    assert "Did you mean client.id?" in refused.stderr
