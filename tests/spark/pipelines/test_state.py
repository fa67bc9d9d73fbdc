"""What a pipeline keeps between runs, and whether others can tell that it runs."""

import json
import os
import pwd
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from moldau.spark.pipelines.processes import ProcessId, identify, started_at
from moldau.spark.pipelines.state import (
    AlreadyRuns,
    NoSuchPipeline,
    PipelineDirectory,
    Run,
    Status,
    directory_of,
    find,
    known,
    remember,
)

# Holds the lock of a directory until its input ends; its first line says that it has it.
HOLDER = """
import sys
from pathlib import Path
from moldau.spark.pipelines.state import PipelineDirectory
with PipelineDirectory(Path(sys.argv[1])).lock():
    print("locked", flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user who has never run a pipeline."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "xdg"))
    monkeypatch.delenv("MOLDAU_PIPELINES_DIR", raising=False)
    monkeypatch.chdir(tmp_path)


def holder(directory: PipelineDirectory) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(directory.path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "locked\n"
    return process


def a_run(process: ProcessId, status: Status = Status.RUNNING) -> Run:
    return Run(
        name="clicks",
        kind="function",
        source="clicks.py",
        status=status,
        process=process,
        began_ms=1,
        master="local",
        bootstrap_servers="localhost:9092",
        log="spark.log",
    )


def here() -> ProcessId:
    process = identify(os.getpid())
    assert process is not None
    return process


# ---------------------------------------------------------------- processes


def test_a_process_is_known_by_when_it_was_started() -> None:
    process = here()
    assert process.is_alive()
    assert not replace(process, started="long ago").is_alive()


def test_what_is_left_of_a_process_for_its_parent_is_no_process() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""], stdin=subprocess.DEVNULL)
    pid = process.pid
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert started_at(pid) is None
    process.wait()
    assert started_at(pid) is None


# ---------------------------------------------------------------- the lock


def test_a_pipeline_is_run_by_one_at_a_time(tmp_path: Path) -> None:
    directory = directory_of(tmp_path, "clicks")
    assert directory.path == tmp_path / "moldau-pipelines" / "clicks"
    with directory.lock():
        directory.write_run(a_run(here()))
        refused = pytest.raises(AlreadyRuns, match=f"run by the process {os.getpid()} already")
        with refused, PipelineDirectory(directory.path).lock():
            pass
    with directory.lock():
        pass


def test_however_the_one_ends_who_runs_a_pipeline_the_next_can(tmp_path: Path) -> None:
    directory = directory_of(tmp_path, "clicks")
    process = holder(directory)
    identity = identify(process.pid)
    assert identity is not None
    directory.write_run(a_run(identity))
    assert directory.is_locked()
    assert directory.status() is Status.RUNNING
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not directory.is_locked()
    assert directory.status() is Status.DIED
    with directory.lock():
        # Its last word is still that of the run before.
        assert directory.status() is Status.RUNNING


@pytest.mark.parametrize("status", [Status.STOPPED, Status.FINISHED, Status.FAILED])
def test_a_run_that_ended_by_itself_has_said_how(tmp_path: Path, status: Status) -> None:
    directory = directory_of(tmp_path, "clicks")
    with directory.lock():
        directory.write_run(a_run(here(), status))
        assert directory.status() is Status.STARTING
    assert directory.status() is status


def test_looking_whether_a_pipeline_runs_keeps_nobody_from_running_it(tmp_path: Path) -> None:
    directory = directory_of(tmp_path, "clicks")
    with directory.lock():
        pass
    for _ in range(50):
        assert not directory.is_locked()
        with directory.lock():
            assert PipelineDirectory(directory.path).is_locked()


def test_a_directory_without_a_run_is_new(tmp_path: Path) -> None:
    directory = directory_of(tmp_path, "clicks")
    assert not directory.exists
    assert directory.status() is Status.NEW
    assert directory.run() is None
    assert directory.progress() == {}


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"status": "wild"}'])
def test_files_that_something_else_wrote_are_no_run(tmp_path: Path, text: str) -> None:
    directory = directory_of(tmp_path, "clicks")
    with directory.lock():
        (directory.path / "run.json").write_text(text)
    assert directory.run() is None


def test_a_run_is_read_as_it_was_written(tmp_path: Path) -> None:
    directory = directory_of(tmp_path, "clicks")
    run = replace(a_run(here()), java=ProcessId(1, "x"), error="ü", ended_ms=3)
    with directory.lock():
        directory.write_run(run)
        directory.write_progress({"queries": []}, "up 1\n")
    assert directory.run() == run
    assert directory.progress() == {"queries": []}
    assert directory.metrics_file.read_text() == "up 1\n"
    assert sorted(path.name for path in directory.path.iterdir() if path.name.startswith(".")) == []
    document = json.loads((directory.path / "run.json").read_text())
    document["of a later version"] = 1
    (directory.path / "run.json").write_text(json.dumps(document))
    assert directory.run() == run


# ---------------------------------------------------------------- finding them


def run_once(root: Path, name: str) -> PipelineDirectory:
    directory = directory_of(root, name)
    with directory.lock():
        remember(directory)
    return directory


def test_pipelines_are_found_by_name_from_anywhere(tmp_path: Path) -> None:
    one, two = run_once(tmp_path / "shop", "clicks"), run_once(tmp_path / "bank", "transfers")
    assert [each.path for each in known()] == [one.path, two.path]
    assert find("transfers", {}).path == two.path
    assert find(str(one.path), {}).path == one.path
    assert find("whatever", {"clicks": tmp_path / "shop"}).path == one.path


def test_two_pipelines_of_a_name_are_told_apart_by_their_directories(tmp_path: Path) -> None:
    one, two = run_once(tmp_path / "a", "clicks"), run_once(tmp_path / "b", "clicks")
    with pytest.raises(NoSuchPipeline, match="Several pipelines are called clicks") as error:
        find("clicks", {})
    assert str(one.path) in str(error.value)
    assert find(str(two.path), {}).path == two.path


def test_pipelines_that_are_gone_are_forgotten(tmp_path: Path) -> None:
    directory = run_once(tmp_path, "clicks")
    directory.path.rename(tmp_path / "elsewhere")
    assert known() == []
    with pytest.raises(NoSuchPipeline, match="None has ever been run here"):
        find("clicks", {})


def test_what_lies_in_the_current_directory_is_found_without_a_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file" / "below"))
    directory = run_once(tmp_path, "clicks")
    assert [each.path for each in known()] == [directory.path]


def test_a_user_without_a_home_or_even_a_name_runs_pipelines_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one in a container, with a number that is in no /etc/passwd."""

    def nobody(number: int) -> object:
        raise KeyError(number)

    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr(pwd, "getpwuid", nobody)
    monkeypatch.chdir(tmp_path)
    directory = run_once(tmp_path, "clicks")
    assert [each.path for each in known()] == [directory.path]


def test_the_directory_for_all_of_them_can_be_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOLDAU_PIPELINES_DIR", str(tmp_path / "state"))
    assert directory_of(tmp_path / "shop", "clicks").path == tmp_path / "state" / "clicks"
