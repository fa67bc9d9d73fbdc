"""The results with Spark as Markdown and for the terminal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from compare.report import text_of, verdict
from compare.results import CPU_UNIT, Results
from compare.spark_turns import OUR_CPU, OUR_TIME, OURS, ROWS, THEIRS
from moldau.bench.figures import short

if TYPE_CHECKING:
    from rich.console import Console

BEGIN, END = "<!-- spark: begin -->", "<!-- spark: end -->"
SHARE_MAX_PERCENT = 25


def markdown(results: Results) -> str:
    """Everything that is generated."""
    return "\n".join(line for part in (facts(results), rates(results), shares(results)) for line in part)


def facts(results: Results) -> Iterator[str]:
    """On what, when and how it was measured."""
    yield "| | |"
    yield "|---|---|"
    for name, text in results.facts.items():
        yield f"| {name} | {text} |"
    yield f"| rounds | {results.rounds}, after one to warm up |"
    yield f"| missing | {'; '.join(results.missing) or 'nobody'} |"
    yield f"| failed turns | {'; '.join(results.failures) or 'none'} |"
    yield ""


def rates(results: Results) -> Iterator[str]:
    """A line for each kind of work, and one for its CPU."""
    yield "| work | | `moldau` | `kafka` | Moldau is | aim |"
    yield "|---|---|--:|--:|--:|--:|"
    aims = {row.name: row.aim for row in ROWS}
    for each in results.figures:
        if each.reading in (OUR_TIME, OUR_CPU):
            continue
        is_cpu = each.unit == CPU_UNIT
        cells = (
            f"{each.group}, {each.title}: {each.reading}" if is_cpu else f"**{each.group}, {each.title}**",
            each.unit,
            text_of(each.spread_of(OURS)),
            text_of(each.spread_of(THEIRS)),
            verdict(each.advantage(OURS, THEIRS)),
            "" if is_cpu else f"{short(aims[each.row])} ×",
        )
        yield f"| {' | '.join(cells)} |"
    yield ""


def shares(results: Results) -> Iterator[str]:
    """How much of the tasks' time is ours."""
    yield "| Moldau's code takes | % of the tasks' time | % of Spark's CPU | aim |"
    yield "|---|--:|--:|--:|"
    for each in results.figures:
        if each.reading == OUR_TIME:
            cpu = results.figure(each.row, each.pair, OUR_CPU)
            cells = (text_of(each.spread_of(OURS)), text_of(cpu.spread_of(OURS) if cpu else None))
            yield f"| {each.group}, {each.title} | {' | '.join(cells)} | below {SHARE_MAX_PERCENT} |"
    yield ""


def show(results: Results, console: Console) -> None:
    """The same for the eye."""
    from rich.table import Table

    for what in (*results.missing, *results.failures):
        console.print(f"[yellow]{what}")
    table = Table("work", "reading", "unit", "moldau", "kafka", "Moldau is")
    for each in results.figures:
        table.add_row(
            f"{each.group}, {each.title}",
            each.reading,
            each.unit,
            text_of(each.spread_of(OURS)),
            text_of(each.spread_of(THEIRS)),
            verdict(each.advantage(OURS, THEIRS)).replace("**", ""),
        )
    console.print(table)
