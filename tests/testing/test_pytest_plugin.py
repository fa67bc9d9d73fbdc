"""The fixtures of pytest, in a small project of somebody else's that has Moldau installed."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

Run = Callable[..., str]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run pytest on a file of tests, and give what it prints; fails unless it ends with `exit_code`."""
    with open(ROOT / "pyproject.toml", "rb") as file:
        entry_points = tomllib.load(file)["project"]["entry-points"]["pytest11"]
    # What an installation would write, because this checkout may have been installed long ago.
    metadata = tmp_path / "installed" / "moldau-0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: moldau\nVersion: 0\n")
    lines = [f"{name} = {module}\n" for name, module in entry_points.items()]
    (metadata / "entry_points.txt").write_text("[pytest11]\n" + "".join(lines))
    project = tmp_path / "project"
    project.mkdir()
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    paths = [str(metadata.parent), str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "TMPDIR": str(temporary)}
    # What the run around this one tells its workers is not for this one.
    environment = {name: value for name, value in environment.items() if not name.startswith("PYTEST_")}

    def run_pytest(tests: str, *arguments: str, conftest: str = "", exit_code: int = 0) -> str:
        (project / "pytest.ini").write_text("[pytest]\n")
        (project / "conftest.py").write_text(conftest)
        (project / "test_it.py").write_text(tests)
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments],
            cwd=project,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == exit_code, done.stdout + done.stderr
        assert not list(temporary.glob("moldau-*")), "temporary folders go away"
        return done.stdout

    return run_pytest


USES_TOPICS = """
import os, pytest
from moldau.client import connect_sync

@pytest.mark.parametrize("number", range(4))
def test_a_topic_is_new(moldau_cluster, moldau_topic, number, request):
    with connect_sync(moldau_cluster.bootstrap_servers) as client:
        topics = client.admin.list_topics()
        with client.producer() as producer:
            assert producer.wait(producer.send(moldau_topic, b"x")).offset == 0
    assert list(topics) == [moldau_topic]
    assert moldau_topic.startswith(f"test-a-topic-is-new-{number}-")
    print("cluster:", os.getpid(), moldau_cluster.bootstrap_servers)
"""


def test_each_test_has_a_new_topic_in_one_cluster(run: Run) -> None:
    printed = run(USES_TOPICS, "-s", "-q")
    clusters = {line for line in printed.splitlines() if "cluster:" in line}
    assert len({line.partition("cluster:")[2] for line in clusters}) == 1
    assert "4 passed" in printed


def test_each_worker_has_a_cluster_of_its_own(run: Run) -> None:
    # Each worker takes two tests at least.
    printed = run(USES_TOPICS, "-n", "2", "-rP", "-q")
    lines = {line.partition("cluster:")[2] for line in printed.splitlines() if "cluster:" in line}
    workers = {line.split()[0] for line in lines}
    addresses = {line.split()[1] for line in lines}
    assert len(workers) == len(addresses) == 2
    assert "4 passed" in printed


def test_settings_come_from_a_fixture_that_a_project_overrides(run: Run) -> None:
    conftest = """
import pytest
@pytest.fixture(scope="session")
def moldau_settings():
    return {"num.partitions": 5}
"""
    tests = """
from moldau.client import connect_sync
def test_it(moldau_cluster):
    name = moldau_cluster.topic(partitions=-1)
    with connect_sync(moldau_cluster.bootstrap_servers) as client:
        assert len(client.admin.list_topics()[name].partitions) == 5
"""
    run(tests, conftest=conftest)


def test_what_one_test_does_to_the_brokers_the_next_does_not_see(run: Run) -> None:
    tests = """
import pytest
@pytest.mark.parametrize("harm", ["kill", "pause", "shut_down", "nothing"])
def test_harm(moldau_cluster, moldau_topic, harm):
    moldau_cluster.topic()
    if harm != "nothing":
        getattr(moldau_cluster, harm)(1)
"""
    assert "4 passed" in run(tests)


def test_a_test_that_fails_shows_what_the_broker_has_logged(run: Run) -> None:
    tests = """
def test_passes(moldau_cluster): pass
def test_fails(moldau_cluster): assert False
def test_fails_without_it(): assert False
"""
    printed = run(tests, exit_code=1)
    assert printed.count("Log of Moldau's broker 1") == 1
    assert "moldau is ready" in printed
    assert "2 failed, 1 passed" in printed


def test_a_broker_that_ends_by_itself_is_an_error_of_the_test_that_saw_it(run: Run) -> None:
    tests = """
import os, signal, time
def test_crash(moldau_cluster, moldau_topic):
    os.kill(moldau_cluster.pid(1), signal.SIGABRT)
    while moldau_cluster.pid(1) is not None:
        time.sleep(0.01)
def test_after(moldau_cluster, moldau_topic): pass
"""
    printed = run(tests, exit_code=1)
    assert "2 passed, 1 error" in printed
    assert "Broker 1 has ended by itself, with exit code -6" in printed


def test_a_broker_that_does_not_start_says_why(run: Run) -> None:
    conftest = """
import pytest
@pytest.fixture(scope="session")
def moldau_settings():
    return {"num.partition": 5}
"""
    printed = run("def test_it(moldau_topic): pass", conftest=conftest, exit_code=1)
    assert "Did you mean num.partitions" in printed


def test_who_does_not_use_it_pays_nothing(run: Run) -> None:
    tests = """
import sys
def test_it(request):
    assert "moldau.testing.pytest_plugin" in sys.modules
    loaded = [name for name in sys.modules if name.startswith("moldau.")]
    assert [name for name in loaded if not name.startswith("moldau.testing")] == []
"""
    assert "1 passed" in run(tests, "-p", "no:xdist")
