"""Moldau beside Apache Kafka: the same work by the same clients, in turns, in one run.

    python bench/comparison.py [--quick] [--rounds N] [--only ROW] [--write] [--show FILE]

Everything listens on loopback, in temporary folders, and is gone at the end. `--write` puts the figures into
docs/performance.md, its pictures and its JSON; docs/performance.md says what is measured and how.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import confluent_kafka
from compare.memory import touch_free_memory
from compare.plots import save_plots, show
from compare.report import between_markers, markdown
from compare.results import Results, read_results
from compare.rows import ROWS, Row
from compare.servers import CONTENDERS, ROOT
from compare.turns import Progress, compare, turns_total

from moldau.bench.workloads import FULL, QUICK, Scale

PAGE = ROOT / "docs" / "performance.md"
FOLDER = PAGE.with_suffix("")
JSON = FOLDER / "figures.json"
# Enough for a JVM to compile what it runs most.
WARM_UP = Scale(records=100_000, seconds=0.3, latency_seconds=0.5)
QUICK_ROUNDS, FULL_ROUNDS = 3, 7


def main() -> int:
    """Compare, show, and perhaps write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="all rows in about five minutes")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--only", action="append", metavar="ROW", help="rows whose name begins so")
    parser.add_argument("--write", action="store_true", help="put the figures into docs/performance.md")
    parser.add_argument("--json", type=Path, metavar="FILE", help="put the figures into a file")
    parser.add_argument("--show", type=Path, metavar="FILE", help="measure nothing: show an earlier run")
    asked = parser.parse_args()
    if asked.only and not chosen_rows(asked.only):
        parser.error(f"no row begins so; there are {', '.join(row.name for row in ROWS)}")
    results = read_results(asked.show) if asked.show else measure(asked)
    from rich.console import Console

    show(results, Console())
    if asked.json:
        asked.json.write_text(results.to_json())
    if asked.write:
        write(results)
    return bool(results.failures)


def chosen_rows(beginnings: list[str]) -> list[Row]:
    """The rows whose names begin so."""
    return [row for row in ROWS if row.name.startswith(tuple(beginnings))]


def measure(asked: argparse.Namespace) -> Results:
    """The run that was asked for."""
    rows = chosen_rows(asked.only) if asked.only else list(ROWS)
    rounds = asked.rounds or (QUICK_ROUNDS if asked.quick else FULL_ROUNDS)
    began = time.monotonic()
    touch_free_memory()
    with progress(turns_total(rows, rounds=rounds, is_warming_up=True)) as tell:
        results = compare(
            rows,
            QUICK if asked.quick else FULL,
            rounds=rounds,
            warm_up=WARM_UP,
            facts=facts(is_quick=asked.quick),
            tell=tell,
        )
    minutes = (time.monotonic() - began) / 60
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    results.facts["took"] = f"{minutes:.1f} minutes; load averages at the end {load}"
    return results


def facts(*, is_quick: bool) -> dict[str, str]:
    """What was measured, and on what."""
    cpu = next(
        (line.partition(":")[2].strip() for line in Path("/proc/cpuinfo").read_text().splitlines()
         if line.startswith("model name")),
        platform.machine(),
    )  # fmt: skip
    return {
        "when": time.strftime("%Y-%m-%d", time.gmtime()),
        "run": "quick: `make bench-quick`" if is_quick else "full: `make bench`",
        "machine": f"{os.cpu_count()} cores, {cpu}, Linux {platform.release()}",
        "brokers": ", ".join(product.name for product in CONTENDERS.values()),
        "Python, Java": f"{platform.python_version()}, {java_version()}",
        "client": f"librdkafka {confluent_kafka.libversion()[0]}, and prepared requests over plain sockets",
    }


def java_version() -> str:
    """Which Java runs Kafka here."""
    try:
        asked = subprocess.run(["java", "-version"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "no Java"
    return asked.stderr.splitlines()[0].replace('"', "")


def write(results: Results) -> None:
    """Put the figures into the documentation."""
    save_plots(results, FOLDER)
    JSON.write_text(results.to_json())
    PAGE.write_text(between_markers(PAGE.read_text(), markdown(results, plots=FOLDER.name)))


@contextmanager
def progress(total: int) -> Iterator[Progress]:
    """A bar on a terminal; elsewhere a line now and then."""
    if not sys.stderr.isatty():
        last = 0.0

        def tell(what: str) -> None:
            nonlocal last
            if time.monotonic() - last > 10:
                last = time.monotonic()
                print(what, file=sys.stderr, flush=True)

        yield tell
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (BarColumn(), TimeElapsedColumn(), TimeRemainingColumn(), TextColumn("{task.description}"))
    # It is drawn between turns only: a thread that draws would take CPU from what is measured.
    with Progress(*columns, console=Console(stderr=True), transient=True, auto_refresh=False) as bar:
        task = bar.add_task("", total=total)

        def draw(what: str) -> None:
            bar.update(task, description=what, advance=1, refresh=True)

        yield draw


if __name__ == "__main__":
    sys.exit(main())
