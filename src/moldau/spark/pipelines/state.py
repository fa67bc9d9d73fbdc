"""What a pipeline keeps of itself between runs, and how others see whether it runs.

moldau-pipelines/<name>/      beside the pipeline, or under $MOLDAU_PIPELINES_DIR
    lock                      held by whoever runs it: a second run is refused, and none is ever stale
    run.json                  the run that is under way, or the last one
    progress.json metrics.prom
    checkpoints/<query>/      where each query goes on
    storage/ tables/ metastore/     the same for declarative pipelines, and their tables
    logs/spark.log
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from enum import Enum
from pathlib import Path
from typing import Final

from moldau.spark.pipelines.processes import ProcessId

DIRECTORY_VARIABLE: Final = "MOLDAU_PIPELINES_DIR"
DIRECTORY: Final = "moldau-pipelines"

# Whoever looks whether a pipeline runs holds its lock for a moment.
_LOCK_PATIENCE_S: Final = 2.0
_LOCK_POLL_S: Final = 0.02

Json = Mapping[str, "Json"] | list["Json"] | str | int | float | bool | None


class Status(Enum):
    """How a pipeline is."""

    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    # It was told to stop, and did.
    STOPPED = "stopped"
    # It has done what there was to do.
    FINISHED = "finished"
    FAILED = "failed"
    # Its process is gone without having said anything.
    DIED = "died"
    # It has never run.
    NEW = "new"

    @property
    def is_alive(self) -> bool:
        """Whether a process stands behind it."""
        return self in (Status.STARTING, Status.RUNNING, Status.STOPPING)


class AlreadyRuns(Exception):
    """The pipeline is run by another process."""


class NoSuchPipeline(Exception):
    """No pipeline goes by that name, or several do; the text says which there are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run of a pipeline."""

    name: str
    kind: str
    source: str
    status: Status
    process: ProcessId
    began_ms: int
    master: str
    bootstrap_servers: str
    log: str
    # Spark's Java process, which outlives a killed driver for a moment.
    java: ProcessId | None = None
    ended_ms: int | None = None
    error: str | None = None
    ui_url: str | None = None
    metrics_url: str | None = None

    def to_json(self) -> dict[str, object]:
        """As it stands in run.json."""
        return {**asdict(self), "status": self.status.value}

    @classmethod
    def of_json(cls, document: Mapping[str, object]) -> Run | None:
        """What run.json says; None if it was written by something else."""
        known = {each.name for each in fields(cls)}
        given = {name: value for name, value in document.items() if name in known}
        try:
            for name in ("process", "java"):
                found = given.get(name)
                given[name] = ProcessId(**found) if isinstance(found, dict) else None
            return cls(**{**given, "status": Status(given["status"])})  # type: ignore[arg-type]
        except (KeyError, TypeError, ValueError):
            return None


class PipelineDirectory:
    """The directory of one pipeline."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self.checkpoints = self.path / "checkpoints"
        self.storage = self.path / "storage"
        self.tables = self.path / "tables"
        self.metastore = self.path / "metastore"
        self.logs = self.path / "logs"
        self.log_file = self.logs / "spark.log"
        self.metrics_file = self.path / "metrics.prom"
        self._lock_file = self.path / "lock"
        self._run_file = self.path / "run.json"
        self._progress_file = self.path / "progress.json"

    @property
    def exists(self) -> bool:
        """Whether a pipeline has ever run here."""
        return self._lock_file.exists()

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Be the one who runs the pipeline; AlreadyRuns if somebody else is."""
        self.logs.mkdir(parents=True, exist_ok=True)
        deadline = time.monotonic() + _LOCK_PATIENCE_S
        with self._lock_file.open("a") as file:
            while not _try_lock(file.fileno(), fcntl.LOCK_EX):
                if time.monotonic() > deadline:
                    raise AlreadyRuns(self._who_runs_it())
                time.sleep(_LOCK_POLL_S)
            yield

    def is_locked(self) -> bool:
        """Whether somebody runs the pipeline now; the kernel knows, however that process ends."""
        try:
            with self._lock_file.open() as file:
                return not _try_lock(file.fileno(), fcntl.LOCK_SH)
        except FileNotFoundError:
            return False

    def run(self) -> Run | None:
        """The run that is under way, or the last one."""
        document = _read_json(self._run_file)
        return Run.of_json(document) if isinstance(document, dict) else None

    def status(self) -> Status:
        """How the pipeline is, whatever its last run has left behind."""
        # In this order: a run that ends in between has written its last word before it lets go of the lock.
        is_locked = self.is_locked()
        run = self.run()
        if run is None:
            return Status.STARTING if is_locked else Status.NEW
        if is_locked:
            return run.status if run.status.is_alive else Status.STARTING
        return Status.DIED if run.status.is_alive else run.status

    def write_run(self, run: Run) -> None:
        """Keep what is to be known of a run."""
        _write_json(self._run_file, run.to_json())

    def progress(self) -> dict[str, object]:
        """What was last known of its queries."""
        document = _read_json(self._progress_file)
        return document if isinstance(document, dict) else {}

    def write_progress(self, document: Mapping[str, object], metrics: str) -> None:
        """Keep what is known of its queries, for `status` and for Prometheus."""
        _write_json(self._progress_file, document)
        _replace(self.metrics_file, metrics)

    def _who_runs_it(self) -> str:
        run = self.run()
        who = "another process" if run is None else f"the process {run.process.pid}"
        return (
            f"The pipeline {self.path.name} is run by {who} already. 'moldau pipeline stop {self.path.name}'"
            " ends it; --name gives this run a name and a directory of its own."
        )


def directory_of(root: Path, name: str) -> PipelineDirectory:
    """Where the pipeline `name` keeps what it keeps: beside its files, so that it goes on from any shell."""
    chosen = os.environ.get(DIRECTORY_VARIABLE)
    return PipelineDirectory((Path(chosen) if chosen else root / DIRECTORY) / name)


# ---------------------------------------------------------------- those that are known


def remember(directory: PipelineDirectory) -> None:
    """Let this user find the pipeline by its name from anywhere; without a home there is its path."""
    digest = hashlib.sha256(str(directory.path).encode()).hexdigest()[:8]
    register = _register()
    if register is None:
        return
    link = register / f"{directory.path.name}-{digest}"
    with contextlib.suppress(OSError):
        link.parent.mkdir(parents=True, exist_ok=True)
        if not link.is_symlink():
            link.symlink_to(directory.path)


def known() -> list[PipelineDirectory]:
    """The pipelines that this user has run, by name; those whose directory is gone are forgotten."""
    found = {}
    register = _register()
    for link in sorted(register.iterdir()) if register is not None and register.is_dir() else []:
        directory = PipelineDirectory(link.resolve())
        if directory.exists:
            found[directory.path] = directory
        else:
            with contextlib.suppress(OSError):
                link.unlink()
    chosen = os.environ.get(DIRECTORY_VARIABLE)
    here = Path(chosen) if chosen else Path.cwd() / DIRECTORY
    for path in sorted(here.iterdir()) if here.is_dir() else []:
        directory = PipelineDirectory(path.resolve())
        if directory.exists:
            found.setdefault(directory.path, directory)
    return sorted(found.values(), key=lambda each: (each.path.name, str(each.path)))


def find(where: str, roots: Mapping[str, Path]) -> PipelineDirectory:
    """The pipeline that goes by a name, lives in a directory, or is one of `roots`: a name and its root."""
    for name, root in roots.items():
        directory = directory_of(root, name)
        if directory.exists:
            return directory
    directory = PipelineDirectory(Path(where).resolve())
    if directory.exists:
        return directory
    named = [each for each in known() if each.path.name == where]
    if len(named) > 1:
        places = ", ".join(str(each.path) for each in named)
        raise NoSuchPipeline(f"Several pipelines are called {where}. Name one by its directory: {places}")
    if not named:
        names = ", ".join(sorted({each.path.name for each in known()}))
        hint = f"There is {names}." if names else "None has ever been run here."
        raise NoSuchPipeline(f"There is no pipeline {where!r} that was ever run. {hint}")
    return named[0]


def _register() -> Path | None:
    """Where this user's pipelines are noted; None for one who has no home, as in a container."""
    chosen = os.environ.get("XDG_STATE_HOME")
    try:
        base = Path(chosen) if chosen else Path.home() / ".local" / "state"
    except RuntimeError:
        return None
    return base / "moldau" / "pipelines"


# ---------------------------------------------------------------- files


def _try_lock(file: int, kind: int) -> bool:
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _read_json(path: Path) -> object:
    try:
        document: object = json.loads(path.read_text())
    except (FileNotFoundError, ValueError):
        return None
    return document


def _write_json(path: Path, document: object) -> None:
    _replace(path, json.dumps(document, indent=2, ensure_ascii=False) + "\n")


def _replace(path: Path, text: str) -> None:
    """Write a file so that whoever reads it sees the old text or the new one."""
    beside = path.with_name(f".{path.name}.new")
    beside.write_text(text)
    beside.replace(path)
