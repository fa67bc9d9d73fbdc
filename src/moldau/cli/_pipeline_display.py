"""What is shown while a pipeline runs: a table that lives on a terminal, JSON lines anywhere else."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Final

import click

from moldau.spark.pipelines.progress import Progress, QueryProgress, query_json

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from moldau.spark.pipelines.runner import Observer
    from moldau.spark.pipelines.state import Run

_COLUMNS: Final = ("QUERY", "BATCH", "IN/S", "DONE/S", "ROWS", "LAG", "BATCH TIME", "STATE ROWS")


@contextmanager
def observer(*, as_json: bool) -> Iterator[Observer]:
    """Whoever watches the run: JSON on stdout if that is wanted, else people or a log behind stderr."""
    if as_json:
        yield JsonLines(sys.stdout, said=sys.stderr)
    elif sys.stderr.isatty():
        with Terminal() as terminal:
            yield terminal
    else:
        yield JsonLines(sys.stderr, said=sys.stdout)


class JsonLines:
    """An event a line; names in it stay, new ones may come."""

    def __init__(self, stream: IO[str], *, said: IO[str]) -> None:
        self._stream = stream
        self._said = said
        self._lock = threading.Lock()

    def phase(self, text: str) -> None:
        """What is done now."""
        self._write({"event": "phase", "text": text})

    def running(self, run: Run) -> None:
        """The pipeline runs."""
        self._write(
            {
                "event": "running",
                "name": run.name,
                "pid": run.process.pid,
                "master": run.master,
                "ui_url": run.ui_url,
                "metrics_url": run.metrics_url,
                "log": run.log,
            }
        )

    def batch(self, query: QueryProgress) -> None:
        """A micro-batch is done."""
        self._write({"event": "batch", **query_json(query)})

    def refresh(self, progress: Progress) -> None:
        """Time alone is no event."""

    def said(self, line: str) -> None:
        """What Spark prints is not part of the progress."""
        self._said.write(f"{line}\n")
        self._said.flush()

    def note(self, text: str) -> None:
        """Something that is worth telling."""
        self._write({"event": "note", "text": text})

    def _write(self, document: dict[str, object]) -> None:
        with self._lock:
            self._stream.write(json.dumps({"at_ms": int(time.time() * 1000), **document}) + "\n")
            self._stream.flush()


class Terminal:
    """A table of queries that is drawn anew every second, below what the pipeline prints."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.live import Live

        self._console: Console = Console(stderr=True, no_color=bool(os.environ.get("NO_COLOR")))
        self._phase = ""
        self._run: Run | None = None
        self._queries: list[QueryProgress] = []
        self._live = Live(
            console=self._console,
            get_renderable=self._draw,
            refresh_per_second=4,
            redirect_stdout=sys.stdout.isatty(),
            redirect_stderr=True,
        )

    def __enter__(self) -> Terminal:
        self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._phase = ""
        self._live.stop()

    def phase(self, text: str) -> None:
        """What is done now."""
        self._phase = text

    def running(self, run: Run) -> None:
        """The pipeline runs."""
        self._run = run
        self._phase = ""

    def batch(self, query: QueryProgress) -> None:
        """Seen at the next look."""

    def refresh(self, progress: Progress) -> None:
        """Time has gone by."""
        from dataclasses import replace

        self._queries = [replace(query) for query in progress.queries.values()]

    def said(self, line: str) -> None:
        """Spark has printed something for the user."""
        # What is written to stdout comes above the table.
        sys.stdout.write(f"{line}\n")

    def note(self, text: str) -> None:
        """Something that is worth telling."""
        self._console.print(text, highlight=False)

    def _draw(self) -> RenderableType:
        from rich.console import Group
        from rich.spinner import Spinner
        from rich.table import Table
        from rich.text import Text

        parts: list[RenderableType] = []
        if self._run is not None:
            where = f"  Spark's pages: {self._run.ui_url}" if self._run.ui_url else ""
            metrics = f"  metrics: {self._run.metrics_url}" if self._run.metrics_url else ""
            parts.append(Text(f"{self._run.name} on {self._run.master}{where}{metrics}", style="bold"))
            table = Table(box=None, pad_edge=False)
            for number, column in enumerate(_COLUMNS):
                table.add_column(column, justify="right" if number else "left")
            for query in self._queries:
                table.add_row(*row_of(query), style="dim" if query.has_ended else "")
            parts.append(table)
            if not self._phase:
                parts.append(
                    Text("Ctrl-C stops it after the micro-batch; it goes on from there.", style="dim")
                )
        if self._phase:
            parts.append(Spinner("dots", text=f"{self._phase} …"))
        return Group(*parts)


def row_of(query: QueryProgress) -> tuple[str, ...]:
    """A query as a row of the table."""
    return (
        query.name,
        _count(query.batch_id),
        "idle" if query.is_idle and not query.has_ended else _rate(query.rows_in_per_s),
        _rate(query.rows_done_per_s),
        _count(query.rows_in),
        _count(query.lag),
        f"{query.batch_ms / 1000:.1f} s" if query.batches else "-",
        _count(query.state_rows),
    )


def tell(text: str) -> None:
    """Something for people only, on stderr."""
    click.echo(text, err=True)


def _count(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


def _rate(value: float) -> str:
    return f"{value:,.0f}" if value else "0"
