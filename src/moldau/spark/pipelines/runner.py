"""One run of a pipeline, from the lock on its directory to the last word about it."""

from __future__ import annotations

import _thread
import contextlib
import json
import os
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import FrameType
from typing import TYPE_CHECKING, Final, Protocol

from moldau.spark.pipelines import declarative, functions
from moldau.spark.pipelines.checkpoints import logged
from moldau.spark.pipelines.checks import (
    CheckFailed,
    ClusterAddress,
    Finding,
    Level,
    check_access,
    check_installation,
    check_topics,
    first_problem,
)
from moldau.spark.pipelines.failures import Failure, explain, full_text
from moldau.spark.pipelines.hooks import FORMAT, Access, PipelineMistake, Setup, hooked
from moldau.spark.pipelines.lag import LogEnds
from moldau.spark.pipelines.metrics_server import MetricsServer
from moldau.spark.pipelines.preflight import WorkerPython, check_workers, is_local_master
from moldau.spark.pipelines.processes import ProcessId, identify
from moldau.spark.pipelines.progress import Progress, QueryProgress, metrics_text, query_name
from moldau.spark.pipelines.projects import Kind, Project
from moldau.spark.pipelines.session import Session, SparkFailed, open_session
from moldau.spark.pipelines.settings import log_config, log_config_path, spark_settings
from moldau.spark.pipelines.state import PipelineDirectory, Run, Status, remember
from moldau.spark.pipelines.stopping import active_queries, finish_batches

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import StreamingQueryListener

STOP_TIMEOUT_S: Final = 60.0
UPDATE_INTERVAL_S: Final = 10.0

_STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
# Sent by a thread to the main one, which is in the pipeline's own code.
_ENOUGH: Final = signal.SIGUSR1
_TICK_S: Final = 1.0
_TICKS_PER_LOG_ENDS: Final = 2
_LAST_TICK_S: Final = 10.0
# How long the function of a pipeline may go on after its queries have ended.
_FUNCTION_GRACE_S: Final = 2.0
_LEFTOVER_TIMEOUT_S: Final = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What is to be run, and how."""

    project: Project
    directory: PipelineDirectory
    cluster: ClusterAddress
    # Settings of the client as its user gave them, which become options of the format moldau.
    client_settings: Mapping[str, str] = field(default_factory=dict)
    master: str = "local[*]"
    conf: Mapping[str, str] = field(default_factory=dict)
    is_once: bool = False
    # How often micro-batches or updates begin; None leaves it to the pipeline.
    interval_s: float | None = None
    metrics_port: int | None = None
    is_verbose: bool = False
    stop_timeout_s: float = STOP_TIMEOUT_S
    is_dry: bool = False
    refresh_all: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run has ended."""

    status: Status
    failure: Failure | None = None
    # The queries that were cut off in a micro-batch; or there was no query, but a batch that is not done.
    cut_off: tuple[str, ...] = ()
    is_incomplete: bool = False
    check: CheckFailed | None = None
    # What was started, or would be.
    queries: tuple[str, ...] = ()


class Observer(Protocol):
    """Whoever watches a run."""

    def phase(self, text: str) -> None:
        """What is done now."""

    def running(self, run: Run) -> None:
        """The pipeline runs."""

    def batch(self, query: QueryProgress) -> None:
        """A micro-batch is done."""

    def refresh(self, progress: Progress) -> None:
        """Time has gone by."""

    def said(self, line: str) -> None:
        """Spark has printed something for the user."""

    def note(self, text: str) -> None:
        """Something that is worth telling."""


class StopRequested(BaseException):
    """Raised where the run is, when nothing needs to be waited for."""


class Runner:
    """Runs one pipeline once."""

    def __init__(self, request: Request, observer: Observer) -> None:
        self._request = request
        self._observer = observer
        self._directory = request.directory
        self._progress = Progress()
        self._progress_lock = threading.Lock()
        self._stop = threading.Event()
        self._is_over = threading.Event()
        # Whether the queries are between two micro-batches for good.
        self._is_settled = threading.Event()
        self._is_updating = False
        # Whether somebody waits for the run to be stopped, and then settles it.
        self._is_watched = False
        self._ticking = threading.Thread(target=self._tick_for_ever, name="pipeline: progress", daemon=True)
        self._session: Session | None = None
        self._listening: StreamingQueryListener | None = None
        self._queries_were_seen = False
        self._cut_off: tuple[str, ...] = ()
        self._started: tuple[str, ...] = ()
        self._accesses: list[Access] = []
        # What is worth knowing and keeps the pipeline from nothing.
        self.findings: list[Finding] = []
        self._run: Run | None = None

    # ------------------------------------------------------------ what callers use

    def run(self) -> Outcome:
        """Run to the end, which may be far away; CheckFailed and AlreadyRuns come before anything starts."""
        request = self._request
        self._observer.phase("Looking at what the pipeline needs")
        installation = check_installation(request.project, request.conf, master=request.master)
        first_problem(installation, warned=self._warn)
        first_problem(check_topics(request.project, request.cluster), warned=self._warn)
        with self._directory.lock():
            self._await_leftover()
            with self._signals_handled():
                return self._run_locked()

    def stop(self) -> None:
        """Let the queries finish their micro-batches, and end the run."""
        self._stop.set()

    # ------------------------------------------------------------ its life

    def _run_locked(self) -> Outcome:
        request = self._request
        process = identify(os.getpid())
        assert process is not None, "this process runs"
        self._run = Run(
            name=request.project.name,
            kind=request.project.kind.value,
            source=request.project.source,
            status=Status.STARTING,
            process=process,
            began_ms=_now_ms(),
            master=request.master,
            bootstrap_servers=request.cluster.servers,
            log=str(self._directory.log_file),
        )
        if not request.is_dry:
            remember(self._directory)
            self._write()
        outcome = Outcome(Status.FAILED, Failure("it ended in a way that nobody has thought of"))
        try:
            outcome = self._guarded()
        except StopRequested:
            # It came a moment late, when all was done.
            outcome = Outcome(Status.STOPPED, cut_off=self._cut_off)
        finally:
            self._is_over.set()
            self._end(outcome)
        return outcome

    def _guarded(self) -> Outcome:
        """The run, with whatever goes wrong turned into how it ended."""
        try:
            with self._metrics_served():
                self._open()
                self._work()
        except (StopRequested, KeyboardInterrupt):
            self._stop.set()
        except CheckFailed as error:
            return Outcome(Status.FAILED, Failure(str(error)), check=error)
        except SparkFailed as error:
            self._log(error)
            return Outcome(Status.FAILED, Failure(f"Spark could not be started: {error}"))
        except Exception as error:  # noqa: BLE001  # whatever a pipeline raises
            if not self._stop.is_set():
                self._log(error)
                failure = self._explain(error)
                self._finish_others()
                return Outcome(Status.FAILED, failure)
        if not self._stop.is_set():
            return Outcome(Status.FINISHED, queries=self._started)
        if self._is_watched:
            # A query counts as ended as soon as it begins no other micro-batch; the last may be under way.
            self._is_settled.wait(self._request.stop_timeout_s + _FUNCTION_GRACE_S)
        is_incomplete = self._is_watched and not self._queries_were_seen
        return Outcome(Status.STOPPED, cut_off=self._cut_off, is_incomplete=is_incomplete)

    def _open(self) -> None:
        from moldau.spark.options import DEFAULTS_VARIABLE

        request = self._request
        self._observer.phase("Starting Spark")
        worker = check_workers(
            {**request.project.configuration, **request.conf}, is_local=is_local_master(request.master)
        )
        assert isinstance(worker, WorkerPython), "it was checked before"
        log_config_path(self._directory).write_text(
            log_config(self._directory, is_verbose=request.is_verbose)
        )
        os.environ["PYTHONPATH"] = os.pathsep.join(
            filter(None, (str(request.project.root), os.environ.get("PYTHONPATH")))
        )
        # For SQL, whose options nobody sees before Spark does.
        os.environ[DEFAULTS_VARIABLE] = json.dumps(self._defaults())
        self._session = open_session(
            spark_settings(request.project, self._directory, master=request.master, given=request.conf),
            worker_python=worker.path,
            is_connect=request.project.kind is Kind.DECLARATIVE,
            log_file=self._directory.log_file,
            say=self._observer.said,
            is_verbose=request.is_verbose,
        )
        # Spark has put its own there.
        self._handle_signals()
        if self._stop.is_set():
            raise StopRequested
        self._listening = self._listener()
        self._session.spark.streams.addListener(self._listening)
        assert self._run is not None
        self._run = replace(
            self._run, status=Status.RUNNING, java=self._session.java, ui_url=self._session.ui_url
        )
        self._write()
        self._observer.running(self._run)
        self._ticking.start()
        self._is_watched = True
        threading.Thread(target=self._stop_when_asked, name="pipeline: stop", daemon=True).start()

    def _work(self) -> None:
        assert self._session is not None, "it was opened"
        if self._request.project.kind is Kind.FUNCTION:
            self._work_on_function(self._session)
        else:
            self._work_on_graph(self._session)

    def _work_on_function(self, session: Session) -> None:
        setup = self._setup()
        # To the end, because what is done for each batch reads and writes too.
        with hooked(setup):
            functions.call(self._request.project, session.spark)
            self._queries_were_seen = bool(setup.queries)
            self._started = tuple(setup.names)
            self.findings += [
                Finding("SQL", Level.OK, f"Not run, as it may write: {text}") for text in setup.left_out
            ]
            functions.wait_for_queries(setup.queries, is_stopping=self._stop.is_set, sleep=self._is_over.wait)

    def _work_on_graph(self, session: Session) -> None:
        request = self._request
        interval_s = UPDATE_INTERVAL_S if request.interval_s is None else request.interval_s
        is_first = True
        while not self._stop.is_set():
            began = time.monotonic()
            self._queries_were_seen = self._is_updating = True
            try:
                declarative.update(
                    request.project,
                    session.spark,
                    self._setup(),
                    storage=declarative.storage_url(request.project, self._directory.storage),
                    told=self._told,
                    refresh_all=request.refresh_all and is_first,
                )
            finally:
                self._is_updating = False
            is_first = False
            if request.is_once or request.is_dry:
                return
            self._stop.wait(max(0.0, began + interval_s - time.monotonic()))

    def _setup(self) -> Setup:
        request = self._request
        trigger: dict[str, object] | None = None
        if request.is_once:
            trigger = {"availableNow": True}
        elif request.interval_s is not None:
            trigger = {"processingTime": f"{request.interval_s} seconds"}
        return Setup(
            name=request.project.name,
            checkpoints=self._directory.checkpoints,
            defaults=self._defaults(),
            stream_defaults={"groupIdPrefix": request.project.name},
            trigger=trigger,
            is_dry=request.is_dry,
            on_access=self._saw,
        )

    def _defaults(self) -> Mapping[str, str]:
        """Options of the format moldau, for what the pipeline does not say itself."""
        given = {f"kafka.{name}": value for name, value in self._request.client_settings.items()}
        return {"kafka.bootstrap.servers": self._request.cluster.servers, **given}

    def _saw(self, access: Access) -> None:
        # What is done for each batch finds out by itself, and waits for a broker that is away for a moment.
        is_new = access not in self._accesses
        if is_new and (access.is_stream or not self._started):
            self._accesses.append(access)
            first_problem(check_access(access), warned=self._warn)

    def _warn(self, finding: Finding) -> None:
        # What the files say, and what the pipeline does then, is often the same.
        if finding not in self.findings:
            self.findings.append(finding)
            if not self._request.is_dry:
                self._observer.note(f"{finding.detail} {finding.fix}".strip())

    def _told(self, event: str) -> None:
        if self._request.is_verbose:
            self._observer.note(event)

    # ------------------------------------------------------------ the end

    def _end(self, outcome: Outcome) -> None:
        """Say how it ended, once nothing of it runs any more."""
        session, self._session = self._session, None
        if session is not None:
            if session.is_alive() and self._listening is not None:
                session.tell_listeners()
                with contextlib.suppress(Exception):
                    session.spark.streams.removeListener(self._listening)
            self._observer.phase("Ending Spark")
            session.stop()
        if self._ticking.is_alive():
            # Else it might have the last word, and say that all is well.
            self._ticking.join(_LAST_TICK_S)
        assert self._run is not None
        error = None if outcome.failure is None else str(outcome.failure)
        self._run = replace(self._run, status=outcome.status, ended_ms=_now_ms(), error=error, java=None)
        self._write()
        self._keep_progress(is_up=False)

    def _explain(self, error: BaseException) -> Failure:
        root = self._request.project.root
        if self._session is not None and not self._session.is_alive():
            how = self._session.how_it_ended()
            return Failure(
                f"Spark's Java process has ended ({how}), perhaps for want of memory: give it more with"
                " --set spark.driver.memory=4g"
            )
        if isinstance(error, functions.QueryFailed):
            assert error.__cause__ is not None, "it is raised from what the query died of"
            return explain(error.__cause__, root, query=error.name)
        if isinstance(error, PipelineMistake):
            failure = explain(error, root)
            return replace(failure, reason=str(error))
        return explain(error, root)

    def _log(self, error: BaseException) -> None:
        """Keep all of it, beside what Spark has to say."""
        self._directory.logs.mkdir(parents=True, exist_ok=True)
        with self._directory.log_file.open("a") as log:
            log.write(f"\n{time.strftime('%Y-%m-%d %H:%M:%S')} The pipeline failed:\n{full_text(error)}")

    # ------------------------------------------------------------ stopping

    @contextmanager
    def _signals_handled(self) -> Iterator[None]:
        numbers = (*_STOP_SIGNALS, _ENOUGH)
        before = {number: signal.getsignal(number) for number in numbers}
        self._handle_signals()
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _handle_signals(self) -> None:
        for number in _STOP_SIGNALS:
            signal.signal(number, self._on_stop_signal)
        signal.signal(_ENOUGH, self._on_enough)

    def _on_stop_signal(self, number: int, frame: FrameType | None) -> None:
        if self._stop.is_set():
            # Who asks twice does not want to wait; what was under way is done again at the next start.
            if self._session is not None:
                self._session.kill()
            os._exit(128 + number)
        self._stop.set()
        if self._session is None and not self._is_over.is_set():
            # Spark is only about to start, so there is nothing to be finished.
            raise StopRequested

    def _on_enough(self, number: int, frame: FrameType | None) -> None:
        if not self._is_over.is_set():
            raise StopRequested

    def _stop_when_asked(self) -> None:
        """In a thread of its own: the main one may be anywhere in the pipeline's own code."""
        while not self._stop.wait(_TICK_S):
            if self._is_over.is_set():
                return
        session = self._session
        if session is None or self._is_over.is_set():
            return
        assert self._run is not None
        self._run = replace(self._run, status=Status.STOPPING)
        self._write()
        self._observer.phase("Stopping: micro-batches are finished first")
        try:
            self._queries_were_seen = self._queries_were_seen or bool(active_queries(session.java_session))
            self._settle(session)
            if not self._queries_were_seen:
                session.context.cancelAllJobs()
        except Exception as error:  # noqa: BLE001  # Spark may be on its way out by itself
            self._log(error)
        self._is_settled.set()
        if not self._is_over.wait(_FUNCTION_GRACE_S):
            # Whatever else the pipeline does, or waits for, its queries have ended.
            _thread.interrupt_main(_ENOUGH)

    def _settle(self, session: Session) -> None:
        deadline_s = time.monotonic() + self._request.stop_timeout_s
        self._cut_off = tuple(
            finish_batches(
                session.java_session,
                deadline_s=deadline_s,
                is_over=lambda: not self._is_updating,
                unanswered=self._tell_unanswered,
            )
        )

    def _tell_unanswered(self, query: str) -> None:
        self._observer.note(
            f"{query_name(query)} got no answer from what it reads, and was ended with nothing under way."
        )

    def _finish_others(self) -> None:
        """One query has failed: the others end between two micro-batches."""
        if self._session is not None and self._session.is_alive():
            self._observer.phase("Stopping the other queries")
            with contextlib.suppress(Exception):
                self._settle(self._session)

    def _await_leftover(self) -> None:
        """A driver that was killed leaves Java behind for a moment, which must not meet its successor."""
        run = self._directory.run()
        java = None if run is None else run.java
        if java is None or not java.is_alive():
            return
        self._observer.note(f"Waiting for Java (process {java.pid}) of the run before, which was killed.")
        deadline = time.monotonic() + _LEFTOVER_TIMEOUT_S
        while java.is_alive():
            if time.monotonic() > deadline:
                _kill(java)
            time.sleep(0.1)

    # ------------------------------------------------------------ progress

    def _listener(self) -> StreamingQueryListener:
        from pyspark.sql.streaming.listener import StreamingQueryListener

        runner, names = self, {}

        class Listener(StreamingQueryListener):
            def onQueryStarted(self, event) -> None:  # type: ignore[no-untyped-def]  # noqa: N802
                names[str(event.runId)] = query_name(event.name or event.id)
                with runner._progress_lock:
                    runner._progress.started(names[str(event.runId)])

            def onQueryProgress(self, event) -> None:  # type: ignore[no-untyped-def]  # noqa: N802
                runner._on_batch(json.loads(event.progress.json))

            def onQueryIdle(self, event) -> None:  # type: ignore[no-untyped-def]  # noqa: N802
                with runner._progress_lock:
                    runner._progress.idle(names.get(str(event.runId), str(event.id)), _now_ms())

            def onQueryTerminated(self, event) -> None:  # type: ignore[no-untyped-def]  # noqa: N802
                with runner._progress_lock:
                    runner._progress.ended(names.get(str(event.runId), str(event.id)), event.exception)

        return Listener()

    def _on_batch(self, document: Mapping[str, object]) -> None:
        with self._progress_lock:
            query = self._progress.batch(document, _now_ms())
            is_batch = not query.is_idle
            seen = replace(query)
        if is_batch:
            self._observer.batch(seen)

    def _tick_for_ever(self) -> None:
        ends: LogEnds | None = None
        ticks = 0
        while not self._is_over.wait(_TICK_S):
            ticks += 1
            if ticks % _TICKS_PER_LOG_ENDS == 0:
                self._find_positions()
                ends = ends or self._log_ends()
                if ends is not None:
                    with self._progress_lock:
                        places = self._progress.places()
                    found = ends.ask(places)
                    with self._progress_lock:
                        self._progress.log_ends(found)
            self._keep_progress(is_up=True)
            with self._progress_lock:
                self._observer.refresh(self._progress)
        if ends is not None:
            ends.close()

    def _find_positions(self) -> None:
        """Until the first micro-batch of a query is done, only its checkpoint says how far it is."""
        with self._progress_lock:
            unknown = self._progress.unknown()
        session = self._session
        if not unknown or session is None:
            return
        # Spark may be on its way out.
        with contextlib.suppress(Exception):
            for query in active_queries(session.java_session):
                name = query_name(query.name() or query.id())
                if name in unknown:
                    found = logged(query)
                    with self._progress_lock:
                        self._progress.resumed(name, found)

    def _log_ends(self) -> LogEnds | None:
        """Who tells the lag, if all that is read is in one cluster."""
        from moldau.spark.options import servers_of, settings_of

        read = [access for access in self._accesses if access.verb == "read" and access.format == FORMAT]
        if not read or len({servers_of(access.options) for access in read}) != 1:
            return None
        return LogEnds(servers_of(read[0].options), settings_of(read[0].options))

    def _keep_progress(self, *, is_up: bool) -> None:
        with self._progress_lock:
            document = {"at_ms": _now_ms(), **self._progress.to_json()}
            text = self._metrics(is_up=is_up)
        if not self._request.is_dry:
            self._directory.write_progress(document, text)

    def _metrics(self, *, is_up: bool) -> str:
        return metrics_text(self._request.project.name, self._progress.queries.values(), is_up=is_up)

    @contextmanager
    def _metrics_served(self) -> Iterator[None]:
        port = self._request.metrics_port
        if port is None:
            yield
            return

        def text() -> str:
            with self._progress_lock:
                return self._metrics(is_up=True)

        try:
            server = MetricsServer(port, text)
        except OSError as error:
            raise CheckFailed(
                Finding(
                    "metrics",
                    Level.PROBLEM,
                    f"Port {port} for metrics cannot be had: {error.strerror}.",
                    "Give another with --metrics-port, or 0 for any that is free.",
                )
            ) from error
        with server:
            assert self._run is not None
            self._run = replace(self._run, metrics_url=server.url)
            yield

    def _write(self) -> None:
        assert self._run is not None
        if not self._request.is_dry:
            self._directory.write_run(self._run)


def _kill(process: ProcessId) -> None:
    if process.is_alive():
        os.kill(process.pid, signal.SIGKILL)


def _now_ms() -> int:
    return int(time.time() * 1000)
