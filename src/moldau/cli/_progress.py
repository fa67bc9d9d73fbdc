"""Something to look at while long work is done: a bar on stderr, if that is a terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, Literal

_DESCRIPTION_LETTERS_MAX: Final = 30

Advance = Callable[[int], None]


@contextmanager
def progress(
    description: str,
    *,
    total: int | None,
    unit: Literal["things", "bytes"] = "things",
    is_wanted: bool = True,
) -> Iterator[Advance]:
    """A bar that each call moves on by a count; without a total it only counts."""
    if not is_wanted or not sys.stderr.isatty():
        yield lambda count: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    console = Console(stderr=True, no_color=bool(os.environ.get("NO_COLOR")))
    counter = DownloadColumn() if unit == "bytes" else MofNCompleteColumn()
    columns = (TextColumn("{task.description}"), BarColumn(), counter, TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        # A long name must not take the bar's place.
        is_long = len(description) > _DESCRIPTION_LETTERS_MAX
        shown = f"{description[:_DESCRIPTION_LETTERS_MAX]}…" if is_long else description
        task = bar.add_task(shown, total=total)
        yield lambda count: bar.advance(task, count)
