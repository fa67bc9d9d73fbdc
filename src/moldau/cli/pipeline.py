"""`moldau pipeline`: data pipelines on Spark, from a first file to a run that can be stopped and goes on."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import click

from moldau.cli import INTERRUPTED, SuggestingGroup
from moldau.cli._connect import Target, client_settings, cluster_options, parse_pairs
from moldau.cli._errors import Failure, NotFound, OutOfReach
from moldau.cli._output import Cell, note, output_option, print_facts, print_json, print_table, styled

if TYPE_CHECKING:
    from moldau.spark.pipelines.checks import Cause, ClusterAddress, Finding
    from moldau.spark.pipelines.projects import Project
    from moldau.spark.pipelines.runner import Outcome, Request
    from moldau.spark.pipelines.state import PipelineDirectory, Run, Status

Decorated = TypeVar("Decorated", bound=Callable[..., object])

KINDS: Final = ("function", "declarative", "sql")
# Four times each task, for a worker that dies is no reason to end; `local[*]` alone gives up at once.
MASTER: Final = "local[*,4]"

_MARKS: Final = {"ok": ("ok", "green"), "warning": ("warning", "yellow"), "problem": ("problem", "red")}
_STATUS_COLOURS: Final = {"running": "green", "failed": "red", "died": "red", "stopping": "yellow"}
_POLL_S: Final = 0.1
_KILL_AFTER_S: Final = 10.0


@click.group(cls=SuggestingGroup)
def command() -> None:
    """Run data pipelines on Spark: ingest, transform, join, aggregate, export.

    They need `pip install 'moldau[spark]'`, and Java 17 or newer. A pipeline is a Python file with a function
    `pipeline(spark)`, or Python and SQL files of Spark's declarative pipelines. It reads and writes topics
    with format("moldau").

    \b
    Examples:
      moldau pipeline init clicks
      moldau pipeline validate clicks
      moldau pipeline run clicks
      moldau pipeline run etl.py:nightly --once --set spark.driver.memory=4g
      moldau pipeline status clicks
      moldau pipeline stop clicks
    """


def pipeline_argument(command: Decorated) -> Decorated:
    """A directory, a file, or a function in a file."""
    return click.argument("where", metavar="[PIPELINE]", default=".")(command)


def run_options(command: Decorated) -> Decorated:
    """What `run` and `validate` have in common."""
    for option in reversed(_RUN_OPTIONS):
        command = option(command)
    return command


def _settings(ctx: click.Context, parameter: click.Parameter, texts: tuple[str, ...]) -> dict[str, str]:
    settings = parse_pairs(texts)
    for name in settings:
        if not name.startswith("spark."):
            raise click.BadParameter(f"'{name}' is no setting of Spark's: they begin with 'spark.'.")
    return settings


_RUN_OPTIONS: Final = (
    click.option("--name", metavar="NAME", help="What to call it, instead of its file or directory."),
    click.option(
        "--master",
        metavar="URL",
        default=MASTER,
        show_default=True,
        help="Where Spark runs: this machine, spark://HOST:PORT, yarn, k8s://...",
    ),
    click.option(
        "--set",
        "conf",
        metavar="KEY=VALUE",
        multiple=True,
        callback=_settings,
        help="A setting of Spark's; may be given several times.",
    ),
)


# ---------------------------------------------------------------- init


@command.command("init")
@click.argument("name")
@click.option(
    "--kind",
    type=click.Choice(KINDS),
    default=KINDS[0],
    show_default=True,
    help="A function, a graph in Python, or a graph in SQL.",
)
def init(name: str, kind: str) -> None:
    """Write a small pipeline that works, into a new directory.

    \b
    Examples:
      moldau pipeline init clicks
      moldau pipeline init sales --kind sql
    """
    from moldau.spark.pipelines.projects import InvalidProject, check_name
    from moldau.spark.pipelines.templates import project_files

    folder = Path(name)
    try:
        check_name(folder.name)
    except InvalidProject as error:
        raise click.BadParameter(str(error).partition(" Give")[0], param_hint="NAME") from None
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise Failure(f"{folder} exists already, and has something in it.")
    for path, text in project_files(kind, folder.name).items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
        click.echo(folder / path)
    note(f"moldau pipeline run {name} runs it; {folder / 'README.md'} says what it needs.")


# ---------------------------------------------------------------- run


@command.command("run")
@pipeline_argument
@run_options
@click.option("--once", "is_once", is_flag=True, help="Process what is there now, and end.")
@click.option(
    "--every",
    "interval_s",
    metavar="SECONDS",
    type=click.FloatRange(min=0),
    help="How often micro-batches begin, or updates of a graph.  [default: its own; 10 for a graph]",
)
@click.option(
    "--metrics-port",
    metavar="PORT",
    type=click.IntRange(0, 0xFFFF),
    help="Serve metrics to Prometheus on this port of this machine, 0 for any free one.",
)
@click.option(
    "--stop-timeout",
    "stop_timeout_s",
    metavar="SECONDS",
    type=click.FloatRange(min=0),
    default=60.0,
    show_default=True,
    help="How long micro-batches may take to finish when it is stopped.",
)
@click.option(
    "--full-refresh",
    "refresh_all",
    is_flag=True,
    help="Of a graph: compute all tables anew, and read all streams from the beginning.",
)
@click.option("-v", "--verbose", "is_verbose", is_flag=True, help="Show all that Spark logs, on stderr.")
@output_option
@cluster_options
def run(
    target: Target,
    where: str,
    name: str | None,
    master: str,
    conf: dict[str, str],
    is_once: bool,
    interval_s: float | None,
    metrics_port: int | None,
    stop_timeout_s: float,
    refresh_all: bool,
    is_verbose: bool,
    output: str,
) -> None:
    """Run a pipeline until it is stopped, or has done what there is to do.

    PIPELINE is a directory, a .py, .sql or .yml file, or file.py:function; the current directory if not
    given. Checkpoints, tables and logs are kept in moldau-pipelines/NAME beside it, and the next run goes on
    from there, however this one ends. SIGTERM and Ctrl-C let queries finish their micro-batches first.

    \b
    Examples:
      moldau pipeline run clicks
      moldau pipeline run clicks.py --once
      moldau pipeline run etl.py:nightly --master spark://host:7077 --set spark.executor.memory=4g
      moldau pipeline run clicks -o json --metrics-port 9400
    """
    from moldau.cli._pipeline_display import observer
    from moldau.spark.pipelines.runner import Request, Runner
    from moldau.spark.pipelines.state import directory_of

    project = project_at(where, name)
    if refresh_all and project.kind.value != "declarative":
        folder = directory_of(project.root, project.name).path
        raise click.UsageError(f"--full-refresh is for graphs. To begin anew, remove {folder}.")
    request = Request(
        project=project,
        directory=directory_of(project.root, project.name),
        cluster=cluster_of(target),
        client_settings=target.settings,
        master=master,
        conf=conf,
        is_once=is_once,
        interval_s=interval_s,
        metrics_port=metrics_port,
        is_verbose=is_verbose,
        stop_timeout_s=stop_timeout_s,
        refresh_all=refresh_all,
    )
    is_json = output == "json"
    with (
        complaints(),
        observer(as_json=is_json) as watching,
        # Results are for scripts then, and what the pipeline prints is not among them.
        redirect_stdout(sys.stderr if is_json else sys.stdout),
    ):
        outcome = Runner(request, watching).run()
    conclude(request, outcome)


def conclude(request: Request, outcome: Outcome) -> None:
    """Say how a run ended, to people and with the exit code."""
    name = request.project.name
    if outcome.check is not None:
        raise failure_of(outcome.check.finding.cause, str(outcome.check))
    if outcome.failure is not None:
        log = request.directory.log_file
        raise Failure(f"{_sentence(str(outcome.failure))} All of it is in {log}.")
    if outcome.status.value == "finished":
        note(f"{name} has done what there was to do.")
        return
    if outcome.is_incomplete:
        note(f"{name} was stopped before it was done.")
        raise click.exceptions.Exit(INTERRUPTED)
    if outcome.cut_off:
        cut_off = ", ".join(outcome.cut_off)
        note(f"Cut off in the middle of a micro-batch: {cut_off}. It is done again at the next start.")
    note(f"{name} is stopped; the next run goes on from there.")


# ---------------------------------------------------------------- validate


@command.command("validate")
@pipeline_argument
@run_options
@click.option(
    "--no-spark", "is_static", is_flag=True, help="Only look at what can be seen without starting Spark."
)
@output_option
@cluster_options
def validate(
    target: Target,
    where: str,
    name: str | None,
    master: str,
    conf: dict[str, str],
    is_static: bool,
    output: str,
) -> None:
    """Check a pipeline without processing anything.

    Looks at its files, at what Spark needs here, at the cluster and the topics; then Spark is started, and
    everything is set up that would run: options, columns, the graph. Nothing is written. Exit code 1 says
    that there is a problem.

    \b
    Examples:
      moldau pipeline validate clicks
      moldau pipeline validate clicks -o json | jq -r '.findings[] | select(.status == "problem") | .detail'
    """
    from moldau.spark.pipelines.checks import Level, check_installation, check_topics

    project = project_at(where, name)
    findings: list[Finding] = []
    is_json = output == "json"

    def take(found: Iterator[Finding]) -> None:
        for finding in found:
            if finding in findings:
                continue
            findings.append(finding)
            if not is_json:
                show_finding(finding)

    with complaints():
        take(check_installation(project, conf, master=master))
        take(check_topics(project, cluster_of(target)))
        is_well = all(finding.level is not Level.PROBLEM for finding in findings)
        if is_well and not is_static:
            take(dry_run(project, target, master, conf))
    problems = [finding for finding in findings if finding.level is Level.PROBLEM]
    if is_json:
        print_json(
            {
                "valid": not problems,
                "name": project.name,
                "kind": project.kind.value,
                "findings": [
                    {"check": each.check, "status": each.level.value, "detail": each.detail, "fix": each.fix}
                    for each in findings
                ],
            }
        )
    if problems:
        raise click.exceptions.Exit(failure_of(problems[0].cause, "").exit_code)
    if not is_json:
        note(
            f"{project.name} is well."
            if not is_static
            else f"{project.name} looks well, Spark was not asked."
        )


def dry_run(project: Project, target: Target, master: str, conf: dict[str, str]) -> Iterator[Finding]:
    """Set everything up in Spark, and start nothing."""
    import tempfile

    from moldau.cli._pipeline_display import observer
    from moldau.spark.pipelines.checks import Finding, Level
    from moldau.spark.pipelines.runner import Request, Runner
    from moldau.spark.pipelines.state import PipelineDirectory

    with tempfile.TemporaryDirectory(prefix="moldau-validate-") as folder:
        directory = PipelineDirectory(Path(folder) / project.name)
        request = Request(
            project=project,
            directory=directory,
            cluster=cluster_of(target),
            client_settings=target.settings,
            master=master,
            # Tables are looked at, not made, so nothing has to remember them.
            conf={"spark.ui.enabled": "false", "spark.sql.catalogImplementation": "in-memory"} | conf,
            is_dry=True,
        )
        with observer(as_json=False) as watching, redirect_stdout(sys.stderr):
            runner = Runner(request, watching)
            outcome = runner.run()
    yield from runner.findings
    if outcome.check is not None:
        yield outcome.check.finding
    elif outcome.failure is not None:
        yield Finding("pipeline", Level.PROBLEM, _sentence(str(outcome.failure)))
    elif outcome.queries:
        yield Finding("pipeline", Level.OK, f"It would start {', '.join(outcome.queries)}.")
    elif project.kind.value == "declarative":
        yield Finding("pipeline", Level.OK, "The graph is complete.")
    else:
        yield Finding("pipeline", Level.OK, "It would start no stream.")


def show_finding(finding: Finding) -> None:
    """One thing that was looked at, for people."""
    mark, colour = _MARKS[finding.level.value]
    fix = f" {finding.fix}" if finding.fix and finding.level.value != "ok" else ""
    click.echo(f"{styled(mark.ljust(8), colour=colour)}  {finding.check.ljust(9)}  {finding.detail}{fix}")


# ---------------------------------------------------------------- status, list


@command.command("status")
@click.argument("where", metavar="[NAME|DIR]", default=".")
@output_option
def status(where: str, output: str) -> None:
    """Show how a pipeline is, running or not.

    \b
    Examples:
      moldau pipeline status clicks
      moldau pipeline status -o json | jq '.queries[].lag'
    """
    directory = directory_at(where)
    document = described(directory)
    if output == "json":
        print_json(document)  # type: ignore[arg-type]
        return
    facts = {name: _cell(document[name]) for name in ("name", "status", "kind", "source", "directory")}
    facts |= {
        name: _cell(document[name])
        for name in ("pid", "master", "bootstrap_servers", "ui_url", "metrics_url", "log", "error")
        if document.get(name) is not None
    }
    facts["began"] = _time(document.get("began_ms"))
    if document.get("ended_ms") is not None:
        facts["ended"] = _time(document.get("ended_ms"))
    print_facts(facts)
    queries = document["queries"]
    assert isinstance(queries, list)
    if queries:
        click.echo()
        columns = {
            "QUERY": "name",
            "BATCH": "batch_id",
            "IN/S": "rows_in_per_s",
            "DONE/S": "rows_done_per_s",
            "ROWS": "rows_in",
            "LAG": "lag",
            "BATCH MS": "batch_ms",
            "STATE ROWS": "state_rows",
            "WATERMARK": "watermark",
        }
        print_table(
            list(columns), [[_cell(query.get(name)) for name in columns.values()] for query in queries]
        )


@command.command("list")
@click.option("--running", "only_running", is_flag=True, help="Only those that run now.")
@output_option
def list_pipelines(only_running: bool, output: str) -> None:
    """Show the pipelines that run here, and those that have run.

    \b
    Examples:
      moldau pipeline list
      moldau pipeline list --running -o json | jq -r '.[].name'
    """
    from moldau.spark.pipelines.state import known

    rows = [described(directory) for directory in known() if not only_running or directory.is_locked()]
    if output == "json":
        print_json(rows)  # type: ignore[arg-type]
        return
    print_table(
        ["NAME", "STATUS", "KIND", "LAG", "IN/S", "BEGAN", "DIRECTORY"],
        [
            (
                _cell(row["name"]),
                _cell(row["status"]),
                _cell(row["kind"]),
                _cell(row["lag"]),
                _cell(row["rows_in_per_s"]),
                _time(row["began_ms"]),
                _cell(row["directory"]),
            )
            for row in rows
        ],
    )
    if not rows:
        note("No pipeline has been run here; moldau pipeline init NAME writes one.")


def described(directory: PipelineDirectory) -> dict[str, object]:
    """All that is known of a pipeline, with names that stay."""
    run, status = directory.run(), directory.status()
    queries = directory.progress().get("queries", [])
    rows = [query for query in queries if isinstance(query, dict)] if isinstance(queries, list) else []
    lags = [query["lag"] for query in rows if query.get("lag") is not None]
    is_alive = status.is_alive
    if not is_alive:
        for query in rows:
            query["rows_in_per_s"] = query["rows_done_per_s"] = 0.0
    return {
        "name": directory.path.name,
        "status": status.value,
        "kind": None if run is None else run.kind,
        "source": None if run is None else run.source,
        "directory": str(directory.path),
        "pid": run.process.pid if run is not None and is_alive else None,
        "master": None if run is None else run.master,
        "bootstrap_servers": None if run is None else run.bootstrap_servers,
        "ui_url": run.ui_url if run is not None and is_alive else None,
        "metrics_url": run.metrics_url if run is not None and is_alive else None,
        "log": None if run is None else run.log,
        "error": _error(run, status),
        "began_ms": None if run is None else run.began_ms,
        "ended_ms": None if run is None or is_alive else run.ended_ms,
        "lag": sum(lags) if lags else None,
        "rows_in_per_s": sum(float(query["rows_in_per_s"]) for query in rows),
        "queries": rows,
    }


def _error(run: Run | None, status: Status) -> str | None:
    if status.value == "died":
        return "Its process is gone without a word: it was killed, or the machine went down."
    return None if run is None else run.error


# ---------------------------------------------------------------- stop


@command.command("stop")
@click.argument("where", metavar="[NAME|DIR]", default=".")
@click.option(
    "--timeout",
    "timeout_s",
    metavar="SECONDS",
    type=click.FloatRange(min=0),
    default=120.0,
    show_default=True,
    help="How long to wait for it.",
)
@click.option("--kill", "is_kill", is_flag=True, help="Do not wait for micro-batches: they are done again.")
def stop(where: str, timeout_s: float, is_kill: bool) -> None:
    """Stop a pipeline: its queries finish their micro-batches, and it ends.

    One that does not run is left alone, which is no failure.

    \b
    Examples:
      moldau pipeline stop clicks
      moldau pipeline stop clicks --timeout 300
    """
    import os
    import signal

    directory = directory_at(where)
    name = directory.path.name
    run = directory.run()
    if not directory.is_locked() or run is None:
        note(f"{name} does not run.")
        return
    if not run.process.is_alive():
        raise Failure(f"{name} is run by a process that cannot be seen from here, perhaps in a container.")
    # What was read may be of the run before, until the new one has written its own.
    try:
        os.kill(run.process.pid, signal.SIGKILL if is_kill else signal.SIGTERM)
        if is_kill and run.java is not None and run.java.is_alive():
            os.kill(run.java.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    except PermissionError:
        raise Failure(f"{name} is run by another user, in process {run.process.pid}.") from None
    deadline = time.monotonic() + timeout_s
    while directory.is_locked():
        if time.monotonic() > deadline:
            raise OutOfReach(
                f"{name} still runs after {timeout_s:g} s, in process {run.process.pid}: a micro-batch takes"
                " that long. Wait longer with --timeout, or end it with --kill."
            )
        time.sleep(_POLL_S)
    note(
        f"{name} is stopped."
        if not is_kill
        else f"{name} is killed; the next run goes on from its checkpoints."
    )


# ---------------------------------------------------------------- what they share


def project_at(where: str, name: str | None) -> Project:
    """The pipeline that a path names."""
    from moldau.spark.pipelines.projects import InvalidProject, NoSuchProject, find_project

    try:
        return find_project(where, name=name)
    except NoSuchProject as error:
        raise NotFound(_sentence(str(error))) from None
    except InvalidProject as error:
        raise Failure(_sentence(str(error))) from None


def directory_at(where: str) -> PipelineDirectory:
    """What a pipeline that has run keeps, found by its name, its directory, or the files it is made of."""
    from moldau.spark.pipelines.projects import InvalidProject, find_project
    from moldau.spark.pipelines.state import NoSuchPipeline, find

    roots = {}
    path = Path(where)
    if path.exists():
        # A file may be broken by now, and its pipeline still runs.
        whole = path.resolve()
        roots[whole.stem if whole.is_file() else whole.name] = whole.parent if whole.is_file() else whole
        try:
            project = find_project(where)
        except InvalidProject:
            pass
        else:
            roots = {project.name: project.root}
    try:
        return find(where, roots)
    except NoSuchPipeline as error:
        raise NotFound(_sentence(str(error))) from None


@contextmanager
def complaints() -> Iterator[None]:
    """What keeps a pipeline from running becomes one line and an exit code."""
    from moldau.spark.pipelines.checks import CheckFailed
    from moldau.spark.pipelines.projects import InvalidProject
    from moldau.spark.pipelines.sql import InvalidSql
    from moldau.spark.pipelines.state import AlreadyRuns

    try:
        yield
    except CheckFailed as error:
        raise failure_of(error.finding.cause, str(error)) from None
    except (AlreadyRuns, InvalidProject, InvalidSql) as error:
        raise Failure(_sentence(str(error))) from None


def failure_of(cause: Cause, reason: str) -> Failure:
    """How a command fails for what a check has found."""
    kinds = {"not found": NotFound, "out of reach": OutOfReach}
    return kinds.get(cause.value, Failure)(reason)


def cluster_of(target: Target) -> ClusterAddress:
    """Where topics are that the pipeline names no cluster for."""
    from moldau.spark.pipelines.checks import ClusterAddress

    return ClusterAddress(target.bootstrap_servers, client_settings(target))


def _sentence(text: str) -> str:
    return text if text.endswith((".", "!", "?", "'")) else f"{text}."


def _cell(value: object) -> Cell:
    return value if isinstance(value, str | int | float | bool) or value is None else str(value)


def _time(ms: object) -> str | None:
    if not isinstance(ms, int):
        return None
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(ms / 1000))
