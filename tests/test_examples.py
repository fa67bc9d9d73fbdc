"""The demo, and what is there to copy for those who run nodes: the unit, the image, the smallest file."""

from __future__ import annotations

import configparser
import importlib.util
import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import click
import pytest
from click.testing import CliRunner

from moldau.cli import main
from moldau.client import ClientError
from moldau.model.errors import ErrorCode
from moldau.node.config import NodeConfig
from moldau.node.environment import read_environment
from moldau.node.properties import parse_properties
from moldau.spark.pipelines.preflight import Problem, check_java

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


# ---------------------------------------------------------------- the demo


@pytest.mark.slow
@pytest.mark.xdist_group("spark")
@pytest.mark.timeout(900)
def test_the_demo_runs_to_its_end_and_shows_what_came_of_it(tmp_path: Path) -> None:
    java = check_java()
    if isinstance(java, Problem):
        pytest.skip(java.what)
    picture = tmp_path / "counts.png"
    length = ["--clicks", "6000", "--minutes", "6", "--seconds", "6", "--timeout", "800"]
    demo = subprocess.run(
        [sys.executable, str(EXAMPLES / "demo.py"), *length, "--json", "--png", str(picture)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert demo.returncode == 0, demo.stderr
    outcome = json.loads(demo.stdout)
    assert outcome["ok"] is True
    assert outcome["clicks"] == 6000
    assert outcome["counts"] == 60
    assert 0 < outcome["broker_was_killed_after_clicks"] < 6000
    # A count that grew over several micro-batches was written to the topic with each.
    assert outcome["updates_in_topic"] > 60
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert "kill -9" in demo.stderr
    assert "12:00" in demo.stderr


@pytest.fixture(scope="module")
def demo() -> ModuleType:
    """The demo as a module."""
    spec = importlib.util.spec_from_file_location("demo", EXAMPLES / "demo.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Its dataclasses look themselves up there.
    sys.modules["demo"] = module
    spec.loader.exec_module(module)
    return module


def test_the_demo_says_first_that_java_is_missing(tmp_path: Path) -> None:
    check = subprocess.run(
        [sys.executable, str(EXAMPLES / "demo.py"), "--check"],
        env={"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert check.returncode == 1
    assert "Spark needs Java 17 or newer, and there is none." in check.stderr
    assert "Traceback" not in check.stderr


@pytest.mark.parametrize("is_json", [False, True])
def test_the_demo_says_what_was_wrong_with_the_broker(
    is_json: bool, demo: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    error = ClientError(ErrorCode.REQUEST_TIMED_OUT, "Not delivered within 120000 ms.", where="clicks")

    async def story(*_: object) -> None:
        raise error

    monkeypatch.setattr(demo, "story", story)
    monkeypatch.setattr(demo, "what_is_missing", lambda **_: [])
    monkeypatch.setattr(sys, "argv", ["demo.py", *(["--json"] if is_json else [])])
    with pytest.raises(SystemExit) as ended:
        demo.main()
    assert ended.value.code == f"wrong: {error}"
    out = capsys.readouterr().out
    assert not is_json or json.loads(out) == {"ok": False, "wrong": str(error)}


def clicks_of(demo: ModuleType, count: int = 600, minutes: int = 3) -> object:
    clicks = demo.Clicks(demo.Options(clicks=count, minutes=minutes, seconds=0, timeout_s=0, png=None))
    for _ in clicks.slices():
        pass
    return clicks


def test_no_click_of_the_demo_comes_too_late(demo: ModuleType) -> None:
    """The pipeline waits two minutes, and that is more than any click is behind, even one that waited."""
    from datetime import datetime

    latest = demo.FIRST_MINUTE
    clicks = demo.Clicks(demo.Options(clicks=5000, minutes=10, seconds=0, timeout_s=0, png=None))
    for part in clicks.slices():
        times = [datetime.fromisoformat(click["at"]) for click in part.clicks]
        behind_s = (latest - min(times)).total_seconds()
        assert behind_s + demo.UNACKNOWLEDGED_S + 60 / demo.SLICES_PER_MINUTE < 120
        latest = max(latest, *times)
    assert len(clicks.sent) == 5000
    assert clicks.by_page_and_minute().total() == 5000


BREAKS: dict[str, tuple[Callable[[list[dict[str, object]]], list[dict[str, object]]], str]] = {
    "a click is lost": (lambda found: found[1:], "1 are lost and 0 are in the topic twice: [0]"),
    "a click is doubled": (lambda found: [*found, found[7]], "0 are lost and 1 are in the topic twice: [7]"),
    "a click is there that nobody made": (lambda found: [*found, {"id": 600, "page": "/"}], "of 600 clicks"),
}


@pytest.mark.parametrize("what", BREAKS)
def test_the_demo_sees_that(what: str, demo: ModuleType) -> None:
    breaks, reason = BREAKS[what]
    clicks = clicks_of(demo)
    found = [*clicks.sent, {"id": -1, "page": demo.END_OF_STREAM}]  # type: ignore[attr-defined]
    demo.check_clicks(found, clicks)
    with pytest.raises(demo.Wrong) as error:
        demo.check_clicks(breaks(found), clicks)
    assert reason in str(error.value)


def test_the_demo_names_the_counts_that_are_wrong(demo: ModuleType) -> None:
    expected = Counter({("/", "2030-05-17T12:00"): 5, ("/jobs", "2030-05-17T12:01"): 2})
    demo.check_counts("the table", Counter(expected), expected)
    wrong = expected + Counter({("/", "2030-05-17T12:00"): 1})
    with pytest.raises(
        demo.Wrong, match=r"the table does not hold .*: / at 2030-05-17T12:00 was clicked 5 times"
    ):
        demo.check_counts("the table", wrong, expected)
    del wrong["/jobs", "2030-05-17T12:01"]
    with pytest.raises(demo.Wrong, match="/jobs at 2030-05-17T12:01 was clicked 2 times and counted 0"):
        demo.check_counts("the table", wrong, expected)


def test_the_demo_reads_only_what_spark_has_committed(demo: ModuleType, tmp_path: Path) -> None:
    log = tmp_path / "_spark_metadata"
    log.mkdir()

    def batch(name: str, *files: str) -> None:
        rows = [json.dumps({"path": f"file:///t/{each}"}) for each in files]
        (log / name).write_text("\n".join(["v1", *rows]))

    assert demo.committed_files(tmp_path / "elsewhere") == []
    batch("0", "a")
    batch("1", "b", "c")
    (log / ".1.crc").write_text("")
    assert sorted(demo.committed_files(tmp_path)) == ["/t/a", "/t/b", "/t/c"]
    # Every tenth batch holds those before it as well, which may be there still.
    batch("2.compact", "a", "b", "c", "d")
    batch("3", "e")
    assert sorted(demo.committed_files(tmp_path)) == ["/t/a", "/t/b", "/t/c", "/t/d", "/t/e"]


def test_a_compacted_topic_says_what_it_said_last(demo: ModuleType) -> None:
    key = json.dumps({"page": "/", "minute": "2030-05-17T12:00:00.000Z"})
    end = json.dumps({"page": demo.END_OF_STREAM, "minute": "2030-05-17T13:00:00.000Z"})
    records = [(key, '{"clicks":1}'), (end, '{"clicks":1}'), (key, '{"clicks":3}')]
    assert demo.last_values(records) == {("/", "2030-05-17T12:00"): 3}
