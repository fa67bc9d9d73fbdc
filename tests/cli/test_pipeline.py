"""`moldau pipeline`, as scripts and people meet it: without Spark where that will do, and with it."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from cli.conftest import Cli
from click.testing import CliRunner, Result
from clients.broker_process import BrokerProcess

import moldau
from moldau.cli import main
from moldau.spark.pipelines.preflight import Problem, check_java

MOLDAU = (sys.executable, "-m", "moldau")
# On a busy machine Spark alone takes a minute to start.
PATIENCE_S = 240.0

FUNCTION = """\
from pyspark.sql import functions as sf


def pipeline(spark):
    records = spark.readStream.format("moldau").option("subscribe", "{topic}")
    words = sf.col("value").cast("string").alias("word")
    words = records.option("startingOffsets", "earliest").load().select(words)
    print("set up")
    words.writeStream.queryName("words").format("parquet").option("path", "{table}").start()
"""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user who has never run a pipeline, in an empty directory."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "xdg"))
    monkeypatch.delenv("MOLDAU_PIPELINES_DIR", raising=False)
    monkeypatch.chdir(tmp_path)


def run(*arguments: str, exit_code: int = 0, **variables: str | None) -> Result:
    result = CliRunner(env=variables).invoke(main, ["pipeline", *arguments])
    assert result.exit_code == exit_code, f"{result.output}\n{result.exception!r}"
    return result


def json_of(*arguments: str, exit_code: int = 0) -> Any:
    return json.loads(run(*arguments, "-o", "json", exit_code=exit_code).stdout)


def until(condition: Callable[[], object], what: Callable[[], object] = lambda: "") -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, what()
        time.sleep(0.1)


# ---------------------------------------------------------------- init


@pytest.mark.parametrize("kind", ["function", "declarative", "sql"])
def test_init_writes_a_pipeline_and_says_what_it_wrote(kind: str) -> None:
    written = run("init", "shop", "--kind", kind).stdout.split()
    assert all(Path(path).is_file() for path in written)
    assert "shop/README.md" in written
    assert "moldau pipeline run shop" in Path("shop/README.md").read_text()


def test_init_spoils_nothing() -> None:
    Path("shop").mkdir()
    run("init", "shop")
    before = Path("shop/pipeline.py").read_text()
    result = run("init", "shop", "--kind", "sql", exit_code=1)
    assert result.stderr == "Error: shop exists already, and has something in it.\n"
    assert Path("shop/pipeline.py").read_text() == before
    run("init", "what a name!", exit_code=2)


# ---------------------------------------------------------------- what is caught before Spark starts


def test_a_pipeline_that_is_not_there_is_not_found() -> None:
    result = run("run", "clicks.py", exit_code=3)
    assert result.stderr.startswith("Error: There is no clicks.py.")
    assert "moldau pipeline init" in result.stderr


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("a.py", "def pipeline(spark)\n", "a.py, line 1: this is no Python"),
        (
            "a.sql",
            "CREATE TEMPORARY VIEW v USING moldau OPTIONS (subscribe)",
            "a.sql, line 1: option subscribe",
        ),
        ("a.py", "x = 1", "it has no function pipeline(spark)"),
    ],
)
def test_a_pipeline_that_cannot_be_read_ends_with_one_line(name: str, text: str, reason: str) -> None:
    Path(name).write_text(text)
    result = run("run", name, exit_code=1)
    assert reason in result.stderr
    assert result.stderr.splitlines()[-1].startswith("Error: ")
    assert "Traceback" not in result.stderr


def test_without_java_there_is_something_to_copy(tmp_path: Path) -> None:
    run("init", "shop")
    result = run("run", "shop", exit_code=1, PATH=str(tmp_path), JAVA_HOME=None)
    assert result.stderr.splitlines()[-1].startswith(
        "Error: Spark needs Java 17 or newer, and there is none. On D"
    )
    result = run("run", "shop", exit_code=1, JAVA_HOME="/nowhere")
    assert "JAVA_HOME is /nowhere" in result.stderr


def test_workers_with_another_python_are_caught(tmp_path: Path) -> None:
    run("init", "shop")
    other = tmp_path / "python2"
    other.write_text("#!/bin/sh\necho 2.7\necho\n")
    other.chmod(0o755)
    result = run("run", "shop", exit_code=1, PYSPARK_PYTHON=str(other))
    assert "Workers would use Python 2.7, because PYSPARK_PYTHON is" in result.stderr
    result = run("run", "shop", "--set", "spark.pyspark.python=/no/such", exit_code=1)
    assert "the setting spark.pyspark.python is /no/such" in result.stderr


def test_a_cluster_that_does_not_answer_is_out_of_reach() -> None:
    run("init", "shop")
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
    result = run("run", "shop", "-b", address, exit_code=5)
    assert f"Tried {address}" in result.stderr


def test_a_topic_that_is_not_there_is_not_found(broker: BrokerProcess, cli: Cli) -> None:
    cli("topic", "create", "click", "--if-not-exists")
    run("init", "shop")
    result = run("run", "shop", "-b", broker.address, exit_code=3)
    assert "There is no topic 'clicks' to read. Did you mean 'click'?" in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["--set", "spark"],
        ["--set", "retention.ms=1"],
        ["--every", "-1"],
        ["--full-refresh"],
        ["--metrics-port", "70000"],
    ],
)
def test_options_that_mean_nothing_are_wrong_usage(arguments: list[str]) -> None:
    run("init", "shop")
    run("run", "shop", *arguments, exit_code=2)


def test_validate_says_of_everything_how_it_is(broker: BrokerProcess, cli: Cli) -> None:
    cli("topic", "create", "clicks", "--if-not-exists")
    run("init", "shop", "--kind", "sql")
    arguments = ("validate", "shop", "--no-spark", "-b", broker.address)
    document = json_of(*arguments)
    assert (document["valid"], document["name"], document["kind"]) == (True, "shop", "declarative")
    found = {(each["check"], each["status"]) for each in document["findings"]}
    assert found >= {
        ("packages", "ok"),
        ("Java", "ok"),
        ("workers", "ok"),
        ("files", "ok"),
        ("cluster", "ok"),
    }
    # The topic that it writes may be created by the cluster; the one that it reads must be there.
    assert [each["detail"] for each in document["findings"] if each["status"] == "warning"] == [
        "There is no topic 'click-counts' to write to; the cluster may create it."
    ]
    text = run(*arguments).stdout
    assert "ok        topics     clicks is there, to be read." in text
    cli("topic", "delete", "clicks", "--yes")
    document = json_of(*arguments, exit_code=3)
    assert document["valid"] is False
    (problem,) = [each for each in document["findings"] if each["status"] == "problem"]
    assert problem["fix"].endswith("'moldau topic create clicks' makes it.")


def test_help_and_looking_load_neither_spark_nor_a_client() -> None:
    heavy = "('pyspark', 'py4j', 'pyarrow', 'pandas', 'rich', 'moldau.client', 'moldau.node', 'asyncio')"
    for arguments in (
        ["pipeline", "--help"],
        ["pipeline", "run", "--help"],
        ["pipeline", "list"],
        ["--help"],
    ):
        script = (
            f"import sys; from moldau.cli import main\nmain({arguments!r}, standalone_mode=False)\n"
            f"print([name for name in {heavy} if name in sys.modules])"
        )
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
        assert done.stdout.splitlines()[-1] == "[]", arguments


# ---------------------------------------------------------------- others look at it, and stop it

# Something that runs a pipeline as far as others can see: it holds the lock, and ends in its own way.
STAND_IN = """
import os, signal, sys, time
from pathlib import Path
from moldau.spark.pipelines.processes import identify
from moldau.spark.pipelines.state import PipelineDirectory, Run, Status, remember
directory = PipelineDirectory(Path(sys.argv[1]))
run = Run(name="shop", kind="function", source="shop.py", status=Status.RUNNING,
          process=identify(os.getpid()), began_ms=1, master="local[*]", bootstrap_servers="localhost:9092",
          log="spark.log")
def stop(number, frame):
    time.sleep(float(sys.argv[2]))
    sys.exit()
signal.signal(signal.SIGTERM, stop)
with directory.lock():
    remember(directory)
    directory.write_run(run)
    directory.write_progress({"queries": [{"name": "counts", "lag": 7, "rows_in_per_s": 2.5,
        "rows_done_per_s": 3.0, "batch_id": 4, "rows_in": 100, "batch_ms": 12}]}, "")
    print("runs", flush=True)
    time.sleep(600)
"""


@contextmanager
def stand_in(directory: Path, *, stops_after_s: float = 0.0) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", STAND_IN, str(directory), str(stops_after_s)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "runs\n"
        try:
            yield process
        finally:
            process.kill()


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "moldau-pipelines" / "shop"


def test_others_see_how_a_pipeline_is(
    directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert json_of("list") == []
    run("status", "shop", exit_code=3)
    with stand_in(directory) as process:
        monkeypatch.chdir("/")
        document = json_of("status", "shop")
        assert (document["status"], document["pid"], document["lag"]) == ("running", process.pid, 7)
        assert document["queries"][0]["rows_in"] == 100
        assert json_of("list") == [document]
        assert json_of("status", str(directory)) == document
        assert "counts" in run("status", "shop").stdout
        assert "shop" in run("list", "--running").stdout
        process.send_signal(signal.SIGKILL)
        process.wait()
    document = json_of("status", "shop")
    assert (document["status"], document["pid"], document["rows_in_per_s"]) == ("died", None, 0.0)
    assert "killed" in document["error"]
    assert json_of("list", "--running") == []
    assert len(json_of("list")) == 1


def test_a_pipeline_is_found_by_its_files(directory: Path, tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text("def pipeline(spark): pass")
    with stand_in(directory):
        assert json_of("status", "shop.py")["status"] == "running"
        # It may be broken by now, and runs all the same.
        (tmp_path / "shop.py").write_text("def pipeline(")
        assert json_of("status", "shop.py")["status"] == "running"
        run("stop", "shop.py")
    assert json_of("status", "shop.py")["status"] == "died"


def test_stop_waits_until_the_pipeline_has_ended(directory: Path) -> None:
    with stand_in(directory, stops_after_s=1.0) as process:
        began = time.monotonic()
        assert run("stop", "shop").stderr == "shop is stopped.\n"
        assert time.monotonic() - began >= 1.0
        assert process.wait() == 0
    assert run("stop", "shop").stderr == "shop does not run.\n"
    run("stop", "another", exit_code=3)


def test_stop_says_when_it_takes_too_long_and_can_be_hard(directory: Path) -> None:
    with stand_in(directory, stops_after_s=600.0) as process:
        result = run("stop", "shop", "--timeout", "0.5", exit_code=5)
        assert f"shop still runs after 0.5 s, in process {process.pid}" in result.stderr
        run("stop", "shop", "--kill")
        assert process.wait() == -signal.SIGKILL


def test_a_process_that_only_has_the_number_of_the_old_one_is_not_stopped(directory: Path) -> None:
    with stand_in(directory) as process:
        document = json.loads((directory / "run.json").read_text())
        document["process"]["started"] = "long ago"
        (directory / "run.json").write_text(json.dumps(document))
        assert "cannot be seen from here" in run("stop", "shop", exit_code=1).stderr
        assert process.poll() is None


# ---------------------------------------------------------------- with Spark


def needs_java() -> None:
    java = check_java()
    if isinstance(java, Problem):
        pytest.skip(java.what)


class Running:
    """A pipeline in a process of its own, whose events are read as they come."""

    def __init__(self, address: str, folder: Path, *arguments: str) -> None:
        self._out, self._err = folder / "events", folder / "errors"
        with self._out.open("wb") as out, self._err.open("wb") as errors:
            self.process = subprocess.Popen(
                [*MOLDAU, "pipeline", "run", *arguments, "-o", "json", "--set", "spark.ui.enabled=false"],
                env={**os.environ, "MOLDAU_BOOTSTRAP_SERVER": address},
                stdout=out,
                stderr=errors,
                cwd=folder,
            )

    def events(self, kind: str) -> list[dict[str, Any]]:
        whole = self._out.read_text().rpartition("\n")[0]
        found = [json.loads(line) for line in whole.splitlines()]
        return [event for event in found if event["event"] == kind]

    def errors(self) -> str:
        return self._err.read_text()

    def said(self) -> str:
        return f"{self._out.read_text()}\n{self.errors()}"

    def until(self, condition: Callable[[], object]) -> None:
        until(lambda: condition() or self.process.poll() is not None, self.said)
        assert condition(), self.said()

    def ended(self) -> int:
        return self.process.wait(PATIENCE_S)


def words_in(table: Path) -> list[str]:
    """What the Parquet table holds, as Spark has committed it."""
    import pyarrow.parquet

    log = table / "_spark_metadata"
    paths = [
        json.loads(line)["path"].removeprefix("file://")
        for batch in sorted(log.glob("[0-9]*"))
        for line in batch.read_text().splitlines()[1:]
    ]
    return sorted(word for path in paths for word in pyarrow.parquet.read_table(path)["word"].to_pylist())


def newest(log: Path) -> int:
    return max((int(path.name) for path in log.glob("[0-9]*") if path.name.isdigit()), default=-1)


@pytest.mark.slow
@pytest.mark.xdist_group("spark")
@pytest.mark.timeout(1200)
def test_a_function_runs_is_stopped_is_killed_and_goes_on(
    broker: BrokerProcess, cli: Cli, log: str, tmp_path: Path
) -> None:
    needs_java()
    table = tmp_path / "table"
    (tmp_path / "shop.py").write_text(FUNCTION.format(topic=log, table=table))
    checkpoint = tmp_path / "moldau-pipelines" / "shop" / "checkpoints" / "words"
    cli("produce", log, input="one\ntwo\n")

    first = Running(broker.address, tmp_path, "shop.py", "--metrics-port", "0")
    first.until(lambda: first.events("batch"))
    document = json_of("status", "shop")
    assert document["status"] == "running"
    assert document["pid"] == first.process.pid
    with urllib.request.urlopen(document["metrics_url"], timeout=30) as page:
        assert 'moldau_pipeline_rows_in_total{pipeline="shop",query="words"} 2' in page.read().decode()
    assert "set up" in first.errors()
    refused = run("run", "shop.py", "-b", broker.address, exit_code=1)
    assert f"is run by the process {first.process.pid} already" in refused.stderr
    # While it runs, its position is that of a group that any tool can see.
    groups = [row["group"] for row in json.loads(cli("group", "list", "-o", "json").stdout)]
    assert [group for group in groups if group.startswith("shop-")], groups
    # As from another shell.
    cli("produce", log, input="three\n")
    assert run("stop", "shop", "--timeout", str(PATIENCE_S)).stderr == "shop is stopped.\n"
    assert first.ended() == 0, first.said()
    assert json_of("status", "shop")["status"] == "stopped"
    assert newest(checkpoint / "offsets") == newest(checkpoint / "commits")

    cli("produce", log, input="four\n")
    second = Running(broker.address, tmp_path, "shop.py")
    second.until(lambda: second.events("batch"))
    cli("produce", log, input="five\nsix\n")
    java = json.loads((tmp_path / "moldau-pipelines" / "shop" / "run.json").read_text())["java"]["pid"]
    second.process.send_signal(signal.SIGKILL)
    second.ended()
    assert json_of("status", "shop")["status"] == "died"

    third = Running(broker.address, tmp_path, "shop.py", "--once")
    assert third.ended() == 0, third.said()
    assert json_of("status", "shop")["status"] == "finished"
    assert not Path(f"/proc/{java}").exists()
    assert words_in(table) == sorted(["one", "two", "three", "four", "five", "six"])


@pytest.mark.slow
@pytest.mark.xdist_group("spark")
@pytest.mark.timeout(1200)
def test_a_pipeline_is_stopped_while_its_broker_is_away(tmp_path: Path) -> None:
    needs_java()
    with moldau.cluster() as cluster:
        text = FUNCTION.format(topic=cluster.topic(), table=tmp_path / "table")
        (tmp_path / "shop.py").write_text(text)
        # Without an end to the asking, it would be cut off.
        patience = ("--stop-timeout", str(PATIENCE_S / 4), "-X", "default.api.timeout.ms=600000")
        running = Running(cluster.bootstrap_servers, tmp_path, "shop.py", *patience)
        running.until(lambda: running.events("running") and "set up" in running.errors())
        commits = tmp_path / "moldau-pipelines" / "shop" / "checkpoints" / "words" / "commits"
        running.until(lambda: newest(commits) == 0)
        cluster.kill(1)
        # It asks for what is new again and again, without a pause: most probably it is asking now.
        running.process.send_signal(signal.SIGTERM)
        assert running.ended() == 0, running.said()
        unanswered = "words got no answer from what it reads, and was ended with nothing under way."
        assert {note["text"] for note in running.events("note")} <= {unanswered}
        assert "Cut off" not in running.errors()
        assert newest(commits.parent / "offsets") == newest(commits)


ROUTED = """\
from pyspark.sql import functions as sf


def pipeline(spark):
    records = spark.readStream.format("moldau").option("subscribe", "{topic}")
    records = records.option("startingOffsets", "earliest").load()
    writer = records.select("value", sf.lit("missing-routed").alias("topic")).writeStream.format("moldau")
    writer.option("kafka.allow.auto.create.topics", "false").queryName("routed").start()
    writer = records.select("value").writeStream.format("moldau").option("topic", "missing-{topic}")
    writer.queryName("copied").start()
"""


@pytest.mark.slow
@pytest.mark.xdist_group("spark")
@pytest.mark.timeout(1200)
def test_topics_that_are_missing_are_told_of_at_once_and_waited_for_not_long(
    broker: BrokerProcess, cli: Cli, log: str, tmp_path: Path
) -> None:
    needs_java()
    (tmp_path / "shop.py").write_text(ROUTED.format(topic=log))
    cli("produce", log, input="one\n")
    # Tasks are tried four times; a broker that is away would be waited for by each.
    running = Running(broker.address, tmp_path, "shop.py", "-X", f"delivery.timeout.ms={600_000}")
    assert running.ended() == 1, running.said()
    (note,) = running.events("note")
    assert note["text"].startswith(f"There is no topic 'missing-{log}' to write to; the cluster may creat")
    assert "query 'routed': Row 1 of task 0" in running.errors()
    assert "topic 'missing-routed' does not exist. Check the name, or create the topic." in running.errors()


@pytest.mark.slow
@pytest.mark.xdist_group("spark")
@pytest.mark.timeout(1200)
def test_a_graph_in_python_brings_its_tables_up_to_date(
    broker: BrokerProcess, cli: Cli, tmp_path: Path
) -> None:
    needs_java()
    cli("topic", "create", "clicks", "--if-not-exists", "-c", "retention.ms=-1")
    cli("topic", "create", "click-counts", "--if-not-exists", "-c", "cleanup.policy=compact")
    produce_clicks(cli)
    run("init", "graph", "--kind", "declarative")
    running = Running(broker.address, tmp_path, "graph", "--once")
    assert running.ended() == 0, running.said()
    rows = {event["name"]: event["rows_in"] for event in running.events("batch")}
    assert rows["clicks"] == 3
    check_tables(tmp_path / "graph" / "moldau-pipelines" / "graph" / "tables", {"/home": 2, "/about": 1})
    assert {"/home", "12:00"} <= counted_pages(cli)


@pytest.mark.slow
@pytest.mark.xdist_group("spark")
@pytest.mark.timeout(1200)
def test_a_graph_in_sql_goes_on_where_it_was_stopped(broker: BrokerProcess, cli: Cli, tmp_path: Path) -> None:
    needs_java()
    for topic in ("clicks", "click-counts"):
        if topic in cli("topic", "list").stdout.split():
            cli("topic", "delete", topic, "--yes")
        cli("topic", "create", topic, "-c", "retention.ms=-1")
    run("init", "graph", "--kind", "sql")
    produce_clicks(cli)
    # One update after the other: the stop comes anywhere in one of them.
    first = Running(broker.address, tmp_path, "graph", "--every", "0.1")
    first.until(lambda: first.events("batch"))
    assert run("stop", "graph", "--timeout", str(PATIENCE_S)).stderr == "graph is stopped.\n"
    assert first.ended() == 0, first.said()
    state = tmp_path / "graph" / "moldau-pipelines" / "graph"
    logs = {path.parent.parent.name: path for path in state.rglob("offsets")}
    assert "clicks" in logs
    assert {name: newest(offsets) - newest(offsets.parent / "commits") for name, offsets in logs.items()} == (
        dict.fromkeys(logs, 0)
    )

    # A process of its own: tables and checkpoints are all that it has of the first.
    produce_clicks(cli)
    second = Running(broker.address, tmp_path, "graph", "--once")
    assert second.ended() == 0, second.said()
    check_tables(state / "tables", {"/home": 4, "/about": 2})
    assert {"/home", "12:00"} <= counted_pages(cli)


@pytest.mark.slow
@pytest.mark.xdist_group("spark")
@pytest.mark.timeout(1200)
def test_validate_finds_what_only_spark_can_see(
    broker: BrokerProcess, cli: Cli, log: str, tmp_path: Path
) -> None:
    needs_java()
    text = FUNCTION.format(topic=log, table=tmp_path / "table").replace('sf.col("value")', 'sf.col("vlaue")')
    (tmp_path / "shop.py").write_text(text)
    done = subprocess.run(
        [*MOLDAU, "pipeline", "validate", "shop.py", "-o", "json", "-b", broker.address],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    document = json.loads(done.stdout)
    (problem,) = [each for each in document["findings"] if each["status"] == "problem"]
    assert problem["check"] == "pipeline"
    assert problem["detail"].startswith("shop.py, line 7: [UNRESOLVED_COLUMN.WITH_SUGGESTION]")
    assert "`value`" in problem["detail"]
    assert not (tmp_path / "moldau-pipelines").exists()
    assert json_of("list") == []


IN_SQL = """\
def pipeline(spark):
    spark.sql("CREATE TEMPORARY VIEW lines USING moldau OPTIONS (subscribe '{topic}')")
    words = "SELECT CAST(value AS STRING) AS word FROM lines"
    spark.sql(f"INSERT OVERWRITE DIRECTORY '{table}' USING parquet {{words}}")
"""


@pytest.mark.slow
@pytest.mark.xdist_group("spark")
@pytest.mark.timeout(1200)
def test_sql_in_a_function_knows_the_cluster_and_writes_nothing_when_validated(
    broker: BrokerProcess, cli: Cli, log: str, tmp_path: Path
) -> None:
    import pyarrow.parquet

    needs_java()
    table = tmp_path / "table"
    (tmp_path / "shop.py").write_text(IN_SQL.format(topic=log, table=table))
    cli("produce", log, input="one\ntwo\n")
    command = [*MOLDAU, "pipeline", "validate", "shop.py", "-o", "json", "-b", broker.address]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    told = [each["detail"] for each in json.loads(done.stdout)["findings"] if each["check"] == "SQL"]
    assert [detail.partition(" '")[0] for detail in told] == [
        "Not run, as it may write: INSERT OVERWRITE DIRECTORY"
    ]
    assert not table.exists()
    running = Running(broker.address, tmp_path, "shop.py")
    assert running.ended() == 0, running.said()
    assert sorted(pyarrow.parquet.read_table(table)["word"].to_pylist()) == ["one", "two"]


GRAPH_THAT_WRITES = """\
from pyspark import pipelines as dp

spark.range(3).write.parquet("{table}")


@dp.materialized_view
def numbers():
    return spark.range(3)
"""


@pytest.mark.slow
@pytest.mark.xdist_group("spark")
@pytest.mark.timeout(1200)
def test_a_graph_that_is_validated_writes_nothing_on_the_way(tmp_path: Path) -> None:
    needs_java()
    (tmp_path / "graph.py").write_text(GRAPH_THAT_WRITES.format(table=tmp_path / "table"))
    command = [*MOLDAU, "pipeline", "validate", "graph.py", "-o", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "table").exists()


def produce_clicks(cli: Cli) -> None:
    for page, minute in (("/home", 0), ("/about", 1), ("/home", 9)):
        cli("produce", "clicks", json.dumps({"page": page, "at": f"2030-01-01T12:{minute:02}:10Z"}))


def check_tables(tables: Path, pages: dict[str, int]) -> None:
    """The view holds what there is, computed anew by the last update."""
    import pyarrow.parquet

    found: dict[str, int] = {}
    for path in (tables / "pages").glob("*.parquet"):
        for row in pyarrow.parquet.read_table(path).to_pylist():
            found[row["page"]] = found.get(row["page"], 0) + row["count"]
    assert found == pages


def counted_pages(cli: Cli) -> set[str]:
    """The pages and minutes that were counted into the topic."""
    keys = [
        json.loads(line) for line in cli("consume", "click-counts", "--format", "%k\\n").stdout.splitlines()
    ]
    return {key["page"] for key in keys} | {key["minute"][11:16] for key in keys}


# ---------------------------------------------------------------- what is shown


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def a_progress() -> Any:
    from moldau.spark.pipelines.progress import Progress

    progress = Progress()
    report = {
        "name": "counts",
        "batchId": 41,
        "numInputRows": 80_214,
        "inputRowsPerSecond": 2012.3,
        "processedRowsPerSecond": 9120.0,
        "durationMs": {"addBatch": 500, "triggerExecution": 640},
        "stateOperators": [{"numRowsTotal": 112}],
        "sources": [{"endOffset": {"clicks": {"0": 5}}, "latestOffset": {"clicks": {"0": 1876}}}],
    }
    progress.batch(report, now_ms=1)
    progress.started("waits")
    return progress


def a_run() -> Any:
    from moldau.spark.pipelines.processes import ProcessId
    from moldau.spark.pipelines.state import Run, Status

    return Run(
        name="shop",
        kind="function",
        source="shop.py",
        status=Status.RUNNING,
        process=ProcessId(1, "x"),
        began_ms=1,
        master="local[*]",
        bootstrap_servers="localhost:9092",
        log="spark.log",
        ui_url="http://127.0.0.1:4040",
    )


def test_a_terminal_shows_what_each_query_does(monkeypatch: pytest.MonkeyPatch) -> None:
    from moldau.cli._pipeline_display import observer

    screen = Screen()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    with observer(as_json=False) as watching:
        watching.phase("Starting Spark")
        watching.running(a_run())
        watching.refresh(a_progress())
        watching.note("something to know")
    shown = [
        " ".join(line.split())
        for line in re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen.getvalue()).splitlines()
    ]
    assert "QUERY BATCH IN/S DONE/S ROWS LAG BATCH TIME STATE ROWS" in shown
    assert "counts 41 2,012 9,120 80,214 1,871 0.6 s 112" in shown
    assert "waits - 0 0 0 - - -" in shown
    assert "something to know" in shown
    assert any("http://127.0.0.1:4040" in line for line in shown)


def test_elsewhere_each_event_is_a_line_of_json(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from moldau.cli._pipeline_display import observer

    progress = a_progress()
    for as_json in (False, True):
        with observer(as_json=as_json) as watching:
            watching.running(a_run())
            watching.refresh(progress)
            watching.batch(progress.queries["counts"])
            watching.said("a table, printed by Spark")
        out, err = capsys.readouterr()
        events, said = (out, err) if as_json else (err, out)
        running, batch = map(json.loads, events.splitlines())
        assert (running["event"], running["name"], running["ui_url"]) == (
            "running",
            "shop",
            "http://127.0.0.1:4040",
        )
        assert (batch["event"], batch["name"], batch["rows_in"], batch["lag"]) == (
            "batch",
            "counts",
            80_214,
            1871,
        )
        assert said == "a table, printed by Spark\n"
