"""What is there to copy for those who run nodes: the unit, the image, the smallest file."""

from __future__ import annotations

import configparser
import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from moldau.cli import main
from moldau.node.config import NodeConfig
from moldau.node.environment import read_environment
from moldau.node.properties import parse_properties

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
UNIT = EXAMPLES / "moldau.service"


def parse_command(arguments: list[str]) -> str:
    """Let the command line take the arguments without running them; gives the name of the command."""
    name, *rest = arguments
    command = main.get_command(main.make_context("moldau", [name]), name)
    assert isinstance(command, click.Command)
    command.make_context(name, rest)
    return name


# ---------------------------------------------------------------- systemd


def unit() -> configparser.ConfigParser:
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[method-assign,assignment]
    parser.read_string(UNIT.read_text())
    return parser


def test_the_unit_runs_a_command_that_exists_as_somebody_without_rights() -> None:
    service = unit()["Service"]
    program, *arguments = shlex.split(service["ExecStart"])
    assert Path(program).name == "moldau"
    assert parse_command(arguments) == "start"
    assert service["User"] not in ("", "root")
    assert service["KillSignal"] == "SIGTERM"


def test_systemd_understands_the_unit(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd is not installed")
    # The program must exist, and here it is elsewhere.
    copied = tmp_path / UNIT.name
    copied.write_text(re.sub(r"ExecStart=\S+", f"ExecStart={sys.executable}", UNIT.read_text()))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--recursive-errors=no", "--man=no", str(copied)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert UNIT.name not in done.stderr


# ---------------------------------------------------------------- the image


def instructions() -> list[tuple[str, str]]:
    """The instructions of the Dockerfile, whole lines without comments."""
    text = re.sub(r"^#.*\n", "", (EXAMPLES / "Dockerfile").read_text(), flags=re.MULTILINE)
    lines = text.replace("\\\n", " ").splitlines()
    return [(line.split(maxsplit=1)[0], line.split(maxsplit=1)[1].strip()) for line in lines if line.strip()]


def last_stage() -> list[tuple[str, str]]:
    found = instructions()
    start = max(number for number, (name, _) in enumerate(found) if name == "FROM")
    return found[start:]


def test_the_image_is_built_in_stages_from_images_without_a_host() -> None:
    bases = [words.split()[0] for name, words in instructions() if name == "FROM"]
    assert len(bases) == 2
    assert not any("/" in base for base in bases)
    assert any(words.startswith("--from=build ") for name, words in last_stage() if name == "COPY")


def test_what_is_copied_into_the_image_exists() -> None:
    for name, words in instructions():
        sources = [] if words.startswith("--from") else words.split()[:-1]
        for source in sources if name == "COPY" else []:
            assert (ROOT / source).exists(), source


def test_the_image_runs_a_command_that_exists_as_somebody_without_rights() -> None:
    stage = last_stage()
    (user,) = [words for name, words in stage if name == "USER"]
    assert user not in ("root", "0")
    assert any(
        name == "RUN" and words.startswith("useradd ") and words.endswith(user) for name, words in stage
    )
    (entry,) = [json.loads(words) for name, words in stage if name == "ENTRYPOINT"]
    (arguments,) = [json.loads(words) for name, words in stage if name == "CMD"]
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert entry == ["moldau"]
    assert "moldau" in scripts
    assert parse_command(arguments) == "start"


def test_the_image_is_a_node_that_says_how_it_is_where_it_is_asked() -> None:
    variables = dict(
        word.split("=", 1) for name, words in last_stage() if name == "ENV" for word in words.split()
    )
    config = NodeConfig.of({name: text for name, (text, _) in read_environment(variables).items()})
    assert config.is_alone
    assert config.warnings == ()
    (volume,) = [words for name, words in last_stage() if name == "VOLUME"]
    assert config.log_directory == volume
    (health,) = [words for name, words in last_stage() if name == "HEALTHCHECK"]
    assert f"http://{config.admin}/readyz" in health
    command = json.loads(health[health.index("[") :])
    compile(command[command.index("-c") + 1], "HEALTHCHECK", "exec")


# ---------------------------------------------------------------- the files


def test_the_smallest_file_is_a_node() -> None:
    config = NodeConfig.of(parse_properties((EXAMPLES / "server.properties").read_text()))
    assert config.is_alone
    assert config.warnings == ()


def test_the_toml_of_the_documentation_is_the_smallest_file(tmp_path: Path) -> None:
    (block,) = re.findall(r"```toml\n(.*?)```", (ROOT / "docs" / "operating.md").read_text(), re.DOTALL)
    path = tmp_path / "server.toml"
    path.write_text(block)
    result = CliRunner().invoke(main, ["config", "explain", "-c", str(path), "--given", "-o", "json"])
    given = {row["name"]: row["value"] for row in json.loads(result.stdout)}
    for name, text in parse_properties((EXAMPLES / "server.properties").read_text()).items():
        if not name.startswith("moldau."):
            assert given.pop(name) == text
    assert given == {"log.retention.ms": "86400000", "log.retention.bytes": "-1"}
