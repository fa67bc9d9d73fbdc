"""`moldau bench`: measuring a real broker from the shell."""

from __future__ import annotations

import os

from cli.conftest import Cli, JsonOf
from click.testing import CliRunner

from moldau.bench.workloads import WORKLOADS
from moldau.cli import main


def test_the_workloads_are_listed(cli: Cli, json_of: JsonOf) -> None:
    assert json_of("bench", "--list") == {workload.name: workload.title for workload in WORKLOADS}
    assert len(cli("bench", "--list", "connections").stdout.splitlines()) == 4


def test_the_json_has_every_round(json_of: JsonOf) -> None:
    arguments = ("bench", "latency", "--tiny", "--rounds", "2", "--server-pid", str(os.getpid()))
    (result,) = json_of(*arguments)
    assert result["workload"] == "latency"
    assert [reading["name"] for reading in result["readings"]] == ["p50", "p99", "p99.9"]
    for reading in result["readings"]:
        assert len(reading["rounds"]) == 2
        assert all(value > 0 for value in reading["rounds"])
    for name in ("messages", "seconds", "server_cpu_seconds", "client_cpu_seconds"):
        assert len(result[name]) == 2
        assert all(value > 0 for value in result[name])


def test_people_get_a_table(cli: Cli) -> None:
    lines = cli("bench", "history-100", "--tiny", "--rounds", "1").stdout.splitlines()
    assert lines[0].split()[:2] == ["WORK", "MEDIAN"]
    assert lines[1].startswith("history read, 100 B each")
    assert "messages/s" in lines[1]


def test_topics_have_the_settings_that_were_given(cli: Cli) -> None:
    failed = cli("bench", "history-100", "--tiny", "-c", "no.such.setting=1", exit_code=1)
    assert "no.such.setting" in failed.stderr
    assert "INVALID_CONFIG" in failed.stderr


def test_a_mistyped_workload_is_answered_with_the_nearest_one(cli: Cli) -> None:
    failed = cli("bench", "latencyy", exit_code=2)
    assert "Did you mean 'latency'?" in failed.stderr


def test_a_process_that_is_not_there_is_wrong_usage(cli: Cli) -> None:
    assert "--server-pid" in cli("bench", "latency", "--tiny", "--server-pid", "4194305", exit_code=2).stderr


def test_a_cluster_that_is_not_there_is_out_of_reach() -> None:
    result = CliRunner().invoke(main, ["bench", "latency", "--tiny", "-b", "127.0.0.1:1", "--timeout", "1"])
    assert result.exit_code == 5
    assert result.stderr.startswith("Error: ")


def test_without_plaintext_only_the_client_is_measured() -> None:
    tls = ["--tiny", "-X", "security.protocol=SSL", "-b", "127.0.0.1:1", "--timeout", "1"]
    result = CliRunner().invoke(main, ["bench", "latency", *tls])
    assert result.exit_code == 2
    assert result.stdout == ""
    assert "nothing to measure: latency need a listener without TLS." in result.stderr
    # With others beside it there is something to measure, if not here, where nobody listens.
    result = CliRunner().invoke(main, ["bench", *tls])
    assert result.exit_code == 5
    assert "Left out, because they need a listener without TLS: " in result.stderr
