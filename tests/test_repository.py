"""What a newcomer meets first: the README, the links, the versions, the command line."""

import json
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from urllib.parse import unquote

import pytest
from click.testing import CliRunner

import moldau
from moldau.cli import COMMANDS, main

ROOT = Path(__file__).parents[1]

# A path below these exists on one machine only. Kafka's default for log.dir is known everywhere.
MACHINE_PATH = re.compile(r"(?<![\w./$}~-])/(?:home|root|work|Users|tmp(?!/kafka-logs\b))/[\w.]")
# Where packages come from is the business of whoever installs them.
REGISTRY = re.compile(
    r"pypi\.org|pythonhosted\.org|repo1?\.maven|maven\.org|npmjs|docker\.io|(?:extra-)?index-url|trusted-host"
)
# Targets of links and images, not those inside code.
LINK = re.compile(r"\]\(([^)\s]+)\)")
CODE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)


@cache
def project_files() -> tuple[Path, ...]:
    """What is, or is about to be, under version control."""
    listing = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listing.returncode != 0:
        pytest.skip("not a git work tree, so nothing says which files belong to the project")
    return tuple(path for name in listing.stdout.split("\0") if name and (path := ROOT / name).is_file())


def project_texts() -> list[tuple[str, str]]:
    """The files that are text, by their path from the root."""
    texts = []
    for path in project_files():
        data = path.read_bytes()
        if b"\0" not in data:
            texts.append((str(path.relative_to(ROOT)), data.decode(errors="replace")))
    return texts


def lines_matching(pattern: re.Pattern[str]) -> list[str]:
    """Where a pattern occurs, apart from this file, which has to spell out what it looks for."""
    return [
        f"{name}:{number}: {line.strip()}"
        for name, text in project_texts()
        if name != "tests/test_repository.py"
        for number, line in enumerate(text.splitlines(), start=1)
        if pattern.search(line)
    ]


def test_the_readme_starts_with_the_two_commands() -> None:
    first_block = re.search(r"^```\w*\n(.*?)^```", (ROOT / "README.md").read_text(), re.DOTALL | re.MULTILINE)
    assert first_block is not None
    commands = [line.partition("#")[0].strip() for line in first_block[1].splitlines()]
    assert commands == ["make demo", "make test"]


def test_the_python_in_the_readme_runs(tmp_path: Path) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.DOTALL | re.MULTILINE)
    assert blocks
    for block in blocks:
        # As a file, because the message compiler looks annotations up in the module that declares them.
        script = tmp_path / "example.py"
        script.write_text(block)
        subprocess.run([sys.executable, str(script)], check=True)


def test_the_story_of_the_power_cuts_runs_to_its_end() -> None:
    story = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "power_cuts.py")], capture_output=True, text=True, check=True
    )
    assert "660 acknowledged records are there" in story.stdout
    assert story.stdout.rstrip().endswith("0 lost")


def test_every_relative_link_leads_somewhere() -> None:
    broken = [
        f"{path.relative_to(ROOT)}: {target}"
        for path in project_files()
        if path.suffix == ".md"
        for target in LINK.findall(CODE.sub("", path.read_text()))
        if not re.match(r"[a-z]+:|#", target)
        and not (path.parent / unquote(target.partition("#")[0])).exists()
    ]
    assert broken == []


def test_no_file_names_a_path_of_one_machine() -> None:
    assert lines_matching(MACHINE_PATH) == []


def test_no_file_names_a_package_registry() -> None:
    assert lines_matching(REGISTRY) == []


@pytest.mark.parametrize(
    "text", ["cd /home/ada", "x = '/tmp/data'", f"(/{'root'}/.cache)", "/Users/ada/moldau"]
)
def test_a_path_of_one_machine_is_recognised(text: str) -> None:
    assert MACHINE_PATH.search(text)


@pytest.mark.parametrize(
    "text", ["docs/work/x", "$HOME/tmp/x", "/usr/bin/env", "${dir}/home/x", "a/root/b", "'/tmp/kafka-logs'"]
)
def test_other_paths_are_not(text: str) -> None:
    assert not MACHINE_PATH.search(text)


def test_the_changelog_speaks_of_this_version() -> None:
    headings = re.findall(r"^## \[([^\]]+)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert next(heading for heading in headings if heading != "Unreleased") == moldau.__version__


def test_the_ci_script_can_be_run() -> None:
    assert (ROOT / ".ci" / "run").stat().st_mode & 0o111


# ---------------------------------------------------------------------------------------- the command line


def test_every_module_of_the_command_line_is_a_command_with_a_line_of_help() -> None:
    modules = {path.stem.replace("_", "-") for path in (ROOT / "src" / "moldau" / "cli").glob("[!_]*.py")}
    assert modules == set(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_introduces_itself_as_the_list_does(name: str) -> None:
    command = main.get_command(main.make_context("moldau", [name]), name)
    assert command is not None
    assert command.help is not None
    assert command.help.splitlines()[0] == COMMANDS[name]


def test_help_lists_the_commands() -> None:
    result = CliRunner().invoke(main, ["--help"])
    assert result.exit_code == 0
    assert all(f"  {name} " in result.stdout for name in COMMANDS)


def test_help_imports_no_command() -> None:
    script = "import sys; from moldau.cli import main; main(['--help'], standalone_mode=False)\n"
    script += "print([name for name in sys.modules if name.startswith(('moldau.', 'rich'))])"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout.splitlines()[-1] == "['moldau.cli']"


def test_a_mistyped_command_is_answered_with_the_nearest_one() -> None:
    result = CliRunner().invoke(main, ["verison"])
    assert result.exit_code == 2
    assert "Did you mean 'version'?" in result.stderr


def test_an_unknown_command_is_wrong_usage() -> None:
    result = CliRunner().invoke(main, ["xyzzy"])
    assert result.exit_code == 2
    assert "No such command 'xyzzy'" in result.stderr


def test_version_prints_json_for_scripts() -> None:
    result = CliRunner().invoke(main, ["version", "-o", "json"])
    versions = json.loads(result.stdout)
    assert versions["moldau"] == moldau.__version__
    assert versions["python"] == sys.version.split()[0]
    assert versions["kernel"] in ("compiled", "pure")
    assert versions["libraries"].keys() == {"isal", "numpy", "pyarrow", "pyspark"}


def test_version_says_what_to_install_for_a_library_that_is_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moldau.cli.version.library_version", {"numpy": "2.0"}.get)
    result = CliRunner().invoke(main, ["version"])
    assert "numpy    2.0" in result.stdout
    assert "isal     absent: pip install 'moldau[fast]'" in result.stdout


def test_python_dash_m_is_the_same_command() -> None:
    run = subprocess.run(
        [sys.executable, "-m", "moldau", "--version"], capture_output=True, text=True, check=True
    )
    assert run.stdout == f"moldau, version {moldau.__version__}\n"
