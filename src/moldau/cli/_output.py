"""What commands print: JSON that stays as it is, or a table for people."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import click

Json = Mapping[str, "Json"] | Sequence["Json"] | str | int | float | bool | None
Cell = str | int | float | bool | None

output_option: Final = click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
    help="For people, or for scripts.",
)


def print_json(document: Json) -> None:
    """One document on stdout; the names in it are stable."""
    import json

    click.echo(json.dumps(document, indent=2, ensure_ascii=False))


def print_table(columns: Sequence[str], rows: Iterable[Sequence[Cell]]) -> None:
    """Columns that line up, numbers to the right; what is None is shown as a dash."""
    table = [list(row) for row in rows]
    texts = [[_text(cell) for cell in row] for row in table]
    widths = [max(len(cell) for cell in column) for column in zip(columns, *texts, strict=True)]
    is_right = [
        bool(table) and all(isinstance(row[index], int | float | None) for row in table)
        for index in range(len(columns))
    ]

    def line(cells: Sequence[str]) -> str:
        padded = (
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(cells, widths, is_right, strict=True)
        )
        return "  ".join(padded).rstrip()

    click.echo("\n".join([styled(line(columns), bold=True), *map(line, texts)]))


def print_facts(facts: Mapping[str, Cell]) -> None:
    """Names and values, one below the other."""
    width = max(map(len, facts))
    for name, value in facts.items():
        click.echo(f"{styled(name.ljust(width), bold=True)}  {_text(value)}")


def drop_stdout() -> None:
    """Print no more: nobody reads it. What Python still holds must go somewhere at exit, too."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def note(text: str) -> None:
    """Something for people only, on stderr."""
    click.echo(text, err=True)


def styled(text: str, *, bold: bool = False, colour: str | None = None) -> str:
    """Text for stdout with a style, where there is a terminal and NO_COLOR does not forbid it."""
    if os.environ.get("NO_COLOR") or not sys.stdout.isatty():
        return text
    return click.style(text, bold=bold, fg=colour)


def confirm(question: str, *, is_sure: bool) -> None:
    """Ask before something is lost; without a terminal to ask at, --yes is needed."""
    if is_sure:
        return
    if not sys.stdin.isatty():
        raise click.UsageError(f"{question} Confirm with --yes.")
    if not click.confirm(question, err=True):
        raise click.ClickException("Nothing was done.")


yes_option: Final = click.option("-y", "--yes", "is_sure", is_flag=True, help="Do not ask.")


def _text(cell: Cell) -> str:
    if cell is None:
        return "-"
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    return str(cell)
