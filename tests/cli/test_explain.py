"""`moldau config explain` and all that reads a server's settings: flag before variable before file."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from moldau.cli import main
from moldau.model.settings.resolve import SETTINGS
from moldau.model.settings.setting import Scope

Explain = Callable[..., Result]


@pytest.fixture
def explain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Explain:
    """The command with these arguments and variables; fails unless it ends with `exit_code`."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str, exit_code: int = 0, **variables: str) -> Result:
        result = CliRunner(env=variables).invoke(main, ["config", "explain", *arguments])
        assert result.exit_code == exit_code, result.output
        return result

    return run


def json_of(result: Result) -> Any:
    return json.loads(result.stdout)


def test_a_flag_comes_before_a_variable_before_the_file_before_the_default(
    explain: Explain, tmp_path: Path
) -> None:
    (tmp_path / "server.properties").write_text("# mine\nnum.partitions=2\n")
    arguments, answers = ["num.partitions", "-o", "json"], []
    answers.append(json_of(explain(*arguments)))
    arguments += ["-c", "server.properties"]
    answers.append(json_of(explain(*arguments)))
    answers.append(json_of(explain(*arguments, KAFKA_NUM_PARTITIONS="3")))
    arguments += ["--override", "num.partitions=4"]
    answers.append(json_of(explain(*arguments, KAFKA_NUM_PARTITIONS="3")))
    assert [(each["value"], each["source"], each["where"]) for each in answers] == [
        ("1", "default", None),
        ("2", "file", "server.properties, line 2"),
        ("3", "environment", "$KAFKA_NUM_PARTITIONS"),
        ("4", "flag", "--override"),
    ]
    assert [each["value"] for each in answers[-1]["overridden"]] == ["3", "2"]
    assert {each["default"] for each in answers} == {"1"}


def test_toml_has_the_same_keys(explain: Explain, tmp_path: Path) -> None:
    (tmp_path / "server.toml").write_text("[log.retention]\nms = 5\n")
    answer = json_of(explain("log.retention.ms", "-c", "server.toml", "-o", "json"))
    assert (answer["value"], answer["where"]) == ("5", "server.toml, line 2")


def test_every_setting_of_a_server_is_shown(explain: Explain) -> None:
    rows = json_of(explain("-o", "json"))
    assert [row["name"] for row in rows] == sorted(SETTINGS[Scope.BROKER])
    lines = explain().stdout.splitlines()
    assert len(lines) == 1 + len(rows)
    assert lines[0].split() == ["SETTING", "VALUE", "FROM"]


def test_only_what_is_given_can_be_shown(explain: Explain) -> None:
    lines = explain("--given", KAFKA_BACKGROUND_THREADS="3", KAFKA_NODE_ID="7").stdout.splitlines()
    assert [line.split(maxsplit=2) for line in lines[1:]] == [
        ["background.threads", "3", "$KAFKA_BACKGROUND_THREADS (has no effect)"],
        ["node.id", "7", "$KAFKA_NODE_ID"],
    ]


def test_one_setting_is_shown_with_its_meaning(explain: Explain) -> None:
    lines = explain("num.partitions", "--override", "num.partitions=4", KAFKA_NUM_PARTITIONS="3").stdout
    assert [line.split(maxsplit=1) for line in lines.splitlines()] == [
        ["num.partitions", "4"],
        ["from", "--override"],
        ["not", "environment  3  $KAFKA_NUM_PARTITIONS"],
        ["default", "1"],
        ["meaning", "How many partitions a topic gets whose creator does not say."],
    ]


@pytest.mark.parametrize(
    "name", ["ssl.key.password", "listener.name.x.ssl.key.password", "config.providers.x.token"]
)
def test_secrets_are_not_shown(explain: Explain, name: str) -> None:
    override = f"{name}=do not tell"
    for arguments in (["--given"], [name], [name, "-o", "json"]):
        shown = explain(*arguments, "--override", override).output
        assert name in shown
        assert "do not tell" not in shown


def test_a_setting_of_one_listener_is_known_by_the_general_one(explain: Explain) -> None:
    name = "listener.name.clients.ssl.client.auth"
    answer = json_of(explain(name, "-o", "json", "--override", f"{name}=required"))
    assert (answer["value"], answer["sensitive"]) == ("required", False)
    assert "certificate" in answer["doc"]


def test_a_mistake_is_told_where_it_was_made(explain: Explain, tmp_path: Path) -> None:
    (tmp_path / "a.properties").write_text("\n\nnode.idd=1\n")
    (tmp_path / "b.toml").write_text("node.id = 1\nnum.partitions = 0\n")
    (tmp_path / "c.toml").write_text("node.id 1\n")
    for arguments, message in {
        ("-c", "a.properties"): "a.properties, line 3: There is no broker setting 'node.idd'. Did you mean",
        ("-c", "b.toml"): "b.toml, line 2: Invalid value '0' for num.partitions: must be at least 1.",
        ("-c", "c.toml"): "c.toml: Expected '=' after a key",
        ("-c", "none"): "none cannot be read: No such file or directory.",
        ("--override", "node.idd=1"): "--override: There is no broker setting 'node.idd'. Did you mean",
        ("num.partitons",): "",
    }.items():
        result = explain(*arguments, exit_code=1 if message else 3)
        assert result.stderr.startswith(f"Error: {message}")
        assert result.stderr.count("\n") == 1
    assert "Did you mean 'num.partitions'?" in explain("num.partitons", exit_code=3).stderr
    wrong = explain("node.id", exit_code=1, KAFKA_NODE_ID="x").stderr
    assert (
        wrong == "Error: $KAFKA_NODE_ID: Invalid value 'x' for node.id: must be a whole number of 32 bits.\n"
    )


def test_a_mistyped_variable_is_told_of(explain: Explain) -> None:
    result = explain("node.id", KAFKA_NODE_IDD="1", KAFKA_HOME="opt")
    assert result.stderr == (
        "KAFKA_NODE_IDD names no setting and is passed over. Did you mean KAFKA_NODE_ID?\n"
    )
