"""What `make demo` runs: a broker, a stream of clicks, Spark counting them, a kill -9, and a check of it all.

A broker is started, and clicks are written to it as they happen. A pipeline on Spark (clicks_per_minute.py)
counts them by page and minute, into a compacted topic and into a table of Parquet files. On the way the
broker is killed with -9 and started again on what it had written to disk. At the end every click must have
been counted once.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import moldau
from moldau.client import Client, ClientError, Delivery, NewTopic, connect
from moldau.spark.pipelines.preflight import Problem, check_java, check_packages
from moldau.testing.broker import BrokerFailed

if TYPE_CHECKING:
    from moldau.testing.clusters import AsyncCluster

PIPELINE: Final = Path(__file__).with_name("clicks_per_minute.py")
CLICKS_TOPIC: Final = "clicks"
COUNTS_TOPIC: Final = "clicks-per-minute"
PARTITIONS: Final = 3
BROKER: Final = 1
BROKER_IS_AWAY_S: Final = 2.0

FIRST_MINUTE: Final = datetime(2030, 5, 17, 12, 0, tzinfo=UTC)
PAGES: Final = (
    "/",
    "/search",
    "/product",
    "/cart",
    "/checkout",
    "/login",
    "/help",
    "/news",
    "/jobs",
    "/about",
)
# How far behind the latest click one may come. With the time for which the producer keeps clicks back, it is
# less than the pipeline waits for, so that no click is too late.
STRAGGLE_S: Final = 30.0
UNACKNOWLEDGED_S: Final = 60.0
SLICES_PER_MINUTE: Final = 10
# A page that is not counted: its minute lies so far ahead that it passes the watermark, and never ends.
END_OF_STREAM: Final = "(end of stream)"

Counts = Counter[tuple[str, str]]


class Wrong(Exception):
    """The story did not end as it should; the text says in what."""


@dataclass(frozen=True, slots=True)
class Options:
    """How long the story is."""

    clicks: int
    minutes: int
    seconds: float
    timeout_s: float
    png: Path | None


def main() -> None:
    """Tell the story, and end with 0 if it ends well; with what was wrong if not, wherever that came from."""
    options, is_check, is_json = parse_arguments(sys.argv[1:])
    problems = what_is_missing(with_packages=not is_check)
    if problems:
        raise SystemExit("\n".join(f"The demo cannot run here. {problem}" for problem in problems))
    if is_check:
        return
    show = Show(sys.stderr if is_json else sys.stdout)
    outcome: dict[str, object] = {"ok": False}
    try:
        with tempfile.TemporaryDirectory(prefix="moldau-demo-") as folder, show:
            outcome = asyncio.run(story(options, Path(folder), show))
    except (Wrong, ClientError, BrokerFailed) as error:
        outcome["wrong"] = str(error)
    if is_json:
        print(json.dumps(outcome, indent=2))
    if "wrong" in outcome:
        raise SystemExit(f"wrong: {outcome['wrong']}")


def parse_arguments(arguments: Sequence[str]) -> tuple[Options, bool, bool]:
    """The options, whether only to look if it could run, and whether to print the outcome as JSON."""
    parser = argparse.ArgumentParser(description="A broker, a stream, Spark, and a kill -9.")
    parser.add_argument("--clicks", type=int, default=100_000, help="how many clicks there are")
    parser.add_argument("--minutes", type=int, default=30, help="how many minutes they tell of")
    parser.add_argument("--seconds", type=float, default=25.0, help="how long they take to come")
    parser.add_argument("--timeout", type=float, default=600.0, help="when to give up, in seconds")
    parser.add_argument("--png", type=Path, default=Path("moldau-demo.png"), help="where the picture goes")
    parser.add_argument("--no-png", action="store_true", help="paint in the terminal only")
    parser.add_argument(
        "--json", action="store_true", help="print the outcome as JSON, and the story to stderr"
    )
    parser.add_argument("--check", action="store_true", help="only say whether Java is there")
    given = parser.parse_args(arguments)
    png = None if given.no_png else given.png
    options = Options(given.clicks, given.minutes, given.seconds, given.timeout, png)
    return options, given.check, given.json


def what_is_missing(*, with_packages: bool) -> list[Problem]:
    """What must be installed first."""
    java = check_java()
    problems = [java] if isinstance(java, Problem) else []
    return problems + (check_packages(is_declarative=False) if with_packages else [])


# ---------------------------------------------------------------- the story


async def story(options: Options, folder: Path, show: Show) -> dict[str, object]:
    """From the first start to the last check; gives the outcome."""
    clicks = Clicks(options)
    table = folder / "table"
    show.say("A broker is started, with its data in a directory that is gone afterwards.")
    async with (
        moldau.cluster(folder=folder / "brokers") as cluster,
        connect(cluster.bootstrap_servers, linger_ms=10, delivery_timeout_ms=120_000) as client,
    ):
        await create_topics(client)
        show.say(f"It serves at {cluster.bootstrap_servers}. Spark is started, which takes a while.")
        async with running_pipeline(cluster.bootstrap_servers, table, folder, show) as pipeline:
            producing = asyncio.create_task(produce(client, clicks, pipeline, show))
            killing = asyncio.create_task(kill_on_the_way(cluster, clicks, pipeline, show))
            watching = asyncio.create_task(pipeline.watch())
            deadline = time.monotonic() + options.timeout_s
            try:
                await first_failure(options.timeout_s, watching, producing, killing)
                await until_all_is_counted(table, clicks, pipeline, watching, deadline, show)
            finally:
                for task in (producing, killing, watching):
                    task.cancel()
        show.say("Spark has finished its micro-batches and stopped. Now every click is looked for.")
        records = await read_topic(client, CLICKS_TOPIC)
        updates = await read_topic(client, COUNTS_TOPIC)
    expected = clicks.by_page_and_minute()
    check_clicks([json.loads(value) for _, value in records], clicks)
    check_counts("the Parquet table", read_table(table), expected)
    check_counts("the compacted topic", last_values(updates), expected)
    if not 0 < clicks.acknowledged_at_kill < len(clicks.sent):
        raise Wrong(f"the broker was not killed on the way, but after {clicks.acknowledged_at_kill} clicks")
    total, counts = len(clicks.sent), len(expected)
    show.say(f"{total:,} clicks are in the topic, each once, and {counts:,} counts add up to them:")
    show.say("in the Parquet table each count is there once, in the compacted topic the last one is right.")
    painted = paint(expected, options.png, show)
    return {
        "ok": True,
        "clicks": len(clicks.sent),
        "counts": len(expected),
        "updates_in_topic": len(updates),
        "broker_was_killed_after_clicks": clicks.acknowledged_at_kill,
        "seconds": round(show.seconds(), 1),
        "png": painted,
    }


async def create_topics(client: Client) -> None:
    """One for clicks, one for counts that keeps the last of each key."""
    compacted = {"cleanup.policy": "compact"}
    # These clicks are of another year than the broker's clock: they must not be too old to be kept.
    kept = {"retention.ms": "-1"}
    await client.admin.create_topics(
        NewTopic(CLICKS_TOPIC, partitions=PARTITIONS, configs=kept),
        NewTopic(COUNTS_TOPIC, partitions=PARTITIONS, configs=compacted),
    )


async def produce(client: Client, clicks: Clicks, pipeline: Pipeline, show: Show) -> None:
    """Write the clicks as their time comes, then something later than all of them."""
    waiting: deque[tuple[float, list[Delivery]]] = deque()
    show.starts("clicks", "clicks written", len(clicks.planned))
    async with client.producer() as producer:
        began = time.monotonic()
        for number, part in enumerate(clicks.slices()):
            # Were clicks written while others have waited for long, the pipeline would take these for late.
            while waiting and waiting[0][0] < part.at_s - UNACKNOWLEDGED_S:
                await acknowledged(waiting.popleft()[1], clicks, show)
            if number == clicks.slice_count // 2:
                # The second half is for a pipeline that counts: that is when the broker is killed.
                await pipeline.has_counted.wait()
                began = time.monotonic() - clicks.seconds * number / clicks.slice_count
            await asyncio.sleep(began + clicks.seconds * number / clicks.slice_count - time.monotonic())
            deliveries = []
            for click in part.clicks:
                key = click["page"].encode()
                deliveries.append(await producer.send(CLICKS_TOPIC, json.dumps(click).encode(), key=key))
            waiting.append((part.at_s, deliveries))
            if number >= clicks.slice_count * 6 // 10:
                clicks.is_well_under_way.set()
        while waiting:
            await acknowledged(waiting.popleft()[1], clicks, show)
        end = {"id": -1, "page": END_OF_STREAM, "at": clicks.time(60.0 * clicks.minutes + 3_600)}
        await (await producer.send(CLICKS_TOPIC, json.dumps(end).encode(), key=END_OF_STREAM.encode()))
    show.say("All clicks are acknowledged. A last event passes the watermark, so that the last minutes end.")


async def acknowledged(deliveries: Sequence[Delivery], clicks: Clicks, show: Show) -> None:
    """Wait until these are on the broker's disk."""
    for delivery in deliveries:
        await delivery
    clicks.acknowledged += len(deliveries)
    show.counts("clicks", clicks.acknowledged)


async def kill_on_the_way(cluster: AsyncCluster, clicks: Clicks, pipeline: Pipeline, show: Show) -> None:
    """End the broker as the kernel does when there is no memory left, while clicks come and are counted."""
    await pipeline.has_counted.wait()
    await clicks.is_well_under_way.wait()
    clicks.acknowledged_at_kill = clicks.acknowledged
    await cluster.kill(BROKER)
    show.say("kill -9: the broker is gone. Clicks wait in the producer, Spark waits for the broker.")
    await asyncio.sleep(BROKER_IS_AWAY_S)
    began = time.monotonic()
    await cluster.restart(BROKER)
    took_s = time.monotonic() - began
    show.say(f"The broker is started again on the same directory, and serves after {took_s:.1f} s.")


async def first_failure(timeout_s: float, watching: asyncio.Task[None], *tasks: asyncio.Task[None]) -> None:
    """Wait for the tasks; if one fails, or the pipeline ends meanwhile, that is what went wrong."""
    pending: set[asyncio.Task[None]] = {watching, *tasks}
    deadline = time.monotonic() + timeout_s
    while pending - {watching}:
        left_s = deadline - time.monotonic()
        done, pending = await asyncio.wait(pending, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
        if not done:
            raise Wrong(f"the clicks were not written within {timeout_s:.0f} s")
        for task in done:
            task.result()


async def until_all_is_counted(
    table: Path,
    clicks: Clicks,
    pipeline: Pipeline,
    watching: asyncio.Task[None],
    deadline: float,
    show: Show,
) -> None:
    """Wait until as many clicks have arrived on both ways as were written; what they are is checked later."""
    while (counted := read_table(table).total()) < len(clicks.sent) or pipeline.rows("topic") <= counted:
        show.counts("counted", counted)
        if watching.done():
            watching.result()
        if time.monotonic() > deadline:
            raise Wrong(
                f"{counted} of {len(clicks.sent)} clicks were counted in time:"
                f" {differences(read_table(table), clicks.by_page_and_minute())}"
            )
        await asyncio.sleep(0.5)
    show.counts("counted", counted)


# ---------------------------------------------------------------- clicks


@dataclass(frozen=True, slots=True)
class Slice:
    """The clicks of a few seconds."""

    at_s: float
    clicks: Sequence[Mapping[str, Any]]


@dataclass(slots=True)
class Clicks:
    """What is clicked: planned before, so that all is known, and written as it happens."""

    options: Options
    planned: list[tuple[float, dict[str, Any]]] = field(default_factory=list)
    sent: list[Mapping[str, Any]] = field(default_factory=list)
    acknowledged: int = 0
    acknowledged_at_kill: int = 0
    is_well_under_way: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        chance = random.Random(17)
        for number in range(self.options.clicks):
            share = number / self.options.clicks
            came_s = 60.0 * self.minutes * share
            # Each page has its hour, and some are more popular than others.
            weights = [
                (0.3 + 3.0 * max(0.0, 1.0 - 5.0 * abs(share - (page + 0.5) / len(PAGES))))
                * (1.0 - 0.06 * page)
                for page in range(len(PAGES))
            ]
            (page,) = chance.choices(PAGES, weights)
            at_s = came_s - chance.random() * min(came_s, STRAGGLE_S)
            self.planned.append((came_s, {"id": number, "page": page, "at": self.time(at_s)}))

    @property
    def minutes(self) -> int:
        return self.options.minutes

    @property
    def seconds(self) -> float:
        return self.options.seconds

    @property
    def slice_count(self) -> int:
        return self.minutes * SLICES_PER_MINUTE

    def slices(self) -> Iterator[Slice]:
        """The clicks in the order in which they come, those of some seconds at a time."""
        length_s = 60.0 / SLICES_PER_MINUTE
        parts: list[list[Mapping[str, Any]]] = [[] for _ in range(self.slice_count)]
        for came_s, click in self.planned:
            parts[min(int(came_s / length_s), self.slice_count - 1)].append(click)
        for number, part in enumerate(parts):
            self.sent += part
            yield Slice(number * length_s, part)

    def time(self, at_s: float) -> str:
        """So many seconds after the first click, as it stands in the click."""
        return (FIRST_MINUTE + timedelta(seconds=at_s)).isoformat(timespec="milliseconds")

    def by_page_and_minute(self) -> Counts:
        """What the pipeline should find."""
        return Counter((click["page"], click["at"][:16]) for click in self.sent)


# ---------------------------------------------------------------- the pipeline


class Pipeline:
    """`moldau pipeline run`, in a process of its own, whose progress comes as JSON lines."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path, show: Show) -> None:
        self.has_counted = asyncio.Event()
        self._process = process
        self._log = log
        self._show = show
        self._rows: dict[str, int] = {}

    async def watch(self) -> None:
        """Follow its progress to its end, which is wrong unless it was told to stop."""
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            event = json.loads(line)
            if event["event"] == "running":
                self._show.say("Spark runs, and counts what has come so far.")
            elif event["event"] == "batch":
                self._rows[event["name"]] = event["rows_in"]
                if all(self._rows.get(name) for name in ("table", "topic")):
                    self.has_counted.set()
        code = await self._process.wait()
        raise Wrong(f"the pipeline ended with code {code}:\n{self.said()}")

    async def stop(self) -> None:
        """Let it finish what it is at."""
        if self._process.returncode is None:
            self._process.send_signal(signal.SIGTERM)
        # Nobody else reads what it says by now.
        await self._process.communicate()
        if self._process.returncode != 0:
            raise Wrong(f"the pipeline ended with code {self._process.returncode}:\n{self.said()}")

    def rows(self, query: str) -> int:
        """How many rows a query has dealt with."""
        return self._rows.get(query, 0)

    def said(self) -> str:
        """The end of what it has complained of."""
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-20:])

    def kill(self) -> None:
        """End it, because the story is over."""
        if self._process.returncode is None:
            self._process.kill()


@asynccontextmanager
async def running_pipeline(servers: str, table: Path, folder: Path, show: Show) -> AsyncIterator[Pipeline]:
    """The pipeline, from its start to its clean stop."""
    log = folder / "pipeline.log"
    command = [
        *(sys.executable, "-m", "moldau", "pipeline", "run", str(PIPELINE)),
        *("--bootstrap-server", servers, "--output", "json"),
        *("--set", f"spark.clicks.table={table.as_uri()}", "--set", "spark.ui.enabled=false"),
        *("--set", "spark.sql.session.timeZone=UTC"),
    ]
    environment = {
        **os.environ,
        "MOLDAU_PIPELINES_DIR": str(folder / "pipelines"),
        "XDG_STATE_HOME": str(folder),
    }
    with log.open("wb") as errors:
        process = await asyncio.create_subprocess_exec(
            *command, stdout=asyncio.subprocess.PIPE, stderr=errors, env=environment, start_new_session=True
        )
    pipeline = Pipeline(process, log, show)
    try:
        yield pipeline
        await pipeline.stop()
    finally:
        pipeline.kill()


# ---------------------------------------------------------------- what came of it


def read_table(table: Path) -> Counts:
    """The counts in the files that Spark has committed, without what a failed task may have left behind."""
    import pyarrow.parquet

    found: Counts = Counter()
    for path in committed_files(table):
        rows = pyarrow.parquet.read_table(path).to_pylist()
        for row in rows:
            # Spark's timestamps in Parquet are UTC without saying so.
            found[row["page"], row["minute"].isoformat()[:16]] += row["clicks"]
    return found


def committed_files(table: Path) -> list[str]:
    """The files that the log of Spark's file sink names."""
    log = table / "_spark_metadata"
    batches = {path.name: path for path in log.iterdir() if path.name[0].isdigit()} if log.is_dir() else {}
    compacted = [int(name.partition(".")[0]) for name in batches if name.endswith(".compact")]
    newest = max(compacted, default=-1)
    chosen = [
        path
        for name, path in batches.items()
        if (name.isdigit() and int(name) > newest) or name == f"{newest}.compact"
    ]
    lines = [line for path in chosen for line in path.read_text().splitlines()[1:]]
    return [json.loads(line)["path"].removeprefix("file://") for line in lines]


async def read_topic(client: Client, topic: str) -> list[tuple[str, str]]:
    """The keys and values of all records, up to where the topic ends now."""
    places = [(topic, partition) for partition in range(PARTITIONS)]
    ends = await client.admin.list_offsets(dict.fromkeys(places, moldau.client.LATEST))
    left = {(place.topic, place.partition) for place, found in ends.items() if found.offset > 0}
    records: list[tuple[str, str]] = []
    async with client.consumer(places, auto_offset_reset="earliest") as consumer:
        while left:
            for place, batch in (await consumer.poll(timeout_ms=1_000)).items():
                records += [((each.key or b"").decode(), (each.value or b"").decode()) for each in batch]
                end = ends[place].offset
                if batch and batch[-1].offset + 1 >= end:
                    left.discard((place.topic, place.partition))
    return records


def last_values(records: Sequence[tuple[str, str]]) -> Counts:
    """What a compacted topic says in the end; minutes that have not ended are not counted yet."""
    found: Counts = Counter()
    for key, value in dict(records).items():
        of = json.loads(key)
        if of["page"] != END_OF_STREAM:
            found[of["page"], of["minute"][:16]] = json.loads(value)["clicks"]
    return found


def check_clicks(found: Sequence[Mapping[str, Any]], clicks: Clicks) -> None:
    """Every click is in the topic once: what was acknowledged is not lost, what was repeated not doubled."""
    ids = Counter(click["id"] for click in found if click["page"] != END_OF_STREAM)
    lost = [click["id"] for click in clicks.sent if click["id"] not in ids]
    twice = [each for each, times in ids.items() if times > 1]
    if lost or twice or len(ids) != len(clicks.sent):
        raise Wrong(
            f"of {len(clicks.sent)} clicks that were acknowledged {len(lost)} are lost and {len(twice)} are"
            f" in the topic twice: {(lost + twice)[:5]}"
        )


def check_counts(where: str, found: Counts, expected: Counts) -> None:
    """Every page and minute has its count."""
    if found != expected:
        raise Wrong(f"{where} does not hold what was clicked: {differences(found, expected)}")


def differences(found: Counts, expected: Counts) -> str:
    """Where the counts differ, the first few."""
    differing = [each for each in sorted({*found, *expected}) if found[each] != expected[each]]
    shown = [
        f"{page} at {minute} was clicked {expected[page, minute]} times and counted {found[page, minute]}"
        for page, minute in differing[:5]
    ]
    more = f" and {len(differing) - 5} more" if len(differing) > len(shown) else ""
    return "; ".join(shown) + more


# ---------------------------------------------------------------- pictures


SHADES: Final = " ·░▒▓█"
# From pale to dark, of the 256 colours of a terminal.
COLOURS: Final = (255, 230, 229, 222, 215, 208, 202, 196, 160, 124, 88)


def paint(counts: Counts, png: Path | None, show: Show) -> str | None:
    """The counts as a map of pages and minutes, in the terminal and as a picture."""
    minutes = sorted({minute for _, minute in counts})
    highest = max(counts.values())
    show.say("")
    for page in PAGES:
        cells = [cell(counts[page, minute] / highest, is_coloured=show.is_terminal) for minute in minutes]
        total = sum(counts[page, minute] for minute in minutes)
        show.plain(f"  {page:>10} {''.join(cells)} {total:>7,}")
    first, last = minutes[0][11:], minutes[-1][11:]
    show.plain(f"  {'':>10} {first}{last:>{max(1, 2 * len(minutes) - len(first))}}   clicks\n")
    if png is None:
        return None
    try:
        import matplotlib
    except ImportError:
        show.say("There is no matplotlib to paint a picture with: pip install matplotlib")
        return None
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (heat, bars) = pyplot.subplots(
        1, 2, figsize=(12, 5), sharey=True, gridspec_kw={"width_ratios": (4, 1)}, layout="constrained"
    )
    rows = [[counts[page, minute] for minute in minutes] for page in PAGES]
    image = heat.imshow(rows, aspect="auto", cmap="YlOrRd")
    heat.set_yticks(range(len(PAGES)), PAGES)
    step = max(1, len(minutes) // 10)
    heat.set_xticks(range(0, len(minutes), step), [minute[11:] for minute in minutes[::step]])
    heat.set_title("Clicks by page and minute, counted by Spark while the broker was killed")
    figure.colorbar(image, ax=heat, label="clicks in a minute")
    bars.barh(range(len(PAGES)), [sum(row) for row in rows], color="#c0392b")
    bars.set_title("All of them")
    figure.savefig(png, dpi=120)
    show.say(f"The picture is in {png}.")
    return str(png)


def cell(share: float, *, is_coloured: bool) -> str:
    """Two letters for a count, the darker the more."""
    if is_coloured:
        return f"\x1b[48;5;{COLOURS[round(share * (len(COLOURS) - 1))]}m  \x1b[0m"
    return SHADES[round(share * (len(SHADES) - 1))] * 2


class Show:
    """What is told on the way: lines with the time, and bars on a terminal."""

    def __init__(self, stream: Any) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        self._console = Console(file=stream, highlight=False, soft_wrap=True)
        self.is_terminal = self._console.is_terminal and not os.environ.get("NO_COLOR")
        columns = (
            TextColumn("{task.description:>15}"),
            BarColumn(40),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
        )
        self._bars = Progress(*columns, console=self._console, disable=not self._console.is_terminal)
        self._tasks: dict[str, Any] = {}
        self._shown: dict[str, float] = {}
        self._totals: dict[str, int] = {}
        self._began = time.monotonic()

    def __enter__(self) -> Show:
        self._bars.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._bars.stop()

    def seconds(self) -> float:
        """How long it has been going on."""
        return time.monotonic() - self._began

    def say(self, text: str) -> None:
        """A sentence of the story."""
        self._console.print(f"[{self.seconds():5.1f} s] {text}" if text else "", markup=False)

    def plain(self, text: str) -> None:
        """A line as it is."""
        self._console.file.write(f"{text}\n")
        self._console.file.flush()

    def starts(self, name: str, description: str, total: int) -> None:
        """Something that is counted, and after it how much of it Spark has done."""
        for each, what in ((name, description), ("counted", "clicks counted")):
            self._totals[each] = total
            self._tasks[each] = self._bars.add_task(what, total=total)

    def counts(self, name: str, count: int) -> None:
        """How much of it is done."""
        if name in self._tasks:
            self._bars.update(self._tasks[name], completed=count)
        # Without a terminal a line now and then will do.
        if not self._console.is_terminal and time.monotonic() - self._shown.get(name, 0.0) > 3.0:
            self._shown[name] = time.monotonic()
            self.say(f"  {name}: {count:,} of {self._totals.get(name, 0):,}")


if __name__ == "__main__":
    main()
