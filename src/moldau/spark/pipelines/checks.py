"""What of a pipeline can be looked at before Spark is started, and what to do about what is not well."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from enum import Enum
from typing import TYPE_CHECKING

from moldau.spark.pipelines.hooks import FORMAT, Access
from moldau.spark.pipelines.mentions import mentions
from moldau.spark.pipelines.preflight import (
    Problem,
    WorkerPython,
    check_java,
    check_packages,
    check_workers,
    is_local_master,
)
from moldau.spark.pipelines.projects import InvalidProject, Kind, Project
from moldau.spark.pipelines.sql import InvalidSql

if TYPE_CHECKING:
    from moldau.client.blocking import BlockingClient
    from moldau.client.settings import SettingValue


class Level(Enum):
    """How bad it is."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


class Cause(Enum):
    """What kind of problem, for the exit code."""

    ITSELF = "itself"
    NOT_FOUND = "not found"
    OUT_OF_REACH = "out of reach"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at."""

    check: str
    level: Level
    detail: str
    fix: str = ""
    cause: Cause = Cause.ITSELF


class CheckFailed(Exception):
    """A pipeline cannot run, for the reason in a finding."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(f"{finding.detail} {finding.fix}".strip())
        self.finding = finding


@dataclass(frozen=True, slots=True)
class ClusterAddress:
    """Where the topics are that a pipeline names no cluster for."""

    servers: str
    settings: Mapping[str, SettingValue]


def check_installation(project: Project, conf: Mapping[str, str], *, master: str) -> Iterator[Finding]:
    """What Spark needs here."""
    packages = check_packages(is_declarative=project.kind is Kind.DECLARATIVE)
    yield from [_problem("packages", problem) for problem in packages] or [
        Finding("packages", Level.OK, "PySpark and what it needs are installed.")
    ]
    java = check_java()
    if isinstance(java, Problem):
        yield _problem("Java", java)
    else:
        yield Finding("Java", Level.OK, f"{java.said}, at {java.path}.")
    workers = check_workers({**project.configuration, **conf}, is_local=is_local_master(master))
    if isinstance(workers, Problem):
        yield _problem("workers", workers)
    elif workers == WorkerPython("python3"):
        yield Finding(
            "workers",
            Level.WARNING,
            f"The workers of {master} run whatever python3 is there.",
            "Let PYSPARK_PYTHON name one that has moldau, and the version of this one.",
        )
    else:
        yield Finding("workers", Level.OK, f"Workers run {workers.path}.")


def check_topics(project: Project, cluster: ClusterAddress) -> Iterator[Finding]:
    """Whether the cluster answers and has the topics, as far as the files of the pipeline name them."""
    try:
        found = mentions(project.files())
    except (InvalidProject, InvalidSql) as error:
        yield Finding("files", Level.PROBLEM, f"{error}")
        return
    names = ", ".join(path.name for path in project.files())
    yield Finding("files", Level.OK, f"{names}: {project.kind.value}, in {project.root}.")
    if not found.has_moldau:
        return
    if found.has_servers:
        yield Finding("cluster", Level.OK, "The pipeline names its own, which it is asked for when it runs.")
        return
    yield from look_for_topics(cluster, read=found.read, written=found.written)


def look_for_topics(
    cluster: ClusterAddress,
    *,
    read: Iterable[str] = (),
    written: Iterable[str] = (),
    must_exist: bool = False,
) -> Iterator[Finding]:
    """Whether a cluster answers, and has these topics; writing makes those that are missing, if it may."""
    from moldau.client import ClientError, Unreachable, connect_sync

    try:
        with connect_sync(cluster.servers, **cluster.settings) as client:
            known = _topic_names(client)
    except Unreachable as error:
        yield Finding(
            "cluster",
            Level.PROBLEM,
            error.message,
            "Is it running there? -b says where to look; 'moldau doctor' finds out more.",
            Cause.OUT_OF_REACH,
        )
        return
    except ClientError as error:
        yield Finding("cluster", Level.PROBLEM, f"{cluster.servers}: {error.message} ({error.code.name})")
        return
    yield Finding("cluster", Level.OK, f"{cluster.servers} answers.")
    for topic in read:
        yield _topic(topic, known, is_read=True)
    for topic in written:
        yield _topic(topic, known, is_read=False, must_exist=must_exist)


def check_access(access: Access) -> Iterator[Finding]:
    """The same for something that a running pipeline reads or writes."""
    if access.format != FORMAT:
        return
    from moldau.client.settings import ClientSettings
    from moldau.model.settings.setting import InvalidSetting
    from moldau.spark.options import ReadOptions, Use, servers_of, settings_of

    try:
        cluster = ClusterAddress(servers_of(access.options), settings_of(access.options))
        if access.verb == "write":
            topic = {name.lower(): value for name, value in access.options.items()}.get("topic")
            may_create = ClientSettings.parse(cluster.settings).allow_auto_create_topics
            written = [topic] if topic else []
            yield from look_for_topics(cluster, written=written, must_exist=not may_create)
            return
        options = ReadOptions.parse(access.options, Use.STREAM if access.is_stream else None)
    except InvalidSetting as error:
        yield Finding("options", Level.PROBLEM, error.message)
        return
    wanted = options.subscription
    read = dict.fromkeys((*wanted.topics, *(place.topic for place in wanted.partitions)))
    yield from look_for_topics(cluster, read=read)


def first_problem(findings: Iterable[Finding], *, warned: Callable[[Finding], object]) -> None:
    """Raise CheckFailed for the first problem, and look no further; `warned` is told what may become one."""
    for finding in findings:
        if finding.level is Level.PROBLEM:
            raise CheckFailed(finding)
        if finding.level is Level.WARNING:
            warned(finding)


def _topic(name: str, known: list[str], *, is_read: bool, must_exist: bool = True) -> Finding:
    if name in known:
        return Finding("topics", Level.OK, f"{name} is there, to be {'read' if is_read else 'written'}.")
    near = get_close_matches(name, known, n=1)
    hint = f"Did you mean '{near[0]}'? " if near else ""
    fix = f"{hint}'moldau topic create {name}' makes it."
    if must_exist:
        what = f"There is no topic '{name}' to {'read' if is_read else 'write to'}."
        return Finding("topics", Level.PROBLEM, what, fix, Cause.NOT_FOUND)
    return Finding(
        "topics", Level.WARNING, f"There is no topic '{name}' to write to; the cluster may create it.", fix
    )


def _topic_names(client: BlockingClient) -> list[str]:
    return sorted(client.admin.list_topics())


def _problem(check: str, problem: Problem) -> Finding:
    return Finding(check, Level.PROBLEM, problem.what, problem.fix)
