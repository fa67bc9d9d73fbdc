"""One run: a broker, a producer, a driver, kills by a plan, and what is found when all is read."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from spark.chaos import processes, setup
from spark.chaos.checks import (
    Finding,
    Row,
    Sent,
    check_copy,
    check_counts,
    check_input,
    check_lag,
    check_table,
    numbers_of,
)
from spark.chaos.judge import Judge
from spark.chaos.load import Load
from spark.chaos.plan import QUERIES, Kill, Moment, Role, Victim
from spark.chaos.processes import Process
from spark.chaos.setup import Setup
from spark.chaos.watching import Watch

from moldau.testing import Cluster
from moldau.testing.broker import PARENT_VARIABLE

TESTS: Final = Path(__file__).parents[2]
# On a machine with other things to do Spark may take a minute to start.
RECOVERY_TIMEOUT_S: Final = 240.0
FINISH_TIMEOUT_S: Final = 300.0
MOMENT_TIMEOUT_S: Final = 20.0
_POLL_S: Final = 0.003
_SLOW_POLL_S: Final = 0.1
_ORPHAN_TIMEOUT_S: Final = 20.0
_LAG_TIMEOUT_S: Final = 30.0
_BROKER: Final = 1
# When a worker dies, the task is repeated with the first of these, and the query fails with the other.
_MASTERS: Final = ("local[2,4]", "local[2]")

Tell = Callable[[str], None]


class Stuck(Exception):
    """Something did not go on, or ended by itself."""


@dataclass(slots=True)
class Done:
    """A kill, as it went."""

    number: int
    victim: str
    moment: str
    # Whether the moment was seen, and not only waited for in vain.
    is_met: bool
    what: str
    at_s: float
    # Until every query had completed a micro-batch again; none where the next kill did not wait for that.
    recovery_s: float | None = None


@dataclass(slots=True)
class Outcome:
    """What a run has shown."""

    seed: int | None
    seconds: float = 0.0
    sent: int = 0
    acknowledged: int = 0
    kills: list[Done] = field(default_factory=list)
    micro_batches: dict[str, int] = field(default_factory=dict)
    duplicates: dict[str, int] = field(default_factory=dict)
    written: dict[str, int] = field(default_factory=dict)
    drivers: int = 0
    # Queries that failed and were started again by their driver, by what they said.
    failed_queries: dict[str, int] = field(default_factory=dict)
    # Files of tasks that came to nothing, which the table's log does not name.
    unlisted_files: int = 0
    findings: list[str] = field(default_factory=list)

    @property
    def is_ok(self) -> bool:
        """Whether everything that must hold does."""
        return not self.findings

    def to_json(self) -> str:
        """For other programs."""
        return json.dumps({"is_ok": self.is_ok, **asdict(self)}, indent=2)

    def __str__(self) -> str:
        killed = Counter(each.victim for each in self.kills)
        met = sum(each.is_met for each in self.kills)
        recoveries = sorted(each.recovery_s for each in self.kills if each.recovery_s is not None)
        lines = [
            f"{len(self.kills)} kills in {self.seconds:.0f} s"
            f" ({', '.join(f'{count} x {victim}' for victim, count in sorted(killed.items()))}),"
            f" {met} at the moment that was meant",
            f"{self.acknowledged} inputs acknowledged of {self.sent}; {self.drivers} lives of the driver,"
            f" {sum(self.failed_queries.values())} queries started again within them",
            f"micro-batches: {_listed(self.micro_batches)}; written: {_listed(self.written)};"
            f" {self.unlisted_files} files of tasks that came to nothing, which the table does not count",
            f"duplicates: {_listed(self.duplicates)}",
        ]
        if recoveries:
            middle = recoveries[len(recoveries) // 2]
            lines.append(f"recovered within {middle:.1f} s (median), {recoveries[-1]:.1f} s (at most)")
        lines += self.findings or ["the table has every input once, and the topics have all of them"]
        return "\n".join(lines)


def play(
    kills: Sequence[Kill],
    folder: Path,
    *,
    seed: int | None = None,
    per_second: int = 200,
    sources: Mapping[str, str] | None = None,
    sinks: Mapping[str, str] | None = None,
    tell: Tell = lambda line: None,
) -> Outcome:
    """Carry out a plan; whatever goes wrong is a finding of the outcome."""
    outcome = Outcome(seed)
    started = time.monotonic()
    try:
        with Run(folder, outcome, sources or {}, sinks or {}, per_second=per_second, tell=tell) as run:
            run.wait_for_recovery()
            for kill in kills:
                run.carry_out(kill)
            run.judge(run.finish())
    except Stuck as why:
        outcome.findings.append(str(why))
    outcome.seconds = round(time.monotonic() - started, 1)
    return outcome


class Run:
    """All that runs, from the first start to the last check."""

    def __init__(
        self,
        folder: Path,
        outcome: Outcome,
        sources: Mapping[str, str],
        sinks: Mapping[str, str],
        *,
        per_second: int,
        tell: Tell,
    ) -> None:
        self._folder = folder
        self._outcome = outcome
        self._tell = tell
        self._started_s = time.monotonic()
        self._stack = contextlib.ExitStack()
        self._restart: threading.Timer | None = None
        self._unrecovered: Done | None = None
        try:
            self._cluster = self._stack.enter_context(Cluster(folder=folder / "cluster"))
            data = folder / "cluster" / f"broker-{_BROKER}" / "data"
            self._watches = {query: Watch(folder, data, query) for query in QUERIES}
            for topic, partitions in setup.PARTITIONS.items():
                self._cluster.topic(topic, partitions=partitions)
            servers = self._cluster.bootstrap_servers
            self._load = Load(servers, per_second=per_second)
            self._stack.callback(self._load.abandon)
            self._judge = self._stack.enter_context(contextlib.closing(Judge(servers)))
            self._driver = Driver(
                Setup(str(folder), servers, _MASTERS[0], 0, dict(sources), dict(sinks)), outcome
            )
            self._stack.callback(self._driver.close)
            self._driver.start()
            self._mark = self._committed()
        except BaseException:
            self._stack.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(Stuck):
            self._broker_is_back()
        self._stack.__exit__(None, None, None)

    # ------------------------------------------------------------ kills

    def carry_out(self, kill: Kill) -> None:
        """Wait for the moment, kill, and start again what was killed."""
        if not kill.is_hurried:
            self.wait_for_recovery()
        is_met = self._wait_for(kill)
        self._mark = self._committed()
        killed_s = self._now_s()
        what = self._kill(kill)
        done = Done(
            number=len(self._outcome.kills) + 1,
            victim=kill.victim.value,
            moment=_moment(kill),
            is_met=is_met,
            what=what,
            at_s=round(killed_s, 1),
        )
        self._outcome.kills.append(done)
        self._unrecovered = done
        self._tell(self._progress(done))

    def wait_for_recovery(self) -> None:
        """Wait until every query has completed a micro-batch since the last kill."""
        self._broker_is_back()
        self._wait(
            lambda: all(now > self._mark[query] for query, now in self._committed().items()),
            RECOVERY_TIMEOUT_S,
            lambda: f"not every query went on: {self._committed()} are done, and were {self._mark}",
        )
        if self._unrecovered is not None:
            self._unrecovered.recovery_s = round(self._now_s() - self._unrecovered.at_s, 1)
            self._unrecovered = None

    def _wait_for(self, kill: Kill) -> bool:
        sight = self._watches[kill.query].sees(kill.moment)
        deadline = time.monotonic() + MOMENT_TIMEOUT_S
        while not sight.has_come():
            if time.monotonic() > deadline:
                return False
            self._driver.check()
            time.sleep(_POLL_S)
        time.sleep(kill.wait_s)
        return True

    def _kill(self, kill: Kill) -> str:
        match kill.victim:
            case Victim.BROKER:
                # A broker that is down already was killed at another moment.
                self._broker_is_back()
                self._cluster.kill(_BROKER)
                self._restart = threading.Timer(kill.down_s, self._cluster.restart, args=(_BROKER,))
                self._restart.start()
                return f"the broker, for {kill.down_s:g} s"
            case Victim.DRIVER:
                ended = self._driver.kill()
                self._driver.start()
                return ended
            case Victim.WORKER:
                return self._driver.kill_worker(kill)

    def _broker_is_back(self) -> None:
        if self._restart is not None:
            self._restart.join(RECOVERY_TIMEOUT_S)
            if self._restart.is_alive() or self._cluster.pid(_BROKER) is None:
                raise Stuck(f"broker: it did not come back:\n{self._cluster.log_end(_BROKER)}")
            self._restart = None

    # ------------------------------------------------------------ the end

    def finish(self) -> Sent:
        """Let everything that was sent be processed."""
        self.wait_for_recovery()
        sent = self._load.finish()
        self._outcome.sent, self._outcome.acknowledged = sent.count, len(sent.acknowledged)
        for why in self._load.refused[:3]:
            self._tell(f"not acknowledged: {why}")
        setup.finish(self._folder).touch()
        self._tell("reading what is left")
        self._wait(
            setup.done(self._folder).exists, FINISH_TIMEOUT_S, lambda: "the driver did not come to an end"
        )
        self._driver.wait()
        return sent

    def judge(self, sent: Sent) -> None:
        """Read everything, and note what must not be."""
        import pyarrow.parquet as pq

        if not self._judge.read():
            raise Stuck("broker: its topics cannot be read to their ends")
        inputs = self._judge.records(setup.INPUT)
        truth = numbers_of(inputs)
        rows = [Row(**row) for row in pq.read_table(setup.rows(self._folder)).to_pylist()]
        copy, counts = (self._judge.records(topic) for topic in setup.OUTPUTS)
        verdicts = {
            "input": check_input(inputs, sent),
            "table": check_table(rows, truth),
            "copy": check_copy(copy, truth),
            "counts": check_counts(counts, truth),
        }
        outcome = self._outcome
        outcome.duplicates = {name: each.duplicates for name, each in verdicts.items()}
        outcome.written = {"table": len(rows), "copy": len(copy), "counts": len(counts)}
        outcome.micro_batches = {query: number + 1 for query, number in self._committed().items()}
        findings = [each for verdict in verdicts.values() for each in verdict.findings]
        for query in QUERIES:
            findings += self._lag(setup.group_of(query))
        findings += self._driver.orphans()
        outcome.findings += [str(each) for each in findings]
        listed = json.loads(setup.done(self._folder).read_text())["files"]
        outcome.unlisted_files = len([*setup.table(self._folder).glob("*.parquet")]) - listed
        outcome.failed_queries = _failures(self._folder)

    def _lag(self, group: str) -> tuple[Finding, ...]:
        """Commits to a group are under way for a moment when the driver ends."""
        deadline = time.monotonic() + _LAG_TIMEOUT_S
        while True:
            found = check_lag(group, self._judge.committed(group), self._judge.ends()).findings
            if not found or time.monotonic() > deadline:
                return found
            time.sleep(_SLOW_POLL_S)

    # ------------------------------------------------------------ within

    def _now_s(self) -> float:
        return time.monotonic() - self._started_s

    def _committed(self) -> dict[str, int]:
        return {query: watch.committed() for query, watch in self._watches.items()}

    def _wait(self, is_done: Callable[[], bool], timeout_s: float, complaint: Callable[[], str]) -> None:
        deadline = time.monotonic() + timeout_s
        while not is_done():
            self._load.check()
            self._driver.check()
            if time.monotonic() > deadline:
                raise Stuck(f"after {timeout_s:g} s {complaint()}\n{self._driver.log_end()}")
            time.sleep(_SLOW_POLL_S)

    def _progress(self, done: Done) -> str:
        # Whoever has just killed the broker asks it nothing.
        if self._restart is None and self._judge.read(timeout_s=5):
            self._outcome.duplicates = {topic: self._judge.doubles(topic) for topic in setup.OUTPUTS}
        missed = "" if done.is_met else " (waited for in vain)"
        return (
            f"kill {done.number} at {done.at_s:.0f} s: {done.what}, {done.moment}{missed};"
            f" {self._load.acknowledged} inputs, duplicates so far: {_listed(self._outcome.duplicates) or 0}"
        )


class Driver:
    """The driver with its JVM and their Python workers, life after life."""

    def __init__(self, given: Setup, outcome: Outcome) -> None:
        self._setup = replace(given, life=-1)
        self._outcome = outcome
        self._process: subprocess.Popen[bytes] | None = None
        self._sessions: list[int] = []

    def start(self) -> None:
        """Start it, in a session of its own; called by the thread with which it is to end."""
        life = self._setup.life + 1
        self._setup = replace(self._setup, life=life, master=_MASTERS[life % len(_MASTERS)])
        environment = {
            **os.environ,
            "PYTHONPATH": str(TESTS),
            PARENT_VARIABLE: str(os.getpid()),
        }
        _link_pyspark(Path(self._setup.folder))
        with open(self._setup.log, "ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "spark.chaos.driver", str(self._setup.write())],
                cwd=self._setup.folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._sessions.append(self._process.pid)
        self._outcome.drivers += 1

    def check(self) -> None:
        """Raise Stuck if it has ended with an error."""
        if self._process is not None and self._process.poll():
            raise Stuck(f"driver: it has ended with {self._process.returncode}:\n{self.log_end()}")

    def wait(self) -> None:
        """Wait until it has ended by itself."""
        assert self._process is not None
        try:
            code = self._process.wait(FINISH_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise Stuck("driver: it is done, and does not end") from None
        if code:
            raise Stuck(f"driver: it has ended with {code}:\n{self.log_end()}")

    def kill(self) -> str:
        """Kill the driver and its JVM, which are a process group; their workers must notice by themselves."""
        assert self._process is not None
        session = self._process.pid
        before = processes.of_session(session)
        group = [each for each in before if each.group == session]
        # It leads the group and is not waited for yet, so that the number belongs to nobody else.
        os.killpg(session, signal.SIGKILL)
        self._process.wait()
        return f"the driver ({len(group)} processes at once, and {len(before) - len(group)} workers orphaned)"

    def kill_worker(self, kill: Kill) -> str:
        """Kill one of the Python processes that work for the JVM; waits until there is one in that role."""
        assert self._process is not None
        deadline = time.monotonic() + RECOVERY_TIMEOUT_S
        while time.monotonic() < deadline:
            self.check()
            found = processes.in_role(kill.role, processes.of_session(self._process.pid))
            chosen = found if kill.role is Role.TASKS else found[int(kill.pick * len(found)) :][:1]
            killed = [processes.kill(each) for each in chosen]
            if any(killed):
                return f"{kill.role.value} ({sum(killed)} of {len(found)})"
            time.sleep(_POLL_S)
        raise Stuck(f"driver: there is no {kill.role.value}:\n{self.log_end()}")

    def log_end(self) -> str:
        """The last that it has printed, and what that was caused by."""
        log = self._setup.log.read_text(errors="replace")
        causes = [line for line in log.splitlines() if line.startswith("Caused by:")]
        return "\n".join([log[-4_000:], *causes[-3:]])

    def orphans(self) -> tuple[Finding, ...]:
        """Processes that outlive their driver, given some time to notice."""
        deadline = time.monotonic() + _ORPHAN_TIMEOUT_S
        while True:
            left = self._left()
            if not left:
                return ()
            if time.monotonic() > deadline:
                examples = tuple(str(each) for each in left[:5])
                return (Finding("driver", "processes that outlived their JVM", len(left), examples),)
            time.sleep(_SLOW_POLL_S)

    def close(self) -> None:
        """Kill whatever is left of all lives."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        while left := self._left():
            for process in left:
                processes.kill(process)

    def _left(self) -> list[Process]:
        return [process for session in self._sessions for process in processes.of_session(session)]


def _link_pyspark(folder: Path) -> None:
    """Let Python workers find PySpark where they look first, in the folder that they are started in.

    Spark has them import it from a zip file without bytecode, which takes each of them a second more.
    """
    link = folder / "pyspark"
    if not link.exists():
        found = find_spec("pyspark")
        assert found is not None and found.submodule_search_locations
        link.symlink_to(found.submodule_search_locations[0], target_is_directory=True)


def _moment(kill: Kill) -> str:
    hurried = ", before all had recovered" if kill.is_hurried else ""
    if kill.moment is Moment.ANY:
        return f"{kill.moment.value}{hurried}"
    return f"{kill.moment.value} ({kill.query}){hurried}"


def _listed(numbers: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {number}" for name, number in numbers.items())


def _failures(folder: Path) -> dict[str, int]:
    """What failed queries have said, without what differs from one to the next."""
    with open(setup.events(folder)) as lines:
        events = [json.loads(line) for line in lines]
    said = Counter(
        f"{each['query']}: {_gist(each['error'])}" for each in events if each["event"] == "query failed"
    )
    return dict(said.most_common())


def _gist(error: str) -> str:
    lines = [line.strip() for line in error.splitlines() if line.strip()]
    words = " ".join(lines)[:300].split()
    return " ".join(word for word in words if not any(map(str.isdigit, word)))
